"""Methods whose kernel learns row by row: copies are mixed, and nothing certifies the answer."""

from __future__ import annotations

from bigclf.maths.mixing import Weights
from bigclf.methods.method import Online
from bigclf.training.roles.conductor import Conductor, Ending
from bigclf.training.roles.learner import Learner
from bigclf.training.visit import Figures, Part


class OnlineLearner(Learner):
    """A problem of such a method in a group."""

    @property
    def may_trace(self) -> bool:
        """Where the kernel may be called for a few rows at a time."""
        how = self.problem.setting.method.how
        return self.alone and isinstance(how, Online) and how.in_pieces


class OnlineConductor(Conductor):
    """A problem of such a method at the driver."""

    def take(self, start: Weights, part: Part, figures: Figures, ending: Ending) -> tuple[Weights, float]:
        """The mixed copies are the next state; some methods end with an epoch that learned from no row."""
        self.status.settled = self.method.settles and ending.whole and figures.tally.updates == 0
        self.status.since_certificate += 1
        return part.state, 1.0
