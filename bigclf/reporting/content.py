"""What a report says: from a model, the record of its run and an evaluation to the sections of a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.methods import METHODS
from bigclf.metrics.figures import (
    AnyEvaluation,
    BinnedRanking,
    Evaluation,
    Ranking,
    RegressionEvaluation,
    held_out_figures,
    seen_before_text,
)
from bigclf.metrics.label_figures import LabelsEvaluation
from bigclf.progress import Record
from bigclf.reporting import curves
from bigclf.reporting.page import Bar, Figure, Page, Section, Shade, Table, Tile
from bigclf.reporting.pictures import Line, chart
from bigclf.units import format_bytes, format_peak, format_seconds, plural, within_plan
from bigclf.version import __version__

if TYPE_CHECKING:
    from bigclf.model.explanations import ClassWeights


MOST_CLASSES = 20  # with a table of their own, or a line and a column of the confusion
MOST_EVENTS = 200
MOST_PAIRS = 20  # of classes that are confused
MOST_LINES = 200  # of a table of classes


class Measured(NamedTuple):
    """An evaluation, what it kept of the decision values (``figures.Ranking``, or None), and of which data it is."""

    evaluation: Any
    ranking: Any
    data: str


class Subject(NamedTuple):
    """What a report is about.

    title : of the page; model : or None while there is none; run : ``run.json``, or {}; history : records of epochs;
    measured : or None; explained : ``explanations.explain``'s, or why there is nothing to show.
    """

    title: str
    model: Any
    run: dict[str, Any]
    history: list[Record]
    measured: Measured | None
    explained: Any


def page_of(subject: Subject) -> Page:

    sections = [
        held_out_section(subject),
        evaluation_section(subject),
        training_section(subject),
        weights_section(subject),
        data_section(subject),
        settings_section(subject),
        memory_section(subject),
        events_section(subject),
    ]
    method = told_method(subject)
    return Page(
        subject.title, method_title(method.get("name")), tiles(subject), [s for s in sections if s], __version__
    )


def told_method(subject: Subject) -> dict[str, Any]:
    """Name, loss and parameters, of the model or, before there is one, of the run."""
    if subject.model is not None:
        return dict(subject.model.method)
    identity = subject.run.get("identity", {})
    return {"name": identity.get("method"), "loss": identity.get("loss"), **identity.get("settings", {})}


def method_title(name: object) -> str:
    method = METHODS.get(str(name))
    return f"{name}: {method.title}" if method is not None else str(name or "")


def facts_of(subject: Subject) -> dict[str, Any]:
    return subject.model.facts if subject.model is not None else {}


def certificate_of(subject: Subject) -> dict[str, Any] | None:
    if subject.model is not None:
        return subject.model.certificate  # type: ignore[no-any-return]
    last = [record for record in subject.history if record.get("gap") is not None]
    return {"gap": last[-1]["gap"], "primal": last[-1]["objective"], "dual": last[-1]["dual"]} if last else None


# What is seen first


def tiles(subject: Subject) -> list[Tile]:
    return [*_quality_tiles(subject), *_evaluation_tiles(subject), *_cost_tiles(subject)]


def _quality_tiles(subject: Subject) -> list[Tile]:
    found = []
    certificate, facts = certificate_of(subject), facts_of(subject)
    if certificate is not None:
        tone = "poor" if facts.get("converged") is False else "good"
        found.append(
            Tile(
                "Certified gap",
                f"{certificate['gap']:.1e}",
                "upper bound on the relative distance from the optimum",
                tone,
            )
        )
    progressive = facts.get("progressive") or {}
    if certificate is None and "error" in progressive:
        seen = seen_before_text(progressive)
        note, tone = seen or "each row judged before training on it", "poor" if seen else ""
        found.append(Tile("Progressive error", f"{100 * progressive['error']:.2f} %", note, tone))
    if facts.get("converged") is False:
        found.append(Tile("Ended by", str(facts.get("stopped")), "before its tolerance", "poor"))
    return found


def _evaluation_tiles(subject: Subject) -> list[Tile]:
    facts = facts_of(subject)
    held = _held_out_tiles(subject)
    if subject.measured is None:
        return held + ([Tile("Validation", text)] if (text := validation_text(facts.get("validation"))) else [])
    e = subject.measured.evaluation
    counted, tone = plural(e.n, "row"), ""
    if e.trained_on:
        about = "about " * (e.trained_on < 1)
        counted, tone = f"{counted}, {about}{100 * e.trained_on:.0f} % of them trained on", "poor"
    if hasattr(e, "mean_squared_error"):
        found = [*held, Tile("Mean squared error", f"{e.mean_squared_error:.5g}", counted, tone)]
        return found + ([Tile("R²", f"{e.r2:.4f}")] if e.r2 is not None else [])
    if isinstance(e, LabelsEvaluation):
        tiles = (("Macro F1", f"{e.macro_f1:.4f}"), ("Precision at 1", f"{100 * e.precision_at[1]:.2f} %"))
        return [*held, Tile("Micro F1", f"{e.micro_f1:.4f}", counted, tone), *(Tile(*tile) for tile in tiles)]
    found = [*held, Tile("Accuracy", f"{100 * e.accuracy:.2f} %", _beside(e, counted), tone)]
    if e.auc is not None:
        found.append(Tile("Area under ROC", f"{e.auc:.4f}"))
    return [*found, Tile("F1, mean of classes", f"{e.macro_f1:.4f}")]


def _beside(e: Evaluation, counted: str) -> str:
    """What is told beside an accuracy: that of who always says the most frequent class, and of how many rows it is."""
    return counted if e.majority is None else f"baseline {100 * e.majority:.2f} %, the most frequent class; {counted}"


def _held_out_tiles(subject: Subject) -> list[Tile]:
    """What the model was measured to be on rows held out of its training."""
    if not (held := facts_of(subject).get("held_out")):
        return []
    note = f"{plural(held['n'], 'row')} held out of training"
    if "micro_f1" in held:
        return [Tile("Held-out micro F1", f"{held['micro_f1']:.4f}", note)]
    if "accuracy" not in held:
        return [Tile("Held-out mean squared error", f"{held['mean_squared_error']:.5g}", note)]
    e = held_out_figures(subject.model)
    accuracy = f"{100 * held['accuracy']:.2f} %"
    if not isinstance(e, Evaluation):
        return [Tile("Held-out accuracy", accuracy, note)]
    found = [Tile("Held-out accuracy", accuracy, _beside(e, note))]
    if e.auc is not None and subject.measured is None:
        found.append(Tile("Held-out area under ROC", f"{e.auc:.4f}"))
    return found


def _cost_tiles(subject: Subject) -> list[Tile]:
    facts, last = facts_of(subject), subject.history[-1] if subject.history else {}
    seconds, reads = facts.get("seconds", last.get("seconds")), facts.get("reads", last.get("reads"))
    epochs = facts.get("epochs", last.get("epoch"))
    found = []
    if seconds is not None:
        counted = [plural(n, word) for n, word in ((reads, "read"), (epochs, "epoch")) if n is not None]
        found.append(Tile("Time", format_seconds(seconds), ", ".join(counted)))
    memory = facts.get("memory") or {}
    if "peak" in memory:
        base = memory.get("base", 0)
        peak, planned = max(0, memory["peak"] - base), max(0, memory.get("planned", 0) - base)
        peak = memory.get("worker", peak)  # whose plan it is
        note = f"of {format_bytes(planned)} planned{within_plan(planned, peak)}" if "planned" in memory else ""
        found.append(Tile("Peak memory" + " of a worker" * ("worker" in memory), format_peak(peak), note))
    return found


# Evaluation


def held_out_section(subject: Subject) -> Section:
    """What the model keeps of its evaluation on the rows that were held out; nothing where it keeps none."""
    section = Section("held-out", "On held-out rows")
    e = None if subject.model is None else held_out_figures(subject.model)
    if e is None:
        return section
    section.text = f"{e.n:,} rows that the model did not see during training."
    return _evaluated(section, e, None)


def evaluation_section(subject: Subject) -> Section:
    section = Section("evaluation", "On labelled rows")
    if subject.measured is None:
        return section
    e, ranking, data = subject.measured
    section.text = f"{e.n:,} rows of {data}."
    return _evaluated(section, e, ranking)


def _evaluated(section: Section, e: AnyEvaluation, ranking: Ranking | BinnedRanking | None) -> Section:
    if isinstance(e, RegressionEvaluation):
        section.facts = [
            ("mean squared error", f"{e.mean_squared_error:.6g}"),
            ("mean absolute error", f"{e.mean_absolute_error:.6g}"),
            ("R²", "none" if e.r2 is None else f"{e.r2:.5f}"),
            ("mean of the labels", f"{e.label_mean:.6g}"),
        ]
    elif isinstance(e, LabelsEvaluation):
        section.facts, section.tables = [*e.lines()], [_per_class(e)]
    else:
        section.facts = _class_figures(e)
        section.figures = [*_ranked(e, ranking), *_reliability(e)]
        section.tables = [*([_per_class(e)] if e.f1 else []), *_confusion(e)]
    section.notes = list(e.notes)
    section.facts += [
        (f"{name.replace('_', ' ')} by row weights", f"{v:.6g}")
        for name, v in (e.weighted or {}).items()
        if v is not None
    ]
    return section


def _class_figures(e: Evaluation) -> list[tuple[str, str]]:
    facts = [("correct", f"{e.correct:,} of {e.n:,}"), ("accuracy", f"{100 * e.accuracy:.3f} %")]
    if e.majority is not None:
        facts.append(("baseline, always the most frequent class", f"{100 * e.majority:.3f} %"))
    names = {"auc": "area under ROC", "log_loss": "log loss", "confusion": "confusion"}
    if e.auc is not None:
        facts.append(("area under ROC", f"{e.auc:.5f}" + (f" ± {e.auc_bound:.1e}" if e.auc_bound else "")))
    if e.log_loss is not None:
        facts.append(("log loss", f"{e.log_loss:.5f}"))
    if e.calibration_error is not None:
        facts.append(("calibration error", f"{e.calibration_error:.5f}"))
    facts.append(("F1, mean of classes", f"{e.macro_f1:.5f}"))
    together: dict[str, list[str]] = {}
    for name, why in e.missing.items():
        together.setdefault(why, []).append(names.get(name, name.replace("_", " ")))
    return facts + [(", ".join(same), why) for why, same in together.items()]


def _ranked(e: Evaluation, ranking: Ranking | BinnedRanking | None) -> list[Figure]:
    """ROC, precision and recall: of two classes, where both occur."""
    if ranking is None or e.auc is None:
        return []
    found = curves.levels(ranking)
    label, share = str(e.classes[1]), found.positive.sum() / e.n
    precision = curves.average_precision(found)
    luck = Line("by chance", [0, 1], [0, 1], guide=True)
    base = Line("by chance", [0, 1], [share, share], guide=True)
    figures = [
        Figure(
            "ROC",
            chart(
                f"ROC curve, area {e.auc:.4f}",
                [Line("model", *curves.roc(found)), luck],
                "rows of the other class above the threshold",
                f"rows of {label} above it",
                unit=True,
            ),
            f"Area {e.auc:.4f}.",
        ),
        Figure(
            "Precision and recall",
            chart(
                f"Precision against recall, average precision {precision:.4f}",
                [Line("model", *curves.precision_recall(found)), base],
                "recall",
                "precision",
                unit=True,
            ),
            f"Average precision {precision:.4f}; {100 * share:.2f} % of the rows are {label}.",
        ),
    ]
    return figures


def _reliability(e: Evaluation) -> list[Figure]:
    """How often the label is the one that has a probability, in bins of it; of more than two classes that predicted."""
    bins = [each for each in e.reliability or () if each["rows"]]
    if not bins:
        return []
    what = str(e.classes[1]) if len(e.classes) == 2 else "the class predicted"
    lines = [
        Line("model", [each["probability"] or 0.0 for each in bins], [each["share"] or 0.0 for each in bins]),
        Line("perfectly calibrated", [0, 1], [0, 1], guide=True),
    ]
    title = f"Reliability, expected calibration error {e.calibration_error:.4f}"
    drawing = chart(title, lines, f"probability of {what}", f"share that is {what}", unit=True)
    fewest = min(each["rows"] for each in bins)
    text = f"Expected calibration error {e.calibration_error:.4f}; the smallest bin has {plural(fewest, 'row')}."
    return [Figure("Calibration", drawing, text)]


def _per_class(e: Evaluation | LabelsEvaluation) -> Table:
    one, several = ("label", "labels") if isinstance(e, LabelsEvaluation) else ("class", "classes")
    lines = [
        [
            str(f["label"]),
            f"{f['rows']:,}",
            f"{f['precision']:.4f}",
            f"{f['recall']:.4f}",
            Bar(f"{f['f1']:.4f}", f["f1"]),
        ]
        for f in e.f1[:MOST_LINES]
    ]
    columns = [(one, "text"), *((name, "number") for name in ("rows", "precision", "recall", "F1"))]
    more = f"The first {MOST_LINES} of {len(e.f1):,} {several}." if len(e.f1) > MOST_LINES else ""
    return Table(several.capitalize(), columns, lines, more)


def _confusion(e: Evaluation) -> list[Table]:
    """The whole table of few classes, else the pairs that are confused most."""
    if e.confusion is None:
        return []
    counts, labels = np.array(e.confusion), [str(label) for label in e.classes]
    if len(labels) <= MOST_CLASSES:
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        rows = [
            [labels[k], *(Shade(f"{n:,}", s) for n, s in zip(counts[k].tolist(), shares[k].tolist(), strict=True))]
            for k in range(len(labels))
        ]
        columns = [("actual \\ predicted", "text"), *((label, "number") for label in labels)]
        return [
            Table("Confusion", columns, rows, "Rows by their actual class (down) and the predicted class (across).")
        ]
    rows = [[str(label), str(said), f"{n:,}"] for label, said, n in e.confused(MOST_PAIRS)]
    return [Table("Confused most", [("is", "text"), ("said", "text"), ("rows", "number")], rows)] if rows else []


# Training


def training_section(subject: Subject) -> Section:
    section = Section("training", "How it was trained")
    certificate, facts = certificate_of(subject), facts_of(subject)
    if certificate is not None:
        section.text = certificate_sentence(certificate)
        section.facts = [
            ("primal objective", f"{certificate['primal']:,.6f}"),
            ("dual objective, a lower bound on the optimum", f"{certificate['dual']:,.6f}"),
        ]
        if "violation" in certificate:
            section.facts.append(("largest violation of optimality", f"{certificate['violation']:.2e}"))
    elif (progressive := facts.get("progressive") or {}).get("rows"):
        section.text = "The method has no certificate. Each row of the first epoch was judged before training on it" + (
            f", but {seen}." if (seen := seen_before_text(progressive)) else "."
        )
        each = "" if progressive["rows"] == facts.get("n_rows") else ", once for each class"
        section.facts = [
            (f"rows judged{each}", f"{progressive['rows']:,}"),
            ("of them wrong", f"{progressive.get('mistakes', 0):,}"),
        ]
    section.facts += [
        (name, str(value))
        for name, value in (
            ("stopped by", facts.get("stopped")),
            ("best epoch", facts.get("best_epoch")),
            ("validation", validation_text(facts.get("validation"))),
            ("chosen", facts.get("chosen")),
            ("repeatable", None if facts.get("repeatable", True) else "no: waiting time was used"),
        )
        if value
    ]
    section.figures = [
        figure for figure in (_gaps(subject), _objectives(subject), _errors(subject), _progressive(subject)) if figure
    ]
    section.notes = [str(text) for text in facts.get("warnings", ())]
    return section


def certificate_sentence(certificate: Mapping[str, Any]) -> str:
    gap = certificate["gap"]
    share = f"{100 * gap:.3g} %" if gap >= 1e-6 else f"{gap:.1e} of it"
    return (
        f"The training objective of this model is at most {share} above the optimum. Both bounds were computed in "
        "float64 over all rows. They say nothing about rows that the model has not seen."
    )


def _series(history: Sequence[Record], name: str, factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    known: list[dict[str, Any]] = [{**record} for record in history]
    points = [(record["epoch"], factor * record[name]) for record in known if record.get(name) is not None]
    x, y = np.array(points, float).reshape(-1, 2).T
    return curves.thinned(x, y)


def _epochs(history: Sequence[Record]) -> dict[str, bool]:
    """How an axis of epochs is drawn: many by their logarithm."""
    return {"log_x" if history and history[-1].get("epoch", 0) > 100 else "whole_x": True}


def _gaps(subject: Subject) -> Figure | None:
    certified, estimated = (_series(subject.history, name) for name in ("gap", "estimated_gap"))
    if certified[0].size + estimated[0].size < 2:
        return None
    lines = [Line("certified", *certified), Line("estimated on the way", *estimated)]
    drawing = chart(
        "Relative gap by epoch",
        [line for line in lines if len(line.x)],
        "epoch",
        "relative gap",
        log_y=True,
        **_epochs(subject.history),
    )
    return Figure(
        "Distance from the optimum", drawing, "An estimate holds for the moment it was made; a certificate is a bound."
    )


def _objectives(subject: Subject) -> Figure | None:
    primal, dual = _series(subject.history, "objective"), _series(subject.history, "dual")
    if primal[0].size < 2:
        return None
    lines = [Line("objective", *primal), *([Line("bound from below", *dual)] if dual[0].size else [])]
    return Figure("Objective", chart("Objective by epoch", lines, "epoch", "objective", **_epochs(subject.history)))


def _errors(subject: Subject) -> Figure | None:
    learned = [r for r in subject.history if r.get("rows", 1)]  # one that only certifies judges no row
    mine = _series(learned, "error", 100.0)
    judged = [
        (r["epoch"], 100 * (1 - found["accuracy"]))
        for r in subject.history
        if "accuracy" in (found := r.get("validation") or {})
    ]
    if certificate_of(subject) is not None and not judged or max(mine[0].size, len(judged)) < 2:
        return None
    lines = [Line("before learning from a row", *mine)]
    if judged:
        lines.append(Line("validation rows", *np.array(judged, float).T))
    drawing = chart("Share of wrong rows by epoch", lines, "epoch", "wrong, %", **_epochs(subject.history))
    return Figure("Errors by epoch", drawing)


def _progressive(subject: Subject) -> Figure | None:
    progressive = facts_of(subject).get("progressive") or {}
    curve = progressive.get("curve") or []
    if len(curve) < 2:
        return None
    rows, mistakes = np.array([point[:2] for point in curve], float).T
    drawing = chart(
        "Progressive error against rows seen",
        [Line("error so far", rows, 100 * mistakes / rows)],
        "rows seen",
        "wrong so far, %",
        log_x=True,
    )
    but = f"; {seen}" if (seen := seen_before_text(progressive)) else ""
    told = f"Each row judged before training on it, mean of all so far{but}."
    return Figure("Progressive error", drawing, told)


def validation_text(found: dict[str, float] | None) -> str:
    parts = [
        f"accuracy {100 * v:.2f} %" if name == "accuracy" else f"{name.replace('_', ' ')} {v:.6g}"
        for name, v in (found or {}).items()
    ]
    return ", ".join(parts)


# Weights


def weights_section(subject: Subject) -> Section:
    section = Section("weights", "What drives the predictions")
    if subject.model is None:
        return section
    if isinstance(subject.explained, str):
        section.notes = [subject.explained]
        return section
    classes = subject.explained["classes"]
    section.text = (
        "The largest weights; those that make the number smaller have the other colour."
        if subject.model.regression
        else "The largest weights for each class; weights against it, where shown, have the other colour."
    )
    section.tables = [_weight_table(each) for each in classes[:MOST_CLASSES] if each["for"] or each["against"]]
    section.notes = [*subject.explained["warnings"], *subject.explained["notes"]]
    if len(classes) > MOST_CLASSES:
        section.notes.append(f"The first {MOST_CLASSES} of {len(classes):,} classes.")
    return section


def _weight_table(each: ClassWeights) -> Table:
    entries = [*each["for"], *reversed(each["against"])]
    most = max(abs(entry["weight"]) for entry in entries)
    named, sure, counted = (
        any(entry.get(key) is not None for entry in entries) for key in ("name", "standard_error", "rows")
    )
    columns = [("feature", "text"), ("weight", "number")]
    columns += [("std. error", "number")] * sure + [("rows", "number")] * counted
    rows = []
    for entry in entries:
        name = f"{entry['name']} ({entry['number']})" if entry["name"] else str(entry["number"])
        row: list[Any] = [name, Bar(f"{entry['weight']:+.4g}", abs(entry["weight"]) / most, entry["weight"] < 0)]
        row += [f"{entry['standard_error']:.3g}"] if sure else []
        rows.append(row + ([f"{entry['rows']:,}"] if counted else []))
    title = "Numbers" if each["class"] is None else f"Class {each['class']}"
    return Table(f"{title}: {each['nonzero']:,} weights, bias {each['bias'] + 0.0:.4g}", columns, rows)


# Data, settings, memory, events


def data_section(subject: Subject) -> Section:
    facts, model = facts_of(subject), subject.model
    data = subject.run.get("identity", {}).get("data", {})
    rows, nnz = facts.get("n_rows", data.get("n_rows")), facts.get("nnz", data.get("nnz"))
    features = data.get("n_features") if model is None else model.n_features
    told = [
        ("rows", rows and f"{rows:,}"),
        ("features", features and f"{features:,}"),
        ("non-zeros", nnz and f"{nnz:,}"),
    ]
    if rows and nnz:
        told.append(("non-zeros per row", f"{nnz / rows:.1f}"))
    if model is not None:
        labels = None if model.regression else [str(label) for label in model.classes_.tolist()]
        told.append(
            ("labels", "numbers" if labels is None else f"{len(labels):,} classes: {shortened(', '.join(labels))}")
        )
        told.append(("features are", model.features.get("kind")))
    told.append(("digest", facts.get("data", data.get("digest"))))
    return Section("data", "Data it was trained on", facts=[(name, str(value)) for name, value in told if value])


def settings_section(subject: Subject) -> Section:
    method, facts, run = told_method(subject), facts_of(subject), subject.run
    name = method.pop("name", None)
    paper = METHODS[name].paper if name in METHODS else None
    told: list[tuple[str, Any]] = [("method", name), ("published in", paper), *method.items()]
    limits = facts.get("limits") or run.get("limits") or {}
    told += [
        ("tolerance", facts.get("tol", run.get("identity", {}).get("tol"))),
        *((f"limit: {n}", v) for n, v in limits.items()),
    ]
    told += [("seed", facts.get("seed", run.get("plan", {}).get("seed"))), ("bigclf", facts.get("version"))]
    told += [*run.get("versions", {}).items(), ("processor", run.get("cpu")), ("started", run.get("started"))]
    plan = facts.get("plan") or run.get("plan") or {}
    groups = len(plan.get("groups", ())) or None
    told += [("groups", groups), ("weights kept as", plan.get("dtype"))]
    shown = {name.replace("_", " "): value for name, value in told if value is not None and value != ""}
    return Section("settings", "Settings", facts=[(name, short(value)) for name, value in shown.items()])


def memory_section(subject: Subject) -> Section:
    facts = facts_of(subject)
    plan = facts.get("plan") or subject.run.get("plan") or {}
    parts = {
        name: size for name, size in (plan.get("memory") or {}).items() if name not in ("planned", "budget") and size
    }
    section = Section("memory", "Memory and bytes")
    memory, last = facts.get("memory") or {}, subject.history[-1] if subject.history else {}
    sizes = [
        ("budget", (plan.get("memory") or {}).get("budget")),
        ("interpreter and libraries", memory.get("base")),
        ("planned in addition", memory["planned"] - memory["base"] if "planned" in memory else None),
        ("peak, in addition", max(0, memory["peak"] - memory["base"]) if "peak" in memory else None),
        ("peak of the largest worker, in addition", memory.get("worker")),
        ("read", facts.get("bytes_read", last.get("bytes_read"))),
        ("moved between workers", last.get("bytes_moved")),
        ("dual variables on disk", plan.get("rows_bytes")),
        ("raw store", plan.get("store_bytes")),
    ]
    section.facts = [(name, format_bytes(size)) for name, size in sizes if size]
    if parts:
        most = max(parts.values())
        rows = [
            [name, Bar(format_bytes(size), size / most)] for name, size in sorted(parts.items(), key=lambda p: -p[1])
        ]
        section.tables = [Table("The plan", [("for", "text"), ("bytes", "number")], rows)]
    return section


def events_section(subject: Subject) -> Section:
    found = [(record.get("epoch"), event) for record in subject.history for event in record.get("events") or ()]
    section = Section("events", "What happened to workers")
    if not found:
        return section
    rows = [
        [f"{epoch:,}", str(event.get("worker", "")), str(event.get("what", ""))]
        for epoch, event in found[-MOST_EVENTS:]
    ]
    more = f"The last {MOST_EVENTS} of {len(found):,}." if len(found) > MOST_EVENTS else ""
    section.tables = [Table("Events", [("epoch", "number"), ("worker", "text"), ("event", "text")], rows, more)]
    return section


def short(value: Evaluation) -> str:
    """A setting in a line."""
    if isinstance(value, (bool, str)):
        return shortened(str(value).lower() if isinstance(value, bool) else value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return shortened(json.dumps(value, ensure_ascii=False, default=str))


def shortened(text: str, most: int = 160) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
