"""What groups carry from visit to visit, as the driver knows it: row state, and how far it really went."""

from __future__ import annotations

import contextlib
import threading
from typing import Protocol

import numpy as np

from bigclf import files
from bigclf.errors import RunError
from bigclf.maths.mixing import settled
from bigclf.training.visit import Carry, Ref, RowFile


class RowPlace(Protocol):
    """A directory that every worker writes row state into: a run directory, or ``RowsAside``."""

    path: str

    def discard_rows(self, name: str) -> None:
        """A file of it was superseded."""
        ...


class RowsAside:
    """Row state of a run without a directory of its own, in one that ends with the run.

    Parameters
    ----------
    path : a directory that every worker can write; made if it is missing.
    """

    def __init__(self, path: str) -> None:
        self.path = files.absolute(path)
        files.make_directory(self.path)

    def discard_rows(self, name: str) -> None:
        """A file was superseded."""
        with contextlib.suppress(OSError):
            files.remove(files.join(self.path, name))


class CarriedRows:
    """Of each group what its last accepted visit left, and what it stands at.

    Parameters
    ----------
    n_problems : how many are learned. place : where files of row state are, or None.
    """

    def __init__(self, n_problems: int, place: RowPlace | None) -> None:
        self._n_problems, self._place = n_problems, place
        self._carried: dict[int, tuple[str, Carry]] = {}  # all settled ...
        self._proposed: dict[int, tuple[str, Carry]] = {}  # ... or as the last visit left it
        self._settling = threading.Lock()

    def restore(self, group: int, ref: Ref, carry: Carry) -> None:
        """Take up what a checkpoint says of a group."""
        self._carried[group] = ref.token, carry

    def has(self, group: int, ref: Ref) -> bool:
        """Whether it is known here what the group carries at ``ref``."""
        with self._settling:
            return ref.token in [held[group][0] for held in (self._proposed, self._carried) if group in held]

    def propose(self, group: int, ref: Ref | None, token: str, carry: Carry) -> None:
        """The group's last accepted visit, which went on from ``ref``, left it so; how far it really goes the next
        ``Ref`` says."""
        if ref is not None and group in self._proposed:
            self.settled(group, ref)  # what the visit went on from: the next step is counted from there
        with self._settling:
            if carry.shared is not None:  # in the middle of an epoch nothing is to be decided
                before = self._carried.get(group)
                self._carried[group] = token, carry
                self._proposed.pop(group, None)
                if before is not None:
                    self._discard(before[1])
            else:
                self._proposed[group] = token, carry

    def settled(self, group: int, ref: Ref) -> Carry:
        """What the group carries at ``ref``; asked for in this thread and in Dask's."""
        with self._settling:
            proposed = self._proposed.get(group)
            if proposed is not None and proposed[0] == ref.token:
                before = self._carried.get(group, ("", Carry([{} for _ in range(self._n_problems)], None)))[1]
                steps = ref.steps or (1.0,) * self._n_problems
                self._carried[group] = ref.token, _gone_along(before, proposed[1], steps)
                del self._proposed[group]
                self._discard(before)
            token, carry = self._carried[group]
            if token != ref.token:
                raise RunError(f"what group {group} carried at {ref.token} is gone")
            return carry

    def _discard(self, carry: Carry) -> None:
        """Nobody goes on from it any more."""
        if isinstance(carry.rows, RowFile) and self._place is not None:
            self._place.discard_rows(carry.rows.name)


def _gone_along(before: Carry, after: Carry, steps: tuple[float, ...]) -> Carry:
    """What a group carries after going so far along the step from ``before`` to ``after``."""
    if isinstance(after.rows, RowFile):  # the file has both
        return Carry(after.rows._replace(steps=steps), None)
    assert not isinstance(before.rows, RowFile)
    return Carry([_along(b, r, t) for b, r, t in zip(before.rows, after.rows, steps, strict=True)], None)


def _along(before: dict[str, np.ndarray], after: dict[str, np.ndarray], t: float) -> dict[str, np.ndarray]:
    """A problem's row state, gone the part ``t`` of its step; nothing before means zeros."""
    held = {name: array for name, array in after.items() if not name.startswith("before.")}
    if t == 1.0:
        return held
    for name, array in held.items():
        if name.startswith("rows."):
            start = after.get(f"before.{name}", before.get(f"start.{name}", before.get(name)))
            held[name] = settled(array * 0.0 if start is None else start, array, t)
    return held
