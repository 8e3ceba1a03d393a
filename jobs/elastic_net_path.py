"""A path of the elastic net on generated sparse rows, and the gap of each point by scikit-learn's formula.

    python jobs/elastic_net_path.py made OUT [--rows 1000000]      # OUT/train-*.parquet: 100,000 features, 30 a row
    python jobs/elastic_net_path.py check OUT MODELS [--mixing 0.5]    # MODELS: what `bigclf path -o MODELS` wrote
    python jobs/elastic_net_path.py centre OUT                     # the C at which the first weight is not 0

made: a row has 30 features, drawn by a Zipf law with a flat head, with values N(0, 1). The label is the sum of 500
features' parts, weights N(0, 1), with noise of half its deviation.

check: for each model (P - D) / P by the formula of ``sklearn.linear_model.ElasticNet`` with an intercept: columns and
labels centred, the residual R scaled to a dual point by the largest |X'R - beta w|, beta the weight of the squares. Two
passes over the rows for all models.
"""

import itertools
import pathlib
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FEATURES, EACH, SHARDS = 100_000, 30, 8


def made(out, rows, seed=0):
    rng = np.random.default_rng(seed)
    shares = (np.arange(FEATURES) + 2000.0) ** -1.0
    ends = np.cumsum(shares / shares.sum())
    places = rng.permutation(FEATURES).astype(np.int32)
    rule = np.zeros(FEATURES)
    rule[places[rng.choice(20_000, 500, replace=False)]] = rng.standard_normal(500)
    out.mkdir(parents=True, exist_ok=True)
    for number in range(SHARDS):
        with pq.ParquetWriter(out / f"train-{number:03d}.parquet", schema()) as writer:
            for size in np.full(-(-rows // SHARDS // 25_000), 25_000).tolist():
                drawn = np.searchsorted(ends, rng.random((size, EACH))).clip(max=FEATURES - 1)
                indices = np.sort(places[drawn], axis=1)
                new = np.ones(indices.shape, bool)
                new[:, 1:] = indices[:, 1:] != indices[:, :-1]  # each feature once a row
                values = rng.standard_normal(indices.shape).astype(np.float32)
                signal = np.where(new, rule[indices] * values, 0).sum(axis=1)
                labels = signal + 0.5 * signal.std() * rng.standard_normal(size)
                indptr = np.append(0, np.cumsum(new.sum(axis=1))).astype(np.int32)
                lists = [pa.ListArray.from_arrays(pa.array(indptr), pa.array(a[new])) for a in (indices, values)]
                writer.write_table(pa.Table.from_arrays([pa.array(labels), *lists], schema=schema()))


def schema():
    return pa.schema([("label", pa.float64()), ("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float32()))])


def blocks(out):
    """(X as CSR, y) of row groups."""
    import scipy.sparse as sp

    for path in sorted(out.glob("train-*.parquet")):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group).combine_chunks()
            y, indices, values = (table.column(k).chunk(0) for k in range(3))
            indptr = indices.offsets.to_numpy()
            shape = len(y), FEATURES
            yield sp.csr_matrix((values.values.to_numpy(), indices.values.to_numpy(), indptr), shape), y.to_numpy()


def centre(out, mixing):
    """Rows, mean of y, mean of X, and the C from which a weight is not 0."""
    n, total, sums, products = 0, 0.0, np.zeros(FEATURES), np.zeros(FEATURES)
    for X, y in blocks(out):
        n, total = n + y.size, total + y.sum()
        sums += np.asarray(X.sum(axis=0), np.float64)[0]
        products += X.T @ y
    mean = total / n
    return n, mean, sums / n, mixing / np.abs(products - mean * sums).max()


def check(out, models, mixing):
    import bigclf

    n, mean, means, first = centre(out, mixing)
    found = [bigclf.load(path) for path in pathlib.Path(models).glob("model-*.bigclf")]
    found.sort(key=lambda model: model.method["C"])
    W, C = np.array([np.asarray(model.coef_)[0] for model in found]), np.array([m.method["C"] for m in found])
    W = W.T.copy()
    shift = mean - means @ W  # what a free bias comes to
    squares, with_y, sums, slopes = np.zeros(C.size), np.zeros(C.size), np.zeros(C.size), np.zeros(W.shape)
    for X, y in blocks(out):
        r = (y[:, None] - X @ W) - shift
        squares, with_y, sums = squares + (r**2).sum(axis=0), with_y + (y - mean) @ r, sums + r.sum(axis=0)
        slopes += X.T @ r
    slopes -= means[:, None] * sums
    alpha, beta = mixing / C, (1 - mixing) / C
    scale = np.minimum(1.0, alpha / np.abs(slopes - beta * W).max(axis=0))
    squares += beta * (W**2).sum(axis=0)
    primal = 0.5 * squares + alpha * np.abs(W).sum(axis=0)
    gaps = (primal - scale * with_y + 0.5 * scale**2 * squares) / primal
    for k, gap in enumerate(gaps):
        print(f"C / C0 {C[k] / first:9.2f}   weights {np.count_nonzero(W[:, k]):7,}   gap {gap:.2e}")
    print(f"{n:,} rows, the worst gap {gaps.max():.2e}")


if __name__ == "__main__":
    what, out, *rest = sys.argv[1:]
    options = {name: value for name, value in itertools.pairwise(rest) if name.startswith("--")}
    mixing = float(options.get("--mixing", 0.5))
    if what == "made":
        made(pathlib.Path(out), int(options.get("--rows", 1_000_000)))
    elif what == "centre":
        print("{3:.10g}".format(*centre(pathlib.Path(out), mixing)))
    else:
        check(pathlib.Path(out), rest[0], mixing)
