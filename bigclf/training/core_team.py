"""The problems of a block, on more than one core: they share its rows and nothing else, so that nobody waits and no bit
depends on who came first."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from bigclf.methods.method import Both, in_turn
from bigclf.training.visit import Scratch

IDLE_SECONDS = 0.1  # between two looks of the main thread at whether the run is to stop


@contextlib.contextmanager
def beside(threads: int) -> Iterator[Both]:
    """What does two pieces of work on a core each, the first on the caller's; of one thread in turn."""
    if threads < 2:
        yield in_turn
        return
    with ThreadPoolExecutor(1, thread_name_prefix="bigclf-beside") as pool:

        def both(one: Callable[[], T], other: Callable[[], U]) -> tuple[T, U]:
            under_way = pool.submit(other)
            return one(), under_way.result()

        yield both


T = TypeVar("T")
U = TypeVar("U")


class BrokenOff(Exception):
    """Another problem has failed, or the run is to stop at once."""


class Team:
    """So many threads (1: the caller's own), each with memory of its own for orders and scores."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._scratch: queue.SimpleQueue[Scratch] = queue.SimpleQueue()
        self._halt = threading.Event()
        self.rest()

    def each(
        self,
        what: Sequence[T],
        work: Callable[[T, Scratch, Callable[[], None]], None],
        idle: Callable[[], None],
        told: Callable[[int], None] = lambda done: None,
    ) -> None:
        """``work(item, scratch, idle)`` for each item; ``idle`` is called by the caller's thread only, and may raise;
        so is ``told``, with the number of items that are done.

        Raises
        ------
        Exception : what ``idle`` or the first failing item raised, after all have come to rest.
        """
        if self.threads == 1 or len(what) == 1:
            scratch = self._scratch.get()
            try:
                for done, item in enumerate(what, 1):
                    work(item, scratch, idle)
                    idle()
                    told(done)
            finally:
                self._scratch.put(scratch)
            return
        self._together(what, work, idle, told)

    def do(self, pieces: Sequence[Callable[[Scratch], None]], idle: Callable[[], None], apart: bool) -> None:
        """``piece(scratch)`` for each piece of work, side by side where they are worth it: ``apart``."""
        self.each([[piece] for piece in pieces] if apart else [pieces], _in_turn, idle)

    def _together(
        self,
        what: Sequence[T],
        work: Callable[[T, Scratch, Callable[[], None]], None],
        idle: Callable[[], None],
        told: Callable[[int], None],
    ) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="bigclf-learn")
        self._halt.clear()

        def one(item: T) -> None:
            scratch = self._scratch.get()
            try:
                self._go_on_unless_halted()
                work(item, scratch, self._go_on_unless_halted)
            finally:
                self._scratch.put(scratch)

        waiting = {self._pool.submit(one, item) for item in reversed(what)}  # a grid's last values take longest
        try:
            while waiting:
                done, waiting = wait(waiting, IDLE_SECONDS, FIRST_EXCEPTION)
                for future in done:
                    future.result()
                idle()
                told(len(what) - len(waiting))
        except BaseException:
            self._halt.set()
            wait(waiting)
            raise

    def _go_on_unless_halted(self) -> None:
        if self._halt.is_set():
            raise BrokenOff

    def rest(self) -> None:
        """Let go of the memory."""
        while not self._scratch.empty():
            self._scratch.get()
        for _ in range(self.threads):
            self._scratch.put(Scratch(0))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None


def _in_turn(pieces: Sequence[Callable[[Scratch], None]], scratch: Scratch, idle: Callable[[], None]) -> None:
    for piece in pieces:
        piece(scratch)
