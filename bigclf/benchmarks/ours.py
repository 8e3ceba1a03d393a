"""The process in which bigclf is measured: ``python -m bigclf.benchmarks.ours TASK``, answering as ``child`` does.

It joins its control group, where there is one, before it loads anything.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
import warnings
from typing import Any

from bigclf import files
from bigclf.benchmarks import child
from bigclf.request.places import Workers


class OwnTask(child.Task, total=False):
    """... and what bigclf's process is told besides."""

    algo: str
    loss: str | None
    dtype: str
    members: str | None
    memory: int | str
    shards: str | None
    local_dir: str | None
    evict: bool


def main(text: str) -> child.Answer:
    task: OwnTask = json.loads(text)
    warnings.simplefilter("ignore")  # that a run stopped at a limit is in its answer
    if members := task.get("members"):
        files.append_line(members, "0")
    data = {} if task["shards"] else rows(task)
    options = keywords(task)
    if task["algo"] == "auto":  # which methods it takes shows with the rows alone
        measure(task, data, options)
    else:
        warm_up(task, options)
    if task["evict"]:
        evict(str(task["shards"]))
    return measure(task, data, options)


def rows(task: OwnTask) -> dict[str, object]:
    x, y = child.load(task)
    assert y is not None
    return {"data": x, "y": y.astype("int8")}


def keywords(task: OwnTask) -> dict[str, object]:
    given: dict[str, Any] = {**task}
    told = {name: given[name] for name in ("algo", "dtype", "memory") if given[name] is not None}
    workers = Workers(None, threads=task["threads"], local_dir=task["local_dir"])
    told |= {"bias": None, "progress": False, "workers": workers}
    if task["algo"] != "perceptron":
        told["C"] = task["C"]
    if task["tol"] is None:
        return told | {"epochs": 1}
    return told | {"loss": task["loss"], "tol": task["tol"]}


def warm_up(task: OwnTask, options: dict[str, Any]) -> None:
    """The same fit on a handful of rows, so that kernels are compiled and libraries loaded."""
    import numpy as np

    from bigclf.api.fit import fit
    from bigclf.conversion.convert import write_shards

    m = 64
    toy = (np.arange(m + 1), np.arange(m, dtype=np.int32) % 7, np.full(m, 0.5, np.float32), np.arange(m) % 2)
    options = options | {"workers": dataclasses.replace(options["workers"], local_dir=None)}
    if not task["shards"]:
        import scipy.sparse as sp

        fit(sp.csr_matrix((toy[2], toy[1], toy[0]), (m, 7)), toy[3], **options)
        return
    place = task["out"] + ".toy"
    try:
        fit(write_shards([toy], place, classes=np.array([-1, 1]), overwrite=True), **options)
    finally:
        files.remove_tree(place)


def evict(shards: str) -> None:
    """Let the system forget the shards' bytes: a cold start."""
    for path in files.expand(shards):
        with files.open_binary(path) as file:
            files.drop_cache(file.fileno())


def measure(task: OwnTask, data: dict[str, Any], options: dict[str, Any]) -> child.Answer:
    import numpy as np

    from bigclf.api.fit import fit

    started = time.perf_counter()
    model = fit(**(data or {"data": task["shards"]}), **options)
    seconds = time.perf_counter() - started
    result = model.result_
    assert result is not None
    np.save(task["out"], model.coef_[0])
    before = max(0.0, seconds - result.seconds)  # checks, plan
    trace = [(before + r["seconds"], r["gap"]) for r in result.history if r.get("gap") is not None]
    return {
        "seconds": seconds, "prepare_seconds": 0.0, "peak_bytes": child.peak_bytes(), "converged": result.converged,
        "certificate": result.certificate, "trace": trace, "reads": result.reads, "memory": result.memory,
    }  # fmt: skip


if __name__ == "__main__":
    print("\n" + child.MARK + json.dumps(main(sys.argv[1])), flush=True)
