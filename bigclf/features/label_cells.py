"""Several labels a row in the cells of a table: with a separator between them, in several columns, or in lists.

The labels of a row become one text: ascending, each once, between them the control character 0x1F. That text is what
is hashed, counted and kept in place of a single label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from bigclf.features import values
from bigclf.features.arrow import as_numpy
from bigclf.features.spec import Label

if TYPE_CHECKING:
    import pyarrow as pa

BETWEEN = "\x1f"  # the labels of a row
SEPARATORS = (";", "|", ",")  # that may stand between labels of a cell
MANY_LABELS, MANY_CELLS, FEWER = 8, 0.2, 2  # labels, the share of cells, and how many times less labels if split, from
# which on a separator is likely
YES, NO = ("1", "1.0", "true", "True", "TRUE"), ("0", "0.0", "false", "False", "FALSE")


def joined(label: Label, columns: list[pa.Array], missing: tuple[str, ...], bad: values.Bad) -> pa.Array:
    """The labels of each row as one text, "" for none; a cell that cannot be used is noted as bad.

    Raises
    ------
    SchemaError : a column of lists of anything but texts and whole numbers, of structs or of bytes.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    read = _indicated if label.type == "indicators" else _listed
    parts = [part for name, column in zip(label.columns, columns, strict=True)
             for part in read(label, name, column, missing, bad)]  # fmt: skip
    rows = np.concatenate([rows for rows, _ in parts])
    encoded = pc.dictionary_encode(pa.concat_arrays([texts for _, texts in parts]))
    names, places = np.unique(np.array(encoded.dictionary.to_pylist(), dtype=str), return_inverse=True)
    codes = places[as_numpy(encoded.indices)] if names.size else np.empty(0, np.int64)
    pairs = np.unique(rows.astype(np.int64) * max(1, names.size) + codes)  # by row and then by label, each once
    counts = np.bincount(pairs // max(1, names.size), minlength=len(columns[0]))
    flat = pa.array(names.tolist(), pa.large_string()).take(pa.array(pairs % max(1, names.size)))
    lists = pa.LargeListArray.from_arrays(pa.array(np.append(0, np.cumsum(counts))), flat)
    return pc.binary_join(lists, pa.scalar(BETWEEN, pa.large_string()))


def split(joined_labels: str) -> list[str]:
    """The labels of a row that are one text."""
    return joined_labels.split(BETWEEN) if joined_labels else []


def are_indicators(columns: list[pa.Array], missing: tuple[str, ...], nearly: bool = False) -> list[bool | None]:
    """Of each column whether it holds 0 and 1, or true and false, and nothing else; None: it is empty. ``nearly`` : and
    whatever else."""
    found: list[bool | None] = []
    for column in columns:
        if is_list(column):
            found.append(False)
            continue
        texts = _distinct(values.as_text(column, ""), missing)
        both = nearly and not {*YES}.isdisjoint(texts) and not {*NO}.isdisjoint(texts)
        found.append(both or set(texts) <= {*YES, *NO} if texts else None)
    return found


def _distinct(text: pa.Array, missing: tuple[str, ...]) -> list[str]:
    names = values.categories(text, missing).names
    every = [names.name(i).decode() for i in range(names.bounds.size - 1)]
    return [name for name in every if name]


def _indicated(
    label: Label, name: str, column: pa.Array, missing: tuple[str, ...], bad: values.Bad
) -> Iterator[tuple[np.ndarray, pa.Array]]:
    """The rows that have the label which is the column's name."""
    import pyarrow as pa

    found = values.categories(values.as_text(column, name), missing)
    texts = [found.names.name(i).decode() for i in range(found.names.bounds.size - 1)]
    strange = np.array([text not in YES + NO for text in texts] + [False])
    for row in np.flatnonzero(strange[found.codes]).tolist():
        bad.setdefault(row, f"column {name}: {texts[found.codes[row]]!r} is neither 0 nor 1")
    rows = np.flatnonzero(np.array([text in YES for text in texts] + [False])[found.codes])
    yield rows, pa.array([name] * rows.size, pa.large_string())


def _listed(
    label: Label, name: str, column: pa.Array, missing: tuple[str, ...], bad: values.Bad
) -> Iterator[tuple[np.ndarray, pa.Array]]:
    """(rows, labels) that stand in a column: as texts with a separator between them, or as lists."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if is_list(column):
        items, lengths = column.flatten(), as_numpy(pc.fill_null(pc.list_value_length(column), 0))
        rows, texts = np.repeat(np.arange(len(column)), lengths), values.as_text(items, name)
        for row in rows[as_numpy(texts.is_null())].tolist():
            bad.setdefault(row, f"column {name}: a null in the list of labels; leave it out")
        texts = pc.fill_null(texts, "")
    else:
        text = values.as_text(column, name)
        rows = np.flatnonzero(~values.missing(values.trimmed(text), missing))
        texts = text.take(pa.array(rows))
        if label.separator is not None:
            cells = pc.split_pattern(texts, label.separator)
            rows, texts = np.repeat(rows, as_numpy(pc.list_value_length(cells))), cells.flatten()
    texts = values.trimmed(texts)
    texts = pc.utf8_trim(texts, characters=label.strip) if label.strip else texts
    texts = pc.utf8_lower(texts) if label.lowercase else texts
    strange = as_numpy(pc.match_substring(texts, BETWEEN))
    for row in rows[strange].tolist():
        bad.setdefault(row, f"column {name}: a label with the control character 0x1F, which separates labels here")
    there = as_numpy(pc.not_equal(texts, ""))
    yield rows[there], texts.filter(pa.array(there))


def likely_separators(label: Label | None, rows: Mapping[str, int], whole: bool = False) -> list[str]:
    """A warning of labels that a separator seems to stand in; ``rows`` : how many have each label; ``whole`` : no row
    has more than one, so that a separator which was named stands in no cell. Where one stands as often in all of them
    it is part of a name, a number or a date ("Smith, Ann")."""
    if label is None or label.beside or label.type not in ("text", "labels"):
        return []
    found, total = [], sum(rows.values())
    for between in SEPARATORS if len(rows) >= MANY_LABELS else ():
        holding = sum(n for name, n in rows.items() if between in name)
        parts = {part.strip() for name in rows for part in name.split(between)} - {""}
        uneven = len({name.count(between) for name in rows}) > 1
        if between != label.separator and holding >= MANY_CELLS * total and FEWER * len(parts) <= len(rows) and uneven:
            text = (f"column {label.column}: {len(rows):,} labels were found, and {100 * holding / total:.0f} % of "
                    f"them, by rows, hold {between!r}; split there, they are {len(parts):,} (--label-separator "
                    f"{between!r}, in a spec separator: {between!r})")  # fmt: skip
            found.append((len(parts), text))
    if not found and whole and label.separator is not None and total:
        others = [(n, between) for between in SEPARATORS
                  if (n := sum(n for name, n in rows.items() if between in name))]  # fmt: skip
        seen = "".join(f"; {between!r} stands in those of {n:,}" for n, between in sorted(others, reverse=True)[:1])
        return [f"column {label.column}: the separator {label.separator!r} splits no cell, so each row has one label "
                f"at most{seen}"]  # fmt: skip
    return [text for _, text in sorted(found)[:1]]


def rows_of_labels(rows: Mapping[str, int], several: bool) -> Mapping[str, int]:
    """How many rows have each label; ``rows`` : how many have each text, a joined one where rows have ``several``."""
    found = Counter[str]()
    for text, n in rows.items():
        for name in split(text) if several else [text]:
            found[name] += n
    return found


def is_list(column: pa.Array) -> bool:
    """Whether its cells are lists."""
    import pyarrow as pa

    kind = column.type
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
