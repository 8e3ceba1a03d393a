"""Where a command writes is none of what it reads, whatever --overwrite says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

ROWS = ("data", "sources", "validate", "test", "like")
# Read whole and then replaced by what comes of it may be "init" and "features_of", and the model of ``calibrate``.
OTHERS = ("source", "run", "spec", "names", "rows", "init", "features_of")
WRITTEN = ("out", "output", "report", "reliability", "receipt")
MODEL_IS_READ = ("export", "evaluate", "predict")


def refuse_inputs(command: str, given: Mapping[str, object], besides: Iterable[str] = ()) -> None:
    """Refuse an output that is an input, or takes one away, before anything is done.

    Parameters
    ----------
    given : parameters by name. besides : what else is read, by the other steps of a job.

    Raises
    ------
    RunError : with its path.
    """
    from bigclf.files.apart import keep_apart

    out = "".join(of(given, "out"))
    written, others = of(given, *WRITTEN), of(given, *OTHERS[:-2])
    entered, replaced, filled = list[str](), of(given, "to"), of(given, "run_dir")
    if command in MODEL_IS_READ:
        others += of(given, "model")
    if command == "fit":
        (model,) = of(given, "model")
        written, filled = [*written, model], filled or [f"{model}.run"]
    elif command == "convert":
        written, replaced = [], [out]
    elif command == "split":
        written, entered = [], [out]
    elif command in ("sweep", "path"):
        written, entered, replaced = [], [out], [f"{out}/run"]
    elif command in ("bench", "predict") and not _is_one_file(command, out):
        written, entered = [], written
    rows = of(given, *ROWS)
    keep_apart(rows, [*others, *besides], written=written, entered=entered, replaced=replaced)
    keep_apart(rows, [*others, *of(given, *OTHERS)], filled=filled)


def _is_one_file(command: str, out: str) -> bool:
    from bigclf.data.predictions import is_one_file

    return is_one_file(out) if command == "predict" else out.lower().endswith(".csv")


def inputs(command: str, given: Mapping[str, object]) -> list[str]:
    """What a command reads."""
    return [*of(given, *ROWS, *OTHERS), *models_read(command, given)]


def models_read(command: str, given: Mapping[str, object]) -> list[str]:
    """The models among that; the one that ``fit`` names it makes."""
    return of(given, "init", "features_of", *([] if command == "fit" else ["model"]))


def of(given: Mapping[str, object], *names: str) -> list[str]:
    """The paths that parameters name."""
    values = [given.get(name) for name in names]
    return [path for value in values for path in (value if isinstance(value, tuple) else (value,))
            if isinstance(path, str)]  # fmt: skip
