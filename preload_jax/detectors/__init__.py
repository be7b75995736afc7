"""Detectors: features and logits of any network → a score for each input, higher = more in-domain.

    from preload_jax import detectors

    detector = detectors.fit("vim", detectors.Outputs(features, logits), labels, head=(kernel, bias))
    scores = detectors.score(detector, detectors.Outputs(test_features, test_logits))

`TABLE` has a row for each detector, and imports no JAX.  Each idea has a file, with its `fit`, `score` and `limit`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from preload_jax.detectors.row import FAR_AWAY, NEEDS, Row
from preload_jax.detectors.table import TABLE, get

__all__ = ["FAR_AWAY", "NEEDS", "TABLE", "Detector", "Outputs", "Row", "fit", "get", "limit", "outputs", "score"]

if TYPE_CHECKING:
    from preload_jax.detectors.data import Outputs
    from preload_jax.detectors.fitting import Detector, fit, limit, score
    from preload_jax.detectors.network import outputs

_WHERE = {"Outputs": "data", "outputs": "network", "Detector": "fitting", "fit": "fitting"}
_WHERE |= {"limit": "fitting", "score": "fitting"}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        # Kept, so that the next use is not a search.
        globals()[name] = getattr(importlib.import_module(f"preload_jax.detectors.{_WHERE[name]}"), name)
        return globals()[name]
    raise AttributeError(f"module 'preload_jax.detectors' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
