"""A reader of one's own in twenty lines: FASTA by positional k-mers.

    bigclf convert splice.fasta.bz2 out/shards --format kmers:row         (in this directory, or PYTHONPATH=jobs)

A record is a header, with the label after ``label=``, and lines of bases. For k = 1 .. K the k-mer at place p is the
feature offset_k + p 4^k + code (A, C, G, T are the digits of its code); the values make the row's length 1.
"""

import numpy as np

K = 3
DIGITS = np.full(256, -1)
DIGITS[list(b"ACGTacgt")] = [0, 1, 2, 3, 0, 1, 2, 3]


def row(record):
    """(label, indices, values) of a record; a ValueError is the reason of a bad row."""
    header, _, lines = record.partition(b"\n")
    digits = DIGITS[np.frombuffer(b"".join(lines.split()), np.uint8)]
    if (digits < 0).any():
        raise ValueError("there is a letter that is no base")
    kmers, code, offset = [], np.zeros_like(digits), 0
    for k in range(1, K + 1):
        code = 4 * code[: digits.size - k + 1] + digits[k - 1 :]
        kmers.append(offset + 4**k * np.arange(code.size) + code)
        offset += 4**k * code.size
    indices = np.concatenate(kmers)
    return int(header.partition(b"label=")[2]), indices, np.full(indices.size, indices.size**-0.5)


row.record = b">"  # what the first line of a record begins with; without it every line is one
