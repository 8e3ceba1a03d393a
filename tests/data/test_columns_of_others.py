"""Columns of other people's Parquet that do not go together, and what is said of them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bigclf
from bigclf.errors import SchemaError

A = np.arange(6) / 7
Y = np.arange(6) % 2


def written(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("columns", [None, {"features": "*", "label": "y"}, {"features": ["a"], "label": "y"}])
def test_two_columns_of_one_name_are_refused_by_their_name(tmp_path, columns):
    table = pa.Table.from_arrays([pa.array(A), pa.array(A), pa.array(Y)], names=["a", "a", "y"])
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(SchemaError, match=r"t\.parquet, column a: two columns have this name"):
        bigclf.Dataset(tmp_path / "t.parquet", columns=columns)


def test_the_column_that_files_do_not_share_is_named(tmp_path):
    first = written(tmp_path / "1.parquet", a=A, b=A, y=Y)
    for name, columns, said in (
        ("text", {"a": A, "b": A.astype(str), "y": Y}, "column b: has no column 'b' of numbers, unlike"),
        ("more", {"a": A, "b": A, "c": A, "y": Y}, "column c: has the column 'c', unlike"),
        ("order", {"b": A, "a": A, "y": Y}, "column b: has the columns in another order, unlike"),
    ):
        other = written(tmp_path / f"{name}.parquet", **columns)
        with pytest.raises(SchemaError, match=said):
            bigclf.Dataset([first, other], columns={"features": "*", "label": "y"})


@pytest.mark.parametrize("role", ["label", "weight"])
def test_the_label_and_the_weight_are_no_features(tmp_path, role):
    path = written(tmp_path / "t.parquet", a=A, y=Y, w=A + 1)
    columns = {"label": "y", "weight": "w", "features": ["a", "y" if role == "label" else "w"]}
    with pytest.raises(SchemaError, match=f"column {columns[role]}: the {role} cannot be a feature too"):
        bigclf.Dataset(path, columns=columns)
    with pytest.raises(SchemaError, match="the label cannot be a feature too"):
        bigclf.Dataset(path, columns={"label": "y", "features": "y"})
