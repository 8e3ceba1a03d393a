"""A dataset: Parquet files and what is known of them without reading them again."""

from __future__ import annotations

import contextlib
import copy
import errno
import functools
import hashlib
import json
import logging
import shlex
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypeAlias, TypedDict, overload

import numpy as np

from bigclf import files
from bigclf.compiled.jit import compiling
from bigclf.data import label_sets, pages, shards, vectors
from bigclf.data.chunk_table import (
    Chunks,
    Distinct,
    Facts,
    Header,
    Lengths,
    Line,
    check_alike,
    check_chunks,
    check_manifest,
    chunk_table,
    cut_lines,
    gather,
    group_starts,
    in_threads,
    is_sorted,
    kept_as,
    largest_group,
    read_header,
    table_digest,
    warn_of_numbers,
    warn_of_rare,
    without,
)
from bigclf.data.pages import Scratch
from bigclf.data.shards import (
    BUFFER_BYTES,
    PART_BYTES,
    PART_ENTRY_BYTES,
    PART_ROW_BYTES,
    Layout,
    Rows,
    Said,
    counted_from,
    part_rows,
)
from bigclf.errors import DataError, SchemaError, StoreError, masked
from bigclf.features.arrow import as_numpy, texts_in_arrow
from bigclf.features.encode import is_columns, load
from bigclf.files.caches import MANIFESTS, cache_directory
from bigclf.files.json_fields import check_fields, check_relations, whole
from bigclf.maths.block import NO_SCALES, Block, Entries, concatenate, one_value_a_row, rows_of, selected
from bigclf.maths.feature_ids import FeatureIds
from bigclf.texts import card
from bigclf.units import format_bytes, format_count, plural

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from bigclf.data.label_sets import LabelSets
    from bigclf.data.pages import Pages

log = logging.getLogger("bigclf")
TARGET_NNZ = 500_000
MOST_MARKS = 1000  # files
MOST_NAMED = 10  # columns in a warning
MOST_DIRECTORIES = 100  # whose manifests are looked at though the rows are theirs together
_told: set[tuple[str, str]] = set()  # digest of a dataset and warning that this process has logged
RELEASE_EVERY = 16  # parts after which Arrow gives back what it no longer needs
COMPARED = 16  # shards; of so many the footers are compared with the manifest beside them
SMALL = 1 << 21  # non-zeros
KEPT_OPEN = 4  # files, by each thread that decodes
LARGE_PARTS = 4  # of ``PART_BYTES``: larger row groups are decoded in parts
GATHER_FACTOR = 5  # decoded pages, Arrow's arrays and ours, times a row group's decompressed bytes
GATHER_SLACK = 4_000_000  # of the budget: what their threads hold on to, and texts of labels that are lists
NUMBERS = "features"  # in the cache: lists of the features that occur in a dataset
MANIFEST, CHUNK_TABLE = "_bigclf_manifest.json", "_bigclf_chunks.parquet"
GLOBS = "without index columns"  # what a glob of features names; it took them before, and caches remember
MANIFEST_VERSION, REAL_MANIFEST_VERSION = 1, 2  # the second where labels are no classes


class Known(NamedTuple):
    """All that is known of a dataset but its files; zero_weight : int64 [chunk, 2], rows of weight 0, their entries;
    conversion : what told of itself that made the files, see ``Dataset``."""

    facts: Facts
    layout: Layout
    features: dict[str, Any]
    chunks: Chunks
    zero_weight: np.ndarray
    conversion: Mapping[str, Any] | None = None


class Opened(NamedTuple):
    """A file as one thread has it open; lists : the way to its pages past Arrow, None where there is none."""

    file: pq.ParquetFile
    schema: pa.Schema
    lists: Pages | None


Stored: TypeAlias = "Dataset | files.Paths"  # what rows in files are named by


class Origin(TypedDict):
    """By what rows are known again: ``Dataset.origin``."""

    files: list[str]
    sources: list[str]
    part: tuple[float, bool] | None


@overload
def is_large(rows: int, nnz: int) -> bool: ...


@overload
def is_large(rows: np.ndarray, nnz: np.ndarray) -> np.ndarray: ...


def is_large(rows: int | np.ndarray, nnz: int | np.ndarray) -> bool | np.ndarray:
    """Whether a row group of other people's is decoded in parts, by its rows and entries: bool or bool [n]."""
    return PART_ROW_BYTES * rows + PART_ENTRY_BYTES * nnz > LARGE_PARTS * PART_BYTES


def _gathering_bytes(header: Header) -> int:
    """What reading one of a file's row groups for the first time takes."""
    groups = zip(header.group_rows, header.group_nnz, header.group_bytes, strict=True)
    whole = [n for rows, nnz, n in groups if header.footer is not None or not is_large(rows, nnz)]
    return GATHER_FACTOR * max([*whole, 2 * PART_BYTES])


class RawFiles(TypedDict):
    """Raw files that shards of the cache were made of: whether each row's number is its number there and, where the
    shards can be made again, how."""

    paths: list[str]
    in_order: bool
    how: NotRequired[Mapping[str, object]]


class Dataset:
    """Rows in Parquet files: described, not loaded.

    Large because it is what a person holds: facts, checks and reading of rows, which all need the same tables.

    Parameters
    ----------
    data : path, directory, glob or list of them.
    columns : names for what other programs call differently: {"label": ..., "weight": ..., "indices": ...,
        "values": ...}, where a dot leads into a struct or into the structs of a list; or in place of the last two
        {"features": ...}: a column of vectors of any kind (a struct as Spark ML has it, sparse or dense, or of two
        lists; a list of structs; a map; a list of numbers, which are the values of all features), a list of columns of
        numbers, or their names as a glob ("x*").
    target_nnz : row groups of more than twice as many non-zeros are cut into chunks of about as many (never those
        of our own shards).
    label : "class", the only kind of label yet.
    memory : bytes; in the one read of files that are not ours so many row groups are decoded at a time as fit.
    need_labels : False accepts files without labels (for prediction): no classes, and labels NaN in blocks.
    warn : log a warning of columns that a glob of features names and that cannot be used.

    Attributes
    ----------
    files : list of paths; fingerprints : their fingerprints; named : ``data`` as it was given.
    n_rows, n_features, nnz, n_chunks : int.
    classes : [K] ascending, in the label's own type; class_counts : int64 [K]; both None with ``real_labels``.
    real_labels : whether labels are numbers to predict: always where there are more than 100,000 distinct ones that
        are not whole numbers, else in what ``with_real_labels`` returns.
    feature_ids : which features blocks know by their place (``with_feature_ids``; ``n_features`` is then how many), or
        None: each is known by its number.
    sets : where rows have lists of labels, the distinct ones (``LabelSets``); ``classes`` are then the labels, blocks
        hold codes of sets, and ``class_counts`` count a row once for each of its labels. Else None.
    label_range : "min", "max" and "mean" of labels that are numbers; None for text and where there are none.
    binary : whether every value is 1; row_constant : else whether no row has two values that differ (in both cases
        blocks hold no values; files written before this was noted count as having them).
    index_width : bytes of an index, the same in all blocks: 4 or 8.
    weighted : whether rows have weights of their own; weight_sum : their sum.
    max_row_nnz, max_norm : entries and squared norm of the longest row.
    max_group_rows, max_group_nnz : rows and entries of the largest row group.
    sorted_labels : whether equal labels stand together far more than by chance.
    features : how the features were made.
    digest : hex; the same only for the same files, columns and cut.
    warnings : what a user should know before training; said : those of them that were logged already.
    damaged : those of them that say what is damaged beside the files, which rows are read without; lost : that shards
        are gone, each with the directory.
    report : figures of the conversion that made the files; else empty.
    conversion : of files that were converted by a version that notes it ``sources`` (marks of what they were made of),
        ``part`` ([share, held out] of their rows, or None), ``warnings`` and ``report``; else empty.
    made_of : the raw file that a person named, where the shards are the cache's; else None.
    raw : of such shards what their run remembers; else None.
    used : of such shards what keeps other processes from removing them; else None.
    chunks : the chunk table.

    Raises
    ------
    DataError, SchemaError : naming the file when one is missing, damaged or differs from the others.

    Of files that bigclf did not write, or before it noted how many weights are 0, what is missing is gathered in one
    read and kept in the user's cache.
    """

    def __init__(
        self,
        data: files.Paths,
        *,
        columns: Mapping[str, Any] | None = None,
        target_nnz: int = TARGET_NNZ,
        label: str = "class",
        need_labels: bool = True,
        memory: int = 1_000_000_000,
        warn: bool = True,
    ) -> None:
        self.memory = memory
        if label != "class":
            raise ValueError(f"label must be 'class', not {label!r}")
        self.named = data
        self.files: list[str] = files.expand(data)
        self.columns, self.target_nnz, self._need_labels = dict(columns or {}), int(target_nnz), need_labels
        self.fingerprints = in_threads(files.fingerprint, self.files)
        self.digest = self._digest()
        self.report: dict[str, Any] = {}
        self.made_of: str | None = None
        self.raw: RawFiles | None = None
        self.used: object = None
        self._open_no_file()
        self.damaged: list[str] = []
        self._damaged_in_cache: list[str] = []
        self._unread: list[str] = []
        self.lost: dict[str, str] = {}
        self._takes_part = False  # rows of weight 0 are left out
        self.feature_ids: FeatureIds | None = None
        self.nnz = sys.maxsize  # not known yet
        known = self._remembered() or self._described()
        self.lost |= self._lost_of_several()
        self._take(known)
        self.said: list[str] = []
        if warn:
            self.tell([*self._left_out(), *self.lost])

    def tell(self, warnings: Iterable[str]) -> None:
        """Log ``warnings``; once, however often a process opens these files."""
        for text in warnings:
            if (self.digest, text) not in _told:
                log.warning("%s", text)
            _told.add((self.digest, text))
            self.said.append(text)

    # What is known of it

    def _digest(self) -> str:
        known: tuple[Any, ...] = ([list(f) for f in self.fingerprints], sorted(self.columns.items()), self.target_nnz,
                                  self._need_labels)  # fmt: skip
        known += (GLOBS,) if vectors.is_glob(self.columns.get("features")) else ()
        return hashlib.blake2b(json.dumps(known).encode(), digest_size=16).hexdigest()

    def _take(self, known: Known) -> None:
        """Set the attributes."""
        facts, chunks = known.facts, known.chunks
        self.n_rows, self.nnz, self.n_features = facts.n_rows, facts.nnz, facts.n_features
        self.binary, self.index_width, self.weighted = facts.binary, facts.index_width, facts.weighted
        self.row_constant = facts.row_constant and not facts.binary
        self.weight_sum, self.max_row_nnz, self.max_norm = facts.weight_sum, facts.max_row_nnz, facts.max_norm
        self._take_labels(facts)
        self.features, self.layout, self.chunks = known.features, known.layout, chunks
        self.conversion = dict(known.conversion or {})
        rows_of_codes = self.class_counts if self.sets is None else self.sets.rows
        self.sorted_labels = not self.real_labels and is_sorted(rows_of_codes, facts.label_changes)
        self.max_group_rows, self.max_group_nnz = largest_group(chunks)
        self.warnings = self._warnings()
        self._known = known

    def _take_labels(self, facts: Facts) -> None:
        """Classes, or the range of numbers that are none."""
        span = facts.labels_span()
        self.label_range: dict[str, float] | None = None
        if span is not None and facts.n_rows:
            self.label_range = {"min": span[0], "max": span[1], "mean": span[2] / facts.n_rows}
        self.real_labels = facts.label_range is not None
        self.classes: Any = None
        self.class_counts: Any = None
        self.sets: LabelSets | None = None
        self._set_texts = np.empty(0, str)
        if facts.label_dtype in label_sets.BETWEEN:
            self._take_sets(facts)
        elif not self.real_labels:
            ordered = sorted(facts.counts)
            self.classes = np.array(ordered, dtype=facts.label_dtype or np.float64)
            self.class_counts = np.array([facts.counts[c] for c in ordered], np.int64)

    def _take_sets(self, facts: Facts) -> None:
        """Of rows with several labels each the sets; the classes are the labels."""
        ordered = sorted(facts.counts)
        self._set_texts = np.array(ordered, dtype=str)
        self.sets = label_sets.of_texts(ordered, [facts.counts[text] for text in ordered], facts.label_dtype)
        self.classes, self.class_counts = self.sets.labels, self.sets.rows_of_labels()

    @property
    def called(self) -> str | None:
        """The file that a person knows the rows by, where there is one."""
        return self.made_of or (self.files[0] if len(self.files) == 1 else None)

    @property
    def label_called(self) -> str | None:
        """What that file calls the column of labels; None: text of sparse rows, which has no columns."""
        if self.made_of is None:
            return self.layout.label
        columns = (self.features.get("label") or {}).get("column")
        return ", ".join(columns) if isinstance(columns, list) else columns

    def with_real_labels(self) -> Dataset:
        """The same rows with labels that are numbers to predict: those of blocks are then the numbers themselves.

        Raises
        ------
        SchemaError : if the labels are text.
        """
        if self.real_labels:
            return self
        if kept_as(self._known.facts.label_dtype) == "str":
            what = "labels are text" if self.sets is None else "rows have lists of labels"
            message = f"the {what}; numbers are needed to learn to predict numbers"
            raise SchemaError(message, file=self.files[0], column=self.layout.label)
        found = copy.copy(self)
        found.real_labels, found.classes, found.class_counts = True, None, None
        found.sorted_labels = False
        found.warnings = found._warnings()
        found.digest = hashlib.blake2b(f"{self.digest} real".encode(), digest_size=16).hexdigest()
        return found

    def taking_part(self) -> Dataset:
        """The rows that can be learned from, as if those of weight 0 were not there: counts, chunks and blocks are
        without them. What is known of files, of classes (but for ``learnable_counts``) and the largest row is still
        that of all rows."""
        if self._takes_part:
            return self
        chunks = without(self.chunks, self._known.zero_weight)
        if chunks.rows.sum() in (0, self.n_rows):  # where none can be learned from, training says so
            return self
        found = copy.copy(self)
        found._forget_places()
        found._takes_part, found.chunks = True, chunks
        found.n_rows, found.nnz = int(chunks.rows.sum()), int(chunks.nnz.sum())
        found.max_group_rows, found.max_group_nnz = largest_group(chunks)
        found.digest = hashlib.blake2b(f"{self.digest} taking part".encode(), digest_size=16).hexdigest()
        return found

    def with_feature_ids(self, ids: FeatureIds) -> Dataset:
        """The same rows with features numbered by their place in ``ids``, which must have all that occur."""
        found = copy.copy(self)
        found.feature_ids, found.n_features, found.index_width = ids, ids.size, 4
        told = f"{self.digest} numbered anew {ids.n_features}".encode() + ids.numbers.tobytes()
        found.digest = hashlib.blake2b(told, digest_size=16).hexdigest()
        return found

    def _forget_places(self) -> None:
        """Where chunks are, which was worked out for other ones."""
        for name in ("_group_keys", "in_parts"):
            self.__dict__.pop(name, None)

    def seen_from_elsewhere(self) -> Dataset:
        """Itself for a process that works in another directory: its files have absolute paths."""
        found = copy.copy(self)
        found.files = [files.absolute(path) for path in self.files]
        return found

    def leading(self, n_chunks: int) -> Dataset:
        """The first ``n_chunks`` chunks as a dataset of their own; what is known of classes, features and the largest
        row and row group is still that of all."""
        found = copy.copy(self)
        found._forget_places()
        found.chunks = Chunks(*(column[:n_chunks] for column in self.chunks))
        found.n_rows, found.nnz = int(found.chunks.rows.sum()), int(found.chunks.nnz.sum())
        found.digest = hashlib.blake2b(f"{self.digest} first {n_chunks}".encode(), digest_size=16).hexdigest()
        return found

    @property
    def named_columns(self) -> dict[str, object]:
        """``columns`` as a model remembers them: those that are the features as they are, told or found, by their
        names, since other files may have more, or have them in another order."""
        wide, label = self.layout.values, self.layout.label
        if not isinstance(wide, tuple):
            return dict(self.columns)
        return {**({} if label is None else {"label": label}), **self.columns, "features": list(wide)}

    @property
    def learnable(self) -> tuple[int, int]:
        """Rows and entries; of ``taking_part`` those with a weight above 0."""
        return self.n_rows, self.nnz

    @property
    def learnable_counts(self) -> np.ndarray:
        """Rows of each class with a weight above 0, int64 [K]. Where some rows weigh 0, the labels of their row groups
        are read for it."""
        counts: np.ndarray = (self.class_counts if self.sets is None else self.sets.rows).copy()
        chunks = np.flatnonzero(self._known.zero_weight[:, 0])
        table = self._known.chunks
        places = {*zip(table.file[chunks].tolist(), table.row_group[chunks].tolist(), strict=True)}
        for file, row_group in sorted(places):
            path = self.files[file]
            for labels, weights in shards.read_labels(self._handle(file).file, row_group, self.layout, path):
                codes = self._codes(labels, len(labels), path, row_group)
                counts -= np.bincount(codes[weights == 0].astype(np.int64), minlength=counts.size)
        return counts if self.sets is None else self.sets.rows_of_labels(counts)

    @property
    def written_here(self) -> bool:
        """Whether the files are our own shards, whose lists are decoded without Arrow."""
        return not files.is_remote(self.files[0]) and self.ours

    @functools.cached_property
    def ours(self) -> bool:
        """Whether the files are our own shards."""
        return shards.KEY in shards.claims(self.files[0]).pairs

    def tell_content(self) -> bool:
        """Whether the footer of each file has a digest of its rows, as our own shards have: of such files, those with
        the same sizes and footers hold the same rows, wherever they lie and whenever they were written."""
        return all("content" in (shards.read_facts(shards.claims(path), path) or ()) for path in self.files)

    @property
    def n_chunks(self) -> int:
        """Chunks in the chunk table, int."""
        return int(self.chunks.file.size)

    def _warnings(self) -> list[str]:
        found = [*self.damaged, *self._damaged_in_cache, *self._unread, *self.lost]
        if self.sorted_labels:
            found.append("the labels are sorted: equal labels stand together; online methods learn badly from such "
                         "an order, shuffle the rows (bigclf convert does)")  # fmt: skip
        found += self._left_out()
        if self.sets is not None:
            found += label_sets.warn_of_one_sided(self.classes, self.class_counts, int(self.sets.rows.sum()))
        else:
            found += warn_of_numbers(self.classes) or warn_of_rare(self.classes, self.class_counts)
        same = Counter((f.size, f.footer) for f in self.fingerprints)
        twice = [path for path, f in zip(self.files, self.fingerprints, strict=True) if same[f.size, f.footer] > 1]
        if twice:
            found.append(f"{len(twice)} files have the same content as another, {masked(twice[0])!r} for one; where "
                         "rows came in twice by mistake, as by a second --append, remove one of each")  # fmt: skip
        return found

    def _left_out(self) -> list[str]:
        """A warning of columns that the glob of features names and that are none."""
        left_out = self.layout.not_taken
        named = ", ".join(left_out[:MOST_NAMED]) + (", ..." if len(left_out) > MOST_NAMED else "")
        text = (f"{plural(len(left_out), 'column')} that {self.columns.get('features')!r} matches "
                f"{'is' if len(left_out) == 1 else 'are'} not used as features: {named}; `bigclf convert` makes "
                "features of text and dates")  # fmt: skip
        return [text] if left_out else []

    def _described(self) -> Known:
        """All facts from the footers; those that they do not have from one read, whose result is kept."""
        read = functools.partial(read_header, columns=self.columns, need_labels=self._need_labels)
        try:
            headers = in_threads(read, self.files)
        except SchemaError as error:
            raise _told_of_shards(error, self.files[0]) from None
        for header in headers:
            check_alike(header, headers[0])
        self.layout = next((h.layout for h in headers if h.layout.values), headers[0].layout)
        self.binary = False  # until all values have been seen
        gathered = self._gathered(headers)
        total, tables = Facts(), []
        for number, header in enumerate(headers):
            parts = gathered.get(number, [])
            for facts in [header.facts()] if header.footer else [facts for facts, _ in parts]:
                total.add(facts)
            tables.append([line for _, lines in parts for line in lines] if parts else header.chunk_lines())
        known = Known(total, self.layout, headers[0].features, *chunk_table(tables))
        if gathered:
            self._remember(known)
        return known

    def _gathered(self, headers: list[Header]) -> dict[int, list[tuple[Facts, list[Line]]]]:
        """Facts and chunks of each row group of each file whose footer does not tell them; one read."""
        groups = {f: max(len(h.group_rows), 1) for f, h in enumerate(headers) if not h.knows_chunks}
        unknown = [(f, g) for f, count in groups.items() for g in range(count)]

        distinct = Distinct()

        def gather_one(place: tuple[int, int]) -> tuple[Facts, list[Line]]:
            file, group = place
            header = headers[file]
            if not header.group_rows:
                return Facts(label_dtype=header.label_dtype), []
            total, lengths, last = Facts(), Lengths(), None
            for first, rows in self._headed(header, file, group):
                with counted_from(first):
                    facts = distinct.look(gather(rows, header.label_dtype, header.layout, header.path, group))
                if rows.labels is not None and rows.n_rows:  # a change where two parts meet
                    facts.label_changes += last is not None and rows.labels[0].as_py() != last
                    last = rows.labels[-1].as_py()
                total.add(facts)
                lengths.add(rows.indptr, rows.weights)
                del rows
            lines = cut_lines(lengths, group, None if header.footer else self.target_nnz)
            shards.release_unused()
            return total, lines

        found: dict[int, list[tuple[Facts, list[Line]]]] = {}
        at_a_time = int((self.memory - GATHER_SLACK) // max(map(_gathering_bytes, headers), default=1))
        for (file, _), result in zip(unknown, in_threads(gather_one, unknown, at_a_time), strict=True):
            found.setdefault(file, []).append(result)
        shards.release_freed()  # the threads have ended, and their memory would be taken for ours from here on
        return found

    def _headed(self, header: Header, file: int, row_group: int) -> Iterator[tuple[int, Rows]]:
        """The rows of a row group of which there is no chunk table yet, in parts if it is large: (first row, rows)."""
        n_rows, nnz = header.group_rows[row_group], header.group_nnz[row_group]
        if header.footer is None and is_large(n_rows, nnz):
            yield from self._read_parts(file, row_group, part_rows(n_rows, nnz))
        else:
            yield 0, self._read(file, row_group)

    def learned_of_columns(self) -> dict[str, np.ndarray]:
        """What was learned of raw columns, by name; nothing for features of other kinds, or where it is not beside the
        shards (a warning says so: the model then takes features, no raw rows)."""
        if not is_columns(self.features):
            return {}
        try:
            return load(self.features, files.parent_directory(self.files[0]))._asdict()
        except DataError as error:
            log.warning("the model will not take raw columns: %s", error)
            return {}

    # Manifest and chunk table

    def _remembered(self) -> Known | None:
        """What a manifest beside the files or in the cache says, if it speaks of exactly these files."""
        for directory, prefix in self._places():
            try:
                manifest = _manifest(files.join(directory, prefix + MANIFEST))
                if manifest is None:
                    continue
                told = not manifest["weighted"] or "zero_weight" in manifest  # older ones did not always say
                if not told or not self._matches(manifest["files"]):
                    if not prefix:
                        mine = zip(map(files.base_name, self.files), self.fingerprints, strict=True)
                        self.lost = dict.fromkeys(_lost(directory, [*mine], manifest["files"]), directory)
                    continue
                table = shards.read_table(files.join(directory, prefix + CHUNK_TABLE), list(Chunks._fields))
                chunks = Chunks(*(table[name] for name in Chunks._fields))
                check_chunks(manifest, chunks)
                zero_weight = np.zeros((chunks.rows.size, 2), np.int64)
                for chunk, *counts in manifest["zero_weight"] if manifest["weighted"] else ():
                    zero_weight[chunk] = counts
                facts, layout = Facts.from_json(manifest), Layout.from_json(manifest["layout"])
                known = Known(facts, layout, manifest["features"], chunks, zero_weight, manifest.get("conversion"))
                self._compare(known)
                return known
            except (OSError, ValueError, KeyError, TypeError, DataError) as error:
                if _is_failure(error):
                    self._unread.append(f"{directory}: manifest or chunk table cannot be read ({error}); what they say "
                                        "was taken from the files themselves")  # fmt: skip
                elif files.before_unfinished(directory):  # one of the two is the new one already
                    self._unread.append(f"{directory}: shards are being added here, or that was interrupted (the same "
                                        "command again ends it); until then they are left out")  # fmt: skip
                elif files.exists(files.join(directory, prefix + MANIFEST)):  # damaged, not missing
                    found = self._damaged_in_cache if prefix else self.damaged
                    found.append(f"{directory}: manifest or chunk table is damaged ({error}); what they say "
                                 "was taken from the files themselves")  # fmt: skip
        return None

    def _compare(self, known: Known) -> None:
        """Compare a manifest with what few files say of themselves, of others with the first one's columns.

        Raises
        ------
        FieldError : naming the field that differs.
        """
        few = self.files if len(self.files) <= COMPARED else self.files[:1]
        read = functools.partial(read_header, columns=self.columns, need_labels=self._need_labels)
        headers = in_threads(read, few)
        if headers[0].footer is None:
            check_relations([(known.layout == headers[0].layout, "layout", "the columns that the first file has")])
        elif len(few) == len(self.files):
            total = Facts()
            for header in headers:
                total.add(header.facts())
            check_relations(known.facts.agrees(total))
            layout = next((h.layout for h in headers if h.layout.values), headers[0].layout)
            check_relations([(known.layout == layout, "layout", "that of the shards"),
                             (known.features == headers[0].features, "features", "those of the shards")])  # fmt: skip
            if all(header.knows_chunks for header in headers):
                chunks, zeros = chunk_table(header.chunk_lines() for header in headers)
                same = np.array_equal(zeros, known.zero_weight)
                check_relations([(table_digest(chunks) == table_digest(known.chunks), "chunks", "those of the shards"),
                                 (same, "zero_weight", "what the shards say")])  # fmt: skip

    def _places(self) -> Iterator[tuple[str, str]]:
        directories = {files.parent_directory(path) for path in self.files}
        if len(directories) == 1 and not self.columns:
            yield directories.pop(), ""
        try:
            cached = cache_directory(MANIFESTS)
        except OSError:  # no room for it
            return
        yield cached, self.digest

    def _matches(self, listed: Sequence[Mapping[str, object]]) -> bool:
        """Whether the manifest lists these files by name, size and footer (a copy has another time of change)."""
        mine = [(files.base_name(p), f.size, f.footer) for p, f in zip(self.files, self.fingerprints, strict=True)]
        return mine == [(entry["name"], entry["size"], entry["footer"]) for entry in listed]

    def _lost_of_several(self) -> dict[str, str]:
        """The warnings of several directories, each with a manifest of its own, and of which each is."""
        there: dict[str, list[tuple[str, files.Fingerprint]]] = {}
        for path, found in zip(self.files, self.fingerprints, strict=True):
            there.setdefault(files.parent_directory(path), []).append((files.base_name(path), found))
        lost = dict[str, str]()
        for directory, mine in there.items() if 1 < len(there) <= MOST_DIRECTORIES else ():
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, DataError):  # it has none of ours
                listed = (_manifest(files.join(directory, MANIFEST)) or {"files": []})["files"]
                lost |= dict.fromkeys(_lost(directory, mine, listed), directory)
        return lost

    def _remember(self, known: Known) -> None:
        with contextlib.suppress(OSError):  # no room: gathered again next time
            self._write(cache_directory(MANIFESTS), self.digest, known)

    def write_manifest(self, directory: str, conversion: Mapping[str, object] | None = None, **made: object) -> None:
        """Write manifest and chunk table into ``directory``, where the files lie; ``conversion`` : what is to be known
        of how they came about; ``made`` : what is to be known of how features were made, beside what the files say."""
        features = {**self.features, **made}
        self._write(directory, "", self._known._replace(conversion=conversion, features=features))

    def origin(self) -> Origin:
        """By what the rows are known again: marks of the ``files``, of the ``sources`` that they were made of, and
        which ``part`` of these they are (None: all). Very many files have no marks."""
        few = len(self.files) <= MOST_MARKS
        marks = [f"{found.size}-{found.footer}" for found in self.fingerprints] if few else []
        return {"files": marks, "sources": self.conversion.get("sources", []), "part": self.conversion.get("part")}

    def _write(self, directory: str, prefix: str, known: Known) -> None:
        listed = [
            {"name": files.base_name(path), **fingerprint._asdict()}
            for path, fingerprint in zip(self.files, self.fingerprints, strict=True)
        ]
        manifest = {
            "version": MANIFEST_VERSION if known.facts.label_range is None else REAL_MANIFEST_VERSION,
            "files": listed,
            "features": known.features,
            "layout": known.layout.as_json(),
            "chunks": table_digest(known.chunks),
            "zero_weight": [[int(c), *known.zero_weight[c].tolist()] for c in np.flatnonzero(known.zero_weight[:, 0])],
            **({"conversion": dict(known.conversion)} if known.conversion else {}),
            **known.facts.as_json(),
        }
        shards.write_table(files.join(directory, prefix + CHUNK_TABLE), known.chunks._asdict())
        files.publish_bytes(files.join(directory, prefix + MANIFEST), shards.sealed(manifest, lines=True))

    # Reading

    def decode(self, file: int, row_group: int, into: Entries | None = None) -> Block:
        """A whole row group, number ``row_group`` of ``files[file]``, with every check done; any thread may call
        this at any time.

        Parameters
        ----------
        into : memory for its indices [nnz] and values [nnz] ([0] where a block has none), of a block's types. The
            block's lie there unless they had to be made by Arrow, are of another width, or some rows are left out.

        Returns
        -------
        Block : labels are class codes, or numbers (``real_labels``); ids the row numbers in the whole dataset.

        Raises
        ------
        DataError : with file, row group, row and column of the first fault.
        """
        rows = self._read(file, row_group, into)
        block = self._checked(rows, file, row_group)
        if self._takes_part:
            block, chunks = self._those_with_weight(block), slice(*self._chunks_of(file, row_group))
            if (block.n_rows, block.nnz) != (self.chunks.rows[chunks].sum(), self.chunks.nnz[chunks].sum()):
                raise self._wrong_counts(file, row_group)
        first = self._row_number(file, row_group)
        return block._replace(ids=np.arange(first, first + block.n_rows, dtype=np.int64))

    def blocks(self, places: Iterable[tuple[int, int]] | None = None) -> Iterator[Block]:
        """The chunks of the row groups ``places`` (file, row group), a block each, as ``decode`` has it; None: of all,
        in order. Of a large row group little more than the block is in memory at a time."""
        for place in self.places() if places is None else places:
            yield from self.parts(*place)

    def places(self) -> list[tuple[int, int]]:
        """(file, row group) of everything, in order."""
        return list(dict.fromkeys(zip(self.chunks.file.tolist(), self.chunks.row_group.tolist(), strict=True)))

    def parts(self, file: int, row_group: int) -> Iterator[Block]:
        """Yield the chunks of one row group, a block each, as ``decode`` has them: it is decoded whole where it is no
        larger than a few megabytes or one of our own, else in parts.

        Parameters
        ----------
        file, row_group : numbers of the file and of the row group in it.
        """
        chunks = range(*self._chunks_of(file, row_group))
        if not self.in_parts[chunks.start]:
            yield self.decode(file, row_group)
            return
        small, held = self._small_blocks(file, row_group), list[Block]()
        for chunk in chunks:
            missing = int(self.chunks.rows[chunk]) - sum(block.n_rows for block in held)
            while missing > 0 and (block := next(small, None)) is not None:
                held.append(block)
                missing -= block.n_rows
            if missing > 0:
                raise self._wrong_counts(file, row_group)
            last, end = held[-1], held[-1].n_rows + missing
            first = int(self.chunks.row0[chunk])
            whole = concatenate([*held[:-1], _standing_alone(rows_of(last, 0, end))])
            held = [rows_of(last, end, last.n_rows)]
            yield whole._replace(ids=np.arange(first, first + whole.n_rows, dtype=np.int64))
            del whole

    def _small_blocks(self, file: int, row_group: int) -> Iterator[Block]:
        """A large row group in blocks of a megabyte in the mean, of the rows that take part; ids are left to do."""
        chunks = slice(*self._chunks_of(file, row_group, self._known.chunks))
        n_rows, nnz = int(self._known.chunks.rows[chunks].sum()), int(self._known.chunks.nnz[chunks].sum())
        for number, (first, rows) in enumerate(self._read_parts(file, row_group, part_rows(n_rows, nnz)), start=1):
            with counted_from(first):
                block = self._checked(rows, file, row_group)
            del rows
            block = self._those_with_weight(block) if self._takes_part else block
            yield block
            del block
            if number % RELEASE_EVERY == 0:
                shards.release_unused()

    def _read_parts(self, file: int, row_group: int, rows: int, tries: int = 3) -> Iterator[tuple[int, Rows]]:
        """(first row, rows) of a row group in parts; an input/output error is given two more tries."""
        path, done = self.files[file], 0
        for left in reversed(range(tries)):
            try:
                self._handle(file)  # with its checks
                said = self._said_by(file)
                with shards.open_parquet(path, said.metadata, BUFFER_BYTES) as opened:
                    layout = self._layout_in(said.schema)
                    for first, part in shards.read_parts(opened, said.schema, row_group, layout, path, rows):
                        if first >= done:  # else it was given before the error
                            done = first + part.n_rows
                            yield first, part
                        del part
                return
            except DataError as error:
                self._forget(file)
                if not left or getattr(error.__cause__, "errno", None) != errno.EIO:
                    raise

    def _checked(self, rows: Rows, file: int, row_group: int) -> Block:
        """Rows of a row group as a block, all numbers checked; ids are left to do."""
        path, layout, ids = self.files[file], self.layout, self.feature_ids
        norms = shards.checked_norms(rows, self.n_features if ids is None else ids.n_features, layout, path, row_group)
        indices = rows.indices if ids is None else self._by_place(ids, rows.indices, path, row_group)
        if indices.dtype.itemsize < self.index_width:
            indices = indices.astype(np.uint64)
        values, scales = one_value_a_row(rows.indptr, rows.values) if self.row_constant else (rows.values, NO_SCALES)
        if self.row_constant and values.size:
            raise DataError("a row has values that differ, where the footer says that none has", file=path,
                            row_group=row_group, column=layout.values_name)  # fmt: skip
        if not (self.binary or self.row_constant) and values.size == 0:
            values = np.ones(indices.size, np.float32)
        weights = np.ones(rows.n_rows) if rows.weights is None else rows.weights
        labels = self._codes(rows.labels, rows.n_rows, path, row_group)
        return Block(rows.indptr, indices, values, labels, weights, norms, np.empty(rows.n_rows, np.int64), scales)

    def _by_place(self, ids: FeatureIds, features: np.ndarray, path: str, row_group: int) -> np.ndarray:
        """The places of the features of rows, where these lay if they fit there."""
        here = features.dtype == np.uint32 and features.flags.writeable
        places = features if here else np.empty(features.size, np.uint32)
        if ids.find(features, places) >= 0:
            message = "a feature is not among those that were collected from these rows; remove the lists in "
            raise DataError(message + repr(cache_directory(NUMBERS)), file=path, row_group=row_group, column="indices")
        return places

    def block_of(self, table: pa.Table, file: int, row_group: int) -> Block:
        """Check rows of a row group, as ``decode`` has them but for ids, which are left to do.

        Parameters
        ----------
        table : all columns of these rows, as they were read.
        file, row_group : numbers of the file and of the row group in it.
        """
        rows = shards.rows_of_group(table, self._layout_in(table.schema), self.files[file], row_group)
        return self._checked(rows, file, row_group)

    def prepare(self) -> None:
        """Compile (or load) the kernels that decode: a first read does not wait for them then."""
        if not self.is_small:
            with compiling():
                pages.warm(self.index_width)

    @property
    def is_small(self) -> bool:
        """Whether Arrow has decoded the lists before the kernels that are faster are loaded, or even compiled."""
        return self.nnz <= SMALL

    def _those_with_weight(self, block: Block) -> Block:
        there = block.weights > 0
        return block if there.all() else selected(block, there)

    def _wrong_counts(self, file: int, row_group: int) -> DataError:
        return DataError("the footer is wrong about how many rows have the weight 0; write the file again",
                         file=self.files[file], row_group=row_group, column=self.layout.weight)  # fmt: skip

    @property
    def last_of_group(self) -> np.ndarray:
        """Whether each chunk is the last one of its row group, bool [chunk]."""
        found: np.ndarray = np.append(np.diff(self._group_keys) != 0, True)[: self.n_chunks]
        return found

    def rows_of_chunks(self, file: int, row_group: int) -> list[int]:
        """Count the rows of each chunk of a row group, as ``parts`` gives them; ``file``, ``row_group`` : their
        numbers."""
        found: list[int] = self.chunks.rows[slice(*self._chunks_of(file, row_group))].tolist()
        return found

    def _chunks_of(self, file: int, row_group: int, table: Chunks | None = None) -> tuple[int, int]:
        """The first chunk of a row group and one past its last."""
        keys = self._group_keys if table is None else _keys(table)
        first, last = np.searchsorted(keys, (file << 32) + row_group + np.arange(2)).tolist()
        return first, last

    def _read(self, file: int, row_group: int, into: Entries | None = None, tries: int = 3) -> Rows:
        """Rows of a row group; an input/output error is given two more tries."""
        path = self.files[file]
        for left in reversed(range(tries)):
            try:
                opened = self._handle(file)
                layout = self._layout_in(opened.schema)
                places = None if into is None else self._room(layout, *into)
                return shards.read_rows(opened.file, opened.schema, row_group, layout, path, opened.lists, places)
            except DataError as error:
                self._forget(file)
                if not left or getattr(error.__cause__, "errno", None) != errno.EIO:
                    raise
        raise AssertionError("unreachable")

    def _room(self, layout: Layout, indices: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
        """Where the numbers of columns of lists are to lie; values that a block leaves out, in scratch memory."""
        if not isinstance(layout.indices, str) or not isinstance(layout.values, str | None) or self._takes_part:
            return {}
        room = {layout.indices: indices}
        if layout.values is not None:
            left_out = values.size != indices.size
            room[layout.values] = self._scratch.take("values", indices.size, np.float32) if left_out else values
        return room

    @property
    def _scratch(self) -> Scratch:
        """Of this thread."""
        scratch: Scratch = self._handles.__dict__.setdefault("scratch", Scratch())
        return scratch

    def _handle(self, file: int) -> Opened:
        """This thread's open file, its fingerprint compared with the one first seen, and the way to its pages."""
        opened: dict[int, Opened] = self._handles.__dict__.setdefault("opened", {})
        if file not in opened:
            while len(opened) >= KEPT_OPEN:
                opened.pop(next(iter(opened)))
            path = self.files[file]
            self._check_file(file)
            if files.fingerprint(path) != self.fingerprints[file]:
                raise DataError("the file was replaced since it was first read; open the dataset again", file=path)
            said = self._said_by(file)
            handle = shards.open_parquet(path, said.metadata)
            lists = None if self.is_small else shards.open_pages(path, said, self._scratch)
            opened[file] = Opened(handle, said.schema, lists)
        return opened[file]

    def _said_by(self, file: int) -> Said:
        """What a file says of itself: read by the first of the threads, which open the same files soon after each
        other; those opened last stay known."""
        with self._asking:
            if file not in self._said:
                while len(self._said) >= 2 * KEPT_OPEN:
                    self._said.pop(next(iter(self._said)))
                self._said[file] = shards.said_by(self.files[file])
            return self._said[file]

    def _forget(self, file: int) -> None:
        self._handles.__dict__.get("opened", {}).pop(file, None)
        with self._asking:
            self._said.pop(file, None)

    def _layout_in(self, schema: pa.Schema) -> Layout:
        """The columns to read: no values where all are 1."""
        values = self.layout.values
        if not isinstance(values, str) or self.layout.kind is not None or self.layout.indices is None:
            return self.layout  # a dense vector is nothing but values
        left_out = self.binary or not shards.has_column(schema, values)
        return self.layout._replace(values=None) if left_out else self.layout

    def _codes(self, labels: pa.Array | None, n_rows: int, path: str, row_group: int) -> np.ndarray:
        """Codes of the classes float64 [m], or the numbers; NaN where the files have no labels."""
        if labels is None:
            return np.full(n_rows, np.nan)
        if self.real_labels:
            return as_numpy(labels).astype(np.float64)
        codes = class_codes(labels, self.classes if self.sets is None else self._set_texts)
        unknown = np.flatnonzero(codes < 0)
        if unknown.size:
            row = int(unknown[0])
            message = f"the label {labels[row].as_py()!r} is not among the {self.classes.size} classes of the dataset"
            raise DataError(message, file=path, row_group=row_group, row=row, column=self.layout.label)
        return codes.astype(np.float64)

    def _row_number(self, file: int, row_group: int) -> int:
        """Number in the whole dataset of a row group's first row."""
        chunk = np.searchsorted(self._group_keys, (file << 32) + row_group)
        return int(self.chunks.row0[chunk]) if chunk < self.n_chunks else self.n_rows

    @functools.cached_property
    def _group_keys(self) -> np.ndarray:
        return _keys(self.chunks)

    @functools.cached_property
    def in_parts(self) -> np.ndarray:
        """Whether each chunk is of a row group that is decoded in parts, bool [chunk]: one that was cut, or a large
        one, of files that bigclf did not write."""
        table, apart = self._known.chunks, self._apart
        found: np.ndarray = apart[np.searchsorted(_keys(table), self._group_keys)]
        return found

    @property
    def siblings(self) -> np.ndarray:
        """How many chunks the row group of each chunk has, with those that are not of this dataset: int64 [chunk]."""
        table, keys = _keys(self._known.chunks), self._group_keys
        found: np.ndarray = np.searchsorted(table, keys, "right") - np.searchsorted(table, keys)
        return found

    @property
    def whole_group(self) -> tuple[int, int]:
        """Rows of the longest row group that is decoded whole, with those of weight 0, and entries of the fullest."""
        return largest_group(Chunks(*(column[~self._apart] for column in self._known.chunks)))

    @property
    def largest_group(self) -> tuple[int, int]:
        """Rows of the longest row group, with those of weight 0, and entries of the fullest, however it is decoded."""
        return largest_group(self._known.chunks)

    @functools.cached_property
    def _apart(self) -> np.ndarray:
        """``in_parts`` of the chunks of all rows."""
        table = self._known.chunks
        if not table.file.size:
            return np.zeros(0, bool)
        starts = group_starts(table)
        sizes = np.diff(np.append(starts, table.file.size))
        rows, nnz = np.add.reduceat(table.rows, starts), np.add.reduceat(table.nnz, starts)
        cut, large = sizes > 1, is_large(rows, nnz)
        return np.repeat(cut if cut[large].all() or self.ours else cut | large, sizes)

    def check_unchanged(self, chunks: tuple[int, int] | None = None) -> None:
        """Compare the status of every file, or those of the chunks first:last, with the fingerprint first taken.

        Raises
        ------
        DataError : naming the file that changed and how.
        """
        whole = chunks is None or chunks == (0, self.n_chunks)
        numbers = range(len(self.files)) if chunks is None or whole else self._files_of(*chunks)
        paths, known = [self.files[n] for n in numbers], [self.fingerprints[n] for n in numbers]
        if change := files.first_change(paths, known):
            raise _has_changed(paths[change[0]], change[1])

    def by_file(self) -> list[Facts] | None:
        """What the footers of the shards say of each; None of files that bigclf did not write."""
        read = functools.partial(read_header, columns=self.columns, need_labels=self._need_labels)
        headers = in_threads(read, self.files)
        return [header.facts() for header in headers] if all(header.footer for header in headers) else None

    def new_files(self) -> list[str]:
        """Files that what the dataset was opened by names now, and did not then."""
        try:
            now = files.expand(self.named)
        except DataError:
            return []
        known = set(self.files)
        return [masked(path) for path in now if path not in known]

    def _files_of(self, first: int, last: int) -> list[int]:
        return np.unique(self.chunks.file[first:last]).tolist()

    def _check_file(self, number: int) -> None:
        change = files.has_changed(self.files[number], self.fingerprints[number])
        if change:
            raise _has_changed(self.files[number], change)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_handles", "_said", "_asking")}

    def __setstate__(self, state: Mapping[str, object]) -> None:
        self.__dict__.update(state)
        self._open_no_file()

    def _open_no_file(self) -> None:
        self._handles = threading.local()
        self._said: dict[int, Said] = {}
        self._asking = threading.Lock()

    def __repr__(self) -> str:
        return "\n".join(["Dataset", *(f"  {name:<10}{text}" for name, text in self._facts().items())])

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        return card("Dataset", self._facts())

    def _facts(self) -> dict[str, str]:
        size = sum(f.size for f in self.fingerprints)
        density = self.nnz / self.n_rows if self.n_rows else 0.0
        values = ", all 1" if self.binary else ", one value a row" if self.row_constant else ""
        lines = {
            "files": f"{len(self.files):,}, {format_bytes(size)}, {plural(self.n_chunks, 'chunk')}",
            "rows": format_count(self.n_rows),
            "features": format_count(self.n_features),
            "non-zeros": f"{format_count(self.nnz)}, {density:.1f} a row" + values,
        }
        if self.real_labels:
            lines["labels"] = range_text(self.label_range)
        else:
            shown = ", ".join(f"{c} ({n:,})" for c, n in zip(self.classes[:8], self.class_counts[:8], strict=True))
            kind, n = "classes" if self.sets is None else "labels", self.classes.size
            lines[kind] = f"{n:,}: {shown}" + (", ..." if n > 8 else "")
        return lines


def as_trained(data: Stored, columns: Mapping[str, object], need_labels: bool = True) -> Dataset:
    """The dataset behind ``data``, whose files are read by the ``columns`` that a model was trained on (see
    ``shards.those_there``). Shards that bigclf wrote, and a Dataset, know their columns themselves.

    Raises
    ------
    DataError, SchemaError : as ``Dataset``.
    """
    if isinstance(data, Dataset):
        return data
    return Dataset(data, columns=_those_there(data, columns) if columns else None, need_labels=need_labels)


def _those_there(data: files.Paths, columns: Mapping[str, object]) -> dict[str, object]:
    path = files.expand(data)[0]
    try:
        if shards.KEY in shards.claims(path).pairs:
            return {}
        with shards.open_parquet(path) as file:
            return shards.those_there(file.schema_arrow, columns, path)
    except DataError:  # the dataset tells what is wrong with the file
        return dict(columns)


def anew(directory: str) -> str:
    """The command that writes manifest and chunk table of the shards that are in a directory once more."""
    place = json.dumps(directory)  # in double quotes, which the shell leaves alone
    return shlex.join(["python", "-c", f"import bigclf; d = {place}; bigclf.Dataset(d).write_manifest(d)"])


def _manifest(path: str) -> Mapping[str, Any] | None:
    """What a manifest says; None of a newer one than this version knows.

    Raises
    ------
    OSError, ValueError, KeyError, TypeError, DataError : it is not there, or damaged.
    """
    found = shards.unsealed(files.read_text(path))
    check_fields(found, {"version": whole(1)})
    if found["version"] > REAL_MANIFEST_VERSION:
        return None
    check_manifest(found)
    return found


def _lost(
    directory: str, mine: Sequence[tuple[str, files.Fingerprint]], listed: Sequence[Mapping[str, object]]
) -> list[str]:
    """A warning of shards that the manifest of a directory lists and that are not there, where all were meant;
    ``mine`` : those that are there, in order."""
    names, its = dict(mine), {entry["name"] for entry in listed}
    if any(name[:1] in "_." for name in names):  # named one by one
        return []
    others = [(found.size, found.footer) for name, found in mine if name not in its]
    renamed = Counter[tuple[object, object]](others)
    lost = []
    for entry in listed:
        if entry["name"] not in names:
            alike = entry["size"], entry["footer"]
            renamed[alike] -= 1
            lost += [entry["name"]] if renamed[alike] < 0 else []
    if not lost or [*names] != [*map(files.base_name, files.expand(directory))] or files.before_unfinished(directory):
        return []
    is_not, their = ("is not", "its") if len(lost) == 1 else ("are not", "their")
    return [f"{directory}: {len(lost):,} of {len(listed):,} shards that the manifest lists {is_not} there, and {their} "
            f"rows are missing ({lost[0]}{', ...' * (len(lost) > 1)})"]  # fmt: skip


def _is_failure(error: Exception) -> bool:
    """Whether a store or a disk failed, which tells nothing of what lies there; pyarrow's own errors have no number."""
    cause = error if isinstance(error, OSError) else error.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    return isinstance(cause, StoreError) or number not in (None, errno.ENOENT)


def _standing_alone(block: Block) -> Block:
    """The block without the entries of rows that are not in it."""
    a, b = int(block.indptr[0]), int(block.indptr[-1])
    values = block.values[a:b] if block.values.size else block.values
    return block._replace(indptr=block.indptr - a, indices=block.indices[a:b], values=values)


def _keys(chunks: Chunks) -> np.ndarray:
    """A number for the row group of each chunk, ascending, int64 [chunk]."""
    found: np.ndarray = (chunks.file.astype(np.int64) << 32) + chunks.row_group
    return found


def _has_changed(path: str, change: str) -> DataError:
    return DataError(f"{change} since it was first read; open the dataset again", file=path)


def range_text(label_range: Mapping[str, float] | None) -> str:
    """``numbers from -3 to 12.5, mean 0.25``"""
    if label_range is None:
        return "none"
    return "numbers from {min:.6g} to {max:.6g}, mean {mean:.6g}".format(**label_range)


NO_CLASSES = (
    "the labels are numbers, too many different ones to be classes; learn to predict them with "
    'loss="epsilon_insensitive" or "squared_epsilon_insensitive"'
)


def require_classes(dataset: Dataset) -> None:
    """Refuse labels that are no classes: DataError."""
    if dataset.classes is None:
        raise DataError(NO_CLASSES, file=dataset.files[0], column=dataset.layout.label)


def no_rows(dataset: Dataset, otherwise: str) -> DataError:
    """That there are none because bad ones were left out, or ``otherwise``."""
    why = dataset.report.get("left_out")
    return DataError(f"no row is left: {why}" if why else otherwise, file=dataset.called)


def require_trainable(dataset: Dataset, regression: bool = False) -> None:
    """Refuse data nothing can be learned from.

    Raises
    ------
    DataError : for zero rows, one class only or labels that are no classes (unless ``regression``), or row weights
        that are all zero.
    """
    place = dataset.called
    if dataset.n_rows == 0:
        raise no_rows(dataset, f"there are no rows in {len(dataset.files)} file(s)")
    if not regression:
        require_classes(dataset)
    if not regression and dataset.classes.size < (2 if dataset.sets is None else 1):
        if dataset.sets is not None:
            raise DataError(
                "every list of labels is empty; training needs a label", file=place, column=dataset.layout.label
            )
        only = dataset.classes[0].item()
        message = f"every one of the {dataset.n_rows:,} rows has the label {only!r}; training needs two classes"
        raise DataError(message, file=place, column=dataset.label_called)
    if dataset.weighted and dataset.weight_sum == 0:
        raise DataError("every row weight is zero", file=place, column=dataset.layout.weight)


def class_codes(labels: pa.Array, classes: np.ndarray) -> np.ndarray:
    """Place int64 [m] in the ascending ``classes`` of each of the Arrow ``labels``, -1 for one that is not there."""
    import pyarrow.compute as pc

    if classes.dtype.kind == "U":
        found = pc.index_in(labels, value_set=texts_in_arrow(classes.tolist(), labels.type))
        codes = np.full(len(labels), -1)
        codes[as_numpy(found.is_valid())] = as_numpy(found.drop_null())
        return codes
    values = as_numpy(labels)
    if classes.size == 0:
        return np.full(values.size, -1)
    codes = np.minimum(np.searchsorted(classes, values), classes.size - 1)
    return np.where(classes[codes] == values, codes, -1)


def _told_of_shards(error: SchemaError, first: str) -> SchemaError:
    """The error of a file that holds no rows of features; of a raw table beside shards of ours, how to add it."""
    if error.file in (None, first) or shards.WHICH not in error.message:
        return error
    facts = shards.read_facts(shards.claims(first), first) or {}
    form = facts.get("features", {}).get("reader", {}).get("format")
    if form is None:  # of nobody knows what, or not made of raw columns
        return error
    named = str(error.file) if form == "parquet" else f"{str(error.file).removesuffix('.parquet')}.{form}"
    way = shlex.join(["bigclf", "convert", named, files.parent_directory(first), "--append"])
    before = "" if form == "parquet" else f"these were made of {form}: write it as {form}, then "
    return SchemaError(f"a raw table beside shards; {before}append its rows with `{way}` (append=True), and "
                       "give the shards alone", file=error.file)  # fmt: skip
