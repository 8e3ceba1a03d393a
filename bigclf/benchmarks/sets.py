"""What is measured on: made-up rows or a person's own, kept as arrays in a cache, and other forms made from those.

A set is a directory with ``train.indptr.npy``, ``.indices``, ``.values`` and ``.labels`` (CSR, int8 labels -1 and +1),
``test.*`` where there are rows to test on, ``set.json`` with facts, and beside them, once asked for, text and shards.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bigclf import files
from bigclf.benchmarks import texts
from bigclf.benchmarks.making import MILLION, Made, Shape, make
from bigclf.benchmarks.objective import Held, hold
from bigclf.benchmarks.shapes import KINDS
from bigclf.conversion.convert import convert as to_shards
from bigclf.conversion.convert import write_shards
from bigclf.data.dataset import Dataset
from bigclf.errors import DataError, RunError
from bigclf.maths.block import Block, explicit_values
from bigclf.units import format_bytes

VERSION = 1  # of what the same shape gives
PARTS = ("indptr", "indices", "values", "labels")
BLOCK_ROWS = 20_000
ENTRY_BYTES = 8
PREFIXES = ("made-", "own-", "forms-")  # how the names of directories in the cache begin

Tell = Callable[[str], None]


class Set(NamedTuple):
    """A set on disk; ``n_test`` is 0 without rows to test on."""

    name: str
    directory: str
    n_rows: int
    n_test: int
    n_features: int
    nnz: int

    @property
    def title(self) -> str:
        """What pictures are headed with."""
        return f"{self.name}: {self.n_rows:,} rows, {self.n_features:,} features, {self.nnz:,} non-zeros"

    def place(self, part: str) -> str:
        return files.join(self.directory, part)

    def rows(self, part: str) -> Held:
        return hold(self.place(part))


# Made-up rows


def made_set(shape: Shape, cache: str, tell: Tell, name: str = "") -> Set:
    """The set of this shape, made unless it is in the cache."""
    numbers = "-".join(f"{number:g}" for number in shape)
    directory = files.join(cache, f"made-{VERSION}-{numbers}")
    if not files.exists(files.join(directory, "set.json")):
        need = int((shape.n_train + shape.n_test) * shape.mean_nnz * 1.2 * ENTRY_BYTES)
        require_room(cache, need)
        tell(f"making {shape.n_train:,} rows of {shape.n_features:,} features")
        with building(directory) as new:
            write_made(make(shape), shape, name or numbers, new)
    return found_set(directory)


def shape_set(name: str, size: str, seed: int, cache: str, tell: Tell) -> Set:
    """The set of ``shapes.KINDS``, made unless it is in the cache."""
    kind = KINDS[name]
    n = kind.rows(size)
    directory = files.join(cache, f"made-{VERSION}-{name}-{n}-{seed}")
    if not files.exists(files.join(directory, "set.json")):
        tell(f"making {n:,} rows: {name}")
        made = kind.make(n, kind.n_features, np.random.default_rng([seed, n]))
        require_room(cache, made.indices.size * ENTRY_BYTES)
        with building(directory) as new:
            write_made(made, Shape(n, 0, kind.n_features, made.indices.size / n), name, new)
    return found_set(directory)


def write_made(made: Made, shape: Shape, name: str, directory: str) -> None:
    n = shape.n_train
    for part, first, last in (("train", 0, n), ("test", n, n + shape.n_test)):
        if first == last:
            continue
        a, b = made.indptr[first], made.indptr[last]
        arrays = made.indptr[first : last + 1] - a, made.indices[a:b], made.values[a:b], made.y[first:last]
        for kind, array in zip(PARTS, arrays, strict=True):
            np.save(files.join(directory, f"{part}.{kind}.npy"), array)
    note(directory, name, shape.n_features)


# A person's own


def own_set(data: list[str], cache: str, tell: Tell, positive: str | None = None) -> Set:
    """The set of these rows: a directory of arrays as it is, or shards or svmlight text, read into the cache once.

    Raises
    ------
    DataError : more than two classes and none named ``positive``; weighted rows; files that cannot be used.
    """
    if len(data) == 1 and files.exists(files.join(data[0], "train.indptr.npy")):
        return found_set(data[0])

    paths = files.expand(data)
    shards: Any = data
    if not is_parquet(paths[0]):
        shards = files.join(cache, f"shards-{known_by(paths, '')}")
        convert(paths, shards, tell)
    dataset = Dataset(shards)
    directory = files.join(cache, f"own-{VERSION}-{known_by(dataset.files, positive)}")
    if not files.exists(files.join(directory, "set.json")):
        require_room(cache, dataset.nnz * ENTRY_BYTES)
        tell(f"reading {dataset.n_rows:,} rows")
        with building(directory) as new:
            write_own(dataset, positive, files.base_name(data[0]), new)
    return found_set(directory)


def is_parquet(path: str) -> bool:
    with files.open_binary(path) as file:
        return file.read(4) == b"PAR1"


def known_by(paths: list[str], positive: str | None) -> str:
    known = [[files.absolute(path), *files.status(path)] for path in paths]
    return hashlib.blake2b(json.dumps([known, positive]).encode(), digest_size=8).hexdigest()


def convert(paths: list[str], shards: str, tell: Tell) -> None:
    if not files.exists(files.join(shards, "_bigclf_manifest.json")):
        tell(f"converting {files.base_name(paths[0])} to shards")
        to_shards(paths, shards, overwrite=True)


def write_own(dataset: Dataset, positive: str | None, name: str, directory: str) -> None:
    """Every row of the dataset as arrays."""
    code = positive_code(dataset, positive)
    if dataset.weighted:
        raise DataError("rows with weights are not compared: not every peer takes them", file=dataset.files[0])
    shapes = (
        (dataset.n_rows + 1, np.int64),
        (dataset.nnz, np.int32),
        (dataset.nnz, np.float32),
        (dataset.n_rows, np.int8),
    )
    arrays = [
        np.lib.format.open_memmap(files.join(directory, f"train.{kind}.npy"), "w+", dtype, (size,))
        for kind, (size, dtype) in zip(PARTS, shapes, strict=True)
    ]
    indptr, indices, values, labels = arrays
    row = entry = 0
    indptr[0] = 0
    for block in blocks(dataset):
        m, count = block.n_rows, block.indices.size
        indptr[row + 1 : row + m + 1] = block.indptr[1:].astype(np.int64) - int(block.indptr[0]) + entry
        indices[entry : entry + count] = block.indices
        values[entry : entry + count] = explicit_values(block)
        labels[row : row + m] = np.where(block.labels == code, 1, -1)
        row, entry = row + m, entry + count
    for array in arrays:
        array.flush()
    note(directory, name, dataset.n_features)


def blocks(dataset: Dataset) -> Iterator[Block]:
    yield from dataset.blocks()


def positive_code(dataset: Dataset, positive: str | None) -> int:
    """Code of the class that is learned against the rest."""
    names = [str(label) for label in dataset.classes]
    if positive is not None:
        if positive not in names:
            raise DataError(f"there is no class {positive!r}; the classes are {', '.join(names[:20])}")
        return names.index(positive)
    if len(names) != 2:
        raise DataError(f"{len(names)} classes; name the one to learn against the rest with --positive")
    return 1


# Directories


def found_set(directory: str) -> Set:
    """The set in a directory of arrays."""
    rows = hold(files.join(directory, "train"))
    facts = files.join(directory, "set.json")
    told = json.loads(files.read_text(facts)) if files.exists(facts) else {}
    features = told.get("n_features") or int(rows.indices.max()) + 1
    has_test = files.exists(files.join(directory, "test.indptr.npy"))
    n_test = hold(files.join(directory, "test")).labels.size if has_test else 0
    name = told.get("name") or files.base_name(directory)
    return Set(name, directory, rows.labels.size, n_test, features, rows.indices.size)


def note(directory: str, name: str, n_features: int) -> None:
    files.publish_text(files.join(directory, "set.json"), json.dumps({"name": name, "n_features": n_features}))


@contextlib.contextmanager
def building(directory: str) -> Iterator[str]:
    """A directory beside this one that takes its place once it is whole."""
    new = files.temporary_name(directory)
    files.make_directory(new)
    try:
        yield new
        files.publish_directory(new, directory)
    finally:
        files.remove_tree(new)


def require_room(directory: str, need: int) -> None:
    free = files.free_bytes(directory)
    if free < need:
        raise RunError(
            f"{directory}: {format_bytes(need)} are needed and {format_bytes(free)} are free; name another --cache"
        )


# Other forms


def shards_of(data: Set, cache: str, tell: Tell) -> str:
    """The rows to train on as shards, in their order (made-up rows have none, converted ones are shuffled)."""
    place = files.join(beside(data, cache), "shards")
    if not files.exists(files.join(place, "_bigclf_manifest.json")):
        require_room(cache, data.nnz * ENTRY_BYTES)
        tell("writing shards")
        rows = ((part.indptr, part.indices, part.values, (part.labels > 0)) for part in pieces(data))
        write_shards(rows, place, classes=np.array([-1, 1]), n_features=data.n_features, overwrite=True)
    return place


def text_of(data: Set, cache: str, kind: str, tell: Tell) -> str:
    """The rows to train on as text: ``svm`` or ``vw``, both counting features from 1."""
    path = files.join(beside(data, cache), f"train.{kind}")
    if not files.exists(path):
        require_room(cache, data.nnz * 16)
        tell(f"writing {files.base_name(path)}")
        with files.publishing(path) as temporary, files.open_binary(temporary, "wb") as file:
            for text in lines(data, texts.VOWPAL_WABBIT if kind == "vw" else texts.SVMLIGHT):
                file.write(text)
    return path


def beside(data: Set, cache: str) -> str:
    """Where other forms of a set go: with it where it is ours, else into the cache."""
    own = files.exists(files.join(data.directory, "set.json"))
    found = data.directory if own else files.join(cache, f"forms-{known_by([data.place('train') + '.labels.npy'], '')}")
    files.make_directory(found)
    return found


def pieces(data: Set) -> Iterator[Held]:
    """Some rows after another, each piece with an indptr from 0."""
    rows = data.rows("train")
    for first in range(0, data.n_rows, BLOCK_ROWS):
        last = min(data.n_rows, first + BLOCK_ROWS)
        a, b = int(rows.indptr[first]), int(rows.indptr[last])
        held = rows.indptr[first : last + 1] - a, rows.indices[a:b], rows.values[a:b], rows.labels[first:last]
        yield Held(*(np.ascontiguousarray(array) for array in held))


def lines(data: Set, names: tuple[bytes, bytes]) -> Iterator[bytes | memoryview]:
    """Text by table where all values are millionths below 1, else number by number."""
    table = texts.Texts(data.n_features, 6, names) if in_millionths(data) else None
    for part in pieces(data):
        if table is not None:
            levels = np.rint(part.values * np.float64(MILLION)).astype(np.int32)
            yield table.lines(texts.Rows(part.indptr, part.indices, levels, part.labels))
        else:
            yield b"".join(plain_line(part, row, names) for row in range(part.labels.size))
    yield b"\n" if table is not None else b""


def in_millionths(data: Set) -> bool:
    def fits(values: np.ndarray) -> bool:
        levels = np.rint(values * np.float64(MILLION))
        return bool(((levels >= 0) & (levels < MILLION) & ((levels / MILLION).astype(np.float32) == values)).all())

    return data.n_features < 10**7 and all(fits(part.values) for part in pieces(data))


def plain_line(part: Held, row: int, names: tuple[bytes, bytes]) -> bytes:
    held = slice(part.indptr[row], part.indptr[row + 1])
    entries = zip((part.indices[held] + 1).tolist(), part.values[held].tolist(), strict=True)
    label = names[int(part.labels[row] > 0)].decode()
    return (" ".join([label, *(f"{j}:{value:.9g}" for j, value in entries)]) + "\n").encode()
