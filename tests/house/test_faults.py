"""The table of faults in tests/README.md: the tests that it names are there, in the tiers that it says."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
TIERS = ("chaos", "root", "data", "slow", "long")


def named():
    """(file, test, tier) of each that the page names."""
    found = re.findall(r"`([\w/]+\.py)::(\w+)`(?: \(([\w, ]+)\)(?=<br>| \|))?", (TESTS / "README.md").read_text())
    assert len(found) == (TESTS / "README.md").read_text().count(".py::")
    return found


def tiers_of(path):
    """test -> its tiers, those of the whole file among them; of cases that have one of their own nothing is said."""
    tree = ast.parse(path.read_text())

    def marks(nodes):
        texts = [ast.unparse(node) for node in nodes]
        return {
            tier for text in texts if "parametrize" not in text for tier in re.findall(r"pytest\.mark\.(\w+)", text)
        }

    ours = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node.targets)
    ]
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {test.name: marks([*ours, *test.decorator_list]) for test in tests}


@pytest.mark.parametrize("file", sorted({file for file, *_ in named()}))
def test_what_the_table_of_faults_names_is_there_in_its_tier(file):
    there = tiers_of(TESTS / file)
    for _, test, told in (one for one in named() if one[0] == file):
        assert test in there, f"{file} has no {test}"
        assert told == ", ".join(tier for tier in TIERS if tier in there[test]), f"{file}::{test}"
