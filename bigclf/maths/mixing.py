"""How copies of a state that went their own ways for an epoch become one again.

A rule is two functions. ``add(total, start, copy, share)`` takes a copy into ``total`` (a state of zeros at first,
float64 where the state holds floats); ``join(total, start, shares)`` gives the state that the copies taken in make
together. ``start`` is what every copy began the epoch with; a share is at least 0 and need not be normalised. What a
copy left as it was in ``start`` adds exact zeros, so a copy may be given by its changes alone with the same bits.

``Mixture`` takes the copies in group order through a tree of fixed shape: the result depends on nothing else, neither
on who computed a copy or a part of the tree nor on when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from bigclf.compiled.jit import inlined, inner, kernel
from bigclf.maths.deltas import Delta, Named, S, State, applied

FAN = 16  # copies that one node of the tree joins
ADDED = 4  # copies whose steps add up at most, where those of learners by pull do
TRACE = 1e-200  # what a copy counts that has nothing to count: nothing beside others, and alike where none has any


class Weights(State, Protocol):
    """A state with the weights that its answer is made of."""

    @property
    def weights(self) -> np.ndarray: ...


class Measured(Weights, Protocol):
    @property
    def square(self) -> np.ndarray: ...


class Averaged(Weights, Protocol):
    """A state of ``weights, drift, steps`` and what else there is."""

    @property
    def drift(self) -> np.ndarray: ...

    @property
    def steps(self) -> np.ndarray: ...


class Pulled(Averaged, Protocol):
    @property
    def ways(self) -> np.ndarray: ...


class Gaussians(Weights, Protocol):
    @property
    def variances(self) -> np.ndarray: ...


class Momentum(NamedTuple, Generic[S]):
    """Nesterov's momentum from epoch to epoch, over what an epoch of all copies comes to:

        m <- beta m + (w - w_0),    w <- w + beta m,        w_0 the common start, w the joined weights

    beta : 0 <= beta < 1. moving : state -> its array that goes so. follow : (state, beta m) -> None: what else the
    state holds of these weights, after they went."""

    beta: float
    moving: Callable[[S], np.ndarray]
    follow: Callable[[S, np.ndarray], None]

    def begin(self, state: S) -> np.ndarray:
        """m before the first epoch, float64 of the shape of what moves."""
        return np.zeros(self.moving(state).shape)

    def go_on(self, start: S, state: S, velocity: np.ndarray) -> None:
        """``velocity``, m, and ``state`` as above, in place."""
        velocity *= self.beta
        velocity += self.moving(state)
        velocity -= self.moving(start)
        further = self.beta * velocity
        moving = self.moving(state)
        moving += further
        self.follow(state, further)


W = TypeVar("W", bound=Weights)
M = TypeVar("M", bound=Measured)
A = TypeVar("A", bound=Averaged)
P = TypeVar("P", bound=Pulled)


Copy: TypeAlias = tuple[S, float]  # a state, and its share


class Rule(NamedTuple, Generic[S]):
    """add : (total, start, copy, share) -> None; join : (total, start, sum of shares) -> state; by_place : whether what
    comes of a feature depends on that feature's values alone, so that a part of the features can be joined apart;
    momentum : how the joined state goes further the way that it came, or None: it stays; pair : (start, one, other) ->
    state, what two copies, each with its share, make together where they are all there are, in fewer passes over memory
    and with the same bits, or None; counts : arrays that count what an epoch adds to them, and that nobody reads: each
    epoch begins with zeros, and they do not travel to the groups."""

    add: Callable[[S, S, S, float], None]
    join: Callable[[S, S, float], S]
    by_place: bool = True
    momentum: Momentum[S] | None = None
    pair: Callable[[S, Copy[S], Copy[S]], S] | None = None
    counts: tuple[str, ...] = ()


@kernel
def accumulate(total, start, copy, share):  # type: ignore[no-untyped-def]
    """total += share (copy - start)"""
    for j in range(total.size):
        total[j] += share * (np.float64(copy[j]) - np.float64(start[j]))


@kernel
def interpolate(start, total, t, out):  # type: ignore[no-untyped-def]
    """out = start + t total; where total is 0 start keeps its bits."""
    for j in range(out.size):
        out[j] = start[j] if total[j] == 0 else np.float64(start[j]) + t * np.float64(total[j])


@kernel
def sum_pair(start, one, other, out):  # type: ignore[no-untyped-def]
    """out = start + ((one - start) + (other - start)): what ``accumulate`` of both and ``interpolate`` come to."""
    for j in range(out.size):
        before = np.float64(start[j])
        total = (np.float64(one[j]) - before) + (np.float64(other[j]) - before)
        out[j] = start[j] if total == 0 else before + total


def settled(before: np.ndarray, after: np.ndarray, t: float) -> np.ndarray:
    """before + t (after - before): how far arrays with a row axis go along their step."""
    out: np.ndarray = after if t == 1.0 else before + t * (after - before)
    return out


@kernel
def accumulate_drift(total, start, copy, start_weights, copy_weights, steps):  # type: ignore[no-untyped-def]
    """total += steps (copy's weights - start's weights) - (copy's drift - start's drift)"""
    for j in range(total.size):
        moved = np.float64(copy_weights[j]) - np.float64(start_weights[j])
        total[j] += steps * moved - (copy[j] - start[j])


def add_mean(
    total: Iterable[np.ndarray], start: Iterable[np.ndarray], copy: Iterable[np.ndarray], share: float
) -> None:
    for t, s, c in zip(total, start, copy, strict=True):
        accumulate(t.reshape(-1), s.reshape(-1), c.reshape(-1), float(share))


def _moved(total: S, start: S, scale: float) -> S:
    """start + scale total, array by array, in the types of ``start``."""
    return type(start)(*_moved_arrays(total, start, scale))


def _moved_arrays(total: Iterable[np.ndarray], start: Iterable[np.ndarray], scale: float) -> list[np.ndarray]:
    arrays = []
    for t, s in zip(total, start, strict=True):
        out = np.empty_like(s)
        interpolate(s.reshape(-1), t.reshape(-1), scale, out.reshape(-1))
        arrays.append(out)
    return arrays


def join_mean(total: S, start: S, shares: float) -> S:
    return _moved(total, start, 1.0 / shares if shares > 0 else 0.0)


# Iterative parameter mixing (McDonald, Hall, Mann, NAACL 2010): sum_k mu_k w_k, mu_k a copy's part of the shares. Their
# mu by errors is by updates, which are the same for their perceptron: a learner with a margin moves without errors.
MEAN: Rule[State] = Rule(add_mean, join_mean)


def _join_measured(total: M, start: M, shares: float) -> M:
    state = join_mean(total, start, shares)
    if np.any(total.weights):
        state.square[0] = inner(state.weights, state.weights)
    return state


# The mean, for states that keep in ``square`` the squared length of their weights: that of the mixed ones is measured.
MEASURED: Rule[Measured] = Rule(add_mean, _join_measured, by_place=False)


def _weights(state: Weights) -> np.ndarray:
    return state.weights


def _nothing(state: Weights, further: np.ndarray) -> None:
    pass


def _follow_measured(state: Measured, further: np.ndarray) -> None:
    state.square[0] = inner(state.weights, state.weights)


def _follow_averaged(state: Averaged, further: np.ndarray) -> None:
    """The sum of the weights over t steps, t w - drift, stays: nobody took a step."""
    state.drift[...] += further * float(state.steps[0])


BETA = 0.6  # where nobody says another one
OF_WEIGHTS: Momentum[Weights] = Momentum(BETA, _weights, _nothing)
OF_MEASURED: Momentum[Measured] = Momentum(BETA, _weights, _follow_measured)
OF_AVERAGED: Momentum[Averaged] = Momentum(BETA, _weights, _follow_averaged)
OF_MEANS: Momentum[Weights] = Momentum(BETA, lambda state: state.weights[..., 0], _nothing)  # not their variances


# Steps of dual methods and sums: start + sum_k (copy_k - start), whatever the shares.
SUM: Rule[State] = Rule(lambda total, start, copy, share: add_mean(total, start, copy, 1.0),
           lambda total, start, shares: _moved(total, start, 1.0))  # fmt: skip


def totals(*names: str, sharing: bool = False) -> Rule[Named]:
    """The rule for states of which the arrays ``names`` are sums over rows and nothing else changes in an epoch;
    ``sharing`` : what is joined has its other arrays in common with the start, of two copies also those that neither
    has of its own."""

    def add(total: Named, start: Named, copy: Named, share: float) -> None:
        for name in names:
            t, s, c = (getattr(state, name) for state in (total, start, copy))
            if c is not s:
                accumulate(t.reshape(-1), s.reshape(-1), c.reshape(-1), 1.0)

    def join(total: Named, start: Named, shares: float) -> Named:
        state = start if sharing else type(start)(*(array.copy() for array in start))
        sums = {name: np.empty_like(getattr(start, name)) for name in names}
        for name, out in sums.items():
            interpolate(getattr(start, name).reshape(-1), getattr(total, name).reshape(-1), 1.0, out.reshape(-1))
        return state._replace(**sums)

    def pair(start: Named, one: Copy[Named], other: Copy[Named]) -> Named:
        sums = {}
        for name in names:
            s, a, b = (getattr(state, name) for state in (start, one[0], other[0]))
            if a is not s or b is not s:
                sums[name] = np.empty_like(s)
                sum_pair(s.reshape(-1), a.reshape(-1), b.reshape(-1), sums[name].reshape(-1))
        return start._replace(**sums)

    return Rule(add, join, pair=pair if sharing else None)


def _add_steps(total: Averaged, start: Averaged, copy: Averaged) -> None:
    """Take in the steps of a copy and what its drift says of the weights at each of them."""
    before, now = start.weights.reshape(-1), copy.weights.reshape(-1)
    drifts = total.drift.reshape(-1), start.drift.reshape(-1), copy.drift.reshape(-1)
    accumulate_drift(drifts[0], drifts[1], drifts[2], before, now, float(copy.steps[0]))
    total.steps[:] += copy.steps - start.steps


def _joined_steps(total: Averaged, start: Averaged, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(drift, steps) of the mixed ``weights``. The sum of the weights over t steps is S = t w - drift, and
    S = S_0 + sum_k (S_k - S_0). Solved for the drift after t' steps:  drift' = drift_0 + t' (w' - w_0) - total."""
    steps = start.steps + total.steps
    change = np.zeros(weights.size)
    accumulate(change, start.weights.reshape(-1), weights.reshape(-1), float(steps[0]))
    change -= total.drift.reshape(-1)
    drift = np.empty_like(start.drift)
    interpolate(start.drift.reshape(-1), change, 1.0, drift.reshape(-1))
    return drift, steps


def _add_averaged(total: Averaged, start: Averaged, copy: Averaged, share: float) -> None:
    accumulate(total.weights.reshape(-1), start.weights.reshape(-1), copy.weights.reshape(-1), float(share))
    _add_steps(total, start, copy)
    add_mean(total[3:], start[3:], copy[3:], share)


def _join_averaged(total: A, start: A, shares: float) -> A:
    scale = 1.0 / shares if shares > 0 else 0.0
    (weights,) = _moved_arrays(total[:1], start[:1], scale)
    return type(start)(weights, *_joined_steps(total, start, weights), *_moved_arrays(total[3:], start[3:], scale))


# Averaged models: weights (and what follows the first three arrays) mix by their shares; the average stays the mean
# over every step any copy took, once each.
AVERAGED: Rule[Averaged] = Rule(_add_averaged, _join_averaged)


@inlined
def together(own, one, copies, added):  # type: ignore[no-untyped-def]
    """How far so many copies go together whose own and one learner's parts sum up to these; one copy: as it went."""
    return own if copies <= 1 else min(one, added * own / copies)


@inlined
def wanted(moved, own, one, copies, added):  # type: ignore[no-untyped-def]
    """q / (1 - e^-s) moved, q = one's part, s = ``together``: how far the rows of copies that moved so would have it,
    times q."""
    if moved == 0:
        return 0.0
    s = together(own, one, copies, added)
    return moved * (one / -np.expm1(-s) if s > 0 else 1.0)


@inlined
def gone(own, one, copies, added):  # type: ignore[no-untyped-def]
    """(1 - e^-S) / Q, Q = ones' part, S = ``together``"""
    s = together(own, one, copies, added)
    return -np.expm1(-s) / one if s > 0 else 1.0


@kernel
def accumulate_pulled(total, start, copy, before, now, copies, added):  # type: ignore[no-untyped-def]
    """total += q / (1 - e^-s) (copy - start), q = one's part now - before, s = ``together``, place by place"""
    for j in range(total.size):
        own, one = now[j, 0] - before[j, 0], now[j, 1] - before[j, 1]
        total[j] += wanted(np.float64(copy[j]) - np.float64(start[j]), own, one, copies, added)


@kernel
def interpolate_pulled(start, total, ways, copies, added, out):  # type: ignore[no-untyped-def]
    """out = start + (1 - e^-S) / Q total, Q = ones' part, S = ``together``; where total is 0 start keeps its bits."""
    for j in range(out.size):
        if total[j] == 0:
            out[j] = start[j]
        else:
            out[j] = np.float64(start[j]) + gone(ways[j, 0], ways[j, 1], copies, added) * total[j]


def _add_pulled(total: Pulled, start: Pulled, copy: Pulled, share: float) -> None:
    accumulate_pulled(total.weights, start.weights, copy.weights, start.ways, copy.ways, float(share), float(ADDED))
    _add_steps(total, start, copy)
    accumulate(total.ways.reshape(-1), start.ways.reshape(-1), copy.ways.reshape(-1), 1.0)


def _join_pulled(total: P, start: P, shares: float) -> P:
    weights = np.empty_like(start.weights)
    interpolate_pulled(start.weights, total.weights, total.ways, float(shares), float(ADDED), weights)
    return type(start)(weights, *_joined_steps(total, start, weights), *_moved_arrays(total[3:], start[3:], 1.0))


@kernel
def pair_pulled(start, one, other, share, its_share, added, weights, drift):  # type: ignore[no-untyped-def]
    """``weights`` and ``drift`` of what ``_add_pulled`` of both copies and ``_join_pulled`` come to, place by place."""
    steps, its_steps = np.float64(one.steps[0]), np.float64(other.steps[0])
    all_steps, shares = one.steps[0] + other.steps[0] - start.steps[0], share + its_share
    for j in range(weights.size):
        w, d = np.float64(start.weights[j]), start.drift[j]
        own, by_one = one.ways[j, 0] - start.ways[j, 0], one.ways[j, 1] - start.ways[j, 1]
        its_own, its_one = other.ways[j, 0] - start.ways[j, 0], other.ways[j, 1] - start.ways[j, 1]
        moved, its_moved = np.float64(one.weights[j]) - w, np.float64(other.weights[j]) - w
        total = wanted(moved, own, by_one, share, added)
        total += wanted(its_moved, its_own, its_one, its_share, added)
        weights[j] = start.weights[j]
        if total != 0:
            weights[j] = w + gone(own + its_own, by_one + its_one, shares, added) * total
        drifts = steps * moved - (one.drift[j] - d)
        drifts += its_steps * its_moved - (other.drift[j] - d)
        change = np.float64(all_steps) * (np.float64(weights[j]) - w) - drifts
        drift[j] = d if change == 0 else d + change


def _pair_pulled(start: P, one: Copy[P], other: Copy[P]) -> P:
    (a, share), (b, its_share) = one, other
    weights, drift = np.empty_like(start.weights), np.empty_like(start.drift)
    pair_pulled(start, a, b, float(share), float(its_share), float(ADDED), weights, drift)
    ways = np.empty_like(start.ways)  # what is joined with others is weighed by them
    sum_pair(start.ways.reshape(-1), a.ways.reshape(-1), b.ways.reshape(-1), ways.reshape(-1))
    return type(start)(weights, drift, a.steps + b.steps - start.steps, ways)


# Averaged models of learners whose steps shorten as rows are fitted, each by the part h of the way to what its row asks
# for. After parts of the sum s a weight has gone 1 - e^-s of the way to w*, where its rows have it. In K groups a row
# stands for K, and a copy takes longer steps than one learner would; the array ``ways`` of the state has at each
# feature the sum s of the parts of its own steps and q of those that one learner would take at the same rows. Copy k
# says w* = w_0 + (w_k - w_0) / (1 - e^-s_k). One learner over all rows would have gone 1 - e^-S of the way,
# S = sum_k q_k, to the mean of the w* by q_k:
#     w = w_0 + (1 - e^-S) / sum_k q_k  sum_k q_k / (1 - e^-s_k) (w_k - w_0).
# Short steps are K times as long in a copy, s_k = K q_k, and of copies that went alike this is the mean, right in all
# directions at once, as it is where each has learned all that its rows can teach (s_k large). Between the two, where a
# rate is near its bound, copies fall short, s_k < K q_k, and their steps add up in part. Rows of many features fit
# together sooner than s, which looks at one feature, can tell, and steps of many copies would go too far: together they
# go no further than ``ADDED`` times what a copy went in the mean, S = min(sum_k q_k, ADDED mean_k s_k). A share is the
# number of copies that a state was joined from; what it was joined with is undone before it is joined with others.
PULL: Rule[Pulled] = Rule(_add_pulled, _join_pulled, pair=_pair_pulled, counts=("ways",))


@kernel
def accumulate_weighed(total, start, copy, before, now, trace):  # type: ignore[no-untyped-def]
    """total += (now - before + trace) (copy - start), place by place"""
    for j in range(total.size):
        total[j] += (now[j] - before[j] + trace) * (np.float64(copy[j]) - np.float64(start[j]))


@kernel
def interpolate_weighed(start, total, weight, trace, out):  # type: ignore[no-untyped-def]
    """out = start + total / (weight + trace); where total is 0 start keeps its bits."""
    for j in range(out.size):
        out[j] = start[j] if total[j] == 0 else np.float64(start[j]) + total[j] / (weight[j] + trace)


def weighed(by: str) -> Rule[Weights]:
    """The rule that weighs each copy's change at a feature by how much the array ``by`` of the state (float64
    [feature + 1], which only grows) has grown there:  w_j = w0_j + sum_k c_kj (w_kj - w0_j) / sum_k c_kj.  ``by``
    itself and whatever else the state holds grows by the sum of the copies' changes.

    With c the rows that have the feature, or with AdaGrad's sum of squared gradients (Agarwal et al., JMLR 2014): a
    copy that has seen much of a feature counts for more there than one that has not. Where no copy has seen anything
    of it, what regularisation made of its weight counts by the shares.
    """

    def add(total: Weights, start: Weights, copy: Weights, share: float) -> None:
        before, now = getattr(start, by), getattr(copy, by)
        accumulate_weighed(total.weights, start.weights, copy.weights, before, now, TRACE * share)
        for t, s, c in zip(total[1:], start[1:], copy[1:], strict=True):
            accumulate(t, s, c, 1.0)

    def join(total: Weights, start: Weights, shares: float) -> Weights:
        state = _moved(total, start, 1.0)
        interpolate_weighed(start.weights, total.weights, getattr(total, by), TRACE * shares, state.weights)
        return state

    return Rule(add, join)


FEATURES = weighed("touched")  # states that count, in ``touched``, the rows that have each feature


@kernel
def accumulate_fused(total, precisions, start, s0, copy, s, share):  # type: ignore[no-untyped-def]
    """total += share (mu - mu0) / s, precisions += share (1/s - 1/s0), place by place; the means of a place share its
    variance."""
    for j in range(precisions.size):
        now, before = np.float64(s[j]), np.float64(s0[j])
        for c in range(total.shape[1]):
            total[j, c] += share * (np.float64(copy[j, c]) - np.float64(start[j, c])) / now
        precisions[j] += share * (before - now) / (now * before)


@kernel
def fuse(total, precisions, start, s0, out, s, scale):  # type: ignore[no-untyped-def]
    """out = mu0 + s scale total, 1/s = 1/s0 + scale precisions; where these are 0 start keeps its bits."""
    for j in range(precisions.size):
        now = np.float64(s0[j])
        if precisions[j] != 0:
            now /= 1.0 + now * scale * precisions[j]
        s[j] = now
        for c in range(total.shape[1]):
            moved = now * scale * total[j, c]
            out[j, c] = start[j, c] if total[j, c] == 0 else np.float64(start[j, c]) + moved


def _in_pairs(state: Weights) -> tuple[np.ndarray, np.ndarray]:
    """The means [place, 1] and variances [place] of ``weights`` [..., 2]."""
    pairs = state.weights.reshape(-1, 2)
    return pairs[:, :1], pairs[:, 1]


def _fused(parts: Callable[[W], tuple[np.ndarray, np.ndarray]]) -> Rule[W]:
    """The rule for states of which ``parts`` gives the means [place, n] and variances [place]."""

    def add(total: W, start: W, copy: W, share: float) -> None:
        accumulate_fused(*parts(total), *parts(start), *parts(copy), float(share))

    def join(total: W, start: W, shares: float) -> W:
        state = type(start)(*map(np.empty_like, start))
        fuse(*parts(total), *parts(start), *parts(state), 1.0 / shares if shares > 0 else 0.0)
        return state

    return Rule(add, join)


# Gaussians that learned from different rows, p_k a copy's part of the shares: the Gaussian nearest to all of them, that
# is the one of the smallest sum_k p_k KL(it || copy k), has the means of their precisions and of precision times mean,
#     1/s = sum_k p_k / s_k = 1/s0 + sum_k p_k (1/s_k - 1/s0),    mu = s sum_k p_k mu_k / s_k.
# What all began with counts once, since sum_k p_k = 1. The sum of what copies learned (p_k = 1 in the changes) would be
# the posterior given all rows if these were new; from the second epoch on they are not. The start knows them already,
# its precision is close to that of every copy, and steps that all copies take for the same lack of margin add up: K
# times the step that one learner takes. Of states with ``weights`` [..., 2], mean and variance s of each:
PRECISION: Rule[Weights] = _fused(_in_pairs)

# The same of states with ``weights`` [feature + 1, class], the means, and ``variances`` [feature + 1] for all classes.
SHARED_PRECISION: Rule[Gaussians] = _fused(lambda state: (state.weights, state.variances))


class Node(Generic[S]):
    """A node of the tree: up to ``FAN`` copies taken in one after another, their total, shares and number.

    Parameters
    ----------
    rule : how copies are joined. start : the state that every copy began with; it is not changed.
    lasting : copies stay as they are until all is joined, so that the first two may wait for what follows.
    """

    def __init__(self, rule: Rule[S], start: S, lasting: bool = False) -> None:
        self.rule, self.start = rule, start
        self._total: S | None = None
        self._waiting: list[tuple[S, float]] = []  # those that are not in the total
        self._waits = lasting and rule.pair is not None
        self.shares, self.count = 0.0, 0

    @property
    def total(self) -> S:
        """What has been taken in."""
        if self._total is None:
            own = (np.zeros(a.shape, np.int64 if a.dtype.kind == "i" else np.float64) for a in self.start)
            self._total = type(self.start)(*own)
        while self._waiting:
            self.rule.add(self._total, self.start, *self._waiting.pop(0))
        return self._total

    def clear(self) -> None:
        """Begin anew, in the same memory."""
        self._waiting = []
        for total in self._total or ():
            total[...] = 0
        self.shares, self.count = 0.0, 0

    def let_go(self) -> None:
        """Nothing is asked of it any more."""
        self._total, self._waiting = None, []

    def add(self, copy: S | Delta, share: float) -> None:
        """Take in the next copy (a state or a ``Delta`` to the start)."""
        if isinstance(copy, Delta):
            self._add_changes(copy, share)
        elif self._waits and self.count < 2 and len(self._waiting) == self.count:
            self._waiting.append((copy, share))
        else:
            self.rule.add(self.total, self.start, copy, share)
        self.shares += share
        self.count += 1

    def _add_changes(self, delta: Delta, share: float) -> None:
        """As for a whole copy, on the places that changed alone."""
        kind, places, sums = type(self.start), delta.places, self.total
        part = kind(*(t if w else t[places] for t, w in zip(sums, delta.whole, strict=True)))
        start = kind(*(s if w else s[places] for s, w in zip(self.start, delta.whole, strict=True)))
        self.rule.add(part, start, kind(*delta.arrays), share)
        for total, changed, whole in zip(sums, part, delta.whole, strict=True):
            if not whole:
                total[places] = changed

    def go_on(self, total: tuple[np.ndarray, ...], shares: float, count: int) -> None:
        """Go on from what another node like this one has taken in."""
        self._total, self._waiting = type(self.start)(*(array.copy() for array in total)), []
        self.shares, self.count = shares, count

    def join(self) -> S:
        """The state that these copies make together."""
        if len(self._waiting) == 2 and self.rule.pair is not None:
            return self.rule.pair(self.start, *self._waiting)
        return self.rule.join(self.total, self.start, self.shares)


class Mixture(Generic[S]):
    """Copies taken in one after another, joined ``FAN`` at a time into nodes, nodes again, up to one state.

    Parameters
    ----------
    rule : how copies are joined.
    start : the state that every copy began with; it is not changed. lasting : as of a ``Node``.
    """

    def __init__(self, rule: Rule[S], start: S, lasting: bool = False) -> None:
        self.rule, self.start, self._lasting = rule, start, lasting
        self._nodes: list[Node[S]] = []
        self._only: dict[int, S | Delta] = {}  # the copy itself, where a level has taken in but one

    def add(self, copy: S | Delta, share: float, height: int = 0) -> None:
        """Take in the next copy in group order (a state or a ``Delta`` to the start).

        ``height`` 1 : ``copy`` is what ``FAN`` consecutive copies (fewer only at the end) were joined to elsewhere.
        """
        while len(self._nodes) <= height:
            self._nodes.append(Node(self.rule, self.start, self._lasting))
        node = self._nodes[height]
        if node.count == FAN:
            self._lift(height)
        node.add(copy, share)
        self._only.pop(height, None)
        if node.count == 1:
            self._only[height] = copy

    def _lift(self, height: int) -> None:
        """Hand what a level has joined to the one above."""
        node = self._nodes[height]
        joined, shares = node.join(), node.shares
        node.clear()
        self._only.pop(height, None)
        self.add(joined, shares, height + 1)

    def result(self) -> S:
        """The state that all copies make together; the mixture is used up."""
        height = 0
        while height < len(self._nodes) - 1:  # a level that was full makes another one
            if self._nodes[height].count:
                self._lift(height)
            self._nodes[height].let_go()
            height += 1
        only = self._only.get(height)
        if only is not None:  # one copy keeps its bits
            if isinstance(only, Delta):
                return applied(self.start, only)
            return only if height else type(self.start)(*(array.copy() for array in only))
        return self._nodes[-1].join()

    @property
    def shares(self) -> float:
        """Sum of the shares taken in so far."""
        return sum(node.shares for node in self._nodes)


def line_search(weights: np.ndarray, start: np.ndarray, joined: np.ndarray, rise: float, bend: float) -> float:
    """Exact maximiser over 0 <= t <= 1 of the dual objective along summed steps (Lee and Chang, 2019; Ma et al. 2015).

    With w = sum_i a_i y_i x_i (``weights``), dw = joined - start and, over all rows, rise = sum_i phi'(a_i) da_i and
    bend = -sum_i phi''(a_i) da_i^2 of the concave quadratic terms phi of the dual:
    D(t) - D(0) = t (rise - w.dw) - t^2/2 (bend + ||dw||^2).
    t = 1 keeps every a_i in its box, because each group's own step did.
    """
    across, square = slope_and_square(weights, start, joined)
    curvature = bend + square
    if curvature <= 0:
        return 1.0
    return float(min(1.0, max(0.0, (rise - across) / curvature)))


@kernel
def slope_and_square(weights, start, joined):  # type: ignore[no-untyped-def]
    """(weights . d, d . d) of d = joined - start, in float64 in the order of the entries."""
    across, square = np.float64(0), np.float64(0)
    for j in range(start.size):
        d = np.float64(joined[j]) - np.float64(start[j])
        across += weights[j] * d
        square += d * d
    return across, square


# Groups that agree (the alternating direction method of multipliers: Boyd et al. 2011, section 7; for this problem
# Zhang, Lee, Shin, AISTATS 2012). With K groups and penalty rho, each group k goes on from the common point z, its
# steps counted 1/rho times, so that its own optimum stays near z:  w_k = z + (1/rho) dw_k.  Then
#     w <- w + t dw,  dw = sum_k dw_k;    z <- (w + K rho z + t dw) / (1 + K rho).
# rho = 1/K and z = w would be CoCoA+. P(z) - D(a) = 1/2 ||z - w||^2 + what the rows of all groups lack together.
PENALTY = 1.0  # rho at first, in units of the regulariser's curvature
CHANGE = 1.5  # ... and how it grows or shrinks from epoch to epoch
LARGEST = 1e6  # no larger: w_k - z would drown in rounding


@kernel
def agree(weights, start, joined, t, pull):  # type: ignore[no-untyped-def]
    """weights (float64) += t dw, and ``joined`` becomes the next z; pull = K rho."""
    for j in range(start.size):
        z = np.float64(start[j])
        d = t * (np.float64(joined[j]) - z)
        weights[j] += d
        joined[j] = (weights[j] + pull * z + d) / (1 + pull)


@kernel
def half_distance(weights, point):  # type: ignore[no-untyped-def]
    """1/2 ||weights - point||^2 in float64 in the order of the entries."""
    square = np.float64(0)
    for j in range(weights.size):
        d = weights[j] - np.float64(point[j])
        square += d * d
    return 0.5 * square


def next_penalty(penalty: float, t: float, gap: float, lag: float, groups: int) -> float:
    """rho of the next epoch: the two parts of the gap are to fall together.

    gap : P(z) - D(a) at the start of the epoch; lag : its part 1/2 ||z - w||^2, which a smaller rho makes smaller; the
    rest, that groups want different weights, a larger one. t < 1 : the groups' steps were too long together.
    """
    penalty = penalty * CHANGE if t == 1 and gap - lag > lag else penalty / CHANGE
    return min(LARGEST, max(1.0 / groups, penalty))
