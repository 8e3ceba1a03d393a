"""``bigclf export`` and ``bigclf import``: models in the formats of others."""

from __future__ import annotations

import click

from bigclf.cli.shared import terminal
from bigclf.units import format_bytes

FORMATS = ("onnx", "liblinear", "sklearn", "parquet", "numpy", "sql", "c")
TRY = {  # what shows a person that it works
    "liblinear": "predict ROWS.svm {0} OUT   (LIBLINEAR's own program)",
    "sklearn": "python -c \"import joblib; print(joblib.load('{0}'))\"",
    "numpy": 'python -c "{read}from {module} import predict; print(predict({rows}))"   (in its directory)',
    "onnx": "python -c \"import onnxruntime; print(onnxruntime.InferenceSession('{0}'))\"",
    "c": "cc -O2 -shared -fPIC {0} -lm -o scores.so",
    "sql": "duckdb MY.duckdb < {0}",
    "postgres": "psql -f {0} MY_DATABASE",
    "parquet": "duckdb -c \"from '{0}' order by abs(weight) desc limit 20\"",
}
TABLE_READ = "import csv; ", "csv.DictReader(open('ROWS.csv', newline=''))"
ROW_MADE = "", "([0, 1], [0], [1.0])"  # one row, whose only feature that is not 0 is the first


@click.command("export", short_help="Write a model in another program's format.")
@click.argument("model", metavar="MODEL")
@click.argument("out", metavar="OUT")
@click.option("--to", type=click.Choice(FORMATS), required=True, help="The format.")
@click.option("--codes", is_flag=True, help="liblinear: number the classes, for labels that are not whole numbers.")
@click.option("--names", metavar="FILE", help="parquet: feature names, one per line, or lines FEATURE<tab>NAME.")
@click.option("--dialect", type=click.Choice(("duckdb", "postgres")), help="sql: the database  [default: duckdb]")
@click.option("--table", metavar="NAME", help="sql: the table with the rows  [default: rows]")
@terminal.overwrite_option
@terminal.json_option
def command(
    model: str, out: str, to: str, codes: bool, names: str | None, dialect: str | None, table: str | None,
    overwrite: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write MODEL to OUT as a LIBLINEAR model, a scikit-learn estimator (joblib), an ONNX graph, a Parquet table of its
    weights, a module OUT.py in plain numpy with its weights in OUT.npz, a SELECT that scores the rows of a database
    table, or a C file that scores rows whose fields are given as strings.

    If the model was trained on raw columns, the module takes raw tables. The export gives the same scores as MODEL. If
    the format cannot express something in the model, the error message says what.
    """
    from bigclf.model.model import load

    given = {"codes": codes, "names": names, "dialect": dialect, "table": table}
    options = {name: value for name, value in given.items() if value}
    for name, form in (("codes", "liblinear"), ("names", "parquet"), ("dialect", "sql"), ("table", "sql")):
        if name in options and to != form:
            raise click.UsageError(f"--{name} is for --to {form} only")
    known = load(model)
    told = known.export(out, to, overwrite=overwrite, **options)
    if as_json:
        terminal.emit_json(told)
        return
    terminal.heading(terminal.printable(" and ".join(told["files"])), format_bytes(told["bytes"]))
    for note in told["notes"]:
        terminal.note(note)
    from bigclf import files

    stem = files.base_name(told["files"][0]).removesuffix(".py")
    read, rows = TABLE_READ if known.features["kind"] == "columns" else ROW_MADE
    line = TRY[dialect if dialect == "postgres" else to].format(told["files"][0], module=stem, read=read, rows=rows)
    click.echo(f"  try: {click.style(terminal.printable(line), bold=True)}")


@click.command("import", short_help="Import a LIBLINEAR model.")
@click.argument("source", metavar="MODEL.liblinear")
@click.argument("out", metavar="OUT")
@terminal.overwrite_option
@terminal.json_option
def import_command(source: str, out: str, overwrite: bool, as_json: bool) -> None:
    """Read a model written by LIBLINEAR's `train`, and save it as the model OUT.

    LIBLINEAR's feature 1 becomes feature 0, as in `bigclf convert`.
    """
    from bigclf import files
    from bigclf.model.exports import refuse_existing
    from bigclf.model.model import Model

    refuse_existing([out], overwrite)
    model = Model.from_liblinear(source)
    files.make_directory(files.parent_directory(out))
    with files.together([out]) as place:
        model.save(place[out])
    labels = None if model.regression else model.classes_.tolist()
    if as_json:
        terminal.emit_json({"model": out, "method": model.method, "n_features": model.n_features, "classes": labels})
        return
    what = "numbers" if labels is None else f"{len(labels):,} classes"
    by = f"by LIBLINEAR's {model.method['solver']}"
    terminal.heading(terminal.printable(out), f"{what}, {model.n_features:,} features, {by}")
    click.echo(f"  next: {click.style(terminal.printable(f'bigclf evaluate {out} TEST_DATA'), bold=True)}")
