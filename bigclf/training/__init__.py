"""Training: problems over one stream of rows, planned before the first read, certified at the end."""

from bigclf.training.fitting import fit
from bigclf.training.outcome import Result

__all__ = ["Result", "fit"]
