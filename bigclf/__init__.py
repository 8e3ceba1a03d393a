"""bigclf: linear classifiers on sparse data larger than memory, each answer with a figure of how good it is.

import bigclf

ds = bigclf.convert("train.svm", "shards/")
model = bigclf.fit(ds, algo="dcd", C=1.0, memory="256MB")
model.save("model.bigclf")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bigclf.version import __version__ as __version__

if TYPE_CHECKING:
    from bigclf import errors as errors
    from bigclf.api.places import RunDir as RunDir
    from bigclf.api.places import Workers as Workers
    from bigclf.catalogue import algorithms as algorithms
    from bigclf.data.convert import convert as convert
    from bigclf.data.convert import readers as readers
    from bigclf.data.convert.splitting import split as split
    from bigclf.data.dataset import Dataset as Dataset
    from bigclf.estimators import FeatureTransformer as FeatureTransformer
    from bigclf.estimators import LinearClassifier as LinearClassifier
    from bigclf.estimators import LinearRegressor as LinearRegressor
    from bigclf.margins import entropy_margin as entropy_margin
    from bigclf.margins import infinity_norm_margin as infinity_norm_margin
    from bigclf.margins import soft_margin as soft_margin
    from bigclf.model import Model as Model
    from bigclf.model import load as load
    from bigclf.predicting import predict as predict
    from bigclf.reporting import report as report
    from bigclf.training import fit as fit
    from bigclf.training.calibrating import calibrate as calibrate
    from bigclf.training.evaluation import evaluate as evaluate
    from bigclf.training.path import path as path
    from bigclf.training.sweep import sweep as sweep

_PLACES = {
    "fit": "bigclf.training",
    "load": "bigclf.model",
    "convert": "bigclf.data.convert",
    "calibrate": "bigclf.training.calibrating",
    "evaluate": "bigclf.training.evaluation",
    "predict": "bigclf.predicting",
    "path": "bigclf.training.path",
    "report": "bigclf.reporting",
    "sweep": "bigclf.training.sweep",
    "algorithms": "bigclf.catalogue",
    "infinity_norm_margin": "bigclf.margins",
    "entropy_margin": "bigclf.margins",
    "soft_margin": "bigclf.margins",
    "split": "bigclf.data.convert.splitting",
    "Dataset": "bigclf.data.dataset",
    "Model": "bigclf.model",
    "RunDir": "bigclf.api.places",
    "Workers": "bigclf.api.places",
    "FeatureTransformer": "bigclf.estimators",
    "LinearClassifier": "bigclf.estimators",
    "LinearRegressor": "bigclf.estimators",
}

_MODULES = {"errors": "bigclf.errors", "readers": "bigclf.data.convert.readers"}

__all__ = [
    "Dataset",
    "FeatureTransformer",
    "LinearClassifier",
    "LinearRegressor",
    "Model",
    "RunDir",
    "Workers",
    "__version__",
    "algorithms",
    "calibrate",
    "convert",
    "entropy_margin",
    "errors",
    "evaluate",
    "fit",
    "infinity_norm_margin",
    "load",
    "path",
    "predict",
    "report",
    "soft_margin",
    "split",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Import on first use, so that ``import bigclf`` and ``bigclf --help`` answer at once."""
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _PLACES:
        raise AttributeError(f"module 'bigclf' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
