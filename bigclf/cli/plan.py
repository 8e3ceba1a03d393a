"""``bigclf plan``: what a training would take, before it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bigclf.cli.shared import columns, flags, terminal
from bigclf.cli.sweep import grids_of, pairs_of
from bigclf.units import format_bytes, format_seconds, plural

if TYPE_CHECKING:
    from bigclf.api.plan_of_scoring import Line as Scores
    from bigclf.api.scaling import Line
    from bigclf.data.dataset import Stored


@click.command("plan", short_help="Predict the memory, disk, network and time of a run.")
@terminal.data_argument
@flags.of("plan")
@columns.raw_options
@terminal.json_option
@click.pass_context
def command(ctx: click.Context, data: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Predict the memory, disk, network and time that training on DATA (shards, or raw tables and texts) would take;
    nothing is trained. Raw files are converted to shards in a cache, where `fit` finds them.

    With --grid it plans a sweep, with the retraining of the best point; with --model, evaluating and predicting.
    Memory, disk and bytes are those of the plan that a run would follow. Times are estimated from a trial of a few
    seconds on the first chunks of DATA; its results are cached. Other programs running at the same time make the
    estimates longer.
    """
    from bigclf.api.plan import forecast

    grid, raw = options.pop("grid"), columns.Asked.taken(options)
    keywords = flags.keywords("plan", options) | ({"grid": grids_of(pairs_of(grid))} if grid else {})
    rows: Stored = list(data) if len(data) > 1 else data[0]
    if "model" in keywords:  # it says what becomes of the rows
        raw.refuse_without_features(raw.format)
    else:
        rows = raw.shards("sweep" if grid else "plan", list(data), keywords)
    with terminal.usage_errors():
        told = forecast(rows, **keywords)
    if as_json:
        terminal.emit_json(told)
    elif "scoring" in told:
        show_scoring(told["data"], told["bandwidth"], told["scoring"])
    elif "table" in told:
        show_table(told["algo"], told["data"], told["bandwidth"], told["table"])
    else:
        show(told, options["bandwidth"])


def show_scoring(data: dict[str, int], bandwidth: int | None, lines: list[Scores]) -> None:
    """A line for each number of workers, and what follows."""
    where = "processes of this machine" if bandwidth is None else f"workers elsewhere, at {format_bytes(bandwidth)}/s"
    rows = f"{plural(data['rows'], 'row')}, {plural(data['nnz'], 'non-zero')}"
    terminal.heading("a plan for evaluate and predict", f"{rows}; {where}")
    for line in lines:
        every = (
            f"evaluate {format_seconds(line['evaluate_seconds'])}, predict {format_seconds(line['predict_seconds'])} "
            f"({format_seconds(line['start'])} to begin), {format_bytes(line['memory'])} each"
        )
        moved = f", {format_bytes(line['evaluate_moved'])} moved" if line["workers"] > 1 else ""
        terminal.facts([(plural(line["workers"], "worker"), every + moved)], indent="  ")
    for line in lines:
        if line["advice"]:
            terminal.note(line["advice"])


def show_table(algo: str, data: dict[str, int], bandwidth: int, lines: list[Line]) -> None:
    """A line for each number of workers."""
    from rich import box
    from rich.table import Table

    terminal.heading(f"a plan for {algo}", f"{plural(data['rows'], 'row')}, {plural(data['nnz'], 'non-zero')}; "
                     f"one core per worker, {format_bytes(bandwidth)}/s between them")  # fmt: skip
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, header_style="bold")  # it has room in 80 columns
    for name in (
        "workers",
        "groups",
        "by",
        "passes",
        "a pass",
        "in all",
        "speed\n-up",
        "moved\na pass",
        "worker",
        "driver",
    ):
        table.add_column(name, justify="left" if name == "by" else "right", no_wrap=True)
    for line in lines:
        passes, seconds, faster = line["passes"], line["seconds"], line["speed_up"]
        table.add_row(
            f"{line['workers']:,}", f"{line['groups']:,}", line["design"], "?" if passes is None else f"{passes:g}",
            format_seconds(line["pass_seconds"]), "?" if seconds is None else format_seconds(seconds),
            "?" if faster is None else f"{faster:.2g}", format_bytes(line["pass_bytes"]),
            format_bytes(line["memory"]), format_bytes(line["driver"]),
        )  # fmt: skip
    terminal.tables().print(table)
    for line in lines:
        if line["advice"]:
            terminal.note(line["advice"])


def show(told: dict[str, Any], bandwidth: str | None) -> None:
    data, memory, disk, network = told["data"], told["memory"], told["disk"], told["network"]
    seconds, rates, workers = told["seconds"], told["rates"], told["workers"]
    terminal.heading(f"a plan for {told['algo']}", f"{plural(data['rows'], 'row')}, {plural(data['nnz'], 'non-zero')}, "
                     f"{plural(told['groups'], 'group')}, {plural(workers, 'worker')}")  # fmt: skip
    parts = sorted(memory["parts"].items(), key=lambda part: -part[1])
    resident = told["plan"]["resident"]
    per = " per worker" if workers > 1 else ""
    places = ", ".join(f"{name.replace('_', ' ')} {format_bytes(size)}" for name, size in disk.items() if size)
    terminal.facts(
        [
            ("chosen", told.get("chosen")),
            ("memory", f"{format_bytes(memory['total'])}{per} at most, likely {format_bytes(memory['likely'])}: "
                       f"{format_bytes(memory['planned'])} planned, plus "
                       f"{format_bytes(memory['base'])} for interpreter and libraries"),
            ("parts", ", ".join(f"{name} {format_bytes(size)}" for name, size in parts)),
            ("rows", "stay in memory after one read" if resident else
             f"are read in every epoch, {format_bytes(told['bytes_read']['epoch'])}"),
            ("disk", places),
            ("labels", f"in {told['turns']:,} turns; these figures are of one" if "turns" in told else None),
            ("network", _network_text(network, bandwidth) if workers > 1 else None),
            ("epoch", f"{format_seconds(seconds['later'])}, the first {format_seconds(seconds['first'])}"),
            ("in all", _in_all(seconds["total"], told["passes"])),
            ("rates", f"{1e9 * rates['first']:.3g} ns per entry in the first epoch, {1e9 * rates['later']:.3g} ns "
                      f"later; disk {format_bytes(rates['disk'])}/s"),
            ("measured", f"{rates['measured']} on {rates['cpu']}, {rates['load']:g} processes at work"),
        ],
        indent="  ",
    )  # fmt: skip


def _in_all(seconds: float | None, epochs: float | None) -> str:
    if seconds is None:
        return "not known: groups that stay apart need more epochs, nobody knows how many"
    return f"{format_seconds(seconds)}, in {plural(round(epochs or 0), 'epoch')}"


def _network_text(network: dict[str, int], bandwidth: str | None) -> str:
    way = f"at {bandwidth}/s" if bandwidth else "between processes of this machine"
    return (
        f"{format_bytes(network['epoch'])} per epoch ({format_bytes(network['up'])} from the workers, "
        f"{format_bytes(network['down'])} to them), {way}"
    )
