"""Probabilities: both methods against scikit-learn's, one read, weights, files, figures; data where they must help."""

import base64
import copy
import gzip
import json
import math
import tarfile

import numpy as np
import pytest
from making import random_rows, shards_of
from sklearn.datasets import load_svmlight_file
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from test_cli import bigclf as command
from test_model import joined, parts, refused, with_text

import bigclf
from bigclf.api.calibrate import Tallying
from bigclf.api.predict import predict
from bigclf.errors import DataError, MemoryBudgetError, RunError
from bigclf.metrics.figures import RELIABILITY_BINS, evaluate
from bigclf.model.calibration import Calibration, Tally, learned, platt, targets
from bigclf.model.model import Model, load

D = 12
METHODS = pytest.mark.parametrize("method", ["platt", "isotonic"])


def rows_and_model(classes=(-1, 1), n=900, seed=0):
    """A model whose scores are informative and far from log odds, rows, labels and weights."""
    rng = np.random.default_rng(seed)
    x, _ = random_rows(n, D, 0.5, seed=seed)
    k = 1 if len(classes) == 2 else len(classes)
    weights = rng.standard_normal((k, D))
    scores = x @ weights.T + 2 * rng.standard_normal((n, k))
    codes = (scores[:, 0] > 0.5).astype(int) if k == 1 else scores.argmax(1)
    model = Model(3 * weights, rng.standard_normal(k), classes, method={"name": "pa1", "loss": "hinge"})
    return model, x, np.array(classes)[codes], rng.integers(0, 4, n).astype(float)


def tally_of(scores, positive, weights):
    """Every row by itself, in the order of the scores: nothing is gathered."""
    order = np.argsort(scores, kind="stable")
    s, p, w = scores[order], positive[order], weights[order]
    return Tally(s, w * p, w * ~p)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_platt_is_the_logistic_regression_of_his_targets(scale):
    model, x, y, weights = rows_and_model()
    f, positive = model.decision_function(x) * scale, y == 1
    tally = tally_of(f[weights > 0], positive[weights > 0], weights[weights > 0])
    a, b = platt(tally)
    high, low = targets(tally)
    assert high == (weights[positive].sum() + 1) / (weights[positive].sum() + 2)
    t = np.where(positive, high, low)  # scikit-learn takes soft targets as rows of both kinds
    theirs = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000).fit(
        np.concatenate([f, f])[:, None] / scale,
        np.repeat([1, 0], f.size),
        np.concatenate([weights * t, weights * (1 - t)]),
    )
    assert -a * scale == pytest.approx(theirs.coef_[0, 0], rel=1e-5)
    assert -b == pytest.approx(theirs.intercept_[0], rel=1e-4, abs=1e-5)


def test_isotonic_is_scikit_learns_regression_of_the_same_targets():
    model, x, y, weights = rows_and_model()
    f, positive = np.round(model.decision_function(x), 1), y == 1  # many values are the same
    copied = Model(model.coef_, model.intercept_, model.classes_)
    copied.decision_function = lambda *_: f
    found = bigclf.calibrate(copied, x, y, method="isotonic", sample_weight=weights)
    high, low = targets(tally_of(f, positive, weights))
    theirs = IsotonicRegression(out_of_bounds="clip").fit(f, np.where(positive, high, low), weights)
    ask = np.linspace(f.min() - 1, f.max() + 1, 500)
    np.testing.assert_allclose(found.probabilities(ask)[:, 1], theirs.predict(ask), atol=1e-12)
    assert found.calibration.values[1].min() > 0 and found.calibration.values[1].max() < 1
    assert found.calibration.values.shape[1] < np.unique(f).size / 2  # only where pieces begin and end


@METHODS
@pytest.mark.parametrize("classes", [(-1, 1), ("ant", "bee", "cow")])
def test_shards_in_one_read_give_what_arrays_give(method, classes, tmp_path, monkeypatch):
    model, x, y, weights = rows_and_model(classes)
    data = shards_of(tmp_path / "shards", x, y, weights.astype(np.float32), shard_nnz=2000)
    decode, seen = type(data).decode, []
    monkeypatch.setattr(type(data), "decode", lambda self, *place: seen.append(place) or decode(self, *place))
    stored, here = (bigclf.calibrate(model, *rows, method=method, **options) for rows, options in
                    [((data,), {}), ((x, y), {"sample_weight": weights})])  # fmt: skip
    assert sorted(seen) == sorted(set(zip(data.chunks.file.tolist(), data.chunks.row_group.tolist(), strict=True)))
    np.testing.assert_allclose(stored.predict_proba(x), here.predict_proba(x), rtol=1e-5)
    assert stored.calibration.facts == {"rows": int((weights > 0).sum()), "unknown": 0, "weighted": True}
    repeated = bigclf.calibrate(model, x[np.repeat(np.arange(y.size), weights.astype(int))],
                                np.repeat(y, weights.astype(int)), method=method)  # fmt: skip
    np.testing.assert_allclose(here.predict_proba(x), repeated.predict_proba(x), rtol=1e-8)
    assert (here.predict(x) == model.predict(x)).all() and model.calibration is None


def test_classes_are_calibrated_each_against_the_rest_and_sum_to_1():
    model, x, y, _ = rows_and_model(("ant", "bee", "cow"))
    for method in ("platt", "isotonic"):
        found = bigclf.calibrate(model, x, y, method=method)
        alone = []
        for k, name in enumerate(model.classes_):
            one = Model(model.coef_[k : k + 1], model.intercept_[k : k + 1], [0, 1])
            alone.append(bigclf.calibrate(one, x, (y == name).astype(int), method=method).predict_proba(x)[:, 1])
        expected = np.stack(alone, axis=1)
        np.testing.assert_allclose(found.predict_proba(x), expected / expected.sum(1, keepdims=True), rtol=1e-12)


@METHODS
def test_where_memory_is_short_neighbours_are_taken_together(method):
    rng = np.random.default_rng(0)
    f = rng.standard_normal(100_000)
    positive = f + rng.standard_normal(f.size) > 0
    small, large = Tallying(60_000), Tallying(10**6)
    for part in np.split(np.arange(f.size), 10):
        for tallying in (small, large):
            tallying.add(f[part], positive[part], np.ones(part.size))
    few, all_of_them = small.result(), large.result()
    assert few.scores.size < 60_000 < all_of_them.scores.size == f.size
    assert (np.diff(few.scores) > 0).all() and few.positive.sum() == positive.sum()
    a, b = (learned(method, [tally], {}).positive(f)[0] for tally in (few, all_of_them))
    assert np.abs(a - b).mean() < 1e-3
    crowd = Tallying(100)
    with pytest.raises(MemoryBudgetError, match="too many"):
        crowd.add(f, positive, np.ones(f.size))
    with pytest.raises(MemoryBudgetError, match="give more memory"):
        bigclf.calibrate(Model([[1.0]], [0.0], [0, 1]), f[:, None], positive.astype(int), memory="100KB")


@METHODS
def test_extreme_scores_and_separable_rows_give_probabilities_that_are_none_of_0_and_1(method):
    x = np.array([[-1e30], [-1.0], [0.0], [1.0], [1e30]])
    model = Model([[1.0]], [0.0], [0, 1])
    found = bigclf.calibrate(model, x, [0, 0, 0, 1, 1], method=method).predict_proba(np.array([[-2.0], [2.0], [0.5]]))
    assert np.isfinite(found).all() and (found > 0).all() and (found < 1).all()
    flat = bigclf.calibrate(Model([[0.0]], [0.0], [0, 1]), x, [0, 0, 1, 1, 1], method=method)
    np.testing.assert_allclose(flat.predict_proba(x)[:, 1], (2 * 1 / 4 + 3 * 4 / 5) / 5, rtol=1e-6)  # the mean target


def test_what_is_refused():
    model, x, y, weights = rows_and_model()
    with pytest.raises(ValueError, match="method must be one of platt, isotonic"):
        bigclf.calibrate(model, x, y, method="sigmoid")
    with pytest.raises(ValueError, match="predicts numbers"):
        bigclf.calibrate(Model(model.coef_, model.intercept_, None), x, y)
    with pytest.raises(ValueError, match="too many to calibrate"):
        bigclf.calibrate(Model(np.zeros((1001, D)), np.zeros(1001), np.arange(1001)), x, y)
    with pytest.raises(DataError, match="both classes; none has the label -1"):
        bigclf.calibrate(model, x, np.ones(y.size, int))
    with pytest.raises(TypeError, match="needs its labels"):
        bigclf.calibrate(model, x)
    with pytest.raises(ValueError, match="X has 900 rows and y has 3"):
        bigclf.calibrate(model, x, [1, -1, 1])
    with pytest.raises(AttributeError, match=r"bigclf\.calibrate, `bigclf calibrate`.*loss='hinge'"):
        model.predict_proba(x)


def test_labels_nobody_knows_and_classes_nobody_has_are_said(caplog):
    model, x, y, _ = rows_and_model(("ant", "bee", "cow"))
    y = y.copy()
    y[y == "cow"] = "dog"
    found = bigclf.calibrate(model, x, y)
    lost = int((y == "dog").sum())
    assert f"{lost:,} rows have labels that the model does not know" in caplog.text and "'cow'" in caplog.text
    assert found.calibration.facts["unknown"] == lost and found.calibration.facts["rows"] == y.size - lost
    assert found.predict_proba(x)[:, 2].max() < 0.02


# The file


@METHODS
@pytest.mark.parametrize("classes", [(-1, 1), ("ant", "bee", "cow")])
def test_a_calibration_is_kept_in_the_file(method, classes, tmp_path):
    model, x, y, _ = rows_and_model(classes)
    found = bigclf.calibrate(model, x, y, method=method)
    found.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert (again.predict_proba(x) == found.predict_proba(x)).all() and again.digest() == found.digest()
    assert again.calibration.facts == found.calibration.facts and model.digest() != found.digest()
    header = json.loads(parts((tmp_path / "m").read_bytes())[0]["__metadata__"]["bigclf"])
    assert header["version"] == 5
    model.save(tmp_path / "plain")
    assert json.loads(parts((tmp_path / "plain").read_bytes())[0]["__metadata__"]["bigclf"])["version"] == 1


def test_a_calibration_that_lies_is_refused(tmp_path):
    model, x, y, _ = rows_and_model()
    bigclf.calibrate(model, x, y).save(tmp_path / "m")
    header, body = parts((tmp_path / "m").read_bytes())
    for lie in ({"method": "sigmoid", "facts": {}}, {"facts": {}}, {"method": []}, {"method": "platt"}, 7):
        refused(tmp_path, joined(with_text(header, calibration=lie), body), "not a usable model")
    rising, ends = np.array([[0.0, 1.0], [0.2, 0.8]]), np.array([0, 2])
    Calibration("isotonic", rising, ends, {}).check(1)
    for values, places in [
        (rising[:, ::-1], ends), (rising * 2, ends), (rising, ends + 1), (rising * np.nan, ends), (rising[:1], ends),
        (rising, np.array([0, 1, 2])), (rising, np.array([0.0, 2.0])), (rising[0], ends),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match="calibration"):
            Calibration("isotonic", values, places, {}).check(1)
    with pytest.raises(ValueError, match="calibration"):
        Calibration("platt", rising, ends, {}).check(1)


# What version 5 of the format wrote for weights (1/2, -2), bias 1/4, classes -1 and 1, A = -3/2 and B = 1/8.
GOLDEN = (
    r"xB~zH00000dm>+7ZDn*}WMOn+Utc0Rdm>_KXJc$;B03^_Tq0v(Y-wV0VRUJ4Zd@WdAbVUQW?^G=b6g@iAbVUQa&LEYTp~IkG%ze6Tq1RDYi@6M"
    r"Zd@WdATTT-Tq1X6X=iA3Wn^3;Iv{3YY;$FOEFfGWZDn+5Z)98|Iv`vkaBN|8bX+2REFfGWV`Xx5X=Z6-VRU6&B03;$b!==bAY3A2Xk}w-b9HT8"
    r"B03;kA~G{IVq;-7G-YBrGc-9iVPa%tH90V1G&wglW;J4FVO%0CAY3A2Xk}w-b9HTVTp~Ikdt4%7X<>6*B03;kA~a-VIAURAH#s#mVly;1WH&T5"
    r"H8*8rG-fg~F*G(bVq79DAY3A2VQgt)a$$67Z*DGSZe(*@B03;kA~-ZOWoBkFVL3B7Ic7C9Fk>+?H8eRjV>3BsF*Y_aI9wtuAY3A2VQgt)a$$67"
    r"Z*DGjVQh6}b6g@iAY39fH#9RcHZx&1G%++VHa0Y3FlIDlIWRI}F=93_G&V9^A}k<WB6nqJXJ~YDTp~IkTq0sOWHn_pW@cqHIc79sWivKrG&43i"
    r"GBRX2G&V3|Wj9<ReJmhcB4cb}b8}^LTp~Ikdt4%Pd2nT1B03;kB57`PHZ)u!EFfGWc42IFWpi92Iv`suF)Sc4U41MdTq0&+V{~&|B03;@eJmhc"
    r"B4%Y_bairNb6g@iAbVUQYiVv|Tp~IkTq0*_c4cl{A}k<WB6ekRb7^mGTp~IkF?}o`Tq0&~a&2LBTp~IkTq0s=XJc$;Ep2aPWo%p`EFfGWZDn+5"
    r"Z)98|Iv{&oB12pvIv_DFFf1TkB5ZGSb6g@iAY3A7X>Mm_Tp}zWTq15^ZDm{{Iv`vkaA7fAB7H0%Tq1U5a&u{KZd@WdAT@m=eJmnlVQgt)a$$67"
    r"Z*DGSZe(*JI(s5yba`-PB03^THZ&qEB6DbAaAhJoTQXfNB4lB7VP9`%W^-k9b0RuhFf1`PU41MfVrgM>B075_WOR9OWg<EvMm97eEFyDgVQ^(4"
    r"I$JSaEFxrKbYWj_W@d9`baNs)TQN2)GBjO%EFxoJY-wV0VRUJ4ZZ39VY;|RGB075_WOR9OWg<EvMm97eEFyDgVQ^(4I$JU<F<mSoWMOn+UvFk+"
    r"b7gdMB05_#G%PeQU41MfcV%g3XmoQTI(s5yba`-PB03^QHZ&qEB6DbAaAhJoTQMv$T`VGGVRT_%Z)Rq5Wpr~QI$Ja_EHyS=eSIJx0000000000"
    r"0RR910000000000007WG00000008*E00000006*000000007`W000000002M"
)


def test_the_golden_file_of_version_5_still_reads():
    model = Model._from_bytes(base64.b85decode(GOLDEN))
    rows = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert model.predict(rows).tolist() == [1, -1]
    expected = [1 / (1 + math.exp(-1.5 * f + 0.125)) for f in (0.75, -1.75)]
    np.testing.assert_allclose(model.predict_proba(rows)[:, 1], expected, rtol=1e-15)
    assert model.calibration.facts == {"rows": 40, "unknown": 0, "weighted": False}


# Figures


def test_the_calibration_error_is_the_naive_one_wherever_it_is_cut(tmp_path):
    for classes in ((-1, 1), ("ant", "bee", "cow")):
        model, x, y, _ = rows_and_model(classes)
        found = bigclf.calibrate(model, x, y)
        told = evaluate(found, x, y)
        shares, said = found.predict_proba(x), found.predict(x)
        p = shares[:, 1] if found.binary else shares[np.arange(y.size), found.codes(found.decision_function(x))]
        right = y == (1 if found.binary else said)
        total = 0.0
        for k, row in enumerate(told.reliability):
            inside = (p * RELIABILITY_BINS).astype(int) == k
            assert row["rows"] == inside.sum() and (row["low"], row["high"]) == (k / 10, (k + 1) / 10)
            if inside.any():
                assert row["probability"] == pytest.approx(p[inside].mean(), abs=1e-8)
                assert row["share"] == pytest.approx(right[inside].mean())
                total += inside.sum() * abs(right[inside].mean() - p[inside].mean()) / y.size
        assert told.calibration_error == pytest.approx(total, abs=1e-8)
        data = shards_of(tmp_path / str(len(classes)), x, y, shard_nnz=1500)
        whole = evaluate(found, data)
        assert whole.calibration_error == pytest.approx(total, abs=1e-6) and whole.n == 900
        none = evaluate(model, x, y)
        assert none.calibration_error is None and none.reliability is None and "calibrate" in none.missing["log_loss"]


def test_from_the_command_line(tmp_path):
    model, x, y, _ = rows_and_model(("no", "yes"))
    shards_of(tmp_path / "held", x[:600], y[:600])
    shards_of(tmp_path / "test", x[600:], y[600:])
    model.save(tmp_path / "m.bigclf")
    where = [tmp_path / "m.bigclf", tmp_path / "held", "-o", tmp_path / "c.bigclf"]
    out, _ = command("calibrate", *where)
    assert "Platt's sigmoid, from 600 rows" in out and "1 / (1 + exp(-" in out
    assert "exists" in command("calibrate", *where, code=1)[1]
    told = json.loads(command("calibrate", *where, "--method", "isotonic", "--overwrite", "--json")[0])
    assert told["method"] == "isotonic" and told["rows"] == 600
    assert told["probability"][0] == sorted(told["probability"][0])
    assert "isotonic regression, from 600 rows" in command("inspect", tmp_path / "c.bigclf")[0]
    assert json.loads(command("inspect", tmp_path / "c.bigclf", "--json")[0])["calibration"]["rows"] == 600
    out, _ = command("evaluate", tmp_path / "c.bigclf", tmp_path / "test")
    assert "calibration error" in out and "log loss" in out
    plain, _ = command("evaluate", tmp_path / "m.bigclf", tmp_path / "test")
    assert plain.count("or `bigclf calibrate`") == 1  # of both figures in one line
    predict(load(tmp_path / "c.bigclf"), tmp_path / "test", str(tmp_path / "scores"), proba=True)
    with pytest.raises(RunError, match="by this model"):  # other probabilities, another model
        predict(model, tmp_path / "test", str(tmp_path / "scores"))


def test_the_diagram_is_drawn_or_refused_before_rows_are_read(tmp_path):
    pytest.importorskip("matplotlib")
    model, x, y, _ = rows_and_model()
    shards_of(tmp_path / "test", x, y)
    model.save(tmp_path / "m.bigclf")
    picture = tmp_path / "sub" / "reliability.png"
    _, err = command("evaluate", tmp_path / "m.bigclf", "nowhere", "--reliability", picture, code=1)
    assert "--reliability needs probabilities" in err
    bigclf.calibrate(model, x, y).save(tmp_path / "c.bigclf")
    words = ["evaluate", tmp_path / "c.bigclf", tmp_path / "test", "--reliability", picture]
    command(*words)
    assert picture.read_bytes().startswith(b"\x89PNG") and "exists" in command(*words, code=1)[1]


# Real data


def squashed(model):
    """The same with p = 1 / (1 + exp(-f))."""
    found, k = copy.copy(model), model.intercept_.size
    found.calibration = Calibration("platt", np.stack([-np.ones(k), np.zeros(k)]), np.arange(k + 1), {})
    return found


def errors_of(train, test, algo, method, seeds, **options):
    """Expected calibration errors on the test rows, squashed and calibrated on half of the training rows, means over
    the seeds: the last weights of an online method are close to log odds, or far from them, by chance."""
    x, y = train
    errors = []
    for seed in seeds:
        held = np.random.default_rng(seed).random(y.size) < 0.5
        model = bigclf.fit(x[~held], y[~held], algo=algo, seed=seed, progress=False, **options)
        calibrated = bigclf.calibrate(model, x[held], y[held], method=method)
        errors.append([evaluate(m, *test).calibration_error for m in (squashed(model), calibrated)])
    return np.mean(errors, axis=0)


@pytest.mark.data
@METHODS
@pytest.mark.parametrize(("algo", "seeds"), [("dcd", range(1)), ("pa", range(5))])
def test_calibration_halves_the_error_on_a9a(data_set, algo, seeds, method):
    rows = []
    for name in ("a9a.gz", "a9a.t.gz"):
        with gzip.open(data_set("a9a") / name) as file:
            rows.append(load_svmlight_file(file, n_features=123))
    options = {"tol": 1e-2} if algo == "dcd" else {"epochs": 5}
    raw, calibrated = errors_of(*rows, algo, method, seeds, **options)
    assert calibrated <= raw / 2 and calibrated < 0.02


@pytest.fixture(scope="module")
def newsgroups(data_set):
    """Twenty classes, tf-idf of the bodies, split by date."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts, labels = {"train": [], "test": []}, {"train": [], "test": []}
    with tarfile.open(data_set("20news") / "20news-bydate.tar.gz") as archive:
        for member in archive:
            if member.isfile():
                part, label, _ = member.name.rsplit("/", 3)[1:]
                body = archive.extractfile(member).read().decode("latin-1").partition("\n\n")[2]
                texts[part.rsplit("-", 1)[1]].append(body)
                labels[part.rsplit("-", 1)[1]].append(label)
    counter = TfidfVectorizer(min_df=3, sublinear_tf=True, dtype=np.float32)
    train = counter.fit_transform(texts["train"]), np.array(labels["train"])
    return train, (counter.transform(texts["test"]), np.array(labels["test"]))


@pytest.mark.data
@METHODS
@pytest.mark.parametrize("algo", ["dcd", "pa"])
def test_calibration_halves_the_error_on_newsgroups(newsgroups, algo, method):
    options = {"tol": 1e-2} if algo == "dcd" else {"epochs": 5}
    raw, calibrated = errors_of(*newsgroups, algo, method, range(1), **options)
    assert calibrated <= raw / 2 and calibrated < 0.12


def test_rows_with_several_labels_are_refused_for_a_model_of_one(tmp_path):
    one, several = str(tmp_path / "one.svm"), str(tmp_path / "several.svm")
    (tmp_path / "one.svm").write_text("0 1:1\n1 2:1\n2 3:1\n" * 10)
    (tmp_path / "several.svm").write_text("1,2 1:1\n3 2:1\n1 3:1\n" * 10)
    model = bigclf.fit(one, algo="pa", epochs=1, progress=False)
    with pytest.raises(DataError, match="a list of labels, and the model gives one class a row"):
        bigclf.calibrate(model, several)
