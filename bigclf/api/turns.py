"""Very many labels in turns: as many at a time as the memory has room for, each turn a run over the same rows.

What a run keeps for a label (weights, the certificate's, dual variables of every row) is needed until the label is
certified, and no longer. So labels are learned some at a time, and what is left of a turn, its model, waits on disk.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from bigclf import files
from bigclf.api.outcome import Result
from bigclf.errors import MemoryBudgetError
from bigclf.model.model import Model, load
from bigclf.request.request import RunOptions
from bigclf.training.plan import Plan
from bigclf.training.problems import Problem
from bigclf.units import format_bytes

log = logging.getLogger("bigclf")
MOST_TURNS = 8  # times as many as there have to be, if every row then stays in memory
ANSWER_SHARE = 0.75  # of the memory, that weights of all labels may take

Turn: TypeAlias = tuple[list[Problem], Plan]


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
                theirs["run_dir"] = files.join(place, own)
            model = train(problems, plan, theirs)
            paths.append(files.join(place, f"{own}.bigclf"))
            model.save(paths[-1])
            size += model.n_bytes
            _require_room_for(size, sum(len(done) for done, _ in turns[: number + 1]), options["memory"])
            results.append(model.result_)
            del model
        return _together(paths, results)


def _require_room_for(size: int, labels: int, memory: int) -> None:
    """MemoryBudgetError where the weights of the ``labels`` learned so far are more than the memory holds."""
    if size > ANSWER_SHARE * memory:
        raise MemoryBudgetError(
            f"the weights that prune left of {labels:,} labels take {format_bytes(size)} already, and memory="
            f"{format_bytes(memory)}; give more memory, or a larger prune"
        )


@contextlib.contextmanager
def _place(options: RunOptions) -> Iterator[str]:
    """A directory for the models of turns."""
    if options["run_dir"] is not None:
        yield str(options["run_dir"])
        return
    with files.scratch() as place:
        yield str(place)


def _together(paths: list[str], results: list[Result]) -> Model:
    """One model of those at ``paths``, which are removed."""
    import scipy.sparse

    first, parts = load(paths[0]), []
    for path in paths:
        model = load(path)
        parts.append((model.coef_.tocsr() if model.sparse else model.coef_, model.intercept_, model.classes_))
        files.remove(path)
    sparse = any(scipy.sparse.issparse(weights) for weights, _, _ in parts)
    rows = [weights for weights, _, _ in parts]
    coef: Any = scipy.sparse.vstack(rows, "csr").tocsc() if sparse else np.concatenate(rows)
    result = joined(results)
    facts = {**first.facts, **_sums(result), "turns": len(paths)}
    if "pruned" in first.facts:
        facts["pruned"] = {
            **first.facts["pruned"],
            "kept": int(coef.count_nonzero() if sparse else np.count_nonzero(coef)),
        }
    model = Model(
        coef, np.concatenate([bias for _, bias, _ in parts]), np.concatenate([labels for _, _, labels in parts]),
        first.features, first.method, result.certificate, facts, None, first.learned, first.columns,
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
        memory={name: max(result.memory[name] for result in results) for name in first.memory},
        stopped=late.stopped,
        mistakes=sum(result.mistakes for result in results),
        bytes_read=sum(result.bytes_read for result in results),
        warnings=list(dict.fromkeys(text for result in results for text in result.warnings)),
        repeatable=all(result.repeatable for result in results),
        chosen=first.chosen,
    )
