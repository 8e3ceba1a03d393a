"""The options of all commands that take raw tables and texts, and the spec they stand for."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, TypedDict, TypeGuard, TypeVar

import click

from bigclf.cli.shared import terminal
from bigclf.data.bad_rows import MOST_BAD, too_many_with_held
from bigclf.errors import BigclfError, DataError, SchemaError
from bigclf.files.formats import ALL, COLUMNS, SPARSE

if TYPE_CHECKING:
    from bigclf.data.dataset import Dataset, Stored
    from bigclf.features.spec import Spec
    from bigclf.files import Paths
    from bigclf.model.model import Model


Features: TypeAlias = "Spec | Model | Dataset"  # what says which features raw columns become
Command = TypeVar("Command", bound=Callable[..., object])
READER = ("header", "names", "skip_lines", "separator", "decimal", "encoding", "multiline")
LABEL = ("label", "label_separator")
AS_THEY_ARE = (
    "all columns of {} are numbers: they are the features as they are, not scaled, and the model takes Parquet with"
    " these columns; to read it as a table, as CSV is, add --format parquet"
)
OPTIONS = ("spec", "features_of", *LABEL, "numeric", "categorical", "text", "date", "hash_bits", *READER)


def reader_options(command: Command) -> Command:
    """Add the options that say how raw files are read."""
    options = [
        click.option("--header/--no-header", default=None, help="The first line names the columns (otherwise they are"
                     " named 0, 1, 2, ...)."),
        click.option("--names", cls=terminal.Listed, metavar="A,B,...", help="Column names."),
        click.option("--skip-lines", type=click.IntRange(0), metavar="N", help="Skip N lines before the table, such as"
                     " a title (csv, tsv)."),
        click.option("--separator", metavar="CHAR", help="Field separator  [default: , or for tsv a tab]"),
        click.option("--decimal", metavar="CHAR", type=click.Choice([".", ","]), help="Decimal mark of numbers in csv"
                     " and tsv  [default: .]"),
        click.option("--encoding", metavar="NAME", help="Encoding of text that is not UTF-8, such as latin-1."),
        click.option("--multiline", is_flag=True, default=None, help="Allow line breaks in quoted fields."),
    ]  # fmt: skip
    return terminal.with_options(options, command)


def columns_options(command: Command) -> Command:
    """Add the options that say what becomes of raw columns, and how they are read."""
    options = [
        click.option("--spec", metavar="FILE.yaml", help="Which features to make from the raw columns, and how to"
                     " read them."),
        click.option("--features-of", metavar="MODEL|SHARDS", help="Make the same features as a model or shards, with"
                     " their means, categories and vocabulary."),
        click.option("--label", metavar="COL", multiple=True, callback=columns_named, help="Column to predict. Given"
                     " more than once, a row has several labels: the values of these columns, or the names of those"
                     " that hold 1."),
        click.option("--label-separator", metavar="TEXT", help="What stands between the labels in a cell of the label"
                     " column, such as ';': a row then has several."),
        click.option("--numeric", cls=terminal.Listed, metavar="A,B,...", help="Numeric columns, standardised."),
        click.option("--categorical", cls=terminal.Listed, metavar="C,D,...", help="Categorical columns."),
        click.option("--text", cls=terminal.Listed, metavar="T,...", help="Text columns, as tf-idf of words."),
        click.option("--date", cls=terminal.Listed, metavar="E,...", help="Date columns."),
        click.option("--hash-bits", type=click.IntRange(1, 30), metavar="N", help="Hash every category (and Vowpal"
                     " Wabbit feature names) to 2^N features."),
    ]  # fmt: skip
    return terminal.with_options(options, reader_options(command))


def raw_options(command: Command) -> Command:
    """Add what a command that trains needs to take raw files."""
    options: list[Callable[[Command], Command]] = [
        click.option("--format", help=f"Format of raw DATA: {ALL}; it is converted to shards in a cache."),
        columns_options,
        bad_rows_options,
    ]
    return terminal.with_options(options, command)


def format_option(command: Command) -> Command:
    """Add what says how raw files are read where their names do not."""
    return click.option("--format", help=f"Format of raw DATA: {', '.join(SPARSE)} or MODULE:FUNCTION; for a model"
                        f" trained on raw columns: {', '.join(COLUMNS)}  [default: by the file's name, else svmlight or"
                        " the format of the training files]")(command)  # fmt: skip


def bad_rows_options(command: Command) -> Command:
    """Add what becomes of raw rows that cannot be used."""
    options = [
        click.option("--on-bad-rows", type=click.Choice(["error", "skip", "quarantine"]), metavar="[error|skip]",
                     callback=_not_quarantine, help="What to do with raw rows that cannot be used  [default:"
                     " error]"),
        click.option("--max-bad-fraction", type=click.FloatRange(0, 1), help="Fail if more than this share of raw rows"
                     f" is skipped  [default: {MOST_BAD}]"),
    ]  # fmt: skip
    return terminal.with_options(options, command)


def _not_quarantine(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value == "quarantine":
        raise click.UsageError("--on-bad-rows quarantine is for `bigclf convert`, which keeps bad rows in a file beside"
                               " its shards; convert first, or use skip", ctx)  # fmt: skip
    return value


class OfBadRows(TypedDict, total=False):
    """What becomes of bad rows and how many there may be, as keywords of what reads."""

    on_bad_rows: str
    max_bad_fraction: float


NOTHING_SAID: OfBadRows = {"on_bad_rows": "error"}


class Asked(NamedTuple):
    """What was said of raw files: their format, options of columns, what becomes of bad rows and how many there may
    be; and, once they were looked at, the columns that nothing is learned from, each with the reason."""

    format: str | None
    said: dict[str, Any]
    bad: str | None
    most_bad: float | None
    left_out: list[tuple[str, str]]

    @classmethod
    def taken(cls, options: dict[str, Any]) -> Asked:
        """Taken out of the options of a command."""
        return cls(options.pop("format"), taken(options), options.pop("on_bad_rows"),
                   options.pop("max_bad_fraction"), [])  # fmt: skip

    def of_bad_rows(self) -> OfBadRows:
        """As keywords of what converts."""
        return _bad_rows(self.bad, self.most_bad)

    def settled(
        self, data: list[str], keywords: dict[str, object], holdout: float | None = None
    ) -> tuple[str | None, Features | None]:
        """Format and spec of the files; None for shards and for columns of numbers, whose names ``keywords`` then tell,
        and no spec for rows that are sparse already."""
        with terminal.usage_errors():
            if not (self.format or holdout or "columns" in keywords) and self.said.keys() == {"label"}:
                from bigclf.conversion.tables.plain import are_plain

                label = self.said["label"]
                if isinstance(label, str) and are_plain(data, label):  # as `fit(data, y=...)` takes them
                    keywords["columns"] = {"features": "*", "label": self.said.pop("label")}
                    terminal.say("note:", AS_THEY_ARE.format(data[0]), "yellow")
                    return None, None
            form = self.format or ("spec" not in self.said and format_by_name(data, self.said)) or None
            if form and "columns" in keywords:
                raise click.UsageError("--columns names the columns of Parquet that is read as it is; of a raw table, "
                                       "name them with --label and the like instead")  # fmt: skip
            return form, features_of(self.said, data, form, self.left_out)

    def refuse_holdout(self, data: Sequence[str], form: str | None, names: Mapping[str, str]) -> NoReturn:
        """UsageError naming the commands that hold a part of other rows out; ``names`` : of columns, by role."""
        from bigclf.model.raw_input import have_several_labels

        rows, first = shlex.join(data), ""
        if form:
            options = [] if self.format is None else ["--format", self.format]
            options += ["--several-labels"] if have_several_labels(list(data), form) else []
            first, rows = f"`{' '.join(['bigclf convert', rows, 'shards', *options])}`, ", "shards"
        named = shlex.join(["--columns", ",".join("=".join(pair) for pair in names.items())]) if names else ""
        raise click.UsageError("--holdout is for raw tables and texts: --format csv, tsv, jsonl, text or parquet; of "
                               f"other rows, hold a part out first: {first}"
                               f"`{f'bigclf split {rows} parts {named}'.rstrip()}`, then fit parts/train "
                               "--evaluate parts/test")  # fmt: skip

    def refuse_without_features(self, form: str | None) -> None:
        """UsageError naming the first option that has no effect on shards."""
        bad = ("on-bad-rows", self.bad), ("max-bad-fraction", self.most_bad)
        for name, there in (*bad, ("format", form or None), *self.said.items()):
            if there is not None:
                option = "--" + name.replace("_", "-")
                raise click.UsageError(f"{option} is for raw tables and texts: --format csv, tsv, jsonl, text or "
                                       "parquet; for other text, run `bigclf convert` first")  # fmt: skip

    def shards(self, verb: str, data: list[str], keywords: dict[str, object]) -> Stored:
        """The data as they are, or raw files as shards of the cache, and so the validation data of ``keywords``."""
        from bigclf.request.door import refuse_several_labels, tell_several_labels

        form, features = self.settled(data, keywords)
        with terminal.usage_errors():
            refuse_several_labels(verb, tell_several_labels(features, form, data))
        if features is not None:
            return converted(data, features, form, keywords, None, self.of_bad_rows())
        if form and not self.said.keys() - {"hash_bits"}:
            bits, said = self.said.get("hash_bits"), self.format is not None
            return sparse(data, None, form, keywords, self.of_bad_rows(), bits, said)[0]
        self.refuse_without_features(form)
        return data if len(data) > 1 else data[0]


def bad_rows(options: dict[str, Any]) -> OfBadRows:
    """What was said of bad rows, taken out of the options of a command, as keywords of what measures."""
    return _bad_rows(options.pop("on_bad_rows"), options.pop("max_bad_fraction"))


def _bad_rows(bad: str | None, most: float | None) -> OfBadRows:
    said: OfBadRows = {"on_bad_rows": bad or "error"}
    return said if most is None else {**said, "max_bad_fraction": most}


def as_read(model: Model, options: dict[str, Any]) -> Model:
    """The model for raw files that are read as these options, taken out of ``options``, say."""
    form, said = options.pop("format", None), taken(options)
    if not said and form is None:
        return model
    with terminal.usage_errors():
        return model.reading(_reader(said, form))


def taken(options: dict[str, object]) -> dict[str, object]:
    """The options of this module that were said, taken out of ``options``."""
    return {name: value for name in OPTIONS if (value := options.pop(name, None)) is not None}


def columns_named(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> str | list[str] | None:
    """A column, several, or none."""
    return list(value) if len(value) > 1 else value[0] if value else None


def label_of(said: Mapping[str, object], known: Mapping[str, object] | None = None) -> object:
    """What the options say of the label as a spec has it, where a spec says ``known``; None: nothing.

    Raises
    ------
    click.UsageError : a separator, and no column.
    """
    separator = said.get("label_separator")
    if separator is None:
        return said.get("label", known)
    if (column := said.get("label", (known or {}).get("column"))) is None:
        raise click.UsageError("--label-separator needs the column: --label COL")
    return {**(known or {}), "column": column, "separator": separator}


def format_by_name(data: list[str], said: Mapping[str, object]) -> str | None:
    """The format that the first file's name tells, compressed or not, else "svmlight" of text where no columns are
    named; None of Parquet, or where other shards say it.

    Raises
    ------
    SchemaError : others tell another one.
    """
    if "features_of" in said:
        return None
    from bigclf.conversion.tables import reading as tables

    path = data[0]
    if path.endswith((".yaml", ".yml")):
        raise SchemaError("is YAML: a job, whose commands `bigclf run JOB.yaml --dry-run` prints, or a spec, for "
                          "--spec; here rows are wanted", file=path)  # fmt: skip
    if len(data) > 1:
        tables.refuse_several(data)
    form = tables.format_by_name(path)
    if form is None and said.keys() <= {"hash_bits"}:
        with contextlib.suppress(BigclfError, OSError):  # whoever opens it tells what is wrong
            return tables.format_by_look(tables.places(path)[0].path)
    return form


def features_of(
    said: dict[str, Any], data: list[str], format: str | None, left_out: list[tuple[str, str]] | None = None
) -> Features | None:
    """The spec that the options stand for; None: none was asked for, and the data are features already.

    Where neither a spec nor columns are named, one is proposed from the data, and ``left_out`` gets the columns that
    nothing is to be learned from, each with the reason.

    Raises
    ------
    click.UsageError : options that contradict each other. DataError, SchemaError : as ``suggest``.
    """
    from bigclf.features.spec import parse

    sparse = format is None or format not in ("csv", "tsv", "jsonl", "text", "parquet")
    if sparse and said.keys() <= {"hash_bits"}:  # of Vowpal Wabbit's names, or of no effect, as convert will say
        return None
    if sparse and format is not None and "spec" not in said and "features_of" not in said:
        option = "--" + next(iter(said)).replace("_", "-")
        raise click.UsageError(f"{option} is for raw columns: --format csv, tsv, jsonl, text"
                               " or parquet")  # fmt: skip
    if "spec" in said and "features_of" in said:
        raise click.UsageError("give --spec or --features-of, not both")
    reader = _reader(said, format)
    if "spec" in said:
        return _declared(said, reader, data)
    if "features_of" in said:
        return _of(said["features_of"])
    names = {kind: _listed(said[kind]) for kind in ("numeric", "categorical", "text", "date") if kind in said}
    label = label_of(said)
    if not names and format != "text":
        from bigclf.conversion.tables.suggest import is_label, suggest, which_label

        found = suggest(data, reader, label)
        spec = found.spec()
        if left_out is not None:
            left_out += found.left_out
        if "label" not in said and found.how.format != "text":
            if spec.label is None or not is_label(spec.label.column):
                asked = which_label(found, "--label {}")
                raise click.UsageError(f"{asked} `bigclf inspect FILE --suggest` lists all the columns")
            guess = f"predicting column {spec.label.column!r}, guessed from its name; use --label COL to choose another"
            terminal.say("note:", guess, "yellow")
        return dataclasses.replace(spec, hash_bits=said.get("hash_bits"))
    encode = {"encode": "hashed"} if "hash_bits" in said else {}
    entries = [{kind: [name], **(encode if kind == "categorical" else {})} for kind in names for name in names[kind]]
    return parse({"label": label, "features": entries, "hash_bits": said.get("hash_bits"), "reader": reader})


def model_at(path: str) -> Model:
    """The model in a file; ModelFormatError: there is none."""
    from bigclf.model.model import load

    return load(path)


def _of(path: str) -> Model | Dataset:
    """The model or the dataset at ``path``.

    Raises
    ------
    click.UsageError : it was not made of raw columns.
    """
    from bigclf import files
    from bigclf.features.encode import is_columns

    if files.exists(path) and not files.is_directory(path) and not path.endswith(".parquet"):
        found: Model | Dataset = model_at(path)
    else:
        from bigclf.data.dataset import Dataset

        found = Dataset(path, need_labels=False)
    if not is_columns(found.features):
        raise click.UsageError(f"{path} was not made of raw columns")
    return found


def is_raw(data: object) -> TypeGuard[Paths]:
    """Whether files are none of shards."""
    from bigclf.conversion.tables.reading import are_raw

    return are_raw(data)


def converted(
    data: list[str], features: Features, format: str | None, keywords: dict[str, Any], holdout: float | None,
    bad: OfBadRows,
) -> Dataset:  # fmt: skip
    """Raw files as shards of the cache, but for the rows held out; validation data of ``keywords`` too."""
    from bigclf.conversion.tables.from_columns import HeldOut
    from bigclf.model.raw_input import converted as in_cache
    from bigclf.progress import TerminalProgress

    part = HeldOut(holdout, False) if holdout else None
    with TerminalProgress("converting") as progress, terminal.usage_errors():
        found = in_cache(data, features, format, memory=_room(keywords), seed=keywords.get("seed", 0),
                         part=part, progress=progress, **bad)  # fmt: skip
        if "validate" in keywords and is_raw(keywords["validate"]):
            keywords["validate"] = in_cache(keywords["validate"], found, memory=_room(keywords), **bad)
    return found


def sparse(
    data: list[str], test: str | None, format: str, keywords: dict[str, object], bad: OfBadRows,
    hash_bits: int | None, said: bool,
) -> tuple[Dataset, object]:  # fmt: skip
    """Text of rows that are sparse already as shards of the cache, and test data that are such text too; validation
    data of ``keywords`` likewise. ``said`` : whether the format was, and not guessed."""
    from bigclf.model.raw_input import naming_format, sparse_text
    from bigclf.progress import TerminalProgress

    told: dict[str, Any] = dict(memory=_room(keywords), seed=keywords.get("seed", 0), hash_bits=hash_bits, **bad)

    with TerminalProgress("converting") as progress, terminal.usage_errors():
        with contextlib.nullcontext() if said else naming_format(None, data, format):
            found = sparse_text(data, format, progress=progress, **told)
        told["several_labels"] = found.sets is not None

        def shards(source: object) -> object:
            return sparse_text(source, format, progress=progress, **told) if is_raw(source) else source

        if "validate" in keywords:
            keywords["validate"] = shards(keywords["validate"])
        return found, None if test is None else shards(test)


def held_out(data: list[str], dataset: Dataset, keywords: dict[str, Any], holdout: float, bad: OfBadRows) -> Dataset:
    """The rows held out, as shards of the cache, with what was learned of the others.

    Raises
    ------
    DataError : of both together more rows are bad than may be.
    """
    from bigclf.conversion.tables.from_columns import HeldOut
    from bigclf.model.raw_input import converted as in_cache

    found = in_cache(data, dataset, memory=_room(keywords), part=HeldOut(holdout, True), **bad)
    if told := too_many_with_held(dataset, found, bad.get("max_bad_fraction", MOST_BAD)):
        raise DataError(told)
    return found


def left_out_of_held(dataset: Dataset) -> tuple[int, str]:
    """How many of the rows held out are bad, and why."""
    report = dataset.report
    return report.get("bad_rows", 0), f"of the rows held out, {report.get('left_out', '')}"


def _room(keywords: Mapping[str, Any]) -> int:
    """What conversion may take: it needs more than the smallest of trainings."""
    from bigclf.units import parse_bytes

    return max(parse_bytes(keywords.get("memory", "1GB")), 2**28)


def reader_of(options: dict[str, object], format: str | None) -> dict[str, object]:
    """Options of a reader, taken out of those of a command."""
    return _reader(taken(options), format)


def _reader(said: dict[str, Any], format: str | None) -> dict[str, object]:
    reader = {name: said[name] for name in READER if name in said}
    if "names" in reader:
        reader["names"] = _listed(reader["names"])
        reader.setdefault("header", False)
    if "separator" in reader:
        reader["separator"] = {"\\t": "\t", "tab": "\t", "space": " "}.get(reader["separator"], reader["separator"])
    return {**({} if format is None else {"format": format}), **reader}


def _declared(said: dict[str, Any], reader: dict[str, object], data: list[str]) -> Spec:
    """The spec of a file; what else was said goes before it, what the names of the data tell comes last."""
    from bigclf import files
    from bigclf.conversion.tables.reading import format_of, reading
    from bigclf.features.spec import line_of, parse

    path = said["spec"]
    if not files.exists(path):
        near = files.meant(path)
        raise DataError("no such file" + (f"; did you mean {near!r}?" if near else ""), file=path)
    try:
        text = files.read_text(path)
    except UnicodeDecodeError as error:
        raise SchemaError(f"not text in UTF-8: byte {error.start + 1} is not", file=path) from None
    try:
        spec = parse(text)
        reading(spec.reader)
    except SchemaError as error:
        line = error.line or line_of(text, "reader")  # what has no line of its own is the reader's
        raise SchemaError(error.message, file=path, line=line, column=error.column) from None
    told = spec.as_json()
    if clash := [name for name in ("numeric", "categorical", "text", "date") if name in said]:
        raise click.UsageError(f"--{clash[0]} has no effect beside --spec, which names the columns")
    told["reader"] |= reader
    if "format" not in told["reader"] and (form := format_of(data)):
        told["reader"]["format"] = form
    told.update({"label": label_of(said, told["label"])}, **{n: said[n] for n in ("hash_bits",) if n in said})
    return parse(told)


def _listed(text: str) -> list[str]:
    return [name for name in text.split(",") if name]
