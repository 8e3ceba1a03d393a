"""MEMMA, the maximum entropy maximum margin algorithm (Ohta, Hatano, Takeda): the infinity-norm margin, online.

Weights p are a distribution over the features, or over the features and their mirror images -x_j, which gives weights
p_j+ - p_j- of either sign. With eta = epsilon X / (c ln n), n of them, X the largest value (at least 1), and the last
row of each class learned from, x+ and x-, a row with

    y (p.x + b) < gamma - (epsilon X - eta H(p)),    H(p) = -sum_j p_j ln p_j,

replaces its class's, and then (the paper's Figure 2, with q, gamma_q the p and gamma before)

    max gamma + eta H(p)   such that  p.x+ + b >= gamma,  p.x- + b <= -gamma,  gamma - eta p.ln q <= gamma_q + eta H(q)

The potential form (``memma``). The solutions are p = softmax(v / eta), with  gamma + eta H(p) = F(v),

    F(v) = eta ln sum_j exp(v_j / eta),  v <- (1-s) v + s z,  s = argmin F((1-s) v + s z) on [0, 1],  z = (x+ - x-) / 2

and b = -p.(x+ + x-) / 2: a search for the least F in the hull of all half differences, towards one point at a time. The
test above is  y (p.x + b) < F(v) - epsilon X.  F never rises and never falls below gamma* + eta H(p*), so that it is at
any time a bound of every margin; a pass that learns from no row leaves a margin of F - epsilon X >= gamma* - epsilon X.
Without a free bias z is y x, and the hull that of all y_i x_i.

Of a mirror image v_j is the negative, so that one v_j a feature is all there is. A step changes v at the entries of two
rows and shrinks the rest. Features with |v_j| <= eta / 2, of sparse rows nearly all, are summed by the moments M_k =
sum_j (v_j / eta)^k:  sum_j exp((1-s) v_j / eta) = sum_k (1-s)^k M_k / k!  to the last bit; only those above (``hot``)
are gone through. The first step, a step that forgets the rest (s = 1), a larger X and, so that rounding does not
gather, every so many touched entries as there are features, cost all features (``measure``). A row asks for p_j of its
own entries, which are kept until the next step.

The paper's own recursion is ``bigclf.methods.online.maximum_entropy_recursion``.

In the paper's Lemma 4 the bias is missing: with it c > 3 is needed, and updates are at most
32 c^3 ln n / ((c-3)^2 epsilon^3) + 32 c^2 ln n / ((c-3)^2 epsilon^2)  (of values up to 1).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import entry, inlined, kernel, prefetch_ahead
from bigclf.maths.block import Counts
from bigclf.methods.common import BINARY, ONE_GROUP, SIGNS
from bigclf.methods.method import Param, online
from bigclf.methods.online.held_rows import along, hold, make_point, narrowed, nothing_held
from bigclf.methods.online.winnow import largest_entry

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


ORDERS = 16  # of the moments: (1/2)^15 / 15! is 2e-17
COLD = 0.5  # |v_j| / eta of the features that are summed by moments
SLOPE = 1e-14  # of F, in units of X, at which the search ends
SEARCHES = 60  # most steps of a search

SCALE, BOUND, BIAS, LARGEST, LEAST = range(5)  # of ``numbers``
STEPS, CLOCK, HOT, TOUCHED = range(4)  # of ``counts``


class Shared(NamedTuple):
    """weights : a [feature + 1], v = scale * a, a constant feature last.

    numbers : float64 [5], scale, F, b, X, the least y (p.x + b) since the last step; counts : int64 [4], steps, changes
    of p, hot features, entries touched since all were measured.
    hot : int64 [feature + 1], the features with large |v_j|, in its first places; place : int64 [feature + 1], where in
    ``hot`` a feature stands, from 1 (0: it is cold); levels, ahead : float64 [feature + 1], v_j / eta and z_j / eta by
    place, while a step is taken; moments : float64 [17] of the cold ones.
    answers : float64 [feature + 1], p_j+ - p_j- where ``asked`` (int64) is the present count of changes.
    places, values, sizes : ``held_rows``."""

    weights: np.ndarray
    numbers: np.ndarray
    counts: np.ndarray
    hot: np.ndarray
    place: np.ndarray
    levels: np.ndarray
    ahead: np.ndarray
    moments: np.ndarray
    answers: np.ndarray
    asked: np.ndarray
    places: np.ndarray
    values: np.ndarray
    sizes: np.ndarray


class Params(NamedTuple):
    """epsilon : part of the margin that may lack, in units of X; c : with which eta = epsilon X / (c ln n); mirror :
    1.0 where weights may have either sign, 0.0 where they are not negative; bias : value of the constant feature (1.0
    or 0.0); free : 1.0 where b is free, then there is no constant feature."""

    epsilon: float
    c: float
    mirror: float
    bias: float
    free: float


def bind(settings: Numbers) -> Params:
    free = settings["free_bias"]
    return Params(
        settings["eps"], settings["c"], float(settings["signs"] == "both"), settings["bias"] * (1 - free), free
    )


def begin(n_features: int, dtype: DTypeLike, settings: Numbers) -> Shared:
    n = n_features + 1
    numbers, counts = np.array([1.0, 0, 0, 1, 0]), np.array([0, 1, 0, 0])
    whole, real = (np.zeros(n, np.int64) for _ in range(3)), (np.zeros(n) for _ in range(3))
    hot, place, asked = whole
    levels, ahead, answers = real
    moments = np.zeros(ORDERS + 1)
    return Shared(np.zeros(n, dtype), numbers, counts, hot, place, levels, ahead, moments, answers, asked,
                  *nothing_held(n_features))  # fmt: skip


@inlined
def features(size, params):  # type: ignore[no-untyped-def]
    """How many of ``size`` places are features: the constant one is not always there."""
    return size if params.bias > 0 else size - 1


@inlined
def temperature(size, largest, params):  # type: ignore[no-untyped-def]
    """eta"""
    n = features(size, params) * (1 + params.mirror)
    return params.epsilon * largest / (params.c * math.log(max(n, 2.0)))


@inlined
def warm(shared, j, level):  # type: ignore[no-untyped-def]
    """The feature j, of v_j / eta = level, is summed from now on by itself."""
    k = shared.counts[HOT]
    shared.hot[k], shared.levels[k], shared.ahead[k], shared.place[j] = j, level, 0.0, k + 1
    shared.counts[HOT] = k + 1


@inlined
def add_moments(moments, level, sign):  # type: ignore[no-untyped-def]
    """M_k += sign level^k"""
    power = sign
    for k in range(ORDERS + 1):
        moments[k] += power
        power *= level


@kernel
def partition(s, shared, mirror):  # type: ignore[no-untyped-def]
    """ln sum_j exp(t_j) over features and mirror images, t = ((1-s) v + s z) / eta, and mean and variance of its
    change dt/ds under p."""
    levels, ahead, moments, n = shared.levels, shared.ahead, shared.moments, shared.counts[HOT]
    rest = 1 - s
    most = 0.0 if moments[0] > 0 else -np.inf
    for k in range(n):
        t = rest * levels[k] + s * ahead[k]
        most = max(most, abs(t) if mirror > 0 else t)
    total, first, second = np.float64(0), np.float64(0), np.float64(0)
    factor = 1.0  # rest^k / k!
    for k in range(ORDERS - 1 if moments[0] > 0 else 0):  # cold: dt/ds is -v/eta
        sign = 1 - mirror if k % 2 == 1 else 1 + mirror
        total += sign * factor * moments[k]
        second += sign * factor * moments[k + 2]
        sign = 1 + mirror if k % 2 == 1 else 1 - mirror
        first -= sign * factor * moments[k + 1]
        factor *= rest / (k + 1)
    if moments[0] > 0:
        cold = math.exp(-most)
        total, first, second = cold * total, cold * first, cold * second
    for k in range(n):
        t, d = rest * levels[k] + s * ahead[k], ahead[k] - levels[k]
        up, down = math.exp(t - most), 0.0
        if mirror > 0:
            down = mirror * math.exp(-t - most)
        total += up + down
        first += (up - down) * d
        second += (up + down) * d * d
    mean = first / total
    return most + math.log(total), mean, second / total - mean * mean


@inlined
def search(shared, mirror, flat):  # type: ignore[no-untyped-def]
    """The s in [0, 1] of least F, where its slope is at most ``flat``, and ln sum exp there."""
    s, low, high = 0.0, 0.0, 1.0
    value, first, second = partition(s, shared, mirror)
    for _ in range(SEARCHES):
        if abs(first) <= flat:
            break
        low, high, to = narrowed(low, high, s, first, second)
        if to == s or low == 1:
            break
        s = to
        value, first, second = partition(s, shared, mirror)
    return s, value


@inlined
def sort_out(shared, eta):  # type: ignore[no-untyped-def]
    """After a step: hot features that have cooled go to the moments."""
    hot, place, levels, ahead, counts = shared.hot, shared.place, shared.levels, shared.ahead, shared.counts
    k = 0
    while k < counts[HOT]:
        j = hot[k]
        level = shared.numbers[SCALE] * np.float64(shared.weights[j]) / eta
        ahead[k] = 0.0
        if abs(level) > COLD:
            levels[k] = level
            k += 1
            continue
        add_moments(shared.moments, level, 1.0)
        counts[HOT] -= 1
        place[j], end = 0, counts[HOT]
        if k < end:
            hot[k] = hot[end]
            place[hot[k]] = k + 1


@kernel
def measure(shared, params):  # type: ignore[no-untyped-def]
    """The scale into the weights; which features are hot, the moments of the others, and F anew."""
    weights, numbers, counts, moments = shared.weights, shared.numbers, shared.counts, shared.moments
    eta = temperature(weights.size, numbers[LARGEST], params)
    moments[:] = 0
    counts[HOT] = counts[TOUCHED] = 0
    for j in range(features(weights.size, params)):
        weights[j] = numbers[SCALE] * weights[j]
        shared.place[j] = 0
        level = np.float64(weights[j]) / eta
        if abs(level) > COLD:
            warm(shared, j, level)
        else:
            add_moments(moments, level, 1.0)
    numbers[SCALE] = 1.0
    if counts[STEPS] > 0:
        value, first, second = partition(0.0, shared, params.mirror)
        numbers[BOUND] = eta * value
    counts[CLOCK] += 1


@inlined
def answer(shared, j, eta, mirror):  # type: ignore[no-untyped-def]
    """p_j, of signed weights p_j+ - p_j-"""
    if shared.asked[j] != shared.counts[CLOCK]:
        t, log = shared.numbers[SCALE] * np.float64(shared.weights[j]) / eta, shared.numbers[BOUND] / eta
        shared.answers[j] = math.exp(t - log)
        if mirror > 0:
            shared.answers[j] -= mirror * math.exp(-t - log)
        shared.asked[j] = shared.counts[CLOCK]
    return shared.answers[j]


@kernel
def take_step(shared, params):  # type: ignore[no-untyped-def]
    """Go from v to the point of least F on the way to z."""
    weights, numbers, counts = shared.weights, shared.numbers, shared.counts
    places, values, sizes = shared.places, shared.values, shared.sizes
    eta, mirror = temperature(weights.size, numbers[LARGEST], params), params.mirror
    n = make_point(places, values, sizes)
    s = 1.0
    if counts[STEPS] > 0:
        for r in range(n):
            j = places[r, 2]
            if shared.place[j] == 0:
                level = numbers[SCALE] * np.float64(weights[j]) / eta
                add_moments(shared.moments, level, -1.0)
                warm(shared, j, level)
            shared.ahead[shared.place[j] - 1] = values[r, 2] / eta
        s, value = search(shared, mirror, SLOPE * numbers[LARGEST] / eta)
    counts[STEPS] += 1
    if 1 - s < SLOPE:
        weights[:] = 0
        numbers[SCALE], s = 1.0, 1.0
    else:
        numbers[SCALE] *= 1 - s
    for r in range(n):
        weights[places[r, 2]] += s * values[r, 2] / numbers[SCALE]
    counts[TOUCHED] += n
    if s == 1 or counts[TOUCHED] > weights.size or numbers[SCALE] < 1e-20:
        measure(shared, params)
    else:
        factor = 1.0
        for k in range(ORDERS + 1):
            shared.moments[k] *= factor
            factor *= 1 - s
        sort_out(shared, eta)
        numbers[BOUND] = min(numbers[BOUND], eta * value)
        counts[CLOCK] += 1
    if params.free > 0:
        for column in range(2):
            for r in range(sizes[column] - 1):
                answer(shared, places[r, column], eta, mirror)
        numbers[BIAS] = along(1, shared.answers, places, values, sizes) - along(
            0, shared.answers, places, values, sizes
        )
    numbers[LEAST] = np.inf  # until a row comes


@kernel
def memma(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass over the rows of ``order``."""
    numbers, counts, last = shared.numbers, shared.counts, shared.weights.size - 1
    eta = temperature(last + 1, numbers[LARGEST], params)
    mistakes, updates, loss = 0, 0, np.float64(0)
    for k in range(order.size):
        prefetch_ahead(block, order, k)
        i = order[k]
        most = largest_entry(block, i)
        if most > numbers[LARGEST]:
            numbers[LARGEST] = most
            eta = temperature(last + 1, most, params)
            measure(shared, params)
        y, m = block.labels[i], 0.0
        if counts[STEPS] > 0:
            for p in range(block.indptr[i], block.indptr[i + 1]):
                m += answer(shared, np.int64(block.indices[p]), eta, params.mirror) * entry(block, i, p)
            if params.bias > 0:
                m += answer(shared, last, eta, params.mirror)
            m = y * (m + numbers[BIAS])
        mistakes += m <= 0
        lack = numbers[BOUND] - params.epsilon * numbers[LARGEST] - m
        loss += max(0.0, lack)
        numbers[LEAST] = min(numbers[LEAST], m)
        if (lack <= 0 and counts[STEPS] > 0) or block.norms[i] + params.bias + params.free == 0:
            continue
        if hold(block, i, y, params, shared.places, shared.values, shared.sizes):
            take_step(shared, params)
            updates += 1
    return Counts(order.size, mistakes, updates, loss, 0.0)


def weights(shared: Shared, params: Params) -> np.ndarray:
    """p (of signed weights p+ - p-) and b [feature + 1]"""
    out = np.zeros(shared.weights.size)
    if shared.counts[STEPS] > 0:
        n = out.size if params.bias else out.size - 1
        eta = params.epsilon * shared.numbers[LARGEST]
        eta /= params.c * math.log(max(n * (1 + params.mirror), 2.0))
        t = shared.numbers[SCALE] * shared.weights[:n].astype(np.float64) / eta
        most = np.abs(t).max() if params.mirror else t.max()
        up = np.exp(t - most)
        down = np.exp(-t - most) if params.mirror else np.zeros(n)
        out[:n] = (up - down) / (up + down).sum()
        out[-1] += shared.numbers[BIAS]
    return np.asarray(out, shared.weights.dtype)


def told(shared: Shared, params: Params) -> dict[str, float]:
    """``margin_bound`` : F, below which every margin lies; it falls. ``least_margin`` : of the rows gone over since the
    last step and of those it was made of, where there were any to go over. ``largest_value`` : X."""
    bound, least, largest = (float(shared.numbers[place]) for place in (BOUND, LEAST, LARGEST))
    seen = {"least_margin": min(bound, least)} if math.isfinite(least) else {}
    return {"margin_bound": bound, **seen, "largest_value": largest}


# Methods

MEMMA: dict[str, Any] = dict(
    paper="Ohta, Hatano, Takeda: online learning by the principle of maximum entropy",
    params=(
        Param("eps", 0.1, 1e-30, 1e30, "allowed shortfall of the margin, in units of the largest value (at least 1)"),
        Param("c", 4.0, 2.0, 1e6, "c in eta = eps / (c ln(features)); the proof needs more than 3", open_low=True),
        SIGNS,
    ),
    bind=bind,
    told=told,
    settles=True,
    place=None,
    bias=("feature", "free", "none"),
    separates=False,  # by a margin of less than eps it may not
    **BINARY,
    **ONE_GROUP,
)

METHODS = (
    online(
        name="memma",
        title="MEMMA, maximum margin in the infinity-norm",
        formula="y (p.x + b) < F - eps:  v <- (1-s) v + s (x+ - x-) / 2 of least F;  F = eta ln sum exp(v / eta), "
        "p = softmax(v / eta)",
        shared=begin,
        update=lambda loss: memma,
        weights=weights,
        bounded=False,
        **MEMMA,
    ),
)
