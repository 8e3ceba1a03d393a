"""Job files: one YAML file, one experiment that anyone can repeat.

A job either states ``data``, ``method``, ``limits``, ``run``, ``cluster`` and ``outputs``, or lists ``steps`` of
bigclf commands:

    data:    {source: "${BIGCLF_DATA}/a9a/a9a.gz", train: a9a/train, test: a9a/test}
    method:  {algo: dcd, loss: hinge, C: 1, bias: none}
    limits:  {memory: 256MB, tol: 1e-3}
    run:     {dir: a9a/run, groups: 4, mixing: safe, seed: 0}
    cluster: {workers: "${SCHEDULER:-2}", patience: {idle: 60}}
    outputs: {model: a9a/model.bigclf, evaluation: a9a/test.json}

    steps:
      - convert: {sources: "${BIGCLF_DATA}/a9a/a9a.gz", out: a9a/train}
      - fit: {data: a9a/train, output: a9a/model.bigclf, algo: pa1, params: {C: 0.1}}

Both become the same thing: a list of command lines, all checked before the first one runs. Nothing in a job is
executed but those commands. ``data.generate: {out: DIR, rows: N}`` makes text up where the job, or the environment it
names, has no source; aliases, tags and unknown keys are errors with their line.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import click
import yaml

from bigclf.cli.shared import columns, terminal
from bigclf.errors import BigclfError
from bigclf.files.formats import COLUMNS
from bigclf.request.options import in_section
from bigclf.texts import masked_in, remember
from bigclf.units import near, nearest

MAX_BYTES = 1_000_000
MAX_DEPTH = 20
COMMANDS = (
    "generate", "convert", "validate", "inspect", "fit", "sweep", "path", "calibrate", "evaluate", "predict", "explain",
    "report", "export", "import",
)  # fmt: skip
KEYS: dict[str, tuple[str, ...] | None] = {  # None: any key, because methods name their own parameters
    "data": ("generate", "source", "train", "test_source", "test", "convert", "columns"),
    "method": None,
    "limits": in_section("limits"),
    "run": ("dir", *in_section("run")),
    "cluster": in_section("cluster"),
    "outputs": ("model", "evaluation", "predictions", "scores", "proba", "report"),
    "steps": None,
    "name": None,
}
LEAST_TEST_ROWS = 100
NOT_OF_METHOD = ("data", "model", "params", *in_section(""), "overwrite", "as_json", "report")
CLUSTERED = ("fit", "sweep", "path", "evaluate")  # commands that a Dask cluster can do
TRAINING = ("fit", "sweep", "path")
SECTIONS = ("method", "limits", "run", "cluster", "outputs", "data")
_PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "timestamp")}
Key: TypeAlias = str | int
Place: TypeAlias = tuple[Key, ...]  # the keys that lead there
_NAME = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})")


class JobError(BigclfError):
    """A job file that cannot be understood; the message begins with the file and the line."""

    exit_code = 2


class Step(NamedTuple):
    """One command of a job: its name, its words, where it came from and where each of its options did; ``keys`` : that
    lead to it."""

    command: str
    words: list[str]
    place: str
    places: dict[str, str]
    keys: Place = ()

    def key_of(self, param: click.Parameter) -> str | None:
        """What the job calls an option of the command; None where it has no key for it."""
        name = key_of(param)
        if self.keys[:1] == ("steps",):
            return name
        if self.keys == ("data", "convert"):
            return f"data.convert.{name}"
        if self.keys != ("method",):
            return None
        section = _section_of(name)
        return f"{section}.{name}" if section else f"method.{name}" if name in method_keys() else None


class Job:
    """A job file, read and checked key by key.

    Large because each key is checked by a method of its own, which knows the line it stands in.

    Attributes
    ----------
    table : the content with environment names expanded and overrides applied.
    """

    def __init__(self, text: str, path: str = "job", environ: dict[str, str] | None = None) -> None:
        self.path = path
        self._lines: dict[Place, int] = {}
        self._assigned: dict[Place, str] = {}  # by --set: what was said
        self._seen: set[int] = set()
        self._environ = dict(os.environ) if environ is None else environ
        self.table: dict[str, Any] = self._read(text)
        remember(value for _, value in _leaves(self.table))
        self._check_keys()

    def fail(self, message: str, *place: Key) -> JobError:
        """An error at ``place`` (a path of keys)."""
        return JobError(f"{self.where(*place)}: {message}")

    def where(self, *place: Key) -> str:
        """Where the value at ``place`` was said: with --set, or the line of the file, that of the nearest key above."""
        for keys, text in reversed(self._assigned.items()):
            if place[: len(keys)] == keys or (keys[: len(place)] == place and place not in self._lines):
                return f"--set {text}"
        while place and place not in self._lines:
            place = place[:-1]
        line = self._lines.get(place)
        return f"{self.path}, line {line}" if line else self.path

    def place_of(self, text: str) -> Place:
        """The keys that lead to the value that is ``text``, or its beginning; () where none is."""
        leaves = [(place, value) for place, value in _leaves(self.table) if isinstance(value, str) and value]
        return max(((place, value) for place, value in leaves if text.startswith(value)),
                   key=lambda found: len(found[1]), default=((), ""))[0]  # fmt: skip

    # Reading

    def _read(self, text: str) -> dict[str, object]:
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
            table = self._value(node, ()) if node is not None else None
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else "?"
            hint = '; write "${NAME}" in quotes inside { }' if "${" in text and "'{'" in str(error.problem) else ""
            raise JobError(f"{self.path}, line {line}: not readable as YAML: {error.problem}{hint}") from None
        except (yaml.YAMLError, RecursionError) as error:
            raise JobError(f"{self.path}: not readable as YAML: {error}") from None
        if not isinstance(table, dict) or not table:
            raise JobError(f"{self.path}: a job is a table with the keys {', '.join(KEYS)}")
        return table

    def _value(self, node: yaml.Node, place: Place) -> object:
        line = self._lines.setdefault(place, node.start_mark.line + 1)
        if len(place) > MAX_DEPTH:
            raise JobError(f"{self.path}, line {line}: nested too deeply")
        if id(node) in self._seen:
            raise JobError(f"{self.path}, line {line}: aliases (*name) are not allowed in a job file")
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode) and node.tag.endswith(":map"):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode) and node.tag.endswith(":seq"):
            return [self._value(item, (*place, k)) for k, item in enumerate(node.value)]
        if node.tag not in _PLAIN_TAGS:
            raise JobError(f"{self.path}, line {line}: the tag {node.tag} is not allowed in a job file")
        value = _scalar(node)
        return self._expand(value, place) if isinstance(value, str) else value

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, object]:
        table: dict[str, object] = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key == "<<":
                raise JobError(f"{self.path}, line {line}: a key must be plain text")
            if key in table:
                raise JobError(f"{self.path}, line {line}: {key!r} appears twice")
            self._lines[(*place, key)] = line
            table[key] = self._value(value_node, (*place, key))
        return table

    def _expand(self, text: str, place: Place) -> str:
        """``${NAME}``, ``${NAME:-default}`` and ``$$`` in ``text``."""

        def value(match: re.Match[str]) -> str:
            name, default = match.groups()
            if name is None:
                return "$"
            if name not in self._environ and default is None:
                raise self.fail(f"the environment has no {name}; set it, or write ${{{name}:-default}}", *place)
            return self._environ.get(name) or default or ""

        return _NAME.sub(value, text)

    # Checking

    def _check_keys(self) -> None:
        for key, section in self.table.items():
            if key not in KEYS:
                inside = [f"{name}.{key}" for name, own in KEYS.items() if key in (own or ())]
                meant = f"; did you mean {inside[0]}? " if inside else _meant(key, KEYS)
                raise self.fail(f"unknown key {key!r}{meant}allowed keys: {', '.join(KEYS)}", key)
            if key not in ("name", "steps") and not isinstance(section, dict):
                raise self.fail(f"{key!r} must be a table of keys and values", key)
            for name in section if KEYS[key] is not None else ():
                if name not in (own := KEYS[key] or ()):
                    elsewhere = key != "method" and name in method_keys()
                    meant = f"; did you mean method.{name}? " if elsewhere else _meant(name, own)
                    raise self.fail(f"unknown key '{key}.{name}'{meant}{key} has {', '.join(own)}", key, name)
        for key, name in (("outputs", "model"), ("run", "dir")):
            if isinstance(value := (self.table.get(key) or {}).get(name), list | dict):
                raise self.fail(f"'{key}.{name}' takes one value, not {_kind(value)}", key, name)
        self._check_patience()
        if "steps" in self.table:
            self._check_steps()
        elif "train" not in self.table.get("data", {}):
            raise self.fail("says nothing to do: give data.train (shards), or steps", "data")

    def _check_patience(self) -> None:
        cluster = self.table.get("cluster", {})
        patience = cluster.get("patience")
        if patience is None:
            return
        if not isinstance(patience, dict):
            raise self.fail("'cluster.patience' must be a table of keys and values", "cluster", "patience")
        for name, value in patience.items():
            if reason := terminal.wrong_patience(name, terminal.number_or(value)):
                raise self.fail(f"cluster.patience: {reason}", "cluster", "patience", name)

    def _check_steps(self) -> None:
        clash = [key for key in ("data", "method", "limits", "cluster", "outputs") if key in self.table]
        if clash:
            place = clash[0] if ("steps",) in self._lines else "steps"
            raise self.fail(f"has both 'steps' and {clash[0]!r}; write one or the other", place)
        steps = self.table["steps"]
        if not isinstance(steps, list) or not steps:
            raise self.fail("'steps' must be a list of commands", "steps")
        for k, step in enumerate(steps):
            if not isinstance(step, dict) or len(step) != 1 or not isinstance(next(iter(step.values())), dict):
                raise self.fail("a step is one command and its table of options", "steps", k)
            if (name := next(iter(step))) not in COMMANDS:
                meant = _meant(name, COMMANDS)
                raise self.fail(f"unknown command {name!r}{meant}a step is one of {', '.join(COMMANDS)}",
                                "steps", k, name)  # fmt: skip

    # Changing

    def override(self, assignments: tuple[str, ...]) -> None:
        """Apply ``path.to.key=value`` texts; ``model.`` is another word for ``method.``"""
        for text in assignments:
            path, equals, value = text.partition("=")
            if not equals:
                raise JobError(f"--set {text}: write path.to.key=value")
            keys: list[Key] = [int(key) if key.isdecimal() else key for key in path.split(".")]
            if keys[0] == "model":
                keys[0] = "method"
            self._assign(keys, yaml.safe_load(value) if value else None, text)
        self._check_keys()

    def _assign(self, keys: list[Key], value: object, text: str) -> None:
        table: Any = self.table
        for key in keys[:-1]:
            if isinstance(table, dict):
                table = table.setdefault(key, {})
            elif isinstance(table, list) and isinstance(key, int) and key < len(table):
                table = table[key]
            else:
                raise JobError(f"--set {text}: there is no {key!r} in the job")
        if not isinstance(table, dict):
            raise JobError(f"--set {text}: {'.'.join(map(str, keys[:-1]))!r} is not a table")
        table[keys[-1]] = value
        self._assigned.pop(tuple(keys), None)  # the last comes last
        self._assigned[tuple(keys)] = text

    def on_cluster(self, address: str) -> None:
        """Have everything that a cluster can do done by the one at ``address``.

        Raises
        ------
        JobError : it does not say in how many groups: they would be as many as the workers that happen to be there.
        """
        if "steps" not in self.table:
            self._require_groups(self.table.get("run", {}), "run")
            self.table["cluster"] = {**(self.table.get("cluster") or {}), "workers": address}
            return
        for k, step in enumerate(self.table["steps"]):
            for name, options in step.items():
                if name in TRAINING:
                    self._require_groups(options, "steps", k, name)
                if name in CLUSTERED:
                    options["workers"] = address

    def _require_groups(self, options: dict[str, object], *place: Key) -> None:
        if options.get("groups") is None:
            where = "run.groups" if place[0] == "run" else "groups"
            raise self.fail(
                f"does not say {where}: the result depends on it, and a cluster would use one group per worker; "
                f"set it ({where}=1 is what `bigclf run` takes)", *place
            )  # fmt: skip

    # What it stands for

    @property
    def run_dir(self) -> str | None:
        run = self.table.get("run", {})
        if run.get("dir"):
            return str(run["dir"])
        return None if "steps" in self.table else f"{self._model()}.run"

    def _model(self) -> str:
        return str(self.table.get("outputs", {}).get("model") or "model.bigclf")

    def resolved(self) -> str:
        """The job as YAML, with nothing left to look up but secrets in URLs."""
        return yaml.safe_dump(masked_in(self.table), sort_keys=False, allow_unicode=True)

    def steps(self, exists: Callable[[str], bool]) -> list[Step]:
        """The commands of the job; shards that ``exists`` are not made again.

        Raises
        ------
        JobError : a key that its command does not have.
        """
        if "steps" in self.table:
            return [
                self._step(name, options, ("steps", k, name))
                for k, step in enumerate(self.table["steps"])
                for name, options in step.items()
            ]
        return list(self._section_steps(exists))

    def _section_steps(self, exists: Callable[[str], bool]) -> Iterator[Step]:
        data, outputs, cluster = self.table["data"], self.table.get("outputs", {}), self._cluster()
        memory = self.table.get("limits", {}).get("memory")
        for part, (source, shards) in enumerate((("source", "train"), ("test_source", "test")), 1):
            text = data.get(source) or self._made_up(part)
            if text:
                if not data.get(shards):
                    raise self.fail(f"data.{source} needs data.{shards}: where its shards go", "data", source)
                if not exists(str(data[shards])):
                    if not data.get(source) and not exists(str(text)):
                        yield self._step("generate", self._generating(str(text), part), ("data", "generate"))
                    options = {"sources": text, "out": data[shards], "memory": memory}
                    options |= data.get("convert") or {}
                    if part == 2 and _of_columns(options):
                        options = {k: v for k, v in options.items() if k not in columns.OPTIONS and k != "format"}
                        options["features_of"] = data["train"]
                    yield self._step("convert", options, ("data", "convert"))
        yield self._step("fit", self._fit_options(), ("method",))
        model, test = self._model(), data.get("test")
        for key in ("evaluation", "predictions"):
            if outputs.get(key) and not test:
                raise self.fail(f"outputs.{key} needs data.test", "outputs", key)
        bad = {} if data.get("test_source") or self._made_up(2) else self._of_bad_rows(test)  # else these are shards
        if test:
            options = {"model": model, "data": test, "memory": memory, "output": outputs.get("evaluation")}
            yield self._step("evaluate", options | cluster | bad, ("outputs",))
        if outputs.get("predictions"):
            options = {"model": model, "data": test, "memory": memory, "output": outputs["predictions"]}
            flags = {key: outputs[key] for key in ("scores", "proba") if key in outputs}
            yield self._step("predict", {**options, **flags}, ("outputs",))
        if outputs.get("report"):
            options = {"run": self.run_dir, "output": outputs["report"], "data": test, "memory": memory}
            yield self._step("report", options | bad, ("outputs",))

    def _of_bad_rows(self, test: object) -> dict[str, object]:
        """What becomes of bad rows to test on, where these are raw files: the same as of those to learn from."""
        method = self.table.get("method", {})
        said = {name: method[name] for name in ("on_bad_rows", "max_bad_fraction") if name in method}
        with contextlib.suppress(BigclfError, OSError):  # whoever opens it says what is wrong
            return said if said and test and columns.is_raw(test) else {}
        return {}

    def _made_up(self, part: int) -> str | None:
        """Text that is made up where the job names no source: rows to train on (part 1), or to test on (2)."""
        from bigclf import files

        data = self.table["data"]
        if not data.get("generate") or data.get("source") or not data.get(("train", "test")[part - 1]):
            return None
        if not isinstance(data["generate"], dict) or not data["generate"].get("out"):
            raise self.fail("data.generate needs out: a directory for the text", "data", "generate")
        return files.join(str(data["generate"]["out"]), f"{('train', 'test')[part - 1]}.svm")

    def _generating(self, text: str, part: int) -> dict[str, object]:
        options = {**self.table["data"]["generate"], "out": text, "part": part}
        if part == 2:
            options["rows"] = max(LEAST_TEST_ROWS, int(options.get("rows") or 0) // 10)
        return options

    def _fit_options(self) -> dict[str, object]:
        from bigclf.cli.fit import command

        run = {key: value for key, value in self.table.get("run", {}).items() if key != "dir"}
        data = self.table["data"]
        known = set(method_keys())
        given = dict(self.table.get("method", {}))
        if "bias" in given:
            given["bias"] = given["bias"] or "none"
        for key in given:
            if section := _section_of(key):
                raise self.fail(f"'method.{key}' belongs to {section!r}: write {section}.{key}", "method", key)
            if _param(command, key) is not None and key not in known:
                raise self.fail(f"'method.{key}' has no place in a job: its commands set it", "method", key)
        options = {key: value for key, value in given.items() if key in known}
        own = {key: value for key, value in given.items() if key not in known}
        self._check_params(str(given.get("algo", "auto")), own)
        options["params"] = own
        if data.get("columns"):
            if not isinstance(data["columns"], dict):
                what = "'data.columns' says for each role which column has it, such as {label: y}"
                raise self.fail(f"{what}, not {data['columns']!r}", "data", "columns")
            for role, name in data["columns"].items():
                if name is None or isinstance(name, list | dict) or "," in str(name):
                    raise self.fail(f"'data.columns' names one column for {role!r}, without a comma, not {name!r}",
                                    "data", "columns", role)  # fmt: skip
            options["columns"] = ",".join(f"{role}={name}" for role, name in data["columns"].items())
        limits, cluster = self.table.get("limits", {}), self._cluster()
        first = {"data": data["train"], "output": self._model()}
        return {**first, **options, **limits, **run, **cluster, "run_dir": self.run_dir}

    def _cluster(self) -> dict[str, object]:
        """Its options; where this process does the work, as to go on without workers, not how long they are waited
        for."""
        told: dict[str, Any] = dict(self.table.get("cluster") or {})
        if told.get("patience") and terminal.number_or(told.get("workers")) in (None, 1):
            if told.get("workers") is None and not self._is_set(("cluster", "workers")):
                raise self.fail("cluster.patience has no effect without cluster.workers", "cluster", "patience")
            del told["patience"]
        return told

    def _check_params(self, algo: str, params: dict[str, object]) -> None:
        own, has = _params_of(algo)
        for key in params:
            if key not in own:
                sections = {one: name for name in ("limits", "run", "cluster") for one in KEYS[name] or ()}
                alike = nearest(key, sections)
                meant = f"; did you mean {sections[alike]}.{alike}? " if alike else _meant(key, [*own, *method_keys()])
                raise self.fail(f"unknown key 'method.{key}'{meant}{has}", "method", key)

    def _step(self, name: str, options: dict[str, object], place: Place) -> Step:
        from bigclf.cli import main

        command = main.get_command(click.Context(main), name)
        assert command is not None
        if name in TRAINING:
            self._check_training(options, place)
        words: list[str] = []
        places: dict[str, str] = {}
        for key, value in options.items():
            param = _param(command, key)
            if param is None:
                known = sorted(key_of(param) for param in command.params)
                meant = f"; did you mean {alike}? " if (alike := _alike(key, known, place)) else _meant(key, known)
                raise self.fail(f"unknown key {key!r} of {name}{meant}allowed keys: {', '.join(known)}", *place, key)
            if (where := self._where(key, place)) is not None:
                places[param.name or key] = where
            if isinstance(value, list | dict) and not takes_many(param):
                raise self.fail(f"{key!r} of {name} takes one value, not {_kind(value)}", *place, key)
            self._check_listed(name, key, param, value, place)
            words += _words(param, value)
        return Step(name, words, self.where(*place), places, place)

    def _check_listed(self, name: str, key: str, param: click.Parameter, value: object, place: Place) -> None:
        """Items of a list, where each can stand in a command line."""
        if isinstance(param, click.Argument):
            self._check_paths(name, key, value, place)
            return
        if not isinstance(value, list | dict) or not _takes_commas(param):
            return
        if not value:
            raise self.fail(f"{key!r} of {name} is empty: leave it out, or name one", *place, key)
        for item in [*value, *(value.values() if isinstance(value, dict) else ())]:
            if item is None or isinstance(item, list | dict):
                raise self.fail(f"{key!r} of {name} lists single values, not {item!r}", *place, key)
            if "," in str(item):
                by_spec = "; a spec (spec: FILE.yaml) takes such a column" if param.name in BY_COMMAS else ""
                raise self.fail(f"{key!r} of {name} cannot have {item!r}, which has a comma{by_spec}", *place, key)

    def _check_paths(self, name: str, key: str, value: object, place: Place) -> None:
        """What a command takes without the name of an option."""
        said = (("data", one) for one, told in self.table.get("data", {}).items() if told is value)
        where: Place = next(said, (*place, key))
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, list | dict) or (item is None and isinstance(value, list)):
                raise self.fail(f"{key!r} of {name} lists single values, not {item!r}", *where)
            if isinstance(item, str) and item[:1] == "-" and item != "-":
                raise self.fail(
                    f"{key!r} of {name} cannot be {item!r}, which reads as an option; write ./{item}", *where
                )

    def _check_training(self, options: dict[str, Any], place: Place) -> None:
        """The method, its parameters and the grid of one training, as far as they can be known beforehand."""
        from bigclf.methods import METHODS, unknown_algo

        algo = options.get("algo")
        if algo is not None and algo != "auto" and algo not in METHODS:
            raise self.fail(f"{unknown_algo(algo)} (see bigclf algorithms)", *place, "algo")
        self._check_loss(algo, options, place)
        for key in ("params", "param", "grid"):
            table = options.get(key)
            if table is not None and not isinstance(table, dict) and key != "param":
                raise self.fail(f"{key!r} must be a table of names and values", *place, key)
            if isinstance(table, dict) and (algo in METHODS or key != "grid"):
                self._check_names(str(algo or "auto"), table, key, *place, key)
        for name, values in (options.get("grid") or {}).items():
            if not isinstance(values, list) or not values:
                raise self.fail(f"the grid of {name!r} must be a list of values, such as [0.1, 1, 10]",
                                *place, "grid", name)  # fmt: skip

    def _check_loss(self, algo: Any, options: dict[str, Any], place: Place) -> None:
        """Loss and penalty that the method has."""
        from bigclf.methods import METHODS, native

        if algo not in METHODS:
            return
        try:
            method = METHODS[native(algo, options.get("multiclass") or "auto")]
        except ValueError as error:
            raise self.fail(str(error), *place, "multiclass") from None
        for key, known in (("loss", method.losses), ("penalty", method.penalties or ("l2",))):
            value = options.get(key)
            if isinstance(value, str) and value not in known:
                choices = f"; choose from {', '.join(known)}{near(value, known)}"
                has = choices if known else f", which has a {key} of its own"
                raise self.fail(f"{key} {value!r} is not available with {algo}{has}", *place, key)

    def _check_names(self, algo: str, table: dict[str, object], key: str, *place: Key) -> None:
        """Names in ``params`` or ``grid`` that the method has."""
        own, has = _params_of(algo, ["loss"] * (key == "grid"))
        for name in table:
            if name not in own:
                raise self.fail(f"unknown parameter {name!r} in {key!r}{_meant(name, own)}{has}", *place, name)

    def _is_set(self, place: Place) -> bool:
        """Whether --set said the value at ``place``, by itself or in a table."""
        found: Any = self.table
        for key in place:
            there = range(len(found)) if isinstance(found, list) else found if isinstance(found, dict) else ()
            if key not in there:
                return False
            found = found[key]
        return any(place[:n] in self._assigned for n in range(1, len(place) + 1))

    def _where(self, key: str, place: Place) -> str | None:
        """Where an option of a step was said; None where nothing in the job says it."""
        for section in (place, *((key,) for key in SECTIONS), ("data", "convert")):
            where = (*section, key)
            if where in self._lines or self._is_set(where):
                return self.where(*where)
        return None


def _meant(name: object, known: Iterable[str]) -> str:
    """What stands between an unknown name and those that are known: which was meant, where one is nearly it."""
    return f"{meant} " if (meant := near(name, known)) else "; "


def _params_of(algo: str, besides: Iterable[str] = ()) -> tuple[list[str], str]:
    """The parameters of a method, and a sentence that lists them; of "auto", which shows when the data are looked at,
    those of all methods."""
    from bigclf.methods import METHODS

    if algo in METHODS:
        own = [*(param.name for param in METHODS[algo].params), *besides]
        return own, f"{algo} has {', '.join(own)}" if own else f"{algo} has no parameters of its own"
    every = dict.fromkeys(param.name for method in METHODS.values() for param in method.params)
    return [*every, *besides], "no method has it"


BY_COMMAS = ("numeric", "categorical", "text", "date")  # options that a spec file may stand for
ALIKE = (("data", "source", "sources", "input", "rows"), ("out", "output"))  # keys of what is read, and of what is made


def _alike(key: str, known: Collection[str], place: Place) -> str:
    """The key of a command, or of the section ``data`` that stands for it, that is called ``key`` elsewhere."""
    group = next((group for group in ALIKE if key in group), ())
    found = next((name for name in group if name in known), "")
    in_data = {"sources": "data.source", "out": "data.train"} if place == ("data", "convert") else {}
    return in_data.get(found, found)


def _of_columns(options: Mapping[str, object]) -> bool:
    """Whether a conversion makes features of raw columns."""

    return options.get("format") in COLUMNS or bool({"spec", "features_of", "label"} & options.keys())


def method_keys() -> list[str]:
    """Options of ``fit`` that the section ``method`` may have, beside the parameters of its method."""
    from bigclf.cli.fit import command

    keys = [key_of(param) for param in command.params if param.name not in NOT_OF_METHOD]
    return [key for key in keys if not _section_of(key)]


def _section_of(key: str) -> str | None:
    """The section other than ``method`` that an option of ``fit`` belongs to."""
    return next((name for name in ("limits", "run", "cluster") if key in (KEYS[name] or ())), None)


def read_job(path: str) -> Job:
    """The job file at ``path``.

    Raises
    ------
    JobError : missing, too large, or not a job.
    """
    from bigclf import files

    if not files.exists(path) or files.is_directory(path):
        near_it = files.meant(path)
        raise JobError(f"{path}: no such job file" + (f"; did you mean {near_it!r}?" if near_it else ""))
    if files.file_size(path) > MAX_BYTES:
        raise JobError(f"{path}: larger than {MAX_BYTES:,} bytes; that is no job file")
    try:
        text = files.read_text(path)
    except UnicodeDecodeError:
        raise JobError(f"{path}: not text in UTF-8") from None
    return Job(text, path)


def _leaves(value: object, place: Place = ()) -> Iterator[tuple[Place, object]]:
    """(keys that lead there, value) of all that is not a table and no list."""
    if not isinstance(value, dict | list):
        yield place, value
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _leaves(inner, (*place, key))


def _scalar(node: yaml.Node) -> object:
    if node.tag.endswith(":timestamp"):  # a date is text here
        return node.value
    return yaml.constructor.SafeConstructor().construct_object(node)


def _param(command: click.Command, key: str) -> click.Parameter | None:
    """The parameter of ``command`` that a job calls ``key``: its long option, or its name."""
    wanted = key.replace("-", "_")
    return next((param for param in command.params if wanted in (key_of(param), param.name)), None)


def key_of(param: click.Parameter) -> str:
    if isinstance(param, click.Option):
        return param.opts[-1].lstrip("-").replace("-", "_")
    return param.name or ""


def _words(param: click.Parameter, value: object) -> list[str]:
    """``value`` as words of a command line: tables become NAME=VALUE, lists repeat, null is left out."""
    if value is None:
        return []
    if isinstance(param, click.Option) and param.is_flag:
        if value not in (True, False):
            return [f"{param.opts[-1]}={value}"]  # click says that a flag takes no value
        return [(param.opts if value else param.secondary_opts)[-1]] if value or param.secondary_opts else []
    if isinstance(value, dict):
        value = [f"{name}={_text(item)}" for name, item in value.items() if item is not None]
    items = value
    items = items if isinstance(items, list) else [items]
    if _takes_commas(param):
        items = [",".join(map(_text, items))]
    if isinstance(param, click.Option):
        return [f"{param.opts[-1]}={_text(item)}" for item in items]
    return [_text(item) for item in items]


def takes_many(param: click.Parameter) -> bool:
    """Whether a list or a table makes sense: an option that may be repeated, or one of values between commas."""
    return param.nargs == -1 or bool(getattr(param, "multiple", False)) or _takes_commas(param)


def _takes_commas(param: click.Parameter) -> bool:
    return not getattr(param, "multiple", False) and ",..." in (getattr(param, "metavar", None) or "")


def _kind(value: object) -> str:
    return "a table" if isinstance(value, dict) else "a list"


def _text(value: object) -> str:
    if isinstance(value, list):  # values of a grid
        return f"[{', '.join(map(_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
