"""Short questions and the 150 things that they ask for: learners of all classes, beside scikit-learn's LinearSVC.

    python jobs/experiments/intents.py [--data DIR] [--choose]

CLINC150 (Larson et al., EMNLP 2019) without the questions that ask for none of them: 15,000 to learn from, 3,000 to
choose by and 4,500 for the figures. Features are words and pairs of neighbouring words, by their frequency in a text
and over texts, rows of length 1. ``--choose`` measures several learners on the part kept for that, else the best of
each kind are measured on the other one. DIR (or BIGCLF_DATA) holds `clinc150/data_full.json.gz`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from typing import Any

import numpy as np

import bigclf

SVM: dict[str, Any] = {"algo": "dcd", "loss": "squared_hinge", "tol": 1e-3}
NATIVE: dict[str, Any] = {"algo": "cw_mc", "epochs": 5}
CHOSEN: list[dict[str, Any]] = [NATIVE, SVM | {"C": 3.0}, {"algo": "LinearSVC", "C": 3.0}]
TRIED: list[dict[str, Any]] = [
    NATIVE,
    {"algo": "cw_mc", "epochs": 10},
    *({"algo": "arow_mc", "r": r, "epochs": 10} for r in (0.1, 1.0, 10.0)),
    *({"algo": "averaged_pa1_mc", "C": c, "epochs": 10} for c in (0.1, 0.3, 1.0)),
    *(SVM | {"C": c} for c in (0.3, 1.0, 3.0, 10.0)),
    *({"algo": "LinearSVC", "C": c} for c in (0.3, 1.0, 3.0, 10.0)),
]


def texts(folder: str, part: str) -> tuple[list[str], np.ndarray]:
    """Questions and what they ask for."""
    with gzip.open(os.path.join(folder, "clinc150", "data_full.json.gz"), "rt") as file:
        pairs = json.load(file)[part]
    return [text for text, _ in pairs], np.array([label for _, label in pairs])


def rows(folder: str, *parts: str) -> list[tuple[Any, np.ndarray]]:
    """(CSR rows, labels) of each part, features as the first one has them."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    read = [texts(folder, part) for part in parts]
    words.fit(read[0][0])
    return [(words.transform(said), labels) for said, labels in read]


def accuracy(train: tuple[Any, np.ndarray], test: tuple[Any, np.ndarray], learner: dict[str, Any]) -> float:
    """On ``test``, of a learner of ours or of the peer."""
    if learner["algo"] == "LinearSVC":
        from sklearn.svm import LinearSVC

        model: Any = LinearSVC(C=learner["C"], random_state=0).fit(*train)
    else:
        model = bigclf.fit(*train, progress=False, **learner)
    return float(np.mean(model.predict(test[0]) == test[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("BIGCLF_DATA"))
    parser.add_argument("--choose", action="store_true")
    asked = parser.parse_args()
    train, test = rows(asked.data, "train", "val" if asked.choose else "test")
    print(f"{train[0].shape[0]:,} rows of {np.unique(train[1]).size} classes, {train[0].shape[1]:,} features")
    for learner in TRIED if asked.choose else CHOSEN:
        began = time.monotonic()
        found = accuracy(train, test, learner)
        told = ", ".join(str(value) for value in learner.values())
        print(f"{told}: accuracy {100 * found:.2f} %, {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
