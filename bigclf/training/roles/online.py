"""Methods whose kernel learns row by row: copies are mixed, and nothing certifies the answer."""

from __future__ import annotations

from typing import Any

from bigclf.training.roles.conductor import Conductor, Ending
from bigclf.training.visit import Figures, Part


class OnlineConductor(Conductor):
    """A problem of such a method at the driver."""

    def take(self, start: Any, part: Part, figures: Figures, ending: Ending) -> tuple[Any, float]:
        """The mixed copies are the next state; some methods end with an epoch that learned from no row."""
        self.status.settled = self.method.settles and ending.whole and figures.tally.updates == 0
        self.status.since_certificate += 1
        return part.state, 1.0
