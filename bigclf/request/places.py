"""Who does the work and where a run is kept, with what is to be said of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bigclf.request.options import Parts, documented_parts


@documented_parts("workers")
@dataclass(frozen=True)
class Workers(Parts):
    """Who makes the visits, and how: ``fit(..., workers=Workers(4, threads=1))``.

    Parameters
    ----------
    where : A number of processes that are started here, a Dask client, a cluster object or a scheduler's address; None
        or 1 is this process.
    {options}
    """

    where: Any = None
    threads: int | None = None
    patience: Mapping[str, float] | None = None
    local_dir: Any = None

    def first(self) -> object:
        """What may stand alone."""
        return self.where


@documented_parts("run_dir")
@dataclass(frozen=True)
class RunDir(Parts):
    """A directory for checkpoints and history: ``fit(..., run_dir=RunDir("runs/7", checkpoint_every=600))``.

    Parameters
    ----------
    path : The directory.
    {options}
    """

    path: Any
    checkpoint_every: float = 60.0

    def first(self) -> object:
        """What may stand alone."""
        return self.path
