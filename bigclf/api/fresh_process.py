"""What a process takes before the first row: memory of interpreter, libraries and compiled kernels, and the time to
come to that. ``plan`` starts it with what is to be learned as JSON on its standard input.
"""

from __future__ import annotations

import importlib
import json
import sys
import time

STARTED = time.perf_counter()


def main() -> None:
    asked = json.load(sys.stdin)
    # what opening the data, their raw store, a look at the machine and showing the progress load
    for name in ("pyarrow.parquet", "pyarrow.compute", "xxhash", "psutil", "rich.progress"):
        importlib.import_module(name)
    from bigclf.api import fit  # noqa: F401  as a run has it
    from bigclf.machine import anonymous_bytes
    from bigclf.methods import resolve
    from bigclf.training.sources import warm

    if asked["worker"]:
        import bigclf.cluster.engine
        import bigclf.cluster.worker_tasks  # noqa: F401
    setting = resolve(*asked["named"])
    if asked["classes"] and setting.method.all_classes:
        setting = setting.of_classes(asked["classes"])
    before = time.perf_counter()
    warm(setting, asked["width"], asked["dtype"])
    now = time.perf_counter()
    told = {"bytes": anonymous_bytes(), "seconds": now - STARTED, "kernels": now - before}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
