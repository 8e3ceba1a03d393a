"""The ways of a call and of a row: how many files they enter, and that they never climb back to one they have left."""

import sys

import numpy as np
import pytest
from making import PACKAGE

from bigclf.cli import main
from bigclf.data import dataset, pages
from bigclf.methods import Setting

MOST_FILES, MOST_OF_ROWS = 14, 6


def files_on_stack():
    """Our files on the stack of the caller, outermost first, once where they follow one another."""
    found, frame = [], sys._getframe(2)
    while frame is not None:
        place = frame.f_code.co_filename
        if place.startswith(f"{PACKAGE}/") and (not found or found[-1] != place):
            found.append(place)
        frame = frame.f_back
    return [place.removeprefix(f"{PACKAGE}/") for place in reversed(found)]


@pytest.fixture
def shards(tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "rows.svm"
    rows = [(y, np.sort(rng.choice(30, 4, replace=False)) + 1) for y in rng.choice([-1, 1], 400)]
    path.write_text("".join(f"{y} " + " ".join(f"{j}:1" for j in indices) + "\n" for y, indices in rows))
    main(["convert", str(path), str(tmp_path / "shards")], standalone_mode=False)
    return tmp_path / "shards"


@pytest.fixture
def ways(monkeypatch):
    """(files to each entry of a kernel that learns, files to each column of a page that is decoded)."""
    calls, reads, kernel, fill = set(), set(), Setting.kernel, pages._fill

    def noting(setting):
        compiled = kernel(setting)
        name = compiled.__module__.removeprefix("bigclf.").replace(".", "/") + ".py"

        def update(*given):
            calls.add((*files_on_stack(), name))
            return compiled(*given)

        return update

    def filling(*given):
        reads.add(tuple(files_on_stack()))
        return fill(*given)

    monkeypatch.setattr(Setting, "kernel", noting)
    monkeypatch.setattr(pages, "_fill", filling)
    monkeypatch.setattr(dataset, "SMALL", 0)  # few rows are decoded by Arrow
    return calls, reads


@pytest.mark.parametrize("algo", ["pa1", "dcd", "newton"])
def test_a_call_and_a_row_go_straight_to_the_kernel(shards, ways, algo, tmp_path):
    """What reads rows runs in a thread of its own; a block is handed over by files of the call's way."""
    given = ["fit", str(shards), "--algo", algo, "--epochs", "3", "-o", str(tmp_path / "model")]
    main(given, standalone_mode=False)
    calls, reads = ways
    learned = [way for way in calls if "training/executor.py" in way]
    assert learned and all(way[:3] == ("cli/__init__.py", "cli/fit.py", "api/fit.py") for way in learned)
    for way in calls:
        assert len(way) <= MOST_FILES and len(set(way)) == len(way), way
    assert reads and all(way[0] == "stream/blocks.py" and way[-1] == "data/pages.py" for way in reads)
    for read in reads:
        for way in learned:
            at_work = (*read, *way[way.index("training/roles/learner.py") :])
            assert len(set(at_work)) == len(at_work) <= MOST_OF_ROWS, at_work


def test_it_sees_what_climbs_back():
    here = compile("def around(): return inside()", f"{PACKAGE}/a.py", "exec")
    there = compile("def inside(): return note()", f"{PACKAGE}/b.py", "exec")
    back = compile("def note(): return look()", f"{PACKAGE}/a.py", "exec")
    names = {"look": lambda: files_on_stack()}
    for code in (here, there, back):
        exec(code, names)
    assert names["around"]() == ["a.py", "b.py", "a.py"]
