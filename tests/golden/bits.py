"""Hashes of the coefficients of every method, with every loss, on small made-up rows: whether a change keeps the bits.

    python tests/golden/bits.py --check [FILE] [--only REGEX] [--jobs N]
    python tests/golden/bits.py --write [FILE] [--only REGEX] [--jobs N]

``--check`` trains every entry again and shows those that differ from FILE (bits.json beside this script): exit code 1.
An entry's name is method/loss/penalty/way[/what is set]; what stands there is a hash and the number of epochs.

The ways: arrays (the caller's, in memory), resident (shards that stay in memory), streamed (shards that do not),
groups (three of them, in memory), streamed-groups, float32 (weights of half the width), classes (three classes, one
against the rest), weighted (classes balanced), bias (another one). Only what the package shows is used, so that older
and newer code run it alike: ``PYTHONPATH=OLD python /elsewhere/bits.py --code OLD --write old.json``.

Kernels have these bits on every processor, and as plain Python too (``NUMBA_DISABLE_JIT=1``), but where they ask the C
library for an exponential, a logarithm or a power: that rounds the last bit differently on processors without fused
multiplication (seen with ``GLIBC_TUNABLES``). Such entries are in LIBM, and those that ask numpy for whole arrays of
them in NUMPY; they are compared where the functions give the numbers that they gave when FILE was written: ``libm``
and ``numpy`` there are hashes of some.
Plain Python gives other bits where averaged_pa2 mixes groups by pull, and for memma_p/float32: FILE has the compiled.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import hashlib
import itertools
import json
import math
import re
import sys
import tempfile
import unittest.mock
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import bigclf
import bigclf.errors
from bigclf.training import plan

HERE = Path(__file__).resolve().parent
N, D, CHUNK = 240, 300, 800  # rows, features, entries a chunk: about nine chunks
# Budgets in which the rows do not stay in memory, but come in several blocks: the first that is not refused is taken.
SMALL = ("12.2MB", "14.2MB", "14.25MB", "18.5MB", "26MB")
REGRESSION = ("epsilon_insensitive", "squared_epsilon_insensitive", "squared")


class Entry(NamedTuple):
    """What is trained: name, rows ("two", "three" classes or "numbers"), whether as shards, and ``fit``'s options."""

    name: str
    rows: str
    shards: bool
    options: dict[str, Any]


# The rows


def made_rows(kind: str) -> tuple[sp.csr_matrix, np.ndarray]:
    """CSR float32 [N, D], of eighths so that every sum of a few is exact, and labels [N]; a legacy generator, whose
    numbers never change."""
    rng = np.random.RandomState(7)
    popularity = 1 / (np.arange(D) + 10.0)
    lengths = rng.randint(8, 50, N)
    indices = [np.sort(rng.choice(D, n, replace=False, p=popularity / popularity.sum())) for n in lengths]
    values = rng.randint(1, 9, lengths.sum()).astype(np.float32) / 32
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    x = sp.csr_matrix((values, np.concatenate(indices), indptr), shape=(N, D))
    rules = rng.randint(-8, 9, (D, 3)) / 4.0
    scores = np.stack([_product(x, rules[:, k]) for k in range(3)], axis=1)
    noise = rng.randint(-8, 9, N) / 8.0
    if kind == "three":
        return x, scores.argmax(axis=1)
    if kind == "numbers":
        return x, scores[:, 0] + noise
    return x, np.where(scores[:, 0] + noise > np.median(scores[:, 0]), 1, -1)


def _product(x: sp.csr_matrix, w: np.ndarray) -> np.ndarray:
    """Exact: multiples of 1/128."""
    return np.array([float((x.data[a:b] * w[x.indices[a:b]]).sum()) for a, b in itertools.pairwise(x.indptr)])


class Rows:
    """The rows of each kind, as arrays and as shards in a directory."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.arrays = {kind: made_rows(kind) for kind in ("two", "three", "numbers")}
        for kind, (x, y) in self.arrays.items():
            (place / f"{kind}.svm").write_text("".join(lines(x, y)))
            shape: dict[str, Any] = dict(n_features=D, chunk_nnz=CHUNK, shuffle=False, workers=1)
            bigclf.convert(place / f"{kind}.svm", place / kind, **shape)

    def given(self, entry: Entry) -> tuple[Any, ...]:
        return (str(self.place / entry.rows),) if entry.shards else self.arrays[entry.rows]


def lines(x: sp.csr_matrix, y: np.ndarray) -> Iterator[str]:
    """Rows as svmlight text."""
    for i in range(x.shape[0]):
        row = slice(x.indptr[i], x.indptr[i + 1])
        cells = zip(x.indices[row].tolist(), x.data[row].tolist(), strict=True)
        yield f"{y[i].item()!r} " + " ".join(f"{j + 1}:{v!r}" for j, v in cells) + "\n"


# What is trained

# What is set beside the method's defaults: the way it is tried in beside "resident", and the parameters.
MORE: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "dcd": [
        ("streamed", dict(working_set=0.1)), ("streamed", dict(working_set=0)), ("streamed", dict(schedule="fixed")),
        ("streamed", dict(schedule="selective")), ("streamed", dict(schedule="cached")),
        ("streamed", dict(segments=3)), ("resident", dict(inner_rounds=3)), ("resident", dict(epochs=3, tol=1e-9)),
        ("groups", dict(epochs=3, tol=1e-9)), ("streamed", dict(epochs=3, tol=1e-9)),
    ],
    "dcd_mc": [("streamed", dict(working_set=0.1)), ("resident", dict(epochs=3, tol=1e-9))],
    "newton": [("resident", dict(sample=0.5)), ("resident", dict(start=0)), ("resident", dict(C=100.0))],
    "tron": [("resident", dict(C=100.0)), ("resident", dict(C=1e4))],
    "lbfgs": [("resident", dict(C=100.0))],
    "cdn": [("resident", dict(C=100.0))],
    "newglmnet": [("resident", dict(C=100.0))],
    "averaged_perceptron": [("groups", dict(segments=2))],
    "pa1": [("resident", dict(C=0.01)), ("streamed", dict(segments=3)), ("resident", dict(seed=5))],
    "arow": [("resident", dict(r=0.1)), ("streamed", dict(segments=3))],
    "pnorm_perceptron": [("resident", dict(p=4))],
    "perceptron_mc": [("resident", dict(against="uniform"))],
    "pa1_mc": [("resident", dict(constraints="all"))],
    "pa2_mc": [("resident", dict(constraints="all"))],
    "cw_mc": [("resident", dict(constraints="all")), ("resident", dict(constraints="parallel"))],
    "cw_var_mc": [("resident", dict(constraints="all", k=1))],
    "sgd": [("resident", dict(lam=1e-2, eta0=0.1))],
    "asgd": [("resident", dict(start=200))],
    "pegasos": [("resident", dict(batch=16))],
    "ftrl": [("resident", dict(l1=0.5, l2=0.5))],
    "winnow2": [("resident", dict(alpha=1.2))],
    "alma": [("resident", dict(p=4))],
    "pumma": [("resident", dict(p=4))],
}  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {  # the options of a way
    "streamed": dict(memory=SMALL),
    "groups": dict(groups=3),
    "streamed-groups": dict(groups=3, memory=SMALL),
    "float32": dict(dtype="float32"),
    "classes": dict(multiclass="one-vs-rest"),
}
FIRST: dict[str, dict[str, Any]] = {  # what a method is always given, since its defaults are for other rows
    "pegasos": dict(lam=1e-3),
    "sgd": dict(lam=1e-3),
    "asgd": dict(lam=1e-3),
}


def entries() -> Iterator[Entry]:
    """Every method the package has."""
    for method in bigclf.algorithms():
        for loss in method["losses"] or [None]:
            for penalty in method["penalties"] or [None]:
                yield from _entries(method, loss, penalty)


def _entries(method: dict[str, Any], loss: str | None, penalty: str | None) -> Iterator[Entry]:
    algo, native = method["name"], method["multiclass"] == ["native"]
    rows = "numbers" if loss in REGRESSION else "three" if native else "two"
    base = {name: value for name, value in (("loss", loss), ("penalty", penalty)) if value is not None}
    base |= dict(algo=algo, memory="1GB", **FIRST.get(algo, {}))
    base |= dict(tol=1e-4, epochs=300) if method["certificate"] else dict(epochs=3)
    head = "/".join(["" if part is None else part for part in (algo, loss, penalty)])

    def entry(way: str, rows: str = rows, **options: Any) -> Entry:
        tail = "".join(f"/{name}={value}" for name, value in options.items())
        return Entry(f"{head}/{way}{tail}", rows, way != "arrays", base | WAYS.get(way, {}) | options)

    mixings = list(method["mixings"])
    yield from map(entry, ["resident", "streamed", "float32", *(["groups"] if mixings else [])])
    if algo.startswith("dcd"):
        yield entry("streamed-groups")
    if loss != (method["losses"] or [None])[0] or penalty != (method["penalties"] or [None])[0]:
        return
    yield entry("arrays")
    for mixing in mixings[1:]:
        yield entry("groups", mixing=mixing)
    if rows == "two":
        yield entry("classes", rows="three")
    if rows != "numbers" and method["row_weights"] != "0 or 1 only":
        yield entry("weighted", class_weight="balanced")
    for bias in method["bias"][1:]:
        yield entry("bias", bias=bias)
    for way, options in MORE.get(algo, []):
        yield entry(way, **options)


# Hashes

LIBM = re.compile(
    "/logistic/|^(pnorm_perceptron|winnow2?|alma|pumma|memma|memma_p|memma_blocks|newton_mc|newton_dense)/"
)
NUMPY = re.compile("^(pnorm_perceptron|winnow2?|memma|memma_p)/")


def libm() -> str:
    """Hash of exponentials, logarithms and powers."""
    numbers = [k / 257 for k in range(1, 3000)]
    found = [f(x) for x in numbers for f in (math.exp, math.log, math.log1p, lambda x: math.exp(-x), lambda x: x**1.7)]
    return hashlib.sha256(np.array(found).tobytes()).hexdigest()[:24]


def of_arrays() -> str:
    """Hash of numpy's exponentials and powers, which are its own where the processor has AVX-512."""
    numbers = np.arange(1, 3000) / 257
    found = [np.exp(numbers), np.exp(-numbers), np.expm1(-numbers), np.log(numbers), numbers**1.7, numbers**-0.3]
    return hashlib.sha256(np.array(found).tobytes()).hexdigest()[:24]


def machine() -> dict[str, str]:
    """What this machine's functions give: entries are compared where it is what FILE says."""
    return {"libm": libm(), "numpy": of_arrays()}


def comparable(was: dict[str, str]) -> dict[str, str]:
    """The entries that this machine can be held to."""
    here = machine()
    others = [names for key, names in (("libm", LIBM), ("numpy", NUMPY)) if was[key] != here[key]]
    return {
        name: said for name, said in was.items() if name not in here and not any(names.search(name) for names in others)
    }


def fit(*given: Any, segments: int | None = None, **options: Any) -> Any:
    """``bigclf.fit`` in epochs of so many segments; None: as many as the size of the data asks for."""
    by_size = plan._segments
    plan._segments = by_size if segments is None else lambda *_: segments
    try:  # with groups of every loss, as in runs that older versions began; those have no such name
        with unittest.mock.patch("bigclf.request.prepare.require_joining", create=True):
            return bigclf.fit(*given, **options)
    finally:
        plan._segments = by_size


def trained(entry: Entry, rows: Rows) -> Any:
    """The model; of several budgets in the first that is enough."""
    memory = entry.options["memory"]
    for budget in (memory,) if isinstance(memory, str) else memory:
        with warnings.catch_warnings(), contextlib.suppress(bigclf.errors.MemoryBudgetError):
            warnings.simplefilter("ignore")
            return fit(*rows.given(entry), progress=False, **entry.options | {"memory": budget})
    raise MemoryError(f"more than {budget} is needed")


def hash_of(model: Any) -> str:
    """Of the bits of coefficients and intercept."""
    digest = hashlib.sha256()
    coefficients = model.coef_.toarray() if sp.issparse(model.coef_) else np.asarray(model.coef_)
    for array in (coefficients, np.asarray(model.intercept_)):
        digest.update(repr((array.shape, str(array.dtype))).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:24]


def told(entry: Entry, rows: Rows) -> str:
    """Hash and epochs, or the error."""
    try:
        model = trained(entry, rows)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    streamed = entry.name.split("/")[3].startswith("streamed")
    if streamed and model.result_.plan["resident"]:
        return "every row stays in memory: that is not streamed"
    return f"{hash_of(model)} {model.result_.epochs}"


def _share(names: list[str]) -> dict[str, str]:
    """Some of the entries, in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        rows = Rows(Path(place))
        found = {}
        for entry in entries():
            if entry.name in names:
                found[entry.name] = told(entry, rows)
                print(entry.name, found[entry.name], file=sys.stderr, flush=True)
        return found


def measured(only: str = "", jobs: int = 1) -> dict[str, str]:
    """name -> what is told of each entry whose name ``only`` is found in; entries of a method in one process."""
    names = [entry.name for entry in entries() if re.search(only, entry.name)]
    if jobs == 1:
        return _share(names)
    by_method: dict[str, list[str]] = {}
    for name in names:
        by_method.setdefault(name.split("/")[0], []).append(name)
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        shares = list(pool.map(_share, by_method.values(), chunksize=1))
    merged = {name: said for share in shares for name, said in share.items()}
    return {name: merged[name] for name in names}


def table_of_differences(was: dict[str, str], now: dict[str, str]) -> list[str]:
    """A line for each entry that differs, is new, or is no more."""
    width = max(map(len, [*was, *now]), default=0)
    return [
        f"{name:{width}}  {was.get(name, '(none)')}  ->  {now.get(name, '(none)')}"
        for name in [*was, *(name for name in now if name not in was)]
        if was.get(name) != now.get(name)
    ]


def require_code(folder: str | None) -> None:
    """Say where the package lies; leave where that is not below ``folder``."""
    print("code:", bigclf.__file__, file=sys.stderr)
    if folder and not Path(bigclf.__file__).resolve().is_relative_to(Path(folder).resolve()):
        sys.exit(f"{bigclf.__file__} is not below {folder}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    usual = str(HERE / "bits.json")
    parser.add_argument("--check", nargs="?", const=usual, metavar="FILE")
    parser.add_argument("--write", nargs="?", const=usual, metavar="FILE", help="with --only the other entries stay")
    parser.add_argument("--code", metavar="DIR", help="where the package is to lie: another one is refused")
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    require_code(given.code)
    kept = json.loads(Path(given.check).read_text()) if given.check else {}
    stays = given.write and given.only and Path(given.write).exists()
    before = json.loads(Path(given.write).read_text()) if stays else {}
    if before and any(before[name] != said for name, said in machine().items()):
        sys.exit(f"{given.write} is from a machine whose exponentials round differently: write all entries anew")
    now = measured(given.only, given.jobs)
    if given.write:
        Path(given.write).write_text(json.dumps(before | machine() | now, indent=0) + "\n")
    if not given.check:
        return 0
    was = {name: said for name, said in comparable(kept).items() if re.search(given.only, name)}
    now = {name: said for name, said in now.items() if name in was or name not in kept}
    differing = table_of_differences(was, now)
    print("\n".join([*differing, f"{len(differing)} of {len(was)} entries differ"]))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
