"""PreLoad for JAX: classifiers that say "I don't know" far from their training data.

    from preload_jax import evaluate, fit, make_classifier, predict

    model = make_classifier("lenet", "square_logit", num_classes=10)
    variables = fit(model, images, labels, outliers)
    predict(model, variables, new_images).is_ood

- `fit`, `attach`, `predict` and `evaluate` are the front door (`preload_jax.api`).
- `make_classifier`, `Classifier` and the heads make models.  `square_logit` is the OOD class's logit as a function.
- `adapters` make backbones of networks in Flax NNX, Equinox or plain JAX.
- `metrics`, `losses`, `scores` and `guarantees` are modules of pure functions.  `detectors` has many OOD scores.
- `decisions` makes a rule of a score: which inputs are called OOD, with a guaranteed rate of false alarms.
- `recalibration` makes the classes' probabilities as often right as they say, and recomputes the guarantees.
- `bayes` makes the last layer Bayesian.  `models.MCDropout` and `models.ensemble` mix networks.
- `UserError` is what all of these raise for wrong use; `DataError` is the one about data sets and files.
- `weights` writes and reads trained networks.  `torch_import` reads those of the released code.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Attached",
    "Classifier",
    "DataError",
    "LinearHead",
    "Predictions",
    "SquareLogitHead",
    "UserError",
    "adapters",
    "attach",
    "bayes",
    "decisions",
    "detectors",
    "evaluate",
    "fit",
    "guarantees",
    "losses",
    "make_classifier",
    "metrics",
    "predict",
    "recalibration",
    "scores",
    "square_logit",
    "torch_import",
    "weights",
]

# Where each public name is; read when it is first asked for, so that importing the package is quick.
_API = ("Attached", "Predictions", "attach", "evaluate", "fit", "predict")
_MODELS = ("Classifier", "LinearHead", "SquareLogitHead", "make_classifier", "square_logit")
_ERRORS = ("DataError", "UserError")
_FORMATS = ("torch_import", "weights")

if TYPE_CHECKING:
    from preload_jax import adapters, bayes, decisions, detectors, guarantees, losses, metrics, recalibration, scores
    from preload_jax.api import Attached, Predictions, attach, evaluate, fit, predict
    from preload_jax.errors import DataError, UserError
    from preload_jax.formats import torch_import, weights
    from preload_jax.models import Classifier, LinearHead, SquareLogitHead, make_classifier, square_logit


def __getattr__(name: str) -> Any:
    if name in _API:
        return getattr(importlib.import_module("preload_jax.api"), name)
    if name in _MODELS:
        return getattr(importlib.import_module("preload_jax.models"), name)
    if name in _ERRORS:
        return getattr(importlib.import_module("preload_jax.errors"), name)
    if name in _FORMATS:
        return importlib.import_module(f"preload_jax.formats.{name}")
    if name in __all__:
        return importlib.import_module(f"preload_jax.{name}")
    raise AttributeError(f"module 'preload_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
