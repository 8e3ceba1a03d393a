"""Whether a method can learn from rows, and its kernels before the first of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import compiling, in_turns, random_state, shuffle_runs
from bigclf.data.arrays import Arrays
from bigclf.data.dataset import Dataset, require_trainable
from bigclf.errors import DataError
from bigclf.maths.block import Block, alike, check_rows, count_features
from bigclf.maths.deltas import difference
from bigclf.maths.mixing import FEATURES, SUM, Mixture, agree, half_distance, line_search
from bigclf.methods import METHODS, Setting, listed
from bigclf.methods.method import Dual
from bigclf.stream.working_set import WorkingSet
from bigclf.training.problems import aim_at, find_positive
from bigclf.training.pruning_together import warm_pruning
from bigclf.training.refitting import warm_refitting
from bigclf.training.roles import (
    learns,
    looking_together,
    role_calls,
    solving_together,
    update_callees,
    update_states,
)
from bigclf.training.visit import DualSum, Sums, copied

if TYPE_CHECKING:
    from bigclf.data.rows import Rows


def require_usable(source: Rows, setting: Setting, class_weights: np.ndarray | None) -> None:
    """Refuse data this method cannot learn from: DataError; class weights that would have no effect: ValueError."""
    if isinstance(source, Arrays):
        if source.n_rows == 0:
            raise DataError("there are no rows")
        if source.sets is not None and source.classes.size < 1:
            raise DataError("no row has a label; training needs one")
        if source.sets is None and class_weights is not None and source.classes.size < 2:
            raise DataError(f"every row has the label {source.classes[0].item()!r}; training needs two classes or more")
    elif isinstance(source, Dataset):
        require_trainable(source, regression=class_weights is None)
    if source.sets is not None and setting.method.all_classes:
        raise TypeError(f"{setting.method.asked} learns one class a row, and these rows have several labels each: "
                        "each label is learned against the rest (multiclass='one-vs-rest')")  # fmt: skip
    if setting.method.row_weights == "any":
        return
    if class_weights is not None and not np.isin(class_weights, (0.0, 1.0)).all():
        raise ValueError(f"{setting.method.asked} takes class weights of 0 and 1 only{others()}")
    if source.weighted and not _zero_or_one(source):
        raise DataError(f"{setting.method.asked} takes row weights of 0 and 1 only{others()}", column="weight")


def others() -> str:
    """Which methods take any weights."""
    return f" (any are taken by {listed(name for name, method in METHODS.items() if method.row_weights == 'any')})"


def _blocks(source: Rows) -> Iterator[Block]:
    """All rows, read once more."""
    yield from source.blocks()


def _zero_or_one(source: Rows) -> bool:
    return all(np.isin(block.weights, (0.0, 1.0)).all() for block in _blocks(source))


def longest_row(source: Rows) -> tuple[int, float]:
    """Number and norm of the first of the rows with the largest norm."""
    each = ((float(block.norms.max()), -int(block.ids[block.norms.argmax()])) for block in _blocks(source))
    square, row = max(each)
    return -row, square**0.5


def warm(setting: Setting, index_width: int, dtype: str, rare: bool = True) -> None:
    """Compile (or load) the kernels of a run on no rows at all, one process a host at a time; ``rare`` : those of a
    working set and of a beginning with the dual variables of others, too."""
    with compiling():
        in_turns(first_calls(setting, index_width, dtype))
        if setting.settings.get("groups", 1) > 1:
            _warm_mixing(setting, *_nothing(setting, index_width, dtype))
        if rare and isinstance(setting.method.how, Dual):
            _load_rare(setting, index_width, dtype)


def first_calls(setting: Setting, index_width: int, dtype: str) -> list[Callable[[], object]]:
    """What every run of a method calls, on no rows at all, in the order of need; what takes longest to compile comes
    last: a second process may be at it, which begins there."""
    method = setting.method
    block, shared, rows, params = _nothing(setting, index_width, dtype)
    floats, numbers = np.empty(0), np.empty(0, np.int64)
    calls: list[Callable[[], object]] = [
        lambda: check_rows(block.indptr, block.indices, block.values, block.indices.dtype.type(1), floats),
        lambda: aim_at(floats, floats, floats, floats, floats, floats),
        lambda: find_positive(floats, numbers),
    ]
    states = update_states(method.how, shared)
    if learns(method.how, states):  # else rows come in their order
        calls.append(lambda: shuffle_runs(numbers, 1, random_state(0), numbers))
    calls += role_calls(method.how, method.loss_of(setting.loss), block, shared, rows, params)
    calls.append(lambda: method.form.end_epoch(copied(shared, None), params))
    kernel = setting.kernel()
    calls += [functools.partial(kernel, block, numbers, copied(state, None), rows, params, floats) for state in states]
    return calls


def callee_calls(setting: Setting, index_width: int, dtype: str) -> list[Callable[[], object]]:
    """Kernels that the one of an update calls, the last of them first: a process may compile some while another is at
    the update. Where that is on disk they are not needed."""
    method = setting.method
    block, shared, _, params = _nothing(setting, index_width, dtype)
    return update_callees(method.how, method.loss_of(setting.loss), block, shared, params)


def warm_together(setting: Setting, index_width: int, dtype: str, prunes: bool) -> None:
    """As ``warm``, of problems that look at rows together; ``prunes`` : and of whose weights some will be dropped."""
    method, nothing = setting.method, _nothing(setting, index_width, dtype)
    warm(setting, index_width, dtype, rare=False)
    with compiling():
        looking_together(method.how, method.loss_of(setting.loss), *nothing)
        if prunes:
            warm_pruning(setting, nothing[0], nothing[1].weights)


def warm_gathered(setting: Setting, index_width: int, dtype: str) -> None:
    """Compile (or load) what solves the working sets of several groups in one place, at the driver; nothing for a
    method that has no dual variables, or one for each class."""
    block, shared, rows, params = _nothing(setting, index_width, dtype)
    how, loss = setting.method.how, setting.method.loss_of(setting.loss)
    if isinstance(how, Dual) and shared.weights.ndim == 1:
        with compiling():
            solving_together(how, loss, block, shared, rows, params)


def warm_left(setting: Setting, index_width: int) -> None:
    """As ``warm``, of what trains again on the features that pruning left."""
    with compiling():
        warm_refitting(setting, _no_rows(index_width))


def load_climb(setting: Setting, index_width: int, dtype: str) -> None:
    """What goes up the dual where that stalls, which few runs do: on a row of one entry."""
    how = setting.method.how
    climb = how.climb(setting.method.loss_of(setting.loss)) if isinstance(how, Dual) else None
    if climb is not None:
        block, shared, rows, params = _nothing(setting, index_width, dtype)
        one = np.ones(1)
        row = alike(Block(np.arange(2), np.zeros(1, block.indices.dtype), np.empty(0, np.float32), one, one, one,
                          np.zeros(1, np.int64)))  # fmt: skip
        rows.alpha[:] = 0.5 * params.C
        climb(row, np.zeros(1, np.int64), shared, rows, params, 0.0, 1, 1, lambda: None)


def _load_rare(setting: Setting, index_width: int, dtype: str) -> None:
    how, loss = setting.method.how, setting.method.loss_of(setting.loss)
    block, _, rows, params = _nothing(setting, index_width, dtype)
    assert isinstance(how, Dual)
    how.within(loss)(block, rows, params)
    how.value(loss)(block, rows, params, 1.0)
    held = WorkingSet(1, 1, index_width, True, 1)
    held.admit(block, np.empty(0, np.int64), np.empty(0))
    held.compact()
    held.outside(block.ids, np.empty(0, np.int64))
    held.expect(held.members())
    held.fill(block)


def _no_rows(index_width: int) -> Block:
    indices = np.empty(0, np.uint64 if index_width == 8 else np.uint32)
    floats, numbers = np.empty(0), np.empty(0, np.int64)
    return alike(Block(np.zeros(1, np.int64), indices, np.empty(0, np.float32), floats, floats, floats, numbers))


class Nothing(NamedTuple):
    """What kernels are called on before there are rows: none, and a state of one feature."""

    block: Block
    shared: Any
    rows: Any
    params: Any


def _nothing(setting: Setting, index_width: int, dtype: str) -> Nothing:
    return Nothing(_no_rows(index_width), setting.shared(1, dtype), setting.rows(1), setting.params())


def _warm_mixing(setting: Setting, block: Block, shared: Any, rows: object, params: object) -> None:
    """What runs of several groups need beside."""
    method, own, loss = setting.method, setting.rule, setting.method.loss_of(setting.loss)
    assert own is not None
    for rule, start in ((own, shared), (SUM, Sums(np.zeros(2))), (SUM, DualSum(np.zeros(2)))):
        for lasting in (False, True):  # two copies may be joined as a pair
            mixture = Mixture(rule, start, lasting)
            mixture.add(start, 1.0)
            mixture.add(start, 1.0)
            mixture.result()
    if own is FEATURES:
        count_features(block, np.empty(0, np.int64), shared.touched)
    difference(shared, shared, 2)
    if isinstance(method.how, Dual):
        mine = shared.weights.reshape(-1)
        weights = np.zeros(mine.size)
        line_search(weights, mine, mine, 0.0, 0.0)
        agree(weights, mine, mine, 1.0, 1.0)
        half_distance(weights, mine)
        method.how.along(loss)(block, np.empty(0, np.int64), rows, rows, params)
