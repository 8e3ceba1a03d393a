"""Methods whose kernel learns row by row: copies are mixed, and nothing certifies the answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bigclf.maths.mixing import Momentum, Weights
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

    velocity = np.empty(0)  # m of momentum, where copies are mixed with it

    @property
    def momentum(self) -> Momentum[Weights] | None:
        """How the mixed copies go further, if they do."""
        return None if self.alone or self.rule is None else self.rule.momentum

    def begin(self, states: list[Weights], others: Sequence[Conductor]) -> None:
        """At first there is no way that they came."""
        if self.momentum is not None:
            self.velocity = self.momentum.begin(states[self.number])

    def take(self, start: Weights, part: Part, figures: Figures, ending: Ending) -> tuple[Weights, float]:
        """The mixed copies are the next state; some methods end with an epoch that learned from no row."""
        learned = figures.tally.updates > 0
        self.status.settled = self.method.settles and ending.whole and not learned
        self.status.since_certificate += 1
        state = part.state
        if self.momentum is not None and learned:  # else nothing pulls them back
            state = type(state)(*(a if a.flags.writeable else a.copy() for a in state))  # type: ignore[call-arg]
            self.momentum.go_on(start, state, self.velocity)
        if not self.alone and self.rule is not None and self.rule.counts:  # of the epoch that ends
            counts = ((name, getattr(start, name)) for name in self.rule.counts)
            state = state._replace(**{name: np.zeros(a.shape, a.dtype) for name, a in counts})  # type: ignore[attr-defined]
        return state, 1.0

    # To a file and back

    def arrays(self) -> dict[str, np.ndarray]:
        """The momentum."""
        return {} if self.momentum is None else {"velocity": self.velocity}

    def restore(self, held: dict[str, np.ndarray]) -> None:
        """Take up what ``arrays`` gave."""
        if self.momentum is not None and "velocity" in held:
            self.velocity = held["velocity"].copy()
