"""bigclf: linear classifiers on data larger than memory, each with a certificate of how close it is to the optimum.

import bigclf

ds = bigclf.convert("train.svm", "shards/")
model = bigclf.fit(ds, algo="dcd", C=1.0, memory="256MB")
model.save("model.bigclf")
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from bigclf.version import __version__ as __version__

if sys.platform == "linux":
    # What Arrow takes is to be near what it needs, as a budget of memory has it planned. Its own choice, mimalloc, held
    # 24 to 33 MB where 4 were asked for, and jemalloc 12; the C library as few, but then holds what numpy had beside it
    # (2 M rows under 140 MB: 151 MB, and not 124). Arrow looks once, when it is loaded.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    # It gives back what was freed after a second, by default; ``data.shards.await_freed`` waits for that.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "dirty_decay_ms:100,muzzy_decay_ms:0,background_thread:true")

if TYPE_CHECKING:
    from bigclf import errors as errors
    from bigclf.api.calibrate import calibrate as calibrate
    from bigclf.api.evaluate import evaluate as evaluate
    from bigclf.api.fit import fit as fit
    from bigclf.api.forget import forget as forget
    from bigclf.api.margins import entropy_margin as entropy_margin
    from bigclf.api.margins import infinity_norm_margin as infinity_norm_margin
    from bigclf.api.margins import soft_margin as soft_margin
    from bigclf.api.method_list import algorithms as algorithms
    from bigclf.api.path import path as path
    from bigclf.api.predict import predict as predict
    from bigclf.api.suggesting import suggest as suggest
    from bigclf.api.sweep import sweep as sweep
    from bigclf.conversion.convert import convert as convert
    from bigclf.conversion.split import split as split
    from bigclf.conversion.text import readers as readers
    from bigclf.data.dataset import Dataset as Dataset
    from bigclf.estimators import FeatureTransformer as FeatureTransformer
    from bigclf.estimators import LinearClassifier as LinearClassifier
    from bigclf.estimators import LinearRegressor as LinearRegressor
    from bigclf.model.model import Model as Model
    from bigclf.model.model import load as load
    from bigclf.reporting import report as report
    from bigclf.request.places import RunDir as RunDir
    from bigclf.request.places import Workers as Workers

_PLACES = {
    "fit": "bigclf.api.fit",
    "forget": "bigclf.api.forget",
    "load": "bigclf.model.model",
    "convert": "bigclf.conversion.convert",
    "calibrate": "bigclf.api.calibrate",
    "evaluate": "bigclf.api.evaluate",
    "predict": "bigclf.api.predict",
    "path": "bigclf.api.path",
    "report": "bigclf.reporting",
    "suggest": "bigclf.api.suggesting",
    "sweep": "bigclf.api.sweep",
    "algorithms": "bigclf.api.method_list",
    "infinity_norm_margin": "bigclf.api.margins",
    "entropy_margin": "bigclf.api.margins",
    "soft_margin": "bigclf.api.margins",
    "split": "bigclf.conversion.split",
    "Dataset": "bigclf.data.dataset",
    "Model": "bigclf.model.model",
    "RunDir": "bigclf.request.places",
    "Workers": "bigclf.request.places",
    "FeatureTransformer": "bigclf.estimators",
    "LinearClassifier": "bigclf.estimators",
    "LinearRegressor": "bigclf.estimators",
}

_MODULES = {"errors": "bigclf.errors", "readers": "bigclf.conversion.text.readers"}

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
    "forget",
    "infinity_norm_margin",
    "load",
    "path",
    "predict",
    "report",
    "soft_margin",
    "split",
    "suggest",
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
