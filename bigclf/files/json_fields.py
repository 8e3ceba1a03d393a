"""Fields of JSON that is read back: what may stand under each name, said once in a table and checked before use.

A checksum tells that a file is as it was written, not that the writer was right.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

LARGEST = 2**63 - 1
SHOWN = reprlib.Repr()
SHOWN.maxstring = SHOWN.maxother = SHOWN.maxlong = 60


class FieldError(ValueError):
    """A field that holds what cannot stand there; the message names it and says what is expected."""


class Field(NamedTuple):
    """takes : whether a value can stand there; expected : how that is said; needed : whether it must be there."""

    takes: Callable[[Any], bool]
    expected: str
    needed: bool = True


def check_fields(told: object, fields: Mapping[str, Field], inside: str = "") -> None:
    """Check the values of a table (``inside`` : the name of the field that holds it); names that are not in ``fields``
    are those of other versions.

    Raises
    ------
    FieldError : naming the first field that is missing or wrong.
    """
    if not isinstance(told, Mapping):
        raise FieldError(f"{_named(inside) if inside else 'it'} must be a table, not {SHOWN.repr(told)}")
    for name, field in fields.items():
        where = _named(f"{inside}.{name}" if inside else name)
        if name not in told:
            if field.needed:
                raise FieldError(f"{where} is missing; it must be {field.expected}")
        elif not field.takes(told[name]):
            raise FieldError(f"{where} must be {field.expected}, not {SHOWN.repr(told[name])}")


def check_relations(relations: Iterable[tuple[bool, str, str]]) -> None:
    """Check what fields say of each other: (whether it holds, the field, what it must be).

    Raises
    ------
    FieldError : naming the field of the first that does not hold.
    """
    for holds, name, expected in relations:
        if not holds:
            raise FieldError(f"{_named(name)} must be {expected}")


def _named(name: str) -> str:
    return f"field {name!r}"


# What may stand in a field


def whole(least: int = 0, most: int = LARGEST) -> Field:
    """A whole number; true and false are none."""
    said = f"a whole number from {least:,}" + (f" to {most:,}" if most != LARGEST else "")
    return Field(lambda value: type(value) is int and least <= value <= most, said)


def number(least: float = -math.inf, infinite: bool = False) -> Field:
    """A number, by default a finite one."""
    kind = "a number" if infinite else "a finite number"
    said = kind if least == -math.inf else f"{kind} from {least:g}"
    return Field(lambda value: _is_number(value, infinite) and value >= least, said)


def _is_number(value: object, infinite: bool = False) -> bool:
    if type(value) is float:
        return math.isfinite(value) or (infinite and not math.isnan(value))
    return type(value) is int and abs(value) < 2**1000  # a float holds it


def figure(least: float = -math.inf) -> Field:
    """What training came to: a number, an infinite one, or none (NaN) where it overflowed."""
    said = "a number" if least == -math.inf else f"a number from {least:g}"
    return Field(lambda value: (_is_number(value, infinite=True) and value >= least) or value != value, said)


def bits() -> Field:
    """A number as a hexadecimal text that keeps every bit."""

    def takes(value: object) -> bool:
        try:
            return isinstance(value, str) and isinstance(float.fromhex(value), float)
        except (ValueError, OverflowError):
            return False

    return Field(takes, "a number as a hexadecimal text")


def text(*choices: str) -> Field:
    """A text, or one of those."""
    if choices:
        return Field(lambda value: isinstance(value, str) and value in choices, f"one of {', '.join(choices)}")
    return Field(lambda value: isinstance(value, str), "a text")


def list_of(field: Field, length: int | None = None) -> Field:
    """A list of what ``field`` takes, of so many."""
    said = f"a list of {'' if length is None else f'{length} times '}{field.expected}"
    return Field(lambda value: isinstance(value, list) and length in (None, len(value))
                 and all(map(field.takes, value)), said)  # fmt: skip


def tuple_of(*fields: Field) -> Field:
    """A list of one value for each field."""
    said = f"a list of {', '.join(field.expected for field in fields)}"
    return Field(lambda value: isinstance(value, list) and len(value) == len(fields)
                 and all(field.takes(one) for field, one in zip(fields, value, strict=True)), said)  # fmt: skip


def table_of(fields: Mapping[str, Field], said: str) -> Field:
    """A table with such fields; ``said`` : what it is."""

    def takes(value: object) -> bool:
        try:
            check_fields(value, fields)
        except FieldError:
            return False
        return True

    return Field(takes, said)


def named(field: Field) -> Field:
    """A table of what ``field`` takes, by any names."""
    said = f"a table in which each is {field.expected}"
    return Field(lambda value: isinstance(value, dict) and all(map(field.takes, value.values())), said)


def either(*fields: Field) -> Field:
    """What one of them takes."""
    said = " or ".join(field.expected for field in fields)
    return Field(lambda value: any(field.takes(value) for field in fields), said)


def or_none(field: Field) -> Field:
    """The same, or null."""
    return either(field, Field(lambda value: value is None, "null"))


def optional(field: Field) -> Field:
    """The same, which need not be there."""
    return field._replace(needed=False)


FLAG = Field(lambda value: isinstance(value, bool), "true or false")
TABLE = Field(lambda value: isinstance(value, dict), "a table")
TEXTS = list_of(text())


# What several files hold


def one_kind(values: Sequence[Any]) -> bool:
    """Whether labels are all truth values, all whole numbers, all finite numbers with decimals, or all texts."""
    kinds = {type(value) for value in values}
    known = len(kinds) <= 1 and kinds <= {bool, int, float, str}
    return known and (kinds != {float} or all(map(math.isfinite, values)))


LABELS = Field(lambda value: isinstance(value, list) and one_kind(value), "a list of labels of one kind")
FACTS = {
    "n_rows": whole(),
    "nnz": whole(),
    "n_features": whole(),
    "label_changes": whole(),
    "max_row_nnz": whole(),
    "binary": FLAG,
    "row_constant": optional(FLAG),
    "max_norm": number(0),
    "weight_sum": number(0),
    "classes": LABELS,
    "class_counts": list_of(whole()),
    "label_range": optional(tuple_of(number(), number(), number(infinite=True))),
}
KINDS = ("given", "hashed names", "columns")
FEATURES = {
    "kind": text(*KINDS),
    "version": whole(1),
    "hash_bits": optional(or_none(whole(0, 32))),
    "names": optional(either(TEXTS, whole())),
    "counted_from": optional(whole(0, 1)),
}
LEARNED = {"hash_bits": whole(0, 32), "rows": whole(), "n_features": whole(), "distinct_hashed": whole(),
           "file": text(), "digest": text()}  # fmt: skip


def check_facts(told: Any, more: Mapping[str, Field]) -> None:
    """Check what a footer or a manifest says of rows (``Facts.as_json``), and ``more`` fields of its own.

    Raises
    ------
    FieldError : naming the field.
    """
    check_fields(told, {**FACTS, **more})
    n, counts, span = told["n_rows"], told["class_counts"], told.get("label_range")
    classes = told["classes"]
    check_relations([
        (len(counts) == len(classes), "class_counts", "one for each of 'classes'"),
        (all(a < b for a, b in zip(classes, classes[1:], strict=False)), "classes", "ascending, each once"),
        (not classes or sum(counts) == n, "class_counts", f"{n:,} together, as n_rows is"),
        (span is None or not classes, "label_range", "left out where there are classes"),
        (span is None or _spans(span, n), "label_range", "the least, the greatest and the sum of the labels"),
        (told["label_changes"] <= max(0, n - 1), "label_changes", "less than n_rows"),
        (told["max_row_nnz"] <= min(told["nnz"], told["n_features"]), "max_row_nnz", "at most nnz and n_features"),
        (told["nnz"] <= n * told["max_row_nnz"], "nnz", "at most n_rows times max_row_nnz"),
        (not told["binary"] or told["max_norm"] == told["max_row_nnz"], "binary",
         "false where 'max_norm' is not 'max_row_nnz': the values are not all 1"),
    ])  # fmt: skip


def _spans(span: Sequence[float], n: int) -> bool:
    low, high, total = span
    slack = 1e-6 * max(abs(low), abs(high))
    return low <= high and (n == 0 or math.isinf(total) or low - slack <= total / n <= high + slack)


def check_features(told: Any, inside: str = "features") -> None:
    """Check how features were made, as shards and models tell it.

    Raises
    ------
    FieldError : naming the field.
    """
    check_fields(told, FEATURES, inside)
    if told["kind"] == "columns":
        check_fields(told.get("learned"), LEARNED, f"{inside}.learned")
