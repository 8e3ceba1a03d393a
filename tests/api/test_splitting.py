"""Parts of a dataset, and whether its shards are alike."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from making import random_rows, shards_of
from test_cli import bigclf as bigclf_
from test_cli import error_of

import bigclf
from bigclf.conversion import split
from bigclf.data import drift
from bigclf.errors import DataError, MemoryBudgetError, SchemaError

PARTS = {"train": 0.7, "valid": 0.1, "test": 0.2}


def rows_of(dataset):
    """Each row as (label, its entries)."""
    found = []
    for place in zip(dataset.chunks.file.tolist(), dataset.chunks.row_group.tolist(), strict=True):
        b = split.written_out(dataset.decode(*place))
        for i in range(b.n_rows):
            entries = slice(b.indptr[i], b.indptr[i + 1])
            values = b.values[entries].tolist() if b.values.size else [1.0] * (entries.stop - entries.start)
            label = dataset.classes[int(b.labels[i])].item()
            found.append((label, *zip(b.indices[entries].tolist(), values, strict=True)))
    return found


@pytest.fixture
def dataset(tmp_path):
    return shards_of(tmp_path / "all", *random_rows(3000, 40), shard_nnz=8000)


def test_every_row_goes_to_one_part_and_equal_rows_to_the_same(tmp_path, dataset):
    found = bigclf.split(dataset, tmp_path / "a", PARTS)
    assert sum(part.n_rows for part in found.values()) == 3000
    for name, share in PARTS.items():
        assert abs(found[name].n_rows - 3000 * share) < 4 * np.sqrt(3000 * share * (1 - share))
        assert found[name].n_features == dataset.n_features and found[name].classes.tolist() == dataset.classes.tolist()
    each = [rows_of(found[name]) for name in PARTS]
    assert sorted(row for part in each for row in part) == sorted(rows_of(dataset))
    features = [{row[1:] for row in part} for part in each]
    assert not features[0] & features[1] and not features[0] & features[2] and not features[1] & features[2]


@pytest.mark.parametrize("labels", [[2, 10, 1], ["b", "a c", "z"]])
def test_rows_with_lists_of_labels_are_parted_too(tmp_path, labels):
    x, _ = random_rows(60, 40)
    sets = [[label for k, label in enumerate(labels) if row % (k + 2) == 0] for row in range(60)]
    parts = {"i": x.indices, "v": x.data}
    entries = {name: [one.tolist() for one in np.split(all_, x.indptr[1:-1])] for name, all_ in parts.items()}
    pq.write_table(pa.table({"y": sets, **entries}), tmp_path / "rows.parquet")
    names = ("--columns", "label=y,indices=i,values=v")
    said = error_of("fit", tmp_path / "rows.parquet", "-o", tmp_path / "m", *names, "--holdout", "0.5", code=2)
    assert f"`bigclf split {tmp_path}/rows.parquet parts {' '.join(names)}`" in said
    bigclf_("split", tmp_path / "rows.parquet", tmp_path / "a", *names, "--parts", "one=0.5,two=0.5")
    found = [pq.read_table(tmp_path / "a" / part) for part in ("one", "two")]
    rows = [row for part in found for row in zip(*(part[name].to_pylist() for name in part.column_names), strict=True)]
    wanted = [sorted(each) for each in sets]
    assert sorted(map(str, rows)) == sorted(map(str, zip(wanted, *entries.values(), strict=True)))
    assert bigclf.Dataset(str(tmp_path / "a" / "one")).classes.tolist() == sorted(labels)
    (tmp_path / "t.svm").write_text("1,2 1:1\n3 2:1\n")
    said = error_of("fit", tmp_path / "t.svm", "-o", tmp_path / "m", "--label-separator", ",", code=2)
    assert "--label-separator is for raw columns" in said
    said = error_of("fit", tmp_path / "t.svm", "-o", tmp_path / "m", "--holdout", "0.5", code=2)
    assert f"`bigclf convert {tmp_path}/t.svm shards --several-labels`, `bigclf split shards parts`, then fit" in said


def test_the_parts_depend_on_rows_and_seed_alone(tmp_path, dataset):
    found = bigclf.split(dataset, tmp_path / "a", PARTS)
    half = bigclf.Dataset(dataset.files[:1])  # fewer files, other chunks: the same rows go to the same parts
    mine = bigclf.split(half, tmp_path / "b", PARTS)
    for name in PARTS:
        assert set(rows_of(mine[name])) <= set(rows_of(found[name]))
    other = bigclf.split(dataset, tmp_path / "c", PARTS, seed=1)
    assert set(rows_of(other["test"])) != set(rows_of(found["test"]))
    block = dataset.decode(0, 0)
    explicit = block._replace(values=np.ones(block.indices.size, np.float32))
    implicit = block._replace(values=np.empty(0, np.float32))
    assert (split.hashes_of(explicit, 3) == split.hashes_of(implicit, 3)).all()


@pytest.fixture
def visits(tmp_path):
    """Foreign Parquet with a user and a time of each row."""
    rng = np.random.default_rng(0)
    n = 2000
    indices = [sorted(rng.choice(30, 3, replace=False).tolist()) for _ in range(n)]
    table = pa.table({
        "label": rng.integers(0, 2, n), "indices": pa.array(indices, pa.list_(pa.int32())),
        "user": [f"u{k}" for k in rng.integers(0, 60, n)],
        "at": pa.array(np.datetime64("2026-01-01", "s") + rng.integers(0, 10**6, n), pa.timestamp("s")),
        "day": pa.array(rng.integers(0, 10, n)),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "v.parquet", row_group_size=300)
    return table, bigclf.Dataset(tmp_path / "v.parquet")


def test_groups_stay_together(tmp_path, visits):
    table, dataset = visits
    found = bigclf.split(dataset, tmp_path / "a", {"train": 0.5, "test": 0.5}, by="user")
    place = {name: {row[1:] for row in rows_of(part)} for name, part in found.items()}
    sizes = {name: part.n_rows for name, part in found.items()}
    choose = split._by_group(split._bounds({"train": 0.5, "test": 0.5}), "user", 0)
    parts = choose.parts(None, table["user"].combine_chunks())
    users = np.array(table["user"].to_pylist())
    assert all(len(set(parts[users == user])) == 1 for user in set(users))
    assert sizes == {"train": int((parts == 0).sum()), "test": int((parts == 1).sum())} and place["test"]


@pytest.mark.parametrize("column", ["at", "day"])
def test_parts_follow_each_other_in_time(tmp_path, visits, column):
    table, dataset = visits
    found = bigclf.split(dataset, tmp_path / "a", PARTS, order=column)
    numbers = np.sort(table[column].cast(pa.int64()).to_numpy())
    sizes = [part.n_rows for part in found.values()]
    assert sum(sizes) == 2000
    for end in np.cumsum(sizes)[:-1]:
        assert numbers[end - 1] < numbers[end]  # equal values are never parted
    if column == "at":
        assert np.abs(np.array(sizes) - [1400, 200, 400]).max() <= 10


def test_what_cannot_be_split_is_refused(tmp_path, visits):
    _, dataset = visits
    for wrong in ({"a": 0.5}, {"a": 0.5, "b": 0.6}, {}, {"a": 1.0, "b": 0.0}):
        with pytest.raises(ValueError, match="add up to 1"):
            bigclf.split(dataset, tmp_path / "x", wrong)
    with pytest.raises(ValueError, match="cannot be its name"):
        bigclf.split(dataset, tmp_path / "x", {"../a": 0.5, "b": 0.5})
    with pytest.raises(ValueError, match="take one of them"):
        bigclf.split(dataset, tmp_path / "x", PARTS, by="user", order="at")
    with pytest.raises(SchemaError, match="no such column"):
        bigclf.split(dataset, tmp_path / "x", PARTS, by="nobody")
    with pytest.raises(SchemaError, match="neither"):
        bigclf.split(dataset, tmp_path / "x", PARTS, order="user")
    with pytest.raises(MemoryBudgetError, match=r"48.0 kB"):
        bigclf.split(dataset, tmp_path / "x", PARTS, order="at", memory=1000)
    with pytest.raises(DataError, match="no row") as caught:
        bigclf.split(dataset, tmp_path / "x", {"a": 1 - 1e-7, "b": 1e-7})
    assert str(caught.value).startswith(f"{tmp_path / 'x' / 'b'}: ")  # it named a hidden directory
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"not a Parquet file .*; make shards .* first: bigclf\.convert\(FILE"):
        bigclf.split(tmp_path / "rows.csv", tmp_path / "x", PARTS)


def test_split_from_the_command_line(tmp_path, dataset, capsys):
    from bigclf.cli import main

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        return ended.value.code or 0, capsys.readouterr()

    code, said = run("split", tmp_path / "all", tmp_path / "out", "--json")
    told = json.loads(said.out)
    assert code == 0 and told["train"]["rows"] + told["test"]["rows"] == 3000
    code, said = run("split", tmp_path / "all", tmp_path / "out2", "--parts", "a=0.5,b=0.5")
    assert code == 0 and "3,000 rows in 2 parts" in said.out
    assert run("split", tmp_path / "all", tmp_path / "out3", "--parts", "a=1,b")[0] == 2
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    code, said = run("split", tmp_path / "rows.csv", tmp_path / "out3")
    told = " ".join(said.err.split())
    assert code == 3 and "`bigclf convert" in told and "bigclf.convert" not in told


# Drift


def test_shuffled_shards_are_alike(tmp_path):
    for seed in range(3):
        ds = shards_of(tmp_path / str(seed), *random_rows(4000, 40, seed=seed), shard_nnz=4000, chunk_nnz=500)
        found = drift.shards_of(ds)
        assert len(found) > 5 and drift.drift(ds, found) == [] and sum(shard.n_rows for shard in found) == 4000


def test_shards_that_differ_are_told(tmp_path):
    x, y = random_rows(4000, 40)
    order = np.argsort(y + np.random.default_rng(0).normal(0, 1.5, 4000), kind="stable")
    ds = shards_of(tmp_path / "labels", x[order], y[order], shard_nnz=4000, chunk_nnz=500)
    told = drift.drift(ds, drift.shards_of(ds))
    assert len(told) == 1 and "shares of the classes" in told[0]
    long = np.argsort(np.diff(x.indptr) + np.random.default_rng(0).normal(0, 3, 4000), kind="stable")
    ds = shards_of(tmp_path / "long", x[long], y[long], shard_nnz=4000, chunk_nnz=500)
    told = drift.drift(ds, drift.shards_of(ds))
    assert any("rows of another length" in text for text in told)


def test_features_that_come_or_go_between_shards_are_told(tmp_path):
    x, y = random_rows(4000, 40)
    ds = shards_of(tmp_path / "alike", x, y, shard_nnz=4000, chunk_nnz=500)
    assert drift.features_used(ds, drift.shards_of(ds)) == []
    x = x.tolil()
    x[:1500, 7], x[1500:, 7] = 1, 0
    ds = shards_of(tmp_path / "unlike", x.tocsr(), y, shard_nnz=4000, chunk_nnz=500)
    (told,) = drift.features_used(ds, drift.shards_of(ds))
    assert "feature 7 stands in" in told
    with open(ds.files[3], "r+b") as file:
        file.seek(200)
        file.write(b"damaged")
    (told,) = drift.features_used(ds, drift.shards_of(ds))
    assert "validate" in told and "part-00003" in told
