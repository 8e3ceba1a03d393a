"""``forget``: rows out of shards and out of a model, which is then the certified optimum of the rows that are left.

Nothing that is there is changed before everything new is whole:

1. Shards that hold the rows are written anew, aside.
2. The dual variables of the other rows are carried over; the weights are made anew of these, w = sum a_i y_i x_i, so
   that what the rows gave to the weights is not subtracted but never added. Training goes on to the tolerance.
3. The new shards take their places, the model is written, old runs and caches go or are named, the receipt is written.

``forgetting.json`` in the new run directory says how far that is: the same command goes on from there.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf import files
from bigclf.api.fit import asked_of_fit, train_settled
from bigclf.api.old_run import (
    OldRun,
    Pieces,
    carried,
    dual_variables,
    in_cache,
    is_of_run,
    old_run,
    options_of,
    problem_names,
    require_same_rows,
    same_content,
)
from bigclf.api.receipt import (
    Forgotten,
    Journal,
    Outputs,
    Staged,
    alone,
    digests_of,
    earlier_places,
    finished,
    places_of,
    receipt_of,
)
from bigclf.conversion import removing
from bigclf.conversion.removing import Alike, Keys
from bigclf.conversion.tables.reading import are_raw
from bigclf.data.arrays import made_alike
from bigclf.data.bad_rows import no_way_out
from bigclf.data.dataset import MANIFEST, Dataset, RawFiles, Stored, require_trainable
from bigclf.errors import DataError
from bigclf.features.encode import is_columns
from bigclf.maths.block import Block
from bigclf.maths.mixing import Weights
from bigclf.methods.method import Dual
from bigclf.metrics.figures import labelled_dataset
from bigclf.model.model import Model
from bigclf.model.raw_input import as_shards, made_again
from bigclf.request.door import Found, open_rows
from bigclf.request.prepare import default_epochs, prepare
from bigclf.request.request import Request, RunOptions
from bigclf.stream.working_set import Members
from bigclf.training.executor import Bench, Job
from bigclf.training.memory import PeakMemory
from bigclf.training.plan import Plan, settle
from bigclf.training.problems import Problem
from bigclf.training.records.run_directory import Checkpoint
from bigclf.training.sources import warm
from bigclf.training.status import Status

if TYPE_CHECKING:
    from bigclf.data.rows import Rows


log = logging.getLogger("bigclf")


class Which(NamedTuple):
    """Which rows are to be forgotten: exactly one of the three."""

    rows: Sequence[int] | np.ndarray | None = None
    where: Mapping[str, Sequence[object]] | None = None
    like: Any = None

    def require_meant(self, old: OldRun) -> None:
        """Refuse numbers of rows of a raw table that ``fit`` shuffled, and columns, which its shards do not have.

        Raises
        ------
        TypeError : saying how to name the rows.
        """
        if self.like is not None or old.raw is None:
            return
        named, like = _named(old.raw), "name them by what they hold: --like FILE (like=), with these rows as they stand"
        if self.where is not None:
            raise TypeError(f"fit made shards of {named}, which keep no column beside the features for --where "
                            f"(where=); {like} there")  # fmt: skip
        if not old.raw["in_order"]:
            way = f"; or give numbers of rows of the shards, and name these: --data {_folder(old.files)} (data=)"
            raise TypeError(f"fit shuffled the rows of {named}, so numbers of rows (--rows, rows=) would mean others; "
                            f"{like} there{'' if in_cache(old.files) else way}")  # fmt: skip

    def among(self, dataset: Dataset, model: Model) -> Alike:
        """Their numbers int64 [n], ascending, and which rows of ``like`` are none of the data.

        Raises
        ------
        ValueError, DataError : there are none, or nothing else is left.
        """
        found = self._found(dataset, model)
        if not found.numbers.size:
            raise DataError("no row of the data is one of those to forget; nothing was changed", file=dataset.files[0])
        if found.numbers.size == dataset.n_rows:
            raise DataError("every row is to be forgotten; remove the model and the data", file=dataset.files[0])
        return found

    def _found(self, dataset: Dataset, model: Model) -> Alike:
        if self.rows is not None:
            return Alike(removing.numbered(self.rows, dataset.n_rows))
        if self.where is not None:
            each = [removing.having(dataset, column, values) for column, values in self.where.items()]
            return Alike(np.unique(np.concatenate(each)))
        with contextlib.ExitStack() as stack:
            try:
                others = labelled_dataset(model, stack.enter_context(as_shards(model, self.like)))
            except DataError as error:
                raise no_way_out(error) from None
            if dataset.ours and not _hold_the_same(others.features, dataset.features):
                raise DataError("the features of these rows were made in another way than those of the data",
                                file=others.files[0])  # fmt: skip
            return removing.like(dataset, others)


def forget(
    run: files.PathLike,
    output: files.PathLike,
    *,
    rows: Sequence[int] | np.ndarray | None = None,
    where: Mapping[str, Sequence[object]] | None = None,
    like: object = None,
    to: files.PathLike | None = None,
    rewrite: bool = False,
    data: Stored | None = None,
    run_dir: files.PathLike | None = None,
    receipt: files.PathLike | None = None,
    key: files.PathLike | None = None,
    local_dir: files.PathLike | None = None,
    overwrite: bool = False,
    progress: object = None,
) -> Forgotten:
    """Take rows out of shards and out of a model, which becomes the certified optimum of the rows that are left.

    "Within the tolerance" is what is promised, not "no trace": among all weights within the tolerance, which ones come
    out may depend on the rows that went. Methods by dual variables begin with those of the other rows, methods by sums
    with the old weights. Give the same call again where it was broken off. The rows that go are held in memory.

    Parameters
    ----------
    run : Directory of the run that trained the model; or the model, whose run is looked for in ``MODEL.run``.
    output : File for the new model.
    rows : Numbers of rows as they lie in the data, from 0 [n].
    where : Rows by a column that stands beside the features: {column: values}.
    like : Rows by what they hold: data whose rows, with their labels, are to be forgotten wherever they stand; shards,
        or raw rows as the model takes them.
    to : New directory for the shards that are left; the old ones, the old run and its caches stay, and the receipt
        names them.
    rewrite : Replace the shards that hold the rows in their places, and remove the old run, its raw store and its
        caches. Exactly one of ``to`` and ``rewrite`` is needed.
    data : The shards that the model was trained on, where they are not where they were.
    run_dir : Directory for the new run, which is kept: the next ``forget`` begins with it. None: ``OUTPUT.run``.
    receipt : File for the receipt, JSON. None: ``OUTPUT.receipt.json``.
    key : File with a secret, made if it is not there. The receipt then holds a keyed digest of each row, which only who
        has the key can check. None: it says nothing of what the rows held.
    local_dir : Directory in which runs on these data kept decoded rows.
    overwrite : Replace outputs that are there.
    progress : As in ``fit``.

    Returns
    -------
    Forgotten : ``model`` and ``receipt``.

    Raises
    ------
    TypeError : the method cannot forget, and what can; options that go together badly.
    ValueError : no such row. DataError : data that are not those of the run, or no row to forget or to keep.
    RunError : an output is there, or another process is at work; Interrupted : a signal.
    """
    if isinstance(run, Model):
        raise TypeError("forget takes the path of the model, beside which its run lies, or of the run; not the Model")
    which = Which(rows, where, like)
    outputs = Outputs.named(output, to, rewrite, run_dir, receipt, key, local_dir)
    if sum(value is not None for value in which) != 1:
        raise TypeError("name the rows by exactly one of rows, where and like")
    outputs.keep_apart([data, like], [run])
    asked = [files.absolute(run), str(which._replace(rows=_listed(rows)))]
    journal_now = partial(Journal.opened, outputs, asked, overwrite)
    journal = journal_now()
    if journal.finishing:
        with alone(journal.told["aside"], journal_now) as journal:
            return finished(outputs, journal)
    return _made(old_run(run), which, outputs, journal_now, data, progress)


def _hold_the_same(features: Mapping[str, object], others: Mapping[str, object]) -> bool:
    """Whether features of two data sets say the same; those of raw columns do, whatever file these stood in."""
    learned = [one["learned"] if is_columns(one) else None for one in (features, others)]
    return made_alike(features, others) or (learned[0] is not None and learned[0] == learned[1])


def _listed(rows: Sequence[int] | np.ndarray | None) -> list[int] | None:
    return None if rows is None else np.asarray(rows).tolist()


def _made(
    old: OldRun,
    which: Which,
    outputs: Outputs,
    journal_now: Callable[[], Journal],
    data: Stored | None,
    progress: object,
) -> Forgotten:
    """Make everything new that is to be, note in the journal what is left to do, and do it."""
    began = time.perf_counter()
    if data is None:
        which.require_meant(old)
    dataset = opened(old, data)
    outputs.require_usable(
        dataset, old.cached if [*map(files.absolute, dataset.files)] == old.files else in_cache(dataset.files)
    )
    outputs.keep_apart([dataset, *directories_of(dataset)])
    found = which.among(dataset, old.model)
    numbers = found.numbers
    stays = removing.by_file(dataset, numbers)
    with Staged.held(outputs, dataset, journal_now) as (staged, journal):
        if journal.finishing:  # of the same call, which ended while this one came here
            return finished(outputs, journal)
        gone = staged.write(dataset, stays, numbers, journal)
        left = staged.dataset(dataset)
        left.made_of = _named(dataset.raw) if dataset.raw and dataset.raw["paths"] else None
        try:
            require_trainable(left, regression=old.model.regression)
        except DataError as error:
            place = left.made_of or (dataset.files[0] if len(dataset.files) == 1 else None)
            raise DataError(f"nothing can be learned from the rows that would be left: {error.message}", file=place,
                            column=error.column) from None  # fmt: skip
        keys = Keys()
        for block in gone:
            keys.add(block)
        look = Look(keys)
        model, start = _trained(old, dataset, numbers, left, outputs, look, progress)
        if look.rows < left.n_rows:  # rows of weight 0 took no part
            look = Look(keys).over(left)
        told = receipt_of(
            old, model, dataset, numbers, start=start, look=look, seconds=time.perf_counter() - began,
            digests=digests_of(gone, dataset.classes, outputs.key), names=which.where,
            alike=None if which.like is None else found,
        )  # fmt: skip
        dataset.check_unchanged()
        places = places_of(old, dataset, outputs, stays)
        journal.note_finishing(staged, told | {"places": places, "earlier": earlier_places(old, places)})
        return finished(outputs, journal)


def opened(old: OldRun, data: Stored | None) -> Dataset:
    """The shards that the model was trained on; errors where they are not."""
    named = data if data is not None else old.files
    used = files.InUse(files.parent_directory(old.files[0])) if old.cached else None
    if not isinstance(named, Dataset) and not named:
        if old.model.facts.get("run") is not None:
            raise TypeError(
                f"{old.at}: its run does not lie beside it ({files.base_name(old.at)}.run). If fit kept it elsewhere, "
                "with --run-dir (run_dir=), name that directory in place of the model: bigclf forget RUN_DIR -o ... If "
                "it is gone, or fit had no --run-dir, fit it again with --run-dir, or name the shards that it was "
                "trained on (--data, data=): then a run elsewhere, which holds the rows too, is not known"
            )
        raise TypeError(
            f"{old.at}: has no run beside it that says where the rows are; give its run directory in place of it, fit "
            "it again with --run-dir (run_dir=), which keeps the run, or name the shards that it was trained on "
            "(--data, data=): then a run elsewhere, which holds the rows too, is not known"
        )
    if data is None and old.raw is not None and not all(files.exists(path) for path in old.files):
        dataset = _converted_again(old, old.raw)
    else:
        if old.raw is not None and data is not None and not isinstance(data, Dataset) and are_raw(data):
            raise TypeError(f"{files.expand(data)[0]}: is a raw file, and --data (data=) takes shards that were made "
                            "of it; leave the option out, and the run finds them")  # fmt: skip
        if data is None and (there := next((path for path in old.files if _is_lost(path)), None)):
            raise DataError(f"the run was trained on {there}, named from the directory that fit was given in: give the "
                            "command there, or name the shards where they are (--data, data=)",
                            file=files.join(str(old.path), "run.json"))  # fmt: skip
        dataset = named if isinstance(named, Dataset) else _by_columns(old, named)
    require_same_rows(old, dataset)
    dataset.raw, dataset.used = dataset.raw or old.raw, dataset.used or used
    return dataset


def _by_columns(old: OldRun, named: files.Paths) -> Dataset:
    """Files by the names of columns that the run read them by. Older runs do not tell these, whose model knows what was
    found by them: they are tried."""
    ways = [old.told["columns"]] if "columns" in old.told else [old.model.columns, {}]
    if "columns" not in old.told and "label" in old.model.columns:
        ways.append({"features": "*", "label": old.model.columns["label"]})
    datasets = (Dataset(named, columns=way or None, warn=False) for way in ways)
    return next((one for one in datasets if is_of_run(old, one)), None) or Dataset(named, columns=ways[0] or None)


def _is_lost(path: str) -> bool:
    """Whether a path of a run by an older version is not from here."""
    return not files.is_remote(path) and files.absolute(path) != path and not files.exists(path)


def _converted_again(old: OldRun, raw: RawFiles) -> Dataset:
    """The shards of raw files, which are in bigclf's cache no longer, made of these again.

    Raises
    ------
    DataError : the files are not there, or others than they were; older runs do not know them.
    """
    how, named = raw.get("how"), _named(raw)
    gone = f"the shards that fit made of {named} for this run are gone: {_folder(old.files)}"
    if how is None:
        way = "name them where they are now (--data, data=)"
        if in_cache(old.files):
            way = "give the command of the fit once more with another model (-o OTHER.bigclf): it makes them again"
        raise DataError(f"{gone}; {way}")
    if lacking := [path for path in raw["paths"] if not (files.is_remote(path) or files.exists(path))]:
        raise DataError(f"{gone}, and {lacking[0]} is not there to make them again; put it back as it was, or train "
                        "again without the rows (bigclf fit)")  # fmt: skip
    log.info("converting %s again, whose shards are in the cache no longer", named)
    made = made_again(raw["paths"], how)
    if not same_content(old, made):
        raise DataError(f"{gone}, and what is made of {named} now are others: it has changed since, or another version "
                        "of bigclf converted it; train again without the rows (bigclf fit)")  # fmt: skip
    return made


def _named(raw: RawFiles) -> str:
    """The raw files as a message names them."""
    first, *more = raw["paths"] or ["the raw files"]
    return f"{first}{', ...' * bool(more)}"


def _folder(paths: Sequence[str]) -> str:
    """The directory in which all the shards lie, or their first."""
    folders = {files.parent_directory(path) for path in paths}
    return folders.pop() if len(folders) == 1 else paths[0]


def directories_of(dataset: Dataset) -> list[str]:
    """Those of our own making that its files stand in, which a run does not name."""
    directories = {files.parent_directory(path) for path in dataset.files}
    return sorted(path for path in directories if files.exists(files.join(path, MANIFEST)))


class Look:
    """Looks through rows, as they were read from the new files, for such as equal one that was to go."""

    def __init__(self, keys: Keys) -> None:
        self.keys, self.rows, self.equal = keys, 0, 0

    def at(self, block: Block) -> None:
        """Look at a block's rows."""
        self.rows += block.n_rows
        self.equal += int(self.keys.find(block).size)

    def over(self, dataset: Dataset) -> Look:
        """Look at all rows of a dataset."""
        for block in dataset.blocks():
            self.at(block)
        return self


# Training


def _trained(
    old: OldRun, dataset: Dataset, numbers: np.ndarray, left: Dataset, outputs: Outputs, look: Look, progress: object
) -> tuple[Model, str]:
    """The model of the rows that are left, and what it began with: "dual variables", "weights" or "nothing"."""
    options = options_of(old, dataset) | {"run_dir": outputs.run_dir, "resume": True, "progress": progress}
    if not old.method.by_duals:
        options["init"] = _bare(old.model)
    request = asked_of_fit(left, None, options).having(local_dir=outputs.local_dir)
    with contextlib.ExitStack() as stack:
        found, request = stack.enter_context(open_rows(request))
        peak = stack.enter_context(PeakMemory())
        source, problems, plan, settled = _settled(request, found, peak)
        bench = Bench(Job(uuid.uuid4().hex, source, problems, plan, settled["tol"], outputs.local_dir))
        duals = _matching(dual_variables(old), old, problems)
        beginning = None
        if duals:
            stays = _that_stay(old, dataset, numbers)
            rows = Carried(source, problems, plan, outputs.local_dir).filled(duals, stays)
            beginning = rows.beginning(bench, look.at, old.model.intercept_)
        else:
            for _, block in bench.every_row():
                look.at(block)
        model = train_settled(source, problems, plan, settled, peak, None, beginning, bench)
        if not files.exists(kept := files.join(outputs.run_dir, "model.bigclf")):  # a run may do without, this does not
            model.save(kept)
        return model, "dual variables" if duals else "nothing" if old.method.by_duals else "weights"


def _bare(model: Model) -> Model:
    """A model's weights: what sums over the old rows it holds besides must not go on."""
    found = copy.copy(model)
    found.state, found.facts = {}, {}
    return found


def _settled(request: Request, found: Found, peak: PeakMemory) -> tuple[Rows, list[Problem], Plan, RunOptions]:
    """As ``fit`` settles it: rows, problems, plan and the options of the run."""
    (options,), (setting,) = request.check(), request.at_first()[0]
    prepared = prepare(request, found, None, peak)
    source = prepared.source
    options["epochs"] = options["epochs"] or default_epochs(setting.method, source.learnable[0])
    problems, plan = settle(source, prepared.problems(options["memory"]), reads=options["epochs"] + 1, **prepared.shape)
    log.info("plan: %s", plan)
    if plan.places or plan.set_rows:
        warm(problems[0].setting, source.index_width, options["dtype"])
    return source, problems, plan, options


def _matching(duals: list[Pieces], old: OldRun, problems: list[Problem]) -> list[Pieces]:
    """The dual variables of each of ``problems``; none where a class is gone, and the problems are others."""
    same = problem_names(old) == [problem.name for problem in problems] and len(duals) == len(problems)
    shape = problems[0].setting.row_shape
    return duals if same and all(piece.shape[1:] == shape for pieces in duals for piece in pieces) else []


def _that_stay(old: OldRun, dataset: Dataset, numbers: np.ndarray) -> np.ndarray:
    """Of the rows that the old run learned from, which stay, bool [row]: rows of weight 0 it did not see."""
    stays = np.ones(dataset.n_rows, bool)
    stays[numbers] = False
    if dataset.taking_part().n_rows == dataset.n_rows:
        return stays
    return stays[np.concatenate([block.weights > 0 for block in dataset.blocks()])]


class Carried:
    """Dual variables of the rows that are left, in their new places, and what training begins with."""

    def __init__(self, source: Rows, problems: list[Problem], plan: Plan, local_dir: str | None) -> None:
        self.source, self.problems, self.plan, self.local_dir = source, problems, plan, local_dir
        self.alphas: list[np.ndarray] = []
        self.positive: list[np.ndarray] = []  # of each problem and row, whether a_i s_i > 0
        rows = source.chunks.rows
        ends = [int(rows[:last].sum()) for _, last in plan.groups]
        self.bounds = list(zip([0, *ends[:-1]], ends, strict=True))  # rows of each group

    def filled(self, duals: list[Pieces], stays: np.ndarray) -> Carried:
        """With those of ``duals`` whose rows stay."""
        shape = (self.source.n_rows, *self.problems[0].setting.row_shape)
        for pieces in duals:
            alpha = self._room(shape)
            carried(pieces, stays, alpha)
            self.alphas.append(alpha)
            self.positive.append(np.zeros(len(alpha), bool))
        return self

    def _room(self, shape: tuple[int, ...]) -> np.ndarray:
        """Memory, or where the plan has none for it a file; RunError: the disk has no room."""
        if not self.plan.rows_sides:
            return np.zeros(shape)
        size, dtype, directory = int(np.prod(shape)), np.dtype(np.float64), files.scratch_directory(self.local_dir)
        with files.naming_full_disk(directory, size * dtype.itemsize):
            return files.filed_array(size, dtype, directory).reshape(shape)

    def beginning(self, bench: Bench, look: Callable[[Block], None], constants: np.ndarray) -> Checkpoint:
        """The sums that go with them, made anew in one pass over the rows, as a checkpoint.

        constants : the intercepts of the model before, [problem].
        """
        states: list[Weights] = [
            problem.setting.shared(self.source.n_features, self.plan.dtype) for problem in self.problems
        ]
        sums = [(np.zeros(state.weights.shape), np.zeros(state.weights.shape)) for state in states]
        group = 0
        for row0, block in bench.every_row():
            while row0 >= self.bounds[group][1]:
                group += 1
            look(block)
            for k, problem in enumerate(self.problems):
                self._add(problem, problem.view(block, row0), k, group, states[k], sums[k])
        for k, (state, total) in enumerate(zip(states, sums, strict=True)):
            state.weights[:] = self._balanced(k, total, constants)
        return self._as_checkpoint(states)

    def _add(
        self, problem: Problem, view: Block, k: int, group: int, state: Weights, sums: tuple[np.ndarray, np.ndarray]
    ) -> None:
        """Put the block's dual variables into their intervals, and add a_i s_i x_i of its rows to the sum of those
        where a_i s_i is positive, or of the others."""
        how, loss = problem.setting.method.how, problem.setting.method.loss_of(problem.setting.loss)
        assert isinstance(how, Dual)
        (first, last), params = self.bounds[group], problem.setting.params()
        rows = how.rows(self.alphas[k][first:last])
        how.within(loss)(view, rows, params)
        positive = _positive(problem, view, rows.alpha)
        self.positive[k][first:last][view.ids] = positive
        for there, total in zip((positive, ~positive), sums, strict=True):
            mine = view._replace(weights=np.where(there, view.weights, 0.0))
            how.certify(loss)(mine, state, rows, params, total, 0.0)

    def _balanced(self, k: int, sums: tuple[np.ndarray, np.ndarray], constants: np.ndarray) -> np.ndarray:
        """The sum of both sides, of which one is shrunk until the weight of the constant is what it was.

        Every row has the constant, and the sides nearly cancel there: of S's 200,000 rows 100 took 1.6 from a bias of
        -0.25, and the gap began at 0.3, but at 7e-4 when 0.01 % of one side's dual variables went, too.
        """
        bias, total = float(self.problems[k].setting.settings["bias"]), sums[0] + sums[1]
        if not bias or total.ndim > 1:
            return total
        excess = float(total[-1]) - float(constants[k]) / bias
        side, mine = (sums[0], self.positive[k]) if excess > 0 else (sums[1], ~self.positive[k])
        if not abs(excess) < abs(side[-1]):
            return total
        share = abs(excess / float(side[-1]))
        self.alphas[k][mine] *= 1.0 - share
        return total - share * side

    def _of_group(self, k: int, group: int) -> np.ndarray:
        first, last = self.bounds[group]
        return self.alphas[k][first:last]

    def _as_checkpoint(self, states: list[Weights]) -> Checkpoint:
        arrays: dict[str, np.ndarray] = {}
        for k, state in enumerate(states):
            arrays[f"{k}.state.weights"] = state.weights
            if self.problems[k].setting.settings.get("mixing") == "line_search":
                arrays[f"{k}.dual_weights"] = state.weights.astype(np.float64)
        rows = [dict(self._rows_of(group)) for group in range(len(self.plan.groups))]
        # rows in memory: the pass just made counts as the first, and the next begins with a certificate
        looked = int(self.plan.resident and len(self.plan.groups) == 1)
        facts = dict(epoch=1 + looked, segment=0, reads=1, seconds=0.0, bytes_read=0, stopped="", version=1, mixes=0)
        status = Status()
        status.epochs, status.certify_next = looked, bool(looked)
        return Checkpoint(arrays, rows, facts | {"status": [status.facts() for _ in self.problems]})

    def _rows_of(self, group: int) -> Iterator[tuple[str, np.ndarray]]:
        for k in range(len(self.problems)):
            yield f"{k}.{group}.rows.alpha", self._of_group(k, group)
            for name, array in Members.none()._asdict().items():
                yield f"{k}.{group}.set.{name}", array


def _positive(problem: Problem, view: Block, alpha: np.ndarray) -> np.ndarray:
    """Whether a_i s_i > 0, bool [row]; all where each row has a dual variable for each class."""
    mine = alpha[view.ids]
    if mine.ndim > 1:
        return np.ones(view.n_rows, bool)
    positive: np.ndarray = (mine if problem.targets is None else mine * view.labels) > 0
    return positive
