"""Parquet with the defects of the files in Apache's parquet-testing/bad_data, and words that claim gigabytes.

Those files are of other columns; these are ours with the same thing wrong, made of what pyarrow wrote
(``parquet_surgery``), under the names that theirs have. Each is an error that names the file, in a process that neither
crashes nor takes much memory.
"""

import io
import json
import os
import subprocess
import sys

import numpy as np
import parquet_surgery as surgery
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from making import control_group, environment

from bigclf.data import chunk_table
from bigclf.data.dataset import Dataset
from bigclf.errors import MemoryBudgetError

ROWS = 40
LABEL, INDICES, VALUES = range(3)
PLAIN = dict(compression="none", use_dictionary=False)
WORDS = dict(compression="none", use_dictionary=True)
DELTA = dict(compression="none", use_dictionary=False,
             column_encoding={"label": "DELTA_BINARY_PACKED", "indices.list.element": "DELTA_BINARY_PACKED",
                              "values.list.element": "PLAIN"})  # fmt: skip
MANY = 10**9
ROOM = bytes(1000)  # behind what a page holds: fewer bytes than a byte a million values are refused by the footer alone


def written(labels=None, **options):
    """A file of 40 rows with three entries each, taken apart."""
    lists = pa.array([[0, 2, 3 + row] for row in range(ROWS)], pa.list_(pa.int32()))
    values = pa.array([[1.0, 2.0, 0.5 * row] for row in range(ROWS)], pa.list_(pa.float32()))
    labels = pa.array([row % 2 for row in range(ROWS)]) if labels is None else labels
    held = io.BytesIO()
    pq.write_table(pa.table({"label": labels, "indices": lists, "values": values}), held, **options)
    return surgery.File(held.getvalue())


def page(file, column):
    """The data page of a column, the last of its pages."""
    return file.columns[column][-1]


def claim(file, column, count):
    """Head and footer say that the column has so many values."""
    surgery.set_to(page(file, column).head, count, surgery.PAGE_DATA, surgery.PAGE_VALUES)
    surgery.set_to(file.metadata()[column], count, surgery.VALUES)


def with_levels(file, column, *, repetition=None, definition=None):
    """Other repetition or definition levels in a plain page of lists: each a length and runs."""
    body, parts = page(file, column).body, []
    for given in (repetition, definition):
        size = int.from_bytes(body[:4], "little")
        here, body = body[4 : 4 + size], body[4 + size :]
        here = here if given is None else given
        parts += [len(here).to_bytes(4, "little"), here]
    resized(file, column, b"".join(parts) + body)


def resized(file, column, body):
    """Another body, and sizes that fit it."""
    page(file, column).body = body
    surgery.set_to(page(file, column).head, len(body), surgery.PAGE_UNPACKED)


def run(count, level):
    """So many equal levels."""
    return surgery.varint(count << 1) + bytes([level])


def schema(file, number):
    """An element of the schema: 0 is the root, 1 the label, 2 to 4 the indices, 5 to 7 the values."""
    return surgery.get(file.footer, surgery.SCHEMA)[number]


# The files of parquet-testing/bad_data


def type_of_the_schema_is_none():
    file = written(**PLAIN)
    surgery.set_to(schema(file, 1), -7, 1)
    return file


def dictionary_of_a_negative_number():
    file = written(**WORDS)
    surgery.set_to(file.columns[LABEL][0].head, -1, surgery.PAGE_DICTIONARY, surgery.PAGE_VALUES)
    return file


def too_few_repetition_levels():
    file = written(**PLAIN)
    with_levels(file, INDICES, repetition=run(1, 0) + run(2, 1))
    return file


def fewer_levels_than_the_head_says():
    file = written(**PLAIN)
    claim(file, INDICES, 3 * ROWS + 100)
    return file


def columns_of_different_sizes():
    file = written(**PLAIN)
    claim(file, LABEL, ROWS // 2)
    return file


def words_of_no_bits():
    """The dictionary has two words, and places in it are said to have no bits."""
    file = written(**WORDS)
    body = page(file, LABEL).body
    at = 4 + int.from_bytes(body[:4], "little")
    resized(file, LABEL, body[:at] + b"\0" + run(ROWS + 1, 0)[:-1])
    return file


def the_first_entry_goes_on_with_a_row():
    file = written(**PLAIN)
    with_levels(file, INDICES, repetition=run(3 * ROWS, 1))
    return file


def nothing_where_something_is_required():
    """Pages of a column that may have nulls, under a schema by which it has none."""
    file = written(**PLAIN)
    surgery.set_to(schema(file, 1), 0, 3)
    return file


def words_of_fixed_size_written_with_their_sizes():
    file = written(pa.array([b"abc", b"def"] * (ROWS // 2), pa.binary(3)), **WORDS)
    words = file.columns[LABEL][0]
    words.body = b"\3\0\0\0abc\3\0\0\0def"
    surgery.set_to(words.head, len(words.body), surgery.PAGE_UNPACKED)
    return file


def logical_type_that_is_none():
    """Who does not know it reads the plain type, as parquet.thrift says: rows will do."""
    file = written(**PLAIN)
    schema(file, 1)[10] = surgery.STRUCT, {99: (surgery.STRUCT, {})}
    return file


# Small files that claim much


def rows_by_one_run():
    """Not a lie: 10^9 labels and 10^9 empty rows, each column a kilobyte."""
    file = written(**WORDS)
    resized(file, LABEL, sized(run(MANY, 1)) + b"\1" + run(MANY, 0) + ROOM)
    for column in (INDICES, VALUES):
        resized(file, column, sized(run(MANY, 0)) + sized(run(MANY, 1)) + b"\1" + ROOM)
    for column in range(3):
        claim(file, column, MANY)
    surgery.set_to(file.footer, MANY, surgery.ROWS)
    surgery.set_to(file.footer, MANY, surgery.GROUPS, 0, surgery.GROUP_ROWS)
    return file


def sized(levels):
    return len(levels).to_bytes(4, "little") + levels


def entries_by_one_run():
    """Forty rows, one of which has 10^9 entries: all places in a dictionary, the same one."""
    file = written(**WORDS)
    for column in (INDICES, VALUES):
        levels = run(1, 0) + run(MANY - 1, 1) + run(ROWS - 1, 0)
        resized(file, column, sized(levels) + sized(run(MANY + ROWS - 1, 3)) + b"\1" + run(MANY + ROWS - 1, 0) + ROOM)
        claim(file, column, MANY + ROWS - 1)
    return file


def page_that_unpacks_to_gigabytes(size=2**31 - 1):
    file = written(compression="zstd", use_dictionary=False)
    surgery.set_to(page(file, VALUES).head, size, surgery.PAGE_UNPACKED)
    return file


def plain_page_of_gigabytes():
    file = written(**PLAIN)
    surgery.set_to(page(file, VALUES).head, 2**31 - 1, surgery.PAGE_UNPACKED)
    return file


def page_of_a_negative_size():
    return page_that_unpacks_to_gigabytes(-5)


def dictionary_of_gigabytes():
    file = written(**WORDS)
    surgery.set_to(file.columns[INDICES][0].head, 2**31 - 1, surgery.PAGE_DICTIONARY, surgery.PAGE_VALUES)
    return file


def words_beyond_the_dictionary():
    file = written(**WORDS)
    body = page(file, LABEL).body
    at = 4 + int.from_bytes(body[:4], "little")
    resized(file, LABEL, body[:at] + b"\x1f" + surgery.varint(ROWS << 1) + b"\xff\xff\xff\x7f")
    return file


def differences(total, block=128, parts=4, widths=b"\0\0\0\0"):
    """A page by DELTA_BINARY_PACKED that begins so."""
    file = written(**DELTA)
    head = surgery.varint(block) + surgery.varint(parts) + surgery.varint(total) + surgery.zigzag(0)
    body = page(file, LABEL).body
    at = 4 + int.from_bytes(body[:4], "little")
    resized(file, LABEL, body[:at] + head + surgery.zigzag(1) + widths)
    return file


def differences_of_gigabytes():
    return differences(2**31 - 1)


def differences_in_no_parts():
    return differences(ROWS, parts=0)


def differences_in_parts_of_gigabytes():
    return differences(ROWS, block=2**31, parts=1)


def differences_of_255_bits():
    return differences(ROWS, widths=b"\xff\xff\xff\xff")


def run_of_more_than_there_is():
    file = written(**PLAIN)
    with_levels(file, INDICES, repetition=surgery.varint(2**64 - 2) + b"\0")
    return file


def pages_behind_the_end():
    file = written(**PLAIN)
    data = file.bytes()
    for column in file.metadata():
        surgery.set_to(column, 2**40, surgery.DATA_AT)
    return refooted(data, file)


def column_of_a_negative_size():
    file = written(**PLAIN)
    data = file.bytes()
    surgery.set_to(file.metadata()[INDICES], -1, surgery.PACKED)
    return refooted(data, file)


def refooted(data, file):
    """The bytes with the footer of the file as it is now."""
    footer = surgery.put_struct(file.footer)
    body = data[: -8 - int.from_bytes(data[-8:-4], "little")]
    return body + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def schema_without_an_end():
    """Thousands of columns in one another."""
    file = written(**PLAIN)
    of, elements = file.footer[surgery.SCHEMA][1]
    deep = {3: (5, 1), 4: (surgery.BINARY, b"deeper"), 5: (5, 1)}
    elements[2:2] = [dict(deep) for _ in range(5000)]
    file.footer[surgery.SCHEMA] = surgery.LIST, (of, elements)
    return file


def children_of_gigabytes():
    file = written(**PLAIN)
    surgery.set_to(schema(file, 0), 2**31 - 1, 5)
    return file


BAD = {
    "PARQUET-1481": type_of_the_schema_is_none,
    "ARROW-RS-GH-6229-DICTHEADER": dictionary_of_a_negative_number,
    "ARROW-RS-GH-6229-LEVELS": too_few_repetition_levels,
    "ARROW-GH-41321": fewer_levels_than_the_head_says,
    "ARROW-GH-41317": columns_of_different_sizes,
    "ARROW-GH-43605": words_of_no_bits,
    "ARROW-GH-45185": the_first_entry_goes_on_with_a_row,
    "ARROW-GH-47662": nothing_where_something_is_required,
    "ARROW-RS-GH-11261-FLBA-DICT": words_of_fixed_size_written_with_their_sizes,
    "ARROW-GH-41764-unknown-logical-type": logical_type_that_is_none,
}
MUCH = [
    entries_by_one_run, page_that_unpacks_to_gigabytes, plain_page_of_gigabytes, page_of_a_negative_size,
    dictionary_of_gigabytes, words_beyond_the_dictionary, differences_of_gigabytes, differences_in_no_parts,
    differences_in_parts_of_gigabytes, differences_of_255_bits, run_of_more_than_there_is, pages_behind_the_end,
    column_of_a_negative_size, schema_without_an_end, children_of_gigabytes,
]  # fmt: skip


READ = """
import json, sys
from bigclf.data.dataset import Dataset
from bigclf.errors import BigclfError
said = {}
for path in json.load(sys.stdin):
    print(path, file=sys.stderr, flush=True)
    try:
        ds = Dataset(path)
        block = ds.decode(0, 0)
        assert block.n_rows == ds.n_rows == 40 and block.indices.size == ds.nnz
        said[path] = "rows"
    except BigclfError as error:
        assert path in str(error)
        said[path] = type(error).__name__
told = dict(line.split(":") for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([said, int(told["VmHWM"].split()[0])]))
"""
WELL = {  # rows by what the format says, whatever stands beside them
    logical_type_that_is_none, words_of_no_bits, plain_page_of_gigabytes, differences_of_gigabytes,
    differences_in_parts_of_gigabytes,
}  # fmt: skip


def saved(directory, makers):
    """path -> whether it has rows: the files, by name."""
    found = {}
    for name, make in makers.items():
        made = make()
        path = directory / f"{name}.parquet"
        path.write_bytes(made if isinstance(made, bytes) else made.bytes())
        found[str(path)] = make in WELL
    return found


def read(paths, **options):
    """What came of each, and kB of memory at most: read in one process, which would not come back from a crash."""
    done = subprocess.run([sys.executable, "-c", READ], input=json.dumps(list(paths)), capture_output=True, text=True,
                          env=environment(), check=False, **options)  # fmt: skip
    assert done.returncode == 0, done.stderr[-1000:]
    return json.loads(done.stdout)


@pytest.mark.long
def test_what_is_wrong_with_the_files_of_parquet_testing_is_an_error_that_names_the_file(tmp_path):
    there = saved(tmp_path, BAD)
    said, _ = read(there)
    assert {path: what == "rows" for path, what in said.items()} == there


@pytest.mark.long
def test_small_files_that_claim_gigabytes_are_refused_and_take_little_memory(tmp_path):
    there = saved(tmp_path, {make.__name__: make for make in MUCH if make is not entries_by_one_run})
    (tmp_path / "sound.parquet").write_bytes(written().bytes())
    _, before = read([str(tmp_path / "sound.parquet")])
    said, most = read(there)
    assert {path: what == "rows" for path, what in said.items()} == there
    assert most - before < 100_000


def limited(bytes, *words):
    """A command in a control group of so much memory, in which the system ends what takes more."""
    with control_group("memory", bytes) as members:
        return subprocess.run([sys.executable, "-m", "bigclf", *map(str, words)], env=environment(), text=True,
                              capture_output=True, preexec_fn=lambda: members.write_text(str(os.getpid())))  # fmt: skip


@pytest.mark.root
def test_a_row_of_gigabytes_in_kilobytes_is_refused_before_it_is_decoded(tmp_path):
    """The footer alone tells of it. Where the machine has room for it, it is a row like others."""
    (path,) = saved(tmp_path, {"entries": entries_by_one_run})
    for words in (["inspect", path], ["fit", path, "-o", tmp_path / "m"], ["validate", path]):
        done = limited(1_000_000_000, *words)
        assert done.returncode in (1, 3) and "999,999,999 entries in 804 B" in done.stderr, done.stderr
    assert not (tmp_path / "m").exists()


def test_dense_rows_of_zeros_are_no_bomb(tmp_path, monkeypatch):
    """A hundred of their numbers are in a byte of the file."""
    rows = np.zeros((2000, 1000), np.float32)
    rows[::50, ::50] = 1
    numbers = pa.ListArray.from_arrays(np.arange(0, rows.size + 1, 1000, dtype=np.int32), rows.ravel())
    path = tmp_path / "dense.parquet"
    pq.write_table(pa.table({"features": numbers, "label": np.arange(2000) % 2}), path)
    monkeypatch.setattr(chunk_table, "memory_limit", lambda: (50_000_000, "this machine"))
    assert Dataset(path).n_rows == 2000
    with monkeypatch.context() as patch, pytest.raises(MemoryBudgetError, match="which may be one row"):
        patch.setattr(chunk_table, "memory_limit", lambda: (20_000, "this machine"))
        Dataset(path)


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_gigabytes_of_rows_without_entries_in_kilobytes_are_described_in_little_memory(tmp_path):
    """10^9 of them in 5 kB, which is no lie. A byte a row would be more than there is."""
    (path,) = saved(tmp_path, {"rows": rows_by_one_run})
    done = limited(600_000_000, "inspect", path, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == MANY
