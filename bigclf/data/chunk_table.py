"""What is known of rows without reading them again: facts of row groups, files and datasets, and the chunk table.

Our own shards say it in their footers; of other people's files it is gathered in one read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from bigclf.data import label_sets, shards
from bigclf.data.footer import Footer, Group
from bigclf.data.label_sets import TEXT, WHOLE
from bigclf.data.shards import Layout, Rows
from bigclf.errors import DataError, MemoryBudgetError, SchemaError
from bigclf.features.arrow import as_numpy
from bigclf.files.json_fields import (
    FLAG,
    TABLE,
    check_facts,
    check_features,
    check_fields,
    check_relations,
    either,
    list_of,
    number,
    optional,
    or_none,
    table_of,
    text,
    tuple_of,
    whole,
)
from bigclf.limits import memory_limit
from bigclf.maths.block import one_value_a_row
from bigclf.maths.losses import REGRESSION
from bigclf.units import format_bytes

if TYPE_CHECKING:
    import pyarrow as pa


MAX_FLOAT_CLASSES = 100_000  # more distinct labels that are not whole numbers are no classes
MANY_FLOAT_CLASSES = 20  # more are warned of
EQUAL_PER_BYTE = 64  # entries; more are runs of equal numbers, as of no indices that ascend
DECODING_BYTES = 32  # an entry: index and value in Arrow's arrays, which grow by doubling, and in ours
HANDFUL = 10  # rows; of fewer everybody sees what there is
MANY_WHOLE_CLASSES = 50
ROW_ENTRIES = 6  # so many entries take the memory that a row of a block takes beside its own
GIVEN = {"kind": "given", "version": 1}
Line = tuple[int, int, int, int, int, int]  # a chunk: row group, first row, rows, nnz; of them, those of weight 0
_A = TypeVar("_A")
_B = TypeVar("_B")


Named: TypeAlias = str | tuple[str, ...] | None  # the columns of a role


class Chunks(NamedTuple):
    """The chunk table, in file order, one entry a chunk (c of them; none is empty).

    Attributes
    ----------
    file, row_group : int32 [c].
    first : int64 [c]; first row inside the row group.
    rows, nnz : int64 [c].
    row0 : int64 [c]; number in the whole dataset of its first row.
    """

    file: np.ndarray
    row_group: np.ndarray
    first: np.ndarray
    rows: np.ndarray
    nnz: np.ndarray
    row0: np.ndarray


@dataclasses.dataclass
class Facts:
    """What is known of some rows: of a row group, a file or the whole dataset.

    Labels that can be classes are counted; of others, which only a regression can learn, the range is kept.
    """

    n_rows: int = 0
    nnz: int = 0
    n_features: int = 0
    label_dtype: str = ""  # numpy's name, "str" for text, as in ``label_sets`` for lists, "" when there are none
    counts: Counter[Any] = dataclasses.field(default_factory=Counter)
    label_changes: int = 0  # rows whose label is not that of the row before
    binary: bool = True
    row_constant: bool = True  # no row has two values that differ
    index_width: int = 4
    weighted: bool = False
    weight_sum: float = 0.0
    max_row_nnz: int = 0
    max_norm: float = 0.0
    label_range: tuple[float, float, float] | None = None  # least, greatest and sum of labels that are no classes

    def add(self, other: Facts) -> None:
        """Take in what is known of further rows."""
        for name in ("n_rows", "nnz", "label_changes", "weight_sum"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("n_features", "index_width", "max_row_nnz", "max_norm", "weighted"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        self.binary = self.binary and other.binary
        self.row_constant = self.row_constant and other.row_constant
        self.label_dtype = _wider(self.label_dtype, other.label_dtype)
        if self.label_range is None and other.label_range is None:
            self.counts.update(other.counts)
        else:
            self.label_range, self.counts = _joined(self.labels_span(), other.labels_span()), Counter()
        self.settle()

    def settle(self, many: bool = False) -> None:
        """Stop counting labels that are too ``many`` to be classes."""
        many = many or len(self.counts) > MAX_FLOAT_CLASSES
        if many and self.counts and self.label_dtype.startswith("float"):
            self.label_range, self.counts = self.labels_span(), Counter()

    def labels_span(self) -> tuple[float, float, float] | None:
        """Least, greatest and sum of the labels, or None where there are none or they are text."""
        if self.label_range is not None or not self.counts or self.label_dtype in ("str", WHOLE, TEXT):
            return self.label_range
        total = math.fsum(float(label) * n for label, n in self.counts.items())
        return float(min(self.counts)), float(max(self.counts)), total

    def as_json(self) -> dict[str, object]:
        classes = sorted(self.counts)
        names = [f.name for f in dataclasses.fields(self) if f.name not in ("counts", "label_range")]
        span = {} if self.label_range is None else {"label_range": list(self.label_range)}
        return {
            **{name: getattr(self, name) for name in names},
            **span,
            "classes": classes,
            "class_counts": [self.counts[c] for c in classes],
        }

    def agrees(self, other: Facts) -> Iterator[tuple[bool, str, str]]:
        """Field by field whether ``other``, what the files say, is the same (for ``check_relations``)."""
        for field in dataclasses.fields(self):
            mine, its = getattr(self, field.name), getattr(other, field.name)
            same = math.isclose(mine, its, rel_tol=1e-9) if field.name == "weight_sum" else mine == its
            name = "class_counts" if field.name == "counts" else field.name
            yield same, name, "what the shards say" + ("" if name == "class_counts" else f": {its}")

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> Facts:
        told = {"row_constant": facts["binary"], **facts}  # older ones do not say
        known = {f.name: told[f.name] for f in dataclasses.fields(Facts) if f.name not in ("counts", "label_range")}
        counts = Counter(dict(zip(facts["classes"], facts["class_counts"], strict=True)))
        return Facts(**known, counts=counts, label_range=_span_of(facts))


NAMES = list_of(text())
LAYOUT = (or_none(text()), or_none(either(text(), NAMES)), or_none(text()), or_none(text()), or_none(text()), NAMES)
CONVERSION = {"sources": optional(NAMES), "part": optional(or_none(tuple_of(number(0), FLAG))),
              "warnings": optional(NAMES), "report": optional(TABLE)}  # fmt: skip
MANIFEST = {
    "files": list_of(table_of({"name": text(), "size": whole(), "footer": text()}, "tables of name, size and footer")),
    "features": TABLE,
    "layout": either(tuple_of(*LAYOUT[:-1]), tuple_of(*LAYOUT)),
    "chunks": text(),
    "weighted": FLAG,
    "zero_weight": optional(list_of(tuple_of(whole(), whole(1), whole()))),
    "label_dtype": text("", "bool", "str", WHOLE, TEXT, "float16", "float32", "float64",
                        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))),
    "index_width": either(whole(4, 4), whole(8, 8)),
}  # fmt: skip


def kept_as(kind: str) -> str:
    """How labels of a kind are kept: sets as text."""
    return "str" if kind in (WHOLE, TEXT) else kind


def check_manifest(told: Any) -> None:
    """Check every field of a manifest; FieldError names the first that is wrong."""
    check_facts(told, MANIFEST)
    check_features(told["features"])
    if "conversion" in told:
        check_fields(told["conversion"], CONVERSION, "conversion")
    kinds = {type(label).__name__ for label in told["classes"]}
    dtype = kept_as(told["label_dtype"]).rstrip("0123456789")
    check_relations([
        (kinds <= {dtype.removeprefix("u")}, "classes", f"labels of the type {told['label_dtype'] or 'none'}"),
        (told["weighted"] or told["weight_sum"] == told["n_rows"], "weight_sum", "n_rows where rows have no weights"),
        (told["index_width"] == 8 or told["n_features"] <= 2**32, "index_width", "8 for so many features"),
        (told["weighted"] == (told["layout"][3] is not None), "weighted", "true where layout has a column of weights"),
    ])  # fmt: skip


def check_chunks(told: Mapping[str, Any], chunks: Chunks) -> None:
    """Check what a manifest says against its chunk table; FieldError names the field that is wrong."""
    check_relations([(table_digest(chunks) == told["chunks"], "chunks", "the digest of the chunk table")])
    rows, n = chunks.rows, chunks.rows.size
    zeros = np.array(told.get("zero_weight", []), np.int64).reshape(-1, 3)
    there = bool((zeros[:, 0] < n).all())
    check_relations([
        (int(rows.sum()) == told["n_rows"], "n_rows", f"{rows.sum():,}, as in the chunk table"),
        (int(chunks.nnz.sum()) == told["nnz"], "nnz", f"{chunks.nnz.sum():,}, as in the chunk table"),
        (there and bool((zeros[:, 1] <= rows[zeros[:, 0]]).all()), "zero_weight", "at most the rows of each chunk"),
        (there and bool((zeros[:, 2] <= chunks.nnz[zeros[:, 0]]).all()), "zero_weight", "at most their entries"),
    ])  # fmt: skip


class Distinct:
    """The distinct labels that threads meet, as far as they can be classes: what each counts is dropped beyond."""

    def __init__(self) -> None:
        self._labels: set[Any] = set()
        self._many, self._lock = False, threading.Lock()

    def look(self, facts: Facts) -> Facts:
        """The facts of further rows, without counts once there are too many labels."""
        if facts.label_dtype.startswith("float"):
            with self._lock:
                if not self._many:
                    self._labels.update(facts.counts)
                    self._many = len(self._labels) > MAX_FLOAT_CLASSES
            facts.settle(self._many)
        return facts


def _span_of(facts: Mapping[str, Any]) -> tuple[float, float, float] | None:
    span = facts.get("label_range")
    return None if span is None else (float(span[0]), float(span[1]), float(span[2]))


def _joined(
    a: tuple[float, float, float] | None, b: tuple[float, float, float] | None
) -> tuple[float, float, float] | None:
    if a is None or b is None:
        return a or b
    return min(a[0], b[0]), max(a[1], b[1]), a[2] + b[2]


def _wider(a: str, b: str) -> str:
    """The label type that holds both; the kinds are known to agree."""
    return a or b if a == b or not (a and b) else np.result_type(a, b).name


class Header(NamedTuple):
    """What a file says of itself.

    Attributes
    ----------
    path : the file.
    layout : where the rows stand.
    types : kinds of its columns, as ``shards.check_types`` gives them.
    label_dtype : as in ``Facts``.
    footer : what bigclf wrote into the footer; None for other people's files.
    group_rows : rows of each row group; group_nnz : entries that it claims, at most; group_bytes : its bytes once
        decompressed.
    """

    path: str
    layout: Layout
    types: dict[str, str]
    label_dtype: str
    footer: dict[str, Any] | None
    group_rows: list[int]
    group_nnz: list[int]
    group_bytes: list[int]

    @property
    def features(self) -> dict[str, object]:
        return self.footer["features"] if self.footer else dict(GIVEN)

    def facts(self) -> Facts:
        """Facts of one of our own shards."""
        assert self.footer is not None
        told = self.footer
        names = ("n_rows", "nnz", "n_features", "label_changes", "binary", "weight_sum", "max_row_nnz", "max_norm")
        return Facts(
            **{name: told[name] for name in names},
            row_constant=told.get("row_constant", told["binary"]),
            label_dtype=self.label_dtype,
            counts=Counter(dict(zip(told["classes"], told["class_counts"], strict=True))),
            index_width=8 if self.types["indices"] == "int64" else 4,
            weighted=self.layout.weight is not None,
            label_range=_span_of(told),
        )

    @property
    def knows_chunks(self) -> bool:
        """Whether ``chunk_lines`` can tell; shards with weights did not always say how many are 0."""
        return self.footer is not None and (self.layout.weight is None or "zero_weight" in self.footer)

    def chunk_lines(self) -> list[Line]:
        """Chunks of one of our own shards."""
        assert self.footer is not None
        told = self.footer["chunks"]
        zero_weight = self.footer.get("zero_weight", [(0, 0)] * len(told))
        groups = enumerate(zip(self.group_rows, told, zero_weight, strict=True))
        return [(g, 0, rows, nnz, *without) for g, (rows, nnz, without) in groups]


def read_header(path: str, columns: Mapping[str, str], need_labels: bool) -> Header:
    """Open ``path`` and find out what it says of itself.

    Raises
    ------
    DataError, SchemaError : if the file is damaged, columns are missing or their types unusable.
    """
    claims = shards.claims(path)
    footer = None if columns else shards.read_facts(claims, path)
    if footer is None:
        _refuse_too_large(claims, path)
    with shards.open_parquet(path) as file:
        schema = file.schema_arrow
    layout = shards.find_layout(schema, columns, path, need_labels)
    types = shards.check_types(schema, layout, path)
    if footer is None:
        _refuse_runs(claims, layout, path)
    else:
        _check_labels(footer, types, path)
    rows = [group.n_rows for group in claims.groups]
    nnz = [_entries_claimed(group, layout) for group in claims.groups]
    sizes = [group.n_bytes for group in claims.groups]
    return Header(path, layout, types, shards.label_dtype(schema, layout), footer, rows, nnz, sizes)


def _entries_claimed(group: Group, layout: Layout) -> int:
    """Entries of a row group by its footer; a list without any counts as one."""
    if isinstance(layout.values, tuple):
        return group.n_rows * len(layout.values)
    names = [name.partition(".")[0] for name in (layout.indices, layout.values) if name is not None]
    return max((c.n_values for c in group.columns if c.name.partition(".")[0] in names), default=0)


def _check_labels(told: Mapping[str, Any], types: Mapping[str, str], path: str) -> None:
    """Refuse a footer whose classes are of another kind than the column of labels."""
    kinds = {type(label).__name__ for label in told["classes"]}
    if not kinds <= {kept_as(types.get("label", ""))}:
        raise DataError(f"the facts in the footer are damaged (field 'classes' must be labels of the type "
                        f"{types.get('label')}); copy the file again", file=path)  # fmt: skip


def index_width_of(path: str, columns: Mapping[str, str]) -> int:
    """Bytes of an index by the file's schema; 4 for a file that opening the dataset will refuse."""
    try:
        return 8 if read_header(path, columns, True).types["indices"].endswith("64") else 4
    except (DataError, MemoryBudgetError):
        return 4


def have_sets(path: str, columns: Mapping[str, str]) -> bool:
    """Whether rows have several labels by the file's schema; not of a file that opening the dataset will refuse."""
    try:
        return read_header(path, columns, True).types["label"] in label_sets.BETWEEN
    except (DataError, MemoryBudgetError):
        return False


def _refuse_too_large(claims: Footer, path: str) -> None:
    """Refuse a row group that would not fit this machine once decompressed."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for g, group in enumerate(claims.groups):
        if group.n_bytes > memory // 2:
            raise MemoryBudgetError(
                f"{path}, row group {g}: {format_bytes(group.n_bytes)} decompressed, and this machine has "
                f"{format_bytes(memory)} of memory; write smaller row groups"
            )


def _refuse_runs(claims: Footer, layout: Layout, path: str) -> None:
    """Refuse a row group one of whose rows may not fit, where its entries are runs of equal numbers, many to a byte:
    then parts of it may be as large as all of it. Dense rows, which may well be runs of zeros, have one length."""
    if isinstance(layout.values, tuple):
        return
    limit, which = memory_limit()
    for g, group in enumerate(claims.groups):
        entries = _entries_claimed(group, layout) - group.n_rows  # or more
        most = entries if layout.indices is not None else entries // max(1, group.n_rows)
        if entries > EQUAL_PER_BYTE * group.n_bytes and (size := DECODING_BYTES * most) > limit:
            raise MemoryBudgetError(
                f"{path}, row group {g}: {entries:,} entries in {format_bytes(group.n_bytes)}, which may be one row "
                f"and take {format_bytes(size)}, and {which} has {format_bytes(limit)} of memory; write smaller row "
                "groups, if this is no hostile file"
            )


def check_alike(header: Header, first: Header) -> None:
    """Refuse files whose columns do not go together; widths of numbers may differ.

    Raises
    ------
    SchemaError : naming both files and the column.
    """
    for role in ("label", "weight", "values"):
        mine, its = getattr(header.layout, role), getattr(first.layout, role)
        if role == "values" and header.footer and first.footer:
            continue  # our own shards leave the values out where all are 1
        if mine != its:
            column, has = _difference(mine, its)
            message = f"{has}, unlike {first.path}; every file needs the same columns, and of the same kind"
            raise SchemaError(message, file=header.path, column=column)
    mine, its = header.types.get("label"), first.types.get("label")
    if mine != its:
        message = f"labels are {mine} here and {its} in {first.path}; write them in one type"
        raise SchemaError(message, file=header.path, column=header.layout.label)


def _difference(mine: Named, its: Named) -> tuple[str, str]:
    """The first column that two files do not share, and what is to be said of the one that has ``mine``."""
    here, there = ((names,) if isinstance(names, str) else names or () for names in (mine, its))
    if gone := [name for name in there if name not in here]:
        return gone[0], f"has no column {gone[0]!r} of numbers" if isinstance(
            its, tuple
        ) else f"has no column {gone[0]!r}"
    new = [name for name in here if name not in there]
    return (new[0], f"has the column {new[0]!r}") if new else (here[0], "has the columns in another order")


def gather(rows: Rows, label_dtype: str, layout: Layout, path: str, row_group: int) -> Facts:
    """Facts of a row group or of a part of one, all its numbers checked.

    Raises
    ------
    DataError : with the place of the first fault.
    """
    norms = shards.checked_norms(rows, 2**63, layout, path, row_group)
    counts, changes = _count_labels(rows.labels)
    lengths = np.diff(rows.indptr)
    return Facts(
        n_rows=rows.n_rows,
        nnz=rows.indices.size,
        n_features=int(rows.indices.max()) + 1 if rows.indices.size else 0,
        label_dtype=label_dtype,
        counts=counts,
        label_changes=changes,
        binary=bool((rows.values == 1).all()),
        row_constant=one_value_a_row(rows.indptr, rows.values)[0].size == 0,
        index_width=rows.indices.dtype.itemsize,
        weighted=rows.weights is not None,
        weight_sum=float(rows.n_rows if rows.weights is None else rows.weights.sum()),
        max_row_nnz=int(lengths.max(initial=0)),
        max_norm=float(norms.max(initial=0)),
    )


def _count_labels(labels: pa.Array | None) -> tuple[Counter[object], int]:
    """How often each label occurs, and how many differ from the one before."""
    if labels is None or len(labels) == 0:
        return Counter(), 0
    encoded = labels.dictionary_encode()
    codes = as_numpy(encoded.indices)
    counts = np.bincount(codes, minlength=len(encoded.dictionary))
    found = dict(zip(encoded.dictionary.to_pylist(), counts.tolist(), strict=True))
    return Counter(found), int(np.count_nonzero(np.diff(codes)))


class Lengths:
    """What cutting a row group into chunks needs of its rows, taken down part by part in as few bytes as hold it: how
    many entries each has, and which have the weight 0."""

    def __init__(self) -> None:
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, indptr: np.ndarray, weights: np.ndarray | None) -> None:
        """The next rows: their bounds int64 [m+1], from 0, and weights float64 [m], or None."""
        lengths = np.diff(indptr)
        zeros = np.empty(0, np.uint8) if weights is None else np.packbits(weights == 0)
        longest = int(lengths.max(initial=0))
        if longest == lengths.min(initial=longest):  # no bytes a row: a few kilobytes may be 10^9 rows without entries
            kept = np.broadcast_to(np.min_scalar_type(longest).type(longest), lengths.shape)
        else:
            kept = lengths.astype(np.min_scalar_type(longest))
        self._parts.append((kept, zeros))

    def before(self) -> Iterator[np.ndarray]:
        """Of each part int64 [m+1, 4]: before each row and at the end the rows, their entries, and of both those of
        weight 0."""
        base = np.zeros(4, np.int64)
        for lengths, packed in self._parts:
            zeros = np.unpackbits(packed, count=lengths.size) if packed.size else np.zeros(lengths.size, np.uint8)
            counts = np.stack([np.ones_like(zeros), lengths, zeros, lengths * zeros], axis=1, dtype=np.int64)
            prefix = np.concatenate([base[None], base + np.cumsum(counts, axis=0)])
            yield prefix
            base = prefix[-1].copy()

    def total(self) -> np.ndarray:
        """The last line of ``before``."""
        last = np.zeros(4, np.int64)
        for prefix in self.before():
            last = prefix[-1].copy()
        return last

    def reaching(self, marks: np.ndarray, of: int) -> np.ndarray:
        """The lines of ``before`` of the first rows before which there are so many rows (``of`` 0) or entries (1) that
        count, int64 [k, 4]; ``marks`` ascend."""
        found = [np.empty((0, 4), np.int64)]
        for prefix in self.before():
            places = np.searchsorted(prefix[:-1, of] - prefix[:-1, of + 2], marks)
            here = places < prefix.shape[0] - 1
            found.append(prefix[places[here]])
            marks = marks[~here]
        return np.concatenate(found)


def cut_lines(lengths: Lengths, row_group: int, target_nnz: int | None) -> list[Line]:
    """Chunks of a row group: itself, or with over twice ``target_nnz`` entries pieces of about as many; those that have
    so few entries that their rows take more memory are cut by rows, and all of it stays one chunk where it is None.

    Rows of weight 0 do not count: the others are cut as if these were not there.
    """
    total = lengths.total()
    lines = np.stack([np.zeros(4, np.int64), total])
    if target_nnz is not None:
        lines = _cut(lengths, lines, target_nnz, of=1)
        lines = _cut(lengths, lines, max(1, target_nnz // ROW_ENTRIES), of=0)
    sizes = np.diff(lines, axis=0)
    return [(row_group, first, *size) for first, size in zip(lines[:-1, 0].tolist(), sizes.tolist(), strict=True)]


def _cut(lengths: Lengths, lines: np.ndarray, target: int, of: int) -> np.ndarray:
    """Further lines between those that are more than twice ``target`` rows or entries apart."""
    counted = lines[:, of] - lines[:, of + 2]
    marks = [np.empty(0)]
    for begin, n in zip(counted[:-1].tolist(), np.diff(counted).tolist(), strict=True):
        pieces = max(1, round(n / target)) if n > 2 * target else 1
        marks.append(begin + np.arange(1, pieces) * (n / pieces))
    added = lengths.reaching(np.concatenate(marks), of)
    return np.unique(np.concatenate([lines, added]), axis=0)


def is_sorted(counts: np.ndarray, changes: int) -> bool:
    """Whether neighbours differ less than a quarter as often as in random order."""
    n = float(counts.sum())
    expected = n - float((counts / n * counts).sum()) if n else 0.0
    return expected >= 16 and changes < expected / 4


def warn_of_numbers(classes: np.ndarray | None) -> list[str]:
    """A warning where classes look like numbers to predict: many that are not all whole, or very many whole ones that
    do not count from 0 or 1."""
    if classes is None or classes.dtype.kind not in "iuf" or classes.size <= MANY_FLOAT_CLASSES:
        return []
    whole = bool((classes == np.floor(classes)).all())
    if whole and (classes.size <= MANY_WHOLE_CLASSES or classes[-1] - classes.size in (-1, 0)):
        return []
    kind = "numbers" if whole else "not all of them whole numbers"
    others = ", ".join(REGRESSION[:-1])
    return [f"to predict numbers (regression), give a loss for them: --loss {REGRESSION[-1]}, or {others}; as it is, "
            f"the {classes.size:,} distinct labels, {kind}, are taken for as many classes"]  # fmt: skip


def warn_of_rare(classes: np.ndarray | None, counts: np.ndarray | None) -> list[str]:
    """A warning of classes that have one row only, where there are more than a handful of rows."""
    if classes is None or counts is None or counts.sum() < HANDFUL or not (counts == 1).any():
        return []
    rare = classes[counts == 1].tolist()
    named = ", ".join(map(repr, rare[:5])) + ", ..." * (len(rare) > 5)
    what = f"class {named} has" if len(rare) == 1 else f"{len(rare):,} classes ({named}) each have"
    mend = "correct or remove that row" if len(rare) == 1 else "correct or remove those rows, or add more"
    if len(rare) == 1 and classes.size == 3 and isinstance(rare[0], str):
        mend += ", or make two classes: name the labels of one with `one_of` under `label` in a spec"
    return [f"{what} only one row, too few to learn and test: {mend}"]


def largest_group(chunks: Chunks) -> tuple[int, int]:
    """Rows of the longest row group and entries of the fullest."""
    if chunks.file.size == 0:
        return 0, 0
    starts = group_starts(chunks)
    return int(np.add.reduceat(chunks.rows, starts).max()), int(np.add.reduceat(chunks.nnz, starts).max())


def group_starts(chunks: Chunks) -> np.ndarray:
    """The first chunk of each row group."""
    new = np.r_[True, (np.diff(chunks.file) != 0) | (np.diff(chunks.row_group) != 0)]
    return np.flatnonzero(new[: chunks.file.size])


def chunk_table(tables: Iterable[list[Line]]) -> tuple[Chunks, np.ndarray]:
    """Chunk table of files whose chunks are given, and int64 [c, 2] their rows of weight 0 and the entries of these."""
    lines = [(number, *line) for number, table in enumerate(tables) for line in table if line[2]]
    array = np.array(lines, np.int64).reshape(-1, 7)
    rows = array[:, 3]
    file, row_group = (np.ascontiguousarray(array[:, k], np.int32) for k in (0, 1))
    first, nnz = (np.ascontiguousarray(array[:, k]) for k in (2, 4))
    return Chunks(file, row_group, first, np.ascontiguousarray(rows), nnz, np.cumsum(rows) - rows), array[:, 5:]


def without(chunks: Chunks, zero_weight: np.ndarray) -> Chunks:
    """The chunk table as it were without the rows of weight 0, whose counts are ``zero_weight`` int64 [c, 2]."""
    rows, nnz = chunks.rows - zero_weight[:, 0], chunks.nnz - zero_weight[:, 1]
    row0, starts = np.cumsum(rows) - rows, group_starts(chunks)
    first = row0 - np.repeat(row0[starts], np.diff(np.append(starts, rows.size)))
    there = rows > 0
    return Chunks(*(column[there] for column in (chunks.file, chunks.row_group, first, rows, nnz, row0)))


def table_digest(chunks: Chunks) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for column in chunks:
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def in_threads(function: Callable[[_A], _B], items: Sequence[_A], most: int = 8) -> list[_B]:
    """[function(item) ...] in order, at most ``most`` at a time; the first error in order is raised."""
    if len(items) <= 1 or most <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(len(items), most, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, items))
