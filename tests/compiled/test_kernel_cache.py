"""Compiled code on disk: many processes over an empty, a damaged or a forbidden cache."""

import ast
import dis
import io
import json
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import CodeType, SimpleNamespace

import numba
import numpy as np
import pytest
from making import PACKAGE, environment

from bigclf.compiled import jit, kernel_cache
from bigclf.compiled.jit import compiling, inlined, kernel
from bigclf.compiled.kernel_cache import SEAL, KernelCache, SignatureFiles
from bigclf.files import caches
from bigclf.methods.table import MODULES

pytestmark = pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")


def doubled(numbers):
    total = np.float64(0)
    for i in range(numbers.size):
        total += 2 * numbers[i]
    return total


doubled.__qualname__ += os.environ.get("PYTEST_XDIST_WORKER", "")  # tests that run side by side share the directory
doubled = kernel(doubled)


def trebled(numbers):
    return 3 * numbers.sum()


trebled = kernel(trebled)
SIGNATURES = [np.arange(5.0), np.arange(5), np.arange(5, dtype=np.uint32)]


@pytest.fixture(scope="module")
def compiled():
    """The kernel, compiled for two signatures and kept; its files with what they hold."""
    assert [doubled(numbers) for numbers in SIGNATURES[:2]] == [20.0, 20.0]
    files = sorted(Path(doubled._cache._cache_file.directory).glob(f"{doubled._cache._cache_file.base}-*.nb?"))
    return {path: path.read_bytes() for path in files}


@pytest.fixture
def put_back(compiled):
    yield
    for path, content in compiled.items():
        path.write_bytes(content)


def loaded():
    """How many of the two signatures a new process would find."""
    cache = KernelCache(doubled.py_func)
    signatures = list(doubled.overloads)[:2]
    return sum(cache.load_overload(signature, doubled.targetctx) is not None for signature in signatures)


def test_what_was_compiled_is_found_again_and_no_two_signatures_share_a_file(compiled, put_back):
    assert loaded() == 2 and {path.suffix for path in compiled} == {".nbi", ".nbc"} and len(compiled) == 4
    for path in compiled:
        if path.suffix == ".nbc":
            path.unlink()
            break
    assert loaded() == 1


def test_a_file_cut_anywhere_is_noticed_and_removed(compiled, put_back, caplog):
    for path, content in compiled.items():
        for length in [0, 1, SEAL, SEAL + 1, len(content) // 2, len(content) - 1]:
            path.write_bytes(content[:length])
            assert loaded() == 1 and not path.exists()
            assert str(path) in caplog.records[-1].getMessage() and "compiled anew" in caplog.text
            path.write_bytes(content)
    assert loaded() == 2


def test_a_changed_byte_anywhere_is_noticed(compiled, put_back):
    """numba itself would load most of them: some crash the process, others compute something else."""
    rng = np.random.default_rng(0)
    for path, content in compiled.items():
        for place in [0, len(content) - 1, len(content) - SEAL - 1, *rng.integers(0, len(content), 40)]:
            changed = bytearray(content)
            changed[place] ^= 1 << rng.integers(8)
            path.write_bytes(changed)
            assert loaded() == 1
            path.write_bytes(content)
    assert loaded() == 2


def test_files_of_others_are_noticed(compiled, put_back):
    """The code of one signature under the name of another, whole as it is, is not run."""
    a, b = (path for path in compiled if path.suffix == ".nbi")
    a.write_bytes(compiled[b])
    assert loaded() == 1


MADE = """
import sys, numpy as np
from bigclf.compiled.jit import kernel
def made_for(loss):
    @kernel
    def part(numbers):
        total = 0.0
        for k in range(numbers.size):  # long enough to be called and not pasted in
            total += np.cos(numbers[k] * total) + np.sqrt(abs(total)) if numbers[k] > 0.5 else abs(total) / 3
        return loss + 0 * total
    @kernel
    def whole(numbers):
        total = 0.0
        for _ in range(3):
            total += part(numbers)
        return total
    return whole
print(*[made_for(float(loss))(np.linspace(0, 1, 9)) for loss in sys.argv[1:]])
"""


def test_kernels_that_one_factory_made_for_two_losses_are_told_apart_whoever_compiled_them(tmp_path):
    (tmp_path / "made.py").write_text(MADE)
    where = environment(BIGCLF_CACHE_DIR=str(tmp_path), NUMBA_CACHE_DIR=str(tmp_path))

    def said(*losses):
        return subprocess.run([sys.executable, "made.py", *losses], cwd=tmp_path, env=where, text=True,
                              capture_output=True, check=True).stdout.split()  # fmt: skip

    assert said("1") == ["3.0"] and said("2") == ["6.0"]
    assert said("1", "2") == ["3.0", "6.0"] and said("2", "1") == ["6.0", "3.0"]


def test_a_full_disk_and_a_lost_directory_cost_the_cache_only(monkeypatch, caplog, compiled):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bigclf.compiled.kernel_cache.SealedFiles._open_for_write", full)
    assert doubled(SIGNATURES[2]) == 20.0 and "is not kept" in caplog.text


def test_without_any_place_the_code_is_compiled_in_each_process(monkeypatch, caplog):
    def nowhere(_):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(jit, "KernelCache", nowhere)
    plus_one = kernel(lambda a: a + 1)
    assert plus_one(2) == 3 and "is not kept: cannot cache" in caplog.text


def test_compilations_are_counted(compiled):
    before = jit.compilations()
    again = kernel(doubled.py_func)
    again(SIGNATURES[0])
    assert jit.compilations() == (before[0], before[1] + 1)


# What it is made of


def told_apart(path):
    """What a file says above the line below which it declares methods, and what below."""
    above, _, below = path.read_text().partition(kernel_cache.DECLARED)
    return ast.parse(above), ast.parse(below)


def at_module_scope(path):
    """The files of the package that a file imports where its functions find them as globals; not those that only a
    declaration of methods needs."""
    found, (above, below) = set(), told_apart(path)
    used = {node.id for node in ast.walk(above) if isinstance(node, ast.Name)}
    todo = above.body
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
            todo += [*ast.iter_child_nodes(node)]
        elif isinstance(node, ast.Import):
            found |= {kernel_cache._module_file(name.name) for name in node.names if name.name.startswith("bigclf")}
        elif isinstance(node, ast.ImportFrom) and node.module.startswith("bigclf"):
            if below.body and used.isdisjoint(name.asname or name.name for name in node.names):
                continue
            for name in node.names:
                submodule = kernel_cache._module_file(f"{node.module}.{name.name}")
                found.add(submodule or kernel_cache._module_file(node.module))
    return found


def test_the_imports_that_bind_a_kernel_s_globals_are_all_seen():
    bound = {path: at_module_scope(path) for path in sorted(PACKAGE.rglob("*.py"))}
    assert sum(map(len, bound.values())) > 500
    assert {path: {*kernel_cache._source(path)[1]} - {path} for path in bound} == bound


def names_of(code):
    """Of the globals that code reads, its functions' code too."""
    own = {one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return own.union(*(names_of(one) for one in code.co_consts if isinstance(one, CodeType)))


@pytest.mark.parametrize("module", MODULES)
def test_no_kernel_is_made_of_what_declares_a_method(module):
    """Above the line nothing names what is bound below it, where nothing is compiled."""
    above, below = told_apart(PACKAGE / f"methods/{module.replace('.', '/')}.py")
    code = compile(below, module, "exec")
    bound = {one.argval for one in dis.get_instructions(code) if one.opname == "STORE_NAME"}
    assert "METHODS" in bound and not bound & names_of(compile(above, module, "exec"))
    assert not names_of(code) & {"kernel", "brief", "inlined", "numba"}


def test_no_function_binds_a_global_by_an_import():
    """Such a global would be a helper that the imports at the left margin do not show."""
    for path in (path for path in PACKAGE.rglob("*.py") if "  global " in path.read_text()):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                inside = [*ast.walk(function)]
                bound = {name for node in inside if isinstance(node, ast.Global) for name in node.names}
                made = {n.asname or n.name for node in inside if isinstance(node, (ast.Import, ast.ImportFrom))
                        for n in node.names}  # fmt: skip
                assert not bound & made, f"{path}: {bound & made}"


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A copy of the package whose files may be edited; digests are those of its files."""
    shutil.copytree(PACKAGE, tmp_path / "bigclf", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(kernel_cache, "PACKAGE", tmp_path / "bigclf")
    kernel_cache._source.cache_clear()
    yield tmp_path / "bigclf"
    kernel_cache._source.cache_clear()


def digest_of(package, module):
    kernel_cache._source.cache_clear()
    return kernel_cache._digest(kernel_cache.sources([package / f"{module}.py"]))


EDITED = [  # a file, and a module whose kernels it is part of
    ("methods/online/mira", "methods/online/mira"),
    ("compiled/jit", "methods/online/mira"),  # axpy
    ("compiled/lanes", "methods/online/mira"),  # which jit imports
    ("compiled/inlining", "model/scorer"),
    ("maths/losses", "methods/many_classes/multiclass_mira"),  # by way of two others
    ("compiled/large_pages", "methods/online/confidence_weighted"),  # from bigclf.compiled import large_pages
]


@pytest.mark.parametrize(("edited", "module"), EDITED)
def test_an_edited_helper_is_part_of_the_key_of_all_that_use_it(copied, edited, module):
    before = digest_of(copied, module)
    path = copied / f"{edited}.py"
    path.write_text("# edited\n" + path.read_text())
    assert digest_of(copied, module) != before


# the last two where they declare methods
@pytest.mark.parametrize("edited", ["cli/help", "cli/fit", "api/fit", "methods/table", "methods/common",
                                    "methods/online/winnow", "methods/online/mira"])  # fmt: skip
def test_an_edited_help_text_changes_no_key(copied, edited):
    online = ["methods/online/mira", "methods/many_classes/multiclass_mira", "methods/online/confidence_weighted"]
    modules = [*online, "maths/mixing", "compiled/jit"]
    before = [digest_of(copied, module) for module in modules]
    path = copied / f"{edited}.py"
    path.write_text(path.read_text() + "\n# edited\n")
    assert [digest_of(copied, module) for module in modules] == before


def test_the_compiler_and_its_options_are_part_of_the_key(copied, monkeypatch):
    digests = {digest_of(copied, "compiled/jit")}
    versions = [(library, "__version__") for library in (kernel_cache.numba, kernel_cache.llvmlite, np)]
    for about, name in [*versions, (kernel_cache.config, "OPT"), (kernel_cache.config, "BOUNDSCHECK")]:
        monkeypatch.setattr(about, name, "another")
        kernel_cache._compiler.cache_clear()
        digests.add(digest_of(copied, "compiled/jit"))
    monkeypatch.undo()
    kernel_cache._compiler.cache_clear()
    assert len(digests) == 6


def test_what_a_kernel_was_made_with_is_part_of_its_key():
    """Its module need not import that: the helpers of a method come from the table, say."""
    from bigclf.maths import losses
    from bigclf.maths.penalties import truncated
    from bigclf.methods.online.p_norm_vector import signed_power

    def made(helper, others):
        return lambda a: helper(others[0](a, 1.0), 2.0)

    assert named_files(made(signed_power, (truncated,))) == {"p_norm_vector.py", "penalties.py", Path(__file__).name}
    assert named_files(losses.HINGE.dual.gap) >= {"losses.py"}


def key_of(*made_with):
    """Of a signature of a kernel that was made with these."""

    def used(a):
        return made_with

    return KernelCache(used)._index_key("signature", SimpleNamespace(magic_tuple=tuple))


def scaled_by(factor):
    return inlined(lambda a: factor * a)


def test_a_helper_that_a_kernel_was_made_with_is_known_by_its_place_and_what_it_was_made_with():
    """numba gives every dispatcher a number of its own, so that each process would compile anew."""
    assert key_of(scaled_by(2.0)) == key_of(scaled_by(2.0)) != key_of(scaled_by(3.0))
    assert key_of(inlined(halved)) == key_of(inlined(halved)) != key_of(inlined(scaled_by))
    assert key_of(scaled_by(scaled_by(2.0))) == key_of(scaled_by(scaled_by(2.0))) != key_of(scaled_by(scaled_by(3.0)))
    assert len({key_of(1), key_of(2), key_of(1, 2), key_of(True), key_of(1.0)}) == 5


def named_files(function):
    return {Path(one.__code__.co_filename).name for one in kernel_cache.reached(getattr(function, "py_func", function))}


WHERE = """
import numba
from bigclf.compiled import jit
print(jit.next_random._cache.cache_path)
"""


def own_directory(tmp_path):
    """The environment of a process that keeps kernels below ``tmp_path``, as a user's does."""
    env = environment(BIGCLF_CACHE_DIR=str(tmp_path))
    env.pop("NUMBA_CACHE_DIR", None)
    return env


def test_kernels_are_kept_in_bigclf_s_own_directory_whatever_was_imported_first(tmp_path):
    done = subprocess.run([sys.executable, "-c", WHERE], env=own_directory(tmp_path), capture_output=True, text=True)
    assert done.stdout.startswith(str(tmp_path / "kernels")), done.stdout + done.stderr


MOVED = """
import json
import numba
import numpy as np
from bigclf.maths.block import Block
from own import moved
none = np.zeros(0)
row = Block(np.array([0, 2]), np.array([0, 2], np.uint32), np.array([1, 2], np.float32), none, none, none, np.arange(1))
weights = np.zeros(3)
moved(row, weights)
print(json.dumps([weights.tolist(), bool(moved.stats.cache_misses), moved._cache.cache_path]))
"""
OWN = """
from bigclf.compiled.jit import axpy, kernel
@kernel
def moved(block, weights):
    axpy(1.0, block, 0, weights)
"""


@pytest.mark.long
def test_edited_helpers_are_run_and_nothing_else_is_compiled_anew(tmp_path):
    """numba is imported first; the sources cannot be written, and no bytecode is."""
    package = tmp_path / "install" / "bigclf"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "install" / "own.py").write_text(OWN)
    env = own_directory(tmp_path / "cache") | {"PYTHONPATH": str(tmp_path / "install"), "PYTHONDONTWRITEBYTECODE": "1"}

    def run():
        folders = [path for path in [package, *package.rglob("*")] if path.is_dir()]
        for path in folders:
            path.chmod(0o555)
        done = subprocess.run([sys.executable, "-c", MOVED], env=env, cwd=tmp_path, capture_output=True,
                              text=True, timeout=250)  # fmt: skip
        for path in folders:
            path.chmod(0o755)
        assert done.returncode == 0 and not done.stderr, done.stderr
        weights, compiled, path = json.loads(done.stdout)
        paths.append(path)
        return weights, compiled

    def edit(name, old, new):
        text = (package / name).read_text()
        assert text.count(old) == 1
        (package / name).write_text(text.replace(old, new))

    paths = []
    assert [run(), run()] == [([1, 0, 2], True), ([1, 0, 2], False)]
    edit("compiled/jit.py", "+= a * at(block.values, p)", "+= 3 * a * at(block.values, p)")
    assert [run(), run()] == [([3, 0, 6], True), ([3, 0, 6], False)]
    edit("cli/help.py", "from __future__", '"""Edited."""\nfrom __future__')
    assert run() == ([3, 0, 6], False)
    assert all(path.startswith(str(tmp_path / "cache" / "kernels")) for path in paths)
    assert not [*package.rglob("*.nb?")]


# The locks


@pytest.fixture
def elsewhere():
    """What another process makes of what it does, over the cache of this one; the process ends with the test."""
    begun = []

    def start(code, *words):
        process = subprocess.Popen([sys.executable, "-c", code, *map(str, words)], env=environment(), text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.communicate()


LOCK = """
import sys
from bigclf.compiled.kernel_cache import _locked
held = _locked(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def halved(numbers):
    total = np.float64(0)
    for i in range(numbers.size):
        total += numbers[i] / 2
    return total


def test_what_another_process_is_compiling_is_waited_for_and_found(elsewhere):
    """Here it is kept by the test while it waits; nobody but the other process lets go of the lock."""
    first, second = kernel(halved), kernel(halved)
    files, key = second._cache._files, None

    def looked_up(asked, lock=files.lock):
        nonlocal key
        key = asked
        return lock(asked)

    second._cache._files.lock = looked_up
    first(SIGNATURES[0])
    kept = {path: path.read_bytes() for path in Path(files.directory).glob(f"{files.base}-*.nb?")}
    for path in kept:
        path.unlink()
    (lock,) = Path(files.directory).glob(f"{files.base}-*.lock")
    other = elsewhere(LOCK, lock)
    assert other.stdout.readline() == "held\n"
    thread = threading.Thread(target=second, args=[SIGNATURES[0]])
    thread.start()
    while key is None:
        time.sleep(0.01)
    thread.join(0.1)
    assert thread.is_alive() and str(lock) == SignatureFiles.lock(files, key)
    for path, content in kept.items():
        path.write_bytes(content)
    other.communicate("")
    thread.join()
    assert second.stats.cache_hits and not second.stats.cache_misses and second(SIGNATURES[0]) == 5.0
    assert first._cache._lock is None and second._cache._lock is None


def test_a_kernel_that_cannot_be_typed_lets_go_of_its_lock(monkeypatch):
    """``compiling`` said for ever after that kernels were compiled, and others waited for this one."""
    taken = []
    monkeypatch.setattr(
        kernel_cache, "_locked", lambda path, real=kernel_cache._locked: taken.append(path) or real(path)
    )
    with pytest.raises(numba.TypingError):
        doubled("text")
    assert len(taken) == 1 and doubled._cache._lock is None
    doubled._cache._lock = kernel_cache._locked(taken[0])  # at once: nobody has it
    doubled._cache._let_go()


def test_who_compiles_the_same_and_stands_still_is_not_waited_for_for_ever(elsewhere, monkeypatch):
    files = doubled._cache._files
    path = os.path.join(files.directory, "stands-still.lock")
    other = elsewhere(LOCK, path)
    assert other.stdout.readline() == "held\n"
    monkeypatch.setattr("bigclf.compiled.kernel_cache.PATIENCE", 0.1)
    assert kernel_cache._locked(path) is None
    other.communicate("")
    again = kernel_cache._locked(path)
    assert again is not None
    again.close()


def test_one_compiles_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "made"))
    inside, most, lock = [0], [0], threading.Lock()

    def work():
        with compiling():
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            threading.Event().wait(0.01)
            with lock:
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_who_waits_comes_before_who_compiles_one_kernel_after_the_other(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    held, turns, over, sleep = threading.Event(), threading.Semaphore(0), threading.Event(), time.sleep

    def busy():
        for _ in range(50):
            if not over.is_set():
                with compiling():
                    held.set()
                    turns.release()
                    sleep(0.05)
                    held.clear()

    def look_while_it_is_held(_):  # the unlucky one: who asks now and then asks whenever the lock is just taken again
        sleep(0.005)
        held.wait(0.5)

    monkeypatch.setattr(time, "sleep", look_while_it_is_held)
    thread = threading.Thread(target=busy)
    thread.start()
    try:
        turns.acquire()
        with compiling():
            over.set()
    finally:
        over.set()
        thread.join()
    assert sum(turns.acquire(blocking=False) for _ in range(50)) <= 3 and not caplog.text


def test_nobody_waits_for_ever_for_a_frozen_process(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    holder = subprocess.Popen(
        [sys.executable, "-c", "import fcntl, sys\nfile = open(sys.argv[1], 'w')\nfcntl.flock(file, fcntl.LOCK_EX)\n"
         "print('held', flush=True)\nsys.stdin.read()", str(tmp_path / "lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert holder.stdout.readline() == "held\n"
        os.kill(holder.pid, signal.SIGSTOP)
        with compiling(patience=0.2):
            assert "not waiting" in caplog.text
        caplog.clear()
        monkeypatch.setattr(jit.time, "sleep", None)  # once is enough
        with compiling(patience=100.0):
            assert caplog.text == ""
    finally:
        monkeypatch.setattr(jit, "_patient", True)
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()


def test_a_file_system_without_locks_will_do(tmp_path, monkeypatch, caplog):
    import fcntl

    def none(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(fcntl, "flock", none)
    with compiling():
        assert "compiling without a lock" in caplog.text
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "below"))
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(ZeroDivisionError), compiling():
        _ = 1 / 0


# Processes

WARM = """
import json, sys
from bigclf.compiled import jit, kernel_cache
from bigclf.files import caches
from bigclf.methods import resolve
from bigclf.training.sources import warm
warm(resolve("perceptron", None, None, None, {}), int(sys.argv[1]), "float64")
print(json.dumps(jit.compilations()))
"""


def at_once(codes, cache, **env):
    """Run them all at the same time over one cache; what each printed."""
    env = environment(NUMBA_CACHE_DIR=str(cache), **env)
    processes = [
        subprocess.Popen([sys.executable, "-c", code, *map(str, words)], env=env, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for code, *words in codes
    ]  # fmt: skip
    try:
        ended = [process.communicate(timeout=250) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * len(processes), ended
    return [json.loads(out) for out, _ in ended]


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.long)])
def test_of_several_processes_on_an_empty_cache_one_compiles(tmp_path, processes):
    only_one_compiled(at_once([(WARM, 4)] * processes, tmp_path))


def only_one_compiled(counts):
    """The others found all they called; what a kernel calls itself is in the kernel's own code."""
    compiled, found = zip(*sorted(counts), strict=True)
    assert set(compiled[:-1]) == {0} and compiled[-1] >= 3 and min(found[:-1]) >= 3


# Two widths of index at once, so that two signatures of each kernel are compiled and kept at the same time
UNLOCKED = """
import contextlib, json, sys
import numpy as np
import bigclf.compiled.jit
bigclf.compiled.jit.compiling = contextlib.nullcontext
from bigclf.maths.block import Block, alike
from bigclf.methods import resolve
from bigclf.training.sources import warm
warm(resolve("perceptron", None, None, None, {}), int(sys.argv[1]), "float64")
from bigclf.methods import METHODS
from bigclf.methods.online.perceptron import Shared, Params
x = np.arange(1, 4, dtype=np.float32)
indices = np.array([0, 1, 1], np.uint32 if sys.argv[1] == "4" else np.uint64)
floats = np.ones(2)
block = alike(Block(np.array([0, 2, 3]), indices, x, floats, floats, floats, np.arange(2)))
shared = Shared(np.zeros(3))
METHODS["perceptron"].how.update(None)(block, np.arange(2), shared, (), Params(0.0), np.zeros(2))
print(json.dumps([float(w) for w in shared.weights]))
"""


@pytest.mark.chaos
def test_without_a_lock_nobody_runs_another_signature_s_code(tmp_path):
    assert at_once([(UNLOCKED, 4), (UNLOCKED, 8)] * 4, tmp_path) == [[1.0, 2.0, 0.0]] * 8


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_whole_file_that_names_what_is_not_there_is_compiled_anew(kind, compiled, put_back, caplog):
    path = next(path for path in compiled if path.suffix == f".{kind}")
    pickled = b"cno_such_module\nnothing\n."
    if kind == "nbi":  # the stamp of numba's version comes first, and is right
        stream = io.BytesIO(compiled[path])
        pickle.load(stream)
        pickled = compiled[path][: stream.tell()] + pickled
    path.write_bytes(pickled + kernel_cache._seal(pickled))
    anew = kernel(doubled.py_func)
    assert [anew(numbers) for numbers in SIGNATURES[:2]] == [20.0, 20.0]
    assert (sum(anew.stats.cache_misses.values()), sum(anew.stats.cache_hits.values())) == (1, 1)
    assert "cannot be read (No module named 'no_such_module'): compiled anew" in caplog.text


@pytest.mark.chaos
def test_eight_processes_on_a_damaged_cache(tmp_path):
    at_once([(WARM, 4)], tmp_path)
    rng = np.random.default_rng(1)
    for k, path in enumerate(sorted(tmp_path.rglob("*.nb?"))):
        content = bytearray(path.read_bytes())
        if k % 3 == 0:
            content = content[: len(content) // 2]
        else:
            content[rng.integers(len(content))] ^= 0xFF
        path.write_bytes(content)
    only_one_compiled(at_once([(WARM, 4)] * 8, tmp_path))


HOME = """
import json, os
from bigclf.files.caches import cache_home
from bigclf.compiled.jit import next_random, random_state
next_random(random_state(1))
print(json.dumps([str(cache_home()), next_random._cache.cache_path, os.environ["HOME"]]))
"""


def test_a_home_that_cannot_be_written(tmp_path):
    """Not even by root: what is no directory holds no files."""
    (tmp_path / "home").write_text("")
    (tmp_path / "tmp").mkdir()
    env = environment(HOME=str(tmp_path / "home"), TMPDIR=str(tmp_path / "tmp"))
    for name in ("BIGCLF_CACHE_DIR", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        env.pop(name, None)
    done = subprocess.run([sys.executable, "-c", HOME], env=env, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    home, path, _ = json.loads(done.stdout)
    assert home == str(tmp_path / "tmp" / f"bigclf-{os.getuid()}") and path.startswith(home)
    assert stat.S_IMODE(os.stat(home).st_mode) == 0o700


@pytest.mark.parametrize("kind", ["open", "link", "file"])
def test_a_name_in_tmp_that_others_may_have_made_is_not_used(tmp_path, monkeypatch, kind, caplog):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = tmp_path / f"bigclf-{os.getuid()}"
    if kind == "open":
        place.mkdir()
        place.chmod(0o777)
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir()
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.write_text("")
    caches._temporary_home.cache_clear()
    try:
        found = caches._temporary_home()
        assert (
            found != place
            and found.parent == tmp_path
            and not list(found.iterdir())
            and "open to others" in caplog.text
        )
        assert caches._temporary_home() == found
    finally:
        caches._temporary_home.cache_clear()


HELD = """
import sys, time
from test_kernel_cache import doubled
import numpy as np
from bigclf.compiled import kernel_cache
compiling = doubled._compiler.compile
def slowly(*types):
    print("at it", flush=True)
    time.sleep(2)
    return compiling(*types)
doubled._compiler.compile = slowly
doubled(np.arange(3.0))
"""


def test_what_another_process_compiles_comes_last(tmp_path):
    """... and is not compiled twice."""
    code = """
import subprocess, sys, time
from test_kernel_cache import HELD, doubled, trebled
import numpy as np
from bigclf.compiled.jit import in_turns
other = subprocess.Popen([sys.executable, "-c", HELD], stdout=subprocess.PIPE)
other.stdout.readline()
done = []
def call(one, name):
    one(np.arange(3.0))
    done.append(name)
in_turns([lambda: call(doubled, "doubled"), lambda: call(trebled, "trebled")])
other.wait()
print(done, dict(doubled.stats.cache_misses) == {}, len(trebled.stats.cache_misses))
"""
    env = environment(NUMBA_CACHE_DIR=str(tmp_path))
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), env.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=250)
    assert done.stdout.strip() == "['trebled', 'doubled'] True 1", done.stdout + done.stderr
