"""``bigclf plan``: what a training would take, before it is run."""

from __future__ import annotations

from typing import Any

import click

from bigclf.cli import terminal
from bigclf.cli.fit import fit_keywords
from bigclf.units import format_bytes, format_seconds, plural


class Speed(terminal.Size):
    """Bytes a second such as ``1GB/s`` or ``1GB``; kept as the text of a size."""

    name = "speed"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(str(value).removesuffix("/s"), param, ctx)


@click.command("plan", short_help="Predict memory, disk, network and time of a training.")
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@click.option("--algo", default="dcd", show_default=True, help="The method: see `bigclf algorithms`.")
@terminal.memory_option
@click.option("--workers", type=click.IntRange(1), help="Processes of a cluster  [default: this process]")
@click.option("--bandwidth", type=Speed(), help="Between the driver and workers on other machines, like 1GB/s; without"
              " it the workers are processes of this one.")  # fmt: skip
@click.option("--groups", type=click.IntRange(1), help="Virtual workers  [default: as many as workers]")
@click.option("--C", "C", type=float, help="Price of a unit of loss (LIBLINEAR's C).")
@terminal.method_options
@click.option("--tol", type=click.FloatRange(0, min_open=True), help="Relative gap to stop at (certifying methods).")
@click.option("--epochs", type=click.IntRange(1), help="Most epochs.")
@click.option("--mixing", metavar="RULE", help="How groups are combined: what `bigclf algorithms NAME` has, its"
              " default first.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1), help="Threads that read ahead (2 at most are used).")
@click.option("--columns", metavar="ROLE=NAME,...", help="Names of the columns label, indices, values, weight.")
@click.option("--fresh", is_flag=True, help="Measure this machine's rates again, instead of those that are kept.")
@terminal.json_option
@click.pass_context
def command(ctx: click.Context, data: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """What training on the shards DATA would take in memory, disk, network and time; nothing is trained.

    Memory, disk and bytes are those of the plan that a run would follow. Times are from a trial of some seconds on the
    first chunks of DATA, which is kept for the next time; other programs at work meanwhile make them longer.
    """
    fresh, workers, bandwidth = options.pop("fresh"), options.pop("workers"), options.pop("bandwidth")
    from bigclf.training.forecast import forecast

    keywords = fit_keywords(ctx, {**options, "workers": None, "patience": (), "resume": False})
    with terminal.usage_errors():
        told = forecast(
            list(data) if len(data) > 1 else data[0], workers=workers, bandwidth=bandwidth, fresh=fresh, **keywords
        )
    if as_json:
        terminal.emit_json(told)
    else:
        show(told, bandwidth)


def show(told: dict[str, Any], bandwidth: str | None) -> None:
    data, memory, disk, network = told["data"], told["memory"], told["disk"], told["network"]
    seconds, rates, workers = told["seconds"], told["rates"], told["workers"]
    terminal.heading(f"a plan for {told['algo']}", f"{plural(data['rows'], 'row')}, {plural(data['nnz'], 'non-zero')}, "
                     f"{plural(told['groups'], 'group')}, {plural(workers, 'worker')}")  # fmt: skip
    parts = sorted(memory["parts"].items(), key=lambda part: -part[1])
    resident = told["plan"]["resident"]
    per = " a worker" if workers > 1 else ""
    places = ", ".join(f"{name.replace('_', ' ')} {format_bytes(size)}" for name, size in disk.items() if size)
    terminal.facts(
        [
            ("memory", f"{format_bytes(memory['total'])}{per} at most, likely {format_bytes(memory['likely'])}: "
                       f"{format_bytes(memory['planned'])} planned, beside "
                       f"{format_bytes(memory['base'])} of interpreter and libraries"),
            ("of it", ", ".join(f"{name} {format_bytes(size)}" for name, size in parts)),
            ("rows", "stay in memory after one read" if resident else
             f"stream by, {format_bytes(told['bytes_read']['epoch'])} an epoch"),
            ("disk", places),
            ("network", _network_text(network, bandwidth) if workers > 1 else None),
            ("an epoch", f"{format_seconds(seconds['later'])}, the first {format_seconds(seconds['first'])}"),
            ("rates", f"{1e9 * rates['first']:.3g} ns an entry decoded and learned from, {1e9 * rates['later']:.3g} ns "
                      f"later; disk {format_bytes(rates['disk'])}/s"),
            ("measured", f"{rates['measured']} on {rates['cpu']}, {rates['load']:g} processes at work"),
        ],
        indent="  ",
    )  # fmt: skip


def _network_text(network: dict[str, int], bandwidth: str | None) -> str:
    way = f"at {bandwidth}/s" if bandwidth else "between processes of this machine"
    return (
        f"{format_bytes(network['epoch'])} an epoch ({format_bytes(network['up'])} from the workers, "
        f"{format_bytes(network['down'])} to them), {way}"
    )
