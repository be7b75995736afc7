"""What a network is, as text by name: enough to make it again, beside its variables."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from preload_jax.devices.variables import require_variables
from preload_jax.errors import DataError, UserError, reason
from preload_jax.formats import strict_json
from preload_jax.integers import require_flag, require_integer
from preload_jax.models import (
    BACKBONES,
    HEADS,
    Classifier,
    LinearHead,
    MCDropout,
    SquareLogitHead,
    WithDistance,
    head_options,
)
from preload_jax.models import make_classifier as make

KEYS = ("backbone", "head", "num_classes", "image_shape", "own_code")
# Of variables that files keep.
_COLLECTIONS = ("params", "batch_stats")
# A file of a few bytes may claim anything: numbers an image has at most, and layers of a network.
_MOST_NUMBERS, _MOST_LAYERS = 1 << 24, 1024
_OURS = (Classifier, LinearHead, SquareLogitHead, *BACKBONES.values())


@dataclasses.dataclass(frozen=True)
class Described:
    """A network without its variables.

    Attributes:
        model: the classifier, in float32.
        head: "linear", "none_class" or "square_logit".
        num_classes: K, never counting the OOD class.
        image_shape: of one input, such as (height, width, channels).
    """

    model: Classifier
    head: str
    num_classes: int
    image_shape: tuple[int, ...]


def describe(model: Classifier, image_shape: tuple[int, ...], *, ood_class: bool | None) -> dict[str, str]:
    """The text under each of `KEYS`.

    Args:
        model: any classifier with one of our heads.
        image_shape: of its images.
        ood_class: whether the last logit is the OOD class; None: as the head says.

    Raises:
        UserError: for another head, or when the head says otherwise.
    """
    head, num_classes = head_of(model, ood_class)
    return {
        "backbone": json.dumps(_backbone(model.backbone)),
        "head": json.dumps({"name": head, **head_options(model.head)}),
        "num_classes": str(num_classes),
        "image_shape": json.dumps(list(image_shape)),
        "own_code": json.dumps(own_code(model)),
    }


def own_code(model: Classifier) -> dict[str, str]:
    """The names of the classes that are not exactly the library's, by part: a subclass may compute anything."""
    backbone = model.backbone
    inner = backbone.backbone if type(backbone) is WithDistance else backbone
    parts = {"backbone": inner, "head": model.head, "classifier": model}
    return {part: type(module).__name__ for part, module in parts.items() if type(module) not in _OURS}


def read(
    metadata: Mapping[str, str], arrays: Mapping[str, np.ndarray], *, model: Classifier | None = None
) -> Described:
    """The network that `describe` described; no array is made, whatever sizes are claimed.

    Args:
        metadata: the text.
        arrays: the network's, which its sizes must bear out: an array a layer, and a number a channel or class.
        model: for code of one's own.

    Raises:
        DataError: when the text describes no network.
        UserError: when a part of it is none of ours and `model` is not given, or is another.
    """
    try:
        backbone, head = strict_json.parse(metadata["backbone"]), strict_json.parse(metadata["head"])
        num_classes, shape = int(metadata["num_classes"]), _shape(strict_json.parse(metadata["image_shape"]))
        head_name, name = head.pop("name"), backbone.pop("name")
        if head_name not in HEADS:
            raise ValueError(f"head {head_name!r}")
        _check_sizes({**backbone, "num_classes": num_classes}, arrays)
        # Files of earlier versions say it of backbones alone, by their names.
        own = strict_json.parse(metadata["own_code"]) if "own_code" in metadata else None
        if model is not None:
            _check_given(model, {"name": name, **backbone}, head, own)
        elif own or name not in BACKBONES:
            part, its_class = next(iter((own or {"backbone": name}).items()))
            raise UserError(f"its {part} {its_class!r} is none of ours; give the model: load(path, model=…)")
        model = model or _model(name, backbone, head_name, head, num_classes)
    except UserError:
        raise
    except Exception as error:  # Flax raises all kinds for sizes that make no network.
        raise DataError(f"its metadata describe no network ({reason(error)}); export it again") from None
    return Described(model, head_name, num_classes, shape)


def head_of(model: Classifier, ood_class: bool | None) -> tuple[str, int]:
    """The head's name, and K.

    Raises:
        UserError: for a head that is none of ours, or one that says otherwise of the OOD class.
    """
    head = model.head
    if isinstance(model, MCDropout):
        raise UserError("a file of weights does not say that dropout is on; export a program, or keep the run's folder")
    if not isinstance(head, LinearHead | SquareLogitHead):
        raise UserError(f"expected a LinearHead or a SquareLogitHead, got {type(head).__name__}")
    if ood_class is not None and not require_flag("ood_class", ood_class) and head.has_ood_class:
        raise UserError("ood_class=False, but the head's last logit is the OOD class; leave ood_class out")
    if isinstance(head, SquareLogitHead):
        return "square_logit", head.num_classes
    if ood_class or head.none_class:
        return "none_class", head.num_outputs - 1
    return "linear", head.num_outputs


def _backbone(backbone: Any) -> dict[str, Any]:
    """Its name and sizes; what it computes in is not the file's business, and a distance's constants are variables."""
    if type(backbone) is WithDistance:
        return {**_backbone(backbone.backbone), "distance_weight": backbone.weight}
    name = next((name for name, known in BACKBONES.items() if type(backbone) is known), None)
    if name is None:
        return {"name": type(backbone).__name__}
    left_out = ("parent", "name", "dtype", "axis_name")
    sizes = [field.name for field in dataclasses.fields(backbone) if field.name not in left_out]
    return _without_no_dropout({"name": name, **{size: getattr(backbone, size) for size in sizes}})


def _without_no_dropout(backbone: dict[str, Any]) -> dict[str, Any]:
    """The same network: files of earlier versions say that there is none, or nothing."""
    return {name: value for name, value in backbone.items() if name != "dropout" or value}


def _check_given(model: Classifier, backbone: dict[str, Any], head: dict[str, Any], own: dict[str, str] | None) -> None:
    """Raises a UserError where a model given is not the file's: κ, an exponent or a floor make it another function."""
    mine = {"backbone": _backbone(model.backbone), "head options": head_options(model.head)}
    said = {"backbone": _without_no_dropout(backbone), "head options": head}
    if own is not None:
        mine["own code"], said["own code"] = own_code(model), own
    for part, of_file in said.items():
        here = json.loads(json.dumps(mine[part]))
        if here != of_file:
            raise UserError(f"the file's {part}: {json.dumps(of_file)}; the given model's: {json.dumps(here)}")


def _model(name: str, backbone: dict[str, Any], head: str, options: dict[str, Any], num_classes: int) -> Classifier:
    sizes: dict[str, Any] = {key: tuple(size) if isinstance(size, list) else size for key, size in backbone.items()}
    distance_weight = sizes.pop("distance_weight", None)
    model = make(name, head, num_classes=num_classes, **sizes)
    if distance_weight is not None:
        model = Classifier(WithDistance(model.backbone, weight=distance_weight), model.head)
    return model.clone(head=model.head.clone(**options))


def collections_of(variables: Any) -> dict[str, dict[str, Any]]:
    """The collections of variables that files keep, without empty ones.

    Raises:
        UserError: where the network keeps variables in others.
    """
    require_variables(variables)
    if unknown := sorted(name for name in variables if name not in _COLLECTIONS and variables[name]):
        raise UserError(f"the network keeps variables in {', '.join(unknown)}; files keep {' and '.join(_COLLECTIONS)}")
    return {name: dict(variables[name]) for name in _COLLECTIONS if variables.get(name)}


def shape_of_one(image_shape: Any) -> tuple[int, ...]:
    """The shape of one input as integers of Python's.

    Raises:
        UserError: for what is no shape, or more numbers than a file may say.
    """
    sizes = tuple(image_shape) if isinstance(image_shape, tuple | list | np.ndarray) else ()
    if not sizes:
        raise UserError(
            f"image_shape is {image_shape!r}; expected that of one input, such as (height, width, channels)"
        )
    shape = tuple(require_integer("image_shape", size, at_least=1) for size in sizes)
    if math.prod(shape) > _MOST_NUMBERS:
        raise UserError(f"image_shape is {list(shape)}; expected at most {_MOST_NUMBERS:,} numbers")
    return shape


def _shape(shape: Any) -> tuple[int, ...]:
    if not (isinstance(shape, list) and all(type(size) is int for size in shape)):
        raise ValueError(f"images {shape}")
    try:
        return shape_of_one(shape)
    except UserError as error:  # It is the file's, not the caller's.
        raise ValueError(str(error)) from None


def _check_sizes(sizes: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    numbers, most_layers = sum(array.size for array in arrays.values()), min(len(arrays), _MOST_LAYERS)
    for name, size in sizes.items():
        each = size if isinstance(size, list) else [size]
        most = most_layers if name == "depth" else numbers
        if len(each) > most_layers or any(isinstance(n, int) and not 0 <= n <= most for n in each):
            raise ValueError(f"{str(size)[:40]} as {name}, of which there are {len(arrays)} arrays")
