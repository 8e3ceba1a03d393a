"""The family that our own schedule comes from, as settings of the same solver (``Plan.schedule``).

fixed : block minimisation (Yu, Hsieh, Chang, Lin, KDD 2010): which rows make up a block is drawn once, each block goes
    through several epochs of the solver, and only the order of the blocks is drawn anew in every read.
selective : selective block minimisation (Chang and Roth, KDD 2011): the rows of the block together with a cache of
    informative ones, chosen after every block from both: rows inside their box first, then those with the least
    distance to being provably stuck at an end of it, which is the distance of their margin from 1.
cached : dual cached loops (Matsushima, Vishwanathan, Smola, KDD 2012) in a schedule that is fixed by counts in place of
    two threads that run free: rows come in the order of the files and enter the cache; for each row that came, so many
    rows of the cache are visited. A row leaves when it is stuck by more than a threshold, which is the largest
    violation that the last read saw; where that makes no room, the threshold is relaxed until a fifth is free.

All of them look at every row once a read at least, keep the dual variables of all rows, and certify every read; so they
have one optimum, and repeatable bits.

Our own, of losses without stuck rows, for which there is no working set: ``settled``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bigclf.maths.block import Block
from bigclf.stream.working_set import KEEP

if TYPE_CHECKING:
    from bigclf.training.roles.dual import DualLearner
    from bigclf.training.visit import Scratch

SETTLED = 0.05  # share of the gap that a block came with, at which its rounds end


def fixed(learner: DualLearner, view: Block, members: np.ndarray, scratch: Scratch) -> None:
    """Some epochs over the block's rows."""
    scores = scratch.scores(view.n_rows)
    for number in range(learner.plan.block_rounds):
        counts = learner.go_over(view, members, scores, scratch)
        if number == 0:
            learner.tally.add(counts)
        if not counts.updates:
            return


def selective(learner: DualLearner, view: Block, members: np.ndarray, scratch: Scratch) -> None:
    """Some epochs over the block's rows and the cache; then the cache is chosen among both."""
    held, scores = learner.set, scratch.scores(view.n_rows)
    assert held is not None
    fresh = learner.outside(view, members)
    for number in range(learner.plan.block_rounds):
        counts = learner.go_over(view, fresh, scores, scratch)
        if number == 0:
            learner.tally.add(counts)
        again = learner.go_over(held.block(), np.arange(held.n_rows), held.scores, scratch)
        if not counts.updates and not again.updates:
            break
    held.threshold = -np.inf  # what was too low beside earlier blocks need not be now
    learner.admit(view, fresh, scores)


def cached(learner: DualLearner, view: Block, members: np.ndarray, scratch: Scratch) -> None:
    """The block's rows enter the cache a few at a time, each is visited, and then others of the cache."""
    visits = learner.visits
    assert visits is not None
    held, scores = learner.set, scratch.scores(view.n_rows)
    assert held is not None
    fresh = learner.outside(view, members)
    lengths = np.diff(view.indptr)[fresh]
    rows, entries = (max(1, int((1 - KEEP) * size)) for size in (held.scores.size, held.arena.indices.size))
    wide = lengths > entries
    if wide.any():  # too large for the cache: their turn is where they stand
        learner.tally.add(learner.go_over(view, fresh[wide], scores, scratch))
    scores[:] = 0
    for piece in pieces(lengths[~wide], rows, entries):
        some = fresh[~wide][piece]
        first = _let_in(learner, view, some, int(lengths[~wide][piece].sum()), scores)
        learner.tally.add(visits.visit(np.arange(first, held.n_rows)))
        visits.earn(some.size * (learner.plan.block_rounds - 1))
    visits.earn((members.size - fresh.size) * learner.plan.block_rounds)  # these came too, and were here


def settled(learner: DualLearner, view: Block, members: np.ndarray, scratch: Scratch) -> None:
    """Rounds over the block's rows until they lack little of what they lacked when they came."""
    scores = scratch.scores(view.n_rows)
    first = learner.go_over(view, members, scores, scratch)
    learner.tally.add(first)
    for _ in range(1, learner.plan.block_rounds):
        if learner.go_over(view, members, scores, scratch).gap <= SETTLED * first.gap:
            return


TAKES: dict[str, Callable[[DualLearner, Block, np.ndarray, Any], None]] = {
    "fixed": fixed,
    "selective": selective,
    "cached": cached,
}


def _let_in(learner: DualLearner, view: Block, rows: np.ndarray, entries: int, scores: np.ndarray) -> int:
    """Copy ``rows`` into the cache, others leave if they must; the place of the first of them."""
    held = learner.set
    assert held is not None
    if held.n_rows + rows.size > held.scores.size or held.used[1] + entries > held.arena.indices.size:
        held.compact()
    first = int(held.n_rows)
    held.threshold = -np.inf
    learner.admit(view, rows, scores)
    return first


def pieces(lengths: np.ndarray, rows: int, entries: int) -> Iterator[slice]:
    """Slices of at most ``rows`` rows and ``entries`` entries, each of which is at most ``entries`` long itself."""
    ends, start = np.cumsum(lengths), 0
    while start < lengths.size:
        before = ends[start - 1] if start else 0
        stop = min(start + rows, int(np.searchsorted(ends, before + entries, side="right")))
        yield slice(start, stop)
        start = stop
