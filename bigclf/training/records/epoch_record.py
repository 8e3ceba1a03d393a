"""The record of an epoch, as callbacks and ``history.jsonl`` have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from bigclf.progress import Record
from bigclf.training.problems import progress_of
from bigclf.training.visit import Figures

if TYPE_CHECKING:
    from bigclf.training.run import Run


def epoch_record(run: Run) -> Record:
    """A line of ``history.jsonl``: the epoch that has ended."""
    figures = list(run.figures.values())
    tallies = [f.tally for f in figures]
    record: dict[str, Any] = {
        "epoch": run.epoch,
        "seconds": round(run.clock.seconds, 4),
        "reads": run.reads,
        "rows": sum(tally.rows for tally in tallies),
        "nnz": run.source.nnz,
        "bytes_read": run.counts.bytes_read,
        "waited": round(run.counts.waited, 4),
        "updates": sum(tally.updates for tally in tallies),
        "mistakes": sum(tally.mistakes for tally in tallies),
        "loss": sum(tally.loss for tally in tallies),
    }
    record |= progress_of(run.problems[0], record["rows"], record["mistakes"], record["loss"])
    record |= run.step_facts
    if run.tol is not None:
        record |= _certified_record(run)
    if len(run.problems) == 1:
        record |= run.method.form.figures(run.states[0], run.problems[0].setting.params())
    if len(run.refs) > 1:
        record |= _mixing_record(run, figures)
    elif run.engine.deals:
        record |= {"problems_dealt": len(run.problems), **_elsewhere(run)}
    events = run.engine.take_events()
    if events:
        record["events"] = events
    if run.counts.rebuilt:
        record["records_rebuilt"] = run.counts.rebuilt
    return cast("Record", record)


def _certified_record(run: Run) -> dict[str, float]:
    """What only a certified method has to tell."""
    told = [status.told for status in run.status]
    record: dict[str, float] = {}
    certified = [gap for _, gap in told if gap is not None]
    seen = {"rounds": run.counts.rounds, "steps": run.counts.steps, "set_rows": run.counts.set_rows}
    for conductor in run.conductors:
        for name, figure in conductor.record(seen).items():
            record[name] = max(figure, record.get(name, figure))
    if len(certified) == len(told):
        record["gap"] = max(certified)
        record["objective"] = sum(primal for primal, _ in told)
        record["dual"] = sum(status.dual for status in run.status)
    if len(run.problems) > 1:
        record["problems_done"] = sum(status.done for status in run.status)
    return record


def _elsewhere(run: Run) -> dict[str, int]:
    """Who made the visits, and what it took to tell them."""
    moved = run.moved_before + run.engine.bytes_moved
    return {"groups": len(run.refs), "workers": run.engine.workers, "mixes": run.mixes, "bytes_moved": moved}


def _mixing_record(run: Run, figures: list[Figures]) -> dict[str, object]:
    """What only a run of several groups has to tell."""
    shares = sum(f.share for f in figures)
    record: dict[str, Any] = {
        **_elsewhere(run),
        "mixed_mistakes": sum(f.mixed_mistakes for f in figures) / shares if shares else 0.0,
    }
    for conductor in run.conductors:
        for name, figure in conductor.mixing_record().items():
            record.setdefault(name, []).append(figure)
    return record
