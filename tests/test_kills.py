"""Killed between two of its files, a command that is given again finishes: nothing lost, and nothing to be overwritten.

Every case is carried out once undisturbed, and once for each point where it changes names of files, where it is killed
and given again (``kills.py``).
"""

import json
import os
import subprocess
import sys

import pytest
from making import random_rows, shards_of

import bigclf

KILLS = os.path.join(os.path.dirname(__file__), "kills.py")
SCORER = ["export", "{model}", "{out}/scorer", "--to", "numpy"]
LINES = {
    "export": SCORER,
    "evaluate": ["evaluate", "{model}", "{data}", "-o", "{out}/e.json", "--report", "{out}/e.html"],
    "predict": ["predict", "{model}", "{data}", "-o", "{out}/p.csv"],
    "directory": ["predict", "{model}", "{data}", "-o", "{out}/p"],
    "split": ["split", "{data}", "{out}/parts"],
    "convert": ["convert", "{text}", "{out}/s", "--workers", "1"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Shards, text of the same rows, and a model of them."""
    there = tmp_path_factory.mktemp("kills")
    x, y = random_rows(60, 8, binary=True)
    shards = shards_of(there / "s", x, y)
    bigclf.fit(shards, algo="dcd", loss="logistic", epochs=2).save(there / "m.bigclf")
    lines = (f"{label} " + " ".join(f"{j + 1}:1" for j in row.indices) for row, label in zip(x, y, strict=True))
    (there / "rows.svm").write_text("\n".join(lines) + "\n")
    return {"data": there / "s", "model": there / "m.bigclf", "text": there / "rows.svm"}


def attempts(line, place, directory, **more):
    """What came of the line undisturbed, and of each attempt in which it was killed."""
    words = [word.format(out="{out}", **place) for word in line]
    done = subprocess.run([sys.executable, KILLS, directory], input=json.dumps({"line": words, **more}), text=True,
                          stdout=subprocess.PIPE, check=True)  # fmt: skip
    whole, *killed = map(json.loads, done.stdout.splitlines())
    assert whole["code"] == 0 and not whole["hidden"], whole["text"]
    assert killed
    return whole, killed


def check(whole, killed):
    """Each is finished, as the one that nobody disturbed, and leaves nothing behind."""
    for told in killed:
        assert told["code"] == 137 and told["again"] == 0, (told["where"], told["said"])
        assert told["content"] == whole["content"] and not told["hidden"], told["where"]


@pytest.mark.long
def test_killed_between_its_two_files_an_export_is_finished_by_the_same_line(place, tmp_path):
    whole, killed = attempts(SCORER, place, tmp_path, only="/scorer.")
    check(whole, killed)
    assert any(len(told["left"][0]) == 1 for told in killed)  # of two


@pytest.mark.long
@pytest.mark.parametrize("name", LINES)
def test_killed_anywhere_a_line_is_finished_by_the_same_line(name, place, tmp_path):
    whole, killed = attempts(LINES[name], place, tmp_path)
    check(whole, killed)
    assert len(killed) == len(whole["changes"])
