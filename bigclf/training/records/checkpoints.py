"""A run in a checkpoint: everything it knows between two rounds, and a run taken up from there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bigclf.compiled import large_pages
from bigclf.errors import ModelFormatError
from bigclf.files.json_fields import check_fields, check_relations
from bigclf.training.records.run_arrays import check_arrays
from bigclf.training.records.run_directory import Checkpoint
from bigclf.training.records.run_record import RUN_FACTS, STATUS, VALIDATED
from bigclf.training.roles.steps import keeps_rows, rows_elsewhere
from bigclf.training.status import Status
from bigclf.training.visit import Carry, Ref, RowFile, Solved, named_rows
from bigclf.units import plural

if TYPE_CHECKING:
    from bigclf.training.run import Run


def checkpoint_of(run: Run) -> Checkpoint:
    """Everything the run knows, between two rounds."""
    arrays: dict[str, np.ndarray] = {}
    for number, (state, status) in enumerate(zip(run.states, run.status, strict=True)):
        arrays |= {f"{number}.state.{name}": array for name, array in state._asdict().items()}
        if status.weights is not None:
            arrays[f"{number}.best"] = status.weights
        if status.best is not None:
            arrays |= {f"{number}.best.{name}": array for name, array in status.best._asdict().items()}
        if status.dual_weights is not None:
            arrays[f"{number}.dual_weights"] = status.dual_weights
        arrays |= {f"{number}.{name}": array for name, array in run.conductors[number].arrays().items()}
    rows: list[Any] = [{} for _ in run.refs]
    midway = run.segment > 0
    if run.last_round is not None and (midway or run.method.keeps_rows):
        for group, ref in enumerate(run.refs):
            if ref is not None:
                rows[group] = _carried(group, run.engine.carry(group, ref, run.last_round), arrays)
    facts = {
        "reads": run.reads,
        "seconds": run.clock.seconds,
        "bytes_read": run.counts.bytes_read,
        "stopped": run.stopped,
        "version": run.version,
        "mixes": run.mixes,
        "bytes_moved": run.moved_before + run.engine.bytes_moved,
        "curve": run.counts.curve,
        "tol": run.tol,
        "status": [status.facts() for status in run.status],
    }
    return Checkpoint(arrays, rows, facts | run.best.facts())


def go_further(run: Run) -> None:
    """A run that stopped at its limits goes on when it is given further ones, or ends by a larger tolerance."""
    tol = -1.0 if run.tol is None else run.tol
    reached = [s for s in run.status if not s.done and s.gap is not None and s.gap <= tol]
    for status in reached:
        status.done, status.stalled = True, False
    left = [s for s in run.status if not s.done]
    further = [s for s in left if s.over and s.epochs < run.limits.epochs and not (s.settled or s.dropped)]
    for status in further:
        status.over = False
    if reached or further or run.stopped == "seconds":
        run.stopped = "" if run.todo() else run.ending()


def require(run: Run, saved: Checkpoint) -> None:
    """Look whether all is there that ``restore`` takes up.

    Raises
    ------
    FieldError : naming a fact that is missing or wrong.
    ModelFormatError : naming an array that is missing, or of another type or shape.
    """
    facts, n = saved.facts, len(run.problems)
    # the tolerance had grown, and is back; older checkpoints do not tell theirs
    grown = run.tol is not None and (facts.get("tol", math.inf) or 0.0) > run.tol
    validated = run.best.patience is not None or "best_score" in facts
    check_fields(facts, RUN_FACTS | (VALIDATED if validated else {}), "facts")
    check_relations([
        (len(facts["status"]) == n, "facts.status", f"that of {plural(n, 'problem')}"),
        (facts["segment"] < run.plan.segments, "facts.segment", f"less than {run.plan.segments}"),
        (facts.get("best_epoch", 0) <= facts["epoch"], "facts.best_epoch", "an epoch that was"),
        (len(facts.get("rows_steps", ())) in (0, n), "facts.rows_steps", f"those of {plural(n, 'problem')}"),
    ])  # fmt: skip
    for number, (status, state) in enumerate(zip(facts["status"], run.states, strict=True)):
        where = f"facts.status.{number}"
        check_fields(status, STATUS, where)
        if grown and status["done"] and not _is_within(status, run.tol):  # what it would go on from was let go
            raise ModelFormatError(f"field '{where}.done': it ended at a larger tolerance than is asked for now")
        check_relations([(status.get("epochs", 0) <= facts["epoch"], f"{where}.epochs", "at most facts.epoch")])
        kinds = ["state", *(["best"] if facts.get("best_epoch") else [])]
        kinds += [f"{group}.shared" for group in range(len(run.refs)) if _is_midway(number, group, saved.arrays)]
        names = [f"{number}.{kind}.{name}" for kind in kinds for name, array in state._asdict().items() if array.size]
        if run.plan.gathered and status.get("epochs") and not status["done"]:
            names += [f"{number}.gathered.{name}" for name in ("sizes", *Solved._fields)]
        names += [f"{number}.{name}" for name in run.conductors[number].arrays() if name == "velocity"]
        if missing := [name for name in names if name not in saved.arrays]:
            raise ModelFormatError(f"the array {missing[0]!r} is missing")
    group_rows = [int(run.source.chunks.rows[first:last].sum()) for first, last in run.plan.groups]
    for arrays in (saved.arrays, *saved.rows):
        check_arrays(arrays, run.problems, run.states, group_rows)
    for group, rows in enumerate(saved.rows if _needs_rows(run, saved) else ()):
        if not any(f".{group}.rows." in name for name in (*rows, *saved.arrays)):
            raise ModelFormatError(f"field 'facts.rows_files' must be with those of group {group}")


def _is_within(status: Mapping[str, str], tol: float | None) -> bool:
    primal, dual = (float.fromhex(status[name]) for name in ("primal", "dual"))
    return primal <= 0 or (primal - dual) / primal <= (tol or 0.0)  # as ``Status.gap``


def _needs_rows(run: Run, saved: Checkpoint) -> bool:
    """Whether a problem goes on from per-row arrays that nothing else can tell."""
    if not (run.method.keeps_rows and run.method.by_way) or saved.facts["segment"]:
        return run.method.keeps_rows
    begun = [bool(status.get("epochs")) and not status["done"] for status in saved.facts["status"]]
    states = [
        type(state)(*(saved.arrays.get(f"{number}.state.{name}", mine) for name, mine in state._asdict().items()))
        for number, state in enumerate(run.states)
    ]
    return any(b and keeps_rows(p, state) for b, p, state in zip(begun, run.problems, states, strict=True))


def restore(run: Run, saved: Checkpoint) -> None:
    """Take up a checkpoint of the same run."""
    facts = saved.facts
    run.epoch, run.segment, run.reads = facts["epoch"], facts["segment"], facts["reads"]
    run.clock.before, run.counts.bytes_read, run.stopped = facts["seconds"], facts["bytes_read"], facts["stopped"]
    run.version, run.mixes = facts["version"], facts["mixes"]
    run.moved_before = facts.get("bytes_moved", 0)
    run.counts.curve = [tuple(point) for point in facts.get("curve", [])]
    if "best_score" in facts:
        run.best.restore(facts["best_score"], facts["since_best"], facts.get("best_epoch", 0))
    for number, state in enumerate(run.states):
        kind = type(state)
        arrays = (saved.arrays.get(f"{number}.state.{name}", mine) for name, mine in state._asdict().items())
        run.states[number] = kind(*map(large_pages.copied, arrays))
        kept = (saved.arrays.get(f"{number}.{name}") for name in ("best", "dual_weights"))
        run.conductors[number].status = Status.of(facts["status"][number], *kept)
        run.conductors[number].restore({
            name.removeprefix(f"{number}."): array
            for name, array in saved.arrays.items() if name.startswith(_of_conductor(number))
        })  # fmt: skip
        if run.best.epoch:
            best = (saved.arrays.get(f"{number}.best.{name}", mine).copy() for name, mine in state._asdict().items())
            run.status[number].best = kind(*best)
    _restore_groups(run, saved)


def _restore_groups(run: Run, saved: Checkpoint) -> None:
    """What each group carried, in the middle of an epoch or where methods have row state."""
    common = dict(enumerate(run.states))
    for group in range(len(run.refs)):
        held = saved.arrays | saved.rows[group]
        parts = []
        for number in range(len(run.problems)):
            prefix = f"{number}.{group}."
            parts.append({name[len(prefix) :]: a for name, a in held.items() if name.startswith(prefix)})
        if not any(parts):
            parts = [rows_elsewhere(problem, common[number]) for number, problem in enumerate(run.problems)]
        if not any(parts):
            continue
        ref = run.refs[group] = Ref(f"checkpoint-{run.epoch}-{run.segment}")
        shared = [held if any(name.startswith("shared.") for name in held) else {} for held in parts]
        run.engine.restore(group, ref, Carry(parts, shared if run.segment else None), common)


def continue_from(run: Run, state: dict[str, np.ndarray], epochs: int) -> None:
    """Go on from the state (``problem.field``; none: the weights are all there is) of a run that made so many
    epochs. What is counted for a way of mixing alone is [0] in a run that does not mix by it: from such a run it
    begins anew, to such a run it is not taken; so it is with momentum."""
    for number, mine in enumerate(run.states):
        for name, array in mine._asdict().items():
            theirs = state.get(f"{number}.{name}")
            if theirs is not None and theirs.size and array.size:
                array[...] = theirs
        if (velocity := state.get(f"{number}.velocity")) is not None:
            run.conductors[number].restore({"velocity": velocity})
    run.epoch += epochs


def _of_conductor(number: int) -> tuple[str, ...]:
    """How the names of arrays begin that ``Conductor.restore`` takes."""
    return f"{number}.gathered.", f"{number}.velocity"


def _is_midway(number: int, group: int, arrays: dict[str, np.ndarray]) -> bool:
    """Whether a problem was being learned in a group when these were written down."""
    return f"{number}.{group}.figures" in arrays


def _carried(group: int, carry: Carry, arrays: dict[str, np.ndarray]) -> RowFile | dict[str, np.ndarray]:
    """The group's row state as it is written down; what it has else goes into ``arrays``."""
    for number, held in enumerate(carry.shared or ()):
        arrays |= named_rows(number, group, held)
    if isinstance(carry.rows, RowFile):
        return carry.rows
    rows: dict[str, np.ndarray] = {}
    for number, held in enumerate(carry.rows):
        rows |= named_rows(number, group, held)
    return rows
