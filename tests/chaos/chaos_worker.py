"""What the workers of these tests do beside their work: they tell of each visit, and obey orders.

``dask worker --preload chaos_worker``. The directory $BIGCLF_CHAOS holds the orders (``<name>.order``, JSON); a process
that meets one claims it by making ``<name>.claim-<n>`` with its number inside, so that each is obeyed ``times`` times
in all, whoever comes. Nothing here changes a bit of any result.

An order: ``at`` "begin" or "end" of a visit, "sum" (a block has been added to the sums that the visit makes), "fetch"
(its result is there, the scheduler knows, and somebody asks for it) or "decode"; ``epoch``, ``first``, ``segment``,
``kind``, ``file``, ``row_group``: which one (left out: any); ``do`` "hold" (until ``<name>.release`` exists), "kill",
"segfault" (after ``seconds``), "hog" (take ``bytes`` of memory and hold them for ``seconds``), "sleep" (``seconds``) or
"raise".
"""

import asyncio
import contextlib
import ctypes
import functools
import json
import os
import signal
import time
from pathlib import Path

HOME = Path(os.environ["BIGCLF_CHAOS"])
HERE = {}  # the visit that is made
LONGEST = 60.0  # an order to hold ends by itself


def pace():
    """Seconds that each visit takes longer."""
    with contextlib.suppress(OSError, ValueError):
        return float((HOME / "pace").read_text())
    return 0.0


def tell(**record):
    line = json.dumps(record | {"pid": os.getpid(), "at": time.monotonic()}) + "\n"
    out = os.open(HOME / "visits", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(out, line.encode())
    finally:
        os.close(out)


def claimed(**where):
    """Orders that are for this place, each claimed."""
    for path in sorted(HOME.glob("*.order")):
        try:
            order = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        wanted = {name: order[name] for name in where if name in order}
        if wanted == {name: where[name] for name in wanted} and _claim(path, order.get("times", 1)):
            yield path, order


def _claim(path, times):
    for number in range(times):
        with contextlib.suppress(FileExistsError):
            beside = path.with_suffix(f".made-{os.getpid()}-{time.monotonic_ns()}")
            beside.write_text(str(os.getpid()))
            try:
                os.link(beside, path.with_suffix(f".claim-{number}"))  # with its content, or not at all
            finally:
                beside.unlink()
            return True
    return False


def obey(**where):
    for path, order in claimed(**where):
        what = order["do"]
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "segfault":
            time.sleep(order.get("seconds", 0))
            ctypes.string_at(0)
        elif what == "sleep":
            time.sleep(order["seconds"])
        elif what == "raise":
            raise OSError(order.get("message", "ordered to fail"))
        elif what == "hog":
            held = bytearray(b"x") * int(order["bytes"])
            time.sleep(order["seconds"])
            del held
        elif what == "hold":
            end = time.monotonic() + LONGEST
            while not path.with_suffix(".release").exists() and path.exists() and time.monotonic() < end:
                time.sleep(0.01)


def watch_visits():
    """Have every visit of this process told of, slowed down and subject to orders."""
    from bigclf.training.executor import Bench

    plain = Bench.visit

    @functools.wraps(plain)
    def visit(self, visit, states, carries, token):
        where = dict(kind=visit.kind, epoch=visit.epoch, segment=visit.segment, first=visit.first)
        tell(what="begin", token=token, **where)
        HERE.update(where)
        try:
            obey(at="begin", **where)
            outcome = plain(self, visit, states, carries, token)
            time.sleep(pace())
            obey(at="end", **where)
        except BaseException:  # such as one that nobody waits for any more
            tell(what="raised", token=token, **where)
            raise
        tell(what="end", token=token, **where)
        return outcome

    Bench.visit = visit


def watch_sums():
    """Orders for when a block has been gone over: a part of what the visit comes to is there."""
    from bigclf.training.roles.learner import Learner
    from bigclf.training.roles.steps import SumsLearner

    def watched(plain):
        @functools.wraps(plain)
        def method(self, *given):
            plain(self, *given)
            obey(at="sum", **HERE)

        return method

    Learner.learn, SumsLearner.block_done = watched(Learner.learn), watched(SumsLearner.block_done)


def watch_decoding():
    from bigclf.data.dataset import Dataset

    plain = Dataset.decode

    @functools.wraps(plain)
    def decode(self, file, row_group, into=None):
        obey(at="decode", file=Path(self.files[file]).name, row_group=row_group)
        return plain(self, file, row_group, into)

    Dataset.decode = decode


def watch_fetching(worker):
    """Orders for when a visit's result is there, and is asked for."""

    def place(key):
        if isinstance(key, tuple) and key[0] == "bigclf-visit" and "://" not in key[1]:  # which greets a worker
            kind, epoch, segment, first = key[1].split("-")[1:5]
            return dict(kind=kind, epoch=int(epoch), segment=int(segment), first=int(first))
        return None

    plain = worker.handlers["get_data"]

    async def get_data(comm, **kwargs):  # Dask looks at the names of the arguments
        for key in kwargs["keys"]:
            if where := place(key):
                await asyncio.to_thread(obey, at="fetch", **where)
        return await plain(comm, **kwargs)

    worker.handlers["get_data"] = get_data


def dask_setup(worker):
    watch_visits()
    watch_sums()
    watch_decoding()
    watch_fetching(worker)
    note = HOME.parent / "workers" / str(os.getpid())
    note.with_suffix(".part").write_text(json.dumps({"parent": os.getppid()}))
    note.with_suffix(".part").rename(note)
