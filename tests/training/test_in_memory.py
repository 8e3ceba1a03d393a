"""Rows in memory, in whatever form, train as the same rows in shards do, to the bit, and are predicted alike."""

import functools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

import bigclf
from bigclf.conversion.convert import write_shards
from bigclf.data.arrays import Arrays, csr_arrays, distinct
from bigclf.errors import DataError

OPTIONS = dict(algo="dcd", C=1.0, tol=1e-2, memory="100MB", progress=False)
NAMES = [f"f{j}" for j in range(30)]


def rows():
    rng = np.random.default_rng(0)
    x = sp.random(200, 30, 0.2, "csr", np.float32, random_state=rng)
    x.sort_indices()
    return x, np.where(x @ rng.standard_normal(30) > 0, 1, -1)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    x, y = rows()
    out = tmp_path_factory.mktemp("rows") / "shards"
    blocks = [(x.indptr, x.indices, x.data, (y > 0).astype(float))]
    return bigclf.fit(write_shards(blocks, out, classes=[-1, 1], n_features=30), **OPTIONS)


def wide(x):
    x = x.copy()
    x.indices, x.indptr = x.indices.astype(np.int64), x.indptr.astype(np.int64)
    return x


def unsorted(x):
    x = x.copy()
    for a, b in zip(x.indptr[:-1], x.indptr[1:], strict=True):
        x.indices[a:b], x.data[a:b] = x.indices[a:b][::-1].copy(), x.data[a:b][::-1].copy()
    x.has_sorted_indices = False
    return x


def repeated(x):
    x, two = x.tocoo(), lambda part: np.concatenate([part, part])
    return sp.coo_matrix((two(x.data / 2), (two(x.row), two(x.col))), x.shape)


def read_only(x):
    x = x.toarray()
    x.setflags(write=False)
    return x


def frame(x):
    return pd.DataFrame(x.toarray(), columns=NAMES)


def sparse_frame(x):
    return pd.DataFrame.sparse.from_spmatrix(x, columns=NAMES)


def table(x):
    return pa.table({name: x[:, [j]].toarray().ravel() for j, name in enumerate(NAMES)})


def lists(x):
    spans = list(zip(x.indptr[:-1], x.indptr[1:], strict=True))
    return {name: [part[a:b].tolist() for a, b in spans] for name, part in (("indices", x.indices), ("values", x.data))}


def polars(x):
    library = pytest.importorskip("polars", reason="polars is not installed: pip install polars")
    return library.DataFrame(lists(x))


FORMS = {
    "int64 indices": wide,
    "csr_array": sp.csr_array,
    "csc": sp.csc_matrix,
    "lil": sp.lil_matrix,
    "dok": sp.dok_matrix,
    "bsr": sp.bsr_matrix,
    "float64": lambda x: x.astype(np.float64),
    "unsorted": unsorted,
    "repeated": repeated,
    "dense": lambda x: x.toarray(),
    "by columns": lambda x: np.asfortranarray(x.toarray()),
    "big-endian": lambda x: x.toarray().astype(">f4"),
    "read-only": read_only,
    "frame": frame,
    "nullable frame": lambda x: frame(x).astype("Float32"),
    "sparse frame": sparse_frame,
    "half sparse frame": lambda x: pd.concat([frame(x).iloc[:, :9], sparse_frame(x).iloc[:, 9:]], axis=1),
    "table": table,
    "chunked table": lambda x: pa.concat_tables([table(x[:50]), table(x[50:])]),
    "record batch": lambda x: table(x).to_batches()[0],
    "table of lists": lambda x: pa.table(lists(x)),
    "table of vectors": lambda x: pa.table({"features": pa.FixedSizeListArray.from_arrays(x.toarray().ravel(), 30)}),
    "polars frame of lists": polars,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_rows_trains_as_shards_do(expected, form):
    x, y = rows()
    made = FORMS[form](x)
    model = bigclf.fit(made, y, **OPTIONS)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    np.testing.assert_allclose(expected.decision_function(made), expected.decision_function(x), rtol=1e-12, atol=1e-12)


LABELS = {
    "series": pd.Series,
    "categories": lambda y: pd.Series(y).astype("category"),
    "nullable": lambda y: pd.Series(y, dtype="Int64"),
    "arrow": pa.array,
    "chunked": lambda y: pa.chunked_array([y[:10], y[10:]]),
    "list": lambda y: y.tolist(),
    "column": lambda y: y[:, None],
    "bools": lambda y: pa.array(y > 0),
    "text": lambda y: pd.Series(np.where(y > 0, "yes", "no")),
    "objects": lambda y: np.where(y > 0, "yes", "no").astype(object),
    "dictionary": lambda y: pa.array(np.where(y > 0, "yes", "no")).dictionary_encode(),
}


@pytest.mark.parametrize("form", LABELS)
def test_every_form_of_labels_trains_as_shards_do(expected, form):
    x, y = rows()
    model = bigclf.fit(x, LABELS[form](y), **OPTIONS)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert (
        model.classes_.size == 2 and (model.predict(x) == model.classes_[1]).sum() == (expected.predict(x) == 1).sum()
    )


@pytest.mark.parametrize("kind", ["int8", "uint8", "int64", "uint64", "bool", "float64", "U3"])
@pytest.mark.parametrize("values", [[3], [0, 1], [-5, 7, 100], [0, 70_000], [2**63 - 2, 2**63 - 1]])
def test_labels_are_told_apart_as_numpy_tells_them(kind, values):
    if min(np.iinfo(kind).max if kind[0] in "iu" else 2**63, 2**63) < max(values) or (
        kind[0] in "bu" and min(values) < 0
    ):
        pytest.skip("the type does not hold them")
    labels = np.random.default_rng(0).choice(values, 200).astype(kind)
    wanted = np.unique(labels, return_inverse=True, return_counts=True)
    for found, its in zip(distinct(labels), wanted, strict=True):
        assert found.dtype == its.dtype
        np.testing.assert_array_equal(found, its)


def test_a_frame_of_sparse_columns_is_never_made_dense():
    """Dense it would be 80 MB."""
    x = sp.csr_matrix((np.ones(3), ([0, 1, 99_999], [5, 7, 0])), (100_000, 100))
    frame = pd.DataFrame.sparse.from_spmatrix(x)
    indptr, indices, values, d = csr_arrays(frame)
    assert d == 100 and indices.tolist() == [5, 7, 0] and values.tolist() == [1, 1, 1] and indptr[-1] == 3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"indices": [[0, -1]], "values": [[1.0, 2.0]]}, "negative"),
        ({"indices": [[1, 0]], "values": [[1.0, 2.0]]}, "increas|sort|ascend"),
        ({"indices": [[1, 2]], "values": [[1.0]]}, "2 indices but 1 values"),
        ({"indices": [None], "values": [[1.0]]}, "null"),
    ],
)
def test_vectors_in_memory_that_are_none(columns, message):
    with pytest.raises(DataError, match=message):
        csr_arrays(pa.table(columns))


def test_a_frames_column_that_is_no_number_is_named():
    frame = pd.DataFrame({"age": [1.0, 2.0, 3.0], "city": ["a", "b", "c"], "pay": [1.0, np.nan, 2.0]})
    y = [0, 1, 1]
    with pytest.raises(
        DataError,
        match="column city: 'a' is not a number; text and missing values become features where the label is named",
    ) as caught:
        Arrays(frame, y)
    assert caught.value.column == "city"
    for form in (frame[["age", "pay"]], pa.table({"age": [1.0, 2.0, 3.0], "pay": [1.0, np.nan, 2.0]})):
        with pytest.raises(DataError, match="row 1, column pay: a value is NaN.*FeatureTransformer"):
            bigclf.fit(form, y)
    with pytest.raises(DataError, match="row 1, column 1: a value is NaN or infinite .both count from 0.$"):
        bigclf.fit(frame[["age", "pay"]].to_numpy(), y)


@pytest.mark.parametrize("label", [[0, 1, 0, 1], [True, False, True, False], [0.5, 0.25, 0.0, 0.5]])
def test_a_column_that_is_the_label_is_warned_of(label):
    frame = pd.DataFrame({"a": [1.0, 0, 2, 3], "y": label, "none": 0.0})
    real = label[0] == 0.5
    (told,) = (text for text in Arrays(frame, frame.y, real_labels=real).warnings if "equals the labels" in text)
    assert "column 'y'" in told and "df.drop(columns=['y'])" in told
    assert not any("equals" in text for text in Arrays(frame.drop(columns="y"), frame.y, real_labels=real).warnings)
    assert not any("equals" in text for text in Arrays(frame, frame.y[::-1], real_labels=real).warnings)


@pytest.mark.parametrize(
    ("word", "ours"),
    [("tolerance", "tol"), ("max_iter", "epochs"), ("n_jobs", "workers"), ("random_state", "seed")],
)
def test_scikit_learns_words_are_told_by_ours(word, ours):
    for algo in ("dcd", "auto"):
        with pytest.raises(TypeError, match=f"no method has it; bigclf calls it {ours}"):
            bigclf.fit(np.eye(2), [0, 1], algo=algo, **{word: 1})


def test_options_of_the_shell_are_told_by_their_name_in_python():
    for call in (bigclf.fit, functools.partial(bigclf.convert, out="o")):
        with pytest.raises(TypeError, match="spec= is for the command line only. In Python, pass features="):
            call("r.csv", spec="spec.yaml")
        with pytest.raises(TypeError, match='label= is for the command line only. In Python, pass y="COLUMN"'):
            call("r.csv", label="bought")
        with pytest.raises(TypeError, match="holdout= is for the command line only. In Python, split the rows"):
            call("r.csv", holdout=0.2)
    with pytest.raises(TypeError, match="convert has no 'shufle'; did you mean shuffle?"):
        bigclf.convert("r.svm", "o", shufle=False)
