"""Who makes the visits: this process, or the workers of a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from bigclf.cluster.book import Patience
from bigclf.request.places import Workers

if TYPE_CHECKING:
    from bigclf.cluster.link import Link


def is_cluster(workers: object) -> bool:
    """Whether the visits are made elsewhere.

    Raises
    ------
    ValueError : a number of workers that is none.
    """
    if isinstance(workers, int | float | np.number) and (
        isinstance(workers, bool) or workers < 1 or int(workers) != workers
    ):
        raise ValueError(f"workers must be a whole number of at least 1, not {workers!r}")
    return workers is not None and not (isinstance(workers, int | np.integer) and workers == 1)


def patience_of(given: Mapping[str, float] | None, workers: object) -> Patience:
    """What a person said, checked; TypeError or ValueError where it makes no sense."""
    if given is None:
        return Patience()
    if not is_cluster(workers):
        raise TypeError("patience has no effect in this process: it is for workers of a cluster")
    unknown = [name for name in given if name not in Patience._fields]
    if unknown:
        raise ValueError(f"patience has no {unknown[0]!r}; it has {', '.join(Patience._fields)}")
    bad = [name for name, value in given.items() if not (isinstance(value, int | float) and value >= 0)]
    if bad:
        raise ValueError(f"patience of {bad[0]} must be a number of at least 0, not {given[bad[0]]!r}")
    return Patience(**given)  # type: ignore[arg-type]


def crew_of(workers: object) -> tuple[object, Patience]:
    """Who only measures, and how long they are waited for; TypeError for what has no effect on that."""
    if not isinstance(workers, Workers):
        return workers, Patience()
    for name in ("threads", "local_dir"):
        if getattr(workers, name) is not None:
            raise TypeError(f"{name} has no effect here: it is for workers that train")
    return workers.where, patience_of(workers.patience, workers.where)


@contextlib.contextmanager
def linked(workers: object, patience: Patience) -> Iterator[Link | None]:
    """The link to a cluster while it is needed; None where the visits are made in this process."""
    if not is_cluster(workers):
        yield None
        return
    from bigclf.cluster.link import connect

    with contextlib.closing(connect(workers, patience=patience.idle)) as link:
        yield link
