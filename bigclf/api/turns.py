"""Very many labels in turns: as many at a time as the memory has room for, each turn a run over the same rows.

What a run keeps for a label (weights, the certificate's, dual variables of every row) is needed until the label is
certified, and no longer. So labels are learned some at a time, and what is left of a turn, its model, waits on disk.
Where prune left more weights than the memory has room for, those of the whole model stay on disk, too: they are joined
in pieces into a file without a name, which is mapped.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from bigclf import files
from bigclf.api.outcome import Result
from bigclf.data.shards import release_freed
from bigclf.errors import MemoryBudgetError, RunError
from bigclf.model.mapped_weights import joined_columns
from bigclf.model.model import Model
from bigclf.request.request import RunOptions
from bigclf.training.plan import Plan
from bigclf.training.problems import Problem
from bigclf.units import format_bytes

log = logging.getLogger("bigclf")
MOST_TURNS = 8  # times as many as there have to be, if every row then stays in memory
ANSWER_SHARE = 0.75  # of the memory, that weights of all labels may take where none are dropped
JOINED_SHARE = 0.25  # ... that those left by prune may take; more stay on disk

Turn: TypeAlias = tuple[list[Problem], Plan]
Room: TypeAlias = Callable[[int, np.dtype], np.ndarray]


def turns_of(problems: list[Problem], planned: Callable[[list[Problem]], Turn]) -> list[Turn]:
    """The problems in as few turns as the memory allows; in more, where every row then stays in memory.

    Raises
    ------
    MemoryBudgetError : there is no room even for one label at a time.
    """
    found: list[Turn] | None = None
    most = turns = 1
    while True:
        try:
            parts = [planned(part) for part in _cut(problems, turns)]
            if found is None:
                found, most = parts, MOST_TURNS * turns
            if parts[0][1].resident:
                return parts
        except MemoryBudgetError:
            if turns >= len(problems):
                if found is None:
                    raise
                return found
        if turns >= len(problems) or (found is not None and turns >= most):
            assert found is not None
            return found
        turns = min(2 * turns, len(problems))


def _cut(problems: list[Problem], turns: int) -> list[list[Problem]]:
    edges = np.linspace(0, len(problems), turns + 1).round().astype(int).tolist()
    return [problems[a:b] for a, b in zip(edges[:-1], edges[1:], strict=True)]


def require_room(problems: list[Problem], n_features: int, dtype: str, memory: int, prune: float | None) -> None:
    """MemoryBudgetError where weights of all labels are more than the memory holds, and none are to be dropped."""
    size = len(problems) * n_features * np.dtype(dtype).itemsize
    if prune is None and size > ANSWER_SHARE * memory:
        raise MemoryBudgetError(
            f"weights of {n_features:,} features for {len(problems):,} labels take {format_bytes(size)}, and memory="
            f"{format_bytes(memory)}; dtype='float32' halves them, and prune=0.01 (--prune 0.01) keeps few of them"
        )


def in_turns(
    turns: list[Turn], options: RunOptions, train: Callable[[list[Problem], Plan, RunOptions], Model]
) -> Model:
    """The model of all turns; with a run directory each turn is a run in a directory of its own in there, and what has
    ended is not done again."""
    log.info("%d labels in %d turns, for all at a time do not fit in memory", sum(len(p) for p, _ in turns), len(turns))
    with _place(options) as place:
        results, paths, size = [], [], 0
        for number, (problems, plan) in enumerate(turns):
            own = f"labels-{number:04d}"
            theirs: RunOptions = {**options, "title": f"labels, turn {number + 1} of {len(turns)}"}
            if options["run_dir"] is not None:
                theirs["run_dir"] = files.join(options["run_dir"], own)
            model = train(problems, plan, theirs)
            paths.append(files.join(place, f"{own}.bigclf"))
            model.save(paths[-1])
            size += model.n_bytes
            results.append(model.result_)
            del model
            release_freed()
        return _together(paths, results, _room(size, options))


def _room(size: int, options: RunOptions) -> Room:
    """What makes arrays of ``size`` bytes in all: in memory where they leave room for training, else on disk."""
    if size <= JOINED_SHARE * options["memory"]:
        return np.empty
    directory = files.scratch_directory(options["local_dir"])
    log.info("%s of weights stay on disk, in %s and then in the model's file", format_bytes(size), directory)

    def on_disk(n: int, dtype: np.dtype) -> np.ndarray:
        try:
            return files.filed_array(n, dtype, directory)
        except OSError as error:
            raise RunError(
                f"the weights of all labels need {format_bytes(size)} of disk in {directory!r}, which has "
                f"{format_bytes(files.free_bytes(directory))} free ({error.strerror}); name another with local_dir="
            ) from error

    return on_disk


@contextlib.contextmanager
def _place(options: RunOptions) -> Iterator[str]:
    """A directory on this machine for the models of turns."""
    if options["run_dir"] is not None and not files.is_remote(options["run_dir"]):
        yield str(options["run_dir"])
        return
    with files.scratch() as place:
        yield str(place)


def _together(paths: list[str], results: list[Result], room: Room) -> Model:
    """One model of those at ``paths``, which are removed."""
    import scipy.sparse

    models = [Model.map(path) for path in paths]
    first = models[0]
    sparse = any(model.sparse for model in models)
    parts = [scipy.sparse.csc_matrix(model.weights, copy=False) if sparse else model.weights for model in models]
    coef: Any = joined_columns(parts, room) if sparse else np.concatenate(parts)
    for path in paths:
        files.remove(path)
    result = joined(results)
    facts = {**first.facts, **_sums(result), "turns": len(paths)}
    if "pruned" in first.facts:
        facts["pruned"] = {
            **first.facts["pruned"],
            "kept": int(np.count_nonzero(coef.data if sparse else coef)),
            "of": coef.shape[0] * coef.shape[1],
        }
    model = Model(
        coef, np.concatenate([model.intercept_ for model in models]),
        np.concatenate([model.classes_ for model in models]), first.features, first.method, result.certificate, facts,
        None, first.learned, first.columns, first.feature_ids,
    )  # fmt: skip
    model.result_ = result
    return model


def _sums(found: Result) -> dict[str, object]:
    """Facts of a model that the results tell."""
    names = ("converged", "stopped", "mistakes", "bytes_read", "warnings", "reads", "epochs", "seconds", "memory")
    return {name: getattr(found, name) for name in names} | {"progressive": found.progressive}


def joined(results: list[Result]) -> Result:
    """How all turns went: reads, seconds and rows that were judged together, the worst gap, the most memory."""
    first = results[0]
    late = next((result for result in results if not result.converged), first)
    rows, mistakes = (sum(result.progressive[name] for result in results) for name in ("rows", "mistakes"))
    proofs = [result.certificate for result in results]
    certificate: dict[str, Any] | None = None
    if all(proof is not None for proof in proofs):
        each = [one for proof in proofs if proof for one in proof.get("problems", [proof])]
        certificate = {
            "primal": sum(one["primal"] for one in each), "dual": sum(one["dual"] for one in each),
            "gap": max(one["gap"] for one in each), "read": max(one["read"] for one in each), "problems": each,
        }  # fmt: skip
    return Result(
        history=[{**record, "turn": k + 1} for k, result in enumerate(results) for record in result.history],
        certificate=certificate,
        progressive={"rows": rows, "mistakes": mistakes, "error": mistakes / max(1, rows)},
        plan=first.plan,
        converged=all(result.converged for result in results),
        reads=sum(result.reads for result in results),
        epochs=max(result.epochs for result in results),
        seconds=sum(result.seconds for result in results),
        memory={name: max(result.memory.get(name, 0) for result in results) for name in first.memory},
        stopped=late.stopped,
        mistakes=sum(result.mistakes for result in results),
        bytes_read=sum(result.bytes_read for result in results),
        warnings=list(dict.fromkeys(text for result in results for text in result.warnings)),
        repeatable=all(result.repeatable for result in results),
        chosen=first.chosen,
    )
