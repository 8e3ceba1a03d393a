"""What ``algo="auto"`` costs beside the best of the certified solvers, on sets of different shape.

    BIGCLF_DATA=/folder/of/sets python jobs/auto_choice.py OUT [--sets a9a,w8a] [--losses hinge,logistic] [--rounds 3]

Each set is read once and kept in OUT. Each solver learns it in memory, to a relative gap of 1e-3 for the hinge and 1e-6
for the smooth losses, C = 1, with a bias that is a feature (``--bias none`` : without). Rounds are interleaved, the
first one is not counted (it compiles), and medians are of user and system time of this process. A solver that is not
there after ``--patience`` times twice the seconds of the best one so far, or 10, is measured no more. Sets that are
marked with * are held out: no constant of the rule was fitted to them.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import math
import os
import statistics
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer, TfidfVectorizer

import bigclf
from bigclf.request.auto import predicted
from bigclf.request.door import open_rows
from bigclf.request.prepare import asked_for
from bigclf.request.request import asked as request_of
from bigclf.request.request import of_one_method

SOLVERS = ("newton_dense", "newton", "dcd")
TOLS = {"hinge": 1e-3, "squared_hinge": 1e-6, "logistic": 1e-6}
HELD_OUT = ("newsgroups", "reviews", "intents", "words", "splice")

Rows = tuple[Any, np.ndarray]


def folder(*names: str) -> str:
    return os.path.join(os.environ["BIGCLF_DATA"], *names)


def svmlight(name: str, path: str, positive: float = 1) -> Rows:
    x, y = load_svmlight_file(folder(name, path), dtype=np.float32)
    return x, np.where(y == positive, 1, -1)


def one_hot(frame: pd.DataFrame, words: list[Any], numbers: list[Any]) -> Any:
    """Words as a column each, numbers standardised."""
    parts = []
    for name in words:
        codes = pd.factorize(frame[name].astype(str))[0]
        parts.append(sp.csr_matrix((np.ones(codes.size, np.float32), (np.arange(codes.size), codes))))
    table = frame[numbers].fillna(0).to_numpy(np.float64)
    spread = table.std(axis=0)
    parts.append(sp.csr_matrix(((table - table.mean(axis=0)) / np.where(spread > 0, spread, 1)).astype(np.float32)))
    return sp.hstack(parts).tocsr()


def adult() -> Rows:
    frame = pd.read_csv(folder("adult", "adult.data.gz"), header=None, skipinitialspace=True)
    return one_hot(frame, [1, 3, 5, 6, 7, 8, 9, 13], [0, 2, 4, 10, 11, 12]), np.where(frame[14] == ">50K", 1, -1)


def covtype() -> Rows:
    frame = pd.read_csv(folder("covtype20k", "covtype.20k.data.gz"), header=None)
    table = frame.iloc[:, :-1].to_numpy(np.float64)
    spread = table.std(axis=0)
    scaled = (table - table.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return scaled.astype(np.float32), np.where(frame.iloc[:, -1] == 2, 1, -1)


def hflights() -> Rows:
    frame = pd.read_csv(folder("hflights", "hflights.csv.gz"))
    frame = frame[frame.ArrDelay.notna()].reset_index(drop=True)
    frame["Hour"] = frame.DepTime.fillna(0) // 100
    words = ["Month", "DayofMonth", "DayOfWeek", "UniqueCarrier", "Origin", "Dest", "Hour"]
    return one_hot(frame, words, ["Distance", "AirTime", "TaxiOut"]), np.where(frame.ArrDelay > 15, 1, -1)


def kdd99() -> Rows:
    frame = pd.read_csv(folder("kdd99", "kddcup.data_10_percent.gz"), header=None)
    numbers = [k for k in range(41) if k not in (1, 2, 3)]
    return one_hot(frame, [1, 2, 3], numbers), np.where(frame[41] == "normal.", -1, 1)


def news20() -> Rows:
    x, y = load_svmlight_file(folder("news20", "news20.bz2"), dtype=np.float32)
    lengths = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel())
    return sp.diags((1 / np.maximum(lengths, 1e-12)).astype(np.float32)) @ x, np.where(y <= 10, 1, -1)


def rcv1() -> Rows:
    labels, rows = [], []
    for name in ("rcv1_small.dat.gz", "rcv1_small_test.data.gz"):
        with gzip.open(folder("rcv1_vw", name), "rt") as file:
            for line in file:
                label, _, features = line.partition("|")
                entries = (word.partition(":") for word in features.split()[1 if features[:1] not in " " else 0 :])
                rows.append([(word, float(value or 1)) for word, _, value in entries])
                labels.append(1 if float(label.split()[0]) > 0 else -1)
    return FeatureHasher(2**18, input_type="pair", dtype=np.float32).transform(rows).tocsr(), np.array(labels)


def noisy_table() -> Rows:
    random = np.random.default_rng(7)
    x = random.standard_normal((200_000, 28)).astype(np.float32)
    margins = x @ random.standard_normal(28) / 28**0.5 + 1.5 * random.standard_normal(x.shape[0])
    return x, np.where(margins > 0, 1, -1)


def one_hot_rows(n: int, fields: int, each: int, share: float, seed: int) -> Rows:
    """``fields`` ones a row, a part ``share`` of them positive."""
    random = np.random.default_rng(seed)
    columns = (each * random.random((n, fields)) ** 2).astype(np.int64) + each * np.arange(fields)
    margins = random.standard_normal(fields * each)[columns].sum(axis=1) / fields**0.5 + random.standard_normal(n)
    x = sp.csr_matrix((np.ones(n * fields, np.float32), columns.ravel(), np.arange(0, n * fields + 1, fields)))
    return x, np.where(margins > np.quantile(margins, 1 - share), 1, -1)


def newsgroups() -> Rows:
    """Texts about computers and others."""
    texts, labels = [], []
    with tarfile.open(folder("20news", "20news-bydate.tar.gz")) as tar:
        for member in tar:
            if member.isfile() and "bydate-train" in member.name and (file := tar.extractfile(member)):
                texts.append(file.read().decode("latin-1"))
                labels.append(1 if "/comp." in member.name else -1)
    return TfidfVectorizer(sublinear_tf=True, dtype=np.float32).fit_transform(texts).tocsr(), np.array(labels)


def reviews() -> Rows:
    """Good and bad ones of four domains: words and pairs of words with their numbers."""
    rows, labels = [], []
    with tarfile.open(folder("multidomain", "sorted_data_acl.tar.gz")) as tar:
        for member in tar:
            named = member.isfile() and member.name.endswith(("negative.review", "positive.review"))
            if named and (file := tar.extractfile(member)):
                bad = "negative" in member.name
                for text in file.read().decode("latin-1").split("<review>")[1:]:
                    words = text.partition("<review_text>")[2].partition("</review_text>")[0].lower().split()
                    rows.append(Counter(words) + Counter(map(" ".join, zip(words, words[1:], strict=False))))
                    labels.append(-1 if bad else 1)
    x = FeatureHasher(2**20, alternate_sign=False, dtype=np.float32).transform(rows)
    return TfidfTransformer(sublinear_tf=True).fit_transform(x).astype(np.float32).tocsr(), np.array(labels)


def intents() -> Rows:
    """Short questions, one intent of 150 against the rest."""
    with gzip.open(folder("clinc150", "data_full.json.gz"), "rt") as file:
        asked = json.load(file)["train"]
    x = TfidfVectorizer(ngram_range=(1, 2), dtype=np.float32).fit_transform([text for text, _ in asked])
    return x.tocsr(), np.array([1 if intent == "transfer" else -1 for _, intent in asked])


def words() -> Rows:
    """Words by their letters, pairs and triples, ones all; French against other languages."""
    found: list[str] = []
    labels: list[int] = []
    with tarfile.open(folder("wikipron", "wikipron_tsv.tar.gz")) as tar:
        for member in sorted((m for m in tar if m.name.endswith("_broad.tsv")), key=lambda m: m.name):
            lines = tar.extractfile(member).read().decode().splitlines()[::10]  # type: ignore[union-attr]
            found += [line.partition("\t")[0] for line in lines]
            labels += [1 if "/fra_" in member.name else -1] * len(lines)
    grams = HashingVectorizer(analyzer="char_wb", ngram_range=(1, 3), n_features=2**18, binary=True, norm=None,
                              alternate_sign=False, dtype=np.float32)  # fmt: skip
    return grams.transform(found).tocsr(), np.array(labels)


def splice() -> Rows:
    """Places of pieces of up to three bases in a sequence, 1,191 a row."""
    rows, labels = [], []
    with bz2.open(folder("celegans", "C_elegans_acc_100000.fasta.bz2"), "rt") as file:
        for record in file.read(12_000_000).split(">")[1:20_001]:
            header, _, bases = record.partition("\n")
            digits = np.array(["ACGT".index(base) for base in bases.upper().replace("\n", "")])
            code, kmers, first = np.zeros_like(digits), [], 0
            for k in (1, 2, 3):
                code = 4 * code[: digits.size - k + 1] + digits[k - 1 :]
                kmers.append(first + 4**k * np.arange(code.size) + code)
                first += 4**k * 398
            rows.append(np.concatenate(kmers))
            labels.append(1 if int(header.partition("label=")[2]) > 0 else -1)
    starts = np.cumsum([0, *(row.size for row in rows)])
    values = np.concatenate([np.full(row.size, row.size**-0.5, np.float32) for row in rows])
    return sp.csr_matrix((values, np.concatenate(rows), starts)), np.array(labels)


SETS: dict[str, Callable[[], Rows]] = {
    "a9a": lambda: svmlight("a9a", "a9a.gz"),
    "w8a": lambda: svmlight("w8a", "w8a.gz"),
    "adult": adult,
    "mushrooms": lambda: svmlight("mushrooms", "mushrooms.gz"),
    "usps": lambda: svmlight("usps", "usps.gz", 2),
    "covtype": covtype,
    "hflights": hflights,
    "kdd99": kdd99,
    "news20": news20,
    "rcv1": rcv1,
    "noisy_table": noisy_table,
    "rare": lambda: one_hot_rows(100_000, 12, 25, 0.02, 0),
    "sparse_table": lambda: one_hot_rows(60_000, 20, 30, 0.15, 1),
    "newsgroups": newsgroups,
    "reviews": reviews,
    "intents": intents,
    "words": words,
    "splice": splice,
}


def rows_of(name: str, out: str) -> Rows:
    """The set, from OUT where it was read before."""
    path = os.path.join(out, f"{name}.npz")
    if os.path.exists(path):
        with np.load(path) as file:
            x = file["dense"] if "dense" in file else sp.csr_matrix((file["data"], file["indices"], file["indptr"]),
                                                                     shape=tuple(file["shape"]))  # fmt: skip
            return x, file["y"]
    x, y = SETS[name]()
    if sp.issparse(x):
        x = x.astype(np.float32)
        x.sum_duplicates()
        np.savez(path, data=x.data, indices=x.indices, indptr=x.indptr, shape=np.array(x.shape), y=y)
    else:
        np.savez(path, dense=x, y=y)
    return x, y


def seconds(x: Any, y: np.ndarray, algo: str, loss: str, bias: str, limit: float) -> tuple[float, bool, str]:
    """Processor seconds of a fit, whether it got there, and what auto said."""
    before = time.process_time()
    model = bigclf.fit(x, y, algo=algo, loss=loss, bias=bias, tol=TOLS[loss], memory="8GB",
                       max_seconds=limit, progress=False)  # fmt: skip
    taken, result = time.process_time() - before, model.result_
    return taken, bool(result.converged), str(result.chosen)


def forecast(x: Any, y: np.ndarray, loss: str, bias: str) -> dict[str, Any]:
    given = dict(algo="auto", loss=loss, bias=bias, tol=TOLS[loss], memory="8GB")
    with open_rows(of_one_method(request_of("fit", x, y, given))) as (found, request):
        asked = asked_for(request, found.counts())
    return {"asked": asked._asdict(), "costs": predicted(asked, loss)}


def measured(name: str, loss: str, bias: str, rows: Rows, rounds: int, patience: float) -> dict[str, Any]:
    x, y = rows
    least, limit = 60.0, dict.fromkeys((*SOLVERS, "auto"), 60.0)
    taken: dict[str, list[float]] = {algo: [] for algo in limit}
    reached, chosen = dict.fromkeys(limit, True), ""
    for k in range(rounds + 1):
        for algo in limit:
            if algo == "newton" and loss == "hinge" or not reached[algo]:
                continue
            if algo == "newton_dense" and x.shape[1] > 4000:
                continue
            most = 60.0 if algo == "auto" else max(10.0, 2 * patience * least)  # by the clock, which others slow down
            cpu, there, said = seconds(x, y, algo, loss, bias, most)
            reached[algo] = there
            chosen = said if algo == "auto" else chosen
            if k or not there:
                taken[algo].append(cpu)
        done = [statistics.median(each) for algo, each in taken.items() if each and reached[algo] and algo != "auto"]
        least = min(done, default=60.0)
    medians = {algo: statistics.median(each) for algo, each in taken.items() if each}
    best = min((cost for algo, cost in medians.items() if algo != "auto" and reached[algo]), default=math.nan)
    return {"set": name, "loss": loss, "medians": medians, "reached": reached, "ratio": medians["auto"] / best,
            "chosen": chosen, "bias": bias, **forecast(x, y, loss, bias)}  # fmt: skip


def line(found: dict[str, Any]) -> str:
    asked, star = found["asked"], "*" if found["set"] in HELD_OUT else ""
    cells = [f"{found['set']}{star}", found["loss"], f"{asked['n_rows']:,} x {asked['n_features']:,}"]
    for algo in (*SOLVERS, "auto"):
        cost = found["medians"].get(algo)
        more = "" if found["reached"][algo] else "not reached, "
        guess = found["costs"].get(algo)
        cells.append("" if cost is None else f"{more}{cost:.3f}" + (f" ({guess:.3f})" if guess is not None else ""))
    return " | ".join(["", *cells, f"{found['ratio']:.2f}", ""]).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--losses", default=",".join(TOLS))
    parser.add_argument("--bias", choices=("feature", "none"), default="feature")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=4.0)
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    print("processor seconds, predicted ones in brackets")
    print(f"| set | loss | shape | {' | '.join(SOLVERS)} | auto | auto / best |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with open(os.path.join(options.out, "measured.jsonl"), "a") as file:
        for name in options.sets.split(","):
            rows = rows_of(name, options.out)
            for loss in options.losses.split(","):
                found = measured(name, loss, options.bias, rows, options.rounds, options.patience)
                print(line(found), flush=True)
                file.write(json.dumps(found) + "\n")
                file.flush()


if __name__ == "__main__":
    sys.exit(main())
