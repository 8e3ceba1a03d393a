"""Whether dual coordinate descent stalls, and what would be faster from there: looked at after each of its epochs.

An epoch's cost is counted (passes, rows that rounds and conjugate gradients went over), never timed, so that the same
rows always have the same answer.
"""

from __future__ import annotations

import logging
import math

from bigclf.request.auto import Asked, is_easier, loss_for, method_for, most_tried, visit_ns
from bigclf.training.run import Run
from bigclf.units import format_seconds

log = logging.getLogger("bigclf")
PASSES = 3  # before anything is said
CAREFUL = 2.5  # times as many passes as the gap has fallen by so far: towards the end it falls more slowly
# Of the hinge on rows of ones it falls faster and faster: as many passes as by the last one, after one more; where dcd
# is only tried likewise, by the last two.
EASIER_PASSES, EASIER_CAREFUL = 4, 1.25
GAIN, WORTH = 1.5, 2.0  # times the other's cost from which a change pays; seconds from which it is worth a word
FEW = 5e-3  # seconds that an epoch with its rounds takes of however few rows: 10 to 30 ms of 5,000 rows of 4 numbers
WARM = 0.2  # relative gap below which weights are worth beginning with


class Stall:
    """To be called with a run of ``dcd`` at the end of each epoch (``Run.give_up``).

    asked : what the run is of, ``loss`` with its name; changes : whether it may be given up for another method, else
    that is said once.
    """

    def __init__(self, asked: Asked, changes: bool) -> None:
        self.asked, self.changes = asked, changes
        self.gaps: list[float] = []
        self.instead, self.cost = method_for(asked)
        self.most = most_tried(asked, loss_for(asked)) if changes else math.inf  # as of ``training.visit.Lesson``
        self.tried = math.isfinite(self.most)
        self.least = EASIER_PASSES if self.tried or is_easier(asked, loss_for(asked)) else PASSES
        self.over, self.warm, self.said = "", False, False
        self.seconds = math.inf  # that the other may take

    def __call__(self, run: Run) -> list[int]:
        """The problem, where another method is to go on."""
        status, tol = run.status[0], run.tol
        if tol is None or status.done or self.over or self.said:
            return []
        self.gaps.append(status.estimate)
        again = run.counts.again
        left = 0.0 if math.isinf(again) else self.left(again, tol)
        over, self.most = math.isinf(again), math.inf  # a trial that shows nothing; of any other dcd takes all it needs
        name, other = self.instead, self.cost
        if not (over or left > GAIN * other) or other > run.clock.left or (not self.changes and left - other < WORTH):
            return []
        long = f"and {format_seconds(left)} of a core may be left" if left > 0 else "and many rows keep moving"
        passes = "a pass" if len(self.gaps) == 1 else f"{len(self.gaps)} passes"
        what = (
            f"dcd: after {passes} the gap is about {self.gaps[-1]:.2g}, {long}; {name} is predicted to take "
            f"{format_seconds(other)}"
        )
        if not self.changes:
            self.said = True
            log.warning("%s (algo=%r)", what, name)
            return []
        self.over, self.warm, self.seconds = f"{what}, and goes on", self.gaps[-1] < WARM, run.clock.left
        log.info("%s", self.over)
        return [0]

    def left(self, again: float, tol: float) -> float:
        """Seconds that may be left, by how fast the gap has fallen and what the last epoch has cost; 0 while nothing
        can be said."""
        easier = is_easier(self.asked, loss_for(self.asked))
        gaps = self.gaps[-2:] if easier else self.gaps[-3:] if self.tried else self.gaps
        first, last, careful = gaps[0], gaps[-1], EASIER_CAREFUL if easier or self.tried else CAREFUL
        if len(self.gaps) < self.least or not 0 < tol < last < math.inf or not 0 < first < math.inf:
            return 0.0
        falls = math.log(first / last) / (len(gaps) - 1) if last < first else 0.0
        passes = careful * math.log(last / tol) / max(falls, 0.01)
        few = 0.0 if self.changes else FEW  # a change by itself goes by what is counted alone
        return passes * (few + 1e-9 * visit_ns(self.asked) * (1 + again) * self.asked.nnz)


def watched(asked: Asked, changes: bool) -> Stall | None:
    """What looks after a run of ``dcd``; None where no other method would do."""
    return Stall(asked, changes) if method_for(asked)[0] else None
