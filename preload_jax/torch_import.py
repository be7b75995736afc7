"""Weights in the released PyTorch code's layout → our model and variables.

Layouts differ in two ways: torch keeps convolutions as [out, in, h, w] and dense layers as [out, in], ours are
[h, w, in, out] and [in, out]; and torch flattens LeNet's last feature map as (channel, row, column), we flatten it as
(row, column, channel).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from preload_jax.models import Classifier, make_classifier

Path = tuple[str, ...]


def load(state_dict: Mapping[str, Any], *, head: str | None = None) -> tuple[Classifier, dict[str, Any]]:
    """The classifier and its variables from a torch state dict of the released code's LeNet or WideResNet.

    Args:
        state_dict: name → tensor or array, such as `model.state_dict()`; `num_batches_tracked` is ignored.
        head: None infers "square_logit" where `network_part2.fc` is present and "linear" elsewhere.  A "none_class"
            (NC) state dict looks like a linear one with a class more, so that head must be named.

    Returns:
        (model, variables); `model.apply(variables, images)` gives what torch computes, images in NHWC.

    Raises:
        ValueError: for names of neither network, missing or surplus tensors, or a wrong shape.
    """
    arrays = {_strip(name): _to_numpy(value) for name, value in state_dict.items()}
    arrays = {name: value for name, value in arrays.items() if not name.endswith("num_batches_tracked")}
    backbone = _backbone(arrays)
    head = head or ("square_logit" if "network_part2.fc.weight" in arrays else "linear")
    final = "fc2" if backbone == "lenet" else "fc"
    if f"{final}.weight" not in arrays:
        raise ValueError(f"the state dict has no {final}.weight, the last dense layer of a {backbone}")
    num_outputs = len(arrays[f"{final}.weight"])
    model = make_classifier(backbone, head, num_classes=num_outputs - (head == "none_class"), **_options(arrays))

    variables: dict[str, Any] = {}
    for name, value in arrays.items():
        path, convert = _target(name, backbone)
        _set(variables, path, jnp.asarray(convert(value), jnp.float32))
    _check_complete(model, variables, arrays, backbone)
    return model, variables


def _strip(name: str) -> str:
    return name.removeprefix("module.").removeprefix("network_part1.")


def _to_numpy(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)


def _backbone(arrays: Mapping[str, np.ndarray]) -> str:
    if "fc1.weight" in arrays:
        return "lenet"
    if "block1.layer.0.conv1.weight" in arrays:
        return "wide_resnet"
    shown = ", ".join(sorted(arrays)[:4])
    raise ValueError(f"the state dict is neither the released LeNet nor WideResNet; its names begin with {shown}")


def _options(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What the tensors' shapes say of the backbone's size."""
    if "fc1.weight" in arrays:
        return {
            "channels": (len(arrays["conv1.weight"]), len(arrays["conv2.weight"])),
            "width": len(arrays["fc1.weight"]),
        }
    blocks = len({name.split(".")[2] for name in arrays if name.startswith("block1.layer.")})
    return {"depth": 6 * blocks + 4, "widen_factor": len(arrays["block1.layer.0.conv1.weight"]) // 16}


def _target(name: str, backbone: str) -> tuple[Path, Callable[[np.ndarray], np.ndarray]]:
    """Where a torch tensor goes in our variables, and how it is laid out there."""
    module, _, kind = name.rpartition(".")
    if module == "network_part2.fc":
        ood = ("params", "head", "ood")
        return ((*ood, "raw_weights"), lambda w: w.reshape(-1)) if kind == "weight" else ((*ood, "bias"), _scalar)
    if module == ("fc2" if backbone == "lenet" else "fc"):
        return ("params", "head", "linear", *_leaf(kind)), _transpose
    path = _lenet_module(module) if backbone == "lenet" else _wide_resnet_module(module)
    if kind.startswith("running_"):
        return ("batch_stats", "backbone", *path, kind.removeprefix("running_")), _same
    is_batch_norm = backbone == "wide_resnet" and path[-1].startswith("bn")
    if is_batch_norm:
        return ("params", "backbone", *path, "scale" if kind == "weight" else kind), _same
    convert = _flattened_dense if (backbone, module) == ("lenet", "fc1") else _transpose
    return ("params", "backbone", *path, *_leaf(kind)), convert


def _leaf(kind: str) -> Path:
    return ("kernel",) if kind == "weight" else (kind,)


def _lenet_module(module: str) -> Path:
    names = {"conv1": ("conv1",), "conv2": ("conv2",), "fc1": ("dense",)}
    if module not in names:
        raise ValueError(f"unexpected tensor of {module!r} in a LeNet's state dict")
    return names[module]


def _wide_resnet_module(module: str) -> Path:
    if module in ("conv1", "bn1"):
        return (module[:-1],)
    match = re.fullmatch(r"block([123])\.layer\.(\d+)\.(bn1|bn2|conv1|conv2|convShortcut)", module)
    if match is None:
        raise ValueError(f"unexpected tensor of {module!r} in a WideResNet's state dict")
    group, index, layer = match.groups()
    return (f"group{group}_block{index}", "shortcut" if layer == "convShortcut" else layer)


def _same(value: np.ndarray) -> np.ndarray:
    return value


def _scalar(value: np.ndarray) -> np.ndarray:
    return value.reshape(())


def _transpose(value: np.ndarray) -> np.ndarray:
    """[out, in] → [in, out], [out, in, h, w] → [h, w, in, out]; a bias stays."""
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


def _flattened_dense(value: np.ndarray) -> np.ndarray:
    """[out, c·h·w] → [h·w·c, out] for a square map; a bias stays."""
    if value.ndim == 1:
        return value
    channels = 64 if value.shape[1] % 64 == 0 else None
    side = int((value.shape[1] / channels) ** 0.5) if channels else 0
    if not channels or channels * side * side != value.shape[1]:
        raise ValueError(f"fc1.weight of shape {value.shape} does not follow a square map of 64 channels")
    return value.reshape(len(value), channels, side, side).transpose(2, 3, 1, 0).reshape(-1, len(value))


def _set(tree: dict[str, Any], path: Path, value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def _check_complete(model: Classifier, variables: dict, arrays: Mapping[str, np.ndarray], backbone: str) -> None:
    import jax

    channels = arrays["conv1.weight"].shape[1]
    side = int((arrays["fc1.weight"].shape[1] / 64) ** 0.5) * 4 if backbone == "lenet" else 32
    expected = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, side, side, channels)))
    shapes = {_path_name(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(expected)}
    got = {_path_name(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(variables)}
    for path in sorted(shapes.keys() | got.keys()):
        if path not in got:
            raise ValueError(f"the state dict lacks the tensor for {path} of shape {shapes[path]}")
        if shapes.get(path) != got[path]:
            raise ValueError(f"the tensor for {path} has shape {got[path]}, expected {shapes.get(path, 'none')}")


def _path_name(path: Any) -> str:
    return "/".join(str(entry.key) for entry in path)
