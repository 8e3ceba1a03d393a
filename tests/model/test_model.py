"""The model: what it predicts, and a file that holds up against damage and malice."""

import base64
import json
import pickle
import struct
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from making import shards_of

import bigclf
from bigclf.conversion.convert import write_shards
from bigclf.data.shards import sealed, unsealed
from bigclf.errors import DataError, ModelFormatError, SchemaError
from bigclf.model.explanations import explain
from bigclf.model.model import Model, load

D = 7


def make(classes=(-1, 1), seed=0, dtype=np.float64, d=D, **kwargs):
    rng = np.random.default_rng(seed)
    rows = 1 if len(classes) == 2 else len(classes)
    method = {"name": "dcd", "loss": "hinge", "C": 1.0}
    return Model(rng.normal(size=(rows, d)).astype(dtype), rng.normal(size=rows), classes, method=method, **kwargs)


def rows(n=50, d=D, seed=1):
    return sp.random(n, d, 0.5, format="csr", random_state=seed, dtype=np.float32)


def shards(X, y, out, **kwargs):
    classes, codes = np.unique(y, return_inverse=True)
    return write_shards([(X.indptr.astype(np.int64), X.indices, X.data, codes)], str(out), classes=classes, **kwargs)


# Predicting


@pytest.fixture(scope="module")
def of_parquet(tmp_path_factory):
    """A model of Parquet of numbers, and its columns as a frame, with the labels apart."""
    import pandas as pd

    rng = np.random.default_rng(8)
    frame = pd.DataFrame({"a": rng.normal(size=200), "b": 9 * rng.normal(size=200)})
    labels = frame.a + 0.1 * rng.normal(size=200) > 0
    path = tmp_path_factory.mktemp("numbers") / "t.parquet"
    frame.assign(y=labels).to_parquet(path)
    return bigclf.fit(path, y="y", algo="dcd", loss="logistic", progress=False), path, frame, labels


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_frames_of_other_columns_than_a_model_parquet_trained_on_are_refused(of_parquet, kind):
    model, path, frame, labels = of_parquet

    import pyarrow as pa

    def of(table):
        if kind == "polars":
            return pytest.importorskip("polars").from_pandas(table)
        return table if kind == "pandas" else pa.Table.from_pandas(table)

    asked = [
        model.decision_function, model.predict, model.predict_proba, lambda X: bigclf.evaluate(model, X, labels),
        lambda X: bigclf.calibrate(model, X, labels), lambda X: model.explain_row(X[:1]),
    ]  # fmt: skip
    swapped, others = of(frame[["b", "a"]]), of(frame.rename(columns={"a": "q"}))
    for ask in asked:
        ask(of(frame))
        with pytest.raises(ValueError, match="columns in another order .*: column 0 is 'b' and was 'a'; give") as told:
            ask(swapped)
        ask(eval(str(told.value).rpartition("give them as ")[2], {"X": swapped, "model": model}))  # the cure
        with pytest.raises(ValueError, match="other columns .*: unknown to it 'q'; missing 'a'$"):
            ask(others)
    with pytest.raises(ValueError, match="missing 'a'$"):
        bigclf.predict(model, others)
    expected = model.predict(frame).tolist()
    for rows in (frame, frame[["b", "a"]], frame.assign(c=1)):  # a frame is answered by the names
        assert list(bigclf.predict(model, of(rows))["prediction"].to_numpy()) == expected
    assert bigclf.evaluate(model, path).accuracy == bigclf.evaluate(model, frame, labels).accuracy


def test_frames_to_sweep_on_are_of_the_columns_that_parquet_trained_on_has(of_parquet):
    _, path, frame, labels = of_parquet
    options = {"grid": {"C": [1.0]}, "folds": 0, "algo": "dcd", "progress": False}
    for learned in ({"data": path, "y": "y"}, {"data": frame, "y": labels}):
        bigclf.sweep(**learned, validate=(frame, labels), **options)
        with pytest.raises(ValueError, match=r"another order .* give them as X\[\['a', 'b'\]\]"):
            bigclf.sweep(**learned, validate=(frame[["b", "a"]], labels), **options)
        with pytest.raises(ValueError, match=r"another order .* give them as X\.select\(\['a', 'b'\]\)"):
            bigclf.sweep(**learned, validate=(pa.table(frame[["b", "a"]]), labels), **options)


@pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning")
def test_init_reads_columns_in_another_order_by_those_that_parquet_trained_on_has(of_parquet, tmp_path):
    _, path, frame, labels = of_parquet
    init = bigclf.fit(path, y="y", algo="newton", epochs=2, progress=False)
    frame.assign(y=labels)[["b", "y", "a"]].to_parquet(tmp_path / "order.parquet")
    frame.assign(y=labels, c=1.0)[["c", "b", "y", "a"]].to_parquet(tmp_path / "more.parquet")
    frame.assign(y=labels).drop(columns="a").to_parquet(tmp_path / "less.parquet")
    options = {"y": "y", "algo": "newton", "epochs": 2, "init": init, "progress": False}
    expected, found = bigclf.fit(path, **options), bigclf.fit(tmp_path / "order.parquet", **options)
    assert found.columns == expected.columns
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    assert bigclf.fit(tmp_path / "more.parquet", **options).columns["features"] == ["a", "b", "c"]
    with pytest.raises(DataError, match="missing 'a'"):
        bigclf.fit(tmp_path / "less.parquet", **options)


@pytest.mark.parametrize("classes", [(-1, 1), (0, 1, 2)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scores_are_the_formula_for_dense_sparse_frames_and_shards(tmp_path, classes, dtype):
    import pandas as pd

    model, X = make(classes, dtype=dtype), rows()
    expected = X.toarray().astype(np.float64) @ model.coef_.T.astype(np.float64) + model.intercept_
    expected = expected[:, 0] if len(classes) == 2 else expected
    y = np.arange(X.shape[0]) % len(classes)
    stored = shards(X, y, tmp_path / "s", n_features=D)
    for form in (X, X.tocoo(), X.toarray(), pd.DataFrame(X.toarray()), stored, str(tmp_path / "s")):
        tolerance = 1e-12 if dtype == np.float64 and not hasattr(form, "files") else 1e-5
        np.testing.assert_allclose(model.decision_function(form), expected, rtol=tolerance, atol=tolerance)


def test_zero_is_positive_and_ties_go_to_the_smallest_class():
    X = np.zeros((1, 2))
    assert Model(np.zeros((1, 2)), [0.0], ["no", "yes"]).predict(X) == ["yes"]
    assert Model(np.zeros((3, 2)), [1.0, 2.0, 2.0], [10, 20, 30]).predict(X) == [20]


def test_more_features_than_the_model(tmp_path):
    model, X = make(), rows(d=D + 3)
    with pytest.raises(ValueError, match="10 features"):
        model.predict(X)
    known = model.decision_function(X[:, :D])
    with pytest.warns(UserWarning, match="entries have features"):
        np.testing.assert_allclose(model.decision_function(X, unseen="ignore"), known)
    stored = shards(X, np.arange(50) % 2, tmp_path / "s", n_features=D + 3)
    with pytest.warns(UserWarning, match=f"{int((X.indices >= D).sum()):,} entries"):
        np.testing.assert_allclose(model.decision_function(stored), known, rtol=1e-6)
    for ask in (model.decision_function, model.predict):
        with pytest.warns(UserWarning, match="entries have features") as told:
            ask(stored)
        assert told[0].filename == __file__  # the line that asked
    with pytest.raises(ValueError, match="unseen"):
        model.decision_function(stored, unseen="error")


def test_wrong_arrays_are_refused():
    model = make()
    with pytest.raises(ValueError, match="features"):
        model.predict(np.zeros((2, D - 1)))
    with pytest.raises(ValueError, match="2D"):
        model.predict(np.zeros(D))
    with pytest.raises(ValueError, match="NaN"):
        model.predict(np.full((1, D), np.nan))


def test_probabilities_only_from_losses_that_model_them():
    model = make()
    with pytest.raises(AttributeError, match="logistic"):
        _ = model.predict_proba
    assert not hasattr(model, "predict_proba")
    model.method["loss"] = "logistic"
    X = rows().toarray()
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_allclose(p[:, 1], 1 / (1 + np.exp(-model.decision_function(X))))
    assert np.isfinite(model.predict_proba(X * 1e6)).all()
    three = make((1, 2, 3), d=1)
    three.method["loss"], three.coef_, three.intercept_ = "logistic", -np.array([[1e4], [1e4], [2e4]]), np.zeros(3)
    np.testing.assert_array_equal(three.predict_proba(np.ones((1, 1))), [[0.5, 0.5, 0]])  # no 0 / 0 where all are 0


@pytest.mark.parametrize(
    ("weights", "bias", "classes", "message"),
    [
        (np.zeros((2, 3)), [0, 0], [0, 1], "two|2 classes"),
        (np.zeros((1, 3)), [0], [1, 0], "ascend"),
        (np.zeros((1, 3)), [0], [1, 1], "ascend"),
        (np.full((1, 3), np.nan), [0], [0, 1], "NaN"),
        (np.zeros((1, 3)), [np.inf], [0, 1], "NaN"),
        (np.zeros((1, 3)), [0], [0], "two classes"),
        (np.zeros((1, 3)), [0], np.array(["a", 1], dtype=object), "mixed"),
    ],
)
def test_a_model_that_makes_no_sense_cannot_be_made(weights, bias, classes, message):
    with pytest.raises(ValueError, match=message):
        Model(weights, bias, classes)


# The file

CLASSES = [
    np.array([-1, 1]),
    np.array([0.25, 1.5, 1e300]),
    np.array([False, True]),
    np.array(["no", "yes"]),
    np.array(["à", "ü", "中"], dtype=object),
    np.array([0, 200], dtype=np.uint8),
    np.array([1, 2], dtype=np.int32),
]


@pytest.mark.parametrize("classes", CLASSES, ids=lambda classes: str(classes.dtype))
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_saved_and_loaded_it_is_the_same(tmp_path, classes, dtype):
    certificate = {"primal": 11433.8, "dual": 11433.7, "gap": np.float64(1e-5), "reads": 3}
    model = make(classes, dtype=dtype, certificate=certificate, facts={"rows": np.int64(5), "text": "ä"})
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.coef_.dtype == dtype and again.classes_.dtype == classes.dtype
    assert (again.coef_ == model.coef_).all() and (again.intercept_ == model.intercept_).all()
    assert again.classes_.tolist() == classes.tolist()
    assert again.method == model.method and again.certificate == certificate and again.facts == {"rows": 5, "text": "ä"}
    assert again.digest() == model.digest()
    X = rows().toarray()
    assert (again.predict(X) == model.predict(X)).all()
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_safetensors_itself_reads_the_file(tmp_path):
    from safetensors.numpy import load_file

    model = make()
    model.save(tmp_path / "m")
    assert (load_file(tmp_path / "m")["weights"] == model.coef_).all()


def test_a_failed_save_keeps_the_old_file(tmp_path):
    model = make()
    model.save(tmp_path / "m")
    model.facts["bad"] = object()
    with pytest.raises(TypeError):
        model.save(tmp_path / "m")
    assert load(tmp_path / "m").digest() == model.digest()
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def saved() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        make().save(Path(directory) / "m")
        return (Path(directory) / "m").read_bytes()


def parts(data: bytes):
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header, body) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def refused(tmp_path, data: bytes, match: str) -> None:
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(ModelFormatError, match=match) as caught:
        load(tmp_path / "m")
    assert str(tmp_path / "m") in str(caught.value)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_named_and_never_opened(tmp_path, protocol):
    for thing in ({"a": [1, 2]}, [1.5], (1, 2), make().coef_):
        refused(tmp_path, pickle.dumps(thing, protocol), "pickle")


@pytest.mark.parametrize(
    ("data", "what"),
    [(b"PK\x03\x04" + b"x" * 50, "zip"), (b"\x89HDF\r\n\x1a\n" + b"x" * 50, "HDF5"), (b"PAR1" + b"x" * 50, "Parquet"),
     (b"\x93NUMPY" + b"x" * 50, "numpy"), (b"solver_type L2R", "LIBLINEAR"), (b"", "cut short"), (b"abc", "cut short"),
     (b"\xff" * 100, "longer than the file"), (b"1 3:0.5 7:1\n-1 2:1\n", "text, not a bigclf model; the model"),
     (b"class,a,b\nx,1,2\n", "this is text"), ("1 |a b\u00e4r\n".encode() * 999, "this is text")],
)  # fmt: skip
def test_other_files_are_named(tmp_path, data, what):
    refused(tmp_path, data, what)


def test_headers_that_lie(tmp_path):
    data = saved()
    header, body = parts(data)
    refused(tmp_path, struct.pack("<Q", 2**63) + data[8:], "longer than the file")
    refused(tmp_path, struct.pack("<Q", 2**64 - 1) + data[8:], "longer than the file")
    refused(tmp_path, joined(b"[]", body), "no table")
    refused(tmp_path, joined(b"{" * 1000, body), "unreadable")
    refused(tmp_path, joined(b'{"a":' * 200_000, body), "unreadable")
    refused(tmp_path, joined(b'{"bias": 1, "bias": 2}', body), "twice")
    for change, match in [
        ({"shape": [1, -7]}, "impossible"),
        ({"shape": [2**62, 2**62]}, "shape|lies|impossible"),
        ({"shape": [1, D + 1]}, "shape"),
        ({"shape": [True, D]}, "impossible"),
        ({"dtype": "I64"}, "no floating-point"),
        ({"dtype": "F65"}, "no known type"),
        ({"dtype": "F32"}, "shape"),
        ({"data_offsets": [0, 2**40]}, "shape|outside"),
        ({"data_offsets": [-8, 48]}, "impossible"),
        ({"data_offsets": [56, 0]}, "impossible"),
        ({"data_offsets": "ab"}, "no known type|impossible"),
    ]:
        broken = {**header, "weights": {**header["weights"], **change}}
        refused(tmp_path, joined(broken, body), match)
    for offsets in ([0, 56], [16, 72]):
        overlap = {**header, "weights": {**header["weights"], "data_offsets": offsets}}
        refused(tmp_path, joined(overlap, body), "overlaps")
    refused(tmp_path, joined({k: v for k, v in header.items() if k != "weights"}, body), "longer")
    refused(tmp_path, data + b"x", "longer")
    refused(tmp_path, data[:-1], "outside|shorter")


@pytest.mark.parametrize(
    "lie",
    [lambda header, data: struct.pack("<Q", 2**63) + data[8:],
     lambda header, data: struct.pack("<Q", 2**31) + data[8:],
     lambda header, data: joined({**header, "weights": {**header["weights"], "shape": [2**40, D]}}, parts(data)[1]),
     lambda header, data: joined({**header, "weights": {"dtype": "F64", "shape": [2**30], "data_offsets": [0, 2**33]}},
                                 parts(data)[1]),
     lambda header, data: joined(b'{"a":' * 100_000, parts(data)[1])],
    ids=["length", "2 GiB", "shape", "offsets", "nested"],
)  # fmt: skip
def test_what_a_lying_file_has_allocated_is_bounded_by_its_size(tmp_path, lie):
    data = lie(parts(saved())[0], saved())
    (tmp_path / "m").write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFormatError):
            load(tmp_path / "m")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20 + 20 * len(data)


def with_text(header, **changes):
    text = {**unsealed(header["__metadata__"]["bigclf"]), **changes}
    return {**header, "__metadata__": {"bigclf": sealed(text).decode()}}


def test_metadata_that_lies(tmp_path):
    header, body = parts(saved())
    refused(tmp_path, joined(with_text(header, version=9), body), "newer")
    refused(tmp_path, joined(with_text(header, version="1"), body), "newer")
    refused(tmp_path, joined(with_text(header, format="other"), body), "not a bigclf model")
    refused(tmp_path, joined({**header, "__metadata__": {}}, body), "not a bigclf model")
    refused(tmp_path, joined({**header, "__metadata__": {"bigclf": 7}}, body), "metadata")
    refused(tmp_path, joined(with_text(header, checksums={}), body), "checksum")
    for classes in ({"type": "int64", "values": [1]}, {"type": "int64", "values": ["a", "b"]},
                    {"type": "V8", "values": [1, 2]}, {"type": "int64", "values": [2, 1]},
                    {"type": "<U999999", "values": [1, 2]}, [1, 2], {},
                    {"type": "uint8", "values": [1, 300]}):  # fmt: skip
        refused(tmp_path, joined(with_text(header, classes=classes), body), "not a usable model")


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_flipped_bit_is_never_believed(data):
    """A changed bit anywhere is refused, or was in white space."""
    whole = saved()
    model = Model._from_bytes(whole)
    place = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        again = Model._from_bytes(bytes(flipped))
    except ModelFormatError:
        return
    assert again.digest() == model.digest() and again.method == model.method


def test_missing_file_and_directory(tmp_path):
    with pytest.raises(ModelFormatError, match="no such file"):
        load(tmp_path / "a" / "b")
    with pytest.raises(ModelFormatError, match="directory"):
        load(tmp_path)


# The file that version 1 of the format wrote for weights (1/2, -2), bias 1/4 and classes -1, 1.
GOLDEN = (
    r"Z~_1T00000dm>+7ZDn*}WMOn+Utc0Rdm>_KXJc$;B03^_Tq0v-"
    r"a&&2CX=7n@Wn3aUAbVUQWOZR|Tp~IkGA=MIAY3A6VQ^d`Iv_AEFf1TkB5-nPZDDL&B03;4E-)-"
    r"0Tq1I1VPtb$B03;5eJmhcB4cP}V{3DDZCoNcAY39bG-Nk3IA%3CF*q_~V=yx`H8M0fIW=KqH8C?aVmCQlA}k<WB4cP}V{3DDZF5{"
    r"AIv{&oB4TM_b6g@iAY39eWMnvEVPiKrH8o;0G&f{7G&MChWn(mEGBPnVHZ)>fA}k<WB6nqJXJ~YDTp~IkTq0sOWHn_pW@cqHIc79"
    r"sWivKrG&43iGBRX2G&V3|Wj9<ReJmhcB4cb}b8}^LTp~Ikdt4%Pd2nT1B03;kB57`PHZ)u!EFfGWc42IFWpi92Iv`suF)Sc4U41M"
    r"dTq0&+V{~&|B03;@eJmhcB4%Y_bairNb6g@iAbVUQYiVv|Tp~IkTq0*_c4cl{A}k<WB6ekRb7^mGTp~IkF?}o`Tq0&~a&2LBTp~I"
    r"kTq0s=XJc$;Ep2aPWo%p`EFfGWZDn+5Z)98|Iv{&oB5ZGSb6g@iAY3A7X>Mm_Tp}zWTq15^ZDm{{Iv`vkWMgDpB7H0%Tq1U5a&u{"
    r"KZd@WdATfO+eJmnkX<>6BI(s5yba`-PB03^QHZ&qEB6DbAaAhJoTQOZMB4lB7VP9`%W^-k9b0RuhFf2G-"
    r"eJmn(Woc(<baNs)dm?0Xd2nSSIwD3kG$Je_b7*03Wg<FTF)T7&EFxrKbYWj_W@d9`baNs)TR1E-"
    r"G+ljtARr(h00000007WG00000007`W000000002M"
)


def test_the_golden_file_of_version_1_still_reads():
    model = Model._from_bytes(base64.b85decode(GOLDEN))
    assert model.predict(np.array([[1.0, 0.0], [0.0, 1.0]])).tolist() == [1, -1]
    assert model.method == {"name": "dcd", "loss": "hinge"} and model.certificate["reads"] == 3


def test_a_model_is_written_below_directories_that_are_made(tmp_path):
    make().save(tmp_path / "a" / "b" / "m.bigclf")
    assert load(tmp_path / "a" / "b" / "m.bigclf").coef_.shape == make().coef_.shape


# Names of columns


def foreign_parts(directory, n=60, **more):
    """Two Parquet files as a data frame leaves them: x0 to x4, an index, the label ``churn``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    for k in range(2):
        x = rng.standard_normal((n, 5)).astype(np.float32)
        columns = {f"x{j}": x[:, j] for j in range(5)}
        churn = np.where(x[:, 0] + x[:, 1] > 0, "yes", "no")
        table = {"churn": churn, "importance": np.ones(n), "__index_level_0__": np.arange(n), **columns, **more}
        pq.write_table(pa.table(table), directory / f"part-{k}.parquet")
    return str(directory / "part-*.parquet")


NAMES = {"label": "churn", "features": "*", "weight": "importance"}


def test_a_model_remembers_the_names_of_columns(tmp_path):
    """The files that it learned from are measured and predicted without saying them again."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = foreign_parts(tmp_path)
    model = bigclf.fit(data, columns=NAMES, epochs=5, algo="pa1")
    model.save(tmp_path / "m.bigclf")
    again = load(tmp_path / "m.bigclf")
    names = [f"x{j}" for j in range(5)]
    assert again.columns == model.columns == {**NAMES, "features": names}
    with_names = bigclf.Dataset(data, columns=NAMES)
    assert bigclf.evaluate(again, data).accuracy == bigclf.evaluate(again, with_names).accuracy > 0.9
    assert np.array_equal(again.predict(data), again.predict(with_names))
    assert bigclf.calibrate(again, data).predict_proba(data).shape == (120, 2)
    assert explain(again, data=data)["classes"]
    table = pq.read_table(tmp_path / "part-0.parquet").drop_columns(["churn", "importance"])
    pq.write_table(table.append_column("x9", pa.array(np.ones(60))), tmp_path / "new.parquet")
    assert np.array_equal(again.predict(tmp_path / "new.parquet"), again.predict(data)[:60])
    pq.write_table(table.drop_columns(["x3"]), tmp_path / "less.parquet")
    with pytest.raises(SchemaError, match="x3"):
        again.predict(tmp_path / "less.parquet")


def test_a_model_with_names_of_columns_reads_shards_by_their_own(tmp_path):
    model = bigclf.fit(foreign_parts(tmp_path), columns=NAMES, epochs=2, algo="pa1")
    x = sp.random(40, 5, 0.5, "csr", np.float32, random_state=0)
    shards_of(tmp_path / "s", x, np.where(np.arange(40) % 2, "yes", "no"))
    assert model.predict(tmp_path / "s").shape == (40,)
    assert bigclf.evaluate(model, tmp_path / "s").n == 40


def test_a_sweep_measures_on_files_with_the_same_names(tmp_path):
    data = foreign_parts(tmp_path)
    found = bigclf.sweep(data, grid={"C": [0.1, 1]}, columns=NAMES, folds=0, validate=data, epochs=2, algo="pa1")
    assert found.best_model.columns["label"] == "churn"


def test_the_command_line_reads_the_training_files_again(tmp_path):
    from click.testing import CliRunner

    from bigclf.cli import main

    data, model = foreign_parts(tmp_path), str(tmp_path / "m.bigclf")
    said = "label=churn,features=*,weight=importance"
    lines = [
        ["fit", data, "-o", model, "--columns", said, "--algo", "pa1", "--epochs", "2"],
        ["evaluate", model, data], ["predict", model, data, "-o", str(tmp_path / "out")],
        ["calibrate", model, data, "-o", str(tmp_path / "c.bigclf")], ["explain", model, "--data", data],
        ["explain", model, "--data", data, "--row", "3"],
    ]  # fmt: skip
    for line in lines:
        done = CliRunner().invoke(main, line)
        assert done.exit_code == 0, (line, done.output)


@pytest.mark.parametrize("columns", [3, ["label"], {"label": 1}, {"features": [1]}, {"rows": "x"}])
def test_names_of_columns_in_a_file_are_checked(tmp_path, columns):
    model = Model(np.zeros((1, 3)), np.zeros(1), np.array([0, 1]), columns={"label": "y"})
    model.columns = columns
    model.save(tmp_path / "m.bigclf")
    with pytest.raises(ModelFormatError, match="columns"):
        load(tmp_path / "m.bigclf")
