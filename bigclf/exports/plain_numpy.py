"""A scorer in plain numpy, written for the model: a module of some forty lines, and its weights in a file beside it.

It needs neither bigclf nor scipy. The weights are read with ``allow_pickle=False``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigclf.data import files

HEAD = '''"""Scores rows by the weights in {data}, which lies beside this file. Needs numpy alone.

Made by bigclf {version}: {what}, {n_features:,} features, learned by {method}.

    decision_function(X)    # X: numpy [n, {n_features}], scipy CSR of that shape, or (indptr, indices, values)
    predict(X)
"""

from pathlib import Path

import numpy as np

MODEL = np.load(Path(__file__).with_name({data!r}), allow_pickle=False)
'''

DENSE = '''WEIGHTS, BIAS = MODEL["weights"], MODEL["bias"]  # [features, columns], [columns]
N_FEATURES = len(WEIGHTS)


def score(indices, values):
    """w . x + b of one row, float64 [columns]."""
    return values @ WEIGHTS[indices] + BIAS
'''

SPARSE = '''INDPTR, COLUMNS, WEIGHTS, BIAS = (MODEL[name] for name in ("indptr", "columns", "weights", "bias"))
N_FEATURES = len(INDPTR) - 1


def score(indices, values):
    """w . x + b of one row, float64 [columns]; of each feature only weights that are not 0 are kept."""
    scores = BIAS.copy()
    for j, value in zip(indices, values):
        of_j = slice(INDPTR[j], INDPTR[j + 1])
        scores[COLUMNS[of_j]] += WEIGHTS[of_j] * value
    return scores
'''

ROWS = '''

def rows(X):
    """Indices and float64 values of each row; ValueError for features that the model does not know."""
    if isinstance(X, tuple) or hasattr(X, "indptr"):
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
    """The module (``.py`` is added where it is missing) and its weights."""
    stem = path.removesuffix(".py")
    return [f"{stem}.py", f"{stem}.npz"]


def write(model: Any, module: str, data: str) -> list[str]:
    """Write weights and module, in this order."""
    arrays: dict[str, np.ndarray] = {"bias": model.intercept_}
    if model.sparse:
        arrays |= {"indptr": model.coef_.indptr, "columns": model.coef_.indices, "weights": model.coef_.data}
    else:
        arrays["weights"] = np.ascontiguousarray(model.coef_.T)
    if not model.regression:
        classes = model.classes_
        arrays["classes"] = classes.astype(str) if classes.dtype == object else classes
    if model.calibration is not None:
        arrays |= {"points": model.calibration.values, "ends": model.calibration.ends}
    files.save_arrays(data, **arrays)
    files.publish_text(module, source(model, files.base_name(data)))
    return []


def source(model: Any, data: str) -> str:
    """The module's text."""
    import bigclf

    what = "numbers" if model.regression else f"{model.classes_.size:,} classes"
    one = model.intercept_.size == 1
    shape = "[n]" if model.regression else "[n], positive for the greater class" if one else "[n, classes]"
    head = HEAD.format(
        data=data, version=bigclf.__version__, what=what, n_features=model.n_features, method=model.method.get("name")
    )
    body = SPARSE if model.sparse else DENSE
    if model.calibration is not None:
        head += CALIBRATION
    parts = [head, body, ROWS % {"shape": shape, "flat": "[:, 0]" if one else ""}]
    parts.append(NUMBERS if model.regression else CLASSES % {"code": BINARY_CODE if one else CODE})
    if not model.no_probabilities():
        parts.append(SHARES % (_shares(model), PAIR if one else WHOLE))
    return "".join(parts)


def _shares(model: Any) -> str:
    """Lines that make shares [n, columns] of scores [n, columns]."""
    if model.calibration is not None:
        platt = PLATT if model.binary else PLATT_REST
        return platt if model.calibration.method == "platt" else ISOTONIC
    if model.binary:
        return LOGISTIC
    return SOFTMAX if model.method.get("multiclass") == "multinomial" else REST
