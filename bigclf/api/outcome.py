"""What a run leaves behind: how it went (``Result``) and the model."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bigclf.api.evaluate import evaluate_on
from bigclf.cluster.book import Patience
from bigclf.data.arrays import listed_names
from bigclf.data.shards import release_freed
from bigclf.errors import ConvergenceWarning, DataError, RunError
from bigclf.features.truths import places
from bigclf.machine import anonymous_bytes
from bigclf.maths.block import Block, rows_of
from bigclf.maths.side_by_side import MOST_TILE, tile_bytes
from bigclf.methods import sparse_state
from bigclf.metrics.figures import Evaluation, evaluate, share_trained_on
from bigclf.metrics.label_figures import LabelsEvaluation
from bigclf.model.model import SEVERAL, Model, all_finite, is_stored
from bigclf.progress import Record, quality_text
from bigclf.texts import card, curve
from bigclf.training.engines import LocalEngine
from bigclf.training.memory import PeakMemory
from bigclf.training.plan import Plan, model_copies
from bigclf.training.problems import progress_of
from bigclf.training.pruning import pruned, scores_of_class
from bigclf.training.pruning_together import pruned_together
from bigclf.training.refitting import bytes_of_rows, is_refitted, refitted
from bigclf.training.run import Run
from bigclf.training.sources import longest_row
from bigclf.units import format_bytes, format_seconds, in_worker, plural
from bigclf.version import __version__

if TYPE_CHECKING:
    import scipy.sparse

    from bigclf.cluster.link import Link
    from bigclf.data.rows import Rows
    from bigclf.maths.feature_ids import FeatureIds


MANY = 0.01  # of the variances at their floor


@dataclass(repr=False)
class Result:
    """How a run went.

    Attributes
    ----------
    history : a record (dict) an epoch: epoch, seconds, reads, rows, updates, mistakes, error, and for certified
        methods objective, dual, gap (of the weights at the start of the read), rounds, working_set_rows. Of a
        regression mistakes are rows outside the tube, and in place of error there is mean_loss, the loss times the
        row's weight.
    certificate : primal, dual, gap and the read that proved it, or None for a method that has none and for one epoch
        without a tolerance; of L1 and elastic net also violation, the largest of the optimality conditions (how far 0
        is from the subdifferential, by coordinate); of several problems the sums of primal and dual, the worst gap and
        violation, and ``problems`` with each one's.
    progressive : rows, mistakes, error (mean_loss) of the first epoch, each row judged before it was learned from; of
        one problem learned online in one group also ``curve``, (rows, mistakes, sum of losses) so far after 64 rows,
        77, 92 and so on, each a fifth more; and ``seen``, about which share of the rows the model of ``init`` was
        trained on, where that is known: then it is no estimate for other rows.
    plan : as in ``run.json``; memory : bytes ``base`` (interpreter and libraries), ``planned`` (without the
        room for decoding where the raw store had every row, and for touched places that did not come to be), ``peak``
        (anonymous) of this process; with workers also ``worker``, what the largest of them had at the peak besides
        interpreter and libraries.
    stopped : "tolerance", "settled" (an epoch learned from no row, so that no further one would), "epochs", "seconds",
        "validation" or "stalled" (floating point has no better answer); converged : whether it was the first, the
        second or validation, or, of a method without a certificate, epochs.
    repeatable : whether the same call gives the same bits; False only of runs of older versions that made use of the
        time they waited for the disk.
    chosen : with algo="auto", which method was chosen and why.
    """

    history: list[Record]
    certificate: dict[str, Any] | None
    progressive: dict[str, Any]
    plan: dict[str, Any]
    converged: bool
    reads: int
    epochs: int
    seconds: float
    memory: dict[str, int]
    stopped: str
    mistakes: int = 0
    bytes_read: int = 0
    warnings: list[str] = field(default_factory=list)
    repeatable: bool = True
    chosen: str = ""

    def __repr__(self) -> str:
        """What a person wants to know first; the rest is a long page."""
        progressive = {} if not self.progressive or "seen" in self.progressive else self.progressive
        how_good = quality_text(self.certificate or progressive)
        told = f"{plural(self.epochs, 'epoch')}, {plural(self.reads, 'read')}, {format_seconds(self.seconds)}"
        return f"<Result: {told}{', ' * bool(how_good)}{how_good}; stopped by: {self.stopped}>"

    def _repr_html_(self) -> str:
        """For notebooks: the certificate or the progressive error, what it took, and the curve of its epochs."""
        proved, before = self.certificate or {}, {} if "seen" in self.progressive else self.progressive
        facts: dict[str, object] = {
            "chosen": self.chosen.removeprefix("algo=auto: "),
            **{name: f"{proved[name]:,.10g}" for name in ("primal", "dual") if name in proved},
            "certified gap": f"{proved['gap']:.1e}" if proved else "",
            "progressive validation": "" if proved else quality_text(before),
            "epochs": f"{self.epochs:,}, with {self.reads:,} {'pass' if self.reads == 1 else 'passes'} over the data",
            "time": format_seconds(self.seconds),
            "memory": f"{format_bytes(self.memory['peak'])} at the peak{in_worker(self.memory)}"
            if self.memory.get("peak")
            else "",
            "stopped by": self.stopped,
        }
        return card("Training", facts, self._curve())

    def _curve(self) -> str:
        """SVG of the gap or the error by epoch; of one online epoch, of the error so far by the rows seen."""
        last = self.history[-1] if self.history else {}
        name = "gap" if self.certificate else "error" if last.get("error") is not None else "mean_loss"
        seen = self.progressive.get("curve") or []
        if len(self.history) < 2 and len(seen) > 1 and not self.certificate:
            losses = "mean_loss" in self.progressive
            shares = [(loss if losses else mistakes) / rows for rows, mistakes, loss in seen]
            return curve(
                f"progressive validation {'loss' if losses else 'error'}",
                shares,
                f"from {seen[0][0]:,} to {seen[-1][0]:,} rows",
            )
        return curve(name, [cast("float | None", record.get(name)) or 0.0 for record in self.history])


def coefficients_of(
    run: Run, latest: bool = False, last: bool = False
) -> tuple[np.ndarray | scipy.sparse.csc_matrix, np.ndarray]:
    """coef_ [K, feature], of a state of touched places sparse, and intercept_ [K] of the answer (``weights_of``).

    last : the run needs them no more: of many certified problems each is let go as it is copied.
    """
    setting, state = run.problems[0].setting, run.states[0]
    if setting.places:
        state = state if latest or run.status[0].best is None else run.status[0].best
        return sparse_state.coefficients(state), state.bias.astype(np.float64) * setting.settings["bias"]
    if setting.method.all_classes and run.status[0].weights is None and setting.settings["n_classes"] > 2:
        columns = setting.weights(state if latest or run.status[0].best is None else run.status[0].best)
        return np.ascontiguousarray(columns[:-1].T), columns[-1].astype(np.float64) * setting.settings["bias"]
    each = weights_of(run, latest)
    if len(each) == 1:
        rows = answer_rows(each[0])
        return rows[:, :-1], constants(run, rows[:, -1])
    # one array that is written as it lies: a model of many classes is never copied whole
    weights = np.empty((len(each), each[0].shape[0] - 1), each[0].dtype)
    ends = np.array([found[-1] for found in each])
    for number in range(len(each)):
        weights[number] = each[number][:-1]
        each[number] = None  # type: ignore[call-overload]
        if last and run.method.certificate:
            run.let_go(number)
    return weights, constants(run, ends)


def weights_of(run: Run, latest: bool = False) -> list[np.ndarray]:
    """[feature + 1], or [feature + 1, class], of each problem's answer in the run's precision, no copies: what the
    certificates speak of or did best on the validation rows, else (or of an online method if ``latest``) the method's
    own."""
    latest = latest and not run.method.certificate
    return [
        status.weights if status.weights is not None and not latest
        else problem.setting.weights(state if latest or status.best is None else status.best)
        for status, problem, state in zip(run.status, run.problems, run.states, strict=True)
    ]  # fmt: skip


def constants(run: Run, last: np.ndarray) -> np.ndarray:
    """[K], what is added to w.x, of the ``last`` weights [K]; nothing where there is no bias, unless it is a
    threshold."""
    biased = run.method.form.threshold or run.problems[0].setting.settings["bias"]
    return last * float(biased)


def answer_rows(weights: np.ndarray) -> np.ndarray:
    """[K, feature + 1] of a problem's weights [feature + 1] or [feature + 1, class]: two classes are told apart by the
    difference of theirs."""
    if weights.ndim == 1:
        return weights[None]
    return (weights[:, 1] - weights[:, 0])[None] if weights.shape[1] == 2 else np.ascontiguousarray(weights.T)


def class_columns(rows: np.ndarray, n_classes: int) -> np.ndarray:
    """[feature + 1, class] with which a method that learns all classes at once begins: of two each has half."""
    return np.stack([-0.5 * rows[0], 0.5 * rows[0]], axis=1) if n_classes == 2 else rows.T


def come_since(source: Rows) -> list[str]:
    """A warning of files that came to the data while it was learned from."""
    found = source.new_files() if hasattr(source, "new_files") else []
    if not found:
        return []
    named = found[0] + ", ..." * (len(found) > 1)
    return [f"{plural(len(found), 'file')} ({named}) came since the data were opened and left out; train again to take "
            "them in"]  # fmt: skip


def grown(init: Model, n_features: int, classes: np.ndarray | None, ids: FeatureIds | None = None) -> Model:
    """``init`` for data of more features or classes, or of features that are known by another place: the weights of
    those that it does not know are 0.

    Raises
    ------
    ValueError : it knows features or classes that the data have not, or one of both is a regression.
    """
    width, n_features = n_features, n_features if ids is None else ids.n_features
    have, need = (None if c is None else c.tolist() for c in (init.classes_, classes))
    placed = init.feature_ids is None if ids is None else ids.same_as(init.feature_ids)
    if have == need and init.n_features == n_features and placed:
        return init
    several = init.multilabel
    rows = 1 if need is None or (len(need) == 2 and not several) else len(need)
    if (have is None) != (need is None) or init.n_features > n_features or not set(have or ()) <= set(need or ()):
        mine, theirs = ("numbers" if c is None else f"classes {c}" for c in (have, need))
        shapes = [init.intercept_.size, init.n_features], [rows, n_features]
        raise ValueError(f"init has weights {shapes[0]} for {mine}, the data need {shapes[1]} for {theirs}")
    init = init.by_place(ids)
    take = np.zeros((rows, init.intercept_.size))  # rows of init make those of the new one
    if rows == 1:
        take[0, 0] = 1
    elif have is not None and need is not None:
        at = [need.index(label) for label in have]
        if len(have) == 2 and not several:  # for the greater class is against the other
            take[at, 0] = -1, 1
        else:
            take[at, range(len(have))] = 1
    return Model(_wider(init.weights, take, width), take @ init.intercept_, classes, init.features,
                 init.method, facts=init.facts, columns=init.columns)  # fmt: skip


def spelt_as(init: Model, classes: np.ndarray | None) -> Model:
    """``init`` with its classes written as those of the data, where they are the same truths in another spelling."""
    if init.classes_ is None or classes is None:
        return init
    need = classes.tolist()
    at = places(need, init.classes_.tolist())
    order = np.argsort(at, kind="stable")  # of its classes as they will be written
    moves = bool((np.diff(order) < 0).any())
    if len(set(at)) < len(at) or -1 in at or (moves and init.state):
        return init  # ``grown`` tells what is not there
    written = np.array([need[at[k]] for k in order], classes.dtype)
    if written.dtype == init.classes_.dtype and (written == init.classes_).all():
        return init
    found = copy.copy(init)
    found.classes_ = written
    if moves and init.intercept_.size == 1:  # for the greater class against the other
        found.weights, found.intercept_ = -init.weights, -init.intercept_
    elif moves:
        found.weights, found.intercept_ = init.weights[order], init.intercept_[order]
    return found


def _wider(
    weights: np.ndarray | scipy.sparse.csc_matrix, take: np.ndarray, n_features: int
) -> np.ndarray | scipy.sparse.csr_matrix:
    """``take @ weights`` with columns of zeros, sparse where the weights are."""
    if isinstance(weights, np.ndarray):
        more = np.zeros((take.shape[0], n_features), weights.dtype)
        more[:, : weights.shape[1]] = take @ weights
        return more
    import scipy.sparse as sp

    found = (sp.csr_matrix(take) @ weights).tocsr().astype(weights.dtype)
    found.resize(take.shape[0], n_features)
    return found


def validation(run: Run, source: Rows, data: object, link: Link | None, patience: Patience) -> dict[str, float]:
    """Measure the answer so far, by the workers where there are some; the figures are the same."""
    weights, bias = coefficients_of(run, latest=True)
    method = {"name": run.method.name, "bias": "feature" if run.problems[0].setting.settings["bias"] else None}
    method |= {"multiclass": SEVERAL} if source.sets is not None else {}
    named = None if listed_names(source.features) is None else source.features
    model = Model(weights, bias, classes_of(run, source), named, method, columns=_named_columns(source),
                  feature_ids=source.feature_ids)  # fmt: skip
    if not run.method.linear:
        model.state = kept_state(run)
    if is_stored(data):
        if link is None:
            found = evaluate(model, data)
        else:
            found = evaluate_on(link, model, data, patience=patience, idle=run.idle)
    else:
        X, y = cast("tuple[object, object]", data)
        found = evaluate(model, X, y)
    if isinstance(found, LabelsEvaluation):
        return {"micro_f1": found.micro_f1, "precision_at_1": found.precision_at[1]}
    if isinstance(found, Evaluation):
        return {"accuracy": float(found.accuracy)}
    return {"mean_squared_error": found.mean_squared_error, "mean_absolute_error": found.mean_absolute_error}


def result_of(run: Run, plan: Plan, history: list[Record], peak: PeakMemory, source: Rows) -> Result:
    certificate: dict[str, Any] | None = None
    if run.tol is not None and all(status.gap is not None for status in run.status):
        each: list[dict[str, Any]] = [
            {"name": p.name, "primal": s.primal, "dual": s.dual, "gap": s.gap, "read": s.reads}
            for p, s in zip(run.problems, run.status, strict=True)
        ]
        certificate = {
            "primal": sum(c["primal"] for c in each),
            "dual": sum(c["dual"] for c in each),
            "gap": max(c["gap"] for c in each),
            "read": max(c["read"] for c in each),
        }
        violations = [s.violation for s in run.status if s.violation is not None]
        if violations:
            certificate["violation"] = max(violations)
        if len(each) > 1:
            certificate["problems"] = each
    planned = (
        plan.memory["planned"] - (0 if run.counts.decoded else plan.memory.get("decoding", 0)) - _untouched(run, plan)
    )
    first = [status.progressive for status in run.status]
    rows = sum(tally.rows for tally in first)
    mistakes = sum(tally.mistakes for tally in first)
    curve = run.counts.curve
    judged = progress_of(run.problems[0], rows, mistakes, sum(tally.loss for tally in first))
    return Result(
        history=history,
        certificate=certificate,
        progressive={"rows": rows, "mistakes": mistakes, **judged, **({"curve": curve} if curve else {})},
        plan=plan.as_json(),
        converged=run.stopped in ("tolerance", "settled", "validation")
        or (run.tol is None and run.stopped == "epochs"),
        reads=run.reads,
        epochs=run.epoch - 1,
        seconds=run.clock.seconds,
        memory={
            "base": peak.base,
            "planned": peak.base + planned,
            "peak": max(peak.peak, anonymous_bytes()),
            **({"worker": run.engine.worker_memory} if run.engine.worker_memory else {}),
        },
        stopped=run.stopped,
        mistakes=sum(status.total.mistakes for status in run.status),
        bytes_read=run.counts.bytes_read,
        warnings=[
            *source.warnings,
            *variances_used_up(run),
            *scaled_down(run),
            *not_separated(run),
            *answers_scaled(run),
            *come_since(source),
        ],
    )


def share_seen(init: Model, source: Rows) -> float:
    """About which share of the rows of ``source`` a run that begins with ``init`` does not see for the first time."""
    return 1.0 if init.facts.get("data") == source.digest else share_trained_on(init, source)


def _untouched(run: Run, plan: Plan) -> int:
    """Bytes of places that were planned for and never came to be, of one group."""
    if not plan.places or len(plan.groups) > 1:
        return 0
    copies = model_copies(run.problems)
    # the writer takes the arrays of the answer as they are; versions of it that copy them find room in the budget
    answers = min(1, copies) * sum(int(state.lists[:, 1].sum(dtype=np.int64)) for state in run.states)
    grown = sum(state.weights.size for state in run.states)
    return sparse_state.slot_bytes(plan.dtype) * (len(run.states) * (1 + copies) * plan.places - grown - answers)


def variances_used_up(run: Run) -> list[str]:
    """A warning where more than ``MANY`` of a confidence-weighted method's variances have fallen to their floor."""
    pairs = zip(run.problems, run.states, strict=True)
    share = float(
        np.mean([run.method.form.share_at_floor(state, problem.setting.params()) for problem, state in pairs])
    )
    if share <= MANY:
        return []
    settings = run.problems[0].setting.settings
    cure = next((f"a smaller {name}" for name in ("eta", "phi") if name in settings), "scaling the values down")
    return [
        f"{100 * share:.0f} % of the variances stand at their floor: their features hardly move any more, and others "
        f"take the whole of a step; {cure} keeps them larger"
    ]


def scaled_down(run: Run) -> list[str]:
    """What a method that is made for values up to 1 did with larger ones."""
    most = max([figures.get("largest_value", 1.0) for figures in told_of(run)], default=1.0)
    if most <= 1:
        return []
    return [f"values up to {most:g}: {run.method.asked} is made for values up to 1 and divides all by {most:g}"]


def answers_scaled(run: Run) -> list[str]:
    """Of a run that ended early, the problems whose last weights were worse than these times a smaller number."""
    found = []
    for problem, status in zip(run.problems, run.status, strict=True):
        if status.scale != 1:
            name = f"{problem.name}: " if len(run.problems) > 1 else ""
            how = f"the last weights were multiplied by {status.scale:g}" if status.scale else "all weights are zero"
            found.append(f"{name}{how}, which lowers the objective; train longer")
    return found


def not_separated(run: Run) -> list[str]:
    """Of a method that looks for the largest margin, where it found rows that its weights do not separate."""
    if not run.method.settles or run.stopped == "validation":
        return []
    figures = told_of(run)
    known = {n for n, figure in enumerate(figures) if figure.get("margin", 0.0) > 0}
    wrong = [n for n, status in enumerate(run.status) if status.last_mistakes > 0 and n not in known]
    if not wrong:
        return []
    bounds = [figures[n]["margin_bound"] for n in wrong if n < len(figures) and "margin_bound" in figures[n]]
    if run.stopped in ("settled", "tolerance"):
        text = "the weights do not separate the rows"
    else:
        epochs = max(status.epochs for status in run.status)
        text = (
            f"the last epoch still made mistakes: more than {epochs} {'epoch' if epochs == 1 else 'epochs'} are needed "
            "(epochs=), or the rows are not separable"
        )
    bound = f", and none do by more than {min(bounds):.3g}" if bounds else ""
    return [f"{text}{bound}; bigclf.soft_margin gives the largest margin of all rows but some"]


def told_of(run: Run) -> list[dict[str, float]]:
    """What the states tell of themselves, a problem each."""
    pairs = zip(run.problems, run.states, strict=True)
    figures = [run.method.form.figures(state, problem.setting.params()) for problem, state in pairs]
    return figures if any(figures) else []


def prune(run: Run, source: Rows, tol: float) -> None:
    """Drop what can be dropped of the weights that the certificates speak of, train what is left again, and certify it
    within ``tol``; three passes over the rows, or five, of several problems a few more and one for their scores; where
    all rows stay in memory as many as it takes.

    Raises
    ------
    RunError : there is no certificate yet.
    """
    if any(status.gap is None for status in run.status):
        raise RunError("prune needs a certificate: leave out epochs=1, or set tol=")
    weights = weights_of(run)
    objectives = [(status.primal, status.dual) for status in run.status]
    blocks: Callable[[], Iterable[Block]] = source.blocks
    drop = pruned
    if run.plan.resident:
        if isinstance(run.engine, LocalEngine):
            blocks = run.engine.bench.loaded
        else:  # the same rows, read once more: the answer is the same
            held = list(source.blocks())
            blocks = functools.partial(list, held)
        if len(weights) > 1 and tile_bytes(source.n_features, 0) <= MOST_TILE:  # many passes, that cost little there
            drop = pruned_together
    squares = [float(np.square(own[:-1], dtype=np.float64).sum()) for own in weights]
    most, room, cheap = bytes_of_rows(source), run.plan.left_room, run.plan.resident
    scores, several = None, source.sets is not None or (source.classes is not None and len(source.classes) > 2)
    if several and is_refitted(len(weights), most, room, cheap):
        scores = scores_of_class(run.problems, weights, blocks)
    found = drop(run.problems, weights, objectives, blocks, tol)
    if isinstance(run.engine, LocalEngine):
        run.engine.bench.forget()  # makes room for rows
        release_freed()

    def over() -> bool:
        return run.clock.late or run.clock.told_to_stop() is not None

    found = refitted(run.problems, found, objectives, blocks, tol, most, room, cheap, squares, over, scores)
    for status, one in zip(run.status, found, strict=True):
        status.weights, status.primal = one.weights, one.primal


def _sparse_coefficients(run: Run) -> tuple[scipy.sparse.csc_matrix, np.ndarray]:
    """What ``coefficients_of`` tells of many problems whose weights are mostly 0, without an array of all of them."""
    import scipy.sparse

    each = weights_of(run)
    ends = np.zeros(each[0].size, np.int64)  # column by column, and nothing twice
    for weights in each:
        ends[1:] += weights[:-1] != 0
    np.cumsum(ends, out=ends)
    data, labels, free = np.empty(ends[-1], each[0].dtype), np.empty(ends[-1], np.int32), ends[:-1].copy()
    for label, weights in enumerate(each):
        features = np.flatnonzero(weights[:-1])
        places = free[features]
        data[places], labels[places] = weights[features], label
        free[features] += 1
    columns = scipy.sparse.csc_matrix((data, labels, ends), (len(each), ends.size - 1))
    return columns, constants(run, np.array([weights[-1] for weights in each]))


def model_of(run: Run, source: Rows, result: Result, options: Mapping[str, object]) -> Model:

    setting = run.problems[0].setting
    sparse = options["prune"] is not None and len(run.problems) > 1
    weights, bias = _sparse_coefficients(run) if sparse else coefficients_of(run, last=True)
    method = {"name": setting.method.name, "loss": setting.loss, **setting.chosen, "bias": options["bias"]}
    if setting.method.all_classes and setting.loss == "logistic":
        method["multiclass"] = "multinomial"
    if source.sets is not None:
        method["multiclass"] = SEVERAL
    facts = {
        "version": __version__, "n_rows": source.n_rows, "nnz": source.nnz, "data": source.digest,
        "seed": options["seed"], "tol": options["tol"], "converged": result.converged, "stopped": result.stopped,
        "mistakes": result.mistakes, "bytes_read": result.bytes_read, "warnings": result.warnings,
        "reads": result.reads, "epochs": result.epochs, "seconds": result.seconds, "progressive": result.progressive,
        "memory": result.memory, "plan": result.plan, "repeatable": result.repeatable,
        **({"origin": source.origin()} if hasattr(source, "origin") else {}),
        **({"best_epoch": run.best.epoch} if run.best.epoch else {}),
        **({"chosen": result.chosen} if result.chosen else {}),
        **({"validation": found} if (found := validated(run, result)) else {}),
        **({"pruned": _pruned_facts(weights, cast(float, options["prune"]))} if options["prune"] is not None else {}),
    }  # fmt: skip
    if not all_finite(weights, bias):
        row, norm = longest_row(source)
        raise DataError(
            "the weights overflow: scale down the values or the rate, or take float64 for the weights; "
            f"the longest row is row {row}, of norm {norm:.3g}"
        )
    state = None if setting.method.certificate else kept_state(run)
    model = Model(weights, bias, classes_of(run, source), source.features, method, result.certificate, facts, state,
                  source.learned_of_columns(), _named_columns(source), source.feature_ids)  # fmt: skip
    model.result_ = result
    return model


def _pruned_facts(weights: np.ndarray | scipy.sparse.csc_matrix, tol: float) -> dict[str, float]:
    """The tolerance, and how many weights are left of how many."""
    kept = np.count_nonzero(weights) if isinstance(weights, np.ndarray) else weights.nnz
    return {"tol": tol, "kept": int(kept), "of": int(weights.shape[0] * weights.shape[1])}


def classes_of(run: Run, source: Rows) -> np.ndarray | None:
    """The classes that the run is about: of rows with several labels each those of this turn."""
    if source.sets is None:
        return source.classes  # type: ignore[no-any-return]
    return source.sets.labels[[problem.label.number for problem in run.problems if problem.label is not None]]


def _named_columns(source: Rows) -> dict[str, object]:
    """By what names files are read; nothing of rows in memory."""
    return dict(getattr(source, "named_columns", {}))


def validated(run: Run, result: Result) -> dict[str, float] | None:
    """The figures of the answer on the validation rows: of the best epoch where it is the best, else of the last."""
    records = [r for r in result.history if run.best.epoch in (0, r["epoch"])]
    return records[-1].get("validation") if records else None


def kept_state(run: Run) -> dict[str, np.ndarray]:
    """What a run that begins with the answer goes on from, where that is more than its weights: the states, and of the
    last epoch's what mixing went on by."""
    states = [b if (b := status.best) is not None else s for status, s in zip(run.status, run.states, strict=True)]
    last = all(status.best is None for status in run.status)
    beside = {
        f"{n}.{name}": array
        for n, conductor in enumerate(run.conductors if last else []) for name, array in conductor.arrays().items()
    }  # fmt: skip
    if not beside and all(p.setting.is_answer(state) for p, state in zip(run.problems, states, strict=True)):
        return {}
    return {f"{n}.{name}": array for n, state in enumerate(states) for name, array in state._asdict().items()} | beside


LOOKED_AT = 1000  # rows


def silence(model: Model, source: Rows) -> list[str]:
    """What is to be said of a model of several labels that gives none of them to any of the first rows."""
    if source.sets is None:
        return []
    seen = 0
    for block in source.blocks():
        rows = rows_of(block, 0, min(LOOKED_AT - seen, block.n_rows))
        if any((scores >= 0).any() for _, scores, _ in model.pieces(rows)):
            return []
        seen += rows.n_rows
        if seen >= LOOKED_AT:
            break
    if not seen:
        return []
    return [
        f"the model gives no label to any of the first {plural(seen, 'row')} it was trained on: it ranks labels "
        "(predict --top), but no decision value is 0 or more; a larger C, or class_weight='balanced', gives more"
    ]


def warn_of_limits(result: Result, options: Mapping[str, object]) -> None:
    limit = f"max_seconds={options['max_seconds']}" if result.stopped == "seconds" else f"epochs={options['epochs']}"
    if result.stopped == "stalled":
        limit = "a gap that falls no further"
    if result.certificate is not None:
        reached = f"the relative gap is {result.certificate['gap']:.2e}, the tolerance {options['tol']:g}"
    else:
        reached = f"{plural(result.epochs, 'epoch')} {'was' if result.epochs == 1 else 'were'} done"
    warnings.warn(f"not converged: stopped at {limit}; {reached}", ConvergenceWarning, stacklevel=4)
