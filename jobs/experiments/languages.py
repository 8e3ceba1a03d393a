"""Words of many languages: one pass of learners of all classes at once, beside scikit-learn's SGDClassifier.

    python jobs/experiments/languages.py OUT [--data DIR] [--memory 4GB] [--choose] [--no-peer]

WikiPron (Lee et al., LREC 2020) has words with their languages; the language is to be told by a word's character
1-4-grams, with its edges, hashed to 2^20 features, rows of length 1. Languages of at least 1,000 distinct words take
part. Of the words, whatever languages they belong to, a tenth is for choosing parameters and a tenth for the figures.
Both learn from the same shards, in their order, once: ours with weights of single precision and ``--memory``, the peer
block by block through ``partial_fit``, a problem for each class, with weights of double precision, which is all it has.
``--choose`` tries several learners and parameters and measures them on the tenth kept for that.

DIR (or BIGCLF_DATA) holds `wikipron/wikipron_tsv.tar.gz`. OUT gets the shards and `results.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import tarfile
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

import bigclf
from bigclf.conversion.convert import write_shards

LEAST_WORDS, FEATURES, BLOCK = 1000, 2**20, 20_000
PARTS = {"test": (0, 1), "choose": (1, 2), "train": (2, 10)}  # tenths of the words
LEARNER: dict[str, Any] = {"algo": "arow_mc", "r": 1.0}  # the best of TRIED
TRIED: list[dict[str, Any]] = [
    {"algo": "perceptron_mc"},
    {"algo": "averaged_perceptron_mc"},
    *({"algo": "pa1_mc", "C": c} for c in (0.03, 0.1, 0.3, 1.0)),
    *({"algo": "pa2_mc", "C": c} for c in (0.1, 1.0)),
    {"algo": "pa1_mc", "C": 0.1, "constraints": "all"},
    *({"algo": "averaged_pa1_mc", "C": c} for c in (0.1, 1.0)),
    *({"algo": "arow_mc", "r": r} for r in (0.1, 1.0, 10.0)),
]
ALPHAS = (1e-4, 1e-5, 1e-6)  # of the peer; the first is its default
EDGES = (1_000, 3_000, 10_000, 30_000, 10**9)  # words of a language


def words_of(folder: str) -> tuple[list[str], list[str]]:
    """Distinct words and their languages, of languages that have enough of them; in an order of their own."""
    found: dict[str, set[str]] = defaultdict(set)
    with tarfile.open(os.path.join(folder, "wikipron", "wikipron_tsv.tar.gz")) as archive:
        for member in archive:
            if not member.name.endswith(".tsv"):
                continue
            file = archive.extractfile(member)
            assert file is not None
            language = os.path.basename(member.name).split("_")[0]
            found[language] |= {line.split("\t")[0] for line in file.read().decode().splitlines() if "\t" in line}
    pairs = [(word, language) for language, words in found.items() if len(words) >= LEAST_WORDS for word in words]
    pairs.sort(key=lambda pair: (zlib.crc32(f"{pair[0]} {pair[1]}".encode()), pair))
    return [word for word, _ in pairs], [language for _, language in pairs]


def part_of(word: str) -> str:
    tenth = zlib.crc32(word.encode(), 1) % 10
    return next(name for name, (first, last) in PARTS.items() if first <= tenth < last)


def blocks(words: list[str], codes: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """(indptr, indices, values, labels) of some words after others."""
    from sklearn.feature_extraction.text import HashingVectorizer

    grams = HashingVectorizer(analyzer="char_wb", ngram_range=(1, 4), n_features=FEATURES, lowercase=False,
                              alternate_sign=False, binary=True, dtype=np.float32)  # fmt: skip
    for first in range(0, len(words), BLOCK):
        rows = grams.transform(words[first : first + BLOCK])
        rows.sort_indices()
        yield rows.indptr, rows.indices, rows.data, codes[first : first + BLOCK]


def make(out: str, folder: str) -> None:
    words, languages = words_of(folder)
    classes, codes = np.unique(languages, return_inverse=True)
    parts = np.array([part_of(word) for word in words])
    for name in PARTS:
        mine = np.flatnonzero(parts == name)
        rows = blocks([words[i] for i in mine], codes[mine].astype(np.float64))
        write_shards(rows, os.path.join(out, name), classes=classes, n_features=FEATURES)
        print(f"{name}: {mine.size:,} words of {classes.size} languages", flush=True)


def read(data: bigclf.Dataset) -> Iterator[tuple[sparse.csr_matrix, np.ndarray]]:
    """Rows and labels of each row group, in the order of the files."""
    chunks = data.chunks
    for place in dict.fromkeys(zip(chunks.file.tolist(), chunks.row_group.tolist(), strict=True)):
        block = data.decode(*place)
        values = block.values if block.values.size else np.repeat(block.scales, np.diff(block.indptr))
        rows = sparse.csr_matrix((values, block.indices.astype(np.int32), block.indptr), (block.n_rows, FEATURES))
        yield rows, data.classes[block.labels.astype(int)]


def figures(true: np.ndarray, said: np.ndarray, counts: dict[str, int]) -> dict[str, Any]:
    """Accuracy, and macro-F1 over languages by how many words they have to learn from."""
    from sklearn.metrics import f1_score

    classes = np.array(sorted(counts))
    each = f1_score(true, said, labels=classes, average=None, zero_division=0)
    size = np.array([counts[name] for name in classes])
    found: dict[str, Any] = {"accuracy": float((true == said).mean()), "macro-F1": float(each.mean())}
    for low, high in zip((0, *EDGES[1:-1]), EDGES[1:], strict=True):
        mine = (size >= low) & (size < high)
        found[f"macro-F1, {'under' if low == 0 else 'from'} {high if low == 0 else low:,} words"] = (
            float(each[mine].mean()), int(mine.sum()))  # fmt: skip
    return found


def labels_of(data: bigclf.Dataset) -> np.ndarray:
    return np.concatenate([labels for _, labels in read(data)])


def ours(out: str, learner: dict[str, Any], memory: str, part: str) -> dict[str, Any]:
    train, test = (bigclf.Dataset(os.path.join(out, name)) for name in ("train", part))
    with tempfile.TemporaryDirectory(dir=out) as run_dir:  # where the model is written, which takes memory too
        model = bigclf.fit(train, multiclass="native", epochs=1, dtype="float32", memory=memory, run_dir=run_dir,
                           progress=False, **learner)  # fmt: skip
    counts = dict(zip(train.classes.tolist(), train.class_counts.tolist(), strict=True))
    found = figures(labels_of(test), model.predict(test), counts)
    result = model.result_
    took = {name: result.memory[name] for name in ("base", "planned", "peak")}
    return found | {"seconds": result.seconds, "memory": took, "touched": bool(result.plan["places"])}


def peer(out: str, alpha: float, part: str) -> dict[str, Any]:
    """scikit-learn's SGDClassifier (hinge loss) in one pass of partial_fit."""
    from sklearn.linear_model import SGDClassifier

    train, test = (bigclf.Dataset(os.path.join(out, name)) for name in ("train", part))
    learner, began = SGDClassifier(alpha=alpha, random_state=0), time.monotonic()
    for rows, labels in read(train):
        learner.partial_fit(rows, labels, classes=train.classes)
    seconds = time.monotonic() - began
    said = np.concatenate([learner.predict(rows) for rows, _ in read(test)])
    counts = dict(zip(train.classes.tolist(), train.class_counts.tolist(), strict=True))
    return figures(labels_of(test), said, counts) | {"seconds": seconds}


def show(name: str, found: dict[str, Any]) -> None:
    print(name, flush=True)
    for what, value in found.items():
        told = f"{value[0]:.4f} ({value[1]} languages)" if isinstance(value, tuple) else value
        print(f"  {what}: {told:.4f}" if isinstance(told, float) else f"  {what}: {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--data", default=os.environ.get("BIGCLF_DATA"))
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--no-peer", action="store_true")
    asked = parser.parse_args()
    if not os.path.exists(os.path.join(asked.out, "train")):
        make(asked.out, asked.data)
    results: dict[str, Any] = {}
    learners, alphas, part = [LEARNER], [ALPHAS[0]], "test"
    if asked.choose:
        learners, alphas, part = TRIED, list(ALPHAS), "choose"
    for learner in learners:
        name = " ".join(map(str, learner.values()))
        results[name] = ours(asked.out, learner, asked.memory, part)
        show(name, results[name])
    for alpha in () if asked.no_peer else alphas:
        name = f"SGDClassifier alpha={alpha:g}"
        results[name] = peer(asked.out, alpha, part)
        show(name, results[name])
    with open(os.path.join(asked.out, f"results-{part}.json"), "w") as file:
        json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
