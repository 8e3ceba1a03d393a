"""What the experiments on texts share: seven two-class problems, and learners in cross-validation on them.

Pairs of groups of 20 Newsgroups, and product reviews of four kinds (Dredze, Crammer, Pereira, ICML 2008, section 5).

The data sets are `20news/20news-bydate.tar.gz` and `multidomain/sorted_data_acl.tar.gz` below one folder. Rows are
binary: 1 for each word (of the reviews also for each pair of neighbouring words) that occurs, whatever its number.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import re
import sys
import tarfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

import bigclf

NEWS = {  # first the positive class
    "comp": ("comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"),
    "sci": ("sci.electronics", "sci.med"),
    "talk": ("talk.politics.guns", "talk.politics.mideast"),
}
REVIEWS = {"books": "books", "dvd": "dvd", "electronics": "electronics", "kitchen": "kitchen_&_housewares"}
TASKS = (*NEWS, *REVIEWS)
FOLDS, INNER_FOLDS, EPOCHS = 10, 3, 5
OF_A_GROUP = 900  # messages; the paper has 1800 to 1900 of two


class Task(NamedTuple):
    """One problem: rows [n, features], binary, and labels [n], -1 or 1."""

    name: str
    rows: sparse.csr_matrix
    labels: np.ndarray

    def __str__(self) -> str:
        n, features = self.rows.shape
        return f"{self.name}: {n:,} rows, {features:,} features, {self.rows.nnz:,} non-zeros"


def news(folder: str, positive: str, negative: str) -> tuple[list[str], np.ndarray]:
    """Subject and body of 900 messages of each of two groups, drawn from training and test part together."""
    texts: dict[str, list[tuple[str, str]]] = {positive: [], negative: []}
    with tarfile.open(os.path.join(folder, "20news", "20news-bydate.tar.gz")) as archive:
        for member in archive:
            group = member.name.split("/")[-2] if member.isfile() else None
            if group in texts:
                file = archive.extractfile(member)
                assert file is not None
                texts[group].append((member.name, subject_and_body(file.read().decode("latin-1"))))
    random = np.random.default_rng(0)
    chosen: list[str] = []
    for group in (positive, negative):
        every = [text for _, text in sorted(texts[group])]
        chosen += [every[i] for i in random.choice(len(every), OF_A_GROUP, replace=False)]
    return chosen, np.repeat([1, -1], OF_A_GROUP)


def subject_and_body(message: str) -> str:
    """A message without its headers but for the subject; the sender's address would give some classes away."""
    headers, _, body = message.partition("\n\n")
    found = re.search(r"^Subject:(.*)$", headers, re.MULTILINE | re.IGNORECASE)
    return (found.group(1) if found else "") + "\n" + body


def reviews(folder: str, kind: str) -> tuple[list[str], np.ndarray]:
    """The texts, without titles, of 1000 reviews that praise and 1000 that do not."""
    texts: list[str] = []
    labels: list[int] = []
    with tarfile.open(os.path.join(folder, "multidomain", "sorted_data_acl.tar.gz")) as archive:
        for label, part in ((1, "positive"), (-1, "negative")):
            file = archive.extractfile(f"sorted_data_acl/{kind}/{part}.review")
            assert file is not None
            found = re.findall(r"<review_text>(.*?)</review_text>", file.read().decode("latin-1"), re.DOTALL)
            texts += [html.unescape(text) for text in found]
            labels += [label] * len(found)
    return texts, np.array(labels)


def read(name: str, folder: str) -> Task:
    """One of the seven, from the folder of the data sets.

    Raises
    ------
    OSError : its archive is not there.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    if name in NEWS:
        texts, labels = news(folder, *NEWS[name])
        counter = CountVectorizer(binary=True, token_pattern=r"\b\w\w+\b")
    else:
        texts, labels = reviews(folder, REVIEWS[name])
        counter = CountVectorizer(binary=True, token_pattern=r"\w+", ngram_range=(1, 2))
    return Task(name, counter.fit_transform(texts).astype(np.float64).tocsr(), labels)


class Learner(NamedTuple):
    """A column of a table: a method of bigclf (or scikit-learn's ``SGDClassifier``) with its parameters.

    What is in ``grid`` is chosen by three folds of the rows learned from. Online methods make five passes.
    """

    title: str
    algo: str
    settings: dict[str, Any] = {}
    grid: dict[str, Sequence[Any]] = {}

    def __str__(self) -> str:
        """The column and its parameters in words, for below the table."""
        told = [f"{k} = {v:.4g}" if isinstance(v, float) else f"{k} = {v}" for k, v in self.settings.items()]
        told += [f"{k} of {', '.join(map(str, values))}" for k, values in self.grid.items()]
        return f"{self.title}: `{self.algo}`" + (f", {'; '.join(told)}" if told else "")

    def train(self, rows: Any, labels: np.ndarray, seed: int) -> tuple[Any, float | None]:
        """A model, and the error that chose its parameters (None: there was nothing to choose, or not by error)."""
        if self.algo == "SGDClassifier":
            return self._scikit(rows, labels, seed)
        epochs = None if self.algo == "dcd" else EPOCHS
        common = dict(algo=self.algo, bias=None, epochs=epochs, seed=seed, workers=bigclf.Workers(threads=1),
                      progress=False, **self.settings)  # fmt: skip
        if not self.grid:
            return bigclf.fit(rows, labels, **common), None
        found = bigclf.sweep(rows, labels, grid=self.grid, folds=INNER_FOLDS, **common)
        return found.best_model, min(p["mean"] for p in found.table) if found.measure == "error" else None

    def _scikit(self, rows: Any, labels: np.ndarray, seed: int) -> tuple[Any, None]:
        from sklearn.linear_model import SGDClassifier
        from sklearn.model_selection import GridSearchCV

        one = SGDClassifier(fit_intercept=False, random_state=seed, **self.settings)
        return GridSearchCV(one, dict(self.grid), cv=INNER_FOLDS).fit(rows, labels), None


def tenths(labels: np.ndarray, shuffle: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Ten pairs of rows to learn from, in random order, and to measure on; each keeps the shares of the classes."""
    from sklearn.model_selection import StratifiedKFold

    pairs = StratifiedKFold(FOLDS, shuffle=True, random_state=shuffle).split(labels, labels)
    return [(np.random.default_rng(shuffle).permutation(train), test) for train, test in pairs]


def flipped(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """A copy of the labels with this share of them turned round."""
    noisy = labels.copy()
    noisy[np.random.default_rng(seed).permutation(labels.size)[: round(share * labels.size)]] *= -1
    return noisy


def fold(task: Task, learners: Sequence[Learner], shuffle: int, number: int, noise: float = 0.0) -> np.ndarray:
    """Wrong answers [learner + 1, row of the fold]; the last is the learner with the least error inside the fold."""
    train, test = tenths(task.labels, shuffle)[number]
    rows, labels = task.rows[train], flipped(task.labels[train], noise, 10 * shuffle + number)
    wrong, inside = [], []
    for learner in learners:
        model, error = learner.train(rows, labels, shuffle)
        wrong.append(model.predict(task.rows[test]) != task.labels[test])
        inside.append(np.inf if error is None else error)
    return np.array([*wrong, wrong[int(np.argmin(inside))]])


def cross_validate(task: Task, learners: Sequence[Learner], shuffles: int, noise: float = 0.0) -> np.ndarray:
    """Wrong answers bool [shuffle, learner + 1, row] of ten-fold cross-validation, two folds at a time."""
    from joblib import Parallel, delayed

    jobs = [(shuffle, number) for shuffle in range(shuffles) for number in range(FOLDS)]
    found = Parallel(n_jobs=2)(delayed(fold)(task, learners, *job, noise) for job in jobs)
    wrong = np.zeros((shuffles, len(learners) + 1, task.labels.size), bool)
    for (shuffle, number), part in zip(jobs, found, strict=True):
        wrong[shuffle][:, tenths(task.labels, shuffle)[number][1]] = part
    return wrong


def errors(wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over the shuffles, [learner], of the error in per cent."""
    percent = 100 * wrong.mean(axis=2)
    return percent.mean(axis=0), percent.std(axis=0, ddof=1) if len(percent) > 1 else np.zeros(percent.shape[1])


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *lines))


class Claim(NamedTuple):
    """Something that is to hold, with the figures that decide it."""

    text: str
    held: bool
    figures: str

    def __str__(self) -> str:
        return f"- {'held' if self.held else 'NOT HELD'}: {self.text} ({self.figures})"


def arguments(doc: str) -> argparse.ArgumentParser:
    """A parser for where results go and where the data sets lie; ``doc`` is the program's, told by its first line."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("out", help="directory of the results")
    parser.add_argument("--data", help="folder of the data sets (default: $BIGCLF_DATA)")
    return parser


def folder_of(given: str | None) -> str:
    """The folder of the data sets; the program ends where none is named."""
    return given or os.environ.get("BIGCLF_DATA") or sys.exit("--data or BIGCLF_DATA must name the folder of data sets")


def write(out: str, found: dict[str, Any], text: str, draw: Callable[[str], None], name: str) -> None:
    """``results.json``, ``table.md`` and a picture (with matplotlib) into the directory ``out``; the text to stdout."""
    print(text)
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "results.json"), "w") as file:
        json.dump(found, file, indent=1)
    with open(os.path.join(out, "table.md"), "w") as file:
        file.write(text + "\n")
    try:
        draw(os.path.join(out, name))
    except ModuleNotFoundError as error:
        print(f"no picture: {error}; pip install 'bigclf[plots]' brings it", file=sys.stderr)
