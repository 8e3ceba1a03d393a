"""Steps over the span of the last rounds' moves: the highest point of it, inside the box, with weights that belong to
the dual variables; and far fewer rounds."""

import numpy as np
import pytest
from making import block_of
from test_conjugate_gradients import D, N, stiff
from test_dual_coordinate_descent import dual, extended, signs

from bigclf.maths.losses import LOSSES
from bigclf.methods import METHODS, resolve
from bigclf.methods.dual.dual_coordinate_descent import Shared
from bigclf.methods.dual.subspace_ascent import MOVES, SubspaceAscent, highest, kernels, moves_bytes, products

stuck_losses = pytest.mark.parametrize("loss", ["hinge", "epsilon_insensitive"])


class Going:
    """Rounds over rows of which some are no members."""

    def __init__(self, loss, bias="feature", dtype="float64", price=0.5):
        self.loss, self.method, self.record = loss, METHODS["dcd"], LOSSES[loss]
        self.x, self.y = stiff(loss)
        self.c = price * np.random.default_rng(1).choice([0.5, 1.0, 2.0], N)
        self.block = block_of(self.x, self.y, self.c / price)
        self.params = self.method.form.bind(resolve("dcd", loss, None, bias, {"C": price}).settings)
        self.shared = resolve("dcd", None, None, None, {}).shared(D, dtype)
        self.rows, self.scores = self.method.how.rows(np.zeros(N)), np.zeros(N)
        self.matrix = extended(self.x, bias)
        self.members = np.random.default_rng(2).permutation(N)[: N - 40]
        self.kernel = self.method.how.update(self.record)
        self.round(np.arange(N))
        given = self.block, self.members, self.shared, self.rows, self.params
        self.moves = SubspaceAscent(kernels(self.record), *given)

    def round(self, members=None):
        members = self.members if members is None else members
        self.kernel(self.block, members, self.shared, self.rows, self.params, self.scores)

    @property
    def objective(self):
        return dual(self.matrix, self.y, self.rows.alpha, self.loss, self.c)

    @property
    def exact_weights(self):
        return self.matrix.T @ (self.rows.alpha * signs(self.loss, self.y))


@stuck_losses
@pytest.mark.parametrize("bias", [None, "feature"])
def test_each_step_raises_the_dual_inside_the_box_and_the_weights_go_with_it(loss, bias):
    going, taken = Going(loss, bias), 0
    others = np.setdiff1d(np.arange(N), going.members)
    stays = going.rows.alpha[others].copy()
    for _ in range(3 * MOVES):
        going.round()
        before, alpha = going.objective, going.rows.alpha.copy()
        gained = going.moves.step()
        assert going.objective > before if gained else np.array_equal(alpha, going.rows.alpha)
        taken += gained
        w = going.exact_weights
        np.testing.assert_allclose(going.shared.weights, w, rtol=1e-9, atol=1e-9 * np.abs(w).max())
        assert (np.abs(going.rows.alpha) <= going.c).all()
        assert loss == "epsilon_insensitive" or (going.rows.alpha >= 0).all()
    assert taken > MOVES
    np.testing.assert_array_equal(going.rows.alpha[others], stays)


def test_along_one_move_it_is_the_highest_point():
    """All dual variables half as large, of an interval that nobody reaches the end of: t a, t = sum a / ||X a||^2."""
    going = Going("hinge", price=1e9)
    going.rows.alpha[:] = np.random.default_rng(3).uniform(1.0, 2.0, N)
    going.members, best = np.arange(N), going.rows.alpha * going.rows.alpha.sum()
    going.shared.weights[:] = going.exact_weights
    best /= going.shared.weights @ going.shared.weights
    given = going.block, going.members, going.shared, going.rows, going.params
    moves = SubspaceAscent(kernels(going.record), *given)
    going.rows.alpha[:] *= 0.5
    going.shared.weights[:] = going.exact_weights
    assert moves.step()
    np.testing.assert_allclose(going.rows.alpha, best, rtol=1e-9)
    np.testing.assert_allclose(going.shared.weights, going.exact_weights, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("m", range(1, MOVES + 1))
def test_the_coefficients_solve_the_small_system(m):
    rng = np.random.default_rng(m)
    moved, b = rng.normal(size=(m, 3000)), rng.normal(size=m)
    shared, gram, c = Shared(rng.normal(size=3000)), np.empty((MOVES, MOVES)), np.empty(m)
    products(shared, moved, gram, c)
    np.testing.assert_allclose(c, -moved @ shared.weights, rtol=1e-9)
    c[:] = b
    highest(gram, c)
    np.testing.assert_allclose(c, np.linalg.solve(moved @ moved.T, b), rtol=1e-9)


def test_a_move_in_the_span_of_others_gets_no_coefficient():
    moved, c = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0], [1.0, 1.0, 2.0]]), np.array([5.0, 3.0, 8.0])
    gram = moved @ moved.T
    highest(gram, c)
    np.testing.assert_allclose(c, [1.0, 3.0, 0.0])


@stuck_losses
def test_it_saves_rounds(loss):
    alone, along = Going(loss), Going(loss)
    for _ in range(60):
        alone.round()
    for _ in range(20):
        along.round()
        along.moves.step()
    assert along.objective > alone.objective


def test_weights_in_single_precision_move_in_it():
    going = Going("hinge", dtype="float32")
    for _ in range(10):
        going.round()
        going.moves.step()
    w = going.exact_weights
    assert going.shared.weights.dtype == going.moves.span.moved.dtype == np.float32
    np.testing.assert_allclose(going.shared.weights, w, rtol=1e-3, atol=1e-4 * np.abs(w).max())


def test_losses_with_a_curvature_of_their_own_or_no_box_have_none():
    having = [name for name in METHODS["dcd"].losses if kernels(LOSSES[name]) is not None]
    assert having == ["hinge", "epsilon_insensitive"]
    assert METHODS["dcd_mc"].how.span(LOSSES["hinge"]) is None
    assert moves_bytes(D, N) == 8 * (MOVES + 2) * (D + 1 + N)
