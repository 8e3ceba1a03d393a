"""``bigclf forget``: rows out of shards and out of a model, with a receipt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bigclf.cli.inspect import certificate_text
from bigclf.cli.shared import terminal
from bigclf.units import format_seconds, plural

if TYPE_CHECKING:
    from bigclf.api.receipt import Forgotten, LikeGiven


@click.command("forget", short_help="Take rows out of shards and out of a model.")
@click.argument("run", metavar="RUN")
@click.option("-o", "--output", required=True, metavar="MODEL", help="File for the new model.")
@click.option("--rows", multiple=True, metavar="FILE|N,N,...", help="The rows by their numbers in the data, counted"
              " from 0: a file of them, or a list (repeatable).")  # fmt: skip
@click.option("--where", multiple=True, metavar="COLUMN=VALUE", help="The rows by a column that stands beside the"
              " features (repeatable). COLUMN=@FILE takes a value from each line of a file.")  # fmt: skip
@click.option("--like", multiple=True, metavar="DATA", help="The rows by what they hold: rows equal to those of DATA"
              " (shards, or raw rows as the model takes them), labels included (repeatable).")  # fmt: skip
@click.option("--to", metavar="DIR", help="Write the shards that are left to this new directory. Everything old stays,"
              " and the receipt names it.")  # fmt: skip
@click.option("--rewrite", is_flag=True, help="Replace the shards that hold the rows where they are, and remove the old"
              " run, its raw store and its caches.")  # fmt: skip
@click.option("--data", multiple=True, metavar="DATA", help="The shards that the model was trained on, if they have"
              " moved.")  # fmt: skip
@click.option("--run-dir", metavar="DIR", help="Directory for the new run, which is kept  [default: MODEL.run]")
@click.option("--receipt", metavar="FILE", help="File for the receipt, JSON  [default: MODEL.receipt.json]")
@click.option("--key", metavar="FILE", help="A secret, made if it is not there. The receipt then holds a digest of each"
              " row that only who has the key can check.")  # fmt: skip
@click.option("--local-dir", metavar="DIR", help="Directory in which runs on these data kept decoded rows.")
@terminal.overwrite_option
@terminal.json_option
@click.pass_context
def command(
    ctx: click.Context, run: str, output: str, rows: tuple[str, ...], where: tuple[str, ...], like: tuple[str, ...],
    data: tuple[str, ...], receipt: str | None, rewrite: bool, overwrite: bool, as_json: bool, **paths: str | None,
) -> None:  # fmt: skip
    """Take rows out of shards and out of the model of RUN, which is a run directory, or a model with MODEL.run beside
    it. The new model is certified as the optimum of the rows that are left.

    It is within the tolerance of that optimum. This does not say that no trace of the rows is left in it. Methods by
    dual variables (dcd) begin with those of the other rows, methods by sums (newton, lbfgs) with the old weights.
    Online methods cannot forget.

    Say what becomes of the shards: --to leaves all that is there as it is, --rewrite replaces and removes. If it is
    interrupted, give the same command again. Exit code 4: training stopped before it reached the tolerance.
    """
    with terminal.resumable(terminal.command_line(ctx)), terminal.usage_errors():
        from bigclf.api.forget import forget

        found = forget(
            run, output, rows=[number for text in rows for number in numbers_in(text)] if rows else None,
            where=_where(where) or None, like=like if len(like) > 1 else like[0] if like else None,
            data=list(data) or None, receipt=receipt, rewrite=rewrite, overwrite=overwrite, **paths,
        )  # fmt: skip
    if as_json:
        terminal.emit_json(found.receipt)
    else:
        show(found, output, receipt or f"{output}.receipt.json")
    if not found.receipt["after"]["converged"]:
        ctx.exit(terminal.LIMITS)


def numbers_in(text: str) -> list[int]:
    """Numbers of rows, from a list or from a file of them."""
    try:
        return [int(word) for word in (_text_of(text) or text).replace(",", " ").split()]
    except ValueError:
        raise click.BadParameter("must be numbers of rows, or a file of them", param_hint="--rows") from None


def _where(given: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in given:
        column, sign, value = text.partition("=")
        if not sign:
            raise click.BadParameter(f"write COLUMN=VALUE, not {text!r}", param_hint="--where")
        values = (_text_of(value[1:]) or "").splitlines() if value[:1] == "@" else [value]
        if not values:
            raise click.BadParameter(f"there are no values in {value[1:]}", param_hint="--where")
        found.setdefault(column, []).extend(values)
    return found


def _text_of(path: str) -> str | None:
    """What a file holds; None where there is none."""
    from bigclf import files

    return files.read_text(path) if files.exists(path) else None


def like_text(told: LikeGiven) -> str:
    """How many of the rows that were given stand in the data."""
    if not told["not_found"]:
        return f"all of {plural(told['rows'], 'row')} found in the data"
    first, lacking = told["first_not_found"], told["not_found"]
    text = f"{lacking:,} of {plural(told['rows'], 'row')} not found in the data with these features and this label"
    if not first:
        return text
    numbers = ", ".join(map(str, first)) + ", ..." * (len(first) < lacking)
    return f"{text}: {'row' if lacking == 1 else 'rows'} {numbers}, counted from 0"


def show(found: Forgotten, output: str, receipt: str) -> None:
    """What a person reads of it."""
    told, model = found.receipt, found.model
    rows, after, scanned = told["rows"], told["after"], told["scanned"]
    terminal.heading(terminal.printable(output), f"{plural(rows['forgotten'], 'row')} of {rows['before']:,} forgotten, "
                     f"{format_seconds(told['seconds'])}")  # fmt: skip
    equal = plural(scanned["equal_rows"], "row") if scanned["equal_rows"] else "none"
    terminal.facts([
        *([("--like", like_text(rows["like"]))] if "like" in rows else []),
        ("certificate", certificate_text(model.certificate)),
        ("before", certificate_text(told["before"]["certificate"])),
        ("began with", f"{after['began_with']}; {plural(int(after['reads']), 'read')}"),
        ("scanned", f"{plural(scanned['rows'], 'row')} that are left; equal to one that went: {equal}"),
        ("receipt", receipt),
    ], indent="  ")  # fmt: skip
    for one in told["places"]:
        terminal.note(f"{one['done']}: {one['path']} ({one['what']})")
    for one in told.get("earlier", ()):
        if one["done"] == "stays":
            terminal.note(f"stays since an earlier request: {one['path']} ({one['what']})")
    terminal.note(told["promise"])
