"""Line charts as SVG for a page: the page's style gives colours (light, dark, printed), so that they need no script.

Text from data is escaped where it enters (``escape``); what comes out is markup.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup, escape

WIDTH, HEIGHT = 340, 240  # units of the drawing; text is 12 of them, so that it can be read on a phone
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 10, 42
MARKED = 30  # points at most that are marked one by one


class Line(NamedTuple):
    """A series of a chart: its name, x and y [n]; ``guide``: thin and without a mark, to compare with."""

    name: str
    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    guide: bool = False


class Scale(NamedTuple):
    """From numbers to places: low and high end, their places, whether by logarithm, and the step between ticks."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    step: float = 0.2

    def place(self, value: float) -> float:
        low, high, value = map(math.log10, (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return self.start + (self.end - self.start) * (value - low) / (high - low)


def chart(
    title: str, lines: Sequence[Line], x_name: str, y_name: str, *, log_x: bool = False, log_y: bool = False,
    unit: bool = False, whole_x: bool = False,
) -> Markup:  # fmt: skip
    """The lines in one chart. Points without a logarithm are left out where one is needed.

    title : what a screen reader says; unit : both axes from 0 to 1; whole_x : x are whole numbers.
    """
    lines = [usable(line, log_x, log_y) for line in lines]
    lines = [line for line in lines if len(line.x)]
    across = scale([v for line in lines for v in line.x], LEFT, WIDTH - RIGHT, log_x, unit, whole_x)
    up = scale([v for line in lines for v in line.y], HEIGHT - BOTTOM, TOP, log_y, unit)
    parts = [
        Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, HEIGHT, title),
        _grid(across, up, x_name, y_name),
        *(_line(line, n, across, up) for n, line in enumerate(lines)),
        Markup("</svg>"),
    ]
    return Markup("\n").join(parts) + (legend(lines) if len(lines) > 1 else Markup(""))


def usable(line: Line, log_x: bool, log_y: bool) -> Line:
    x, y = np.asarray(line.x, float), np.asarray(line.y, float)
    keep = np.isfinite(x) & np.isfinite(y) & ((x > 0) | (not log_x)) & ((y > 0) | (not log_y))
    return line._replace(x=x[keep], y=y[keep])


def scale(values: Sequence[float], start: float, end: float, log: bool, unit: bool, whole: bool = False) -> Scale:
    """Wide enough for the values, its ends where ticks are."""
    if unit:
        return Scale(0.0, 1.0, start, end, False)
    low, high = (min(values), max(values)) if len(values) else (1.0, 10.0)
    if log:
        low, high = 10 ** math.floor(math.log10(low) + 1e-9), 10 ** math.ceil(math.log10(high) - 1e-9)
        return Scale(low, high if high > low else 10 * low, start, end, True)
    if high == low:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    step = max(tick_step(low, high), 1.0 if whole else 0.0)
    ends = step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9)
    return Scale(*ends, start, end, False, step)


def tick_step(low: float, high: float, most: int = 6) -> float:
    """1, 2 or 5 times a power of ten: the smallest that makes no more than ``most`` ticks."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    return next(power * step for step in (1, 2, 5, 10) if (high - low) / (power * step) <= most)


def ticks(axis: Scale) -> list[tuple[float, str]]:
    """Values and texts."""
    if axis.log:
        first, last = round(math.log10(axis.low)), round(math.log10(axis.high))
        every = max(1, math.ceil((last - first) / 6))
        return [(10.0**power, power_text(power)) for power in range(first, last + 1, every)]
    values = [axis.low + k * axis.step for k in range(round((axis.high - axis.low) / axis.step) + 1)]
    return [(value, number_text(value)) for value in values]


def power_text(power: int) -> str:
    return f"{10**power:,}" if 0 <= power <= 3 else f"1e{power}"


def number_text(value: float) -> str:
    """Short: thousands apart or with a letter, no noise in the last digits."""
    value = 0.0 if abs(value) < 1e-12 else value
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.6g}{letter}"
    return f"{value:.6g}"


def _grid(across: Scale, up: Scale, x_name: str, y_name: str) -> Markup:
    parts = []
    for value, text in ticks(across):
        x = across.place(value)
        parts.append(_segment(x, TOP, x, HEIGHT - BOTTOM) + _text(x, HEIGHT - BOTTOM + 16, text, "middle"))
    for value, text in ticks(up):
        y = up.place(value)
        parts.append(_segment(LEFT, y, WIDTH - RIGHT, y) + _text(LEFT - 6, y + 4, text, "end"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_name, "middle"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = Markup('<text x="{0}" y="{1:.1f}" text-anchor="middle" transform="rotate(-90 {0} {1:.1f})">{2}</text>')
    parts.append(turned.format(12, middle, y_name))
    return Markup('<g class="grid">{}</g>').format(Markup("").join(parts))


def _segment(x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<path d="M{:.1f} {:.1f}L{:.1f} {:.1f}"/>').format(x1, y1, x2, y2)


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, text)


def _line(line: Line, number: int, across: Scale, up: Scale) -> Markup:
    places = [(across.place(x), up.place(y)) for x, y in zip(line.x, line.y, strict=True)]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    kind = "guide" if line.guide else f"line s{number}"
    drawn = Markup('<path class="{}" d="{}"/>').format(kind, path)
    if line.guide or len(places) > MARKED:
        return drawn
    dots = Markup("").join(Markup('<circle cx="{:.1f}" cy="{:.1f}" r="2.6"/>').format(x, y) for x, y in places)
    return drawn + Markup('<g class="dots s{}">{}</g>').format(number, dots)


def legend(lines: Sequence[Line]) -> Markup:
    """Names beside pieces of the lines."""
    piece = Markup(
        '<span class="key"><svg viewBox="0 0 28 10" aria-hidden="true"><path class="{}" d="M0 5L28 5"/></svg>{}</span>'
    )
    keys = [piece.format("guide" if line.guide else f"line s{n}", escape(line.name)) for n, line in enumerate(lines)]
    return Markup('<p class="legend">{}</p>').format(Markup(" ").join(keys))
