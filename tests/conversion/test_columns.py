"""Raw columns: what becomes of them is what scikit-learn makes of them, and the same from shards, files and tables."""

import gzip
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, StandardScaler

import bigclf
from bigclf.cli import main
from bigclf.conversion import shuffle
from bigclf.conversion.tables import reading
from bigclf.conversion.text import pieces
from bigclf.errors import DataError, SchemaError
from bigclf.features import tally, values
from bigclf.features.encode import Finisher, learn, names_of
from bigclf.features.extract import extract
from bigclf.features.spec import parse
from bigclf.features.text import grams_of
from bigclf.features.values import as_columns


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


def made(table, features, **more):
    """Rows [m, d] that ``features`` makes of a table, and what was learned of it."""
    spec = parse({"features": features, **more})
    columns, n = as_columns(table)
    noted = tally.Tally(spec)
    found = extract(spec, columns, n, noted)
    assert not found.bad
    learned = learn(spec, noted)
    indptr, indices, values = Finisher(spec, learned).rows(found)
    values = values if values.size else np.ones(indices.size, np.float32)
    rows = sp.csr_matrix((values, indices.astype(np.int64), indptr), shape=(n, learned.n_features))
    assert rows.has_sorted_indices
    return rows, spec, learned


def people(m=600, seed=0):
    """A table of everything: numbers, categories, text, dates, holes."""
    rng = np.random.default_rng(seed)
    words = np.array(
        ["red", "green", "blue", "the", "a", "of", "fast", "slow", "car", "house", "tree", "über", "naïve"]
    )
    table = pd.DataFrame(
        {
            "age": np.where(rng.random(m) < 0.1, np.nan, rng.integers(18, 90, m)),
            "pay": np.round(np.exp(rng.normal(7, 1, m)), 2),
            "job": rng.choice(["clerk", "smith", "cook", None], m),
            "town": [f"town {k}" for k in rng.zipf(1.4, m) % 2000],
            "said": [" ".join(rng.choice(words, rng.integers(0, 9))) for _ in range(m)],
            "since": pd.Timestamp("2019-12-31") + pd.to_timedelta(rng.integers(0, 10**8, m), "s"),
        }
    )
    score = table.pay.rank() / m + (table.job == "cook") + table.said.str.count("red") - 1.2
    table["y"] = np.where(score + rng.normal(0, 0.2, m) > 0, "yes", "no")
    return table


FEATURES = [
    {"numeric": ["age", "pay"]},
    {"numeric": "pay", "scale": "bins", "bins": 5},
    {"categorical": "job"},
    {"categorical": "town", "max_exact": 50},
    {"cross": ["job", "town"], "encode": "hashed"},
    {"text": "said", "ngrams": [1, 2]},
    {"date": "since"},
]
SPEC = {"label": "y", "features": FEATURES}


# The same as scikit-learn


def test_numbers_are_standardised_as_by_standard_scaler():
    table = people()
    rows, *_ = made(table, [{"numeric": ["age", "pay"], "missing": "ignore"}])
    theirs = np.nan_to_num(StandardScaler().fit_transform(table[["age", "pay"]]))
    np.testing.assert_allclose(rows.toarray(), theirs, rtol=1e-6, atol=1e-7)
    logs, *_ = made(table, [{"numeric": "pay", "scale": "log"}])
    theirs = StandardScaler().fit_transform(np.log1p(table[["pay"]]))
    np.testing.assert_allclose(logs.toarray()[:, 0], theirs[:, 0], rtol=1e-5, atol=1e-6)


def test_missing_numbers_are_marked():
    rows, spec, learned = made({"x": [1.0, None, 3.0]}, [{"numeric": "x"}])
    assert rows.toarray().tolist() == [[-1, 0], [0, 1], [1, 0]]
    assert names_of(spec, learned, [0, 1]) == ["x", "x is missing"]


def test_bins_are_quantiles():
    table = people()
    rows, *_ = made(table, [{"numeric": "pay", "scale": "bins", "bins": 4, "missing": "ignore"}])
    theirs = KBinsDiscretizer(4, encode="onehot", strategy="quantile", quantile_method="inverted_cdf")
    found = theirs.fit_transform(table[["pay"]])
    assert np.count_nonzero(rows.toarray().argmax(1) != found.toarray().argmax(1)) <= 4  # on which side an edge lies
    assert (np.asarray(rows.sum(0)).ravel() >= 148).all() and rows.shape[1] == 4


def test_categories_are_one_hot():
    table = people()
    rows, spec, learned = made(table, [{"categorical": ["job", "town"]}])
    theirs = OneHotEncoder().fit(table[["job", "town"]].fillna(""))
    names = [f"{name}={text}" if text else f"{name} is missing"
             for name, values in zip(["job", "town"], theirs.categories_, strict=True) for text in values]  # fmt: skip
    order = [names.index(name) for name in names_of(spec, learned, range(rows.shape[1]))]
    assert sorted(order) == list(range(len(names)))
    assert abs(rows - theirs.transform(table[["job", "town"]].fillna(""))[:, order]).max() == 0


@pytest.mark.parametrize("signed", [True, False])
def test_hashed_categories_are_those_of_feature_hasher(signed):
    table = people().fillna({"job": ""})
    rows, *_ = made(table, [{"categorical": ["job", "town"], "encode": "hashed"}], hash_bits=12, signed=signed)
    theirs = FeatureHasher(2**12, alternate_sign=signed).transform(table[["job", "town"]].to_dict("records"))
    assert abs(rows - theirs).max() == 0


@pytest.mark.parametrize("analyzer", ["word", "char", "char_wb"])
@pytest.mark.parametrize("ngrams", [(1, 1), (2, 4)])
def test_text_is_cut_and_hashed_as_by_scikit_learn(analyzer, ngrams):
    texts = [
        "Hello,  wörld a bb ccc",
        "",
        "日本語 text  x_1\n\ttabs ünd so",
        "ab",
        "a",
        "   ",
        "don't stop! 123 \xa0x İ",
    ]
    cut = CountVectorizer(analyzer=analyzer, ngram_range=ngrams).build_analyzer()
    low = [text.lower() for text in texts]
    found = grams_of("".join(low), np.cumsum([0, *map(len, low)]), analyzer, ngrams, b"")
    for i, text in enumerate(texts):
        mine = np.flatnonzero(found.rows == i)
        assert sorted(found.room[found.starts[k] : found.stops[k]].tobytes().decode() for k in mine) == sorted(
            cut(text)
        )
    plain = {"tfidf": False, "sublinear": False, "analyzer": analyzer, "ngrams": list(ngrams)}
    rows, *_ = made({"t": texts}, [{"text": "t", **plain}], hash_bits=24)
    theirs = HashingVectorizer(analyzer=analyzer, ngram_range=ngrams, n_features=2**24).transform(texts)
    assert abs(rows - theirs).max() < 1e-7


def test_tfidf_is_that_of_scikit_learn():
    texts = people().said.tolist()
    rows, *_ = made({"t": texts}, [{"text": "t", "ngrams": [1, 2]}], hash_bits=20, signed=False)
    counts = HashingVectorizer(ngram_range=(1, 2), n_features=2**20, alternate_sign=False, norm=None).transform(texts)
    theirs = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    assert abs(rows - theirs).max() < 1e-6


def test_dates():
    rows, spec, learned = made(
        {"d": ["2024-02-29 13:05:00", "", "1969-12-31"]},
        [{"date": "d", "parts": ["year", "month", "day", "weekday", "hour"]}],
    )
    told = [names_of(spec, learned, row.indices) for row in rows]
    assert told[0] == ["d.year", "d.month=2", "d.day=29", "d.weekday=Thursday", "d.hour=13"]
    assert told[1] == [f"d.{part} is missing" for part in ("year", "month", "day", "weekday", "hour")]
    assert told[2] == ["d.year", "d.month=12", "d.day=31", "d.weekday=Wednesday", "d.hour=0"]
    other, *_ = made({"d": ["29.02.2024 13h", None, "31.12.1969 0h"]}, [{"date": "d", "format": "%d.%m.%Y %Hh"}])
    same, *_ = made({"d": ["2024-02-29 13:00", "", "1969-12-31"]}, [{"date": "d"}])
    assert abs(other - same).max() == 0


# Statistics


def test_tallies_of_parts_add_up_to_that_of_the_whole():
    table, spec = people(2000), parse(SPEC | {"label": None})
    whole, parts = tally.Tally(spec), tally.Tally(spec)
    columns, n = as_columns(table)
    extract(spec, columns, n, whole)
    for first in range(0, n, 300):
        part, (some, m) = tally.Tally(spec), as_columns(table[first : first + 300])
        extract(spec, some, m, part, np.arange(first, first + m, dtype=np.uint64))
        parts.add(part)
    one, other = learn(spec, whole), learn(spec, parts)
    for name, a, b in zip(one._fields, one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("n", [10, 1000, 100_000])
def test_the_sketch_counts_distinct_hashes(n):
    """HyperLogLog's standard error is 1.04 / sqrt(4096) = 1.6 %; three of them are allowed."""
    registers = np.zeros(tally.REGISTERS, np.uint8)
    hashes = np.random.default_rng(0).choice(2**32, n, replace=False).astype(np.uint32)
    for part in np.split(np.repeat(hashes, 2), [n // 2]):
        tally.note_hashes(part, registers)
    assert abs(tally.estimate(registers) - n) <= 0.05 * n


def test_document_frequencies_fold_where_they_are_too_many():
    rng = np.random.default_rng(0)
    keys, counts = rng.choice(2**31, 5000, replace=False).astype(np.uint32), rng.integers(1, 9, 5000)
    bounded, free = tally.Frequencies(1000), tally.Frequencies()
    for some in np.array_split(np.arange(5000), 7):
        for found in (bounded, free):
            order = some[np.argsort(keys[some])]
            found.see(keys[order], counts[order])
    bounded.settle()
    assert bounded.keys.size <= 1000 and bounded.bits < 31
    for a, b in zip(bounded.folded(8), free.folded(8), strict=True):
        np.testing.assert_array_equal(a, b)


def test_bits_follow_from_distinct_features_and_collisions_are_told():
    texts = [" ".join(f"w{k}" for k in range(i, i + 50)) for i in range(0, 5000, 50)]
    _, _, learned = made({"t": texts}, [{"text": "t"}])
    assert learned.bits == 17  # 16 places for each of 5,000
    from bigclf.features.encode import report

    rows, spec, learned = made({"t": texts}, [{"text": "t"}], hash_bits=12)
    told = report(spec, learned)
    apart = np.unique(rows.indices).size
    assert told["hash_bits"] == 12 and abs(told["distinct_hashed"] - 5000) < 250
    sharing = 5000 - np.count_nonzero(np.bincount(rows.indices) == 1)
    assert apart < 4096 and abs(told["colliding"] - sharing / 5000) < 0.05


# The spec


def test_a_spec_is_read_back_from_what_is_stored():
    spec = parse(SPEC)
    assert parse(json.loads(json.dumps(spec.as_json()))) == spec


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("label: [", "YAML"),
        ({"lable": "y"}, "unknown key 'lable' in the spec; allowed keys: .*; did you mean label?"),
        ({"features": [{"number": "a"}]}, "exactly one of numeric"),
        ({"features": [{"numeric": "a", "scale": "best"}]}, "scale must be one of standard"),
        ({"features": [{"numeric": "a", "bins": 1.5}]}, "bins must be a whole number from 2"),
        ({"features": [{"numeric": None}]}, "needs the name of a column"),
        ({"features": [{"cross": ["a", "a"]}]}, "each once"),
        ({"label": {"column": "y", "above": "x"}, "features": []}, "above must be a number"),
        ({"features": [{"numeric": "a", "scala": "log"}]}, "unknown key 'scala'.*did you mean scale?"),
        ({"features": [{"cross": ["a"]}]}, "two columns"),
        ({"features": [{"text": "a", "ngrams": [3, 2]}]}, "ngrams"),
        ({"features": [{"numeric": "a"}, {"numeric": ["b", "a"]}]}, "twice"),
        ({"label": "a", "features": [{"numeric": "a"}]}, "cannot be a feature"),
        ({"hash_bits": 40}, "hash_bits"),
        ({"version": 99}, "install a newer"),
        ({"features": 3}, "must be a table"),
    ],
)
def test_a_wrong_spec_is_refused_by_name(told, reason):
    with pytest.raises(SchemaError, match=reason):
        parse(told)


# Files to shards


def rows_of(dataset):
    places = dict.fromkeys(zip(dataset.chunks.file.tolist(), dataset.chunks.row_group.tolist(), strict=True))
    blocks = [dataset.decode(*place) for place in places]
    parts = [sp.csr_matrix((b.values if b.values.size else np.ones(b.nnz), b.indices.astype(np.int64), b.indptr),
                           shape=(b.n_rows, dataset.n_features)) for b in blocks]  # fmt: skip
    return sp.vstack(parts).tocsr(), dataset.classes[np.concatenate([b.labels for b in blocks]).astype(int)]


def written(table, directory, form):
    """The table as a file of this format; dates as text."""
    path = directory / f"rows.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pandas(table), path, row_group_size=250)
    elif form == "jsonl":
        path.write_text(table.to_json(orient="records", lines=True, date_format="iso"))
    else:
        table.to_csv(path, index=False, sep="\t" if form == "tsv" else ",")
    return str(path)


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE", 20_000)
    monkeypatch.setattr(pieces, "BLOCK", 7000)
    monkeypatch.setattr(reading, "ROWS_AT_A_TIME", 100)


def test_files_without_a_format_have_that_of_their_names(tmp_path):
    for name in ("a.csv", "b.csv.gz"):
        text = b"y,a\n0,1.5\n1,2.5\n"
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    spec = {"label": "y", "features": [{"numeric": "a"}]}
    assert reading.format_of(str(tmp_path)) == reading.format_of(f"{tmp_path}/*.csv*") == "csv"
    made = bigclf.convert(str(tmp_path), str(tmp_path / "out"), features=spec, chunk_nnz=100)
    assert made.n_rows == 4 and made.features["reader"]["format"] == "csv"
    (tmp_path / "_spec.yaml").write_text(json.dumps(spec))
    asked = ["convert", str(tmp_path), str(tmp_path / "same"), "--spec", str(tmp_path / "_spec.yaml"), "--json"]
    done = CliRunner().invoke(main, asked, catch_exceptions=False)
    assert done.exit_code == 0 and json.loads(done.stdout)["rows"] == 4, done.output
    pq.write_table(pa.table({"y": [0, 1]}), tmp_path / "c.parquet")
    with pytest.raises(SchemaError, match=r"not all files are of one format.*csv, parquet.*--format"):
        bigclf.convert(str(tmp_path), str(tmp_path / "two"), features=spec)
    (tmp_path / "rows").write_text("y,a\n0,1\n")
    assert reading.format_of(str(tmp_path / "c.parquet")) == "parquet"
    with pytest.raises(SchemaError, match="say what the raw file is"):
        bigclf.convert(str(tmp_path / "rows"), str(tmp_path / "none"), features=spec)


@pytest.mark.parametrize("form", ["csv", *(pytest.param(form, marks=pytest.mark.long)
                                           for form in ("tsv", "jsonl", "parquet"))])  # fmt: skip
def test_every_format_gives_the_rows_of_the_table(tmp_path, small_pieces, form):
    table = people()
    expected, spec, _ = made(table, FEATURES)
    ds = bigclf.convert(
        written(table, tmp_path, form), tmp_path / "s", format=form, features=SPEC, shuffle=False, workers=1
    )
    got, labels = rows_of(ds)
    assert abs(got - expected).max() < 1e-6 and got.nnz == expected.nnz
    assert labels.tolist() == table.y.tolist()
    assert ds.features["kind"] == "columns" and ds.features["learned"]["n_features"] == ds.n_features
    assert parse(ds.features).terms == spec.terms


def digest(directory):
    return b"".join(path.read_bytes() for path in sorted(directory.glob("part-*"))), (
        directory / "_bigclf_features.safetensors").read_bytes()  # fmt: skip


def test_bytes_do_not_depend_on_workers_memory_or_packing(tmp_path, small_pieces, monkeypatch):
    path = written(people(1500), tmp_path, "csv")
    packed = tmp_path / "rows.csv.gz"
    packed.write_bytes(gzip.compress(Path(path).read_bytes()))
    pool = lambda workers: None if workers == 1 else Threads(workers)  # noqa: E731
    monkeypatch.setattr("bigclf.conversion.converter._pool", pool)
    for number, (source, workers, memory) in enumerate([(path, 1, "1GB"), (path, 3, "1GB"), (packed, 1, "96MB")]):
        bigclf.convert(source, tmp_path / f"s{number}", format="csv", features=SPEC, workers=workers, memory=memory,
                       shard_nnz=8000, chunk_nnz=3000)  # fmt: skip
    monkeypatch.setattr(shuffle.Spiller, "add", _spilling(shuffle.Spiller.add))
    bigclf.convert(path, tmp_path / "s3", format="csv", features=SPEC, workers=1, shard_nnz=8000, chunk_nnz=3000)
    assert len({digest(tmp_path / f"s{number}") for number in range(4)}) == 1
    assert len(list((tmp_path / "s0").glob("part-*"))) > 1


class Threads(ThreadPoolExecutor):
    """Stands for a pool of processes, which would not have the small pieces of this test."""

    def shutdown(self, wait=True, kill_workers=False):
        super().shutdown(wait)


def _spilling(add):
    def add_and_flush(self, ordinals, slab):
        add(self, ordinals, slab)
        self.flush()

    return add_and_flush


def test_labels_of_every_kind(tmp_path):
    def classes(column, **label):
        (tmp_path / "r.csv").write_text("x,y\n" + "".join(f"{i},{y}\n" for i, y in enumerate(column)))
        features = {"label": {"column": "y", **label}, "features": [{"numeric": "x"}]}
        ds = bigclf.convert(
            tmp_path / "r.csv", tmp_path / "s", format="csv", features=features, overwrite=True, shuffle=False
        )
        return rows_of(ds)[1]

    assert classes([3, -1, 3]).tolist() == [3, -1, 3]
    assert classes([0.5, 1, 2]).dtype == np.float64
    assert classes(["b", "a ", " b"]).tolist() == ["b", "a", "b"]
    assert classes(["x.", "y", "x"], strip=".").tolist() == ["x", "y", "x"]
    assert classes([10, 20, 15.1], above=15).tolist() == [False, True, True]
    assert classes(["p", "q", "r"], one_of=["p", "r"]).tolist() == [True, False, True]
    assert classes([1, 2, 1], type="text").tolist() == ["1", "2", "1"]
    assert classes(["true", "false"], type="bool").tolist() == [True, False]


def test_text_lines_and_documents(tmp_path, small_pieces):
    lines = tmp_path / "sms.txt"
    lines.write_text("ham\tgo until jurong\nspam\tfree entry\tnow\n" * 30, encoding="utf-8")
    ds = bigclf.convert(lines, tmp_path / "s", format="text")
    assert ds.classes.tolist() == ["ham", "spam"] and ds.n_rows == 60
    for group, word in (("rec.autos", "car"), ("sci.space", "möön")):
        (tmp_path / "docs" / "train" / group).mkdir(parents=True)
        for k in range(20):
            (tmp_path / "docs" / "train" / group / str(k)).write_bytes(f"the {word}\nnumber {k}".encode("latin-1"))
    features = {"reader": {"format": "text", "encoding": "latin-1"}}
    tree = bigclf.convert(tmp_path / "docs" / "train", tmp_path / "t", features=features)
    assert tree.classes.tolist() == ["rec.autos", "sci.space"] and tree.n_rows == 40
    subprocess.run(["tar", "czf", tmp_path / "docs.tar.gz", "--sort=name", "-C", tmp_path, "docs"], check=True)
    packed = bigclf.convert(f"{tmp_path}/docs.tar.gz#docs/train", tmp_path / "u", features=features)
    assert digest(tmp_path / "t") == digest(tmp_path / "u") and packed.n_rows == 40


def test_json_lists_and_their_parts(tmp_path):
    (tmp_path / "all.json").write_text(json.dumps({"train": [["so it goes", "a"], ["hi", "b"]], "test": [["x", "a"]]}))
    features = {"label": "1", "features": [{"text": "0"}]}
    ds = bigclf.convert(f"{tmp_path}/all.json#/train", tmp_path / "s", format="jsonl", features=features)
    assert ds.n_rows == 2 and ds.classes.tolist() == ["a", "b"]
    with pytest.raises(DataError, match="there is train, test"):
        bigclf.convert(f"{tmp_path}/all.json#/dev", tmp_path / "t", format="jsonl", features=features)


# Models of raw columns


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directory = tmp_path_factory.mktemp("trained")
    path = written(people(), directory, "csv")
    ds = bigclf.convert(path, directory / "s", format="csv", features=SPEC)
    model = bigclf.fit(ds, loss="logistic", tol=1e-2)
    model.save(directory / "m.bigclf")
    return directory, model


OTHER_PROCESS = """
import sys
import numpy as np
import bigclf
model, rows, out = sys.argv[1:]
np.save(out, bigclf.load(model).decision_function(rows))
"""


def test_another_process_predicts_raw_rows_as_from_shards_to_the_bit(tmp_path, trained):
    directory, model = trained
    table = people(300, seed=5)
    path = written(table, tmp_path, "csv")
    features = bigclf.load(directory / "m.bigclf")
    shards = tmp_path / "shards"
    from bigclf.model.raw_input import converted

    ds = converted(path, features.features, learned=features.finisher.learned, directory=str(shards))
    from_shards = model.decision_function(ds)
    subprocess.run([sys.executable, "-c", OTHER_PROCESS, directory / "m.bigclf", path, tmp_path / "o.npy"], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "o.npy"), from_shards)
    np.testing.assert_array_equal(model.decision_function(table), from_shards)
    np.testing.assert_array_equal(model.decision_function(pa.Table.from_pandas(table)), from_shards)
    np.testing.assert_array_equal(model.predict(table.drop(columns="y")), model.predict(ds))
    told, same = bigclf.evaluate(model, path), bigclf.evaluate(model, table)
    assert told.n == 300 and told.accuracy == same.accuracy == np.mean(model.predict(ds) == table.y) > 0.8
    result = bigclf.predict(model, path, str(tmp_path / "out"), scores=True)
    kept = pq.read_table(tmp_path / "out" / "rows.csv.parquet")
    np.testing.assert_array_equal(kept["score"], from_shards)
    assert result["rows"] == 300 and bigclf.predict(model, path, str(tmp_path / "out"), scores=True)["kept"] == 1


def test_shards_with_other_statistics_are_refused(tmp_path, trained):
    _, model = trained
    other = bigclf.convert(written(people(200, 9), tmp_path, "csv"), tmp_path / "s", format="csv", features=SPEC)
    for ask in (lambda: model.predict(other), lambda: bigclf.evaluate(model, other)):
        with pytest.raises(DataError, match="features-of"):
            ask()


@pytest.mark.long
def test_fit_takes_raw_files_and_tables(tmp_path):
    table = people()
    path = written(table, tmp_path, "csv")
    from_file = bigclf.fit(path, features=SPEC, format="csv", loss="squared_hinge", validate=path)
    again = bigclf.fit(path, features=SPEC, format="csv", loss="squared_hinge")
    np.testing.assert_array_equal(from_file.coef_, again.coef_)
    from_table = bigclf.fit(table, features=SPEC, loss="squared_hinge", tol=1e-6)
    beside = bigclf.fit(table, table.y.to_numpy(), features={"features": FEATURES}, loss="squared_hinge", tol=1e-6)
    np.testing.assert_array_equal(from_table.coef_, beside.coef_)
    agree = from_table.predict(table) == from_file.predict(table)
    assert agree.mean() > 0.98 and from_table.classes_.tolist() == ["no", "yes"]
    with pytest.raises(SchemaError, match="pay: there is no such column"):
        from_table.predict(table.drop(columns="pay"))


def test_a_model_without_what_was_learned_says_so(tmp_path, trained):
    directory, _ = trained
    (tmp_path / "s").mkdir()
    for part in (directory / "s").glob("part-*"):
        (tmp_path / "s" / part.name).write_bytes(part.read_bytes())
    model = bigclf.fit(str(tmp_path / "s"), loss="squared_hinge", tol=0.1)
    with pytest.raises(ValueError, match="lacks what was learned"):
        model.predict(people(5))


@pytest.mark.parametrize("name", [None, "customer", "__null_dask_index__"])
def test_a_proposal_leaves_out_the_index_of_a_data_frame(tmp_path, name):
    """It stands last in the file: it was proposed as a feature, and where no column has few values as the label."""
    from bigclf.conversion.tables.suggest import as_yaml, suggest

    index = pd.Index(np.arange(60) % 7 + 3, name=name)
    frame = pd.DataFrame({"y": ["a", "b"] * 30, "size": np.arange(60) % 9 / 7}, index=index)
    frame.to_parquet(tmp_path / "f.parquet")
    if name and name.startswith("__"):  # Dask's, which no metadata name
        pq.write_table(pq.read_table(tmp_path / "f.parquet").replace_schema_metadata(None), tmp_path / "f.parquet")
    found = suggest(str(tmp_path / "f.parquet"))
    assert found.label == "y" and found.spec().columns == ("size",)
    assert f"left out: {name or '__index_level_0__'}, the data frame's index" in as_yaml(found)


def test_columns_of_numbers_are_looked_at_together(tmp_path, monkeypatch):
    from bigclf.conversion.tables.suggest import suggest

    calls = []
    for name in ("fill_null", "cast", "is_in", "is_null", "dictionary_encode", "ascii_trim_whitespace"):
        real = getattr(pc, name)
        monkeypatch.setattr(pc, name, lambda *given, real=real, **more: calls.append(real) or real(*given, **more))
    for k in (10, 300):
        rows = [{f"{kind}{i}-{j}": j * step for j in range(k) for kind, step in (("w", 1), ("f", 0.5))} for i in (0, 1)]
        (tmp_path / "x.jsonl").write_text("\n".join(json.dumps({"y": i, **row}) for i, row in enumerate(rows)))
        found = suggest(str(tmp_path / "x.jsonl"))
        assert [c.kind for c in found.columns] == ["numeric"] * (4 * k + 1) and found.label == "y"
        last = 0.5 * (k - 1)
        assert found.columns[-1].why == f"1 distinct, 50.0 % missing, {last:g} to {last:g}" and len(calls) < 30
        calls.clear()


def test_what_many_columns_told_is_a_few_arrays():
    names = []
    for k in (2, 40):
        spec = parse({"label": "y", "features": {
            "numeric": [f"n{j}" for j in range(k)], "categorical": [f"c{j}" for j in range(k)], "text": "t",
        }})  # fmt: skip
        table = {f"n{j}": [0.5 * j, None, 2.0] for j in range(k)} | {f"c{j}": ["a", None, "b"] for j in range(k)}
        columns, m = as_columns(table | {"t": ["a b", "b", None], "y": ["u", "v", "u"]})
        found = tally.Tally(spec)
        extract(spec, columns, m, found)
        arrays = found.arrays()
        names.append(sorted(arrays))
        again = tally.Tally.of_arrays(spec, arrays)
        assert all(np.array_equal(array, arrays[name]) for name, array in again.arrays().items())
        assert learn(spec, again).digest() == learn(spec, found).digest()
    assert names[0] == names[1] and len(names[0]) < 25


def test_json_keys_become_columns_together(monkeypatch):
    from bigclf.conversion.tables.reading import json_rows

    calls, real = [], pa.array
    monkeypatch.setattr(pa, "array", lambda *given, **more: calls.append(given) or real(*given, **more))
    for k in (10, 300):
        row = {f"{kind}{j}": value for j in range(k) for kind, value in (("f", 0.5), ("b", True), ("t", "x"), ("i", 3))}
        lines = [row | {"f0": 2, "f1": 10**400, "i1": None}, {"f0": None, "more": [1]}, row]
        found = json_rows("\n".join(map(json.dumps, lines)).encode(), (*row, "none"))
        assert len(calls) < 10 and not found.bad
        told = {name: column.to_pylist() for name, column in found.columns.items()}
        assert list(told) == [*row, "none"] and told["none"] == [None] * 3 and told["b1"] == [True, None, True]
        assert told["f0"] == [2.0, None, 0.5] and told["f1"] == [float("inf"), None, 0.5]
        assert told["i1"] == [None, None, "3"] and told["i2"] == ["3", None, "3"] and told["t0"] == ["x", None, "x"]
        calls.clear()


def test_columns_of_numbers_are_read_together_to_the_bit(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 213)).round(3)
    x[rng.random(x.shape) < 0.2] = np.nan
    spec = parse({"features": [{"numeric": [f"n{j}" for j in range(60)]}]})
    columns = {f"n{j}": pa.array(x[j], from_pandas=True) for j in range(30)}
    columns |= {f"n{j}": pa.array([None if v != v else str(v) for v in x[j]], pa.large_string()) for j in range(30, 60)}
    together, apart = tally.Tally(spec), tally.Tally(spec)
    one = extract(spec, columns, 213, together)
    monkeypatch.setattr(values, "numbers_together", lambda *given: None)
    other = extract(spec, columns, 213, apart)
    assert all(np.array_equal(a, b) for a, b in zip(one[:3], other[:3], strict=True))
    for j, row in enumerate(x):
        there = row[~np.isnan(row)]
        squares = ((there - there.mean()) ** 2).sum()
        for found in (together.moments, apart.moments):
            assert (found.n[j], found.mean[j], found.squares[j]) == (there.size, there.mean(), squares)


AMOUNTS = {
    "1234.5": 1234.5, "2,077.75": 2077.75, "$1,200": 1200, "-$3.10": -3.1, "$-3.10": -3.1, "12 500 kr": 12500,
    "1'000'000": 1e6, "(80.00)": -80, "($1,080)": -1080, "USD 7": 7, "7\u00a0€": 7, "12\u202f500.25\u00a0€": 12500.25,
    "+3": 3, "15%": 15, "1e3": 1000, " 5 ": 5, "0": 0,
}  # fmt: skip
NO_AMOUNTS = ["1,20", "1,2345", "0,500", "1,000 000", "12 50", "$", "(5", "5 dollars", "1.2.3", "--5", "1,000,00", "a1"]


def test_amounts_are_read_as_people_write_them(tmp_path):
    """With a point and with a comma before decimals, and by an exported scorer, to the bit."""
    for decimal in ".,":
        swapped = str.maketrans(".,", ",.") if decimal == "," else {}
        texts = [text.translate(swapped) for text in AMOUNTS]
        bad = {}
        found = values.numbers(pa.array([*texts, None, "?"]), "x", ("", "?"), bad, decimal, "grouped")
        assert not bad and found[:-2].tolist() == list(AMOUNTS.values()) and np.isnan(found[-2:]).all()
        values.numbers(pa.array([text.translate(swapped) for text in NO_AMOUNTS]), "x", (), bad, decimal, "grouped")
        assert sorted(bad) == list(range(len(NO_AMOUNTS)))
        frame = pd.DataFrame({"x": texts, "c": ["Yes", "yes "] * 8 + ["NO"], "y": ["p", "q"] * 8 + ["p"]})
        told = {"label": "y", "features": [{"numeric": "x", "written": "grouped", "scale": "none"},
                {"categorical": "c", "lowercase": True}], "reader": {"format": "csv", "decimal": decimal}}  # fmt: skip
        model = bigclf.fit(frame, features=told, algo="pa1", epochs=1, progress=False)
        model.export(tmp_path / f"scorer_{ord(decimal)}.py", "numpy")
        sys.path.insert(0, str(tmp_path))
        scorer = __import__(f"scorer_{ord(decimal)}")
        sys.path.remove(str(tmp_path))
        assert np.array_equal(scorer.decision_function(frame), model.decision_function(frame))
        with pytest.raises(ValueError, match="is not a number"):
            scorer.predict({"x": ["5 dollars"], "c": ["yes"]})
    bad = {}
    values.numbers(pa.array(["$1,200", "x"]), "x", (), bad)
    dates = {}
    values.days(pa.array(["01.02.2024"]), "x", None, (), dates)
    assert "(YYYY-MM-DD); `format:` of the date in the spec that a model is trained with reads others" in dates[0]
    assert (
        "add `written: grouped`" in bad[0]
        and "--suggest > spec.yaml`, then --spec spec.yaml" in bad[0]
        and "grouped" not in bad[1]
    )


def test_options_that_came_later_are_said_only_where_they_say_something():
    """Specs in models and run directories stay as they were."""
    told = parse({"label": "y", "features": [{"numeric": "a"}, {"categorical": "b"}, {"text": "c"}]}).as_json()
    assert not {"written", "lowercase"} & {*told["features"][0], *told["features"][1], *told["label"]}
    assert told["features"][2]["lowercase"] is True
    terms = [{"numeric": "a", "written": "grouped"}, {"categorical": "b", "lowercase": True}]
    more = parse({"label": {"column": "y", "lowercase": True}, "features": terms})
    assert parse(more.as_json()) == more


def test_a_category_and_a_label_in_either_case_are_one():
    frame = pd.DataFrame({"c": ["Yes", "yes", "YES ", "no", "NA", "na"], "y": ["A", "a", "b", " B", "b", "a"]})
    rows, _, _ = made(frame, [{"categorical": "c", "lowercase": True}])
    assert rows.toarray().argmax(axis=1)[:3].tolist() == [rows.toarray().argmax(axis=1)[0]] * 3
    assert rows.shape[1] == 4  # yes, no, na, and what is missing
    told = {"label": {"column": "y", "lowercase": True}, "features": [{"categorical": "c", "lowercase": True}]}
    model = bigclf.fit(frame, features=told, algo="pa1", epochs=1, progress=False)
    assert model.classes_.tolist() == ["a", "b"]


def test_a_proposal_for_a_table_as_banks_have_them(tmp_path):
    """Amounts, codes, dates with and without times, line breaks in quotes, classes in either case."""
    import csv

    from bigclf.conversion.tables.suggest import as_yaml, suggest

    rng = np.random.default_rng(0)
    with open(tmp_path / "bank.csv", "w", newline="") as file:
        to = csv.writer(file)
        to.writerow(["opened", "called", "balance", "income", "zip", "branch", "share", "job", "note", "bought"])
        for i in range(600):
            day, month = rng.integers(1, 29), rng.integers(1, 13)
            to.writerow([
                f"2019-{month:02}-{day:02}", f"{day:02}/{month:02}/2020 {rng.integers(0, 24):02}:15",
                f"{rng.normal(1500, 2500):,.2f}", f"${rng.lognormal(10):,.0f}", f"{i + 200:05}",
                f"{rng.integers(1, 40):03}", f"{rng.integers(0, 101)}%", rng.choice(["clerk", "Clerk", "student", ""]),
                rng.choice(["called,\ntwice", "", 'said "no"']), rng.choice(["yes", "Yes", "no"]),
            ])  # fmt: skip
    found = suggest(str(tmp_path / "bank.csv"), label="bought")
    by_name = {c.name: (c.kind, c.options) for c in found.columns}
    days = {"parts": ["time", "month", "weekday"]}
    assert found.n_rows == 600 and found.how.multiline and not found.broken.n
    assert by_name["opened"] == ("date", days) and by_name["called"] == ("date", {"format": "%d/%m/%Y %H:%M"})
    assert by_name["balance"] == ("numeric", {"written": "grouped"}) == by_name["share"]
    assert by_name["income"][0] == "numeric" and by_name["income"][1]["written"] == "grouped"
    assert by_name["zip"] == ("", {}) and by_name["branch"] == ("categorical", {})
    assert by_name["job"] == ("categorical", {"lowercase": True}) and by_name["note"] == ("categorical", {})
    assert [name for name, _ in found.classes] == ["yes", "no"]
    assert parse(as_yaml(found)) == found.spec() and found.spec().label.lowercase
    model = bigclf.fit(tmp_path / "bank.csv", features=as_yaml(found), algo="pa1", epochs=1, progress=False)
    assert model.classes_.tolist() == ["no", "yes"]


def test_a_proposal_in_python_is_used_as_it_is(tmp_path):
    people(60).to_csv(tmp_path / "p.csv", index=False)
    label = next(name for name, values in people(60).items() if values.nunique() == 2)
    found = bigclf.suggest(tmp_path / "p.csv", label=label)
    assert parse(str(found)) == found.spec() == parse(found) and str(found).startswith("# proposed from the first 60")
    how = {"algo": "pa1", "epochs": 1, "progress": False}
    model = bigclf.fit(tmp_path / "p.csv", features=found, **how)
    assert model.digest() == bigclf.fit(tmp_path / "p.csv", features=str(found), **how).digest()
    with pytest.raises(SchemaError, match="no such column"):
        bigclf.suggest(tmp_path / "p.csv", label="nowhere")
    with pytest.raises(SchemaError, match="unknown option 'sep'"):
        bigclf.suggest(tmp_path / "p.csv", sep=";")


def test_a_directory_of_classes_is_taken_for_one(tmp_path):
    for name in ("ham", "spam"):
        for k in range(4):
            (tmp_path / "mail" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / "mail" / name / f"{k}.txt").write_text(f"{name} and {k} and more")
    assert reading.format_by_look(str(tmp_path / "mail")) == "text"
    model = str(tmp_path / "m.bigclf")
    for line in (["fit", str(tmp_path / "mail"), "-o", model], ["evaluate", model, str(tmp_path / "mail")]):
        result = CliRunner().invoke(main, line)
        assert result.exit_code == 0, result.output
    assert bigclf.load(model).classes_.tolist() == ["ham", "spam"]
    for spoil in ("year=2020", "mixed.csv"):  # partitions; a table beside the directories
        (tmp_path / "mail" / spoil).mkdir() if "=" in spoil else (tmp_path / "mail" / spoil).write_text("x")
        assert reading.format_by_look(str(tmp_path / "mail")) is None
        (tmp_path / "mail" / spoil).rmdir() if "=" in spoil else (tmp_path / "mail" / spoil).unlink()
    (tmp_path / "mail" / "ham" / "0.bin").write_bytes(b"PAR1\0")
    assert reading.format_by_look(str(tmp_path / "mail")) is None
    assert reading.format_by_look(str(tmp_path / "mail" / "ham")) is None
    assert reading.format_by_look(str(tmp_path)) is None  # a class is the directory that holds its texts


def test_a_proposal_names_the_amount_that_is_none(tmp_path):
    from bigclf.conversion.tables.suggest import suggest

    lines = [f'"{i * 37:,}.50",{i % 2}' for i in range(200)] + ["about 7,y"]
    (tmp_path / "x.csv").write_text("\n".join(["amount,y", *lines]))
    column = suggest(str(tmp_path / "x.csv")).columns[0]
    assert column.kind == "numeric" and column.options["written"] == "grouped"
    assert "1 cell is not a number" in column.why and "about 7" in column.why
