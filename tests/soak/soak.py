"""Mixed commands in one process for many minutes, or fits on one cluster whose workers come and go: what grows.

    python tests/soak/soak.py 10              so many minutes in one process
    python tests/soak/soak.py 10 --cluster    on a cluster of two workers, of which one is killed every ten seconds
    python tests/soak/soak.py 10 --cluster --calm    ... of which none is

Printed are slopes over the second half: MB of memory a fit, file descriptors, threads and temporary files a fit, and
how many rounds gave other bits than the first. Where other programs leave it too little of the processor it goes on for
up to three times the minutes, until there are fits enough for a slope; else it says that nothing can be told, exit code
3.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import io
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE)]

import numpy as np  # noqa: E402
import psutil  # noqa: E402

CHURN = 10.0  # seconds between two deaths
MOST = 0.05  # MB a fit
POINTS = 9  # of each that are printed, over all rounds
ENOUGH, PATIENCE = 100, 3  # fits for a slope of that size to be seen (22 showed none), and times the minutes to wait
UNDECIDED = 3
KEPT = {  # what Dask keeps for an hour levels off only then: events of clients that are gone, and what its profiler saw
    "distributed.scheduler.events-cleanup-delay": "10s",
    "distributed.worker.profile.enabled": False,
}
SOLVED = "--algo dcd --loss logistic --tol 0.1"
GROUPS = "--algo dcd --loss hinge --tol 0.1 --memory 17MB --groups 2"
STREAMED = f"fit {{rows}} -o {{out}}/dual.bigclf {GROUPS} --run-dir {{out}}/r"
ROUND = [  # lines, each with as many fits as its number says
    (0, "convert {text} {out}/s --workers 1"),
    (0, "inspect {out}/s"),
    (0, "split {out}/s {out}/parts"),
    (1, "fit {out}/parts/train -o {out}/online.bigclf --algo pa1 --epochs 2"),
    (1, STREAMED),
    (1, STREAMED + " --resume"),
    (1, "fit {rows} -o {out}/steps.bigclf --algo newton --tol 0.01"),
    (1, "fit {table} --label y -o {out}/table.bigclf --algo pa1 --epochs 1 --holdout 0.2"),
    (5, f"sweep {{out}}/s -o {{out}}/w {SOLVED} --grid C=0.1,1 --folds 2"),
    (0, "calibrate {out}/dual.bigclf {out}/parts/test -o {out}/c.bigclf"),
    (0, "predict {out}/c.bigclf {out}/s -o {out}/p.csv --proba"),
    (0, "evaluate {out}/c.bigclf {rows} -o {out}/e.json"),
    (0, "export {out}/dual.bigclf {out}/x --to numpy"),
    (0, "report {out}/dual.bigclf -o {out}/r.html"),
    (0, "inspect {out}/r"),
]  # fmt: skip
MODELS = ("online", "dual", "steps", "table", "c", "w/model")


def prepare(place):
    """Rows of several forms in the directory ``place``."""
    from making import random_rows, shards_of

    x, y = random_rows(400, 12, binary=True)
    lines = (f"{label} " + " ".join(f"{j + 1}:1" for j in row.indices) for row, label in zip(x, y, strict=True))
    texts = {"text": "\n".join(lines) + "\n",
             "table": "y,a,b\n" + "".join(f"{'pq'[n % 2]},w{n % 5},{0.5 * n}\n" for n in range(400))}  # fmt: skip
    names = {"text": "rows.svm", "table": "rows.csv"}
    for name, text in texts.items():
        with open(os.path.join(place, names[name]), "w") as file:
            file.write(text)
    shards_of(os.path.join(place, "rows"), *random_rows(3000, 30, binary=True), chunk_nnz=5000)
    return {name: os.path.join(place, file) for name, file in {**names, "rows": "rows"}.items()}


def command(line, **names):
    """A command line in this process; its exit code must be that of an end."""
    from bigclf.cli import main

    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main(line.format(**names).split(), prog_name="bigclf")
    except SystemExit as end:
        assert end.code in (0, 4, None), (line, said.getvalue())


def one_round(place, directory):
    """Every line once, on a new directory; the digests of its models, and how many fits it had."""
    import bigclf

    out = os.path.join(directory, "out")
    os.makedirs(out)
    for _, line in ROUND:
        command(line, out=out, **place)
    x, y = np.eye(20)[np.arange(200) % 20], np.arange(200) % 3
    digests = [bigclf.fit(x, y, algo="dcd_mc", epochs=3, progress=False).digest()]
    digests += [bigclf.load(os.path.join(out, f"{name}.bigclf")).digest() for name in MODELS]
    shutil.rmtree(out)
    return digests, 1 + sum(fits for fits, _ in ROUND)


def measured(process):
    """MB of memory that are this process's own, open files, threads."""
    gc.collect()
    with contextlib.suppress(OSError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return process.memory_full_info().uss / 1e6, process.num_fds(), process.num_threads()


def slope(fits, values):
    """A fit, over the second half."""
    half = len(fits) // 2
    return float(np.polyfit(fits[half:], values[half:], 1)[0]) if len(fits) - half > 1 else float("nan")


class Told:
    """What was measured, of the driver and by name of others."""

    def __init__(self):
        self.fits, self.rows, self.first, self.other_bits = [], {}, None, 0

    def add(self, fits, digests, **found):
        self.fits.append(fits + (self.fits[-1] if self.fits else 0))
        for name, value in found.items():
            self.rows.setdefault(name, []).append(value)
        self.first = self.first or digests
        self.other_bits += digests != self.first

    def goes_on(self, begun, seconds):
        """Whether more is to be measured."""
        took, fits = time.monotonic() - begun, self.fits[-1] if self.fits else 0
        return not fits or took < seconds or (fits < ENOUGH and not self.other_bits and took < PATIENCE * seconds)

    def show(self):
        """Lines of the outcome; the exit code."""
        slopes = {name: slope(self.fits, values) for name, values in self.rows.items()}
        print(f"{len(self.fits)} rounds, {self.fits[-1]} fits, {self.other_bits} rounds of other bits")
        for name, found in slopes.items():
            values = self.rows[name]
            shown = [values[k * (len(values) - 1) // (POINTS - 1)] for k in range(POINTS)]  # a step, or a slope
            print(f"  {name:24s} {found:+.4f} a fit:  {'  '.join(f'{value:.1f}' for value in shown)}")
        memory = max(found for name, found in slopes.items() if name.endswith("MB"))
        # a descriptor, thread or file that a fit leaves is a slope of 1
        rest = max(found for name, found in slopes.items() if not name.endswith("MB"))
        if self.fits[-1] < ENOUGH and not self.other_bits:
            print(f"soak undecided: too little time to tell, {self.fits[-1]} fits of {ENOUGH}", flush=True)
            return UNDECIDED
        good = memory < MOST and rest < 0.02 and not self.other_bits
        print(f"soak {'passed' if good else 'FAILED'}: {self.fits[-1]} fits, {memory:+.4f} MB a fit at most, "
              f"{self.other_bits} rounds of other bits", flush=True)  # fmt: skip
        return 0 if good else 1


def alone(place, directory, seconds):
    told, process, begun = Told(), psutil.Process(), time.monotonic()
    while told.goes_on(begun, seconds):
        digests, fits = one_round(place, directory)
        memory, descriptors, threads = measured(process)
        temporary = len(os.listdir(tempfile.gettempdir()))
        told.add(fits, digests, MB=memory, descriptors=descriptors, threads=threads, temporary=temporary)
    return told


def of_worker(dask_worker=None):
    return os.getpid(), *measured(psutil.Process())


def churn(cluster, stop):
    """Kill the second worker every ten seconds; its nanny starts it anew."""
    while not stop.wait(CHURN):
        with contextlib.suppress(Exception):  # it is just being started
            list(cluster.workers.values())[1].process.process._process.kill()


def on_cluster(place, directory, seconds, calm):
    import dask
    import distributed

    import bigclf

    dask.config.set(KEPT)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    told, process, begun, stop = Told(), psutil.Process(), time.monotonic(), threading.Event()
    options = dict(n_workers=2, threads_per_worker=1, memory_limit=0, dashboard_address=None)
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        if not calm:
            threading.Thread(target=churn, args=(cluster, stop), daemon=True).start()
        kept = next(iter(cluster.workers.values())).worker_address
        while told.goes_on(begun, seconds):
            words = dict(workers=cluster.scheduler_address, progress=False)
            digests = [bigclf.fit(place["rows"], algo="dcd", loss="hinge", tol=0.1, groups=2, **words).digest(),
                       bigclf.fit(place["rows"], algo="pa1", epochs=2, groups=3, **words).digest(),
                       bigclf.fit(place["rows"], algo="newton", tol=0.01, groups=2, **words).digest()]  # fmt: skip
            memory, descriptors, threads = measured(process)
            of = client.run(of_worker, workers=[kept])[kept]
            told.add(3, digests, **{"MB": memory, "descriptors": descriptors, "threads": threads, "worker's MB": of[1],
                     "worker's descriptors": of[2], "worker's threads": of[3]})  # fmt: skip
        stop.set()
    return told


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minutes", type=float)
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--calm", action="store_true")
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        tempfile.tempdir = os.environ["TMPDIR"] = os.path.join(directory, "tmp")
        os.environ["BIGCLF_CACHE_DIR"] = os.path.join(directory, "cache")
        os.environ.setdefault("NUMBA_CACHE_DIR", os.path.join(directory, "kernels"))
        os.mkdir(tempfile.tempdir)
        place = prepare(directory)
        seconds = 60 * asked.minutes
        told = on_cluster(place, directory, seconds, asked.calm) if asked.cluster else alone(place, directory, seconds)
        return told.show()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
