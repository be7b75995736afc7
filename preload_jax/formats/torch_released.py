"""LeNet and WideResNet of the released PyTorch code.

Torch flattens LeNet's last feature map as (channel, row, column), we flatten it as (row, column, channel).
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from preload_jax.errors import UserError
from preload_jax.formats.torch_tensors import Keys, Layout, Place, leaf, same, shape, transpose

# Of the released LeNet, whose last feature map is flattened before fc1.
LENET_CHANNELS = 64


def read(arrays: Mapping[str, np.ndarray]) -> Layout | None:
    """The network, or None if the tensors are of another kind.

    Raises:
        UserError: for tensors of such a network that have other shapes.
    """
    if "fc1.weight" in arrays:
        return Layout("lenet", _lenet_options(arrays), "fc2", partial(_place, backbone="lenet"))
    if "block1.layer.0.conv1.weight" in arrays:
        return Layout("wide_resnet", _wide_resnet_options(arrays), "fc", partial(_place, backbone="wide_resnet"))
    if set(arrays) == {"fc.weight", "fc.bias"} and len(arrays["fc.weight"]) == 1:
        raise UserError(
            "the state dict is the OOD class's layer alone (the released code's first stage of PreLoad-FT); join it to"
            " its standard network's: {**standard, 'network_part2.fc.weight': …, 'network_part2.fc.bias': …}"
        )
    return None


def _lenet_options(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What the tensors' shapes say of the backbone's size."""
    first, second = shape(arrays, "conv1.weight", 4), shape(arrays, "conv2.weight", 4)
    return {"channels": (first[0], second[0]), "width": shape(arrays, "fc1.weight", 2)[0]}


def _wide_resnet_options(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    shape(arrays, "conv1.weight", 4)
    blocks = len({name.split(".")[2] for name in arrays if name.startswith("block1.layer.")})
    widen_factor = shape(arrays, "block1.layer.0.conv1.weight", 4)[0] // 16
    if widen_factor < 1:
        raise UserError("the tensor block1.layer.0.conv1.weight has fewer than 16 outputs, the narrowest WideResNet's")
    return {"depth": 6 * blocks + 4, "widen_factor": widen_factor}


def _place(name: str, backbone: str) -> Place:
    module, _, kind = name.rpartition(".")
    path = _lenet_module(module) if backbone == "lenet" else _wide_resnet_module(module)
    if kind.startswith("running_"):
        return ("batch_stats", "backbone", *path, kind.removeprefix("running_")), same
    is_batch_norm = backbone == "wide_resnet" and path[-1].startswith("bn")
    if is_batch_norm:
        return ("params", "backbone", *path, "scale" if kind == "weight" else kind), same
    convert = _flattened_dense if (backbone, module) == ("lenet", "fc1") else transpose
    return ("params", "backbone", *path, *leaf(kind)), convert


def _lenet_module(module: str) -> Keys:
    names = {"conv1": ("conv1",), "conv2": ("conv2",), "fc1": ("dense",)}
    if module not in names:
        raise UserError(f"unexpected tensor of {module!r} in a LeNet's state dict")
    return names[module]


def _wide_resnet_module(module: str) -> Keys:
    if module in ("conv1", "bn1"):
        return (module[:-1],)
    match = re.fullmatch(r"block([123])\.layer\.(\d+)\.(bn1|bn2|conv1|conv2|convShortcut)", module)
    if match is None:
        raise UserError(f"unexpected tensor of {module!r} in a WideResNet's state dict")
    group, index, layer = match.groups()
    return (f"group{group}_block{index}", "shortcut" if layer == "convShortcut" else layer)


def _flattened_dense(value: np.ndarray) -> np.ndarray:
    """[out, c·h·w] → [h·w·c, out] for a square map; a bias stays."""
    if value.ndim != 2:
        return value
    side = int((value.shape[1] / LENET_CHANNELS) ** 0.5)
    if LENET_CHANNELS * side * side != value.shape[1]:
        raise UserError(f"fc1.weight of shape {value.shape} does not follow a square map of {LENET_CHANNELS} channels")
    shape = (len(value), LENET_CHANNELS, side, side)
    return value.reshape(shape).transpose(2, 3, 1, 0).reshape(-1, len(value))
