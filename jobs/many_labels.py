"""Rows with several labels each, to measure multi-label training on.

    python jobs/many_labels.py news 20news-bydate.tar.gz OUT    # text: 72 labels, 11,314 and 7,532 rows
    python jobs/many_labels.py made OUT                         # generated: 4,000 labels, 15,000 and 5,000 rows

Both write OUT/train.parquet and OUT/test.parquet: ``label`` (a list of texts or of integers), ``indices``, ``values``.

news: a document of the 20 newsgroups has its group as a label (``rec.sport.hockey``), the parts of the hierarchy above
it (``rec.sport``, ``rec``), and those of 40 words that it holds: the words, in 2 to 10 % of the training documents,
that tell the groups apart best (by chi squared). A label that is a word is no feature: the rest of the text has to tell
it. The features are tf-idf, unit rows, of the words in at least two training documents.

made: label j is drawn with a probability like 1 / (j + 10)^0.9, 1 to 9 labels a row, 5 in the mean. Each label has 12
words of its own among 50,000, and a row has 4 of each of its labels' words beside 60 drawn by a Zipf law; unit rows.
"""

import collections
import pathlib
import re
import sys
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WORDS, LABELS, FEATURES = 40, 4000, 50_000


def write(path, labels, X):
    """Labels as lists [n], rows as CSR."""
    X.sort_indices()
    columns = {"label": pa.array(labels), "indices": lists(X.indptr, X.indices.astype(np.int32)),
               "values": lists(X.indptr, X.data.astype(np.float32))}  # fmt: skip
    pq.write_table(pa.table(columns), path, row_group_size=2000)


def lists(indptr, items):
    return pa.ListArray.from_arrays(pa.array(indptr.astype(np.int32)), pa.array(items))


def news(archive, out):
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer
    from sklearn.feature_selection import chi2

    texts, groups = collections.defaultdict(list), collections.defaultdict(list)
    with tarfile.open(archive) as files:
        for member in sorted((m for m in files.getmembers() if m.isfile()), key=lambda m: m.name):
            part, group = member.name.split("/")[-3:-1]
            texts[part].append(files.extractfile(member).read().decode("latin-1"))
            groups[part].append(group)
    train, test = sorted(texts, reverse=True)
    vectors = TfidfVectorizer(min_df=2, token_pattern=r"[a-z]{3,}", sublinear_tf=True, stop_words=None)
    X = {train: vectors.fit_transform(texts[train])}
    X[test] = vectors.transform(texts[test])
    words = vectors.get_feature_names_out()
    share = np.diff(X[train].tocsc().indptr) / X[train].shape[0]
    able = [len(w) > 4 and w not in ENGLISH_STOP_WORDS and re.fullmatch("[a-z]+", w) is not None for w in words]
    able = np.array(able) & (share > 0.02) & (share < 0.1)
    told = np.where(able, np.nan_to_num(chi2(X[train] > 0, groups[train])[0]), -1)
    chosen = np.sort(np.argsort(-told, kind="stable")[:WORDS])
    kept = np.setdiff1d(np.arange(words.size), chosen)
    for part, name in ((train, "train"), (test, "test")):
        there = X[part][:, chosen].tocsr()
        labels = []
        for row, group in enumerate(groups[part]):
            steps = group.split(".")
            own = [".".join(steps[: n + 1]) for n in range(len(steps))]
            has = there.indices[there.indptr[row] : there.indptr[row + 1]]
            labels.append(own + [f"word {words[chosen[k]]}" for k in sorted(has)])
        write(out / f"{name}.parquet", labels, unit_rows(X[part][:, kept]))


def unit_rows(X):
    from sklearn.preprocessing import normalize

    return normalize(X).tocsr()


def made(out, seed=0):
    import scipy.sparse as sp

    rng = np.random.default_rng(seed)
    shares = (np.arange(LABELS) + 10.0) ** -0.9
    own = rng.integers(0, FEATURES, (LABELS, 12))
    zipf = (np.arange(FEATURES) + 20.0) ** -1.0
    for name, n in (("train", 15_000), ("test", 5_000)):
        many = rng.integers(1, 10, n)
        labels, rows = [], []
        for m in many:
            mine = np.unique(rng.choice(LABELS, m, p=shares / shares.sum()))
            words = [rng.choice(own[j], 4, replace=False) for j in mine]
            words.append(rng.choice(FEATURES, 60, p=zipf / zipf.sum()))
            labels.append(mine.tolist())
            rows.append(np.concatenate(words))
        places = np.repeat(np.arange(n), [r.size for r in rows])
        X = sp.csr_matrix((np.ones(places.size), (places, np.concatenate(rows))), (n, FEATURES))
        X.sum_duplicates()
        X.data = 1 + np.log(X.data)
        write(out / f"{name}.parquet", labels, unit_rows(X))


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    folder = pathlib.Path(rest[-1])
    folder.mkdir(parents=True, exist_ok=True)
    news(rest[0], folder) if what == "news" else made(folder)
