"""What becomes of raw columns: a declaration in YAML or Python, checked, versioned and kept with shards and model.

    label: income                         # or {column: income, strip: ".", type: text}; several a row:
                                          # {column: tags, separator: ";"} or [first, second]
    features:
      - numeric: [age, hours]             # scale: standard (default), none, log or bins
      - categorical: [workclass, sex]     # encode: auto (default), exact or hashed
      - cross: [education, occupation]
      - text: notes                       # analyzer: word (default), char or char_wb; ngrams: [1, 2]; tfidf: true
      - date: since                       # parts: [time, month, weekday, hour]

Each entry may name one column or a list; what stands beside holds for all of them.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bigclf import files
from bigclf.errors import SchemaError
from bigclf.files.formats import COLUMNS, DEFAULT
from bigclf.files.json_fields import number, whole
from bigclf.units import near

_Term = TypeVar("_Term")
VERSION = 1
KIND = "columns"
SHOWN = 80  # characters of what is no spec, which may be somebody's data
MISSING_VALUES = ("", "?", "#N/A", "#NA", "-NaN", "-nan", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan",
                  "null")  # fmt: skip
TEXT_OPTIONS = ("strip", "format", "prefix", "separator")
MOST = 2**31  # bins, categories or names
MAX_BITS = 30  # a signed hash of 32 bits has 31 to choose from
DATE_PARTS = {"time": 0, "year": 0, "month": 12, "day": 31, "weekday": 7, "hour": 24}  # places; 0: a number
SEVERAL = ("labels", "indicators")  # types of the label where rows have several: what its cells are
# Options that version 1 got later: not said where they say nothing
LATER = {"written": "plain", "lowercase": False, "separator": None, "beside": ()}
# Options of the command line that are said by features= in Python
OF_SPEC = (
    "spec", "features_of", "label", "label_separator", "numeric", "categorical", "text", "date", "header", "names",
    "skip_lines", "separator", "decimal", "encoding", "multiline",
)  # fmt: skip
IN_PYTHON = {
    "label": 'In Python, pass y="COLUMN", or put it in features={"label": "COLUMN", ...}',
    "label_separator": 'In Python, pass y={"column": "COLUMN", "separator": ";"}',
    "holdout": "In Python, split the rows first (bigclf.split for files) and call bigclf.evaluate on the rest",
}


@dataclass(frozen=True)
class Numeric:
    """A column of numbers: standardised, as it is, sign(x) log(1 + |x|) standardised, or one of ``bins`` quantile bins.
    A missing number is the mean (0 as it is); ``missing="indicator"`` adds a feature that says so.
    ``written="grouped"``: as people write amounts, $1,234.50, 12 500 kr or (80.00) for -80."""

    column: str
    scale: str = "standard"
    bins: int = 10
    missing: str = "indicator"
    written: str = "plain"

    CHOICES = {
        "scale": ("standard", "none", "log", "bins"),
        "missing": ("indicator", "ignore"),
        "written": ("plain", "grouped"),
    }

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def name(self) -> str:
        return self.column


@dataclass(frozen=True)
class Categorical:
    """A column of categories, or (a cross) the combinations of several: one feature each. ``exact``: a dictionary of
    what the data holds; ``hashed``: the hash of "column=value"; ``auto``: exact up to ``max_exact`` categories.
    ``lowercase``: "Yes" and "yes" are one category."""

    columns: tuple[str, ...]
    encode: str = "auto"
    max_exact: int = 1000
    missing: str = "indicator"
    lowercase: bool = False

    CHOICES = {"encode": ("auto", "exact", "hashed"), "missing": ("indicator", "ignore")}

    @property
    def name(self) -> str:
        return "&".join(self.columns)


@dataclass(frozen=True)
class Text:
    """A column of text: hashed words, or characters (``char_wb``: within words), and runs of ``ngrams`` of them, as
    scikit-learn's vectorizers cut them; weighted by idf, each text of length 1 if ``norm``."""

    column: str
    analyzer: str = "word"
    ngrams: tuple[int, int] = (1, 1)
    lowercase: bool = True
    tfidf: bool = True
    sublinear: bool = True
    norm: bool = True
    prefix: str | None = None

    CHOICES = {"analyzer": ("word", "char", "char_wb")}

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def name(self) -> str:
        return self.column


@dataclass(frozen=True)
class Date:
    """One part of a column of dates: ``time`` (days since 1970) and ``year`` are standardised numbers, the others one
    feature for each value. ``format`` as strptime has it; None: ISO 8601."""

    column: str
    part: str = "time"
    format: str | None = None
    missing: str = "indicator"

    CHOICES = {"part": tuple(DATE_PARTS), "missing": ("indicator", "ignore")}

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def name(self) -> str:
        return f"{self.column}.{self.part}"


@dataclass(frozen=True)
class Label:
    """The column to predict: ``type`` is number, text or bool (auto: by a look at the data). ``strip``: characters
    taken from its ends; ``lowercase``: "Yes" and "yes" are one class; ``above``: whether the number is greater;
    ``one_of``: whether the text is one of these. A row without a label is a bad row, or (``missing="drop"``) left out
    and counted.

    Several labels a row: a ``separator`` stands between those of a cell; or more columns stand ``beside`` the first,
    whose cells are each a label (``type="labels"``) or say by 0 and 1 whether the row has the label that the column is
    called (``"indicators"``). A row may then have none."""

    column: str
    type: str = "auto"
    strip: str = ""
    above: float | None = None
    one_of: tuple[str, ...] = ()
    missing: str = "error"
    lowercase: bool = False
    separator: str | None = None
    beside: tuple[str, ...] = ()

    CHOICES = {"type": ("auto", "number", "text", "bool", *SEVERAL), "missing": ("error", "drop")}

    @property
    def columns(self) -> tuple[str, ...]:
        """All of them."""
        return (self.column, *self.beside)

    @property
    def several(self) -> bool:
        """Whether a row may have several labels; of ``type="auto"`` as far as the spec tells."""
        return self.type in SEVERAL or self.separator is not None or bool(self.beside)


Term = Numeric | Categorical | Text | Date
KINDS: dict[str, type] = {"numeric": Numeric, "categorical": Categorical, "cross": Categorical, "text": Text,
                          "date": Date}  # fmt: skip


@dataclass(frozen=True)
class Spec:
    """A whole declaration.

    Attributes
    ----------
    terms : what becomes features, in the order of their places.
    label, weight : the columns of labels and row weights, or None.
    hash_bits : 2^bits places for all hashed terms together; None: chosen from an estimate of distinct features.
    signed : whether a hashed feature takes the sign of its hash.
    missing_values : texts that mean "missing".
    names : hashed names to remember a term, the most frequent; 0: none.
    reader : ``format`` and the options of the reader of raw files.
    """

    terms: tuple[Any, ...] = ()
    label: Label | None = None
    weight: str | None = None
    hash_bits: int | None = None
    signed: bool = True
    missing_values: tuple[str, ...] = MISSING_VALUES
    names: int = 20_000
    reader: Mapping[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that features are made of, each once."""
        return tuple(dict.fromkeys(name for term in self.terms for name in term.columns))

    @property
    def decimal(self) -> str:
        """What stands before the decimals of numbers that are text."""
        return str(self.reader.get("decimal") or ".")

    def as_json(self) -> dict[str, Any]:
        """The declaration as ``parse`` takes it, every default written out."""
        label = None if self.label is None else label_entry(self.label)
        told = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("terms", "label")}
        told = {name: list(value) if isinstance(value, tuple) else value for name, value in told.items()}
        told["reader"] = dict(self.reader)
        return {"kind": KIND, "version": VERSION, **told, "label": label, "features": [_entry(t) for t in self.terms]}


def _plain(part: Any) -> dict[str, Any]:
    told = {name: getattr(part, name) for name in _fields(part.__class__)}
    if not isinstance(part, Text):
        told = {name: value for name, value in told.items() if name not in LATER or value != LATER[name]}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in told.items()}


def label_entry(label: Label) -> dict[str, object]:
    """What ``parse`` takes as the label."""
    told = _plain(label)
    beside = told.pop("beside", [])
    return {**told, "column": [label.column, *beside]} if beside else told


@functools.cache
def _fields(kind: Any) -> dict[str, object]:
    """The names of a dataclass's fields, and what they are where nothing is said."""
    return {field.name: field.default for field in dataclasses.fields(kind)}


@functools.cache
def _word(kind: object) -> str:
    """What an entry of this kind begins with."""
    return next(word for word, class_ in KINDS.items() if class_ is kind)


def _entry(term: Any) -> dict[str, object]:
    told = _plain(term)
    if isinstance(term, Categorical):
        columns = told.pop("columns")
        return {"cross": columns, **told} if len(columns) > 1 else {"categorical": columns[0], **told}
    if isinstance(term, Date):
        return {"date": told.pop("column"), "parts": [told.pop("part")], **told}
    return {_word(term.__class__): told.pop("column"), **told}


# Reading a declaration


def parse(told: object) -> Spec:
    """A spec from what was declared: a ``Spec``, what has one (``bigclf.suggest``), a table, YAML as text, or the path
    of a file of it.

    Raises
    ------
    SchemaError : saying which entry cannot be understood, of YAML its line, and what can stand there.
    """
    told = made() if callable(made := getattr(told, "spec", None)) else told
    if isinstance(told, os.PathLike) or (isinstance(told, str) and told.endswith((".yaml", ".yml", ".json"))):
        told = _of_file(os.fspath(told))
    if isinstance(told, Spec):
        return told
    try:
        return _parsed(_yaml(told) if isinstance(told, str) else told)
    except _Refused as error:
        line = line_of(told, *error.keys) if isinstance(told, str) else None
        raise SchemaError(error.message, column=error.column, line=line) from None


def refuse_shell_names(names: Iterable[str]) -> None:
    """TypeError for an option of the command line that Python says in another way."""
    for name in names:
        if name in IN_PYTHON:
            raise TypeError(f"{name}= is for the command line only. {IN_PYTHON[name]}")
        if name in OF_SPEC[OF_SPEC.index("header") :]:
            raise TypeError(f"{name}= is for the command line only. In Python, put {name} under `reader:` in features=")
        if name in OF_SPEC:
            raise TypeError(f"{name}= is for the command line only. In Python, pass features=: the spec as a table, or "
                            'the path of its file (features="people.yaml")')  # fmt: skip


class _Refused(SchemaError):
    """A declaration with an error, and the keys (of lists the number) that lead to it."""

    def __init__(self, message: str, *keys: str | int, column: str | None = None) -> None:
        super().__init__(message, column=column)
        self.keys = keys

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return SchemaError(self.message, column=self.column).__reduce__()


def line_of(text: str, *keys: str | int) -> int | None:
    """The line of YAML that the keys (of lists numbers) lead to, as far as they are there; None where none is, or
    the text is no YAML."""
    import yaml

    try:
        node, line = yaml.compose(text, Loader=yaml.SafeLoader), None
    except yaml.YAMLError:
        return None
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            pairs = [(name, value) for name, value in node.value if name.value == key]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int):
            pairs = [(value, value) for value in node.value[key : key + 1]]
        else:
            pairs = []
        if not pairs:
            break
        line, node = pairs[0][0].start_mark.line + 1, pairs[0][1]
    return line


def _parsed(told: object) -> Spec:
    if not isinstance(told, Mapping):
        shown = repr(told) if len(repr(told)) <= SHOWN else f"{repr(told)[:SHOWN]}..."
        raise SchemaError(f"a spec of features is a table with the keys label and features, not {shown}")
    told = {key: value for key, value in told.items() if key not in ("learned", "notes")}  # notes: of a proposal
    if told.pop("kind", KIND) != KIND:
        raise _Refused("these features were not made from columns", "kind")
    if type(version := told.pop("version", VERSION)) is not int or not 1 <= version <= VERSION:
        reason = f"written in version {version!r} of specs, this program reads up to {VERSION}; install a newer bigclf"
        raise _Refused(reason, "version")
    known = {f.name for f in dataclasses.fields(Spec)} - {"terms"} | {"features"}
    if unknown := sorted(map(str, set(told) - known)):
        hint = near(unknown[0], known)
        has = ", ".join(sorted(known))
        raise _Refused(f"unknown key {unknown[0]!r} in the spec; allowed keys: {has}{hint}", unknown[0])
    terms = _terms(told.pop("features", ()))
    given = {name: value for name, value in told.items() if value is not None}
    if "label" in given:
        given["label"] = _label(given["label"])
    if "weight" in given:
        given["weight"] = _column(given["weight"], "weight", "weight")
    if "missing_values" in given:
        given["missing_values"] = _texts(given["missing_values"], "missing_values", "missing_values")
    spec = Spec(terms=terms, **given)
    _check(spec)
    return spec


def _of_file(path: str) -> str:
    try:
        return files.read_text(path)
    except OSError as error:
        raise SchemaError(f"{path}: the spec of features cannot be read: {error.strerror or error}") from None


def _yaml(text: str) -> object:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise SchemaError(f"not readable as YAML: {reason}", line=None if mark is None else mark.line + 1) from None


def _listed(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _label(told: object) -> Label:
    told = {"column": told} if not isinstance(told, Mapping) else dict(told)
    if told.get("column") in (None, "", []):
        raise _Refused("label needs the name of its column: {column: NAME}", "label")
    if "beside" in told:
        raise _Refused("label: name all columns in a list: {column: [A, B]}", "label", "beside")
    told["column"], *beside = [_column(name, "label", "label") for name in _listed(told["column"])]
    if len({told["column"], *beside}) <= len(beside):
        raise _Refused("label: a column is named twice", "label")
    if "one_of" in told:
        told["one_of"] = _texts(told["one_of"], "label: one_of", "label", "one_of")
    if told.get("above") is not None and not number().takes(told["above"]):
        raise _Refused(f"label: above must be a number, not {told['above']!r}", "label", "above")
    if told.get("separator") == "":
        raise _Refused("label: separator must be a character or more", "label", "separator")
    made: Label = dataclasses.replace(_made(Label, told, "label", "label"), beside=tuple(beside))
    _check_several(made)
    return made


def _check_several(label: Label) -> None:
    """Refuse options of one label a row beside several, and those of several that say nothing."""
    if not label.several:
        return
    if label.type not in ("auto", *SEVERAL):
        raise _Refused(f"label: rows have several, and type is then {' or '.join(SEVERAL)}, not {label.type}", "label")
    for name in ("above", "one_of"):
        if getattr(label, name) not in (None, ()):
            raise _Refused(f"label: {name} has no effect where rows have several labels", "label", name)
    if label.type == "indicators" and label.separator is not None:
        raise _Refused("label: separator has no effect on indicators, whose cells are 0 and 1", "label", "separator")


def _texts(told: object, place: str, *keys: str | int) -> tuple[str, ...]:
    """A value or several as texts."""
    if wrong := [one for one in _listed(told) if isinstance(one, list | tuple | Mapping)]:
        raise _Refused(f"{place} must be a list of texts; {wrong[0]!r} is none", *keys)
    return tuple(map(str, _listed(told)))


def _column(name: object, place: str, *keys: str | int) -> str:
    """The name of a column as text."""
    if isinstance(name, bool):
        raise _Refused(f"{place}: {str(name).lower()} is no name to YAML, nor are yes, no, on and off; write it in"
                       " quotes", *keys)  # fmt: skip
    if not isinstance(name, str | int):
        raise _Refused(f"{place} needs the name of a column, not {name!r}", *keys)
    return str(name)


def _terms(entries: object) -> tuple[object, ...]:
    if isinstance(entries, Mapping):  # {numeric: [...], categorical: [...]}: one entry of each kind
        told: list[Any] = [({kind: columns}, ("features", str(kind))) for kind, columns in entries.items()]
    else:
        told = [(entry, ("features", k)) for k, entry in enumerate(_listed(entries))]
    return _with_prefixes([term for k, (entry, keys) in enumerate(told) for term in _term(entry, k + 1, *keys)])


def _term(entry: object, number: int, *keys: str | int) -> Iterable[object]:
    """The terms of an entry, which ``keys`` lead to."""
    place = f"entry {number} of features"
    if not isinstance(entry, Mapping):
        raise _Refused(f"{place} must be a table such as {{numeric: [age]}}, not {entry!r}", *keys)
    kinds = [kind for kind in KINDS if kind in entry]
    if len(kinds) != 1:
        hint = "".join(near(name, KINDS) for name in entry if not kinds)
        has = ", ".join(map(repr, entry))
        raise _Refused(f"{place} has {has}; it must have exactly one of {', '.join(KINDS)}{hint}", *keys)
    kind, rest = kinds[0], {key: value for key, value in entry.items() if key != kinds[0]}
    names = [_column(name, f"{place}: {kind}", *keys, kind) for name in _listed(entry[kind])]
    if kind == "cross":
        if len(set(names)) < max(2, len(names)):
            raise _Refused(f"{place}: a cross needs two columns or more, each once", *keys, kind)
        return [_made(Categorical, {"columns": tuple(names), **rest}, place, *keys)]
    if kind == "categorical":
        return [_made(Categorical, {"columns": (name,), **rest}, place, *keys) for name in names]
    if kind == "date":
        parts = _listed(rest.pop("parts", ["time", "month", "weekday", "hour"]))
        return [_made(Date, {"column": name, "part": part, **rest}, place, *keys) for name in names for part in parts]
    if "ngrams" in rest:
        rest["ngrams"] = _ngrams(rest["ngrams"], place, *keys)
    return [_made(KINDS[kind], {"column": name, **rest}, place, *keys) for name in names]


def _ngrams(told: Any, place: str, *keys: str | int) -> tuple[int, int]:
    pair = _listed(told) if isinstance(told, list | tuple) else [told, told]
    if len(pair) != 2 or not all(type(n) is int and 1 <= n <= 20 for n in pair) or pair[0] > pair[1]:
        reason = f"{place}: ngrams must be a length or [shortest, longest], from 1 to 20, not {told!r}"
        raise _Refused(reason, *keys, "ngrams")
    return pair[0], pair[1]


def _made(kind: type, told: Mapping[str, object], place: str, *keys: str | int) -> Any:
    options = {name: value for name, value in told.items() if name not in ("column", "columns")}
    try:
        known = _can_stand(kind, tuple(options), *options.values())
    except TypeError:  # a list
        known = False
    if not known:
        _check_options(kind, options, place, *keys)
    return kind(**told)


@functools.lru_cache(maxsize=2**12, typed=True)
def _can_stand(kind: type, names: tuple[str, ...], *values: object) -> bool:
    """Whether nothing is wrong with these options; a spec of 20,000 columns has the same ones over and over."""
    fields = _fields(kind)
    pairs = list(zip(names, values, strict=True))
    return all(name in fields and _must_be(kind, name, value, fields[name]) is None for name, value in pairs)


def _check_options(kind: type, options: Mapping[str, object], place: str, *keys: str | int) -> None:
    fields = _fields(kind)
    if unknown := sorted(map(str, set(options) - set(fields))):
        allowed = ", ".join(name for name in fields if name not in ("column", "columns"))
        reason = f"{place}: unknown key {unknown[0]!r}; allowed keys: {allowed}{near(unknown[0], fields)}"
        raise _Refused(reason, *keys, unknown[0])
    for name, value in options.items():
        if must := _must_be(kind, name, value, fields[name]):
            where = "parts" if name == "part" else name
            raise _Refused(f"{place}: {name} must be {must}, not {value!r}", *keys, where)


def _must_be(kind: type, name: str, value: object, default: object) -> str | None:
    """What may stand under this name, where the value is nothing of the kind."""
    choices = kind.CHOICES.get(name)  # type: ignore[attr-defined]
    if choices and value not in choices:
        return f"one of {', '.join(choices)}"
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "true or false"
    least = 2 if name == "bins" else 0
    if isinstance(default, int) and not whole(least, MOST).takes(value):
        return f"a whole number from {least}"
    if name in TEXT_OPTIONS and not (value is None and default is None) and not isinstance(value, str):
        return "a text"
    return None


def _with_prefixes(terms: list[object]) -> tuple[object, ...]:
    """Names of a text's tokens are theirs alone if nothing else is hashed, else "column=token"."""
    others = sum(isinstance(term, Text | Categorical) for term in terms) > 1
    return tuple(
        dataclasses.replace(t, prefix=f"{t.column}=" if others else "")
        if isinstance(t, Text) and t.prefix is None
        else t
        for t in terms
    )


def _check(spec: Spec) -> None:
    bits = spec.hash_bits
    if bits is not None and (type(bits) is not int or not 1 <= bits <= MAX_BITS):
        raise _Refused(f"hash_bits must be a whole number from 1 to {MAX_BITS}, not {bits!r}", "hash_bits")
    if not isinstance(spec.signed, bool):
        raise _Refused(f"signed must be true or false, not {spec.signed!r}", "signed")
    if not whole(0, MOST).takes(spec.names):
        raise _Refused(f"names must be a whole number from 0, not {spec.names!r}", "names")
    if not isinstance(spec.reader, Mapping):
        raise _Refused(f"reader must be a table of options, not {spec.reader!r}", "reader")
    if len(spec.terms) >= 2**16:
        raise SchemaError("more than 65,535 terms; raw columns as many as these are better given as sparse rows")
    repeated = [t for t, count in _counts(spec.terms).items() if count > 1]
    if repeated:
        raise _Refused("named twice with the same options", "features", column=repeated[0].name)
    for name in () if spec.label is None else spec.label.columns:
        if name in spec.columns:
            raise _Refused("the label cannot be a feature too", "label", column=name)


def _counts(terms: Iterable[_Term]) -> dict[_Term, int]:
    found: dict[_Term, int] = {}
    for term in terms:
        found[term] = found.get(term, 0) + 1
    return found


def columns(
    *,
    label: str | None = None,
    numeric: Iterable[str] = (),
    categorical: Iterable[str] = (),
    text: Iterable[str] = (),
    hash_bits: int | None = None,
    **options: object,
) -> Spec:
    """The spec that the options of the command line stand for; with ``hash_bits`` every category is hashed."""
    encode = {"encode": "hashed"} if hash_bits is not None else {}
    entries: list[dict[str, Any]] = [{"numeric": [name]} for name in numeric]
    entries += [{"categorical": [name], **encode} for name in categorical]
    entries += [{"text": [name]} for name in text]
    return parse({"label": label, "features": entries, "hash_bits": hash_bits, **options})


def with_format(features: object, format: str, by_name: Callable[[], str | None] = lambda: None) -> Spec:
    """The spec for raw files of this format, which may be the default one ("svmlight") where the spec says another.

    ``by_name`` : asked for the format that the files' names tell where neither says one.
    """
    spec = parse({} if features is None else features)
    said = spec.reader.get("format")
    if said is None:
        format = (by_name() or format) if format == DEFAULT else format
        if format == DEFAULT:
            raise SchemaError(f"say what the raw file is: format {', '.join(COLUMNS[:-1])} or {COLUMNS[-1]} (--format)")
        return dataclasses.replace(spec, reader={"format": format, **spec.reader})
    if format not in (DEFAULT, said):
        raise SchemaError(f"the spec reads {said}, and format is {format}")
    return spec
