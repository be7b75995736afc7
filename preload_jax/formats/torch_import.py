"""Weights in the layouts of PyTorch networks → our model and variables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.devices.variables import shapes_of
from preload_jax.errors import UserError
from preload_jax.formats import torch_file, torch_names, torch_released, torch_resnet, torch_tensors, torch_vit
from preload_jax.formats.torch_tensors import Keys, Layout, Place
from preload_jax.models import Classifier, make_classifier

# PreLoad's second part in the released code.
_OOD = "network_part2.fc"
# Sides of the images that a network is usually for which takes any.
_SMALL, _LARGE = 32, 224


def load(
    state_dict: Mapping[str, Any] | str | Path,
    *,
    head: str | None = None,
    num_classes: int | None = None,
    heads: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> tuple[Classifier, dict[str, Any]]:
    """The classifier and its variables from a torch state dict.  Names and shapes tell which network it is:

    | network | as |
    | --- | --- |
    | LeNet, WideResNet | the released code of PreLoad has them |
    | ResNet-18, -34, -50 and others of their blocks | torchvision, timm and OpenOOD have them |
    | ViT with a class token | timm and torchvision have it |

    The released code saves plain state dicts: of the network alone for seven methods (DDU's is the standard one; its
    Gaussians are fitted anew), with K + 1 outputs for NC, and with `network_part1.` and `network_part2.` before the
    names for PreLoad and PreLoad-FT.  What DataParallel, torch.compile, FSDP and Lightning add to the names is dropped,
    in any order and depth.

    A ResNet whose first convolution is 3×3 has no max pooling after it here, one with 7×7 has.  Variants that have the
    same names and shapes and compute something else (another activation, blurred pooling) cannot be told apart.

    Args:
        state_dict: name → tensor or array, such as `model.state_dict()`, or the path of a file that `torch.save` wrote
            (`torch_file.read_state_dict`; torch is not needed).  `weights.load` reads safetensors files, too.
            `num_batches_tracked` is ignored, floating-point numbers of any width become float32.
        head: None infers "square_logit" where `network_part2.fc` is present and "linear" elsewhere.  A "none_class"
            (NC) state dict looks like a linear one with a class more, so that head must be named, or
        num_classes: K given, which tells the two apart.
        heads: of a ViT's attention, which no tensor tells.  None: the usual number for its width, 64 numbers a head.
        mean, std: of each channel, by which a ResNet's or ViT's images were normalised in torch, as
            torchvision.transforms.Normalize has them.  The network then does so itself, and takes images in [0, 1].

    Returns:
        (model, variables); `model.apply(variables, images)` gives what torch computes, images in NHWC.

    Raises:
        UserError: for names of no such network, missing or surplus tensors, a wrong shape or number of classes, or
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
    layout = _layout(arrays, heads)
    if f"{layout.final}.weight" not in arrays:
        raise UserError(f"the state dict has no {layout.final}.weight, the last dense layer of a {layout.backbone}")
    num_outputs, _ = torch_tensors.shape(arrays, f"{layout.final}.weight", 2)
    head = head or _head(arrays, num_outputs, num_classes)
    options = {**layout.options, **_given(layout.backbone, heads, mean, std)}
    model = make_classifier(layout.backbone, head, num_classes=num_outputs - (head == "none_class"), **options)

    variables: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, value in arrays.items():
        path, convert = _place(name, layout)
        names["/".join(path)] = name
        try:
            _set(variables, path, jnp.asarray(convert(value), jnp.float32))
        except UserError:
            raise
        except ValueError as error:
            raise UserError(f"the tensor {name} of shape {value.shape} has another shape than that layer's") from error
    _check_complete(model, variables, names)
    return model, variables


def image_shape(variables: Mapping[str, Any]) -> tuple[int, int, int]:
    """(height, width, channels) of the square images that a network which `load` returned is for.

    Networks that take any size have the usual one: 32 pixels, and 224 of a ResNet whose first convolution is 7×7.

    Example: see `load`.
    """
    backbone = variables["params"]["backbone"]
    if "positions" in backbone:
        patch, _, channels, _ = backbone["patches"]["kernel"].shape
        side = patch * int((backbone["positions"].shape[1] - 1) ** 0.5)
        return side, side, channels
    if "dense" not in backbone:
        size, _, channels, _ = backbone["conv"]["kernel"].shape
        side = _LARGE if size > 3 else _SMALL
        return side, side, channels
    side = 4 * int((backbone["dense"]["kernel"].shape[0] / torch_released.LENET_CHANNELS) ** 0.5)
    return side, side, backbone["conv1"]["kernel"].shape[2]


def _layout(arrays: Mapping[str, np.ndarray], heads: int | None) -> Layout:
    """The network that the tensors are of."""
    own = {name: array for name, array in arrays.items() if not name.startswith(f"{_OOD}.")}
    found = torch_released.read(own) or torch_resnet.read(own) or torch_vit.read(own, heads=heads)
    if found is None:
        shown = ", ".join(sorted(arrays)[:4])
        raise UserError(
            "the state dict is of no network that is known (the released LeNet and WideResNet; ResNets and ViTs of"
            f" torchvision, timm and OpenOOD); its names begin with {shown}"
        )
    return found


def _given(
    backbone: str, heads: int | None, mean: Sequence[float] | None, std: Sequence[float] | None
) -> dict[str, Any]:
    """The options that no tensor tells."""
    if heads is not None and backbone != "vit":
        raise UserError(f"heads are of a ViT, the state dict is of a {backbone}; leave them out")
    if mean is None and std is None:
        return {}
    if backbone in ("lenet", "wide_resnet"):
        raise UserError(f"mean and std are for ResNets and ViTs, the state dict is of a {backbone}; leave them out")
    try:
        return {
            name: None if each is None else tuple(map(float, each)) for name, each in (("mean", mean), ("std", std))
        }
    except (TypeError, ValueError):
        raise UserError(f"mean and std must hold a number a channel, got {mean!r} and {std!r}") from None


def _place(name: str, layout: Layout) -> Place:
    """Where a tensor goes, and how it is laid out there."""
    module, _, kind = name.rpartition(".")
    if module == _OOD:
        ood = ("params", "head", "ood")
        flat: Place = ((*ood, "raw_weights"), lambda w: w.reshape(-1))
        return flat if kind == "weight" else ((*ood, "bias"), torch_tensors.scalar)
    if module == layout.final:
        return ("params", "head", "linear", *torch_tensors.leaf(kind)), torch_tensors.transpose
    return layout.place(name)


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


def _head(arrays: Mapping[str, np.ndarray], num_outputs: int, num_classes: int | None) -> str:
    has_square_logit = f"{_OOD}.weight" in arrays
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


def _set(tree: dict[str, Any], path: Keys, value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def _check_complete(model: Classifier, variables: dict[str, Any], names: Mapping[str, str]) -> None:
    expected = shapes_of(model, image_shape(variables))
    shapes = {_path_name(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(expected)}
    got = {_path_name(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(variables)}
    for path in sorted(shapes.keys() | got.keys()):
        if path not in got:
            raise UserError(f"the state dict lacks the tensor for {path} of shape {shapes[path]}")
        if shapes.get(path) != got[path]:
            of = f"the tensor {names[path]}, for {path}," if path in names else f"the tensor for {path}"
            raise UserError(f"{of} has shape {got[path]}, expected {shapes.get(path, 'none')}")


def _path_name(path: Any) -> str:
    return "/".join(str(entry.key) for entry in path)
