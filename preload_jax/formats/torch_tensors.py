"""Where torch tensors go in our variables, and how they are laid out there.

Torch keeps convolutions as [out, in, h, w] and dense layers as [out, in]; ours are [h, w, in, out] and [in, out].
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from preload_jax.errors import UserError

Keys = tuple[str, ...]
# The path of a variable, and what makes its array of the tensor.
Place = tuple[Keys, Callable[[np.ndarray], np.ndarray]]
_SHOWN = 4


@dataclass(frozen=True)
class Layout:
    """A network as its tensors tell it.

    Attributes:
        backbone: its row's name.
        options: of the backbone.
        final: the module of the last dense layer, as torch names it.
        place: where a tensor of the backbone goes; raises a UserError for one that the network has not.
    """

    backbone: str
    options: dict[str, Any]
    final: str
    place: Callable[[str], Place]


def shape(arrays: Mapping[str, np.ndarray], name: str, ndim: int) -> tuple[int, ...]:
    """The shape of a tensor that must be there and have `ndim` dimensions."""
    if name not in arrays:
        raise UserError(f"the state dict lacks the tensor {name}")
    if arrays[name].ndim != ndim:
        raise UserError(f"the tensor {name} has shape {arrays[name].shape}, expected {ndim} dimensions")
    return arrays[name].shape


def require_names(arrays: Mapping[str, np.ndarray], expected: set[str], title: str) -> None:
    """Raises a UserError that names the tensors which a network lacks, and those that it has not.

    Args:
        arrays: by name.
        expected: the names of the network.
        title: what the network is called.
    """
    lacks, more = sorted(expected - arrays.keys()), sorted(arrays.keys() - expected)
    if lacks or more:
        said = [f"it lacks {_some(lacks)}"] * bool(lacks) + [f"it also has {_some(more)}"] * bool(more)
        raise UserError(f"the state dict is not that of {title}: {', and '.join(said)}")


def _some(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def same(value: np.ndarray) -> np.ndarray:
    """The tensor as it is."""
    return value


def scalar(value: np.ndarray) -> np.ndarray:
    """One number."""
    return value.reshape(())


def transpose(value: np.ndarray) -> np.ndarray:
    """[out, in] → [in, out], [out, in, h, w] → [h, w, in, out]; a bias stays."""
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


def leaf(kind: str) -> Keys:
    """What a convolution's or dense layer's tensor is called in Flax."""
    return ("kernel",) if kind == "weight" else (kind,)


def layer(module: str, *path: str, bias: bool = True) -> dict[str, Place]:
    """The tensors of a convolution or dense layer, with their places in the backbone."""
    kinds = ("weight", "bias") if bias else ("weight",)
    return {f"{module}.{kind}": (("params", "backbone", *path, *leaf(kind)), transpose) for kind in kinds}


def norm(module: str, *path: str, statistics: bool = False) -> dict[str, Place]:
    """The tensors of a layer norm, or with `statistics` of a batch norm."""
    found: dict[str, Place] = {
        f"{module}.weight": (("params", "backbone", *path, "scale"), same),
        f"{module}.bias": (("params", "backbone", *path, "bias"), same),
    }
    if statistics:
        for kind in ("mean", "var"):
            found[f"{module}.running_{kind}"] = (("batch_stats", "backbone", *path, kind), same)
    return found
