"""One SELECT that scores the rows of a table where they are, for DuckDB and PostgreSQL.

    score = b + sum_t contribution of term t      (each a CASE or a product of one column)

A column of numbers adds w (x - mean) / scale, with the feature rounded to float32 as the model has it. Columns that are
features as they are stay unrounded, as those of a frame. A category, a bin or a part of a date adds the weight of its
place. Sums are float8, in the order of the terms; where one is NULL, NaN or infinite, as of a number that is needed and
not there, every answer is NULL. Text and hashed categories cannot be said in SQL: they are refused by name.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf import files
from bigclf.data.arrays import listed_names
from bigclf.errors import RunError
from bigclf.features.encode import BINS, HASHED, TEXT, category_names, is_columns, respelt_names
from bigclf.features.spec import DATE_PARTS, Categorical, Date, Numeric
from bigclf.version import __version__

if TYPE_CHECKING:
    from bigclf.features.encode import Learned
    from bigclf.features.spec import Spec
    from bigclf.model.model import Model


DIALECTS = ("duckdb", "postgres")
BLANK = "' ' || chr(9) || chr(10) || chr(11) || chr(12) || chr(13)"
FARTHEST = 700.0  # of a logit, beyond which exp() is an error in PostgreSQL
DIRECTIVES = {"%d": "DD", "%m": "MM", "%Y": "YYYY", "%y": "YY", "%H": "HH24", "%M": "MI", "%S": "SS"}
SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
MOST_PLACES = 100_000  # a statement of some ten megabytes


def write(model: Model, path: str, *, dialect: str = "duckdb", table: str = "rows") -> list[str]:
    """Write the statement.

    Parameters
    ----------
    dialect : ``"duckdb"`` or ``"postgres"``.
    table : the name of the table or view that has the rows, put into the statement as a quoted name.

    Raises
    ------
    RunError : what SQL cannot say, with the column.   ValueError : a dialect that is unknown.
    """
    if dialect not in DIALECTS:
        raise ValueError(f"dialect must be {' or '.join(DIALECTS)}, not {dialect!r}")
    files.publish_text(path, statement(model, dialect, table))
    columns = ", ".join(dict.fromkeys(columns_of(model)))
    notes = [f"scores the table {table!r} with the columns {columns}; numbers and dates as the database holds them"]
    if renamed := [name for name in answers_of(model) if name.startswith("bigclf_")]:
        notes.append(f"the model has columns of such names, so that what it says is called {', '.join(renamed)}")
    if dialect == "duckdb" and is_columns(model.features):
        notes.append("categories are looked up by their text: read a CSV with read_csv(..., all_varchar = true)")
    if not model.regression and not model.no_probabilities() and not _has_probability(model):
        notes.append("probabilities are left out")
    return notes


def columns_of(model: Model) -> Sequence[str]:
    """The columns that the statement reads."""
    return model.finisher.spec.columns if model.learned else model.plain_columns or []


def statement(model: Model, dialect: str, table: str) -> str:
    """The whole text. Sums have names that no column has, since a column of the table may be called as ours are."""
    if dialect == "duckdb":
        _require_apart(columns_of(model))
    sums = [_sum(model, k, dialect) for k in range(model.intercept_.size)]
    prefix = _unmet(f"bigclf_sum_{_digest(model)}_", columns_of(model))
    inner = [f"{prefix}{k}" for k in range(len(sums))]
    scored = ",\n".join(f"{text}\n AS {_name(name)}" for name, text in zip(inner, sums, strict=True))
    rows, source = f"* EXCLUDE ({', '.join(map(_name, inner))})", f"SELECT *,\n{scored}\nFROM {_name(table)}"
    if dialect == "postgres":
        rows, scored = "bigclf_rows.*", f"(\nSELECT\n{scored}\n)"
        source = f"{_name(table)} AS bigclf_rows CROSS JOIN LATERAL {scored} AS bigclf_scores"
    else:
        source = f"(\n{source}\n) AS bigclf_scores"
    said = _said(model, [f"bigclf_scores.{_name(name)}" for name in inner])
    chosen = ",\n ".join(f"{text} AS {_name(name)}" for name, text in zip(answers_of(model), said, strict=True))
    more = " (the database renames it, to score_1)" if dialect == "duckdb" else ""
    return (
        f"-- Made by bigclf {__version__}: {model.method.get('name')}\n"
        f"-- What it says follows the columns of the table: of two with one name the last is its answer{more}.\n"
        f"SELECT {rows},\n {chosen}\nFROM {source}\n"
    )


def answers_of(model: Model) -> list[str]:
    """The names of what the statement says: the scores, the prediction, the probability. One that a column of the model
    has begins with ``bigclf_``."""
    single = model.intercept_.size == 1
    names = ["score"] if single else [f"score_{label}" for label in model.classes_.tolist()]
    names += ["prediction", "probability"] if _has_probability(model) else ["prediction"]
    taken = {*map(_folded, columns_of(model))}
    return [f"{_unmet('bigclf_', taken)}{name}" if _folded(name) in taken else name for name in names]


def _said(model: Model, scores: list[str]) -> list[str]:
    """What has these names, of the sums."""
    each = [_known([score], score) for score in scores]
    if model.regression:
        return [*each, *each]
    said = [_decision(model, scores), *([_probability(model, scores[0])] if _has_probability(model) else [])]
    return [*each, *(_known(scores, text) for text in said)]


def _known(scores: list[str], text: str) -> str:
    """The text where all scores are finite, else NULL. Databases put NaN above all numbers, and ``GREATEST`` passes
    over NULL; a sum of them would be nested as deep as there are classes."""
    most, first = _number(np.inf), f"abs({scores[0]})"
    others = ", ".join(f"COALESCE(abs({score}), {most})" for score in scores)
    return f"CASE WHEN {first if len(scores) == 1 else f'GREATEST({others})'} < {most} THEN {text} END"


def _digest(model: Model) -> str:
    """Letters that no table has by chance; the same model has the same."""
    return hashlib.blake2b(np.ascontiguousarray(model.intercept_).tobytes(), digest_size=4).hexdigest()


def _folded(name: str) -> str:
    """What DuckDB compares names of columns by: a letter of ASCII, small or large, is the same one."""
    return name.translate(SMALL)


def _unmet(prefix: str, names: Iterable[str]) -> str:
    """The prefix, made longer until none of the names begins with it."""
    taken = [*map(_folded, names)]
    while any(name.startswith(prefix) for name in taken):
        prefix += "_"
    return prefix


def _require_apart(names: Iterable[str]) -> None:
    """RunError for columns that are one to DuckDB."""
    known: dict[str, str] = {}
    for name in names:
        if (other := known.setdefault(_folded(name), name)) != name:
            raise RunError(f"DuckDB does not tell the columns {other!r} and {name!r} apart: rename one, and train on "
                           "that, or export --to numpy; --dialect postgres tells them apart")  # fmt: skip


def _decision(model: Model, scores: list[str]) -> str:
    """The class: of two the greater where the score is at least 0, of more the first with the largest."""
    labels = [_value(label) for label in model.classes_.tolist()]
    if len(scores) == 1:
        return f"CASE WHEN {scores[0]} >= 0 THEN {labels[1]} ELSE {labels[0]} END"
    whens = " ".join(f"WHEN {score} THEN {label}" for score, label in zip(scores, labels, strict=True))
    return f"CASE GREATEST({', '.join(scores)}) {whens} END"


def _has_probability(model: Model) -> bool:
    platt = model.calibration is None or model.calibration.method == "platt"
    return bool(model.binary) and not model.regression and model.no_probabilities() is None and platt


def _probability(model: Model, score: str) -> str:
    """1 / (1 + exp(-z)) of the greater class, z the score or -(A score + B) by Platt's calibration."""
    slope, start = (-1.0, 0.0) if model.calibration is None else np.ravel(model.calibration.values).tolist()
    logit = f"({_number(slope)} * {score} + {_number(start)})"
    return f"1 / (1 + exp(GREATEST(LEAST({logit}, {FARTHEST}), -{FARTHEST})))"


def _sum(model: Model, k: int, dialect: str) -> str:
    weights = np.asarray(model.dense_weights()[k], np.float64)
    parts = [_number(float(model.intercept_[k]))]
    if model.learned:
        spec, learned = model.finisher.spec, model.finisher.learned
        if np.count_nonzero(weights) > MOST_PLACES:
            raise RunError(f"{np.count_nonzero(weights):,} weights are too many for a statement: at most "
                           f"{MOST_PLACES:,}; --to numpy has no such limit")  # fmt: skip
        writer = _Terms(spec, learned, weights, dialect)
        parts += [text for t in range(len(spec.terms)) if (text := writer.term(t))]
    else:
        names = model.plain_columns
        if names is None:
            raise RunError("SQL needs names of columns: train on a table, a data frame or Parquet with named columns")
        kept = _float if listed_names(model.features) else _rounded  # rows of files are float32
        parts += [f"{_number(w)} * {kept(_name(name))}"
                  for name, w in zip(names, weights.tolist(), strict=True) if w]  # fmt: skip
    return "  " + "\n  + ".join(parts)


class _Terms(NamedTuple):
    """Writes what each term of a spec adds to the score."""

    spec: Spec
    learned: Learned
    weights: np.ndarray
    dialect: str

    def term(self, t: int) -> str:
        """What the term adds; empty where that is always nothing."""
        term, kind = self.spec.terms[t], self.learned.kind[t]
        if kind in (HASHED, TEXT) or not isinstance(term, Numeric | Date | Categorical):
            of_names = isinstance(term, Categorical)
            what = "hashed categories; encode: exact in the spec keeps names" if of_names else "text; leave it out"
            raise RunError(f"column {term.columns[0]}: the SQL export cannot express {what}, or export --to numpy")
        if isinstance(term, Categorical):
            return self._category(t, term)
        return self._numeric(t, term) if isinstance(term, Numeric) else self._date(t, term)

    def _numeric(self, t: int, term: Numeric) -> str:
        x = _float(_name(term.column)) if term.written == "plain" else self._amount(term.column)
        if term.scale == "log":
            x = f"(sign({x}) * ln(1 + abs({x})))"
        return self._number(t, self._missing(term.column), x, term.missing == "indicator", term.scale != "none")

    def _number(self, t: int, missing: str, x: str, indicator: bool, zeros: bool) -> str:
        first, w = int(self.learned.first[t]), self.weights
        if self.learned.kind[t] == BINS:
            edges = _cut(self.learned.edges, self.learned.edges_at, t).tolist()
            gone = float(w[first + len(edges) + 1]) if indicator else 0.0
            whens = "".join(f" WHEN {x} < {_number(edge)} THEN {_number(float(w[first + k]))}"
                            for k, edge in enumerate(edges))  # fmt: skip
            known = f"{whens} ELSE {_number(float(w[first + len(edges)]))}"
            return f"CASE WHEN {missing} THEN {_number(gone)}{known} END"
        gone = float(w[first + 1]) if indicator else 0.0
        mean, scale = float(self.learned.mean[t]), float(self.learned.scale[t])
        if not w[first] and not gone:
            return ""
        moved = x if (mean, scale) == (0.0, 1.0) or not zeros else f"(({x} - {_number(mean)}) / {_number(scale)})"
        return f"CASE WHEN {missing} THEN {_number(gone)} ELSE {_number(float(w[first]))} * {_rounded(moved)} END"

    def _date(self, t: int, term: Date) -> str:
        missing, when = self._missing(term.column), self._stamp(term)
        indicator = term.missing == "indicator"
        if term.part == "time":
            return self._number(t, missing, f"({self._micros(when)} / {_number(86_400_000_000.0)})", indicator, True)
        if term.part == "year":
            return self._number(t, missing, _cast(f"EXTRACT(YEAR FROM {when})", "FLOAT8"), indicator, True)
        units = {"month": ("MONTH", 1), "day": ("DAY", 1), "weekday": ("ISODOW", 1), "hour": ("HOUR", 0)}
        unit, least = units[term.part]
        first, size = int(self.learned.first[t]), DATE_PARTS[term.part]
        gone = float(self.weights[first + size]) if indicator else 0.0
        values = [(str(place + least), float(self.weights[first + place])) for place in range(size)]
        return _chosen(missing, gone, _cast(f"EXTRACT({unit} FROM {when})", "INTEGER"), values)

    def _amount(self, column: str) -> str:
        """A number, or an amount as people write it: $1,234.50, or (80.00) for -80."""
        text, point = self._trimmed(column), self.spec.decimal
        plain = f"regexp_replace({text}, '[^0-9{point}-]', '', 'g')"
        plain = plain if point == "." else f"replace({plain}, ',', '.')"
        sign = f"CASE WHEN {text} LIKE '(%' THEN -1 ELSE 1 END"
        return f"(CASE WHEN {text} ~ '^[-+0-9.eE]+$' THEN {_float(text)} ELSE {sign} * {_float(plain)} END)"

    def _stamp(self, term: Date) -> str:
        if term.format is None:
            return _cast(_name(term.column), "TIMESTAMP")
        column, form = _name(term.column), term.format
        if self.dialect == "duckdb":
            kind, read = f"typeof({column})", f"strptime({_cast(column, 'VARCHAR')}, {_text(form)})"
            return self._dated(kind, column, read)
        for ours, theirs in DIRECTIVES.items():
            form = form.replace(ours, theirs)
        if "%" in form:
            raise RunError(f"column {term.column}: PostgreSQL has no date format like {term.format!r}")
        read = _cast(f"to_timestamp({_cast(column, 'VARCHAR')}, {_text(form)})", "TIMESTAMP")
        return self._dated(_cast(f"pg_typeof({column})", "VARCHAR"), column, read)

    def _dated(self, kind: str, column: str, read: str) -> str:
        """A date that the database may hold as one, or as text that is to be ``read``."""
        held = f"upper({kind}) LIKE 'DATE%' OR upper({kind}) LIKE 'TIMESTAMP%'"
        return f"CASE WHEN {held} THEN {_cast(column, 'TIMESTAMP')} ELSE {read} END"

    def _micros(self, when: str) -> str:
        if self.dialect == "duckdb":
            return _cast(f"epoch_us({when})", "FLOAT8")
        return _cast(f"EXTRACT(EPOCH FROM {when}) * 1000000", "FLOAT8")

    def _category(self, t: int, term: Categorical) -> str:
        first = int(self.learned.first[t])
        names = category_names(self.learned, t)
        weights = dict(zip(names, self.weights[first:].tolist(), strict=False))
        weights |= {text: weights[name] for text, name in respelt_names(self.spec, self.learned, t).items()}
        values = [(_text(name), float(w)) for name, w in weights.items()]
        texts = [f"CASE WHEN {self._missing(name)} THEN '' ELSE {self._trimmed(name)} END" for name in term.columns]
        said = texts[0] if len(texts) == 1 else "(" + " || '&' || ".join(texts) + ")"
        said = f"lower({said})" if term.lowercase else said
        ignored = len(texts) == 1 and term.missing != "indicator"
        return _chosen(self._missing(term.columns[0]) if ignored else "", 0.0, said, values)

    def _trimmed(self, column: str) -> str:
        trim = "trim" if self.dialect == "duckdb" else "btrim"
        return f"{trim}({_cast(_name(column), 'VARCHAR')}, {BLANK})"

    def _missing(self, column: str) -> str:
        texts = ", ".join(_text(text) for text in self.spec.missing_values)
        among = f" OR {self._trimmed(column)} IN ({texts})" if texts else ""
        return f"({_name(column)} IS NULL{among})"


def _chosen(missing: str, gone: float, of: str, values: list[tuple[str, float]]) -> str:
    """The weight of one of several values, 0 of others; empty where all are 0."""
    whens = "".join(f" WHEN {value} THEN {_number(w)}" for value, w in values if w)
    if not whens and not gone:
        return ""
    known = f"CASE {of}{whens} ELSE {_number(0.0)} END" if whens else _number(0.0)
    return f"CASE WHEN {missing} THEN {_number(gone)} ELSE {known} END" if missing else known


def _cut(table: np.ndarray, at: np.ndarray, t: int) -> np.ndarray:
    return table[at[t] : at[t + 1]]


def _name(name: object) -> str:
    return '"' + str(name).replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _number(x: float) -> str:
    """A float64 to the last bit: a plain literal is a decimal number to DuckDB."""
    return f"CAST('{x!r}' AS FLOAT8)"


def _value(label: object) -> str:
    return _text(label) if isinstance(label, str) else str(label).upper() if isinstance(label, bool) else repr(label)


def _cast(x: str, kind: str) -> str:
    return f"CAST({x} AS {kind})"


def _float(x: str) -> str:
    return _cast(x, "FLOAT8")


def _rounded(x: str) -> str:
    """As a feature is kept."""
    return _cast(_cast(x, "FLOAT4"), "FLOAT8")
