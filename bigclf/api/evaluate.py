"""``evaluate``: a model's figures from parts measured here or by the workers of a cluster, the same to the bit."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

from bigclf import files
from bigclf.cluster.book import Patience
from bigclf.cluster.measuring import Measure, cut
from bigclf.conversion.foreign_rows import Collected, collected, is_blocked, is_collected, is_in_partitions, with_labels
from bigclf.data.bad_rows import MOST_BAD
from bigclf.data.dataset import Dataset
from bigclf.features.values import is_table
from bigclf.metrics import figures
from bigclf.metrics.figures import AnyEvaluation
from bigclf.model.model import Model, as_model, is_stored
from bigclf.model.raw_input import BadRows, as_shards, left_out, refuse_labels
from bigclf.progress import Watcher, watcher
from bigclf.request.workers import crew_of, is_cluster, linked
from bigclf.units import parse_bytes

if TYPE_CHECKING:
    from bigclf.cluster.link import Link
    from bigclf.data.dataset import Stored


PARTS_A_WORKER = 8  # at least, where there are so many row groups: one that is slow or dies then costs little


def evaluate(
    model: Model | files.PathLike,
    data: object,
    y: object = None,
    *,
    memory: str | int = "1GB",
    workers: object = None,
    on_bad_rows: str = "error",
    max_bad_fraction: float = MOST_BAD,
    progress: Watcher | None = None,
) -> AnyEvaluation:
    """Measure ``model``, which may be the path of one, on labelled rows.

    Parameters
    ----------
    data : shards (path, directory, glob, list of them, Dataset), or an array [n, d] with ``y`` [n]; a table, or rows
        that others hold (streams, lazy frames) and that are written to disk meanwhile, with ``y`` their label's name.
    memory : memory budget; if 12 bytes per row do not fit in it, the AUC comes from 2^20 bins, with an error bound.
    workers : as in ``fit``, for shards only; the figures are the same to the bit.
    on_bad_rows : what to do with rows of raw files that cannot be used: "error" stops at the first, "skip" leaves them
        out and counts them; max_bad_fraction : fail if more than this share of the rows is skipped.
    progress : an object with ``start, advance, stop`` such as ``TerminalProgress``, or None.

    Returns
    -------
    Evaluation, of a model of numbers RegressionEvaluation, of several labels a row LabelsEvaluation.

    Raises
    ------
    DataError : data that cannot be read, or has no rows, no labels, or none that the model knows. Where it knows some,
        rows of others count as wrong, and ``unknown`` and ``notes`` say how many.
    MemoryBudgetError : model and largest row group do not fit; the message says what would do.
    ClusterError : the workers were lost, or none came.
    """
    model = as_model(model)
    if is_elsewhere(data):
        with on_disk(model, data, y) as rows:
            return evaluate(
                model, rows, memory=memory, workers=workers, on_bad_rows=on_bad_rows,
                max_bad_fraction=max_bad_fraction, progress=progress,
            )  # fmt: skip
    (workers, kept), bad = crew_of(workers), BadRows(on_bad_rows, max_bad_fraction)
    progress = watcher(progress)
    if not is_cluster(workers):
        return figures.evaluate(model, data, y, memory=memory, bad=bad, progress=progress)
    if not is_stored(data):
        raise TypeError("workers has no effect with an array, which only this process has; use shards")
    refuse_labels(model, data, y)
    started = time.perf_counter()
    with as_shards(model, data, memory, bad) as rows, linked(workers, kept) as link:
        assert link is not None  # the workers are a cluster
        found = evaluate_on(link, model, rows, memory, patience=kept, progress=progress)
        found.leave_out(*left_out(data, rows))
    found.seconds = time.perf_counter() - started
    return found


def is_elsewhere(data: object) -> TypeGuard[Collected]:
    """Whether others hold the rows, and their columns have names."""
    return is_collected(data) and not is_blocked(data) and (is_in_partitions(data) or not is_table(data))


@contextlib.contextmanager
def on_disk(model: Model, data: Collected, label: object) -> Iterator[str | Dataset]:
    """Rows that others hold as Parquet, with the labels in the column ``label``, as long as they are needed."""
    held, label = with_labels(data, label)
    if label is not None and not isinstance(label, str):
        raise TypeError("for a stream, y must be the name of the label column")
    with collected(held, files.join(files.scratch_directory(), "rows")) as (folder, kind):
        if label is None or model.is_raw(folder):
            known = model.finisher.spec.label if model.is_raw(folder) else None
            if label is not None and known is not None and known.column != label:
                raise TypeError(f"the model's labels stand in the column {known.column!r}, and y names {label!r}")
            yield folder
        else:
            yield Dataset(folder, columns={"label": label} | ({} if kind is None else {"features": "*"}))


def evaluate_on(
    link: Link,
    model: Model,
    data: Stored,
    memory: str | int = "1GB",
    *,
    patience: Patience,
    idle: Callable[[], None] = lambda: None,
    progress: Watcher | None = None,
) -> AnyEvaluation:
    """The same by the workers behind ``link``; ``idle`` is called several times a second and may raise."""
    from bigclf.cluster.engine import Measuring

    dataset = figures.rows_to_measure(model, data)
    exact = figures.exact_auc_fits(model, dataset, parse_bytes(memory))
    total: Any = figures.no_part(model, exact=exact, rows=dataset.n_rows)
    parts = cut(dataset, PARTS_A_WORKER * link.count(patience.idle))
    crew = Measuring(Measure(bare(model), dataset, exact), parts, idle, progress, link=link, patience=patience)
    with contextlib.closing(crew):
        for part in crew.measured():
            total.merge(part)
    return figures.concluded(model, dataset, total)


def bare(model: Model) -> Model:
    """What a worker needs of a model to score rows: without its history."""
    found = Model(model.weights, model.intercept_, model.classes_, model.features, model.method,
                  feature_ids=model.feature_ids)  # fmt: skip
    found.state, found.calibration = (model.state if model.voted else {}), model.calibration
    return found
