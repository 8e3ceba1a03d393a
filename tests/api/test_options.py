"""Each option is declared once; what moved, and what is gone, says where it went."""

import ast
import inspect
import pathlib
from types import SimpleNamespace

import click
import numpy as np
import pytest
from click.testing import CliRunner
from making import PACKAGE, random_rows

import bigclf
from bigclf.api import plan
from bigclf.api.fit import asked_of_fit
from bigclf.api.path import asked_of_path
from bigclf.api.sweep import asked_of_sweep
from bigclf.cli import main
from bigclf.cli.shared import flags
from bigclf.request import options
from bigclf.request.request import EVERY

PARTS = {option.name: option for option in options.OPTIONS if option.within}
ONE_WORD = {option.name: option for option in options.OPTIONS}


def test_fit_has_25_named_parameters_with_the_defaults_that_are_declared():
    named = {n: p for n, p in inspect.signature(bigclf.fit).parameters.items() if p.kind is not p.VAR_KEYWORD}
    assert len(named) == 25
    assert {n: p.default for n, p in named.items() if n not in ("data", "y")}.items() <= {
        name: "2GB" if name == "memory" else default for name, default in EVERY.items()
    }.items()


def test_no_dict_of_all_local_names_is_passed_on():
    for path in PACKAGE.rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        found = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "locals"]
        assert not found, f"{path}:{found}"


@pytest.mark.parametrize("verb", [bigclf.fit, bigclf.sweep, bigclf.path])
@pytest.mark.parametrize(
    ("name", "value"), [("threads", 1), ("patience", {}), ("local_dir", "x"), ("checkpoint_every", 0)]
)
def test_what_is_a_part_of_another_option_now_says_of_which(verb, name, value):
    more = {"sweep": {"grid": {"C": [1, 2]}}, "path": {"C": [1, 2]}}.get(verb.__name__, {})
    whole = "run_dir=bigclf.RunDir(path" if name == "checkpoint_every" else "workers=bigclf.Workers(where"
    with pytest.raises(TypeError) as refusal:
        verb(*random_rows(), **{name: value}, **more)
    assert str(refusal.value) == f"{verb.__name__} takes {name} with {whole.split('=')[0]}: {whole}, {name}=...)"


def test_the_parts_are_taken_with_and_without_their_wholes():
    def asked(**given):
        return asked_of_fit(None, None, given).options

    assert (asked(workers=3)["workers"], asked(workers=3)["threads"]) == (3, None)
    told = asked(workers=bigclf.Workers("tcp://there:1", threads=1, patience={"idle": 7}, local_dir="/d"))
    assert (told["workers"], told["threads"], told["patience"].idle, told["local_dir"]) == ("tcp://there:1", 1, 7, "/d")
    assert (asked(run_dir="r")["run_dir"], asked(run_dir="r")["checkpoint_every"]) == ("r", 60)
    told = asked(run_dir=bigclf.RunDir("r", checkpoint_every=5))
    assert (told["run_dir"], told["checkpoint_every"]) == ("r", 5)


@pytest.mark.parametrize("whole", [bigclf.Workers, bigclf.RunDir])
def test_the_wholes_have_the_parts_that_are_declared_with_their_defaults(whole):
    parts = {n: p.default for n, p in inspect.signature(whole).parameters.items() if n not in ("where", "path")}
    within = "workers" if whole is bigclf.Workers else "run_dir"
    assert parts == {name: option.default for name, option in PARTS.items() if option.within == within}


def test_every_verb_is_asked_for_the_same_options_in_the_same_way():
    given = dict(
        tol=0.01, epochs=7, seed=np.int64(3), memory="100MB", groups=2, workers=bigclf.Workers(None, threads=1)
    )
    one = asked_of_fit(None, None, given)
    grid = asked_of_sweep(None, None, {**given, "grid": {"C": [1.0, 2.0]}})
    path = asked_of_path(None, None, {**given, "C": [1.0, 2.0]})
    for name in ("tol", "epochs", "seed", "memory", "groups", "threads", "dtype", "bias"):
        assert one[name] == grid[name] == path[name], name
    assert one["memory"] == 10**8 and type(one["seed"]) is int


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("tol", 1, "tol must be at least 0 and less than 1, not 1"),
        ("tol", float("nan"), "tol must be at least 0"),
        ("epochs", True, "epochs must be a number"),
        ("epochs", float("inf"), "epochs must be a whole number of at least 1"),
        ("seed", None, "seed must be a number"),
        ("resume", "yes", "resume must be True or False"),
        ("dtype", "float16", 'dtype must be "float64" or "float32", not \'float16\''),
        ("bias", "fixed", 'bias must be "feature", "free" or "none"'),
        ("callbacks", print, "callbacks must be a list of functions"),
        ("max_seconds", 0, "max_seconds must be more than 0, not 0"),
    ],
)
def test_a_value_is_checked_where_the_option_is_declared(name, value, error):
    with pytest.raises((ValueError, TypeError)) as refusal:
        bigclf.fit(*random_rows(), **{name: value})
    assert str(refusal.value).startswith(error)


@pytest.mark.parametrize(
    ("verb", "name"), [("fit", "tol"), ("sweep", "folds"), ("path", "C"), ("sweep", "checkpoint_every")]
)
def test_docstrings_have_the_help_of_the_declaration(verb, name):
    option = options.declared(verb)[name]
    text = " ".join(inspect.getdoc(bigclf.RunDir if option.within else getattr(bigclf, verb)).split())
    assert f"{name} : {option.help}" in text.replace("  ", " ") or " ".join(option.help.split()) in text


@pytest.mark.parametrize(("more", "decoded"), [((), "L"), (("--workers", "2"), None)])
def test_plan_looks_for_decoded_rows_where_fit_does(monkeypatch, more, decoded):
    asked = []

    def prepare(request, found, groups):
        asked.append(request["local_dir"])
        raise ValueError("enough")

    monkeypatch.setattr(plan, "prepare", prepare)
    shard = str(pathlib.Path(__file__).parents[1] / "golden" / "shard-1.parquet")
    CliRunner().invoke(main, ["plan", shard, "--algo", "dcd", "--local-dir", "L", *more])
    assert asked == [decoded]


def test_the_help_of_an_option_stands_where_it_is_declared_and_nowhere_else():
    sources = [path.read_text() for path in PACKAGE.rglob("*.py")]
    for option in options.OPTIONS:
        beginning = option.help.split("\n")[0][:50]
        assert sum(beginning in source for source in sources) == 1, option.name


def test_an_option_that_is_declared_is_an_argument_a_flag_a_key_of_jobs_and_described(monkeypatch):
    """For ``fit``, ``sweep`` and ``path``: what is left to write is its use."""
    zeal = options.Option("zeal", options.Whole(), "How often to try.", "Twice is common.", default=2, section="limits",
                          verbs=options.TRAINING)  # fmt: skip
    monkeypatch.setattr(options, "OPTIONS", (*options.OPTIONS, zeal))
    more = {
        "fit": (asked_of_fit, {}),
        "sweep": (asked_of_sweep, {"grid": {"C": [1]}}),
        "path": (asked_of_path, {"C": [1]}),
    }
    for verb, (asked, given) in more.items():
        assert asked(None, None, given)["zeal"] == 2 and asked(None, None, {**given, "zeal": 3})["zeal"] == 3
        with pytest.raises(ValueError, match="zeal must be a whole number of at least 1, not 0"):
            asked(None, None, {**given, "zeal": 0})
        command = click.command(verb)(flags.of(verb)(lambda **_: None))
        (flag,) = [param for param in command.params if param.name == "zeal"]
        assert flag.opts == ["--zeal"] and flag.help == "How often to try.  [default: 2]"
        assert flags.keywords(verb, {"zeal": 3, "params": ()}) == {"zeal": 3}
        described = options.documented(verb)(SimpleNamespace(__doc__="    {options}\n")).__doc__
        assert "    zeal : How often to try. Twice is common.\n" in described
    assert "zeal" in options.in_section("limits")
