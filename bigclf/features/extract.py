"""Raw columns into raw features: (term, hash or place, number as read), and in the same read what is to be learned.

A raw feature is a code of 64 bits: the number of the term in the spec, and 32 bits of its own: the hash of a name, the
place of a date's part, 0 for a number or 1 for one that is missing. ``encode`` makes features of them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import kernel
from bigclf.features import label_cells
from bigclf.features import values as raw
from bigclf.features.spec import DATE_PARTS, Categorical, Date, Label, Numeric, Spec, Text
from bigclf.features.tally import Moments, Tally, note_hashes
from bigclf.features.text import grams_of
from bigclf.features.values import Bad, Names
from bigclf.maths.block import writable
from bigclf.maths.hashing import hash_names

TEXT_AT_A_TIME = 2**21  # characters
CELLS_AT_A_TIME = 2**20  # of columns of numbers
MISSING = np.uint64(1)  # of a number
UNLABELLED = "the label is missing"


class Extracted(NamedTuple):
    """Raw rows: indptr int64 [m+1], codes uint64 and values float64 [nnz] or [0] where all are 1, labels float64 [m]
    (text by a hash of 53 bits; NaN where there are none), weights float64 [m] or [0]; and the rows that are bad, which
    make all the rest worthless."""

    indptr: np.ndarray
    codes: np.ndarray
    values: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    bad: Bad


class Part(NamedTuple):
    """What a term makes of some rows: entries a row int64 [m], codes uint64 and values float64 [nnz], None: all 1."""

    lengths: np.ndarray
    codes: np.ndarray
    values: np.ndarray | None


class Rows(NamedTuple):
    """The rows at hand: columns by name, how many rows, of each row its key for samples, what means missing, what is
    bad; what is to be noted once it is known that nothing is bad (None: there is nothing to learn); what stands before
    decimals; and whether labels that are numbers may be true and false in words."""

    columns: Mapping[str, Any]
    n_rows: int
    keys: np.ndarray
    missing: tuple[str, ...]
    bad: Bad
    notes: list[Callable[[Tally], None]] | None
    decimal: str
    words: bool = True

    def numbers(self, name: str, written: str = "plain", truths: bool = False) -> np.ndarray:
        """A column as float64 [m], NaN where missing."""
        column = raw.require(self.columns, name)
        return raw.numbers(column, name, self.missing, self.bad, self.decimal, written, truths)

    def numbers_of(self, terms: list[Numeric]) -> np.ndarray:
        """Columns of several terms as float64 [k, m]: together, unless one of them has to be looked at by itself."""
        columns = [raw.require(self.columns, term.column) for term in terms]
        plain = all(term.written == "plain" for term in terms)
        found = raw.numbers_together(columns, self.missing, self.decimal) if plain else None
        if found is not None:
            return found
        return np.array([self.numbers(term.column, term.written, truths=True) for term in terms])


def extract(
    spec: Spec,
    columns: Mapping[str, object],
    n_rows: int,
    tally: Tally | None = None,
    keys: np.ndarray | None = None,
    label: bool = True,
    words: bool = True,
) -> Extracted:
    """Raw features of rows.

    Parameters
    ----------
    columns : Arrow arrays [n_rows] by name.
    tally : takes note of what is to be learned; None: of nothing.
    keys : uint64 [n_rows], keys of the rows for samples.
    label : whether the spec's label and weight are read.
    words : whether labels that are numbers may be true and false, for 1 and 0; the tally counts such rows.

    Raises
    ------
    SchemaError : a column that is missing, or of a type that cannot be used.
    """
    keys = np.arange(n_rows, dtype=np.uint64) if keys is None else keys
    own = () if spec.label is None or not label else spec.label.columns
    weight = [] if spec.weight is None or not label else [spec.weight]
    raw.require_all(dict.fromkeys([*own, *weight, *spec.columns]), columns, own)
    rows = Rows(columns, n_rows, keys, spec.missing_values, {}, None if tally is None else [], spec.decimal, words)
    labels, weights = np.full(n_rows, np.nan), np.empty(0)
    if label and spec.label is not None:
        labels = labels_of(spec.label, rows)
    if label and spec.weight is not None:
        weights = weights_of(spec.weight, rows)
    parts = list[Part]()
    for kind, group in itertools.groupby(enumerate(spec.terms), key=lambda one: type(one[1])):
        terms = list(group)
        parts += numeric(terms, rows) if kind is Numeric else [PARTS[kind](x, t, spec, rows) for t, x in terms]
    if rows.bad:
        return Extracted(*assembled([], n_rows), labels, weights, rows.bad)
    if tally is not None:
        tally.rows += n_rows
        for note in rows.notes or ():
            note(tally)
    return Extracted(*assembled(parts, n_rows), labels, weights, {})


def assembled(parts: list[Part], n_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of what all terms made: indptr, codes, values."""
    lengths = sum((part.lengths for part in parts), np.zeros(n_rows, np.int64))
    indptr = np.append(0, np.cumsum(lengths))
    codes = np.empty(int(indptr[-1]), np.uint64)
    values = np.empty(0) if all(part.values is None for part in parts) else np.ones(codes.size)
    cursor = indptr[:-1].copy()
    nothing = np.empty(0)
    for part in parts:
        scatter(part.lengths, part.codes, nothing if part.values is None else part.values, cursor, codes, values)
    return indptr, codes, values


@kernel
def scatter(lengths, codes, values, cursor, all_codes, all_values):  # type: ignore[no-untyped-def]
    """Put a term's entries where each row's stand, and move the row's cursor on."""
    p = 0
    for i in range(lengths.size):
        for _ in range(lengths[i]):
            all_codes[cursor[i]] = codes[p]
            if values.size:
                all_values[cursor[i]] = values[p]
            cursor[i] += 1
            p += 1


# Each kind of term


def numeric(terms: list[tuple[int, Numeric]], rows: Rows) -> list[Part]:
    """Of terms that follow each other, with the number of each; many columns cost a call, not each its own."""
    step = max(1, CELLS_AT_A_TIME // max(1, rows.n_rows))
    return [_of_numbers(terms[first : first + step], rows) for first in range(0, len(terms), step)]


def _of_numbers(terms: list[tuple[int, Numeric]], rows: Rows) -> Part:
    x = rows.numbers_of([term for _, term in terms])
    logs = [k for k, (_, term) in enumerate(terms) if term.scale == "log"]
    x[logs] = np.copysign(np.log1p(np.abs(x[logs])), x[logs])
    marked = np.array([term.missing == "indicator" for _, term in terms])
    zeros = np.array([term.scale != "none" for _, term in terms])
    return _numbers(x, np.array([t for t, _ in terms]), rows, marked, zeros)


def date(term: Date, t: int, spec: Spec, rows: Rows) -> Part:
    column = raw.require(rows.columns, term.column)
    stamps = raw.days(column, term.column, term.format, rows.missing, rows.bad)
    absent = stamps == np.iinfo(np.int64).min
    x = raw.date_part(np.where(absent, 0, stamps), term.part)
    marked = term.missing == "indicator"
    if not DATE_PARTS[term.part]:
        return _numbers(np.where(absent, np.nan, x)[None], np.array([t]), rows, np.array([marked]), np.array([True]))
    there = ~absent | marked
    codes = _code(t) + np.where(absent, DATE_PARTS[term.part], x).astype(np.uint64)
    return Part(there.astype(np.int64), codes[there], None)


def _numbers(x: np.ndarray, terms: np.ndarray, rows: Rows, marked: np.ndarray, zeros: np.ndarray) -> Part:
    """Entries of columns of numbers, float64 [k, m], NaN where missing; ``zeros``: 0 is one too, as it will not stay
    0. Terms, ``marked`` and ``zeros`` are [k]."""
    absent = np.isnan(x)
    if rows.notes is not None:
        rows.notes.append(functools.partial(_note_numbers, terms=terms, keys=rows.keys, x=x))
    there = np.where(absent, marked[:, None], zeros[:, None] | (x != 0)).T
    columns, missing = np.nonzero(there)[1], absent.T[there]
    codes = _code(terms)[columns] + missing
    return Part(np.count_nonzero(there, axis=1), codes, np.where(missing, 1.0, x.T[there]))


def _note_numbers(tally: Tally, terms: np.ndarray, keys: np.ndarray, x: np.ndarray) -> None:
    binned = np.array([t in tally.samples for t in terms.tolist()], bool)
    for k in np.flatnonzero(binned).tolist():
        there = ~np.isnan(x[k])
        tally.samples[int(terms[k])].see(keys[there], x[k][there])
    tally.moments.add(Moments.of(x[~binned]), terms[~binned])


def categorical(term: Categorical, t: int, spec: Spec, rows: Rows) -> Part:
    texts = [raw.as_text(raw.require(rows.columns, name), name) for name in term.columns]
    text = texts[0] if len(texts) == 1 else raw.crossed(texts, rows.missing)
    found = raw.categories(text, rows.missing if len(texts) == 1 else (), term.lowercase)
    names = Names(found.names.text, np.append(found.names.bounds, found.names.bounds[-1]))  # the last: what is missing
    hashes = np.empty(names.bounds.size - 1, np.uint32)
    prefix = np.frombuffer(f"{term.name}=".encode(), np.uint8).copy()
    hash_names(prefix, names.text, names.bounds, hashes)
    there = np.ones(rows.n_rows, bool) if term.missing == "indicator" else found.codes >= 0
    if rows.notes is not None:
        counts = np.bincount(found.codes[there] % hashes.size, minlength=hashes.size)
        rows.notes.append(functools.partial(_note, t=t, hashes=hashes, counts=counts, names=names))
    return Part(there.astype(np.int64), (_code(t) + hashes)[found.codes][there], None)


def text(term: Text, t: int, spec: Spec, rows: Rows) -> Part:
    column = raw.as_text(raw.require(rows.columns, term.column), term.column)
    parts = [_some_texts(term, t, rows, texts) for texts in _pieces(column)]
    if len(parts) == 1:
        return parts[0]
    empty = [Part(np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0))]
    columns = zip(*(parts or empty), strict=True)
    lengths, codes, counts = (np.concatenate(column) for column in columns)
    return Part(lengths, codes, counts)


def _pieces(column: Any) -> Any:
    """Runs of rows with about so many bytes of text that fit the memory of their n-grams."""
    import pyarrow.compute as pc

    if not len(column):
        return
    sizes = raw.as_numpy(pc.fill_null(pc.binary_length(column), 0)).astype(np.int64)
    piece = np.cumsum(sizes) // TEXT_AT_A_TIME
    edges = np.flatnonzero(np.append(True, piece[1:] != piece[:-1]))
    for first, last in zip(edges, np.append(edges[1:], piece.size), strict=True):
        yield column.slice(int(first), int(last - first)).to_pylist()


def _some_texts(term: Text, t: int, rows: Rows, texts: list[str | None]) -> Part:
    """Hashes of each text's n-grams, ascending, with how often each occurs."""
    said = [said or "" for said in texts]
    if term.lowercase:
        said = [one.lower() for one in said]
    bounds = np.append(0, np.cumsum([len(one) for one in said])).astype(np.int64)
    found = grams_of("".join(said), bounds, term.analyzer, term.ngrams, (term.prefix or "").encode())
    pairs = (found.rows.astype(np.uint64) << np.uint64(32)) | found.hashes
    pairs.sort()
    first = np.flatnonzero(np.append(True, pairs[1:] != pairs[:-1])) if pairs.size else np.empty(0, np.int64)
    counts = np.diff(np.append(first, pairs.size)).astype(np.float64)
    pairs = pairs[first]
    hashes = pairs.astype(np.uint32)
    if rows.notes is not None:
        rows.notes.append(functools.partial(_note_grams, t=t, hashes=hashes, found=found))
    lengths = np.bincount((pairs >> np.uint64(32)).astype(np.int64), minlength=len(said))
    return Part(lengths, _code(t) + hashes, counts)


def _note_grams(tally: Tally, t: int, hashes: np.ndarray, found: Any) -> None:
    """Take note of the n-grams; ``hashes`` has each once a text."""
    ordered = np.sort(hashes)
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if ordered.size else np.empty(0, np.int64)
    distinct, counts = ordered[first], np.diff(np.append(first, ordered.size))
    if t in tally.frequencies:
        tally.frequencies[t].see(magnitude(distinct), counts)
    if not tally.seen[t].limit:
        _note(tally, t, distinct, counts, None)
        return
    places = np.empty(distinct.size, np.int64)
    places[np.searchsorted(distinct, found.hashes)] = np.arange(found.hashes.size)
    room: bytes = found.room.tobytes()
    starts, stops = found.starts[places].tolist(), found.stops[places].tolist()
    _note(tally, t, distinct, counts, [room[a:b] for a, b in zip(starts, stops, strict=True)])


def magnitude(hashes: np.ndarray) -> np.ndarray:
    """|h| of the hash as a signed number, what it is folded by; uint32, below 2^31 (of -2^31 it is 0, as ``index_of``
    folds it to any power of two)."""
    signed = hashes.view(np.int32).astype(np.int64)
    return np.where(signed == -(2**31), 0, np.abs(signed)).astype(np.uint32)


def _note(tally: Tally, t: int, hashes: np.ndarray, counts: np.ndarray, names: Names | list[bytes] | None) -> None:
    """Take note of distinct hashes that occur ``counts`` times (those of 0 do not) and of their names."""
    there = np.flatnonzero(counts)
    note_hashes(writable(hashes[there]), tally.sketches[t])
    if tally.seen[t].limit == 0:
        names = []
    elif isinstance(names, Names):
        names = names.some(there)
    tally.seen[t].see(hashes[there], counts[there], names or [])


def _code(t: object) -> Any:
    """Codes of terms by their numbers, an int or an array."""
    return np.asarray(t, np.uint64) << np.uint64(32)


PARTS: dict[type, Any] = {Categorical: categorical, Text: text, Date: date}


# Labels and weights


def labels_of(label: Label, rows: Rows) -> np.ndarray:
    """float64 [m]: the number, 0 or 1, or the hash of the text; a missing label is bad. Of several labels a row the
    hash of all as one text, also where there are none."""
    if label.several:
        return _of_several(label, rows)
    column = raw.require(rows.columns, label.column)
    if label.above is not None:
        return (_label_numbers(label, rows) > label.above).astype(np.float64)
    if label.type == "number":
        return _label_numbers(label, rows)
    text = raw.as_text(column, label.column)
    if label.strip or label.lowercase:
        text = spelt(label, text)
    found = raw.categories(text, rows.missing)
    for row in np.flatnonzero(found.codes < 0).tolist():
        rows.bad.setdefault(row, UNLABELLED)
    if found.names.bounds.size == 1:
        return np.zeros(rows.n_rows)
    if label.one_of or label.type == "bool":
        yes = {one.encode() for one in label.one_of} or {b"true", b"True", b"TRUE", b"1"}
        return _truths(label, found, yes, rows)
    codes = text_codes(found.names)
    if rows.notes is not None:
        rows.notes.append(functools.partial(Tally.see_labels, codes=codes, names=found.names))
    return codes[found.codes]


def _of_several(label: Label, rows: Rows) -> np.ndarray:
    import pyarrow.compute as pc

    columns = [raw.require(rows.columns, name) for name in label.columns]
    encoded = pc.dictionary_encode(label_cells.joined(label, columns, rows.missing, rows.bad))
    names, places = raw.names_of(encoded.dictionary), raw.as_numpy(encoded.indices)
    if label.missing == "drop":
        empty = np.flatnonzero(np.diff(names.bounds) == 0)
        for row in np.flatnonzero(np.isin(places, empty)).tolist():
            rows.bad.setdefault(row, UNLABELLED)
    codes = text_codes(names)
    if rows.notes is not None:
        rows.notes.append(functools.partial(Tally.see_labels, codes=codes, names=names))
    return codes[places]


def _truths(label: Label, found: raw.Categories, yes: set[bytes], rows: Rows) -> np.ndarray:
    """1 where the text is one of ``yes``; of a column of bools anything else than they is bad."""
    names = [found.names.name(i) for i in range(found.names.bounds.size - 1)]
    truths = np.array([name in yes for name in names])
    if not label.one_of:
        strange = np.array([name not in yes | {b"false", b"False", b"FALSE", b"0"} for name in names])
        for row in np.flatnonzero(strange[found.codes] & (found.codes >= 0)).tolist():
            rows.bad.setdefault(
                row, f"column {label.column}: {names[found.codes[row]].decode()!r} is not true or false"
            )
    return truths[found.codes].astype(np.float64)


def _label_numbers(label: Label, rows: Rows) -> np.ndarray:
    column = raw.require(rows.columns, label.column)
    if label.above is None:
        there, digits = raw.words_of_truth(column, label.column, rows.missing)
        n_words = int(np.count_nonzero(there))
        for row in np.flatnonzero(there).tolist() if not rows.words else ():
            said = str(column[row].as_py()).strip()
            rows.bad.setdefault(row, f"column {label.column}: {said!r} is not a number")
        column = digits
        if n_words and rows.notes is not None:
            rows.notes.append(functools.partial(Tally.see_words, n=n_words))
    numbers = raw.numbers(column, label.column, rows.missing, rows.bad, rows.decimal)
    for row in np.flatnonzero(np.isnan(numbers)).tolist():
        rows.bad.setdefault(row, UNLABELLED)
    return numbers


def spelt(label: Label, column: Any) -> object:
    """Labels that are text as classes are spelt: without blanks around them, and what else is to be stripped."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    text = raw.trimmed(column)
    text = pc.utf8_trim(text, characters=label.strip) if label.strip else text
    return pc.utf8_lower(text) if label.lowercase else text


def text_codes(names: Names) -> np.ndarray:
    """A number of 53 bits for each text, the same wherever it is met; float64."""
    import xxhash

    hashes = [xxhash.xxh3_64_intdigest(names.name(i)) >> 11 for i in range(names.bounds.size - 1)]
    return np.array(hashes, np.float64)


def weights_of(name: str, rows: Rows) -> np.ndarray:
    """float64 [m] at least 0; one that is missing or negative is bad."""
    weights = rows.numbers(name)
    for row in np.flatnonzero(~(weights >= 0)).tolist():
        rows.bad.setdefault(row, f"column {name}: the weight is missing or negative")
    return weights
