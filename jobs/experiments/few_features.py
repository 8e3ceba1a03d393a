"""The few features that carry a prediction: chosen by the infinity-norm family and by L1-regularised logistic
regression.

    python jobs/experiments/few_features.py OUT [--data DIR] [--sets sci talk comp celegans]

20 Newsgroups, two groups against each other (words that occur, 1,800 messages), and acceptor splice sites of C. elegans
(which k-mer begins where, k = 1 .. 3; 3,000 sequences with a site and 3,000 without). Four fifths are learned from. Of
each learner's weights the m features of largest |w| are taken, and learned from anew by one and the same
ridge-regularised logistic regression: its accuracy on the last fifth says how good the choice is.

The learners: MEMMA; the soft margin (a linear programme, words alone); Winnow; L1-regularised logistic regression
(scikit-learn's liblinear solver), of whose values of C the one with least error in five folds is taken. eps, nu and eta
are set beforehand. DIR (or BIGCLF_DATA) holds `20news/` and `celegans/`. OUT gets `results.json`, `table.md` and
`features.png`.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from texts import NEWS, folder_of, news, table, write

import bigclf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import celegans

SETS = ("sci", "talk", "comp", "celegans")
NUMBERS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
SHOWN = 12
PRICES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
OF_A_CLASS, LONGEST = 3000, 3


class Set(NamedTuple):
    """rows [n, feature] of 0 and 1, labels -1 or 1, the name of a feature; train, test : numbers of rows."""

    rows: sparse.csr_matrix
    labels: np.ndarray
    named: Callable[[int], str]
    train: np.ndarray
    test: np.ndarray


def read(name: str, folder: str) -> Set:
    rows, labels, named = sites(folder) if name == "celegans" else words(name, folder)
    order = np.random.default_rng(0).permutation(labels.size)
    cut = 4 * labels.size // 5
    return Set(rows, labels, named, order[:cut], order[cut:])


def words(name: str, folder: str) -> tuple[sparse.csr_matrix, np.ndarray, Callable[[int], str]]:
    from sklearn.feature_extraction.text import CountVectorizer

    texts, labels = news(folder, *NEWS[name])
    counter = CountVectorizer(binary=True, token_pattern=r"\b\w\w+\b")
    rows, names = counter.fit_transform(texts).astype(np.float32).tocsr(), counter.get_feature_names_out()
    return rows, labels, lambda j: str(names[j])


def sites(folder: str) -> tuple[sparse.csr_matrix, np.ndarray, Callable[[int], str]]:
    path = os.path.join(folder, "celegans", "C_elegans_acc_100000.fasta.bz2")
    (every,) = celegans.records(path, 10**9)
    random = np.random.default_rng(0)
    chosen = np.concatenate([
        random.choice(np.flatnonzero(every.labels == sign), OF_A_CLASS, replace=False) for sign in (1, -1)
    ])  # fmt: skip
    indices, length = celegans.one_hot(every.digits[chosen], LONGEST), every.digits.shape[1]
    indptr = np.arange(chosen.size + 1) * indices.shape[1]
    shape = chosen.size, celegans.n_features(length, LONGEST)
    rows = sparse.csr_matrix((np.ones(indices.size, np.float32), indices.ravel(), indptr), shape=shape)
    return rows, every.labels[chosen], lambda j: kmer(j, length)


def kmer(feature: int, length: int) -> str:
    """Such as AG@59: the bases that begin at the 60th of the sequence."""
    k = 1
    while feature >= celegans.n_features(length, k):
        k += 1
    place, code = divmod(feature - celegans.n_features(length, k - 1), 4**k)
    return "".join("ACGT"[code // 4 ** (k - 1 - i) % 4] for i in range(k)) + f"@{place}"


# Learners: weights [feature]


def by_memma(rows: Any, labels: np.ndarray) -> np.ndarray:
    model = bigclf.fit(rows, labels, algo="memma", bias="free", eps=0.03, epochs=40, progress=False)
    return np.asarray(model.coef_[0])


def by_soft_margin(rows: Any, labels: np.ndarray) -> np.ndarray:
    return bigclf.soft_margin(rows, labels, nu=0.3).weights


def by_winnow(rows: Any, labels: np.ndarray) -> np.ndarray:
    model = bigclf.fit(rows, labels, algo="winnow", eta=0.1, epochs=20, progress=False)
    return np.asarray(model.coef_[0])


def by_l1(rows: Any, labels: np.ndarray) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    one = LogisticRegression(penalty="l1", solver="liblinear", random_state=0)
    found = GridSearchCV(one, {"C": PRICES}, cv=5).fit(rows, labels)
    return np.asarray(found.best_estimator_.coef_[0])


LEARNERS = {"MEMMA": by_memma, "soft margin": by_soft_margin, "Winnow": by_winnow, "L1 logistic": by_l1}


def accuracy(given: Set, features: np.ndarray) -> float:
    """In per cent, of these features alone, on the rows held out."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=2000).fit(given.rows[given.train][:, features], given.labels[given.train])
    return float(100 * model.score(given.rows[given.test][:, features], given.labels[given.test]))


def measure(name: str, folder: str) -> dict[str, Any]:
    given = read(name, folder)
    found: dict[str, Any] = {"all": accuracy(given, np.arange(given.rows.shape[1]))}
    for title, learner in LEARNERS.items():
        if name == "celegans" and title == "soft margin":
            continue  # a linear programme of 5.7 million entries
        weights = learner(given.rows[given.train], given.labels[given.train])
        order = np.argsort(-np.abs(weights), kind="stable")
        found[title] = {
            "features": int(np.count_nonzero(weights)),
            "accuracy": [accuracy(given, order[:m]) for m in NUMBERS],
            "names": [("+" if weights[j] > 0 else "-") + given.named(int(j)) for j in order[:SHOWN]],
        }
        print(name, title, found[title], flush=True)
    return found


def report(found: dict[str, dict[str, Any]]) -> str:
    parts = ["Accuracy in % on the rows held out, by the number of features; (not 0) of the learner's own weights"]
    lines = [
        [name, title, f"{told['features']:,}", *(f"{a:.1f}" for a in told["accuracy"]), f"{by['all']:.1f}"]
        for name, by in found.items() for title, told in by.items() if title != "all"
    ]  # fmt: skip
    parts.append(table(["", "chosen by", "not 0", *map(str, NUMBERS), "all"], lines))
    for name, by in found.items():
        parts.append("\n".join(f"- {name}, {title}: {', '.join(told['names'])}"
                               for title, told in by.items() if title != "all"))  # fmt: skip
    return "\n\n".join(parts)


def draw(found: dict[str, dict[str, Any]], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(found), figsize=(3.8 * len(found), 3.8), layout="constrained",
                                     squeeze=False)  # fmt: skip
    for axes, (name, by) in zip(panels[0], found.items(), strict=True):
        for colour, title in enumerate(LEARNERS):
            if title in by:
                axes.plot(NUMBERS, by[title]["accuracy"], "o-", ms=3, label=title, color=f"C{colour}")
        axes.axhline(by["all"], color="black", lw=0.8, ls="--", label="all features")
        axes.set(title=name, xscale="log", xlabel="features")
        axes.grid(True, color="#e6e6e6")
    panels[0][0].set(ylabel="accuracy in %")
    panels[0][0].legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", help="directory of the results")
    parser.add_argument("--data", help="folder of the data sets (default: $BIGCLF_DATA)")
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    given = parser.parse_args()
    warnings.simplefilter("ignore", FutureWarning)
    warnings.simplefilter("ignore", bigclf.errors.ConvergenceWarning)
    folder = folder_of(given.data)
    found = {name: measure(name, folder) for name in given.sets}
    write(given.out, found, report(found), lambda path: draw(found, path), "features.png")


if __name__ == "__main__":
    main()
