"""An ONNX graph: dense rows in, label, decision values and probabilities out.

    X float32 [n, d]  ->  scores = X W' + b, in float64  ->  label, probabilities (logistic loss, Platt's calibration)

Of standard operators alone. Sums are made in float64, so that they are the model's to its rounding whatever cancels. A
file of ONNX is one protobuf message, which holds less than 2 GiB.
"""

from __future__ import annotations

import json
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from bigclf import files
from bigclf.errors import RunError
from bigclf.units import format_bytes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

    from bigclf.model.model import Model


MOST_BYTES = 2**31 - 1  # of a protobuf message
ROOM = 2**20  # for what is not weights or classes
OPSET, IR_VERSION = 17, 8  # of 2022: what runs it is not asked for the newest


def write(model: Model, path: str) -> list[str]:
    """Write the graph.

    Raises
    ------
    RunError : more weights than the format holds, with the number, or the package ``onnx`` is missing.
    """
    _check_size(model)
    graph = _graph(model)
    files.publish_bytes(path, graph.SerializeToString())
    told = [f"input X: float32 [rows, {model.n_features}]; outputs: {', '.join(o.name for o in graph.graph.output)}"]
    left_out = not model.no_probabilities() and not _has_shares(model)
    return told + ["probabilities by isotonic regression are left out"] * left_out


def _has_shares(model: Model) -> bool:
    """Whether the graph makes probabilities."""
    isotonic = model.calibration is not None and model.calibration.method == "isotonic"
    return not model.no_probabilities() and not isotonic


def _check_size(model: Model) -> None:
    classes = 0 if model.regression else sum(len(str(label)) + 8 for label in model.classes_.tolist())
    size = model.coef_.shape[0] * model.n_features * model.coef_.dtype.itemsize + classes + ROOM
    if size > MOST_BYTES:
        rows, d = model.coef_.shape
        width = model.coef_.dtype.itemsize
        raise RunError(
            f"ONNX holds less than 2 GiB in a file ({MOST_BYTES:,} bytes); "
            f"{rows:,} x {d:,} weights of {width} bytes take {format_bytes(rows * d * width)}; "
            "--to numpy, parquet and liblinear have no such limit"
        )


def _onnx() -> ModuleType:
    try:
        import onnx
    except ImportError:
        raise RunError("ONNX needs the package onnx: pip install 'bigclf[onnx]'") from None
    return onnx


def _graph(model: Model) -> ModelProto:
    onnx = _onnx()
    node, constant = onnx.helper.make_node, onnx.numpy_helper.from_array
    value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto
    k = model.intercept_.size
    weights = np.ascontiguousarray(model.dense_weights().T)  # [d, K]
    constants = [constant(weights, "weights"), constant(model.intercept_, "bias")]
    nodes = [
        node("Cast", ["X"], ["rows"], to=kind.DOUBLE),
        node("Cast", ["weights"], ["wide_weights"], to=kind.DOUBLE),
        node("MatMul", ["rows", "wide_weights"], ["products"]),
        node("Add", ["products", "bias"], ["sums"]),
    ]
    outputs = []
    if k == 1:
        constants.append(constant(np.array([1], np.int64), "one"))
        nodes.append(node("Squeeze", ["sums", "one"], ["scores"]))
    else:
        nodes.append(node("Identity", ["sums"], ["scores"]))
    if not model.regression:
        outputs.append(value("label", _label_kind(onnx, model.classes_), ["n"]))
        nodes += _choice(onnx, model)
        constants.append(_class_tensor(onnx, model.classes_))
        constants += [constant(np.zeros(1), "zero"), constant(np.ones(1), "unit")]
    outputs.append(value("scores", kind.DOUBLE, ["n"] if k == 1 else ["n", k]))
    if _has_shares(model):
        nodes += _shares(onnx, model)
        outputs.append(value("probabilities", kind.DOUBLE, ["n", model.classes_.size]))
        constants.append(constant(np.array([-1.0, 1.0]), "signs"))
        steepness, start = (-np.ones((1, k)), np.zeros(k)) if model.calibration is None else model.calibration.values
        constants += [constant(-np.asarray(steepness), "steepness"), constant(-np.asarray(start), "start")]
    inputs = [value("X", kind.FLOAT, ["n", model.n_features])]
    used = {name for each in nodes for name in each.input}
    constants = [each for each in constants if each.name in used]
    graph = onnx.helper.make_graph(nodes, "bigclf", inputs, outputs, constants)
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], producer_name="bigclf")
    made.ir_version = IR_VERSION
    if model.learned:  # what X is made of
        columns = {"columns": model.finisher.spec.columns, "features": model.features}
        onnx.helper.set_model_props(made, {name: json.dumps(told) for name, told in columns.items()})
    return made


def _choice(onnx: ModuleType, model: Model) -> list[NodeProto]:
    """Of two classes the greater where the score is at least 0, of more the first with the largest."""
    node = onnx.helper.make_node
    if model.binary:
        return [
            node("GreaterOrEqual", ["scores", "zero"], ["positive"]),
            node("Cast", ["positive"], ["code"], to=onnx.TensorProto.INT64),
            node("Gather", ["classes", "code"], ["label"], axis=0),
        ]
    return [
        node("ArgMax", ["scores"], ["code"], axis=1, keepdims=0),
        node("Gather", ["classes", "code"], ["label"], axis=0),
    ]


def _shares(onnx: ModuleType, model: Model) -> list[NodeProto]:
    """1 / (1 + exp(-z)) with z the score, or -(A score + B) by Platt's calibration, of more than two classes made to
    sum to 1 as the softmax of the logarithms; or the softmax of the scores."""
    node = onnx.helper.make_node
    if model.method.get("multiclass") == "multinomial" and not model.binary and model.calibration is None:
        return [node("Softmax", ["scores"], ["probabilities"], axis=1)]
    if model.binary:
        scaled = [node("Mul", ["sums", "steepness"], ["scaled"]), node("Add", ["scaled", "start"], ["exponents"])]
        both = node("Mul", ["exponents", "signs"], ["both"])
        return [*scaled, both, node("Sigmoid", ["both"], ["probabilities"])]
    return [  # -log of a share is log(1 + exp(-z)) = max(-z, 0) + log(1 + exp(-|z|))
        node("Mul", ["sums", "steepness"], ["scaled"]),
        node("Add", ["scaled", "start"], ["exponents"]),
        node("Neg", ["exponents"], ["turned"]),
        node("Max", ["turned", "zero"], ["above"]),
        node("Abs", ["turned"], ["sizes"]),
        node("Neg", ["sizes"], ["small"]),
        node("Exp", ["small"], ["tails"]),
        node("Add", ["tails", "unit"], ["sum_of_tails"]),
        node("Log", ["sum_of_tails"], ["rest"]),
        node("Add", ["above", "rest"], ["surprises"]),
        node("Neg", ["surprises"], ["logs"]),
        node("Softmax", ["logs"], ["probabilities"], axis=1),
    ]


def _label_kind(onnx: ModuleType, classes: np.ndarray) -> int:
    kinds = {"U": "STRING", "O": "STRING", "b": "BOOL", "f": "DOUBLE"}
    return int(getattr(onnx.TensorProto, kinds.get(classes.dtype.kind, "INT64")))


def _class_tensor(onnx: ModuleType, classes: np.ndarray) -> TensorProto:
    if classes.dtype.kind in "UO":
        texts = [label.encode() for label in classes.tolist()]
        return onnx.helper.make_tensor("classes", onnx.TensorProto.STRING, [len(texts)], texts)
    wide = {"b": np.bool_, "f": np.float64}.get(classes.dtype.kind, np.int64)
    return onnx.numpy_helper.from_array(classes.astype(wide), "classes")
