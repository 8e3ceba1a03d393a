"""A scorer in plain numpy, written for the model: a module of some forty lines, and its weights in a file beside it.

It needs neither bigclf nor scipy. The weights are read with ``allow_pickle=False``. That of a model of raw columns has
the text of ``table_rows`` in it, and takes tables too.
"""

from __future__ import annotations

import inspect
import json
import keyword
import re
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from bigclf import files
from bigclf.errors import RunError
from bigclf.features import encode
from bigclf.model.exports import table_rows
from bigclf.version import __version__

if TYPE_CHECKING:
    from bigclf.model.model import Model


HEAD = '''"""Scores rows by the weights in {data}, which lies beside this file. Needs only numpy.

Made by bigclf {version}: {what}, {n_features:,} features, learned by {method}.

    decision_function(X)    # X: numpy [n, {n_features}], scipy CSR of that shape, or (indptr, indices, values){table}
    predict(X)
"""

from pathlib import Path
{body}
MODEL = np.load(Path(__file__).with_name({data!r}), allow_pickle=False)
'''

OF_TABLES = """
                            # or a table: a mapping of COLUMNS, a pandas or Arrow table, rows of csv.DictReader"""

TABLE = """TABLE = Table(MODEL)
COLUMNS = TABLE.columns  # that a table must have
"""

DENSE = '''WEIGHTS, BIAS = MODEL["weights"], MODEL["bias"]  # [features, columns], [columns]
N_FEATURES = len(WEIGHTS)


def score(indices, values):
    """w . x + b of one row, float64 [columns]: added up as bigclf does, eight sums side by side, then what is left."""
    products = WEIGHTS[indices] * values[:, None]
    lanes, eights = np.zeros((8, len(BIAS))), len(products) // 8 * 8
    for k in range(0, eights, 8):
        lanes += products[k : k + 8]
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    total = lanes[0]
    for product in products[eights:]:
        total = total + product
    return total + BIAS
'''

SPARSE = '''INDPTR, CLASSES, WEIGHTS, BIAS = (MODEL[name] for name in ("indptr", "columns", "weights", "bias"))
N_FEATURES = len(INDPTR) - 1


def score(indices, values):
    """w . x + b of one row, float64 [columns]; of each feature only weights that are not 0 are kept."""
    scores = np.zeros(len(BIAS))
    for j, value in zip(indices, values):
        of_j = slice(INDPTR[j], INDPTR[j + 1])
        scores[CLASSES[of_j]] += WEIGHTS[of_j] * value
    return scores + BIAS
'''

ROWS = '''

def rows(X):
    """Indices and float64 values of each row; ValueError for features that the model does not know."""
%(table)s    if isinstance(X, tuple) or hasattr(X, "indptr"):
        indptr, indices, values = X if isinstance(X, tuple) else (X.indptr, X.indices, X.data)
        if len(indices) and not 0 <= np.min(indices) <= np.max(indices) < N_FEATURES:
            raise ValueError(f"there are features 0 to {N_FEATURES - 1}")
        for a, b in zip(indptr[:-1], indptr[1:]):
            yield indices[a:b], np.asarray(values[a:b], np.float64)
    else:
        for row in np.asarray(X, np.float64).reshape(-1, N_FEATURES):
            yield np.flatnonzero(row), row[row != 0]


def decision_function(X):
    """Float64 %(shape)s."""
    return np.array([score(*row) for row in rows(X)]).reshape(-1, len(BIAS))%(flat)s
'''

ROWS_OF_TABLES = """    if is_table(X):
        yield from TABLE.rows(X)
        return
"""

NUMBERS = '''

def predict(X):
    """The number for each row, [n]."""
    return decision_function(X)
'''

CLASSES = '''

def predict(X):
    """The class of each row, [n]."""
    return MODEL["classes"][%(code)s]
'''
BINARY_CODE = "(decision_function(X) >= 0).astype(int)"
CODE = "decision_function(X).argmax(axis=1)"

SHARES = '''

def predict_proba(X):
    """Probabilities, [n, classes]."""
    scores = decision_function(X).reshape(-1, len(BIAS))
%s
    return %s
'''
LOGISTIC = "    shares = np.exp(-np.logaddexp(0, -scores))"
REST = """    logs = -np.logaddexp(0, -scores)
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))"""
SOFTMAX = "    shares = np.exp(scores - scores.max(axis=1, keepdims=True))"
PLATT_REST = """    logs = -np.logaddexp(0, POINTS[0] * scores + POINTS[1])
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))"""
PLATT = "    shares = np.exp(-np.logaddexp(0, POINTS[0] * scores + POINTS[1]))"
ISOTONIC = """    pieces = [slice(a, b) for a, b in zip(ENDS[:-1], ENDS[1:])]
    shares = np.column_stack([np.interp(s, *POINTS[:, piece]) for s, piece in zip(scores.T, pieces)])"""
PAIR, WHOLE = "np.column_stack([1 - shares, shares])", "shares / shares.sum(axis=1, keepdims=True)"
CALIBRATION = 'POINTS, ENDS = MODEL["points"], MODEL["ends"]  # of the calibration\n'


def targets(path: str) -> list[str]:
    """The module (``.py`` is added where it is missing) and its weights.

    Raises
    ------
    RunError : Python could not import a module of this name, with one that it can.
    """
    stem = path.removesuffix(".py")
    name = files.base_name(stem)
    if better := _better_name(name):
        directory = stem.removesuffix(name)
        raise RunError(f"{stem}.py: Python cannot import {name!r} as a module; export to {directory}{better}.py")
    return [f"{stem}.py", f"{stem}.npz"]


def _better_name(name: str) -> str | None:
    """A name to import a module by in place of ``name``; None where that is one, and hides no module that it needs."""
    if name.isidentifier() and not keyword.iskeyword(name) and name not in {"numpy", *sys.stdlib_module_names}:
        return None
    letters = re.sub(r"\W", "_", name)
    return letters if letters != name and _better_name(letters) is None else f"score_{letters}".rstrip("_")


def write(model: Model, module: str, data: str) -> list[str]:
    """Write module and weights, which appear together."""
    arrays: dict[str, np.ndarray] = {"bias": model.intercept_}
    if model.sparse:
        arrays |= {"indptr": model.weights.indptr, "columns": model.weights.indices, "weights": model.weights.data}
    else:
        arrays["weights"] = np.ascontiguousarray(model.weights.T)
    if not model.regression:
        classes = model.classes_
        arrays["classes"] = classes.astype(str) if classes.dtype == object else classes
    if model.calibration is not None:
        arrays |= {"points": model.calibration.values, "ends": model.calibration.ends}
    if takes_tables(model):
        arrays |= learned_arrays(model.finisher)
    with files.together([module, data]) as place:
        files.save_arrays(place[data], **arrays)
        files.publish_text(place[module], source(model, files.base_name(data)))
    names = ", ".join(model.finisher.spec.columns) if takes_tables(model) else ""
    return [f"takes tables with the columns {names}, as they stand in a CSV file or a DataFrame"] if names else []


def takes_tables(model: Model) -> bool:
    """Whether the model makes features of raw columns."""
    return bool(model.learned) and encode.is_columns(model.features)


def learned_arrays(finisher: encode.Finisher) -> dict[str, np.ndarray]:
    """What ``table_rows.Table`` needs: what was learned of the columns, and the terms of the spec."""
    spec, learned = finisher.spec, finisher.learned
    idf, starts = encode.dense_idf(spec, learned)
    of = [idf[start + learned.idf_places[a:b]] if start >= 0 else idf[:0]
          for start, a, b in zip(starts.tolist(), learned.idf_at[:-1], learned.idf_at[1:], strict=True)]  # fmt: skip
    (unseen,) = encode.idf_of(learned, np.zeros(1)).tolist()
    told = {"terms": spec.as_json()["features"], "missing_values": spec.missing_values, "decimal": spec.decimal,
            "signed": spec.signed, "bits": learned.bits, "idf_unseen": unseen}  # fmt: skip
    names = ("kind", "first", "mean", "scale", "edges", "edges_at", "keys", "keys_at", "idf_places", "idf_at")
    arrays = {name: getattr(learned, name) for name in names}
    written, meant = encode.respelt(spec, learned)  # of known categories ``spellings`` finds them
    hashed = learned.kind[(written >> np.uint64(32)).astype(np.int64)] == encode.HASHED
    arrays |= {"written": written[hashed], "meant": meant[hashed]}
    return {**arrays, "idf": np.concatenate([idf[:0], *of]), "table": np.array(json.dumps(told))}


def source(model: Model, data: str) -> str:
    """The module's text."""

    what = "numbers" if model.regression else f"{model.classes_.size:,} classes"
    one = model.intercept_.size == 1
    shape = "[n]" if model.regression else "[n], positive for the class that sorts last" if one else "[n, classes]"
    tables = takes_tables(model)
    head = HEAD.format(
        data=data, version=__version__, what=what, n_features=model.n_features,
        method=model.method.get("name"), table=OF_TABLES * tables,
        body=_text_of(table_rows) if tables else "\nimport numpy as np\n",
    )  # fmt: skip
    head += TABLE * tables
    body = SPARSE if model.sparse else DENSE
    if model.calibration is not None:
        head += CALIBRATION
    parts = [head, body, ROWS % {"shape": shape, "flat": "[:, 0]" if one else "",
                                "table": ROWS_OF_TABLES * tables}]  # fmt: skip
    parts.append(NUMBERS if model.regression else CLASSES % {"code": BINARY_CODE if one else CODE})
    if not model.no_probabilities():
        parts.append(SHARES % (_shares(model), PAIR if one else WHOLE))
    return "".join(parts)


def _text_of(module: ModuleType) -> str:
    """The source of a module behind its docstring."""
    return inspect.getsource(module).split('"""\n', 1)[1].lstrip() + "\n"


def _shares(model: Model) -> str:
    """Lines that make shares [n, columns] of scores [n, columns]."""
    if model.calibration is not None:
        platt = PLATT if model.binary else PLATT_REST
        return platt if model.calibration.method == "platt" else ISOTONIC
    if model.binary:
        return LOGISTIC
    return SOFTMAX if model.method.get("multiclass") == "multinomial" else REST
