"""svmlight text with several labels a row, ``1,3 1:0.5 7:2``, into Parquet with lists of labels.

Labels are whole numbers; a line that begins with an entry, as ``1:0.5``, has none. The rows keep their order, and each
has to be right: there is no shuffling, and no bad row is left out.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf import files
from bigclf.conversion.destination import check_free
from bigclf.conversion.text import pieces
from bigclf.conversion.text.parsed import Options, as_slab
from bigclf.conversion.text.svmlight import parse, shown
from bigclf.data.dataset import MOST_MARKS, Dataset
from bigclf.data.label_sets import WHOLE, lists, of_texts
from bigclf.data.shards import parquet_writer
from bigclf.errors import BigclfError, DataError

if TYPE_CHECKING:
    import pyarrow as pa

    from bigclf.conversion.shuffle import Slab

LONGEST = 2**26  # bytes of a line
LISTED = re.compile(rb"^[ \t]*[0-9]+(?:,[0-9]+)+[ \t]+(?:qid:[0-9]+[ \t]+)?[0-9]+:", re.MULTILINE)


class Labelled(NamedTuple):
    """Rows of some text and the labels of each, joined by commas."""

    slab: Slab
    labels: list[str]


def are_lists(data: files.Paths) -> bool:
    """Whether a row at the beginning of svmlight text has several labels, ``1,3 1:0.5``."""
    with contextlib.suppress(BigclfError, OSError):  # whoever reads it tells what is wrong
        first = pieces.look_at(files.expand(data)[0], 0)
        return LISTED.search(pieces.first_text(first, LONGEST, b"")) is not None
    return False


def convert_lists(
    sources: list[pieces.Source], out: files.PathLike, options: Options, overwrite: bool = False
) -> Dataset:
    """Write a Parquet file for each source into the directory ``out``, which appears when all is done.

    Raises
    ------
    DataError : with file and line, of the first row that cannot be used. RunError : ``out`` is there.
    """
    check_free(out, overwrite, None)
    files.make_directory(files.parent_directory(out))
    with files.together([str(out)]) as place:
        files.make_directory(place[str(out)])
        for source in sources:
            path = files.join(place[str(out)], f"part-{source.number:05d}.parquet")
            with (
                files.publishing(path) as beside,
                files.open_arrow(beside, "wb") as sink,
                parquet_writer(sink, _schema()) as writer,
            ):
                for rows in _rows_of(source, options):
                    writer.write_table(_table(rows), row_group_size=max(1, len(rows.labels)))
        marks = [] if len(sources) > MOST_MARKS else [files.mark(source.path) for source in sources]
        made = {"counted_from": options.index_base} if options.tells_base else {}
        Dataset(place[str(out)]).write_manifest(place[str(out)], {"sources": marks, "part": None}, **made)
    return Dataset(out)


def _rows_of(source: pieces.Source, options: Options) -> Iterator[Labelled]:
    """The rows of a source, some MiB of text at a time."""
    n_lines = 0
    for task in pieces.tasks_of(source, 1, LONGEST):
        for _, text in pieces.blocks_of(task, LONGEST):
            plain = text.removeprefix(pieces.BOM) if n_lines == 0 else text
            yield _parsed(plain, options, source.path, n_lines)
            n_lines += text.count(b"\n")


def _parsed(text: bytes, options: Options, path: str, n_lines: int) -> Labelled:
    """Rows of whole lines, of which ``n_lines`` come before."""
    labels, rest = list[str](), list[bytes]()
    for number, line in enumerate(text.split(b"\n"), n_lines + 1):
        fields = line.split(b"#", 1)[0].split(None, 1)
        if not fields:
            rest.append(b"")
            continue
        own, entries = (b"", line) if b":" in fields[0] else (fields[0], fields[1] if len(fields) > 1 else b"")
        labels.append(_checked(own, path, number))
        rest.append(b"0 " + entries)
    parsed = parse(b"\n".join(rest), options)
    if parsed.bad:
        found = pieces.located(b"\n".join(rest), 0, parsed.bad, n_lines)[0]
        raise DataError(found.reason, file=path, line=found.line)
    if parsed.indices.size and int(parsed.indices.max()) >= 2**31:
        raise DataError("an index is beyond 2^31, where several labels a row are not taken", file=path)
    return Labelled(as_slab(parsed)[0], labels)


def _checked(labels: bytes, path: str, line: int) -> str:
    try:
        return ",".join(str(int(label)) for label in labels.split(b",")) if labels else ""
    except ValueError:
        message = f"labels are whole numbers with commas between them, not {shown(labels)}"
        raise DataError(message, file=path, line=line, column="label") from None


def _schema() -> pa.Schema:
    import pyarrow as pa

    def listed(name: str, kind: pa.DataType) -> pa.Field:
        return pa.field(name, pa.list_(pa.field("element", kind, nullable=False)), nullable=False)

    return pa.schema([listed("label", pa.int64()), listed("indices", pa.int32()), listed("values", pa.float32())])


def _table(rows: Labelled) -> pa.Table:
    import pyarrow as pa

    slab, sets = rows.slab, of_texts(rows.labels, [1] * len(rows.labels), WHOLE)
    offsets, schema = pa.array(slab.indptr.astype(np.int32)), _schema()
    values = slab.values if slab.values.size else np.ones(slab.indices.size, np.float32)
    return pa.Table.from_arrays([
        lists(sets.labels, sets.indptr, sets.members).cast(schema.field("label").type),
        pa.ListArray.from_arrays(offsets, pa.array(slab.indices.astype(np.int32)), type=schema.field("indices").type),
        pa.ListArray.from_arrays(offsets, pa.array(values), type=schema.field("values").type),
    ], schema=schema)  # fmt: skip
