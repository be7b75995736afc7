"""Imports pytorch-ood where torchvision's binary does not fit the torch beside it, as with a torch for CPUs alone.

pytorch-ood imports torchvision for its data sets and its zoo of models; its detectors use nothing of it.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any, ClassVar

import pytest


class _Anything(types.ModuleType):
    """A module in which every name is an empty class."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Anything(spec.name)

    def exec_module(self, module):
        pass


def pytorch_ood() -> Any:
    """The package; skips the test where it or torch is not installed."""
    pytest.importorskip("torch", reason="needs torch and pytorch-ood, the extra 'parity'")
    try:
        importlib.import_module("torchvision")
    except Exception:  # Not installed, or of another torch.
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        sys.meta_path.insert(0, _Finder())
    return pytest.importorskip("pytorch_ood", reason="needs torch and pytorch-ood, the extra 'parity'")
