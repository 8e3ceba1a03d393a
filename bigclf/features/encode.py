"""Raw features into features, with what was learned: standardised, weighted, folded to their places, sorted, summed.

Features that are known one by one (numbers, bins, dictionaries, parts of dates) come first, in the order of the spec;
then 2^bits places for everything hashed.

What was learned is arrays, which are kept in one file beside the shards (``FILE``) and as tensors in the model: a
dictionary or the frequencies of a million words have no place in the footer of every shard. The footer has the spec,
the counts, and the digest of the arrays.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf import files
from bigclf.compiled.jit import kernel
from bigclf.errors import DataError, MemoryBudgetError, SchemaError
from bigclf.features.extract import Extracted
from bigclf.features.spec import DATE_PARTS, MAX_BITS, Categorical, Date, Numeric, Spec, Text, parse, with_format
from bigclf.features.tally import Tally, chained, estimate, packed
from bigclf.features.truths import DIGITS, others
from bigclf.files.json_fields import check_relations
from bigclf.maths.block import writable
from bigclf.maths.hashing import LEAST_H, fold, hash_names, index_of, sign_of

if TYPE_CHECKING:
    from bigclf.features.spec import Term


FILE = "_bigclf_features.safetensors"
SPEC = "_bigclf_features.json"
NUMBER, BINS, EXACT, PLACE, HASHED, TEXT = range(6)  # what is done with a raw feature
LEAST_BITS, MOST_BITS = 10, 24
COLLIDING = 0.1  # of the hashed names, above which a user should know before training that they share an index
WEEKDAYS = "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"
UNKNOWN = "are none of the categories that are known; they count as zero"
SHOWN = 3  # unknown categories of a column
SPARSE = 16  # places for each distinct feature: about one in sixteen then shares its place with another


class Learned(NamedTuple):
    """Everything that finishing needs beside the spec, by term or one term after another.

    Attributes
    ----------
    kind : uint8 [T], NUMBER ... TEXT.
    first : int64 [T], the first place of the term's own features; of hashed ones that of all hashed.
    mean, scale : float64 [T], of numbers.
    edges, keys : the terms' bin edges (float64) and known hashes (uint32, ascending), one after another; where each
        begins: ``edges_at``, ``keys_at`` int64 [T+1].
    idf_places, idf_counts : places (uint32) and texts (int64) of the words of TEXT terms that have an idf; where each
        begins: ``idf_at`` int64 [T+1].
    names, names_at : what the known hashes stand for, UTF-8, and where each begins, int64.
    word_places, word_terms, words, words_at : of hashed features whose names were kept their place (uint32), term
        (uint16) and name.
    counts : int64 [4]: bits, rows, features in all, distinct hashed features (an estimate).
    """

    kind: np.ndarray
    first: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    edges: np.ndarray
    edges_at: np.ndarray
    keys: np.ndarray
    keys_at: np.ndarray
    idf_places: np.ndarray
    idf_counts: np.ndarray
    idf_at: np.ndarray
    names: np.ndarray
    names_at: np.ndarray
    word_places: np.ndarray
    word_terms: np.ndarray
    words: np.ndarray
    words_at: np.ndarray
    counts: np.ndarray

    @property
    def bits(self) -> int:
        return int(self.counts[0])

    @property
    def n_features(self) -> int:
        return int(self.counts[2])

    @property
    def binary(self) -> bool:
        """Whether every value is 1."""
        return not np.isin(self.kind, (NUMBER, HASHED, TEXT)).any()

    def digest(self) -> str:
        """Hex over all of it."""
        digest = hashlib.blake2b(digest_size=16)
        for name, array in self._asdict().items():
            digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


# Learning


def learn(spec: Spec, tally: Tally) -> Learned:
    """What the tally of all rows says about each term."""
    kinds = [_kind(term, tally, t) for t, term in enumerate(spec.terms)]
    edges = [tally.samples[t].edges(term.bins) if k == BINS else np.empty(0)
             for t, (term, k) in enumerate(zip(spec.terms, kinds, strict=True))]  # fmt: skip
    known = [sorted(tally.seen[t].table.items()) if k == EXACT else [] for t, k in enumerate(kinds)]
    hashed = [t for t, k in enumerate(kinds) if k in (HASHED, TEXT)]
    distinct = sum(round(estimate(tally.sketches[t])) for t in hashed)
    bits = _bits(spec, tally, hashed, distinct)
    sizes = [_size(term, k, e, d) for term, k, e, d in zip(spec.terms, kinds, edges, known, strict=True)]
    first = np.append(0, np.cumsum(sizes, dtype=np.int64))
    total = int(first[-1]) + (2**bits if hashed else 0)
    first = np.where(np.isin(kinds, (HASHED, TEXT)), first[-1], first[:-1]) if kinds else first[:-1]
    moved = np.array([_moved(term) for term in spec.terms], bool)
    idf = [_frequencies(tally, t, bits) for t in range(len(kinds))]
    names, names_at = packed([name for table in known for _, (_, name) in table])
    edge_list, edges_at = chained(edges, np.float64)
    keys, keys_at = chained([np.array([h for h, _ in table]) for table in known], np.uint32)
    counts, idf_at = chained([found for _, found in idf], np.int64)
    word_places, word_terms, words, words_at = _words(tally, hashed, bits, int(first[hashed[0]]) if hashed else 0)
    return Learned(
        kind=np.array(kinds, np.uint8),
        first=np.asarray(first, np.int64),
        mean=np.where(moved, tally.moments.mean, 0.0),
        scale=np.where(moved, tally.moments.deviations(), 1.0),
        edges=edge_list,
        edges_at=edges_at,
        keys=keys,
        keys_at=keys_at,
        idf_places=chained([places for places, _ in idf], np.uint32)[0],
        idf_counts=counts,
        idf_at=idf_at,
        names=names,
        names_at=names_at,
        word_places=word_places,
        word_terms=word_terms,
        words=words,
        words_at=words_at,
        counts=np.array([bits, tally.rows, total, distinct], np.int64),
    )


def _kind(term: Term, tally: Tally, t: int) -> int:
    if isinstance(term, Text):
        return TEXT
    if isinstance(term, Categorical):
        if term.encode == "exact" and tally.seen[t].many:
            raise DataError("too many categories for a dictionary; let them be hashed (encode: auto)", column=term.name)
        return HASHED if term.encode == "hashed" or tally.seen[t].many else EXACT
    if isinstance(term, Date) and DATE_PARTS[term.part]:
        return PLACE
    return BINS if isinstance(term, Numeric) and term.scale == "bins" else NUMBER


def _moved(term: Term) -> bool:
    """Whether the numbers are standardised."""
    return not (isinstance(term, Numeric) and term.scale == "none")


def _size(term: Any, kind: int, edges: np.ndarray, known: Sequence[object]) -> int:
    """Places of the term's own."""
    if kind in (HASHED, TEXT):
        return 0
    if kind == EXACT:
        return len(known)
    marked = term.missing == "indicator"
    return (edges.size + 1 if kind == BINS else DATE_PARTS[term.part] if kind == PLACE else 1) + marked


def _bits(spec: Spec, tally: Tally, hashed: list[int], distinct: int) -> int:
    if not hashed:
        return 0
    most = min((tally.frequencies[t].bits for t in hashed if t in tally.frequencies), default=31)
    if spec.hash_bits is not None:
        if spec.hash_bits > most:
            raise MemoryBudgetError(f"hash_bits={spec.hash_bits}: document frequencies were kept for 2^{most} places")
        return spec.hash_bits
    return min(most, max(LEAST_BITS, min(MOST_BITS, (SPARSE * distinct - 1).bit_length())))


def _frequencies(tally: Tally, t: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    if t not in tally.frequencies:
        return np.empty(0, np.uint32), np.empty(0, np.int64)
    return tally.frequencies[t].folded(bits)


def _words(
    tally: Tally, hashed: list[int], bits: int, first: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Names of hashed features by place: the most frequent of each term."""
    found = list[tuple[int, int, bytes]]()
    for t in hashed:
        tally.seen[t].cut()
        table = tally.seen[t].table
        hashes = np.array(list(table), np.uint32)
        places, signs = np.empty(hashes.size, np.uint32), np.empty(hashes.size, np.float32)
        fold(hashes, 2**bits, places, signs)
        found += [(place, t, name) for place, (_, name) in zip(places.tolist(), table.values(), strict=True)]
    found.sort()
    places = np.array([place + first for place, _, _ in found], np.uint32)
    return places, np.array([t for _, t, _ in found], np.uint16), *packed([name for _, _, name in found])


# Finishing


class Finisher:
    """Makes features of raw ones."""

    def __init__(self, spec: Spec, learned: Learned) -> None:
        self.spec, self.learned = spec, learned
        self.n_features, self.binary = learned.n_features, learned.binary
        options = np.zeros((len(spec.terms), 2), np.uint8)
        for t, term in enumerate(spec.terms):
            if isinstance(term, Text):
                options[t] = term.sublinear, term.norm
        self._tables = [
            writable(getattr(learned, name)) for name in ("kind", "first", "mean", "scale", "edges", "edges_at", "keys",
                                                          "keys_at")
        ]  # fmt: skip
        self._idf, self._idf_at = dense_idf(spec, learned)
        self._options = options
        self._respelt = respelt(spec, learned)

    def check(self) -> None:
        """FieldError where the spec and what was learned are not of the same terms."""
        told, counts = self.learned, self.learned.counts
        check_relations([
            (len(self.spec.terms) == told.kind.size, "features.features", f"the {told.kind.size:,} terms learned of"),
            (counts.shape == (4,), "features.learned", "that of the arrays beside it"),
        ])  # fmt: skip

    def __call__(self, indptr: np.ndarray, codes: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, ...]:
        """indptr int64 [m+1], indices uint32, values float32 (or [0] where all are 1) of raw rows."""
        codes, out_indptr = self._as_known(codes), np.zeros(indptr.size, np.int64)
        indices, out = np.empty(codes.size, np.uint32), np.empty(codes.size, np.float64)
        finish: Any = finish_rows
        n = finish(
            writable(indptr), writable(codes), writable(values), *self._tables, self._idf, self._idf_at, self._options,
            2**self.learned.bits, self.spec.signed, out_indptr, indices, out,
        )  # fmt: skip
        with np.errstate(over="ignore"):
            stored = out[:0].astype(np.float32) if self.binary else out[:n].astype(np.float32)
        return out_indptr, indices[:n].copy(), stored

    def rows(self, found: Extracted) -> tuple[np.ndarray, ...]:
        return self(found.indptr, found.codes, found.values)

    def unknown(self, found: Extracted) -> tuple[np.ndarray, np.ndarray]:
        """Row and term, int64, of each category that is none of those known one by one, and so becomes no feature."""
        learned, codes = self.learned, self._as_known(found.codes)
        terms = (codes >> np.uint64(32)).astype(np.int64)
        lost = np.zeros(terms.size, bool)
        for t in np.flatnonzero(learned.kind == EXACT).tolist():
            mine = np.flatnonzero(terms == t)
            keys = learned.keys[learned.keys_at[t] : learned.keys_at[t + 1]]
            lost[mine] = ~np.isin(codes[mine].astype(np.uint32), keys)
        places = np.flatnonzero(lost)
        return np.searchsorted(found.indptr, places, "right") - 1, terms[places]

    def _as_known(self, codes: np.ndarray) -> np.ndarray:
        """The codes, other spellings of truths as those that are known."""
        written, known = self._respelt
        if not written.size:
            return codes
        places = np.minimum(np.searchsorted(written, codes), written.size - 1)
        return np.where(written[places] == codes, known[places], codes)


def category_hashes(term: Categorical, texts: Sequence[str]) -> np.ndarray:
    """uint32 of each text as a category of the term."""
    names, bounds = packed([text.encode() for text in texts])
    hashes = np.empty(len(texts), np.uint32)
    hash_names(np.frombuffer(f"{term.name}=".encode(), np.uint8).copy(), names, bounds, hashes)
    return hashes


def category_names(learned: Learned, t: int) -> list[str]:
    """The categories of a term that are known one by one, in the order of their places."""
    at = learned.names_at[learned.keys_at[t] : learned.keys_at[t + 1] + 1]
    text, starts = learned.names[at[0] : at[-1]].tobytes(), (at - at[0]).tolist()
    return [text[a:b].decode("utf-8", "replace") for a, b in itertools.pairwise(starts)]


def unknown_warnings(spec: Spec, learned: Learned, tally: Tally) -> list[str]:
    """What to say of categories of rows that are none of those learned of other rows: they become no feature."""
    found, written = [], [divmod(code, 2**32) for code in respelt(spec, learned)[0].tolist()]
    for t in np.flatnonzero(learned.kind == EXACT).tolist():
        known = {*learned.keys[learned.keys_at[t] : learned.keys_at[t + 1]].tolist()}
        known |= {h for term, h in written if term == t}
        new = sorted((-count, name) for h, (count, name) in tally.seen[t].table.items() if h not in known)
        if new:
            shown = [repr(name.decode("utf-8", "replace")) for _, name in new[:SHOWN]] + ["..."] * (len(new) > SHOWN)
            cells = f"{-sum(count for count, _ in new):,} cells ({', '.join(shown)})"
            found.append(f"column {spec.terms[t].name}: {cells} {UNKNOWN}")
    return found


def respelt(spec: Spec, learned: Learned) -> tuple[np.ndarray, np.ndarray]:
    """Raw features, uint64, that are other spellings of truths (``truths.others``), ascending, and those meant."""
    pairs = list[tuple[int, int]]()
    order = np.argsort(learned.word_terms, kind="stable")
    bounds = np.searchsorted(learned.word_terms[order], np.arange(len(spec.terms) + 1))
    for t, term in enumerate(spec.terms):
        mine = order[bounds[t] : bounds[t + 1]]
        if not isinstance(term, Categorical) or not (told := respelt_names(spec, learned, t, mine)):
            continue
        written, known = category_hashes(term, list(told)), category_hashes(term, list(told.values()))
        pairs += [((t << 32) + a, (t << 32) + b) for a, b in zip(written.tolist(), known.tolist(), strict=True)]
    pairs.sort()
    return np.array([a for a, _ in pairs], np.uint64), np.array([b for _, b in pairs], np.uint64)


def respelt_names(spec: Spec, learned: Learned, t: int, mine: np.ndarray | None = None) -> dict[str, str]:
    """The category of the term that is meant by each text that is another spelling of one. Of hashed ones those count
    whose names were kept, at the places ``mine`` (None: looked for); where some were not, a 1 or 0 may be one of these
    and stays."""
    if learned.kind[t] == EXACT:
        return others(category_names(learned, t))
    mine = np.flatnonzero(learned.word_terms == t) if mine is None else mine
    starts, ends = learned.words_at[mine].tolist(), learned.words_at[mine + 1].tolist()
    texts = (learned.words[a:b].tobytes() for a, b in zip(starts, ends, strict=True))
    found = others([text.decode("utf-8", "replace") for text in texts])
    if len(mine) < spec.names:
        return found
    return {text: name for text, name in found.items() if not {*text.split("&")} & {*DIGITS}}


def idf_of(learned: Learned, counts: np.ndarray) -> np.ndarray:
    """ln((1 + n) / (1 + df)) + 1, float64, for the ``counts`` df of n texts."""
    found: np.ndarray = np.log((1 + int(learned.counts[1])) / (1 + counts)) + 1
    return found


def dense_idf(spec: Spec, learned: Learned) -> tuple[np.ndarray, np.ndarray]:
    """idf float64 of every place, a term after another; where each begins, -1 without."""
    starts, tables = np.full(len(spec.terms), -1, np.int64), [np.empty(0)]
    places = 2**learned.bits
    for t, term in enumerate(spec.terms):
        if isinstance(term, Text) and term.tfidf:
            first, last = learned.idf_at[t], learned.idf_at[t + 1]
            counts = np.zeros(places)
            counts[learned.idf_places[first:last]] = learned.idf_counts[first:last]
            starts[t] = sum(table.size for table in tables)
            tables.append(idf_of(learned, counts))
    return np.concatenate(tables), starts


@kernel
def finish_rows(  # type: ignore[no-untyped-def]
    indptr, codes, values, kind, first, mean, scale, edges, edges_at, keys, keys_at, idf, idf_at, options, n_hashed,
    signed, out_indptr, indices, out
):  # fmt: skip
    """Fill ``out_indptr``, ``indices`` and ``out`` (float64) with sorted rows without zeros; return the entries."""
    n = 0
    for i in range(indptr.size - 1):
        begin = n
        p = indptr[i]
        while p < indptr[i + 1]:
            t = np.int64(codes[p] >> np.uint64(32))
            if kind[t] == TEXT:
                q, total, m = p, 0.0, n
                while q < indptr[i + 1] and np.int64(codes[q] >> np.uint64(32)) == t:
                    h = np.uint32(codes[q] & np.uint64(0xFFFFFFFF))
                    place = np.int64(index_of(h, n_hashed))
                    x = values[q]
                    if options[t, 0]:
                        x = 1.0 + np.log(x)
                    if idf_at[t] >= 0:
                        x *= idf[idf_at[t] + place]
                    total += x * x
                    indices[n] = first[t] + place
                    out[n] = x * sign_of(h) if signed else x
                    n += 1
                    q += 1
                if options[t, 1] and total > 0.0:
                    length = np.sqrt(total)
                    for k in range(m, n):
                        out[k] /= length
                p = q
                continue
            low = np.int64(codes[p] & np.uint64(0xFFFFFFFF))
            x = values[p] if values.size else 1.0
            place = first[t] + low
            if kind[t] == NUMBER:
                if low == 0:
                    x = (x - mean[t]) / scale[t]
            elif kind[t] == BINS:
                place = first[t] + edges_at[t + 1] - edges_at[t] + 1
                if low == 0:
                    place = first[t] + _after(edges, edges_at[t], edges_at[t + 1], x) - edges_at[t]
                x = 1.0
            elif kind[t] == EXACT:
                k = _after(keys, keys_at[t], keys_at[t + 1], low) - 1
                if k < keys_at[t] or np.int64(keys[k]) != low:
                    p += 1
                    continue
                place = first[t] + k - keys_at[t]
            elif kind[t] == HASHED:
                h = np.uint32(low)
                place = first[t] + np.int64(index_of(h, n_hashed))
                x = np.float64(sign_of(h)) if signed else 1.0
            indices[n] = place
            out[n] = x
            n += 1
            p += 1
        sort_entries(indices, out, begin, n)
        n = merge_entries(indices, out, begin, n)
        out_indptr[i + 1] = n
    return n


@kernel
def _after(table, low, high, x):  # type: ignore[no-untyped-def]
    """The first place from ``low`` to ``high`` of an ascending table whose entry is greater than x."""
    while low < high:
        middle = (low + high) // 2
        if table[middle] <= x:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def sort_entries(indices, values, first, last):  # type: ignore[no-untyped-def]
    """Sort first:last by index: heap sort, or nothing where it is sorted."""
    n = last - first
    k = 1
    while k < n and indices[first + k - 1] <= indices[first + k]:
        k += 1
    if k >= n:
        return
    for start in range(n // 2 - 1, -1, -1):
        _sift(indices, values, first, start, n)
    for end in range(n - 1, 0, -1):
        indices[first], indices[first + end] = indices[first + end], indices[first]
        values[first], values[first + end] = values[first + end], values[first]
        _sift(indices, values, first, 0, end)


@kernel
def _sift(indices, values, first, root, end):  # type: ignore[no-untyped-def]
    while 2 * root + 1 < end:
        child = 2 * root + 1
        if child + 1 < end and indices[first + child] < indices[first + child + 1]:
            child += 1
        if indices[first + root] >= indices[first + child]:
            return
        a, b = first + root, first + child
        indices[a], indices[b] = indices[b], indices[a]
        values[a], values[b] = values[b], values[a]
        root = child


@kernel
def merge_entries(indices, values, first, last):  # type: ignore[no-untyped-def]
    """Add up entries of the same index, leave out those that are 0 in float32; return where the row now ends."""
    n, p = first, first
    while p < last:
        index, total = indices[p], values[p]
        p += 1
        while p < last and indices[p] == index:
            total += values[p]
            p += 1
        if np.float32(total) != np.float32(0):
            indices[n], values[n] = index, total
            n += 1
    return n


# Keeping


def described(spec: Spec, learned: Learned) -> dict[str, Any]:
    """What stands under ``features`` in shards, manifest and model."""
    bits, rows, n_features, distinct = learned.counts.tolist()
    told = {"hash_bits": bits, "rows": rows, "n_features": n_features, "distinct_hashed": distinct}
    return {**spec.as_json(), "learned": {**told, "file": FILE, "digest": learned.digest()}}


def is_columns(features: Mapping[str, object] | None) -> bool:
    """Whether these features were made of raw columns."""
    return bool(features) and features.get("kind") == "columns"  # type: ignore[union-attr]


def save(learned: Learned, directory: str) -> None:
    """Write the arrays into the directory of the shards."""
    arrays = {name: np.ascontiguousarray(array) for name, array in learned._asdict().items()}
    files.publish_tensors(files.join(directory, FILE), arrays)


def load(features: Mapping[str, object], directory: str) -> Learned:
    """The arrays that belong to ``features``, from the directory of the shards.

    Raises
    ------
    DataError : if they are missing, damaged or of other shards.
    """
    import safetensors.numpy
    from safetensors import SafetensorError

    path = files.join(directory, FILE)
    if not files.exists(path):
        raise DataError("missing: what was learned of the raw columns; copy it together with the shards", file=path)
    try:
        return checked(safetensors.numpy.load(files.read_bytes(path)), features, path)
    except (SafetensorError, ValueError) as error:
        raise DataError(f"damaged; copy it again ({error})", file=path) from None


def given_features(
    features: Any, format: str, by_name: Callable[[], str | None] = lambda: None
) -> tuple[Spec, Learned | None]:
    """The spec that was asked for and, of a model or a dataset, what was learned for it.

    ``format`` and ``by_name`` as in ``with_format``.

    Raises
    ------
    SchemaError : they were not made of raw columns, or what was learned is missing.
    """
    if not hasattr(features, "features"):
        return with_format(features, format, by_name), None
    known = features.features
    arrays = features.learned_of_columns() if hasattr(features, "learned_of_columns") else features.learned
    if not is_columns(known) or not arrays:
        raise SchemaError("these features were not made of raw columns, or what was learned of them is missing")
    return with_format(known, format), checked(arrays, known, "")


_finishers: dict[tuple[str, str], Finisher] = {}  # at most one


def finisher_beside(directory: str, digest: str) -> Finisher:
    """What makes features for the shards of a directory: their spec stands in ``SPEC`` there while they are written,
    unless this process made it."""
    if (directory, digest) not in _finishers:
        features = json.loads(files.read_text(files.join(directory, SPEC)))
        keep_finisher(directory, digest, Finisher(parse(features), load(features, directory)))
    return _finishers[directory, digest]


def keep_finisher(directory: str, digest: str, finisher: Finisher) -> None:
    """Have it at hand for the shards of a directory, and no other."""
    _finishers.clear()
    _finishers[directory, digest] = finisher


def forget_finishers() -> None:
    """Let go what was at hand."""
    _finishers.clear()


def checked(arrays: Mapping[str, np.ndarray], features: Mapping[str, Any], place: str) -> Learned:
    """The arrays as ``Learned``, if they are those that ``features`` speaks of; ValueError otherwise."""
    if set(arrays) != set(Learned._fields):
        raise ValueError("what was learned of the columns is not complete")
    learned = Learned(**arrays)
    if learned.digest() != features["learned"]["digest"]:
        raise ValueError("what was learned of the columns belongs to other shards")
    return learned


def report(spec: Spec, learned: Learned) -> dict[str, Any]:
    """How many features of each kind, and what share of the hashed ones meets another at its place."""
    bits, _, n_features, distinct = learned.counts.tolist()
    hashed = bool(np.isin(learned.kind, (HASHED, TEXT)).any())
    colliding = 1 - float(np.exp(-max(distinct - 1, 0) / 2**bits)) if hashed else 0.0
    return {
        "features": n_features,
        "exact_features": n_features - (2**bits if hashed else 0),
        "hash_bits": bits if hashed else None,
        "distinct_hashed": distinct,
        "colliding": colliding,
    }


def collisions_text(share: float, names: int, hash_bits: int) -> str:
    """How many of the hashed names share their index, whether that matters, and what mends it."""
    bits = min(hash_bits + 2, MAX_BITS)
    matters = "that may cost accuracy" if share > COLLIDING else "so few collisions rarely matter"
    return (f"about {100 * share:.1f} % of the {names:,} hashed names share their index with another "
            f"one: {matters}; --hash-bits {bits} (hash_bits: {bits} in a spec) separates most of them")  # fmt: skip


def names_of(spec: Spec, learned: Learned, indices: np.ndarray | Sequence[int]) -> list[str]:
    """What each feature is, as people read it; a hashed one whose name was not kept is "hash N"."""
    return [_name(spec, learned, int(index)) for index in indices]


def _name(spec: Spec, learned: Learned, index: int) -> str:
    hashed = np.isin(learned.kind, (HASHED, TEXT))
    start = learned.n_features - (2**learned.bits if hashed.any() else 0)
    if index >= start:
        return " or ".join(hashed_names(spec, learned, index)) or f"hash {index - start}"
    own = np.where(hashed, -1, learned.first)
    t = int(np.flatnonzero((own >= 0) & (own <= index))[-1])
    return _own_name(spec.terms[t], learned, t, index - int(learned.first[t]))


def term_of_features(spec: Spec, learned: Learned, features: np.ndarray) -> np.ndarray:
    """int64 [m]: the number of the term that each of the ``features`` [m] is of; -1 for a place of hashed features that
    several terms may share, of which no name was kept."""
    hashed = np.isin(learned.kind, (HASHED, TEXT))
    start = learned.n_features - (2**learned.bits if hashed.any() else 0)
    own = np.flatnonzero(~hashed)
    found, early = np.full(features.size, -1, np.int64), features < start
    if own.size:
        found[early] = own[np.searchsorted(learned.first[own], features[early], "right") - 1]
    if hashed.sum() == 1:
        found[~early] = np.flatnonzero(hashed)[0]
    elif learned.word_places.size:
        last = np.searchsorted(learned.word_places, features, "right") - 1
        named = (last >= 0) & (learned.word_places[last] == features)
        found[named] = learned.word_terms[last[named]]
    return found


def hashed_names(spec: Spec, learned: Learned, index: int) -> tuple[str, ...]:
    """Every name that was kept of a hashed feature; of any other feature, and where none was, ()."""
    low, high = np.searchsorted(learned.word_places, [index, index + 1])
    return tuple(dict.fromkeys(_word(spec, learned, k) for k in range(low, high)))


def hashed_signs(spec: Spec, learned: Learned) -> np.ndarray:
    """float64 [names that were kept]: 1 or -1, what an occurrence of each is multiplied by in a row; by place."""
    signs = np.ones(learned.word_places.size)
    if not spec.signed:
        return signs
    for t in np.unique(learned.word_terms).tolist():
        of, term = np.flatnonzero(learned.word_terms == t), spec.terms[t]
        lead = (term.prefix or "") if isinstance(term, Text) else f"{term.name}="
        text, bounds = packed([learned.words[learned.words_at[k] : learned.words_at[k + 1]].tobytes() for k in of])
        hashes = np.empty(of.size, np.uint32)
        hash_names(np.frombuffer(lead.encode(), np.uint8).copy(), writable(text), writable(bounds), hashes)
        signs[of] = np.where(hashes < LEAST_H, 1.0, -1.0)
    return signs


def _word(spec: Spec, learned: Learned, k: int) -> str:
    text = learned.words[learned.words_at[k] : learned.words_at[k + 1]].tobytes().decode("utf-8", "replace")
    term = spec.terms[int(learned.word_terms[k])]
    if isinstance(term, Text):
        return text if not term.prefix else term.prefix + text
    return f"{term.name}={text}" if text else f"{term.name} is missing"


def _own_name(term: Any, learned: Learned, t: int, place: int) -> str:
    kind = int(learned.kind[t])
    if kind == EXACT:
        k = int(learned.keys_at[t]) + place
        text = learned.names[learned.names_at[k] : learned.names_at[k + 1]].tobytes().decode("utf-8", "replace")
        return f"{term.name}={text}" if text else f"{term.name} is missing"
    size = {BINS: int(learned.edges_at[t + 1] - learned.edges_at[t]) + 1, NUMBER: 1}.get(kind) or DATE_PARTS[term.part]
    if place == size:
        return f"{term.name} is missing"
    if kind == BINS:
        return f"{term.name} in {_range(learned.edges[learned.edges_at[t] : learned.edges_at[t + 1]], place)}"
    if kind != PLACE:
        return str(term.name)
    value = WEEKDAYS[place] if term.part == "weekday" else place + (term.part in ("month", "day"))
    return f"{term.name}={value}"


def _range(edges: np.ndarray, place: int) -> str:
    low = "-inf" if place == 0 else f"{edges[place - 1]:g}"
    high = "inf" if place == edges.size else f"{edges[place]:g}"
    return f"[{low}, {high})"
