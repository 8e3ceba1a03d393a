"""The formats of raw input, each declared once: names, endings, messages and readers follow ``FORMATS``."""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """What input is.

    Attributes
    ----------
    endings : of names of files that tell it, compressed or not.
    reader : the module of ``conversion/text`` whose ``READER`` parses rows that are sparse already; "": raw columns.
    hashes : whether names of its features may be hashed.
    """

    endings: tuple[str, ...] = ()
    reader: str = ""
    hashes: bool = False


FORMATS = {  # in the order in which a person sees them; the first is what text is that nothing is known of
    "svmlight": Format(("svm", "svmlight", "libsvm"), "svmlight"),
    "vw": Format(("vw",), "vowpal_wabbit", hashes=True),
    "csv": Format(("csv",)),
    "tsv": Format(("tsv",)),
    "jsonl": Format(("jsonl", "ndjson", "json")),
    "text": Format(),
    "parquet": Format(),
}
SPARSE = tuple(name for name, form in FORMATS.items() if form.reader)
COLUMNS = tuple(name for name, form in FORMATS.items() if not form.reader)
DEFAULT = SPARSE[0]
HASHED = next(name for name, form in FORMATS.items() if form.hashes)
BY_ENDING = {ending: name for name, form in FORMATS.items() for ending in form.endings}
ALL = ", ".join(FORMATS)
