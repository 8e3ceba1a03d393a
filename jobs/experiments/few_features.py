"""The few features that carry a prediction: chosen by the infinity-norm family and by L1-regularised logistic
regression.

    python jobs/experiments/few_features.py OUT [--data DIR] [--sets sci talk comp celegans] [--splits 5]

20 Newsgroups, two groups against each other (words that occur, 1,800 messages), and acceptor splice sites of C. elegans
(which k-mer begins where, k = 1 .. 3): all 3,301 sequences with a site and as many without, drawn anew for every split.
A split learns from three fifths, chooses on one and is tested on the last.

Of each learner's weights the m features of largest |w| are taken (those that are 0 are none) and learned from by one
and the same ridge-regularised logistic regression. Every learner has a number that says how few features it is to make
do with: MEMMA eps, the soft margin (a linear programme, words alone) nu, Winnow eta, L1-regularised logistic regression
(scikit-learn's liblinear solver) C. For each m the value is taken whose m features do best on the rows to choose on;
these features are learned from anew, with those rows too, and their accuracy on the rows of the test is told, as mean
and standard deviation over the splits. DIR (or BIGCLF_DATA) holds `20news/` and `celegans/`. OUT gets `results.json`,
`table.md` and `features.png`.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from texts import NEWS, arguments, folder_of, news, table, write

import bigclf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import celegans

SETS = ("sci", "talk", "comp", "celegans")
NUMBERS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
SHOWN = 12
LONGEST = 3


class Set(NamedTuple):
    """rows [n, feature] of 0 and 1, labels -1 or 1, the name of a feature."""

    rows: sparse.csr_matrix
    labels: np.ndarray
    named: Callable[[int], str]


def read(name: str, folder: str) -> Callable[[int], Set]:
    """The rows of a split: of the sites others without one each time."""
    if name == "celegans":
        return sites(folder)
    found = words(name, folder)
    return lambda split: found


def words(name: str, folder: str) -> Set:
    from sklearn.feature_extraction.text import CountVectorizer

    texts, labels = news(folder, *NEWS[name])
    counter = CountVectorizer(binary=True, token_pattern=r"\b\w\w+\b")
    rows, names = counter.fit_transform(texts).astype(np.float32).tocsr(), counter.get_feature_names_out()
    return Set(rows, labels, lambda j: str(names[j]))


def sites(folder: str) -> Callable[[int], Set]:
    path = os.path.join(folder, "celegans", "C_elegans_acc_100000.fasta.bz2")
    (every,) = celegans.records(path, 10**9)
    there, length = np.flatnonzero(every.labels == 1), every.digits.shape[1]
    shape = 2 * there.size, celegans.n_features(length, LONGEST)

    def split(seed: int) -> Set:
        others = np.random.default_rng(seed).choice(np.flatnonzero(every.labels == -1), there.size, replace=False)
        chosen = np.concatenate([there, others])
        indices = celegans.one_hot(every.digits[chosen], LONGEST)
        indptr = np.arange(chosen.size + 1) * indices.shape[1]
        rows = sparse.csr_matrix((np.ones(indices.size, np.float32), indices.ravel(), indptr), shape=shape)
        return Set(rows, every.labels[chosen], lambda j: kmer(j, length))

    return split


def kmer(feature: int, length: int) -> str:
    """Such as AG@59: the bases that begin at the 60th of the sequence."""
    k = 1
    while feature >= celegans.n_features(length, k):
        k += 1
    place, code = divmod(feature - celegans.n_features(length, k - 1), 4**k)
    return "".join("ACGT"[code // 4 ** (k - 1 - i) % 4] for i in range(k)) + f"@{place}"


# Learners: weights [feature] for a value of their number


def by_memma(rows: Any, labels: np.ndarray, eps: float) -> np.ndarray:
    model = bigclf.fit(rows, labels, algo="memma", bias="free", eps=eps, epochs=40, progress=False)
    return np.asarray(model.coef_[0])


def by_soft_margin(rows: Any, labels: np.ndarray, nu: float) -> np.ndarray:
    return bigclf.soft_margin(rows, labels, nu=nu).weights


def by_winnow(rows: Any, labels: np.ndarray, eta: float) -> np.ndarray:
    model = bigclf.fit(rows, labels, algo="winnow", eta=eta, epochs=20, progress=False)
    return np.asarray(model.coef_[0])


def by_l1(rows: Any, labels: np.ndarray, C: float) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(l1_ratio=1, solver="liblinear", C=C, random_state=0).fit(rows, labels)
    return np.asarray(model.coef_[0])


LEARNERS: dict[str, tuple[Callable[..., np.ndarray], tuple[float, ...]]] = {
    "MEMMA": (by_memma, (0.01, 0.03, 0.1, 0.2, 0.4)),
    "soft margin": (by_soft_margin, (0.1, 0.2, 0.4, 0.6)),
    "Winnow": (by_winnow, (0.01, 0.1, 1.0)),
    "L1 logistic": (by_l1, (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)),
}


def accuracy(given: Set, features: np.ndarray, learned: np.ndarray, tested: np.ndarray) -> float:
    """In per cent, of these features alone, on the rows ``tested``."""
    from sklearn.linear_model import LogisticRegression

    rows = given.rows[:, features]
    model = LogisticRegression(max_iter=2000).fit(rows[learned], given.labels[learned])
    return float(100 * model.score(rows[tested], given.labels[tested]))


def fifths(given: Set, split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of the rows to learn from, to choose on and to test on."""
    order = np.random.default_rng(split).permutation(given.labels.size)
    return tuple(np.split(order, [3 * order.size // 5, 4 * order.size // 5]))  # type: ignore[return-value]


def of_a_split(given: Set, split: int, titles: list[str]) -> dict[str, Any]:
    """Of each learner, by the number of features: accuracy of the test, the value chosen; and the features' names."""
    learn, choose, test = fifths(given, split)
    both = np.concatenate([learn, choose])
    found: dict[str, Any] = {"all": accuracy(given, np.arange(given.rows.shape[1]), both, test)}
    for title in titles:
        learner, values = LEARNERS[title]
        orders = []
        for value in values:
            weights = learner(given.rows[learn], given.labels[learn], value)
            order = np.argsort(-np.abs(weights), kind="stable")[: max(1, np.count_nonzero(weights))]
            orders.append((order, np.sign(weights)))
        right = np.array([[accuracy(given, order[:m], learn, choose) for m in NUMBERS] for order, _ in orders])
        best = right.argmax(axis=0)
        order, signs = orders[best[NUMBERS.index(20)]]
        found[title] = {
            "values": [values[n] for n in best],
            "accuracy": [accuracy(given, orders[n][0][:m], both, test) for n, m in zip(best, NUMBERS, strict=True)],
            "names": [("+" if signs[j] > 0 else "-") + given.named(int(j)) for j in order[:SHOWN]],
        }
        print(split, title, found[title], flush=True)
    return found


def measure(name: str, folder: str, splits: int) -> dict[str, Any]:
    """Of each learner: accuracy and its standard deviation [number], the values chosen and the names of each split."""
    rows = read(name, folder)
    # sites have 4.7 million entries: too many for a linear programme
    titles = [title for title in LEARNERS if name != "celegans" or title != "soft margin"]
    each = [of_a_split(rows(split), split, titles) for split in range(splits)]
    found: dict[str, Any] = {"all": float(np.mean([one["all"] for one in each]))}
    for title in titles:
        right = np.array([one[title]["accuracy"] for one in each])
        found[title] = {
            "accuracy": right.mean(axis=0).tolist(),
            "deviation": right.std(axis=0, ddof=min(1, splits - 1)).tolist(),
            "values": [one[title]["values"] for one in each], "names": [one[title]["names"] for one in each],
        }  # fmt: skip
    return found


def report(found: dict[str, dict[str, Any]]) -> str:
    parts = ["Accuracy in % on the rows of the test by the number of features, mean and standard deviation"]
    lines = [
        [name, title, *(f"{a:.1f} ± {d:.1f}" for a, d in zip(told["accuracy"], told["deviation"], strict=True)),
         f"{by['all']:.1f}"]
        for name, by in found.items() for title, told in by.items() if title != "all"
    ]  # fmt: skip
    parts.append(table(["", "chosen by", *map(str, NUMBERS), "all"], lines))
    for name, by in found.items():
        parts.append("\n".join(f"- {name}, {title}: {', '.join(told['names'][0])}"
                               for title, told in by.items() if title != "all"))  # fmt: skip
    return "\n\n".join(parts)


def draw(found: dict[str, dict[str, Any]], path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.8 * len(found), 3.8), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False)
    for axes, (name, by) in zip(panels[0], found.items(), strict=True):
        for colour, title in enumerate(LEARNERS):
            if title in by:
                axes.errorbar(NUMBERS, by[title]["accuracy"], by[title]["deviation"], fmt="o-", ms=3, lw=1.2,
                              elinewidth=0.7, label=title, color=f"C{colour}")  # fmt: skip
        axes.axhline(by["all"], color="black", lw=0.8, ls="--", label="all features")
        axes.set(title=name, xscale="log", xlabel="features")
        axes.grid(True, color="#e6e6e6")
    panels[0][0].set(ylabel="accuracy in %")
    panels[0][0].legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--splits", type=int, default=5)
    given = parser.parse_args()
    warnings.simplefilter("ignore", FutureWarning)
    warnings.simplefilter("ignore", bigclf.errors.ConvergenceWarning)
    folder = folder_of(given.data)
    found = {name: measure(name, folder, given.splits) for name in given.sets}
    write(given.out, found, report(found), lambda path: draw(found, path), "features.png")


if __name__ == "__main__":
    main()
