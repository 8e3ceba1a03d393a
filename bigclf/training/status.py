"""How far a problem is: the best answer so far, what is known of it, and what steers its certificates."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bigclf.maths.mixing import PENALTY
from bigclf.training.visit import Lengths, Tally, square_of

# Of a working set the estimate is several times too high at first, as rows outside it show what they lacked before
# their visit (1.5 to 7 times on three sets of data); after the first certificate, as many times as it was then.
TRUTH_OF_SET = 0.25
# Of a set of few of the rows that move the estimate is mostly of the others (M, 5 to 8 %: the gap was 0.59 to 0.65 of
# it), and a certificate that ends nothing costs a read.
TRUTH_OF_SCANT_SET = 0.6
ROUNDING = 1e-12  # of sums of squares over at most some 10^9 features, in float64

_LATER: dict[str, Any] = {  # facts that older checkpoints have not
    "epochs": 0, "over": False, "busy": 0.0, "settled": False, "last_mistakes": 0, "stalled": False,
    "violation": None, "dropped": False, "scale": 1.0, "learned": True,
}  # fmt: skip
_FLOATS = ("primal", "dual", "estimate", "seen", "truth", "optimism", "penalty")
_LATER_FLOATS = {"tried": np.inf}
_FACTS = (*_FLOATS, "done", "since_certificate", "certify_next", "reads", "step")


class Pair(NamedTuple):
    """Of dual variables a that belong to weights w, with v = sum a_i y_i x_i.

    dual : D(a). square : ||v||^2. apart : a bound on ||v - w||, which rounding alone keeps from 0 but where groups are
    on their way to agree.
    """

    dual: float
    square: float
    apart: float


NO_PAIR = Pair(-np.inf, np.inf, np.inf)


class Status:
    """How far a problem is.

    weights : [feature + 1] of the answer so far, in the run's precision; primal : their objective; dual : the best
    dual objective, which no primal objective can be below; gap : (primal - dual) / primal; progressive : Tally of the
    first epoch; best : the state that did best on the validation rows, where a run may end for their sake.
    """

    def __init__(self) -> None:
        self.weights: np.ndarray | None = None
        self.best: Any = None
        self.primal, self.dual = np.inf, -np.inf
        self.tried = np.inf  # least primal objective of weights that were certified, be they kept or let go
        self.pair = NO_PAIR  # of the read that certified the answer
        self.scale = 1.0  # of the answer: a run that ends early may return its last weights scaled
        self.done = False
        self.since_certificate = 0
        self.certify_next = False
        self.estimate = 1.0
        self.seen = np.inf  # gap that the rows showed as they streamed by
        self.truth = TRUTH_OF_SET  # how many times the certified gap will be the estimate
        self.optimism = 1.0  # how many times the certified gap was the estimate of the same weights
        self.progressive, self.total = Tally(), Tally()
        self.reads = 0  # the read that certified the answer
        self.step = 1.0  # how far along the summed steps of the groups the last epoch went
        self.penalty = PENALTY  # on groups that disagree
        self.epochs = 0  # that it has learned in
        self.over = False  # it has had as many as it may have
        self.dropped = False  # others promise more
        self.stalled = False  # floating point has no better answer
        self.last_mistakes = 0  # in its last epoch
        self.learned = True  # ... from rows, one after another: else its read was for sums
        self.settled = False  # its last epoch learned from no row, and no further one would
        self.busy = 0.0  # seconds of a core that it took
        self.violation: float | None = None  # of the optimality conditions, in the weights of the answer
        self.began: np.ndarray | None = None  # the weights at the start of an epoch that was cut short
        self.dual_weights: np.ndarray | None = None  # float64, sum a_i y_i x_i, where groups start from another point

    @property
    def gap(self) -> float | None:
        """Certified relative gap; rounding alone can make P - D negative, and then it is 0."""
        if self.weights is None:
            return None
        return max(0.0, self.primal - self.dual) / self.primal if self.primal > 0 else 0.0

    @property
    def told(self) -> tuple[float, float | None]:
        """Objective and gap that the history tells: of the answer so far, or, while there is none, of the best weights
        that were certified and let go."""
        if self.weights is not None or self.tried == np.inf:
            return self.primal, self.gap
        return self.tried, max(0.0, self.tried - self.dual) / self.tried if self.tried > 0 else 0.0

    def accept(self, primal: float, dual: float, weights: Any, read: int, tol: float, keep: str) -> None:
        """Keep the best primal and the best dual seen: together they certify the weights of the former.

        keep : "copy" (learning goes on in their place), "as they are" (it does not), or "if done": weights that do not
        end the problem are let go. Those that do are kept as they are.
        """
        self.dual, self.tried = max(self.dual, dual), min(self.tried, primal)
        if primal >= self.primal:
            self.done = self.gap is not None and self.gap <= tol
            return
        gap = max(0.0, primal - self.dual) / primal if primal > 0 else 0.0
        self.done = gap <= tol
        if not self.done and keep == "if done":
            return
        self.primal, self.reads, self.scale = primal, read, 1.0
        self.pair = NO_PAIR
        if self.done or keep == "as they are":
            self.weights = weights
        elif self.weights is None:
            self.weights = weights.copy()
        else:
            self.weights[:] = weights

    def take_pair(self, dual: float, lengths: Lengths) -> None:
        """Keep what is known of the dual variables of the read that certified the answer; dual : their objective."""
        assert self.weights is not None
        square, own = lengths.square, square_of(self.weights)
        apart = math.sqrt(max(0.0, square - 2.0 * lengths.across + own) + ROUNDING * (square + own))
        self.pair = Pair(dual, square, apart)

    def facts(self) -> dict[str, object]:
        """What a checkpoint says of it beside its arrays."""
        facts = {name: getattr(self, name) for name in (*_FACTS, *_LATER)}
        for name in (*_FLOATS, *_LATER_FLOATS):  # JSON has no infinity; hexadecimal keeps every bit
            facts[name] = float(getattr(self, name)).hex()
        return facts | {
            "pair": [value.hex() for value in self.pair],
            "progressive": self.progressive.array().tolist(),
            "total": self.total.array().tolist(),
        }

    @classmethod
    def of(cls, facts: dict[str, Any], weights: np.ndarray | None, dual_weights: np.ndarray | None) -> Status:
        """As a checkpoint has it."""
        status = cls()
        for name in _FACTS:
            setattr(status, name, facts[name])
        for name, value in _LATER.items():
            setattr(status, name, facts.get(name, value))
        for name in _FLOATS:
            setattr(status, name, float.fromhex(facts[name]))
        for name, least in _LATER_FLOATS.items():
            setattr(status, name, float.fromhex(facts[name]) if name in facts else least)
        if "pair" in facts:
            status.pair = Pair(*map(float.fromhex, facts["pair"]))
        status.progressive, status.total = Tally.of(np.array(facts["progressive"])), Tally.of(np.array(facts["total"]))
        status.weights = None if weights is None else weights.copy()
        status.dual_weights = None if dual_weights is None else dual_weights.copy()
        return status
