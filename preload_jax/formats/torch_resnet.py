"""ResNets of torchvision, timm and OpenOOD: `conv1`, `layer1.0.conv1`, `downsample` or `shortcut`, `fc` or `linear`."""

from collections.abc import Mapping

import numpy as np

from preload_jax.errors import UserError
from preload_jax.formats.torch_tensors import Layout, Place, layer, norm, require_names, shape

_TITLE = "a ResNet of basic or bottleneck blocks"
_STEMS = {3: "cifar", 7: "imagenet"}


def read(arrays: Mapping[str, np.ndarray]) -> Layout | None:
    """The network, or None if the tensors are of another kind.

    Raises:
        UserError: for a ResNet of another form, with the tensors that it lacks or has besides.
    """
    if "layer1.0.conv1.weight" not in arrays:
        return None
    blocks = _blocks(arrays)
    bottleneck = "layer1.0.conv3.weight" in arrays
    final = "linear" if "linear.weight" in arrays else "fc"
    shortcut = "shortcut" if any(name.split(".")[2:3] == ["shortcut"] for name in arrays) else "downsample"
    places = _places(blocks, bottleneck, shortcut)
    require_names(arrays, {*places, f"{final}.weight", f"{final}.bias"}, _TITLE)
    width, _, *size = shape(arrays, "conv1.weight", 4)
    if size[0] not in _STEMS:
        raise UserError(f"the first convolution is {size[0]}×{size[1]}; expected 3×3 or 7×7")
    row = "resnet50" if bottleneck else "resnet34" if blocks == (3, 4, 6, 3) else "resnet18"
    options = {"blocks": blocks, "width": width, "stem": _STEMS[size[0]]}
    return Layout(row, options, final, places.__getitem__)


def _blocks(arrays: Mapping[str, np.ndarray]) -> tuple[int, ...]:
    """How many blocks each group has."""
    found: dict[str, set[str]] = {}
    for name in arrays:
        group, _, rest = name.partition(".")
        if group.startswith("layer"):
            found.setdefault(group, set()).add(rest.split(".")[0])
    blocks: list[int] = []
    while f"layer{len(blocks) + 1}" in found:
        blocks.append(len(found[f"layer{len(blocks) + 1}"]))
    return tuple(blocks)


def _places(blocks: tuple[int, ...], bottleneck: bool, shortcut: str) -> dict[str, Place]:
    """Every tensor of the backbone, and where it goes."""
    places = layer("conv1", "conv", bias=False) | norm("bn1", "bn", statistics=True)
    for group, number in enumerate(blocks, start=1):
        for i in range(number):
            there, here = f"layer{group}.{i}", f"group{group}_block{i}"
            for k in range(1, 4 if bottleneck else 3):
                places |= layer(f"{there}.conv{k}", here, f"conv{k}", bias=False)
                places |= norm(f"{there}.bn{k}", here, f"bn{k}", statistics=True)
            # Basic blocks of the first group keep the size and the channels.
            if i == 0 and (group > 1 or bottleneck):
                places |= layer(f"{there}.{shortcut}.0", here, "shortcut_conv", bias=False)
                places |= norm(f"{there}.{shortcut}.1", here, "shortcut_bn", statistics=True)
    return places
