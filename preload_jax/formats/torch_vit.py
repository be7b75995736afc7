"""Vision transformers of timm and torchvision, with a class token and layer norms before attention and dense layers."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from preload_jax.errors import UserError
from preload_jax.formats.torch_tensors import Layout, Place, layer, norm, require_names, same, shape, transpose

_TITLE = "a ViT with a class token"
# Heads are in no tensor.  The usual sizes have 64 numbers a head, but for "huge".
_PER_HEAD, _HUGE, _HUGE_HEADS = 64, 1280, 16
# Ours → theirs.
_TIMM = {
    "token": "cls_token",
    "positions": "pos_embed",
    "patches": "patch_embed.proj",
    "norm": "norm",
    "final": "head",
    "block": "blocks.{}",
    "norm1": "norm1",
    "qkv": "attn.qkv.",
    "projection": "attn.proj",
    "norm2": "norm2",
    "dense1": "mlp.fc1",
    "dense2": "mlp.fc2",
}
_TORCHVISION = {
    "token": "class_token",
    "positions": "encoder.pos_embedding",
    "patches": "conv_proj",
    "norm": "encoder.ln",
    "final": "heads.head",
    "block": "encoder.layers.encoder_layer_{}",
    "norm1": "ln_1",
    "qkv": "self_attention.in_proj_",
    "projection": "self_attention.out_proj",
    "norm2": "ln_2",
    "dense1": "mlp.0",
    "dense2": "mlp.3",
}
# As torchvision named them before 0.14.
_OLD = {"dense1": "mlp.linear_1", "dense2": "mlp.linear_2"}


def read(arrays: Mapping[str, np.ndarray], *, heads: int | None) -> Layout | None:
    """The network, or None if the tensors are of another kind.

    Raises:
        UserError: for a ViT of another form, with the tensors that it lacks or has besides; where `heads` is None and
            the width does not tell them.
    """
    if "patch_embed.proj.weight" in arrays:
        names = _TIMM
    elif "conv_proj.weight" in arrays:
        old = any(name.endswith(".mlp.linear_1.weight") for name in arrays)
        names = _TORCHVISION | (_OLD if old else {})
    else:
        return None
    before = names["block"].split("{}")[0]
    depth = len({name.removeprefix(before).split(".")[0] for name in arrays if name.startswith(before)})
    places = _places(names, depth)
    require_names(arrays, {*places, f"{names['final']}.weight", f"{names['final']}.bias"}, _TITLE)
    if depth == 0:
        raise UserError(f"the state dict is not that of {_TITLE}: it has no blocks")
    width, _, *patch = shape(arrays, f"{names['patches']}.weight", 4)
    tokens = shape(arrays, names["positions"], 3)[1]
    if patch[0] != patch[1] or math.isqrt(tokens - 1) ** 2 != tokens - 1 or tokens < 2:
        raise UserError(
            f"patches of {patch[0]}×{patch[1]} and {tokens} positions; expected square patches of square images, and a"
            " position for each of them and for the class token"
        )
    hidden = shape(arrays, f"{names['block'].format(0)}.{names['dense1']}.weight", 2)[0]
    options: dict[str, Any] = {"patch": patch[0], "depth": depth, "width": width, "hidden": hidden}
    options["heads"] = _heads(width) if heads is None else heads
    return Layout("vit", options, names["final"], places.__getitem__)


def _heads(width: int) -> int:
    if width == _HUGE:
        return _HUGE_HEADS
    if width % _PER_HEAD:
        raise UserError(f"no tensor says how many heads a ViT of width {width} has; give heads, as in heads=4")
    return width // _PER_HEAD


def _places(names: Mapping[str, str], depth: int) -> dict[str, Place]:
    """Every tensor of the backbone, and where it goes."""
    places: dict[str, Place] = {
        names["token"]: (("params", "backbone", "class_token"), same),
        names["positions"]: (("params", "backbone", "positions"), same),
    }
    places |= layer(names["patches"], "patches") | norm(names["norm"], "norm")
    for i in range(depth):
        there, here = names["block"].format(i), f"block{i}"
        for name in ("norm1", "norm2"):
            places |= norm(f"{there}.{names[name]}", here, name)
        for name in ("projection", "dense1", "dense2"):
            places |= layer(f"{there}.{names[name]}", here, name)
        for kind, ours in (("weight", "kernel"), ("bias", "bias")):
            places[f"{there}.{names['qkv']}{kind}"] = (("params", "backbone", here, "qkv", ours), transpose)
    return places
