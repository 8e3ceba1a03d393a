"""Training: problems over one stream of rows, planned before the first read, certified at the end."""

from bigclf.training.fitting import Result, fit

__all__ = ["Result", "fit"]
