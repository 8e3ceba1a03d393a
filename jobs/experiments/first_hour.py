"""The first hour with data of one's own: one command from each raw file to a trained, measured model.

    python jobs/experiments/first_hour.py [--data DIR] [--sets adult,sms_spam] [--memory 1GB] [--choose]

Prints the command of each set, what came of it, and beside it the best of scikit-learn's linear pipelines on the same
columns and the same rows: numbers standardised and cut into as many quantile bins, categories one-hot, text as tf-idf
of the same n-grams; then LinearSVC and LogisticRegression (SGDClassifier where those do not end) with several C, the
best of them by the test rows themselves (which favours the peer). Sets without test rows of their own hold out a fifth,
chosen by a hash. DIR (or BIGCLF_DATA) holds the folders of the sets. Figures are AUC for two classes, else accuracy.

Our own parameters are the defaults, or were chosen by ``--choose``, which looks at no test row: it learns with several
C, three times each without a third of the training rows, and prints how many of those were wrong.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np

import bigclf
from bigclf.conversion.tables import from_columns, reading
from bigclf.conversion.tables.from_columns import HeldOut
from bigclf.features.spec import Categorical, Numeric, Spec, Text, parse
from bigclf.model.raw_input import converted, sparse_text

HERE = os.path.dirname(os.path.abspath(__file__))
SPECS = os.path.join(HERE, "first_hour")
HELD_OUT = 0.2
CHOICES = (0.03, 0.1, 0.3, 1.0, 3.0)
ALPHA = 1e-5  # of the peer that goes through the rows in steps


class Case(NamedTuple):
    """A set: its raw file, that of its test rows (None: a fifth is held out), the options beside, what is tried of the
    peer's C, and whether rows and classes are so many that the peer goes through them in steps of a row."""

    source: str
    test: str | None
    options: str
    tried: tuple[float, ...] = (0.1, 1.0)
    stepwise: bool = False


NEWS = "20news/20news-bydate.tar.gz#data/20ng/20news-bydate-"
TEXT_C = (0.3, 1.0, 3.0)
CASES = {
    "adult": Case("adult/adult.data.gz", "adult/adult.test.gz", "--spec {specs}/adult.yaml --loss logistic"),
    "kdd99": Case("kdd99/kddcup.data_10_percent.gz", None,
                  "--spec {specs}/kdd99.yaml --algo adagrad --loss hinge --epochs 3", (), stepwise=True),
    "hflights": Case("hflights/hflights.csv.gz", None, "--spec {specs}/hflights.yaml --loss logistic"),
    "covtype20k": Case("covtype20k/covtype.20k.data.gz", None, "--spec {specs}/covtype20k.yaml --loss squared_hinge"),
    "sms_spam": Case("sms_spam/SMSSpamCollection.gz", None, "--format text --loss squared_hinge", TEXT_C),
    "20news": Case(NEWS + "train", NEWS + "test", "--format text --encoding latin-1 --loss squared_hinge", TEXT_C),
    "clinc150": Case("clinc150/data_full.json.gz#/train", "clinc150/data_full.json.gz#/test",
                     "--format jsonl --label 1 --text 0 --loss squared_hinge", TEXT_C),
    "multidomain": Case("multidomain/sorted_data_acl.tar.gz", None,
                        "--spec {specs}/multidomain.yaml --loss squared_hinge", TEXT_C),
    "rcv1_vw": Case("rcv1_vw/rcv1_small.dat.gz", "rcv1_vw/rcv1_small_test.data.gz", "--format vw", TEXT_C),
}  # fmt: skip


# Ours


def command(case: Case, folder: str, out: str, memory: str) -> list[str]:
    """The one command."""
    test = ["--evaluate", os.path.join(folder, case.test)] if case.test else ["--holdout", str(HELD_OUT)]
    options = [word.format(specs=SPECS) for word in case.options.split()]
    words = ["bigclf", "fit", os.path.join(folder, case.source), *options, *test]
    return [*words, "--memory", memory, "-o", out, "--json"]


def ours(words: list[str]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 4):
        raise SystemExit(f"{shlex.join(words)} ended with {done.returncode}")
    return json.loads(done.stdout)["evaluation"]


def figure(found: dict[str, Any]) -> float:
    """AUC of two classes, else accuracy."""
    return float(found["accuracy"] if found.get("auc") is None else found["auc"])


def choose(case: Case, folder: str, memory: str) -> str:
    """What three folds of the training rows say of several C."""
    source, said = os.path.join(folder, case.source), said_of(case)
    if "vw" in case.options:
        rows = sparse_text(source, "vw", memory=memory)
    else:
        rows = converted(source, spec_of(case), memory=memory, part=None if case.test else HeldOut(HELD_OUT, False))
    options = {name: said[name] for name in ("algo", "loss") if name in said}
    options |= {"epochs": int(said["epochs"])} if "epochs" in said else {}
    found = bigclf.sweep(rows, grid={"C": CHOICES}, folds=3, refit=False, memory=memory, **options)
    return ", ".join(f"C={row['params']['C']:g}: {100 * row['mean']:.2f} %" for row in found.table)


# The peer


def rows_of(source: str, spec: Spec) -> tuple[Any, np.ndarray]:
    """A frame of the rows, with their labels as text in ``label``, and which of them are held out."""
    import pandas as pd

    raw = from_columns.prepare(source, spec, 2**30)
    frames, held = [], []
    for one in raw.sources:
        for task in reading.tasks_of(raw.reader, one, 1):
            seen: dict[int, int] = {}
            for piece, batch in reading.batches(raw.reader, task):
                first = (one.number << 44) + (piece << 24) + seen.get(piece, 0)
                seen[piece] = seen.get(piece, 0) + batch.n_rows
                frames.append(pd.DataFrame({name: column.to_pylist() for name, column in batch.columns.items()}))
                ordinals = np.arange(first, first + batch.n_rows, dtype=np.uint64)
                held.append(HeldOut(HELD_OUT, True).has(ordinals))
    frame, chosen = pd.concat(frames, ignore_index=True), np.concatenate(held)
    for name in frame.columns:
        if frame[name].dtype == object or str(frame[name].dtype).startswith("str"):
            frame[name] = frame[name].str.strip()
    assert raw.spec.label is not None
    label = frame[raw.spec.label.column]
    if raw.spec.label.above is not None:
        numbers = pd.to_numeric(label, errors="coerce")
        there = numbers.notna().to_numpy()
        frame, chosen = frame[there].reset_index(drop=True), chosen[there]
        frame["label"] = (numbers[there] > raw.spec.label.above).to_numpy().astype(int).astype(str)
    else:
        frame["label"] = label.str.rstrip(raw.spec.label.strip) if raw.spec.label.strip else label
    return frame, chosen


def transformer(spec: Spec) -> Any:
    """scikit-learn's way to the same features."""
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, OneHotEncoder, StandardScaler

    parts = list[Any]()
    for number, term in enumerate(spec.terms):
        if isinstance(term, Text):
            parts.append((str(number), TfidfVectorizer(ngram_range=term.ngrams, sublinear_tf=True), term.column))
        elif isinstance(term, Categorical) and len(term.columns) == 1:
            parts.append((str(number), OneHotEncoder(handle_unknown="ignore"), [term.name]))
        elif isinstance(term, Categorical):
            joined = FunctionTransformer(lambda x: x.astype(str).agg("&".join, axis=1).to_frame())
            crossed = make_pipeline(joined, OneHotEncoder(handle_unknown="ignore"))
            parts.append((str(number), crossed, list(term.columns)))
        elif isinstance(term, Numeric):
            steps: list[Any] = [FunctionTransformer(to_numbers), SimpleImputer(add_indicator=True)]
            steps += [FunctionTransformer(np.log1p)] if term.scale == "log" else []
            steps += [StandardScaler()] if term.scale in ("standard", "log") else []
            if term.scale == "bins":
                cut = KBinsDiscretizer(term.bins, quantile_method="averaged_inverted_cdf", subsample=None)
                steps = [FunctionTransformer(to_numbers), SimpleImputer(), cut]
            parts.append((str(number), make_pipeline(*steps), [term.column]))
    return ColumnTransformer(parts)


def to_numbers(frame: Any) -> np.ndarray:
    import pandas as pd

    return np.asarray(frame.apply(pd.to_numeric, errors="coerce"), np.float64)


def matrices_of_vw(case: Case, folder: str) -> tuple[Any, Any, Any, Any]:
    """Rows and labels to learn from and to test on: text whose features are numbers is svmlight's but for the bar."""
    from sklearn.datasets import load_svmlight_files

    texts = []
    for name in (case.source, case.test or ""):
        with gzip.open(os.path.join(folder, name)) as file:
            texts.append(io.BytesIO(re.sub(rb" [|]\w* ", b" ", file.read())))
    x, y, x_test, y_test = load_svmlight_files(texts, zero_based=True)
    for rows in (x, x_test):  # LinearSVC takes no others
        rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
    return x, x_test, y.astype(str), y_test.astype(str)


def matrices(case: Case, folder: str) -> tuple[Any, Any, Any, Any]:
    """Rows to learn from and to test on as scikit-learn makes them of the raw columns, and the labels of both."""
    if "vw" in case.options:
        return matrices_of_vw(case, folder)
    spec = spec_of(case)
    train, held = rows_of(os.path.join(folder, case.source), spec)
    if case.test:
        test, _ = rows_of(os.path.join(folder, case.test), spec)
    else:
        train, test = train[~held], train[held]
    made = transformer(spec)
    x, x_test = made.fit_transform(train), made.transform(test)
    return x, x_test, train["label"].to_numpy(str), test["label"].to_numpy(str)


def best_of_peer(case: Case, folder: str) -> tuple[float, str]:
    """The best figure of scikit-learn's, and whose it is."""
    from sklearn.linear_model import LogisticRegression, SGDClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.svm import LinearSVC

    x, x_test, y, y_test = matrices(case, folder)
    few, found = len(set(y)) <= 2, list[tuple[float, str]]()
    learners: list[Any] = [LinearSVC(C=c, dual=bool(x.shape[1] > x.shape[0]), random_state=0) for c in case.tried]
    learners += [LogisticRegression(C=c, max_iter=500) for c in case.tried] if few else []
    if case.stepwise:
        learners += [SGDClassifier(loss, alpha=ALPHA, random_state=0) for loss in ("hinge", "log_loss")]
    for learner in learners:
        learner.fit(x, y)
        scored = learner.score(x_test, y_test)
        if few:
            scored = roc_auc_score(y_test == max(y), learner.decision_function(x_test))
        told = f"{learner.loss} alpha={learner.alpha:g}" if case.stepwise else f"C={learner.C:g}"
        found.append((float(scored), f"{type(learner).__name__} {told}"))
    return max(found)


def said_of(case: Case) -> dict[str, str]:
    """The options of the command by name."""
    words = case.options.format(specs=SPECS).split()
    return {word[2:]: value for word, value in zip(words, words[1:], strict=False) if word.startswith("--")}


def spec_of(case: Case) -> Spec:
    """What the options of the command stand for."""
    from bigclf.cli.shared.columns import OPTIONS, features_of

    said = said_of(case)
    form = said.pop("format", None)
    spec = parse(features_of({name: said[name] for name in OPTIONS if name in said}, [case.source], form))
    return spec if spec.terms else parse({**spec.as_json(), "features": [{"text": "text"}]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("BIGCLF_DATA"))
    parser.add_argument("--sets", default=",".join(CASES))
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--choose", action="store_true")
    asked = parser.parse_args()
    if not asked.data:
        parser.error("name the folder of the sets: --data DIR, or BIGCLF_DATA")
    lines = []
    for name in asked.sets.split(","):
        case = CASES[name]
        if asked.choose:
            print(f"{name}: wrong without a third of the rows: {choose(case, asked.data, asked.memory)}", flush=True)
            continue
        with tempfile.TemporaryDirectory() as scratch:
            words = command(case, asked.data, os.path.join(scratch, "model.bigclf"), asked.memory)
            print("+", shlex.join(words).replace(asked.data, "$BIGCLF_DATA").replace(scratch + "/", ""), flush=True)
            began = time.monotonic()
            mine = ours(words)
            seconds = time.monotonic() - began
        theirs, whose = best_of_peer(case, asked.data)
        kind = "accuracy" if mine.get("auc") is None else "AUC"
        own, other = 100 * figure(mine), 100 * theirs
        figures = f"{own:7.2f} {other:9.2f} {own - other:+8.2f}"
        lines.append(f"{name:12} {kind:8} {figures}   {mine['n']:>7,} {seconds:7.1f}   {whose}")
        print(lines[-1], flush=True)
    if asked.choose:
        return
    print(f"\n{'set':12} {'figure':8} {'bigclf':>7} {'sklearn':>9} {'points':>8}   {'rows':>7} {'seconds':>7}   best")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
