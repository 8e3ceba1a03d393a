"""Pictures of a comparison: gaps against seconds, bars of ratios and costs. Needs matplotlib (the extra ``plots``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bigclf import files
from bigclf.benchmarks.comparing import JOBS, OURS, Entry, Measurement, Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes


COLOURS = ("#1b6ca8", "#d1495b", "#edae49", "#00798c", "#7b5ea7", "#66a182", "#8d6a4f", "#444444")
SIZE = (7.2, 4.4)  # inches
GAPS = {name: f"gap-{name}.png" for name, job in JOBS.items() if job.target is not None}
RATIOS, COSTS = "ratios.png", "costs.png"
NAMES = (*GAPS.values(), RATIOS, COSTS)
WIDE = (8.4, 0.9, 0.34)  # inches: width, and height of nothing and of a bar


def draw(outcomes: list[Outcome], place: Mapping[str, str], name: str) -> list[str]:
    """Write the pictures, each to its ``place`` by its name of ``NAMES``; the names of those that there are."""
    measured = [outcome for outcome in outcomes if outcome.entries and outcome.entries[0].rounds]
    solved = [outcome for outcome in measured if outcome.job.target is not None]
    drawn: dict[str, tuple[Any, Any]] = {GAPS[outcome.job.name]: (draw_gaps, outcome) for outcome in solved}
    if any(bars(outcome) for outcome in measured):
        drawn[RATIOS] = draw_ratios, measured
    for file, (drawing, what) in drawn.items():
        picture(drawing, what, place[file], name)
    if RATIOS not in drawn:
        return list(drawn)
    draw_costs(measured, place[COSTS], name)
    return [*drawn, COSTS]


def picture(drawing: Callable[[Axes, object, str], None], what: object, path: str, name: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
    drawing(figure.subplots(), what, name)
    with files.publishing(path) as beside:
        figure.savefig(beside, format="png", dpi=130)


def draw_gaps(axes: Axes, outcome: Outcome, name: str) -> None:
    """bigclf's certified gap read by read, and where the others arrive: filled as measured, hollow what was tried."""
    target = outcome.job.target
    assert target is not None
    for entry, colour in zip(outcome.entries, COLOURS * 2, strict=False):
        if entry is outcome.entries[0]:
            draw_trace(axes, entry, colour)
        else:
            points(axes, entry.tried, colour, fill=False)
            if entry.rounds:
                label = f"{entry.who}, {entry.threads} threads" if entry.threads > 1 else entry.who
                points(axes, entry.rounds, colour, fill=True, label=label)
    axes.axhline(target, color="#999999", lw=1, ls="--", zorder=0)
    axes.annotate("target", (1, target), xycoords=("axes fraction", "data"), xytext=(-3, 3),
                  textcoords="offset points", ha="right", color="#777777", fontsize=8)  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="training time, s", ylabel="relative gap of the objective",
             title=f"{name}: {outcome.job.about}")  # fmt: skip
    axes.set_xlim(decades(axes.get_xlim()))
    axes.set_ylim(decades(axes.get_ylim()))
    axes.grid(True, which="major", color="#e6e6e6")
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8)


def decades(limits: tuple[float, float]) -> tuple[float, float]:
    """The powers of ten around these limits: ticks that can be read."""
    low, high = math.floor(math.log10(limits[0])), math.ceil(math.log10(limits[1]))
    return 10.0**low, 10.0 ** max(high, low + 1)


def draw_trace(axes: Axes, entry: Entry, colour: str) -> None:
    """The read-by-read history of the round in the middle, and the end of each."""
    middle = sorted(entry.rounds, key=lambda m: m.seconds)[len(entry.rounds) // 2]
    trace = [(seconds, gap) for seconds, gap in middle.trace or [] if seconds > 0 and gap > 0]
    if trace:
        axes.plot(*zip(*trace, strict=True), color=colour, lw=1.5, marker=".", label="bigclf, its own certificate")
    points(axes, entry.rounds, colour, fill=True, label="bigclf, worked out")


def points(axes: Axes, found: Sequence[Measurement], colour: str, fill: bool, label: str | None = None) -> None:
    shown = [(m.seconds, m.gap) for m in found if m.gap is not None and m.gap > 0]
    if shown:
        seconds, gaps = zip(*shown, strict=True)
        axes.scatter(seconds, gaps, s=34, facecolors=colour if fill else "none", edgecolors=colour,
                     label=label, zorder=3)  # fmt: skip


def bars(outcome: Outcome) -> list[tuple[str, float]]:
    return [(entry.who, ratio) for entry in outcome.entries if (ratio := outcome.ratio(entry)) is not None]


def draw_costs(outcomes: list[Outcome], path: str, name: str) -> None:
    """Seconds of the fit and memory at its peak of all programs, job by job; of those that failed, why."""
    from matplotlib.figure import Figure

    each = [(outcome.job, entry) for outcome in outcomes for entry in outcome.entries]
    width, least, more = WIDE
    figure = Figure(figsize=(width, least + more * (len(each) + len(outcomes))), layout="constrained")
    seconds, memory = figure.subplots(1, 2, sharey=True)
    places, labels, place, before = [], [], 0.0, ""
    for job, entry in each:
        place += 1.0 if job.name == before else 1.8
        before, colour = job.name, COLOURS[0] if entry.who == OURS else "#b4bac0"
        peaks = entry.median("group_peak_bytes"), entry.median("peak_bytes")
        values = entry.median("seconds"), next((peak / 1e6 for peak in peaks if peak is not None), None)
        for axes, value, text in zip((seconds, memory), values, ("{:.3g} s", "{:,.0f} MB"), strict=True):
            axes.barh(place, value or 0.0, color=colour, height=0.75)
            failed = "fails" if axes is seconds else ""
            axes.annotate(failed if value is None else text.format(value), (value or 0.0, place), xytext=(4, 0),
                          textcoords="offset points", va="center", fontsize=8)  # fmt: skip
        places.append(place)
        labels.append(f"{job.name.replace('_', ' ')}: {entry.who}")
    seconds.set_yticks(places, labels, fontsize=8)
    seconds.invert_yaxis()
    for axes, title in ((seconds, "training time, s"), (memory, "peak memory, MB")):
        axes.set_title(title, fontsize=9)
        axes.margins(x=0.18)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="x", labelsize=8)
    figure.suptitle(name, fontsize=10)
    with files.publishing(path) as beside:
        figure.savefig(beside, format="png", dpi=110)


def draw_ratios(axes: Axes, outcomes: list[Outcome], name: str) -> None:
    """Seconds of bigclf as a share of each peer's; below 1 bigclf is the faster one."""
    names: list[str] = []
    ratios: list[float] = []
    colours: list[str] = []
    for outcome, colour in zip(outcomes, COLOURS * 2, strict=False):
        for who, ratio in bars(outcome):
            names.append(f"{outcome.job.name} / {who}")
            ratios.append(ratio)
            colours.append(colour)
    axes.barh(names, ratios, color=colours, height=0.65)
    axes.invert_yaxis()
    axes.axvline(1, color="#444444", lw=1)
    for place, ratio in enumerate(ratios):
        axes.annotate(
            f"{ratio:.2f}", (ratio, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set(xlabel="seconds of bigclf / seconds of the other (below 1: bigclf is faster)", title=f"{name}: ratios")
    axes.margins(x=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", labelsize=8)
