"""``bigclf generate``: made-up rows as text, so that a job can be tried before there is data for it."""

from __future__ import annotations

import click

from bigclf.cli.shared import terminal
from bigclf.units import format_bytes, plural


@click.command("generate", short_help="Generate example data as text.")
@click.argument("out", metavar="OUT.svm")
@click.option("--rows", type=click.IntRange(1), default=20_000, show_default=True, help="Number of rows.")
@click.option("--features", type=click.IntRange(1000), default=100_000, show_default=True, help="Number of features.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the rule that separates"
              " the classes.")  # fmt: skip
@click.option("--part", type=click.IntRange(1), default=1, show_default=True, help="Different rows by the same rule: 1"
              " to train on, 2 to test on, 3 to train on later ...")  # fmt: skip
@terminal.overwrite_option
@terminal.json_option
def command(out: str, rows: int, features: int, seed: int, part: int, overwrite: bool, as_json: bool) -> None:
    """Write svmlight text with two classes, skewed feature frequencies and some noise: the rows of `bigclf demo`."""
    from bigclf import files
    from bigclf.cli.evaluate import refuse_existing
    from bigclf.cli.shared.demo_data import write_text
    from bigclf.progress import TerminalProgress

    refuse_existing([out], overwrite)
    files.make_directory(files.parent_directory(out))
    with TerminalProgress("making rows") as progress:
        progress.start({"n_rows": rows, "task": files.base_name(out)})
        nnz = write_text(out, rows, features, seed, part, progress)
    size = files.file_size(out)
    if as_json:
        terminal.emit_json({"out": out, "rows": rows, "nnz": nnz, "bytes": size})
        return
    terminal.heading(f"{plural(rows, 'row')}, {plural(nnz, 'non-zero')}", f"{format_bytes(size)} in {out}")
    click.echo(f"  next: {click.style(f'bigclf convert {out} SHARDS --n-features {features}', bold=True)}")
