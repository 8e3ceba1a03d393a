"""From what was asked for to rows that can be learned from: once, for ``fit``, ``sweep``, ``path`` and ``plan``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bigclf.data import files
from bigclf.data.arrays import Arrays
from bigclf.data.dataset import Dataset
from bigclf.data.store import is_finished
from bigclf.losses import REGRESSION
from bigclf.methods import Method, Setting
from bigclf.training.memory import PeakMemory, anonymous_bytes
from bigclf.training.problems import Fold, Problem, class_weight_array, make_problems, regression_problem, require_few
from bigclf.training.run_directory import groups_before
from bigclf.training.sources import likely_width, open_source, require_usable, warm

VISITS, MOST_EPOCHS = 1_000_000, 100


class Request(NamedTuple):
    """What is asked of rows.

    data, y, sample_weight, columns, class_weight : as in ``fit``. groups : how many, None: as many as
    ``default_groups`` says, and no more than there are chunks. settings_for : groups -> the settings that are learned
    from the rows, of one method or several. memory : bytes; dtype, seed, threads : as ``make_plan`` takes them.
    local_dir : where this process keeps decoded rows from run to run; None where it does not, or others decode.
    """

    data: Any
    y: Any
    sample_weight: Any
    columns: dict[str, str] | None
    class_weight: Any
    groups: int | None
    default_groups: Callable[[], int]
    settings_for: Callable[[int], list[Setting]]
    memory: int
    dtype: str
    seed: int
    threads: int
    local_dir: Any = None


class Prepared(NamedTuple):
    """Rows that each of ``settings`` can learn from, in ``groups``; class_weights : float64 [class], None of a
    regression; shape : what ``make_plan`` is told beside problems and reads."""

    source: Any
    settings: list[Setting]
    class_weights: np.ndarray | None
    groups: int
    shape: dict[str, Any]

    def problems(self, memory: int) -> list[Problem]:
        """What is to be learned by the first of the settings.

        Raises
        ------
        MemoryBudgetError : there are too many classes.
        """
        setting = self.settings[0]
        if self.class_weights is None:
            return [regression_problem(setting)]
        require_few(self.source.classes.size, setting, memory)
        return make_problems(self.source.classes, self.class_weights, setting)


def prepare(request: Request, checked: list[Setting], peak: PeakMemory | None = None) -> Prepared:
    """Open the rows and load the kernels: before the first row, as far as a glance at the data tells which.

    Parameters
    ----------
    checked : the settings as they were checked before anything was known of the rows.
    peak : measured from here on: interpreter and libraries, and of arrays what making CSR of them took, do not count.

    Raises
    ------
    DataError, ValueError, TypeError : rows that these methods cannot learn from.
    """
    groups = request.groups or request.default_groups()
    width = likely_width(request.data, request.columns)
    _warm(checked, width, request.dtype)
    _begin(peak)
    regression = checked[0].loss in REGRESSION
    rows = request.data, request.y, request.sample_weight, request.columns
    source = open_source(*rows, groups, request.memory, regression)
    groups = groups if request.groups is not None else min(groups, source.n_chunks)
    settings = request.settings_for(groups)
    class_weights = None if regression else class_weight_array(request.class_weight, source)
    for setting in {setting.method.name: setting for setting in settings}.values():
        require_usable(source, setting, class_weights)
    if source.index_width != width:
        _warm(checked, source.index_width, request.dtype)
    in_memory = isinstance(source, Arrays)
    if in_memory:
        _begin(peak)
    shape = dict(memory=request.memory, dtype=request.dtype, seed=request.seed, groups=groups, threads=request.threads,
                 in_memory=in_memory, stored=is_stored(source, request.local_dir))  # fmt: skip
    return Prepared(source, settings, class_weights, groups, shape)


def is_stored(source: Any, local_dir: Any) -> bool:
    """Whether earlier runs left every row of ``source`` decoded in ``local_dir``."""
    if local_dir is None or not isinstance(source, Dataset) or not files.exists(local_dir):
        return False
    return is_finished(source, files.scratch_directory(local_dir))


def _begin(peak: PeakMemory | None) -> None:
    if peak is not None:
        peak.base = peak.peak = anonymous_bytes()


def _warm(settings: list[Setting], width: int, dtype: str) -> None:
    """Load the kernels of each method and loss; those of a sweep also say which fold a row is in."""
    for setting in {(setting.method.name, setting.loss): setting for setting in settings}.values():
        warm(setting, width, dtype)
    if len(settings) > 1:
        Fold(0, 2, 0).holds(np.zeros(0, np.int64), 0)


def default_groups(method: Method, link: Any, options: dict[str, Any]) -> int:
    """As many as a run that is resumed had; else 1 in this process, or as many as there are workers now."""
    if options["resume"]:
        before = groups_before(options["run_dir"])
        if before:
            return before
    if link is None or not method.mixings:
        return 1
    return int(link.count(options["patience"].idle))


def default_epochs(method: Method, n_rows: int, early_stopping: int | None = None) -> int:
    """The method's own limit; an online method goes over few rows more often, to about a million visits."""
    if method.certificate:
        return method.epochs
    if early_stopping is not None:
        return MOST_EPOCHS
    return min(MOST_EPOCHS, max(method.epochs, -(-VISITS // max(1, n_rows))))
