"""Small data, blocks, states and shards for tests, and the table of cases that the laws are checked on."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

import bigclf
from bigclf.api.outcome import answer_rows
from bigclf.conversion.convert import write_shards
from bigclf.data.arrays import Arrays
from bigclf.maths.block import Block, alike, explicit_values
from bigclf.maths.losses import REGRESSION
from bigclf.methods import METHODS, resolve
from bigclf.methods.method import Steps
from bigclf.training import plan
from bigclf.training.run import Run

PACKAGE = Path(bigclf.__file__).parent
HERE = Path(__file__).parent
ROOMS = [str(HERE), *sorted({str(path.parent) for path in HERE.glob("*/test_*.py")})]  # tests share helpers


class Case(NamedTuple):
    """A method with a loss: what the laws are checked on."""

    algo: str
    loss: str | None

    @property
    def method(self):
        return METHODS[self.algo]

    @property
    def regression(self):
        """Whether labels are numbers to predict."""
        return self.loss in REGRESSION

    def data(self, *args, **options):
        """``random_rows`` with labels of its kind."""
        return random_rows(*args, real=self.regression, **options)

    @property
    def kernel(self):
        return self.setting().kernel()

    @property
    def certify(self):
        return self.method.how.certify(self.method.loss_of(self.loss))

    def setting(self, bias=None, **given):
        return resolve(self.algo, self.loss, None, bias, given)

    def params(self, bias=None, **given):
        return self.setting(bias, **given).params()

    def weights(self, shared, bias=None, **given):
        """The model's weights [feature + 1] in a state; of two classes learned at once their difference."""
        return answer_rows(self.setting(bias, **given).weights(shared))[0]

    def view(self, block):
        """The block as the kernel sees it: labels -1 and +1, or codes where it learns all classes at once."""
        return block._replace(labels=(block.labels > 0).astype(float)) if self.method.all_classes else block

    def state(self, n_features, n_rows, dtype="float64"):
        setting = self.setting()
        return setting.shared(n_features, dtype), setting.rows(n_rows)


SAME_KERNELS = ("tron", "lbfgs", "cdn")  # as newton and newglmnet have


def shown(method):
    """The losses that stand for all of a method's: of a gradient method one of classes and one of numbers, since its
    losses differ in their slope alone."""
    if method.name in SAME_KERNELS:
        return method.losses[:1]
    if method.certificate or len(method.losses) < 2:
        return method.losses or (None,)
    return (method.losses[0], *[loss for loss in method.losses if loss in REGRESSION][:1])


# of dcd's losses: with float32 weights the kernels of others are compiled in long tests
FLOAT32 = ("hinge", "epsilon_insensitive")


def long_but_float32(loss, dtype, *given):
    """A parameter that is long where the plain tests do not compile the loss's kernels for that type of weights."""
    marks = pytest.mark.long if dtype == "float32" and loss not in FLOAT32 else ()
    return pytest.param(loss, *given, marks=marks)


def learns(method):
    """Whether the kernel takes the method's steps, or adds up what they are made of; not where it only collects."""
    return not method.by_steps or method.by_sums


def kind_of(method):
    """What the loop, the engine and the run directory see of a method: of two that are alike in it nothing but the
    kernel differs, which has tests of its own."""
    rules = next(iter(method.form.mixings), None)
    return type(method.how), rules, method.by_sums, method.collects, method.all_classes, method.form.finish is None


def of_each_kind(names, given=()):
    """The first name of each kind of methods, after those that are ``given``."""
    return {*given, *{kind_of(METHODS[name]): name for name in reversed(names)}.values()}


TWINS = ("tron", "cdn")  # of newton and newglmnet, in all that the loop sees
EVERY_CASE = [Case(m.name, loss) for m in METHODS.values() if m.name not in TWINS for loss in m.losses or (None,)]
# stand for those that learn all at once
OF_CLASSES = ("averaged_perceptron_mc", "pa1_mc", "mira_mc", "cw_mc", "sccw", "dcd_mc")
CASES = [
    Case(m.name, loss)
    for m in METHODS.values()
    if (not m.all_classes or m.name in OF_CLASSES) and learns(m)
    for loss in shown(m)
]
NAMES = [case.algo + (f"-{case.loss}" if case.loss else "") for case in CASES]
# Of every method one case, for each is a compilation of the kernel: where nothing but the type of the weights (or of
# the indices: see ``learn``) differs. A loss whose slope has no bound, since float32 ends at 3e38; else losses in turn
STEEP = ("squared", "squared_hinge", "squared_epsilon_insensitive")
NARROW = [next((case for case in of if case.loss in STEEP), of[i % len(of)]) for i, name in enumerate(METHODS)
          if (of := [case for case in CASES if case.algo == name])]  # fmt: skip
FIRST = NARROW[::16]  # of these the plain tests compile, of the next the long ones, of the others the slow ones
NEXT = NARROW[4::8]


def random_rows(n_rows=120, n_features=30, density=0.2, seed=0, noise=0.1, binary=False, constant=False, real=False):
    """CSR float32 [rows, features] and labels -1/+1 that a linear rule explains but for some noise.

    binary : every value is 1; constant : each row has one value; real : labels are numbers.
    """
    rng = np.random.default_rng(seed)
    x = sp.random(n_rows, n_features, density, "csr", np.float32, random_state=rng, data_rvs=rng.standard_normal)
    x.sort_indices()
    if binary:
        x.data[:] = 1
    if constant:
        x.data[:] = np.repeat(rng.standard_normal(n_rows).astype(np.float32), np.diff(x.indptr))
    scores = x @ rng.standard_normal(n_features) + noise * rng.standard_normal(n_rows)
    return x, scores if real else np.where(scores > np.median(scores), 1, -1)


def separable_rows(n_rows=60, n_features=8, seed=0, least=0.1):
    """Dense float32 rows, labels, a unit vector u and the margin gamma > 0 by which it separates them."""
    rng = np.random.default_rng(seed)
    u = rng.standard_normal(n_features)
    u /= np.linalg.norm(u)
    x = rng.standard_normal((4 * n_rows, n_features)).astype(np.float32)
    x = x[np.abs(x.astype(float) @ u) > least][:n_rows]
    y = np.where(x.astype(float) @ u > 0, 1, -1)
    y[0], x[0] = -y[1], -x[1]  # both classes
    return x, y, u, float((y * (x.astype(float) @ u)).min())


def block_of(x, y, weights=None):
    """The rows as a kernel sees them: labels -1/+1, arrays of the types that kernels are compiled for."""
    block = Arrays(x, y, weights).whole()
    return alike(block._replace(labels=np.asarray(y, np.float64)))


def learn(case, block, n_features, order=None, state=None, dtype="float64", bias=None, **given):
    """One pass of the kernel: (shared, rows, counts, scores). Of some methods weights of half the width learn from
    indices of twice the width: both are tried, and a kernel is compiled for two signatures instead of three. Of the
    others the long tests compile what the hashes of float32 (``golden``) are of."""
    if dtype == "float32" and case in FIRST:
        block = block._replace(indices=block.indices.astype(np.uint64))
    shared, rows = state or case.state(n_features, block.n_rows, dtype)
    order = np.arange(block.n_rows) if order is None else order
    scores, how = np.zeros(block.n_rows), case.method.how
    own = np.zeros(how.room(n_features)) if isinstance(how, Steps) else scores[:0]  # a kernel's own room
    counts = case.kernel(case.view(block), order, shared, rows, case.params(bias, **given), own if own.size else scores)
    return shared, rows, counts, scores


def all_arrays(shared, rows=()):
    return {**shared._asdict(), **(rows._asdict() if rows else {})}


def shards_of(out, x, y, weights=None, real=False, **options):
    """The rows as a dataset of shards in the order they have; small chunks. real : labels are numbers, not classes."""
    classes, codes = (None, y) if real else np.unique(y, return_inverse=True)
    options = {"chunk_nnz": 500, "n_features": x.shape[1], **options}
    return write_shards([(x.indptr, x.indices, x.data, codes, weights)], out, classes=classes, **options)


def dense(block: Block, n_features):
    """The block's rows, float64 [rows, features]."""
    x = np.zeros((block.n_rows, n_features))
    rows = np.repeat(np.arange(block.n_rows), np.diff(block.indptr))
    x[rows, block.indices[block.indptr[0] : block.indptr[-1]].astype(int)] = explicit_values(block)
    return x


def environment(**more):
    """The environment of a subprocess that imports this bigclf and these tests."""
    path = os.pathsep.join([str(PACKAGE.parent), *ROOMS, os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, **more}


def run_python(code, *arguments, check=True, timeout=300, **env):
    """Run Python code in a subprocess; its standard output. A failure shows its standard error."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)],
        env=environment(**env), capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def mix(rule, start, copies, shares):
    """The copies mixed as a run mixes them."""
    from bigclf.maths.mixing import Mixture

    mixture = Mixture(rule, start)
    for copy, share in zip(copies, shares, strict=True):
        mixture.add(copy, share)
    return mixture.result()


def of_older_version(run, name):
    """Make the directory of a run one of a version that did not say ``name`` in its plan, and did without."""
    told = json.loads((run / "run.json").read_text())
    assert name not in told["identity"]["plan"] and not told["plan"].pop(name)
    (run / "run.json").write_text(json.dumps(told))


@contextlib.contextmanager
def in_segments(number):
    """Epochs of runs planned inside have so many segments, however small the data are; None: by their size."""
    with pytest.MonkeyPatch.context() as patch:
        if number is not None:
            patch.setattr(plan, "_segments", lambda *_: number)
        yield


def fit(*given, segments=None, checkpoint_every=None, **options):
    """``bigclf.fit`` in epochs of so many segments, with a checkpoint so often where there is a run directory."""
    if checkpoint_every is not None and options.get("run_dir") is not None:
        options["run_dir"] = bigclf.RunDir(options["run_dir"], checkpoint_every)
    with in_segments(segments):
        return bigclf.fit(*given, **{"algo": "dcd"} | options)


@contextlib.contextmanager
def control_group(kind, most):
    """The file that takes the processes of a control group of so many bytes of "memory", or threads ("pids"); of
    version 1 or 2."""
    groups = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    old, root = kind in groups, Path("/sys/fs/cgroup")
    parent = root / kind / groups[kind].lstrip("/") if old else root / groups.get("", "/").lstrip("/")
    group = parent / f"bigclf-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if old and kind == "memory" else f"{kind}.max")).write_text(str(most))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group of {kind} can be made here: {error}")
    try:
        yield group / "cgroup.procs"
    finally:
        for left in reversed(range(100)):  # the system is not at once through with what ended
            try:
                group.rmdir()
                break
            except OSError:
                if not left:
                    raise
                time.sleep(0.05)


@contextlib.contextmanager
def interrupted_after(commits):
    """A training inside is stopped, as by Ctrl-C, right after it has committed so many segments."""
    commit, made = Run._commit, 0

    def stopping(self, last=False):
        nonlocal made
        commit(self, last)
        made += 1
        if made == commits:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Run, "_commit", stopping)
        yield


def rows_in_csv(tmp_path, monkeypatch, n):
    """``rows.csv`` in the working directory, whose rows all differ; the cache is below it, too. What is in it."""
    import pyarrow as pa
    import pyarrow.csv

    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(3).normal(size=(n, 2)).round(4)
    made = pa.table({"a": x[:, 0], "b": x[:, 1], "y": np.where(x.sum(1) > np.arange(n) % 3 - 1, "yes", "no")})
    pyarrow.csv.write_csv(made, "rows.csv")
    return made


def does(line):
    """What ``bigclf LINE`` says as it ends well."""
    return refuses(line, 0)


def refuses(line, code=2):
    """What ``bigclf LINE`` says as it ends with ``code``, in one line."""
    from click.testing import CliRunner

    from bigclf.cli import main

    done = CliRunner().invoke(main, line.split())
    assert done.exit_code == code, done.output
    return done.output if code == 0 else " ".join(done.output.split())
