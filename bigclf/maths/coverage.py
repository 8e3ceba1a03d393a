"""Which values of C a model is certified for, beyond the one that it was trained at.

With rows i of cost C c_i, a primal objective is a line in C, P(w; C) = R + C L, R = 1/2 ||w||^2, L = sum_i c_i l_i(w).
Dual variables C u are feasible at every C if u is at C = 1, and D(C u) = C A - C^2/2 ||v||^2, v = sum_i u_i y_i x_i.
A is concave in u and D(0) = 0, so mixtures of several u, and shares s u, 0 <= s <= 1, have at least the mixture of
their A: a bound on the optimum at any C, from a few numbers of each answer and the products of their v. (Scaled dual
variables as in Giesen, Jaggi, Laue, ACM TALG 2012, "Approximating parameterized convex optimization problems".)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

MIXTURES = np.linspace(0.0, 1.0, 17)  # of neighbours' dual variables
SAFE = 1e-11  # of a bound: what rounding may have added to it

Interval = tuple[float, float]


class Answer(NamedTuple):
    """What is known of a problem's answer at its own C.

    primal : P(w). half : 1/2 ||w||^2. dual : D(a) of dual variables a; dual_square : ||v||^2, v = sum a_i y_i x_i.
    """

    C: float
    primal: float
    half: float
    dual: float
    dual_square: float

    @property
    def slope(self) -> float:
        """L of P(w; C) = R + C L."""
        return (self.primal - self.half) / self.C

    def objective(self, C: float) -> float:
        """P(w; C)."""
        return self.half + C * self.slope


class Bound(NamedTuple):
    """D(C) >= C gain - C^2/2 square, and beyond C = gain / square what it is there."""

    gain: float
    square: float

    def at(self, C: float) -> float:
        """A lower bound of the optimum."""
        if self.square > 0:
            C_most = self.gain / self.square
            C = min(C, C_most)
        return max(0.0, (C * self.gain - 0.5 * C * C * self.square) * (1.0 - SAFE))

    def where(self, answer: Answer, within: float) -> Iterator[Interval]:
        """The C at which P(w; C) <= (1 + within) times this bound."""
        scale = (1.0 + within) * (1.0 - SAFE)
        top = self.gain / self.square if self.square > 0 else math.inf
        # scale (C gain - C^2/2 square) - half - C slope >= 0
        a, b, c = 0.5 * scale * self.square, scale * self.gain - answer.slope, -answer.half
        low, high = _between_roots(a, b, c)
        if low < min(high, top):
            yield low, min(high, top)
        if top < math.inf:
            best = scale * 0.5 * self.gain * top - answer.half  # >= C slope, from there on
            end = math.inf if answer.slope <= 0 <= best else best / answer.slope if answer.slope > 0 else -math.inf
            if end > top:
                yield top, end


def _between_roots(a: float, b: float, c: float) -> Interval:
    """Where -a x^2 + b x + c >= 0, x > 0, with a >= 0 and c <= 0; (inf, -inf): nowhere."""
    if b <= 0:
        return (0.0, math.inf) if a == b == c == 0 else (math.inf, -math.inf)
    if a == 0:
        return -c / b, math.inf
    inside = b * b + 4 * a * c
    if inside < 0:
        return math.inf, -math.inf
    larger = b + math.sqrt(inside)  # the roots without cancellation
    return -2 * c / larger, larger / (2 * a)


def bounds(answers: Sequence[Answer], products: np.ndarray, apart: np.ndarray) -> list[Bound]:
    """Of each answer's dual variables and of mixtures of neighbours'.

    answers : at ascending C. products : float64 [answer, answer], <w_j, w_k>. apart : float64 [answer], bounds of
    ||v_j - w_j||.
    """
    found = []
    for k, one in enumerate(answers):
        if not math.isfinite(one.dual):
            continue
        gain, square = (one.dual + 0.5 * one.dual_square) / one.C, one.dual_square / one.C**2
        found.append(Bound(gain, square))
        if k + 1 == len(answers) or not math.isfinite(answers[k + 1].dual):
            continue
        other = answers[k + 1]
        gain_b = (other.dual + 0.5 * other.dual_square) / other.C
        for share in MIXTURES[1:-1]:
            s, t = (1.0 - share) / one.C, share / other.C
            length = s * s * products[k, k] + 2 * s * t * products[k, k + 1] + t * t * products[k + 1, k + 1]
            far = math.sqrt(max(0.0, length)) + s * apart[k] + t * apart[k + 1]  # >= ||s v_k + t v_{k+1}||
            found.append(Bound((1.0 - share) * gain + share * gain_b, far * far))
    return found


def covered(answer: Answer, certain: Sequence[Bound], within: float) -> Interval | None:
    """The values of C around its own where the answer is within that share of the optimum; None: not even there."""
    found = [interval for bound in certain for interval in bound.where(answer, within)]
    return next(((a, b) for a, b in united(found) if a <= answer.C <= b), None)


def united(intervals: Iterable[Interval]) -> list[Interval]:
    """The same points as disjoint, ascending intervals."""
    found: list[Interval] = []
    for a, b in sorted(intervals):
        if found and a <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], b)
        else:
            found.append((a, b))
    return found


def common(parts: Sequence[Interval | None]) -> Interval | None:
    """The points in every one of intervals that have a point in common."""
    known = [part for part in parts if part is not None]
    return (max(a for a, _ in known), min(b for _, b in known)) if len(known) == len(parts) else None


def holes(parts: Iterable[Interval | None], low: float, high: float) -> list[Interval]:
    """What of [low, high] none of the parts has."""
    found: list[Interval] = []
    at = low
    for a, b in united(part for part in parts if part is not None):
        if at < a and at < high:
            found.append((at, min(a, high)))
        at = max(at, b)
    return [*found, (at, high)] if at < high else found


def fewest(parts: Sequence[Interval | None], low: float, high: float) -> list[int]:
    """The numbers, ascending, of the fewest parts that have all of [low, high] that any part has: of those that hold
    the first point that is left always the one that reaches farthest."""
    chosen: set[int] = set()
    at = low
    known = [(part, number) for number, part in enumerate(parts) if part is not None]
    while True:
        held = [(part[1], -number) for part, number in known if part[0] <= at <= part[1]]
        if held:
            reach, number = max(held)
            chosen.add(-number)
            if reach >= high:
                break
        beyond = [part[0] for part, _ in known if part[0] > at]
        if held and reach > at:
            at = reach
        elif beyond and min(beyond) <= high:
            at = min(beyond)
        else:
            break
    return sorted(chosen)
