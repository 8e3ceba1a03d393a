"""Bits of before: hashes of every method's coefficients, and runs that older code was stopped in (tests/golden)."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from making import of_each_kind

import bigclf

GOLDEN = Path(__file__).parents[1] / "golden"
sys.path.insert(0, str(GOLDEN))
import bits  # noqa: E402
import resume  # noqa: E402

EXPECTED = json.loads((GOLDEN / "bits.json").read_text())
COMPARABLE = bits.comparable(EXPECTED)
ENTRIES = {entry.name: entry for entry in bits.entries()}
FAMILIES = (  # one entry of each, and of each way
    "perceptron///resident", "averaged_perceptron///arrays", "pa1/hinge//streamed/segments=3",
    "averaged_pa2/hinge//groups", "arow///groups", "sgd/hinge/l2/streamed", "adagrad/logistic/l1/resident",
    "dcd/hinge/l2/streamed", "dcd/logistic/l2/groups", "dcd/hinge/l2/groups",
    "dcd/epsilon_insensitive/l2/streamed-groups", "newton/logistic/l2/resident", "cw_mc///resident",
    "winnow2///classes",
)  # fmt: skip


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return bits.Rows(tmp_path_factory.mktemp("rows"))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_coefficients_have_the_bits_of_before(rows, name):
    if name not in COMPARABLE:
        pytest.skip("exponentials round differently here")
    assert bits.told(ENTRIES[name], rows) == EXPECTED[name]


def test_every_method_loss_and_way_has_its_hash_and_no_entry_is_of_none():
    here = bits.machine()
    hashes = {name: told for name, told in EXPECTED.items() if name not in here}
    assert set(ENTRIES) == set(hashes)
    assert all(len(told.split()) == 2 and told.split()[1].isdigit() for told in hashes.values())


def test_the_hash_is_of_the_last_bit():
    class Model:
        coef_, intercept_ = np.array([[1.0, 2.0]]), np.zeros(1)

    class Next(Model):
        coef_ = np.nextafter(Model.coef_, 3.0)

    assert bits.hash_of(Model()) != bits.hash_of(Next())


ALL = [method["name"] for method in bigclf.algorithms()]


@pytest.mark.parametrize("algo", [
    pytest.param(name, marks=pytest.mark.long if name in of_each_kind(ALL) else pytest.mark.slow) for name in ALL
])  # fmt: skip
def test_all_of_a_method_have_the_bits_of_before(rows, algo):
    names = [name for name in COMPARABLE if name.split("/")[0] == algo]
    now = {name: bits.told(ENTRIES[name], rows) for name in names}
    assert not bits.table_of_differences({name: EXPECTED[name] for name in names}, now)


# Runs that older code was stopped in


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("stopped")
    resume.unpack("shards", place)
    return place


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("dcd", "newton") else pytest.mark.long) for name in resume.RUN]
)
def test_a_run_that_older_code_was_stopped_in_ends_with_its_bits(place, name):
    told = resume.expected()[name]
    assert told["stopped"].startswith("stopped by SIGINT in epoch")
    assert resume.resumed(name, place) == told["whole"]


def test_the_run_directories_are_small():
    assert sum(os.path.getsize(path) for path in GOLDEN.rglob("*") if path.is_file()) < 800_000
