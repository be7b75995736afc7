"""Weights in the released PyTorch code's layout → our model and variables.

Layouts differ in two ways: torch keeps convolutions as [out, in, h, w] and dense layers as [out, in], ours are
[h, w, in, out] and [in, out]; and torch flattens LeNet's last feature map as (channel, row, column), we flatten it as
(row, column, channel).
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.devices.variables import shapes_of
from preload_jax.errors import UserError
from preload_jax.formats import torch_file, torch_names
from preload_jax.models import Classifier, make_classifier

Keys = tuple[str, ...]
_Convert = Callable[[np.ndarray], np.ndarray]
# Of the released LeNet, whose last feature map is flattened before fc1.
_LENET_CHANNELS = 64


def load(
    state_dict: Mapping[str, Any] | str | Path, *, head: str | None = None, num_classes: int | None = None
) -> tuple[Classifier, dict[str, Any]]:
    """The classifier and its variables from a torch state dict of the released code's LeNet or WideResNet.

    The released code saves plain state dicts: of the network alone for seven methods (DDU's is the standard one; its
    Gaussians are fitted anew), with K + 1 outputs for NC, and with `network_part1.` and `network_part2.` before the
    names for PreLoad and PreLoad-FT.  What DataParallel, torch.compile, FSDP and Lightning add to the names is dropped,
    in any order and depth.

    Args:
        state_dict: name → tensor or array, such as `model.state_dict()`, or the path of a file that `torch.save` wrote
            (`torch_file.read_state_dict`; torch is not needed).  `num_batches_tracked` is ignored, floating-point
            numbers of any width become float32.
        head: None infers "square_logit" where `network_part2.fc` is present and "linear" elsewhere.  A "none_class"
            (NC) state dict looks like a linear one with a class more, so that head must be named, or
        num_classes: K given, which tells the two apart.

    Returns:
        (model, variables); `model.apply(variables, images)` gives what torch computes, images in NHWC.

    Raises:
        UserError: for names of neither network, missing or surplus tensors, a wrong shape or number of classes, or
            numbers that are not finite; DataError for a file that holds no state dict.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from preload_jax import torch_import
        >>> shapes = {"conv1.weight": (32, 1, 5, 5), "conv1.bias": (32,), "conv2.weight": (64, 32, 5, 5)}
        >>> shapes |= {"conv2.bias": (64,), "fc1.weight": (1024, 3136), "fc1.bias": (1024,)}
        >>> shapes |= {"fc2.weight": (11, 1024), "fc2.bias": (11,)}
        >>> model, variables = torch_import.load({k: np.zeros(v) for k, v in shapes.items()}, num_classes=10)
        >>> model.apply(variables, jnp.zeros((2, 28, 28, 1))).shape
        (2, 11)
        >>> torch_import.image_shape(variables)
        (28, 28, 1)
    """
    if isinstance(state_dict, str | Path):
        state_dict = torch_file.read_state_dict(state_dict)
    arrays = _arrays(state_dict)
    backbone = _backbone(arrays)
    final = "fc2" if backbone == "lenet" else "fc"
    if f"{final}.weight" not in arrays:
        raise UserError(f"the state dict has no {final}.weight, the last dense layer of a {backbone}")
    num_outputs, _ = _shape(arrays, f"{final}.weight", 2)
    head = head or _head(arrays, num_outputs, num_classes)
    model = make_classifier(backbone, head, num_classes=num_outputs - (head == "none_class"), **_options(arrays))

    variables: dict[str, Any] = {}
    for name, value in arrays.items():
        path, convert = _target(name, backbone)
        try:
            _set(variables, path, jnp.asarray(convert(value), jnp.float32))
        except UserError:
            raise
        except ValueError as error:
            raise UserError(f"the tensor {name} of shape {value.shape} has another shape than that layer's") from error
    _check_complete(model, variables)
    return model, variables


def image_shape(variables: Mapping[str, Any]) -> tuple[int, int, int]:
    """(height, width, channels) of the square images that a network which `load` returned is for.

    Example: see `load`.
    """
    backbone = variables["params"]["backbone"]
    if "dense" not in backbone:
        return 32, 32, backbone["conv"]["kernel"].shape[2]
    side = 4 * int((backbone["dense"]["kernel"].shape[0] / _LENET_CHANNELS) ** 0.5)
    return side, side, backbone["conv1"]["kernel"].shape[2]


def _arrays(state_dict: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The tensors as arrays, by their names in the bare network."""
    arrays: dict[str, np.ndarray] = {}
    for full, name in torch_names.bare(state_dict).items():
        array = _to_numpy(state_dict[full])
        if name in arrays:
            raise UserError(f"the state dict has two tensors for {name}; expected those of one network")
        if not array.size:
            raise UserError(f"the tensor {full} of shape {array.shape} is empty")
        if array.dtype.kind not in "biufV":  # V: the types of ml_dtypes
            raise UserError(f"the tensor {full} holds {array.dtype} numbers; expected real ones")
        with np.errstate(over="ignore"):
            finite = np.isfinite(array.astype(np.float32)).all()
        if not finite:
            raise UserError(f"the tensor {full} holds NaN or infinity; expected a trained network's numbers")
        arrays[name] = array
    return arrays


def _shape(arrays: Mapping[str, np.ndarray], name: str, ndim: int) -> tuple[int, ...]:
    """The shape of a tensor that must be there and have `ndim` dimensions."""
    if name not in arrays:
        raise UserError(f"the state dict lacks the tensor {name}")
    if arrays[name].ndim != ndim:
        raise UserError(f"the tensor {name} has shape {arrays[name].shape}, expected {ndim} dimensions")
    return arrays[name].shape


def _head(arrays: Mapping[str, np.ndarray], num_outputs: int, num_classes: int | None) -> str:
    has_square_logit = "network_part2.fc.weight" in arrays
    if num_classes is not None and num_outputs - num_classes not in ((0,) if has_square_logit else (0, 1)):
        raise UserError(
            f"the state dict is of a network of {num_outputs} outputs, expected {num_classes} classes"
            + ("" if has_square_logit else f" (or {num_classes + 1} outputs with NC's extra class)")
        )
    if has_square_logit:
        return "square_logit"
    return "none_class" if num_classes is not None and num_outputs == num_classes + 1 else "linear"


def _to_numpy(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        # What a tensor only notes (that it is a conjugate or negative) and NumPy does not read.
        for resolve in ("resolve_conj", "resolve_neg"):
            value = getattr(value, resolve, lambda value=value: value)()
    return np.asarray(value)


def _backbone(arrays: Mapping[str, np.ndarray]) -> str:
    if "fc1.weight" in arrays:
        return "lenet"
    if "block1.layer.0.conv1.weight" in arrays:
        return "wide_resnet"
    if set(arrays) == {"fc.weight", "fc.bias"} and len(arrays["fc.weight"]) == 1:
        raise UserError(
            "the state dict is the OOD class's layer alone (the released code's first stage of PreLoad-FT); join it to"
            " its standard network's: {**standard, 'network_part2.fc.weight': …, 'network_part2.fc.bias': …}"
        )
    shown = ", ".join(sorted(arrays)[:4])
    raise UserError(f"the state dict is neither the released LeNet nor WideResNet; its names begin with {shown}")


def _options(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What the tensors' shapes say of the backbone's size."""
    first = _shape(arrays, "conv1.weight", 4)
    if "fc1.weight" in arrays:
        second = _shape(arrays, "conv2.weight", 4)
        return {"channels": (first[0], second[0]), "width": _shape(arrays, "fc1.weight", 2)[0]}
    blocks = len({name.split(".")[2] for name in arrays if name.startswith("block1.layer.")})
    widen_factor = _shape(arrays, "block1.layer.0.conv1.weight", 4)[0] // 16
    if widen_factor < 1:
        raise UserError("the tensor block1.layer.0.conv1.weight has fewer than 16 outputs, the narrowest WideResNet's")
    return {"depth": 6 * blocks + 4, "widen_factor": widen_factor}


def _target(name: str, backbone: str) -> tuple[Keys, _Convert]:
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


def _leaf(kind: str) -> Keys:
    return ("kernel",) if kind == "weight" else (kind,)


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


def _same(value: np.ndarray) -> np.ndarray:
    return value


def _scalar(value: np.ndarray) -> np.ndarray:
    return value.reshape(())


def _transpose(value: np.ndarray) -> np.ndarray:
    """[out, in] → [in, out], [out, in, h, w] → [h, w, in, out]; a bias stays."""
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


def _flattened_dense(value: np.ndarray) -> np.ndarray:
    """[out, c·h·w] → [h·w·c, out] for a square map; a bias stays."""
    if value.ndim != 2:
        return value
    side = int((value.shape[1] / _LENET_CHANNELS) ** 0.5)
    if _LENET_CHANNELS * side * side != value.shape[1]:
        raise UserError(f"fc1.weight of shape {value.shape} does not follow a square map of {_LENET_CHANNELS} channels")
    shape = (len(value), _LENET_CHANNELS, side, side)
    return value.reshape(shape).transpose(2, 3, 1, 0).reshape(-1, len(value))


def _set(tree: dict[str, Any], path: Keys, value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def _check_complete(model: Classifier, variables: dict[str, Any]) -> None:
    expected = shapes_of(model, image_shape(variables))
    shapes = {_path_name(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(expected)}
    got = {_path_name(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(variables)}
    for path in sorted(shapes.keys() | got.keys()):
        if path not in got:
            raise UserError(f"the state dict lacks the tensor for {path} of shape {shapes[path]}")
        if shapes.get(path) != got[path]:
            raise UserError(f"the tensor for {path} has shape {got[path]}, expected {shapes.get(path, 'none')}")


def _path_name(path: Any) -> str:
    return "/".join(str(entry.key) for entry in path)
