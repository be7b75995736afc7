"""Imports torchvision, and what needs it, beside a torch for CPUs alone, for which the usual torchvision was not built.

Its binary holds operators for boxes; networks and detectors use none of them.  Where the binary does not load, the
import stops at two operators that it should have registered.  Naming them lets the rest be imported.
"""

import importlib
import sys
from typing import Any

import pytest

_REASON = "needs torch, torchvision, timm and pytorch-ood, the extra 'parity'"
_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_named: list[Any] = []  # torch forgets the operators of a library object that nobody holds.


def torchvision() -> Any:
    """The package; skips the test where it or torch is not installed."""
    torch = pytest.importorskip("torch", reason=_REASON)
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        _named.append(library)
        for operator in _OPERATORS:
            library.define(operator)
    except ImportError:
        pytest.skip(_REASON)
    return importlib.import_module("torchvision")


def pytorch_ood() -> Any:
    """The package, which imports torchvision for its data sets and models; skips the test where it is not installed."""
    torchvision()
    return pytest.importorskip("pytorch_ood", reason=_REASON)


def timm() -> Any:
    """The package, which imports torchvision; skips the test where it is not installed."""
    torchvision()
    return pytest.importorskip("timm", reason=_REASON)
