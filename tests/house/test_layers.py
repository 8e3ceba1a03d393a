"""Imports only point down, and each dangerous tool has one place: read from the source, not from what it says."""

import ast
import functools
import graphlib

import pytest
from making import PACKAGE

LAYERS = {
    "version": 0, "texts": 0, "units": 0, "processes": 0, "errors": 1,
    "files": 2, "progress": 2,
    "compiled": 3, "limits": 3,
    "maths": 4, "machine": 4,
    "features": 5, "methods": 5,
    "data": 6,
    "stream": 7,
    "conversion": 8,
    "model": 9, "tls": 9,
    "metrics": 10,
    "training": 11,
    "cluster": 12,
    "request": 13,
    "api": 14,
    "benchmarks": 15, "reporting": 15,
    "estimators": 16, "cli": 17, "preload": 17,
}  # fmt: skip
OF_CLUSTERS = ("cluster/engine.py", "cluster/link.py", "cluster/peers.py", "cluster/cluster_survey.py")
ANYTHING = {"__init__", "__main__"}  # the package's own front


def sources():
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path):
    """The name in LAYERS that a file belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text())


@functools.cache
def nodes(path):
    return [*ast.walk(tree_of(path))]


@functools.cache
def imports(path):
    """(module, line, imported when the file is) for every import anywhere in the file that is ever made: what stands
    under ``if TYPE_CHECKING`` names the types of what a function is given, and loads nothing."""
    return [*imported(path)]


def imported(path):
    tree = tree_of(path)
    top = {id(node) for node in tree.body}
    for_types = of_types(path)
    for node in nodes(path):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, node.lineno, id(node) in top
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            module = node.module or ""
            yield module, node.lineno, id(node) in top
            if module == "bigclf":  # from bigclf import losses
                for name in node.names:
                    yield f"bigclf.{name.name}", node.lineno, id(node) in top


@functools.cache
def of_types(path):
    """The ids of the nodes that are there for the checker of types alone."""
    return {id(inner) for node in nodes(path) if isinstance(node, ast.If)
            and getattr(node.test, "id", "") == "TYPE_CHECKING" for inner in ast.walk(node)}  # fmt: skip


def uses(path, module):
    return [line for name, line, _ in imports(path) if name == module or name.startswith(module + ".")]


def where(path):
    return path.relative_to(PACKAGE).as_posix()


def module_of(path):
    return ".".join(("bigclf", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def test_no_import_circle_goes_through_a_function_either():
    """A package is there before its modules are, so an import of a module is none of its package."""
    modules = {module_of(path): path for path in sources()}
    below = {name: set() for name in modules}
    for name, path in modules.items():
        for_types = of_types(path)
        for node in nodes(path):
            if isinstance(node, ast.Import) and id(node) not in for_types:
                below[name] |= {alias.name for alias in node.names} & modules.keys()
            elif isinstance(node, ast.ImportFrom) and id(node) not in for_types:
                own = {f"{node.module}.{alias.name}" for alias in node.names}
                below[name] |= own & modules.keys()
                if own - modules.keys():
                    below[name] |= {node.module} & modules.keys()
    assert sum(map(len, below.values())) > 1000
    graphlib.TopologicalSorter({name: found - {name} for name, found in below.items()}).prepare()


def test_every_file_has_its_layer():
    assert len(sources()) > 30
    assert {part_of(path) for path in sources()} - set(LAYERS) <= ANYTHING


def test_an_import_only_points_down():
    up, seen = [], 0
    for path in sources():
        part = part_of(path)
        if part in ANYTHING:
            continue
        for module, line, _ in imports(path):
            pieces = module.split(".")
            if pieces[0] != "bigclf" or len(pieces) == 1 or pieces[1] not in LAYERS:
                continue
            target, seen = pieces[1], seen + 1
            if not (LAYERS[target] < LAYERS[part] or target == part):
                up.append(f"{where(path)}:{line}: {part} imports {target}")
    assert not up and seen > 1000, up


@pytest.mark.parametrize(
    ("module", "places"),
    [
        (
            "pyarrow",
            ("files/", "features/", "data/", "stream/", "conversion/", "model/", "api/fit.py"),
        ),  # training only writes down its version
        ("numba", ("compiled/", "api/fit.py")),  # the same
        ("llvmlite", ("compiled/",)),
        # benchmarks measure dask-ml; blocks of a matrix are written by those who hold them
        ("dask", (*OF_CLUSTERS, "benchmarks/child.py", "conversion/foreign_rows.py")),
        ("distributed", OF_CLUSTERS),
        ("cryptography", ("tls.py",)),
        ("safetensors", ("files/__init__.py", "features/encode.py")),  # written, and checked, as files
        ("click", ("cli/",)),
        ("rich", ("cli/", "progress.py")),
        ("matplotlib", ("benchmarks/plots.py", "cli/sweep.py", "cli/path.py", "cli/evaluate.py")),
        ("yaml", ("cli/", "features/spec.py")),  # specs of features are YAML for Python too
        (
            "pickle",
            ("cluster/worker_tasks.py", "cluster/crash_trial.py"),
        ),  # a worker's own child process, through a pipe
        ("fsspec", ("files/remote.py",)),
        ("aiohttp", ("files/remote.py",)),
        ("bigclf.files.remote", ("files/__init__.py",)),  # behind that one module
        ("glob", ("files/__init__.py",)),
        ("pathlib", ("files/", "compiled/jit.py", "compiled/kernel_cache.py")),
        ("tempfile", ("files/", "compiled/kernel_cache.py")),
        ("shutil", ("files/__init__.py",)),
    ],
)
def test_a_tool_is_used_where_it_belongs_only(module, places):
    for path in sources():
        lines = uses(path, module)
        assert not lines or where(path).startswith(places or ("nowhere",)), f"{where(path)}:{lines[0]} imports {module}"


def test_of_numba_others_use_the_version_only():
    text = (PACKAGE / "api/fit.py").read_text()
    tree = ast.parse(text)
    for module in ("numba", "pyarrow"):
        attributes = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module
        }
        assert attributes <= {"__version__"}


HARMLESS = {"_exit", "fspath", "PathLike", "environ", "getenv", "getpid", "getppid", "setpgrp", "kill", "close",
            "sysconf", "cpu_count", "sched_getaffinity", "strerror"}  # fmt: skip
FOREIGN = "benchmarks/child.py"  # runs under Pythons that have no bigclf
COMPILED = ("compiled/jit.py", "compiled/kernel_cache.py")
TOUCHING = ("files/__init__.py", "files/remote.py", "files/caches.py", *COMPILED, FOREIGN)


def test_one_module_touches_paths():
    """Nobody else opens a file or asks the system about a path; a number, a name or the environment is no path."""
    touching, elsewhere = [], []
    for path in sources():
        found = touching if where(path) in TOUCHING else elsewhere
        for node in nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
                found.append(f"{where(path)}:{node.lineno}: open()")
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
                found += [f"{where(path)}:{node.lineno}: os.{node.attr}"] * (node.attr not in HARMLESS)
    assert touching and not elsewhere, elsewhere


def test_nothing_is_run_from_a_string_and_nothing_unpickled():
    calls = [(path, node) for path in sources() for node in nodes(path) if isinstance(node, ast.Call)]
    unsafe = []
    for path, node in calls:
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        pickled = [k for k in node.keywords if k.arg == "allow_pickle" and getattr(k.value, "value", True)]
        if (
            isinstance(node.func, ast.Name)
            and name in ("eval", "exec")
            or pickled
            or name in ("unsafe_load", "full_load")
        ):
            unsafe.append(f"{where(path)}:{node.lineno}")
    assert len(calls) > 10_000 and not unsafe, unsafe


def test_heavy_libraries_wait_until_they_are_needed():
    """``import bigclf`` and the command line's help load none of them."""
    from making import run_python

    code = "import sys, bigclf, bigclf.cli; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = set(run_python(code).split())
    assert "click" in loaded and not loaded & {"numba", "pyarrow", "sklearn", "scipy", "pandas", "dask", "numpy"}


OF_HELP = "no heavy library for bigclf --help"
LATE = {  # who imports our own modules late: why, and the most statements that do
    "cli/": (OF_HELP, 247),
    "api/evaluate.py": ("no dask for a run in one process", 1),
    "api/fit.py": ("the same", 1),
    "api/predict.py": ("the same", 1),
    "request/workers.py": ("the same", 1),
    "api/fresh_process.py": ("what the imports take is what it measures", 6),
    "benchmarks/ours.py": ("it joins its control group first", 3),
    "preload.py": ("they take seconds in a thread beside the worker; one that fails is a line in the log", 6),
}


def late_imports(path):
    """The lines that import our own modules, but not when the file is imported."""
    return {line for module, line, top in imports(path) if not top and module.split(".")[0] == "bigclf"}


def test_an_import_stands_at_the_top_unless_a_reason_forbids_it():
    found = {where(path): late_imports(path) for path in sources()}
    elsewhere = {place: sorted(lines) for place, lines in found.items() if lines and not place.startswith((*LATE,))}
    assert not elsewhere, "hoist these, or say in LATE why not"
    counted = {group: sum(len(found[place]) for place in found if place.startswith(group)) for group in LATE}
    assert {group: n for group, n in counted.items() if not 0 < n <= LATE[group][1]} == {}


def test_a_command_imports_late_only_what_its_help_is_spared():
    """A file that no ``bigclf --help`` loads has all its imports at the top."""
    from making import run_python

    code = "import sys; from bigclf.cli import main; main(['--help'], standalone_mode=False); print(*sys.modules)"
    loaded = set(run_python(code).splitlines()[-1].split())
    assert not loaded & {"numba", "pyarrow", "sklearn", "scipy", "pandas", "dask", "numpy", "rich"}
    places = [path for path in sources() if where(path).startswith("cli/") and late_imports(path)]
    assert len(places) > 20 and {module_of(path) for path in places} <= loaded


MOST_ANY = 296  # in the signatures of all functions: what is less is to be written here, more is not to come


def test_signatures_say_what_they_take_and_give():
    known = {module_of(path): tree_of(path) for path in sources()}
    found = {name: anys(name, tree, known) for name, tree in known.items()}
    worst = sorted(found, key=found.get, reverse=True)[:10]
    assert sum(found.values()) <= MOST_ANY, {name: found[name] for name in worst}


def test_an_alias_hides_no_any():
    text = "from typing import Any as A\nimport b\nThing = A\ndef f(x: Thing, y: 'b.Pairs', *z: int) -> list[A]: ..."
    other = ast.parse("import typing\nPair: TypeAlias = 'tuple[typing.Any, typing.Any]'\nPairs = dict[str, Pair]")
    known = {"a": ast.parse(text), "b": other}
    assert anys("a", known["a"], known) == 1 + 2 + 1


def anys(module, tree, known):
    """How often ``Any`` stands in the signatures of a module's functions, through aliases of all modules ``known``."""
    parts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            every = node.args
            given = (*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg)
            parts += [*(one.annotation for one in given if one is not None), node.returns]
    return sum(weight(part, module, known, ()) for part in parts if part is not None)


def weight(node, module, known, seen):
    """``Any`` in a type: in its text, and in the aliases that it names; variables and tables of types are called."""
    if isinstance(node, ast.Call):
        return 0
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return weight(ast.parse(node.value, mode="eval").body, module, known, seen)
    if isinstance(node, ast.Name | ast.Attribute):
        place = meant(node.id if isinstance(node, ast.Name) else ast.unparse(node), module, known)
        if place == ("typing", "Any"):
            return 1
        alias = aliases(known.get(place[0])).get(place[1])
        return 0 if alias is None or place in seen else weight(alias, place[0], known, (*seen, place))
    return sum(weight(inner, module, known, seen) for inner in ast.iter_child_nodes(node))


def meant(name, module, known):
    """(module, name) of what a dotted name stands for."""
    first, _, rest = name.partition(".")
    target = bound(known[module]).get(first)
    if target is None:
        return module, name
    origin, _, last = f"{target}.{rest}".rstrip(".").rpartition(".")
    return (origin, last) if origin == module or origin not in known or not rest else meant(last, origin, known)


@functools.cache
def bound(tree):
    """Of each name that an import of the tree binds, what it stands for."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.asname or one.name.split(".")[0]: one.name if one.asname else one.name.split(".")[0]
                      for one in node.names}  # fmt: skip
        elif isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return found


@functools.cache
def aliases(tree):
    """What is assigned to names at the top of a module, by name."""
    found = {}
    for node in () if tree is None else tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).endswith("TypeAlias"):
            found[node.target.id] = node.value
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found |= aliases(node)
    return found
