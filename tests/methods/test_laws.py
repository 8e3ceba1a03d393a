"""Laws that every method obeys: a new line in ``METHODS`` is tested here before anyone writes a test for it."""

import importlib
import json
import pkgutil
import re
import warnings
from pathlib import Path

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from making import (
    CASES,
    EVERY_CASE,
    FIRST,
    NAMES,
    NARROW,
    NEXT,
    Case,
    all_arrays,
    block_of,
    dense,
    learn,
    learns,
    mix,
    random_rows,
    run_python,
    separable_rows,
    shards_of,
)
from naive import NAIVE
from test_naive import GIVEN, SEARCHED

import bigclf
from bigclf.api.fit import fit
from bigclf.compiled.jit import random_state, shuffle_runs
from bigclf.maths.block import as_unsigned, concatenate, rows_of, written_out
from bigclf.maths.losses import REGRESSION
from bigclf.methods import METHODS, Setting, listed, resolve

D = 30
every_case = pytest.mark.parametrize("case", CASES, ids=NAMES)
CLASSIFIERS = {name: case for name, case in zip(NAMES, CASES, strict=True) if not case.regression}
every_classifier = pytest.mark.parametrize(
    ("case", "bias"), [(case, (None, "feature")[i % 2]) for i, case in enumerate(CLASSIFIERS.values())],
    ids=list(CLASSIFIERS),
)  # fmt: skip
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
# each case with a bias or without: what a law says of the one it says of the other
BIASES = [(case, (None, "feature")[i % 2]) for i, case in enumerate(CASES)]
either_bias = pytest.mark.parametrize(("case", "bias"), BIASES, ids=NAMES)


def long_but_first(case, *before):
    """A parameter with what is ``before`` it, in the tier that compiles the case's kernel for it."""
    marks = () if case in FIRST else pytest.mark.long if case in NEXT else pytest.mark.slow
    return pytest.param(*before, case, marks=marks, id="-".join([*before, NAMES[CASES.index(case)]]))


either_dtype = pytest.mark.parametrize(("dtype", "case"), [
    *(pytest.param("float64", case, id=f"float64-{name}") for case, name in zip(CASES, NAMES, strict=True)),
    *(long_but_first(case, "float32") for case in NARROW),
])  # fmt: skip


def only_sums(method):
    """Whether no pass learns, so that the order of rows and the seed have no part in the answer."""
    return method.by_sums and not any(param.name == "start" for param in method.params)


def learned(case, shared, bias):
    """The weights after a pass, or what it has summed up for them."""
    return shared.total if only_sums(case.method) else case.weights(shared, bias)


def weighted(n, seed=1):
    return np.random.default_rng(seed).choice([0.5, 1.0, 2.0], n)


def widened(x):
    """The rows with indices of eight bytes, for the kernels that ``learn`` runs with float32 weights."""
    x = x.copy()
    x.indices, x.indptr = x.indices.astype(np.int64), x.indptr.astype(np.int64)
    return x


# A kernel is its own Python source


def passes(case, x, y, weights, dtype, values):
    """Two passes in a shuffled order, and the certificate: every number that comes out."""
    block = block_of(x, y, weights)
    if values == "implicit":
        block = block._replace(values=np.empty(0, np.float32))
    order = np.empty(block.n_rows, np.int64)
    state, found = None, {}
    for epoch in range(2):
        shuffle_runs(np.arange(block.n_rows), 7, random_state(3, epoch), order)
        shared, rows, counts, scores = learn(case, block, D, order, state, dtype, "feature")
        state = shared, rows
        found |= {f"counts{epoch}": np.array(counts, float), f"scores{epoch}": scores, f"order{epoch}": order.copy()}
    if case.method.by_duals:
        dual_weights = np.zeros(shared.weights.shape)
        found["certificate"] = np.array(case.certify(block, shared, rows, case.params("feature"), dual_weights, 1.0))
        found["dual_weights"] = dual_weights
    return found | all_arrays(shared, rows)


# of the cases, so that no test takes long: in the plain tests, in the others, whose first part is a long one
PARTS = {False: 2, True: 4}


def turn_of_losses():
    """Every case of the laws, and of what these cases stand for the methods without any and of each other method one
    more loss, in turn."""
    for i, method in enumerate(METHODS.values()):
        cases = [case for case in EVERY_CASE if case.algo == method.name]
        more = [case for case in cases if case not in CASES]
        yield from cases if more == cases else [case for case in cases if case in CASES or case == more[i % len(more)]]


SOURCES = list(turn_of_losses())


def variants_of(case):
    """(type of weights, values written out or not) of a case in the plain tests, and in the long ones; the plain ones
    compile nothing for this law alone."""
    wide = [("float64", "explicit"), ("float64", "implicit"), ("float64", "constant")]
    if SOURCES.index(case) % 2:
        wide[1:] = wide[:0:-1]
    # MEMMA's recursion asks about ties: another order of rounding in float32 is another path
    narrow = [("float32", "explicit")] * (case in NARROW and case.algo != "memma_p")
    if case not in CASES:
        return [], wide[:1]
    return (wide[:2] + narrow, wide[2:]) if case in FIRST else (wide[:2], wide[2:] + narrow)


def every_number(part, long):
    """{case, type of weights, values written out or not, name: numbers}: once compiled and once interpreted."""
    found = {}
    for case in SOURCES[part :: PARTS[long]]:
        for variant in variants_of(case)[long]:
            n = 60 if long else 40
            x, y = case.data(n, D, binary=variant[1] == "implicit", constant=variant[1] == "constant")
            weights = weighted(n) if case.method.row_weights == "any" else None
            for name, array in passes(case, x, y, weights, *variant).items():
                found["/".join(map(str, (*case, *variant, name)))] = array
    return found


INTERPRETED = """
import sys, numpy as np, test_laws
assert test_laws.interpreting()
np.savez(sys.argv[1], **test_laws.every_number(int(sys.argv[2]), sys.argv[3] == "True"))
"""


def interpreting():
    from bigclf.compiled.jit import INTERPRETED

    return INTERPRETED


@pytest.mark.parametrize(("part", "long"), [
    *((part, False) for part in range(PARTS[False])),
    *(pytest.param(part, True, marks=pytest.mark.slow if part else pytest.mark.long) for part in range(PARTS[True])),
])  # fmt: skip
def test_a_kernel_equals_its_own_python_source(part, long, tmp_path):
    run_python(INTERPRETED, tmp_path / "found.npz", part, long, NUMBA_DISABLE_JIT="1")
    expected, found = np.load(tmp_path / "found.npz"), every_number(part, long)
    assert not interpreting() and set(expected.files) == set(found) and len(found) > (20 if long else 100)
    for name, array in found.items():
        tolerance = 1e-5 if "float32" in name else 1e-12
        np.testing.assert_allclose(array, expected[name], rtol=tolerance, atol=tolerance, err_msg=name)


@either_dtype
def test_rows_of_one_value_each_learn_what_the_same_rows_written_out_do(case, dtype):
    bias = "feature" if dtype == "float64" else None
    x, y = random_rows(80, D, constant=True)
    weights = weighted(80) if case.method.row_weights == "any" else None
    block = block_of(x, y, weights)
    assert block.values.size == 0 and np.unique(block.scales).size > 50
    full = written_out(block)
    np.testing.assert_array_equal(full.values, x.data)
    assert full.scales.size == 0
    state, expected = None, None
    for epoch in range(3):
        order = np.random.default_rng(epoch).permutation(80)
        state, expected = (
            learn(case, rows, D, order, before and before[:2], dtype, bias)
            for rows, before in ((block, state), (full, expected))
        )
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    compare = {"rtol": tolerance, "atol": tolerance}
    for found, wanted in zip(state[:2], expected[:2], strict=True):
        for array, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(array, other, **compare)
    np.testing.assert_allclose(np.array(state[2], float), np.array(expected[2], float), **compare)
    np.testing.assert_allclose(state[3], expected[3], **compare)
    if case.method.by_duals:
        found, wanted = (
            case.certify(rows, *expected[:2], case.params(bias), np.zeros(expected[0].weights.shape), 1.0)
            for rows in (block, full)
        )
        np.testing.assert_allclose(found, wanted, **compare)


@pytest.mark.parametrize("kinds", [("one", "one"), ("one", "ones"), ("one", "written"), ("ones", "written")])
def test_blocks_of_every_kind_are_concatenated(kinds):
    x, y = random_rows(40, D, constant=True)
    ones = x.copy()
    ones.data[:] = 1
    made = {"one": block_of(x, y), "ones": block_of(ones, y), "written": written_out(block_of(x, y))}
    blocks = [rows_of(made[kind], 3, 31) for kind in kinds]
    joined = concatenate(blocks)
    assert (joined.values.size > 0) == ("written" in kinds) and (joined.scales.size > 0) == (
        kinds in (("one", "one"), ("one", "ones"))
    )
    np.testing.assert_array_equal(dense(joined, D), np.vstack([dense(block, D) for block in blocks]))


# Symmetries


@either_bias
def test_permuting_feature_ids_permutes_the_weights(case, bias):
    x, y = case.data(80, D, seed=1)
    places = np.random.default_rng(1).permutation(D)
    moved = sp.csr_matrix((x.data.copy(), places[x.indices], x.indptr.copy()), shape=x.shape)
    moved.sort_indices()
    shared, rows, counts, scores = learn(case, block_of(x, y), D, bias=bias)
    shared2, rows2, counts2, scores2 = learn(case, block_of(moved, y), D, bias=bias)
    weights, weights2 = (learned(case, state, bias) for state in (shared, shared2))
    assert np.any(weights[:-1] != 0) and counts.mistakes == counts2.mistakes
    np.testing.assert_allclose(weights2[places], weights[:-1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([weights2[-1], *scores2], [weights[-1], *scores], rtol=1e-9, atol=1e-9)


@either_bias
@settings(max_examples=6, deadline=None)
@given(cut=st.integers(0, 60), seed=st.integers(0, 5))
def test_two_blocks_give_what_one_gives(case, bias, cut, seed):
    x, y = case.data(60, D, seed=seed)
    block = block_of(x, y)
    whole, rows, counts, scores = learn(case, block, D, bias=bias)
    state, sums, all_scores = case.state(D, 60), [], []
    for part in (rows_of(block, 0, cut), rows_of(block, cut, 60)):
        shared, halves, found, part_scores = learn(case, part, D, None, state, bias=bias)
        sums.append(found)
        all_scores.append(part_scores)
    for name, array in all_arrays(whole, rows).items():
        np.testing.assert_array_equal(all_arrays(shared, halves)[name], array, err_msg=name)
    np.testing.assert_array_equal(np.concatenate(all_scores), scores)
    assert [a + b for a, b in zip(*[s[:3] for s in sums], strict=True)] == list(counts[:3])


@every_case
def test_half_blocks_concatenated_are_the_block(case):
    x, y = case.data(40, D)
    block = block_of(x, y)
    joined = concatenate([rows_of(block, 0, 13), rows_of(block, 13, 13), rows_of(block, 13, 40)])
    for first, second in zip(learn(case, block, D)[:2], learn(case, joined, D)[:2], strict=True):
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)


@either_bias
def test_an_empty_block_changes_nothing(case, bias):
    x, y = case.data(40, D)
    block = block_of(x, y)
    shared, rows, *_ = learn(case, block, D, bias=bias)
    before = {name: array.copy() for name, array in all_arrays(shared, rows).items()}
    *_, counts, _ = learn(case, rows_of(block, 7, 7), D, None, (shared, rows), bias=bias)
    assert tuple(counts) == (0, 0, 0, 0.0, 0.0)
    for name, array in all_arrays(shared, rows).items():
        np.testing.assert_array_equal(array, before[name])


UNCLOCKED = [case for case in CASES if not getattr(case.method.how, "clocked", False)]


@pytest.mark.parametrize("case", UNCLOCKED, ids=lambda c: NAMES[CASES.index(c)])
def test_empty_rows_change_no_weight_where_there_is_no_bias(case):
    x, y = case.data(40, D)
    padded = sp.vstack([sp.csr_matrix((2, D)), x[:20], sp.csr_matrix((1, D)), x[20:]]).tocsr().astype(np.float32)
    labels = np.concatenate([[1, -1], y[:20], [1], y[20:]])
    shared, rows, *_ = learn(case, block_of(x, y), D)
    shared2, rows2, counts, scores = learn(case, block_of(padded, labels), D)
    np.testing.assert_array_equal(shared2.weights, shared.weights)
    assert counts.rows == 43 and np.isfinite(scores).all()
    if case.method.by_duals:  # an empty row's loss is C whatever w is: its dual variable stands at the price of that
        price = resolve("dcd", case.loss, None, None, {}).settings["C"]
        expected = {"hinge": 1, "squared_hinge": 2, "logistic": 0.5}.get(case.loss)
        if case.regression:
            expected = np.array([1, -1, 1]) * {"epsilon_insensitive": 1, "squared_epsilon_insensitive": 1.8}[case.loss]
        if case.method.all_classes:  # all that its own class may get and the other one may lose
            expected = np.array([[-1, 1], [1, -1], [-1, 1]])
        np.testing.assert_allclose(rows2.alpha[[0, 1, 22]], price * expected, rtol=1e-15)


@either_dtype
def test_rows_without_entries_and_of_huge_norm_do_no_harm(case, dtype):
    x, y = case.data(120, D, density=0.4)
    x = x.tolil()
    x[7], x[11], x[12], x[40] = 0, 0, 0, 0
    x[11, 3], x[11, 5], x[12, 3], x[40, 3] = 1e30, -1e30, 1e36, 1e-30
    block = block_of(x.tocsr().astype(np.float32), y)
    state = None
    for _ in range(3):
        state = learn(case, block, D, None, state and state[:2], dtype, "feature")
        if case.method.form.finish:
            case.method.form.finish(state[0], case.params("feature"))
    assert all(np.isfinite(array).all() for array in (*state[0], *state[1]))
    weights, others = case.weights(state[0], "feature"), np.delete(np.arange(120), [11, 12])
    assert np.isfinite(weights).all()  # of others than the bounded ones nothing more can be asked for
    if (case.method.bounded or case.loss in ("squared", "squared_hinge")) and not only_sums(case.method):
        predicted = dense(block, D)[others] @ weights[:-1] + weights[-1]
        assert np.mean((predicted > 0) == (y[others] > 0)) > 0.7


# Row weights, separable data, mixing


@either_bias
def test_a_row_of_weight_zero_is_as_if_it_were_not_there(case, bias, quiet):
    x, y = case.data(90, D)
    weights = np.ones(90)
    weights[[0, 5, 44, 89]] = 0
    there = weights > 0
    options = dict(algo=case.algo, loss=case.loss, bias=bias, epochs=5 if only_sums(case.method) else 3, progress=False)
    with_zeros, without = fit(x, y, sample_weight=weights, **options), fit(x[there], y[there], **options)
    np.testing.assert_array_equal(with_zeros.coef_, without.coef_)
    np.testing.assert_array_equal(with_zeros.intercept_, without.intercept_)
    assert with_zeros.result_.certificate == without.result_.certificate
    assert np.any(fit(x, y, **options).coef_ != without.coef_)


@every_classifier
def test_separable_data_end_without_mistakes(case, bias, quiet):
    x, y, *_ = separable_rows(seed=int(bias is not None), least=0.2)
    options = {"tol": 0, "C": 1000} if case.method.certificate else {}
    if case.loss == "logistic" and options:
        options = {"tol": 1e-4, "C": 100}
    epochs = 300 if case.method.separates else 2
    model = fit(x, y, algo=case.algo, loss=case.loss, bias=bias, epochs=epochs, progress=False, **options)
    assert model.result_.history[0]["mistakes"] > 0
    if not case.method.separates:
        return
    assert model.result_.history[-1]["mistakes"] == 0
    if case.method.form.judges_by_answer:
        np.testing.assert_array_equal(model.predict(x), y)


MIXINGS = [(m.name, mixing) for m in METHODS.values() for mixing in m.form.mixings if not m.by_duals and learns(m)]
by_shares = pytest.mark.parametrize("name", [name for name, mixing in MIXINGS if mixing == "rows"])
every_mixing = pytest.mark.parametrize(("name", "mixing"), MIXINGS, ids=map(" ".join, MIXINGS))


def mixed_state(name, mixing):
    """A method's case with that mixing, its rule, a state to begin with, and rows."""
    case = Case(name, METHODS[name].losses[0] if METHODS[name].losses else None)
    setting = resolve(name, case.loss, None, None, {}, mixing, groups=2)
    return case, setting.rule, setting.shared(D, "float64"), case.data(50, D)


def copy_of(case, x, y, state=None):
    """A copy at the end of its epoch."""
    copy = learn(case, block_of(x, y), D, None, state)[0]
    if case.method.form.finish:
        case.method.form.finish(copy, case.params())
    return copy


@by_shares
@pytest.mark.parametrize("shares", [(0.25, 0.75), (0.2, 0.3, 0.5)], ids=len)
def test_mixing_equal_copies_gives_the_same_answer(name, shares):
    case, rule, start, rows = mixed_state(name, "rows")
    copy = copy_of(case, *rows)
    mixed = mix(rule, start, [copy] * len(shares), shares)
    np.testing.assert_allclose(mixed.weights, copy.weights, rtol=1e-12)
    np.testing.assert_allclose(case.weights(mixed), case.weights(copy), rtol=1e-12, atol=1e-15)
    assert mixed.weights.dtype == copy.weights.dtype


@every_mixing
def test_one_copy_mixes_to_itself_and_copies_that_did_not_move_to_where_they_began(name, mixing):
    case, rule, start, rows = mixed_state(name, mixing)
    moved = copy_of(case, *rows, (start, case.state(D, 50)[1]))
    for found in (mix(rule, case.state(D, 0)[0], [moved], (0.5,)), mix(rule, moved, [moved, moved], (0.5, 0.5))):
        for array, other in zip(found, moved, strict=True):
            np.testing.assert_array_equal(array, other)
    assert any(np.any(array != other) for array, other in zip(moved, setting_zero(name), strict=True))


def setting_zero(name):
    return Case(name, METHODS[name].losses[0] if METHODS[name].losses else None).state(D, 0)[0]


@by_shares
def test_mixed_weights_are_the_mean_by_shares(name):
    case, rule, start, (x, y) = mixed_state(name, "rows")
    a, b = (copy_of(case, x[part], y[part]) for part in (slice(0, 25), slice(25, 50)))
    mixed = mix(rule, start, [a, b], (0.25, 0.75))
    assert np.any(a.weights != b.weights)
    np.testing.assert_allclose(mixed.weights, 0.25 * a.weights + 0.75 * b.weights, rtol=1e-13)


# Compiled code


# Kernels that are called by several kernels or with weights of either width; which of these this process had to compile
# depends on what is in the cache.
HELPERS = {
    "bigclf.compiled.jit.inner",
    "bigclf.compiled.jit.shuffle",
    "bigclf.methods.many_classes.multiclass_confidence_weighted.variance_of",
    "bigclf.methods.many_classes.support_classes.draw_support",
    "bigclf.methods.many_classes.support_classes.support",
}
COMPILED = """
import json, sys, warnings, numpy as np
warnings.simplefilter("ignore")
from test_laws import dispatchers, fits, object_code, without_counts
fits(sys.argv[1], *map(int, sys.argv[2:]))
print(json.dumps({
    "signatures": {name: len(d.signatures) for name, d in dispatchers().items()},
    "misses": {name: sum(d.stats.cache_misses.values()) for name, d in dispatchers().items()},
    "hits": sum(sum(d.stats.cache_hits.values()) for d in dispatchers().values()),
    "counting": {name: b"NRT_" in object_code(d) for name, d in without_counts().items()},
    "named": all(d.py_func.__name__.encode() in object_code(d) for d in without_counts().values()),
}))
"""


def specialised():
    """The kernels of every method and loss; of a method with one for each kind of read those that it chooses from."""
    found = {}
    for case, name in zip(CASES, NAMES, strict=True):
        kernel = case.kernel
        inside = () if hasattr(kernel, "signatures") else (cell.cell_contents for cell in kernel.__closure__)
        parts = {f"{name} {one.py_func.__name__}": one for one in inside if hasattr(one, "signatures")}
        assert parts or hasattr(kernel, "signatures"), name
        found |= parts or {name: kernel}
    return found | {f"{n} certificate": c.certify for c, n in zip(CASES, NAMES, strict=True) if c.method.by_duals}


def dispatchers():
    """Every compiled function of the package that is called from Python, by name; small inlined helpers left out."""
    from numba.core.dispatcher import Dispatcher

    found = dict(specialised())
    for module in pkgutil.walk_packages(bigclf.__path__, "bigclf."):
        if module.name != "bigclf.__main__":
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, Dispatcher) and value.targetoptions.get("inline") != "always":
                    found.setdefault(f"{value.py_func.__module__}.{name}", value)
    return found


def without_counts():
    """Every kernel that was called, by name."""
    return {n: d for n, d in dispatchers().items() if d.targetoptions.get("_nrt") is False and d.signatures}


def object_code(dispatcher):
    """The machine code of a compiled function as it lies in numba's cache, symbols included."""
    cache = dispatcher._cache._cache_file
    paths = [*Path(cache.directory).glob(f"{cache.base}-*.nbc")]
    assert paths
    return b"".join(path.read_bytes() for path in paths)


def fits(directory, width, long, step):
    """Train every method (each ``step``-th) from arrays of every kind and from shards, in memory and streamed; unless
    it may be long, each from the first and, in turn, from another kind or from shards. width : 4 for float64 weights, 8
    for float32."""
    bits = 64 if width == 8 and not long else 32
    x, y = random_rows(300, D)
    fixed, binary, constant = x.copy(), x.copy(), random_rows(300, D, constant=True)[0]
    binary.data[:] = 1
    for matrix in (x, fixed, binary, constant):  # a copy made by scipy would be narrow again
        matrix.indices, matrix.indptr = (a.astype(f"int{bits}") for a in (matrix.indices, matrix.indptr))
    for array in (fixed.data, fixed.indices, fixed.indptr, frozen := y.copy()):
        array.setflags(write=False)
    dtype = "float64" if width == 4 else "float32"
    cases = CASES if width == 4 else [case for case in NARROW if (case in FIRST) != long]
    for turn, case in enumerate(cases[::step]):
        options = dict(algo=case.algo, loss=case.loss, epochs=2, dtype=dtype, progress=False)
        weighted, plain = (frozen, np.ones(300)), (y.astype(float), None)
        matrices = (x, fixed, binary, constant)
        kinds = zip(matrices, (plain, weighted, weighted, weighted), strict=True) if long else (
            (x, weighted), *((matrix, plain) for matrix in matrices[1:][turn % 4 : turn % 4 + 1])
        )  # fmt: skip
        for matrix, labels in kinds:
            fit(matrix, labels[0], sample_weight=labels[1], **options)
        if width == 4:
            places = ("2GB", "20MB" if case.method.linear else "26MB")
            for memory in places if long else places[turn // 4 % 2 :][: turn % 4 == 3]:
                fit(f"{directory}/*.parquet", memory=memory, **options)


@pytest.mark.parametrize("long", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("width", [4, pytest.param(8, marks=pytest.mark.long)], ids=["float64", "float32"])
def test_each_kernel_is_compiled_for_one_signature_only_and_by_one_process(tmp_path, width, long):
    """And none counts references: to count the arrays of a block for every row costs five times the work (see
    ``jit.kernel``); the symbol of the kernel itself is found, so the other is looked for in the right place."""
    shards_of(tmp_path / "shards", *random_rows(300, D))
    told = json.loads(run_python(COMPILED, tmp_path / "shards", width, long, 1))
    signatures = told["signatures"]
    assert told["named"] and set(told["counting"]) & set(specialised()) and not any(told["counting"].values()), told
    assert {name for name, n in signatures.items() if n > 1} <= HELPERS
    compiled = {name for name, n in signatures.items() if n == 1}
    if width == 8:
        assert len(compiled & set(specialised())) >= (len(NARROW) - len(FIRST) if long else len(FIRST))
        return
    assert set(specialised()) <= compiled and set(specialised()) <= set(told["counting"])
    step = 2 if long else 8
    found = json.loads(run_python(COMPILED, tmp_path / "shards", width, long, step))
    assert found["hits"] >= len(CASES[::step]) and set(found["misses"].values()) == {0}


# Parameters


@every_method
def test_numbers_out_of_bounds_are_refused_by_name(method):
    for param in method.params:
        if param.choices:
            for value in ("nonsense", 1, [1], ""):
                with pytest.raises(ValueError, match=f"{param.name} must be one of {', '.join(param.choices)}"):
                    resolve(method.name, None, None, None, {param.name: value})
            for value in param.choices:
                assert resolve(method.name, None, None, None, {param.name: value}).settings[param.name] == value
            continue
        loss = next((loss for loss in param.losses if loss in method.losses), None)
        penalty = next(iter(param.penalties), None)
        wrong = [np.nextafter(param.low, -np.inf) if not param.open_low else param.low, "many", float("nan"), [1]]
        highest = np.nextafter(param.high, -np.inf) if param.open_high else param.high
        if param.open_high:
            wrong.append(param.high)
        if np.isfinite(param.high):
            wrong.append(np.nextafter(param.high, np.inf) * (1 + 1e-9) + 1e-9)
        if param.integer:
            wrong.append(param.low + 0.5)
        for value in wrong:
            with pytest.raises(ValueError, match=param.name):
                resolve(method.name, loss, penalty, None, {param.name: value})
        for value in (param.default, highest):
            setting = resolve(method.name, loss, penalty, None, {param.name: value})
            assert setting.settings[param.name] == value


@every_method
def test_a_parameter_without_effect_is_refused_naming_the_methods_that_have_it(method):
    having = {}
    for other in METHODS.values():
        for param in other.params:
            having.setdefault(param.name, (param.default, []))[1].append(other.name)
    for name in having.keys() - {param.name for param in method.params}:
        default, names = having[name]
        named, asked = listed(names), method.name.removesuffix("_mc")
        assert {n.removesuffix("_mc") for n in names} == {n.removesuffix("_mc") for n in named.split(", ")}
        meant = f"did you mean {name.swapcase()}" if name.swapcase() in {p.name for p in method.params} else named
        with pytest.raises(TypeError, match=f"{name}.*{asked}.*{re.escape(meant)}"):
            resolve(method.name, None, None, None, {name: default})
    with pytest.raises(TypeError, match="no method has it"):
        resolve(method.name, None, None, None, {"learning_speed": 1})


@every_method
def test_what_a_method_does_not_have_is_refused_by_name(method):
    for name, value in (("loss", "huber"), ("penalty", "l7"), ("bias", "free")):
        if name == "bias" and value in method.bias:
            continue
        choice = {"loss": None, "penalty": None, "bias": None, name: value}
        with pytest.raises((ValueError, TypeError), match=f"{name}='{value}'"):
            resolve(method.name, given={}, **choice)


WITH_LOSSES = [m.name for m in METHODS.values() if m.certificate and m.losses]


@pytest.mark.parametrize("name", WITH_LOSSES)
@pytest.mark.parametrize("epochs", [1, 2, 9])
def test_the_dual_bound_of_losses_is_never_below_zero(name, epochs):
    """D(0) = 0: a gap is at most 1, whatever C is and however early a run stops."""
    x, y = random_rows(60, 8)
    method = METHODS[name]
    y = (np.arange(60) + y).astype(int) % 3 if method.all_classes else y
    how = {"multiclass": "native"} if method.all_classes else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit(x, y, algo=name.removesuffix("_mc"), C=1e20, epochs=epochs, tol=1e-12, progress=False, **how)
    found = model.result_.certificate
    if found is not None:
        assert 0 <= found["dual"] <= found["primal"] * (1 + 1e-9) and 0 <= found["gap"] <= 1
    assert found is not None or epochs < 3  # of passes of the start nothing is certified
    assert all(r["gap"] <= 1 and r["dual"] >= 0 for r in model.result_.history if "gap" in r)


def test_printed_rules_state_what_bounds_a_step_and_what_shrinks():
    assert "(1 - eta_t lam) w" in METHODS["sgd"].formula and "at most the rate" in METHODS["sgd"].formula
    assert "truncate" in METHODS["sgd"].formula
    assert "(1 - lam / D) w" in METHODS["sgd_newton"].formula


def test_every_method_says_what_it_is():
    for name, method in METHODS.items():
        assert name == method.name and method.title and method.paper and method.weight_meaning and method.form.mixing
        assert "<-" in method.formula and all(param.doc for param in method.params)
    with pytest.raises(ValueError, match="unknown algo 'pa7'; `bigclf algorithms` lists"):
        resolve("pa7", None, None, None, {})


# Save, load, continue


@either_dtype
def test_a_run_taken_up_again_equals_one_that_never_stopped(case, dtype, tmp_path, quiet):
    x, y = case.data(150, D)
    x = widened(x) if dtype == "float32" and case in FIRST else x
    options = dict(algo=case.algo, loss=case.loss, dtype=dtype, progress=False)
    options |= {"tol": 0} if case.method.certificate else {}
    learns_first = any(param.name == "start" for param in case.method.params) and case.method.certificate
    options |= {"inner_rounds": 2} if case.method.by_duals else {"start": 2} if learns_first else {}
    straight = fit(x, y, epochs=7, run_dir=tmp_path / "straight", **options)
    fit(x, y, epochs=3, run_dir=tmp_path / "parts", **options)
    resumed = fit(x, y, epochs=7, run_dir=tmp_path / "parts", resume=True, **options)
    last = resumed.result_.epochs
    ended = straight.result_.stopped == "tolerance" or (last > 3 and straight.result_.stopped == "settled")
    assert last == straight.result_.epochs and (last == 7 or ended)
    assert straight.digest() == resumed.digest()
    epochs = [record["epoch"] for record in resumed.result_.history]  # the file keeps at most ten a second
    assert epochs == sorted(set(epochs)) and epochs[-1] == last


@every_case
def test_the_same_call_gives_the_same_bits_and_the_seed_matters(case, quiet):
    x, y = case.data(150, D)
    options = dict(algo=case.algo, loss=case.loss, epochs=3, progress=False)
    model, again, other = (fit(x, y, seed=seed, **options) for seed in (0, 0, 1))
    assert model.digest() == again.digest()
    if only_sums(case.method):
        np.testing.assert_array_equal(model.coef_, other.coef_)
    else:
        assert model.digest() != other.digest()


@pytest.mark.parametrize("case", [long_but_first(case) for case in NARROW])
def test_weights_of_half_the_width_learn_the_same(case, quiet):
    """float32 weights: 24 bits, so a few parts in a million after some hundred updates."""
    x, y = case.data(150, D)
    options = dict(algo=case.algo, loss=case.loss, epochs=2, progress=False)
    wide = fit(x, y, **options).coef_
    narrow = fit(widened(x) if case in FIRST else x, y, dtype="float32", **options).coef_
    assert np.any(wide != narrow)
    np.testing.assert_allclose(narrow, wide, rtol=1e-3, atol=1e-4)


def test_indices_are_read_where_they_lie():
    for kind in (np.int32, np.int64):
        indices = np.array([0, 5, 7], kind)
        assert np.shares_memory(as_unsigned(indices), indices) and as_unsigned(indices).dtype.kind == "u"


# What a person gives to ``fit``: weights of rows, a bias, and what the run says of the rows it learned from


def losses_of(method):
    """(loss, marks) of a method: its first loss of classes and of numbers is plain, one more long, the others slow."""
    plain = {METHODS[method].losses[:1], tuple(loss for loss in METHODS[method].losses if loss in REGRESSION)[:1]}
    return [(loss, () if (loss,) in plain else pytest.mark.long if Case(method, loss) in SOURCES else pytest.mark.slow)
            for loss in METHODS[method].losses] or [(None, ())]  # fmt: skip


every_loss = pytest.mark.parametrize(("name", "loss"), [
    pytest.param(name, loss, marks=marks, id=f"{name}-{loss}" if loss else name)
    for name in METHODS for loss, marks in losses_of(name)
])  # fmt: skip
MANY = 60  # rows


def rows_to_fit(name, loss, n_rows=MANY):
    """Dense float32 rows, no two alike, none empty, and labels of the method's kind, which ask for a bias."""
    method, real = METHODS[name], loss in REGRESSION
    x, y = random_rows(n_rows, 8, 0.5, seed=4, real=real, noise=0.0 if name == "memma_blocks" else 0.5)
    x = x.toarray()
    x[:, 0] += x[:, 0] == 0
    x[:, 1] -= 1
    if method.all_classes:
        y = (x @ np.random.default_rng(0).standard_normal((8, 4))).argmax(axis=1)
    return (x / np.abs(x).max() if method.form.threshold else x), y


def settings_for(name, loss):
    """Parameters other than the default, where a method has them to be tried with; MEMMA's width among them."""
    tube = any(param.name == "epsilon" and loss in param.losses for param in METHODS[name].params)
    return GIVEN.get(name, [{}])[0] | ({"epsilon": 0.05} if tube else {})


def answer_of(model):
    """[feature + 1] or [feature + 1, class], the bias last."""
    rows = np.column_stack([model.coef_, model.intercept_])
    return rows.T if rows.shape[0] > 1 else rows[0]


def solved(name, x, y, **options):
    """The model of a method with a certificate, as near to the optimum as it gets."""
    own = {"C": 5.0, "tol": 1e-12} if any(p.name == "C" for p in METHODS[name].params) else {"eps": 0.01}
    return fit(x, y, algo=name, epochs=2000, progress=False, **own, **options)


def recorded(name, loss, bias, weights, monkeypatch):
    """(model, setting, rows visited in their order) of two epochs of ``fit``, the kernel's visits noted."""
    (x, y), noted, kernel = rows_to_fit(name, loss), [], Setting.kernel

    def noting(setting):
        compiled = kernel(setting)

        def update(block, order, *rest):
            noted.append((setting, dense(block, 8)[order]))
            return compiled(block, order, *rest)

        return update

    with monkeypatch.context() as patch:
        patch.setattr(Setting, "kernel", noting)
        model = fit(x, y, algo=name, loss=loss, bias=bias, sample_weight=weights, epochs=2, progress=False,
                    **settings_for(name, loss))  # fmt: skip
    places = {row.tobytes(): i for i, row in enumerate(x.astype(float))}
    visited = np.array([places[row.tobytes()] for _, block in noted for row in block])
    y = y if loss in REGRESSION or METHODS[name].all_classes else np.where(y > 0, 1.0, -1.0)
    wide = np.column_stack([x.astype(float), np.full(MANY, float(bias is not None))])
    setting = noted[0][0].of_classes(4) if METHODS[name].all_classes else noted[0][0]
    return model, setting, visited, [(wide[i], y[i], weights[i]) for i in visited]


LEARNED_BY_ROW = [param for param in every_loss.args[1] if not METHODS[param.values[0]].certificate]


@pytest.mark.parametrize(("name", "loss", "bias"), [
    pytest.param(*param.values, bias, marks=[*param.marks] if plain or param.marks else pytest.mark.long,
                 id=f"{param.id}-{bias}")
    for i, param in enumerate(LEARNED_BY_ROW) for bias, plain in (("feature", i % 2), (None, not i % 2))
])  # fmt: skip
def test_fit_learns_and_counts_as_the_naive_loop_does_over_the_rows_it_visits(name, loss, bias, monkeypatch, quiet):
    """Labels and weights are those that the user gave; mistakes and losses those of each row before it is learned."""
    method, rng = METHODS[name], np.random.default_rng(2)
    weights = rng.choice([0.0, 0.5, 1.0, 2.0, 3.0] if method.row_weights == "any" else [0.0, 1.0], MANY)
    model, setting, visited, rows = recorded(name, loss, bias, weights, monkeypatch)
    told = [*NAIVE[name](rows, setting.settings | {"loss": loss})]
    n = len(rows) // 2
    for epoch in (visited[:n], visited[n:]):
        np.testing.assert_array_equal(np.sort(epoch[weights[epoch] > 0]), np.flatnonzero(weights))
    history, first = model.result_.history, model.result_.progressive
    for record, part in zip(history, (told[:n], told[n:]), strict=True):
        assert record["rows"] == n and record["mistakes"] == sum(row.wrong for row in part)
        assert record["loss"] == pytest.approx(sum(row.loss for row in part), rel=1e-9, abs=1e-12)
    assert first["mistakes"] == history[0]["mistakes"] > 0 and first["rows"] == n and history[0]["loss"] > 0
    if loss in REGRESSION:
        assert first["mean_loss"] == pytest.approx(sum(row.loss for row in told[:n]) / n, rel=1e-9)
        _, y, c = rows[0]
        assert told[0].loss == pytest.approx(c * naive.VALUE[loss](0.0, y, setting.settings.get("epsilon", 0.0)))
    else:
        assert first["error"] == sum(row.wrong for row in told[:n]) / n
    if method.linear:
        found, expected = answer_of(model), told[-1].weights
        np.testing.assert_allclose(found, expected, rtol=0, atol=SEARCHED.get(name, 1e-9) * np.abs(expected).max())
        if method.row_weights == "any":
            alike = [*NAIVE[name]([(x, y, 1.0) for x, y, _ in rows], setting.settings | {"loss": loss})][-1].weights
            assert np.abs(found - alike).max() > 1e-3 * np.abs(alike).max()


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.certificate])
def test_a_row_of_weight_k_counts_as_k_rows_in_an_answer_that_is_certified(name, quiet):
    x, y = rows_to_fit(name, None)
    counts = np.random.default_rng(3).choice([0, 1, 2, 3] if METHODS[name].row_weights == "any" else [0, 1], MANY)
    one, many = solved(name, x, y, sample_weight=counts), solved(name, x.repeat(counts, axis=0), y.repeat(counts))
    np.testing.assert_allclose(answer_of(one), answer_of(many), rtol=0, atol=1e-4 * np.abs(answer_of(many)).max())
    if (certified := one.result_.certificate) is not None:
        assert certified["primal"] == pytest.approx(many.result_.certificate["primal"], rel=1e-9)
    assert np.abs(answer_of(one) - answer_of(solved(name, x, y))).max() > 1e-3 * np.abs(answer_of(one)).max()


MEANINGS = {"multiplies C": ("C", 2.0), "divides r": ("r", 0.5)}  # the parameter, and what weights of 2 make of it
PRICED = [(name, *MEANINGS[method.weight_meaning]) for name, method in METHODS.items()
          if any(param.name == MEANINGS.get(method.weight_meaning, "?")[0] for param in method.params)]  # fmt: skip


@pytest.mark.parametrize(("name", "param", "times"), PRICED)
def test_weights_that_are_all_two_are_the_parameter_they_are_said_to_change(name, param, times, quiet):
    x, y = rows_to_fit(name, None)
    options = dict(algo=name, epochs=6, progress=False)
    heavy = answer_of(fit(x, y, sample_weight=np.full(MANY, 2.0), **{param: 0.1}, **options))
    dearer = answer_of(fit(x, y, **{param: 0.1 * times}, **options))
    np.testing.assert_allclose(heavy, dearer, rtol=1e-9, atol=1e-12)
    assert np.any(heavy != answer_of(fit(x, y, **{param: 0.1}, **options)))


def test_what_a_weight_means_is_declared_in_words_that_the_laws_know():
    means = {name: method.weight_meaning for name, method in METHODS.items()}
    assert set(means.values()) == {*MEANINGS, "multiplies the step", "multiplies the loss", "0 or 1 only"}
    assert {name for name in means if means[name] == "0 or 1 only"} == {
        name for name, method in METHODS.items() if method.row_weights == "binary"
    }
    assert len(PRICED) > 20 and {param.values[0] for param in LEARNED_BY_ROW} == set(NAIVE)


# What begins with a number of the features that it counts the constant among, or not, is told the same
COUNTED = {"alma": {"p": 3.0}, "pumma": {"p": 3.0}}


@every_loss
def test_the_bias_is_the_weight_of_a_column_of_ones(name, loss, quiet):
    x, y = rows_to_fit(name, loss)
    wide = np.column_stack([x, np.ones(MANY, np.float32)])
    given = settings_for(name, loss) | COUNTED.get(name, {})
    if METHODS[name].certificate:
        own, column = (solved(name, rows, y, loss=loss, bias=bias) for rows, bias in ((x, "feature"), (wide, None)))
        grain = 1e-4
    else:
        options = dict(algo=name, loss=loss, epochs=3, progress=False, **given)
        own, column = fit(x, y, bias="feature", **options), fit(wide, y, bias=None, **options)
        grain = SEARCHED.get(name, 1e-9)
    if not METHODS[name].linear:
        np.testing.assert_array_equal(own.predict(x), column.predict(wide))
        assert own.result_.history[-1]["mistakes"] == column.result_.history[-1]["mistakes"]
        return
    found, expected = answer_of(own), answer_of(column)
    last = expected[-1]
    expected = np.concatenate([expected[:-2], expected[-2:-1] + last])
    if METHODS[name].form.threshold:  # of any length, and the constant has a threshold besides
        found, expected = found / np.abs(found).max(), expected / np.abs(expected).max()
    else:
        assert not np.any(last) and np.any(found[-1])
    np.testing.assert_allclose(found, expected, rtol=0, atol=grain * np.abs(expected).max())


def test_every_method_is_held_to_these_laws():
    taken = {param.values[0] for param in every_loss.args[1]}
    assert taken == set(METHODS) == set(NAIVE) | {name for name, method in METHODS.items() if method.certificate}
    assert all("feature" in method.bias and "none" in method.bias for method in METHODS.values())


def common_features(all_classes, n=1200, d=40):
    """Rows of unit norm whose first features nearly all have, a tenth of the labels wrong."""
    rng = np.random.default_rng(0)
    x = (rng.random((n, d)) < 1 / np.arange(1, d + 1) ** 0.5) * rng.random((n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True).clip(1e-9)
    scores = x @ rng.standard_normal((d, 3 if all_classes else 1))
    y = (scores - np.median(scores, axis=0)).argmax(axis=1) if all_classes else 1 * (scores > np.median(scores))[:, 0]
    wrong = rng.random(n) < 0.1
    y[wrong] = (y[wrong] + 1) % (3 if all_classes else 2)
    return x.astype(np.float32), y


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if "precision" in method.form.mixings])
def test_copies_mixed_by_precision_stay_as_right_as_their_mean(name, quiet):
    """In the second epoch too, when all begin with what one knows (sums of steps: 62 % of arow's right)."""
    x, y = common_features(METHODS[name].all_classes)
    right = [
        np.mean(fit(x, y, algo=name, groups=60, mixing=mixing, epochs=2, progress=False).predict(x) == y)
        for mixing in ("precision", "rows")
    ]
    assert right[0] >= right[1] - 0.04, right
    assert right[1] > 0.55
