"""Large arrays for another process of this machine: what is read is what was posted last, or nothing."""

import os
import subprocess
import sys

import making
import numpy as np
import pytest
from making import random_rows

from bigclf.cluster import engine, peers
from bigclf.files import boards
from bigclf.files.boards import Board, read

distributed = pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory without a name is Linux's"),
    pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning", "ignore::DeprecationWarning"),
]


def test_another_process_reads_what_was_posted():
    board = Board()
    posted = board.post({"a": np.arange(300_000.0), "b": (np.float32(2), np.zeros(0), np.arange(7)[::2])})
    text = (
        "import sys; from bigclf.files.boards import Posted, read; found = read(eval(sys.argv[1]));"
        "print(found['a'].sum(), found['b'][2].tolist(), found['a'].flags.writeable)"
    )
    told = subprocess.run([sys.executable, "-c", text, repr(posted)], capture_output=True, text=True, check=True)
    assert told.stdout.split(maxsplit=1) == ["44999850000.0", "[0, 2, 4, 6] True\n"]


def test_what_is_no_longer_there_is_not_read():
    board = Board()
    first = board.post(np.ones(10))
    second = board.post(np.zeros(10))
    assert read(second).tolist() == [0] * 10
    for posted in (first, second._replace(sizes=(4000,)), second._replace(descriptor=10**6)):
        with pytest.raises(OSError):
            read(posted)
    board.close()
    with pytest.raises(OSError):
        read(second)


def test_what_is_written_meanwhile_is_not_taken(monkeypatch):
    board, whole = Board(), boards._read
    posted = board.post(np.ones(1000))

    def slow(file, into, place):
        whole(file, into[:100], place)
        board.post(np.zeros(1000))
        whole(file, into[100:], place + 100)

    monkeypatch.setattr(boards, "_read", slow)
    with pytest.raises(OSError, match="something else"):
        read(posted)


def test_another_machine_is_not_near():
    assert boards.reaches(boards.probe())
    assert not boards.reaches(None)
    board = Board()
    posted = board.post(None)
    board.close()
    assert not boards.reaches(posted)
    assert not boards.reaches(boards.probe()._replace(head=bytes(32)))  # a process of the same number


@pytest.mark.parametrize(
    ("algo", "lost"), [("pa1", ""), ("newton", ""), ("dcd", ""), ("pa1", "up"), ("newton", "down")]
)
def test_states_on_boards_change_no_bit(algo, lost, client, monkeypatch):
    rows, options = random_rows(1200, 40, noise=0.5), dict(algo=algo, groups=3, epochs=4, progress=False)
    alone, found = making.fit(*rows, **options), {"up": 0, "down": 0}

    def reading(way):
        def read_or_not(posted):
            found[way] += 1
            if way == lost and (way == "down" or found[way] % 3 == 0):  # a worker that may not read the driver's
                raise OSError("something else is there")
            return read(posted)

        return read_or_not

    monkeypatch.setattr(boards, "LEAST_BYTES", 0)
    monkeypatch.setattr(engine, "read", reading("up"))
    monkeypatch.setattr(peers, "read", reading("down"))
    there = making.fit(*rows, workers=client, **options)
    np.testing.assert_array_equal(alone.coef_.view(np.uint64), there.coef_.view(np.uint64))
    if not lost:
        assert found["up"] >= 3 * there.result_.epochs and found["down"] >= there.result_.epochs - 1
    assert found[lost or "up"] > 1
    assert not [path for path in os.listdir("/proc/self/fd") if is_board(path)]


def is_board(descriptor):
    try:
        link = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return False
    return "memfd:bigclf" in link and int(descriptor) != boards.probe().descriptor


def test_a_worker_keeps_the_memory_of_arrays_for_the_next():
    text = """if True:
        import resource
        import numpy as np
        from bigclf.training.memory import keep_freed
        def faults():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(20):
                np.ones(250_000)
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        print(faults(), keep_freed(), faults(), faults())
    """
    told = [
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, env=env).stdout.split()
        for env in ({**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}, os.environ)
    ]
    assert [each[1] for each in told] == ["True", "False"]  # who was told nothing is left alone
    assert int(told[0][0]) > 20 * 400 and int(told[0][3]) < 20 * 40
