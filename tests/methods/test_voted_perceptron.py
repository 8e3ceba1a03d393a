"""The voted perceptron against one that keeps every vector and lets each of them judge each row."""

import numpy as np
import pytest
import scipy.sparse as sp
from making import Case, block_of, learn, random_rows, shards_of

from bigclf import evaluate, load, sweep
from bigclf.api.fit import fit

VOTED = Case("voted_perceptron", None)


def naive(x, y, bias, epochs_orders):
    """Vectors and their votes: 1, and one for each row that a vector is right about."""
    rows = np.hstack([x, np.full((len(x), 1), bias)])
    vectors, votes, w = [], [], np.zeros(rows.shape[1])
    for i in epochs_orders:
        if y[i] * (w @ rows[i]) <= 0:
            w = w + y[i] * rows[i]
            vectors.append(w)
            votes.append(1)
        else:
            votes[-1] += 1
    return np.array(vectors), np.array(votes)


def whole_numbers(n, d, seed):
    """Rows of whole numbers, so that every sum is exact, and noisy labels."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, (n, d)) * (rng.random((n, d)) < 0.5)
    return x.astype(np.float32), np.where(x @ rng.standard_normal(d) + rng.standard_normal(n) > 0, 1, -1)


@pytest.mark.parametrize("bias", [None, "feature"])
def test_it_votes_as_every_vector_by_itself_would(bias, tmp_path):
    x, y = whole_numbers(300, 12, 0)
    shared, order = VOTED.state(12, 0)[0], []
    for epoch in range(3):
        order.append(np.random.default_rng(epoch).permutation(300))
        counts = learn(VOTED, block_of(sp.csr_matrix(x), y), 12, order[-1], (shared, ()), bias=bias)[2]
    vectors, votes = naive(x, y, float(bias is not None), np.concatenate(order))
    n = shared.kept[0]
    assert n == len(vectors) > 100 and counts.mistakes == counts.updates
    np.testing.assert_array_equal(shared.votes[:n], votes)
    np.testing.assert_array_equal(shared.weights, vectors[-1])
    model = fit(x, y, algo="voted_perceptron", bias=bias, epochs=1, progress=False)
    model.state = {f"0.{name}": array for name, array in shared._asdict().items()}
    points = whole_numbers(1000, 12, 1)[0]
    products = np.hstack([points, np.full((1000, 1), float(bias is not None))]) @ vectors.T
    expected = np.where(products >= 0, 1, -1) @ votes
    np.testing.assert_array_equal(model.decision_function(points), expected / votes.sum())
    np.testing.assert_array_equal(model.predict(points), np.where(expected >= 0, 1, -1))
    assert np.any(model.predict(points) != np.where(products[:, -1] >= 0, 1, -1))  # not what the last vector says
    shards_of(tmp_path / "s", sp.csr_matrix(points), np.where(expected >= 0, 1, -1))
    model.save(tmp_path / "m")
    for found in (model, load(tmp_path / "m")):
        assert found.voted and found.digest() == model.digest()
        np.testing.assert_array_equal(found.decision_function(sp.csr_matrix(points)), expected / votes.sum())
        assert evaluate(found, str(tmp_path / "s" / "*.parquet")).accuracy == 1


def test_what_there_is_no_room_for_is_not_learned_from():
    x, y = random_rows(200, 20, noise=0.5)
    block = block_of(x, y)
    for limit in ({"max_vectors": 7}, {"max_entries": 30}):
        state = VOTED.setting(**limit).shared(20, "float64"), ()
        shared, _, counts, _ = learn(VOTED, block, 20, None, state, **limit)
        n = shared.kept[0]
        assert counts.updates == n < counts.mistakes and n <= 7 + 23 * ("max_entries" in limit)
        assert shared.places[n] <= shared.indices.size


def test_learning_goes_on_and_measures_its_votes():
    x, y = random_rows(150, 20, noise=0.5)
    options = dict(algo="voted_perceptron", progress=False)
    straight = fit(x, y, epochs=4, validate=(x, y), **options)
    further = fit(x, y, epochs=2, init=fit(x, y, epochs=2, **options), **options)
    assert further.digest() == straight.digest()
    assert straight.result_.history[-1]["validation"]["accuracy"] == (straight.predict(x) == y).mean()
    with pytest.raises(TypeError, match="early_stopping.*voted_perceptron"):
        fit(x, y, validate=(x, y), early_stopping=2, **options)
    with pytest.raises(TypeError, match="init.*voted_perceptron"):
        fit(x, y, init=fit(x, y, algo="pa1", epochs=1, progress=False), **options)
    with pytest.raises(ValueError, match="groups=2.*voted_perceptron"):
        fit(x, y, groups=2, **options)
    with pytest.raises(TypeError, match="sweep.*voted_perceptron"):
        sweep(x, y, algo="voted_perceptron", grid={"max_vectors": [5, 10]}, folds=2)
    three = fit(x, np.arange(150) % 3, epochs=2, **options)
    assert three.decision_function(x).shape == (150, 3) and set(three.predict(x)) <= {0, 1, 2}
