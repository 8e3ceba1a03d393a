"""The made-up rows of `bigclf bench`, like a collection of news stories, as shards: OUT/train and OUT/test.

    python jobs/like_text.py OUT [--size S|M|tiny]

S is 200,000 rows (15,291,623 non-zeros), M 2,000,000 (about ten times as many), each with a tenth of that to test on.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

import numpy as np

from bigclf.benchmarks import making, sets
from bigclf.conversion.convert import write_shards


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", help="directory to make")
    parser.add_argument("--size", default="S", choices=making.SIZES)
    given = parser.parse_args()
    shape = making.SIZES[given.size]
    os.makedirs(given.out, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.out) as cache:
        made = sets.made_set(shape, cache, lambda text: print(text, file=sys.stderr), given.size)
        for part in ("train", "test"):
            rows = made.rows(part)
            block = rows.indptr, rows.indices, rows.values, (rows.labels > 0).astype(np.int64)
            out = os.path.join(given.out, part)
            print(write_shards([block], out, classes=np.array([-1, 1]), n_features=shape.n_features, memory="1GB"))


if __name__ == "__main__":
    main()
