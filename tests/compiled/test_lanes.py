"""The sums of a row in eight lanes: their order, which is nobody else's business, and what they are sums of."""

import numpy as np
import pytest

from bigclf.compiled import jit, lanes
from bigclf.maths.block import NO_SCALES, Block, alike
from bigclf.methods.online.confidence_weighted import OFF_PRECISION, Params, moments, move, move_kept

FEATURES = 300_000  # float64: beyond what is asked for ahead


def rows(generator, n=60):
    """Rows of 0 to 40 entries, as ``Block``."""
    lengths = np.concatenate([[0, 1, 7, 8, 9, 16], generator.integers(0, 41, n - 6)])
    indices = np.concatenate([np.sort(generator.choice(FEATURES, length, replace=False)) for length in lengths])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    values = generator.normal(size=indices.size).astype(np.float32)
    return alike(Block(indptr, indices.astype(np.uint32), values, *(np.ones(n) for _ in range(3)), np.arange(n)))


@jit.kernel
def products(block, order, weights, found, asking):
    for k in range(order.size):
        found[k] = jit.dot(block, order[k], weights)
        asking[k] = jit.dot_ahead(block, order, k, weights)


@jit.kernel
def steps(block, order, weights):
    for i in order:
        jit.axpy(0.7, block, i, weights)


def added(products):
    """Entry k in lane k mod 8, the lanes as a tree, then what is left of less than eight."""
    whole = products.size // 8 * 8
    lanes = np.zeros(8)
    for first in range(0, whole, 8):
        lanes = lanes + products[first : first + 8]
    lanes = lanes[:4] + lanes[4:]
    lanes = lanes[:2] + lanes[2:]
    total = lanes[0] + lanes[1]
    for product in products[whole:]:
        total = total + product
    return total


@pytest.mark.parametrize("kind", ["values", "ones", "scales"])
def test_a_row_is_summed_in_the_order_that_is_promised(kind):
    generator = np.random.default_rng(5)
    block = rows(generator)
    scales = generator.normal(size=block.n_rows).astype(np.float32) if kind == "scales" else NO_SCALES
    if kind != "values":
        block = block._replace(values=block.values[:0], scales=scales)
    weights = generator.normal(size=FEATURES)
    found, asking = np.zeros(block.n_rows), np.zeros(block.n_rows)
    products(block, np.arange(block.n_rows), weights, found, asking)
    for i in range(block.n_rows):
        entries = slice(block.indptr[i], block.indptr[i + 1])
        mine = weights[block.indices[entries]] * (block.values[entries].astype(float) if kind == "values" else 1.0)
        expected = added(mine) * (float(scales[i]) if kind == "scales" else 1.0)
        assert found[i] == asking[i] == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_asked_for_on_the_way_changes_no_sum(dtype):
    """In the order in which the rows lie and in another, to the ends of the arrays, for large weights and small."""
    generator = np.random.default_rng(11)
    block = rows(generator)
    for order in (np.arange(block.n_rows), generator.permutation(block.n_rows)):
        for features in (FEATURES, 1000):
            few = block._replace(indices=block.indices % np.uint32(features))
            found, asking = np.zeros(block.n_rows), np.zeros(block.n_rows)
            products(few, order, generator.normal(size=features).astype(dtype), found, asking)
            assert np.array_equal(found, asking) and np.count_nonzero(found) > 50


def test_a_sum_does_not_depend_on_where_the_row_lies():
    block = rows(np.random.default_rng(6))
    weights = np.random.default_rng(7).normal(size=FEATURES)
    there, elsewhere, ahead = (np.zeros(block.n_rows) for _ in range(3))
    products(block, np.arange(block.n_rows), weights, there, ahead)
    moved = block._replace(
        indptr=block.indptr + 3,
        indices=np.concatenate([block.indices[:3], block.indices]),
        values=np.concatenate([block.values[:3], block.values]),
    )
    products(moved, np.arange(block.n_rows)[::-1].copy(), weights, elsewhere, ahead)
    assert np.array_equal(there, elsewhere[::-1])


@pytest.mark.parametrize("kind, dtype", [("values", np.float32), ("values", np.float64), ("scales", np.float32)])
def test_a_step_is_that_of_each_feature_alone(kind, dtype):
    generator = np.random.default_rng(8)
    block = rows(generator)
    scales = generator.normal(size=block.n_rows).astype(np.float32)
    weights = generator.normal(size=FEATURES).astype(dtype)
    expected = weights.copy()
    for i in range(block.n_rows):
        for p in range(block.indptr[i], block.indptr[i + 1]):
            x = float(block.values[p] if kind == "values" else scales[i])
            expected[block.indices[p]] = float(expected[block.indices[p]]) + 0.7 * x
    if kind == "scales":
        block = block._replace(values=block.values[:0], scales=scales)
    steps(block, np.arange(block.n_rows), weights)
    assert np.array_equal(weights, expected)


@jit.kernel
def learn(block, order, pairs, numbers, params, found):
    step, c, v = numbers
    room = lanes.room_for_pairs(pairs)
    for k in range(order.size):
        found[k, 0], found[k, 1] = moments(block, order, k, pairs, params.bias, room)
        first = move_kept(block, order[k], room, pairs, step, c, params)
        move(OFF_PRECISION, block, order[k], first, pairs, step, c, v, params)


@pytest.mark.parametrize("kind, dtype", [("values", np.float32), ("scales", np.float64)])
def test_means_and_variances_are_kept_from_their_sums_to_their_move(kind, dtype):
    """The bits of one entry after the other, also where a row has more of them than there is room for, and where the
    floor holds a variance."""
    generator = np.random.default_rng(10)
    lengths = np.array([0, 5, 8, 35, lanes.ROOM + 20, lanes.ROOM - 1, 12])
    features = 2 * lanes.ROOM
    indices = np.concatenate([np.sort(generator.choice(features, length, replace=False)) for length in lengths])
    indptr, n = np.concatenate([[0], np.cumsum(lengths)]), lengths.size
    values = generator.normal(size=indices.size if kind == "values" else 0).astype(np.float32)
    scales = NO_SCALES if kind == "values" else generator.normal(size=n).astype(np.float32)
    block = alike(
        Block(indptr, indices.astype(np.uint32), values, *(np.ones(n) for _ in range(3)), np.arange(n), scales)
    )
    pairs = generator.random((features + 1, 2)).astype(dtype)
    params, found, expected = Params(1.0, 1.0, 1.0, 0.2, 0.5), np.zeros((n, 2)), pairs.copy()
    step, c = 0.3, 1.5
    learn(block, np.arange(n), pairs, (step, c, 1.0), params, found)
    for i in range(n):
        j = block.indices[indptr[i] : indptr[i + 1]]
        x = values[indptr[i] : indptr[i + 1]].astype(float) if kind == "values" else np.ones(j.size)
        scale = float(scales[i]) if scales.size else 1.0
        m, v = scale * added(expected[j, 0] * x), scale * scale * added(expected[j, 1] * (x * x))
        assert found[i, 0] == m + 0.5 * float(expected[-1, 0])
        assert found[i, 1] == v + 0.25 * float(expected[-1, 1])
        for p, feature in enumerate([*j, features]):
            one = 0.5 if p == j.size else x[p] * scale
            s = float(expected[feature, 1])
            expected[feature, 0] = float(expected[feature, 0]) + step * s * one
            expected[feature, 1] = max(s / (1.0 + c * s * (one * one)), min(s, 0.2))
    assert np.array_equal(pairs, expected)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000])
def test_a_copy_past_the_caches_is_a_copy(size):
    """From and to places that begin at no cache line, and nothing beside them."""
    held = np.random.default_rng(3).integers(0, 256, size + 80).astype(np.uint8)
    for start, first in [(0, 0), (1, 0), (0, 4), (63, 17), (5, 60)]:
        source, into = held[start : start + size], np.full(size + 80, 7, np.uint8)
        jit.copy_past_caches(source, into[first : first + size])
        np.testing.assert_array_equal(into[first : first + size], source)
        assert (into[:first] == 7).all() and (into[first + size :] == 7).all()
