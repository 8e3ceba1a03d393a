"""Break one expression at a time, run the tests that execute it, and list the faults that no test notices.

    python tests/mutants.py --seed 0 --count 240 --results mutants.jsonl --tests tests/training/test_lease.py

Each mutant is a copy of the sources with one fault: a comparison or an operator exchanged, a constant moved, a
statement left out, a condition negated, arguments swapped. Faults are drawn from the numerical core and the run
directory with a seed. Kernels run as plain Python here, since a mutated kernel would be compiled again.

The first step runs the tests on unchanged sources, keeps those that pass, and notes the lines each executes
(``--map`` keeps these notes between runs). A mutant then meets only tests that execute its line, one of each test
function first and quick ones first, until one fails or ``--seconds`` of tests have passed. It may take four times as
long as on unchanged sources, and at least ten seconds, before it counts as killed by a time-out.
"""

from __future__ import annotations

import argparse
import ast
import functools
import gc
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

TOP = Path(__file__).resolve().parents[1]
# each file of these is drawn from as often as every other one; those that are named alone four times as often
MANY, ALONE, SHARE = "bigclf/methods", (
    "bigclf/stream/working_set.py", "bigclf/maths/mixing.py", "bigclf/maths/losses.py",
    "bigclf/training/records/run_directory.py",
    "bigclf/training/records/lease.py", "bigclf/training/plan.py", "bigclf/methods/dual/dual_coordinate_descent.py",
), 4  # fmt: skip
INTERPRETED = {"NUMBA_DISABLE_JIT": "1", "BIGCLF_TESTS_INTERPRETED": "1", "PYTHONDONTWRITEBYTECODE": "1",
               "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
LINES = 600  # that are noted of one function in one test: a kernel's loop would take minutes under a tracer
SLOWEST = 2.5  # seconds of a test on unchanged sources, as plain Python and traced; slower ones are left out
PYTEST = ["-q", "-n", "0", "-p", "no:cacheprovider", "--disable-warnings", "-o", "timeout_method=signal"]


# Faults


class Fault(NamedTuple):
    """The text [begin, end) of a file (offsets) is replaced by ``new``; ``line`` and ``scope`` say where it is."""

    path: str
    line: int
    scope: int  # first line of the function around it; 0: it runs when the module is imported
    kind: str
    begin: int
    end: int
    old: str
    new: str


COMPARED = {ast.Lt: ("<=", ">="), ast.LtE: ("<", ">"), ast.Gt: (">=", "<="), ast.GtE: (">", "<"),
            ast.Eq: ("!=",), ast.NotEq: ("==",), ast.Is: ("is not",), ast.IsNot: ("is",),
            ast.In: ("not in",), ast.NotIn: ("in",)}  # fmt: skip
COMPUTED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "//", ast.Pow: "*",
            ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<", ast.BitXor: "&"}  # fmt: skip
SILENT = ("log", "patient_log", "warnings")  # what is said to people
HINTS = ("prefetch", "prefetch_ahead", "prefetch_weights", "prefetch_pairs")  # to the processor: no result changes


def name_of(node: ast.AST) -> str:
    """The first name of ``a.b.c(...)``."""
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return node.id if isinstance(node, ast.Name) else ""


def is_left_out(node: ast.AST) -> bool:
    """Texts for people, their logging, and hints to the processor."""
    if isinstance(node, ast.JoinedStr | ast.Raise):
        return True
    if isinstance(node, ast.FunctionDef) and node.name in ("__repr__", "__str__"):
        return True
    return isinstance(node, ast.Call) and name_of(node) in (*SILENT, *HINTS)


def replaced(node: ast.AST) -> Iterator[tuple[str, str]]:
    """(kind of fault, new text) for a node itself, not for what is below it."""
    text = ast.unparse
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            for other in COMPARED[type(op)]:
                yield "comparison", f"({text(left)} {other} {text(right)})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in COMPUTED and not is_text(left, right):
            yield "operator", f"(({text(left)}) {COMPUTED[type(op)]} ({text(right)}))"
        case ast.AugAssign(target=target, op=op, value=value):
            yield "operator", f"{text(target)} {COMPUTED[type(op)]}= {text(value)}"
            yield "dropped", "pass"
        case ast.Constant(value=bool() as value):
            yield "constant", str(not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", repr(value + 1)
        case ast.BoolOp(op=op, values=values):
            other = " or " if isinstance(op, ast.And) else " and "
            yield "and/or", f"({other.join(f'({text(value)})' for value in values)})"
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield "sign", f"({text(operand)})"
        case ast.Call(func=ast.Name(id="min" | "max" as name)):
            yield "min/max", text(node).replace(name, "max" if name == "min" else "min", 1)
        case ast.Call(args=[first, second, *rest]) if text(first) != text(second):
            yield "swapped", text(ast.Call(node.func, [second, first, *rest], node.keywords))
        case ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Continue():
            yield "dropped", "pass"


def is_text(*nodes: ast.AST) -> bool:
    return any(isinstance(n, ast.JoinedStr) or isinstance(n, ast.Constant) and isinstance(n.value, str) for n in nodes)


def conditions(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield node.test, f"(not ({ast.unparse(node.test)}))"


def faults_of(path: str, source: str) -> list[Fault]:
    """Every fault this script knows to make in a file, in the order of the text."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    data, found = source.encode(), []

    def note(node: Any, scope: int, kind: str, new: str) -> None:
        begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        found.append(Fault(path, node.lineno, scope, kind, begin, end, data[begin:end].decode(), new))

    def walk(node: Any, scope: int) -> None:
        if is_left_out(node) or isinstance(node, ast.Expr) and is_left_out(node.value):
            return
        if isinstance(node, ast.FunctionDef):
            for default in filter(None, [*node.args.defaults, *node.args.kw_defaults]):  # belong to what is around
                walk(default, scope)
            scope = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            children: list[Any] = node.body
        else:
            children = [c for name, c in ast.iter_fields(node) if name != "annotation"]
        for kind, new in replaced(node):
            note(node, scope, kind, new)
        for test, new in conditions(node):
            note(test, scope, "negated", new)
        for child in children:
            for one in child if isinstance(child, list) else [child]:
                if isinstance(one, ast.AST):
                    walk(one, scope)

    walk(ast.parse(source), 0)
    return sorted(found)


def drawn(top: Path, seed: int, count: int) -> list[Fault]:
    """``count`` faults, evenly over the files, those of ``ALONE`` ``SHARE`` times as often."""
    many = [str(p.relative_to(top)) for p in sorted((top / MANY).glob("*.py"))]
    paths = [p for p in many if p not in ALONE and p != f"{MANY}/__init__.py"] + list(ALONE) * SHARE
    chance, waiting = random.Random(seed), {}
    for path in sorted(set(paths)):
        waiting[path] = faults_of(path, (top / path).read_text())
        chance.shuffle(waiting[path])
    taken: list[Fault] = []
    while len(taken) < count and any(waiting.values()):
        chance.shuffle(paths)
        taken += [waiting[path].pop() for path in paths if waiting[path]]
    return taken[:count]


# What tests execute: this module as a plugin of pytest


def pytest_configure(config: Any) -> None:
    if "MUTANTS_MAP" in os.environ:
        config.pluginmanager.register(Tracer(Path.cwd(), Path(os.environ["MUTANTS_MAP"])))


class Tracer:
    """Writes a line a test: its name, seconds, whether it passed, and which lines it executed (functions: minus the
    first line)."""

    def __init__(self, top: Path, path: Path) -> None:
        self.top, self.path = f"{top}/", path
        self.prefixes = tuple(self.top + name for name in (MANY + "/", *ALONE))
        self.seen: set[tuple[str, int]] = set()
        self.calls: Counter[Any] = Counter()
        self.failed = False
        threading.settrace(self.enter)

    def enter(self, frame: Any, event: str, arg: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(self.prefixes):
            return None
        self.seen.add((code.co_filename, -code.co_firstlineno))
        return self.line if self.calls[code] < LINES else None

    def line(self, frame: Any, event: str, arg: Any) -> Any:
        if event == "line":
            self.seen.add((frame.f_code.co_filename, frame.f_lineno))
            self.calls[frame.f_code] += 1
            frame.f_trace_lines = self.calls[frame.f_code] < LINES
        return self.line

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.seen.clear()
        self.calls.clear()
        self.failed, self.start = False, time.perf_counter()
        sys.settrace(self.enter)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed |= report.failed or report.skipped

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        lines: dict[str, list[int]] = {}
        for name, line in sorted(self.seen):
            lines.setdefault(name.removeprefix(self.top), []).append(line)
        noted = {"id": nodeid, "s": time.perf_counter() - self.start, "ok": not self.failed, "lines": lines}
        with open(self.path, "a") as file:
            file.write(json.dumps(noted) + "\n")


def rooms(top: Path) -> list[str]:
    """Where test files and what they share lie."""
    return [str(top / "tests"), *sorted({str(path.parent) for path in (top / "tests").glob("*/test_*.py")})]


def traced(top: Path, tests: list[str], path: Path) -> list[dict[str, Any]]:
    """What the tests execute, of those that pass on unchanged sources; kept in ``path`` file by file."""
    known = {json.loads(line)["id"].split("::")[0] for line in path.open()} if path.exists() else set()
    for test in tests:
        if test not in known:
            found = os.pathsep.join([str(top), *rooms(top)])
            env = os.environ | INTERPRETED | {"MUTANTS_MAP": str(path.resolve()), "PYTHONPATH": found}
            command = [sys.executable, "-m", "pytest", *PYTEST, "-p", "mutants", f"--timeout={SLOWEST}", test]
            subprocess.run(command, cwd=top, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    notes = [json.loads(line) for line in path.open()]
    return [note for note in notes if note["ok"] and note["id"].split("::")[0] in tests]


def meeting(fault: Fault, notes: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """The tests that execute the fault's line, one of each function first and quick ones first; then those that may
    execute it behind the lines that were noted."""
    hit = [n for n in notes if fault.line in n["lines"].get(fault.path, ())]
    met = {n["id"] for n in hit}
    late = [n for n in notes if n["id"] not in met and fault.scope and -fault.scope in n["lines"].get(fault.path, ())]
    if not hit and not fault.scope:  # on import
        hit = [n for n in notes if fault.path in n["lines"]] or notes
    return quickest(hit, seconds) + quickest(late, seconds)


def quickest(hit: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    order, before = [], Counter[str]()
    for note in sorted(hit, key=lambda n: n["s"]):
        function = note["id"].split("[")[0]
        order.append((before[function] // 2, note["s"], note["id"], note))
        before[function] += 1
    taken, total = [], 0.0
    for *_, note in sorted(order, key=lambda o: o[:3]):
        total += note["s"]
        if total > seconds and taken:
            break
        taken.append(note)
    return taken


# Mutants and their tests


def prepare(top: Path, tests: list[str]) -> None:
    """Import the unchanged sources and the tests: each mutant is a fork of this process, in which the functions of one
    file get other code."""
    os.environ.update(INTERPRETED)
    os.chdir(top)
    sys.path[:0] = [str(top), *rooms(top)]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(top), *rooms(top)])
    os.environ["BIGCLF_CACHE_DIR"] = os.environ["BIGCLF_TESTS_CACHE"] = str(top / "cache")
    for test in tests:
        importlib.import_module(Path(test).stem)


def codes_of(code: Any) -> Iterator[Any]:
    """A code object and all within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_of(constant)


def patched(top: Path, fault: Fault, source: str, broken: str) -> bool:
    """Give every function of the file, wherever it was imported to or caught, the broken code; False where that cannot
    be done, as for what runs on import."""
    path = str(top / fault.path)
    before, after = (list(codes_of(compile(text, path, "exec"))) for text in (source, broken))
    if not fault.scope or [c.co_qualname for c in before] != [c.co_qualname for c in after]:
        return False
    new = {(old.co_qualname, old.co_firstlineno): code for old, code in zip(before, after, strict=True) if old != code}
    for function in gc.get_objects():
        if isinstance(function, types.FunctionType) and function.__code__.co_filename == path:
            code = new.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if code is not None:
                if code.co_freevars != function.__code__.co_freevars:
                    return False
                function.__code__ = code
    return True


def run_tests(top: Path, ids: list[str], output: Path, way: tuple[Fault, str, str] | None) -> int:
    """In a fork: pytest's exit code. Where functions cannot be patched, of a fresh interpreter."""
    os.setsid()
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    command = ["-x", *PYTEST, "--timeout=0", *ids]
    if way is not None and not patched(top, *way):
        return subprocess.run([sys.executable, "-m", "pytest", *command]).returncode
    import pytest

    return int(pytest.main(command))


def outcome(top: Path, notes: list[dict[str, Any]], output: Path, way: tuple[Fault, str, str] | None = None) -> str:
    """What became of a mutant: killed, time-out or survived."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(run_tests(top, [n["id"] for n in notes], output, way))
        finally:
            os._exit(99)
    limit = time.monotonic() + max(10.0, 4 * sum(n["s"] for n in notes))
    while time.monotonic() < limit:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return "survived" if os.waitstatus_to_exitcode(status) == 0 else "killed"
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "time-out"


def killer(output: Path) -> str:
    """The test that failed, from what pytest wrote."""
    lines = output.read_text(errors="replace").splitlines()
    return next((line.split(" ", 1)[1].split(" - ")[0] for line in lines if line.startswith(("FAILED ", "ERROR "))), "")


@functools.cache
def passes(top: Path, test: str, output: Path) -> bool:
    """Whether a test that failed passes alone on unchanged sources."""
    return outcome(top, [{"id": test, "s": 10 * SLOWEST}], output) == "survived"


def broken_by(fault: Fault, source: str) -> str:
    """The text of a file with the fault."""
    data = source.encode()
    if data[fault.begin : fault.end].decode() != fault.old:
        raise SystemExit(f"{fault.path}:{fault.line}: the sources are not those the fault was drawn from")
    return (data[: fault.begin] + fault.new.encode() + data[fault.end :]).decode()


def tried(top: Path, fault: Fault, notes: list[dict[str, Any]], seconds: float, output: Path) -> dict[str, Any]:
    """What became of a fault: a line of the results. Processes that tests start see the broken file, too."""
    chosen, start = meeting(fault, notes, seconds), time.perf_counter()
    source = (top / fault.path).read_text()
    broken = broken_by(fault, source)
    (top / fault.path).write_text(broken)
    try:
        found = outcome(top, chosen, output, (fault, source, broken)) if chosen else "survived"
    finally:
        (top / fault.path).write_text(source)
    by = killer(output) if found == "killed" else ""
    if by and not passes(top, by, output):
        found, by = "unclear", f"{by} fails on unchanged sources too"
    spent = round(time.perf_counter() - start, 2)
    return fault._asdict() | {"outcome": found, "tests": len(chosen), "by": by, "spent": spent}


def summary(results: list[dict[str, Any]]) -> str:
    """Killed and all mutants of each file."""
    alive = Counter(r["path"] for r in results if r["outcome"] == "survived")
    every = Counter(r["path"] for r in results)
    lines = [f"{name:60} {every[name] - alive[name]:4} of {every[name]:4}" for name in sorted(every)]
    return "\n".join([*lines, f"{'killed':60} {len(results) - alive.total():4} of {len(results):4}"])


def copied(top: Path, to: Path) -> Path:
    for name in ("bigclf", "tests", "jobs", "cluster"):
        shutil.copytree(top / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*top.glob("*.md"), top / "pyproject.toml"):
        shutil.copy(path, to)
    return to


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument("--seconds", type=float, default=20.0, help="of tests that a mutant meets at most")
    parser.add_argument("--map", type=Path, help="file that keeps what tests execute (default: made anew)")
    parser.add_argument("--results", type=Path, default=Path("mutants.jsonl"), help="a line a mutant; goes on from it")
    parser.add_argument("--only", type=Path, help="faults from these results instead, as written by an earlier run")
    parser.add_argument("--top", type=Path, default=TOP, help="the tree to break a copy of")
    parser.add_argument("--tests", nargs="+", required=True)
    asked = parser.parse_args()
    asked.results = asked.results.resolve()
    with tempfile.TemporaryDirectory(prefix="bigclf-mutants-") as place:
        top = copied(asked.top.resolve(), Path(place))
        notes = traced(top, asked.tests, asked.map or Path(place, "map.jsonl"))
        faults = drawn(top, asked.seed, asked.count)
        if asked.only:
            faults = [Fault(**{f: json.loads(line)[f] for f in Fault._fields}) for line in asked.only.open()]
        done = [json.loads(line) for line in asked.results.open()] if asked.results.exists() else []
        known = {tuple(r[f] for f in Fault._fields) for r in done}
        prepare(top, asked.tests)
        for fault in faults:
            if tuple(fault) not in known:
                done.append(tried(top, fault, notes, asked.seconds, Path(place, "output")))
                with asked.results.open("a") as file:
                    file.write(json.dumps(done[-1]) + "\n")
        print(summary(done))


if __name__ == "__main__":
    main()
