"""A trained network in one file: safetensors files of our own, and torch's.

A safetensors file holds every variable under its path (`params/head/linear/kernel`, `batch_stats/backbone/bn/mean`),
and as metadata what the network is (backbone, head, K, the images' shape) and whatever else the writer noted, so that
the file alone is enough to use it.  Any safetensors reader can read it.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from preload_jax.errors import DataError, UserError, reason
from preload_jax.formats import digests, torch_import, trees
from preload_jax.formats.files import write_bytes
from preload_jax.models import BACKBONES, HEADS, Classifier, LinearHead, SquareLogitHead, head_options, make_classifier

FORMAT, FORMAT_VERSION = "preload_jax", 1
# In any case of letters.
SUFFIXES = (".safetensors", ".pt", ".pth", ".pth.tar", ".ckpt")
# Of an image; larger ones are refused before anything is made of them.
_LARGEST_SIDE = 1 << 16
# What `save` writes by itself.
_OWN_KEYS = ("format", "format_version", "backbone", "head", "num_classes", "image_shape", "digest")
_ITEM_TYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "U8": np.uint8,
}


@dataclass(frozen=True)
class Weights:
    """A network out of a file.

    Attributes:
        model: the classifier, in float32.
        variables: its variables.
        head: "linear", "none_class" or "square_logit".
        num_classes: K, never counting the OOD class.
        image_shape: (height, width, channels) of its images.
        metadata: what else was noted in the file, text by name; of torch's files nothing.

    Example: see `save`.
    """

    model: Classifier
    variables: dict[str, Any]
    head: str
    num_classes: int
    image_shape: tuple[int, int, int]
    metadata: dict[str, str]


def save(
    path: str | Path,
    model: Classifier,
    variables: Mapping[str, Any],
    *,
    image_shape: tuple[int, int, int],
    ood_class: bool | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a classifier to a safetensors file, whole or not at all.

    Args:
        path: ends in ".safetensors".
        model: any `Classifier`; one with a backbone of your own is read back with `load(path, model=model)`.
        variables: its variables.
        image_shape: (height, width, channels) of its images.
        ood_class: whether the last logit is the OOD class; None: yes for `SquareLogitHead`, no for others.
        metadata: further text by name, such as {"dataset": "mnist", "method": "preload"}.

    Raises:
        UserError: for another suffix, variables of another model, or a name in `metadata` that is taken.

    Example:
        >>> import jax, jax.numpy as jnp, tempfile
        >>> from preload_jax import make_classifier, weights
        >>> model = make_classifier("mlp", "square_logit", num_classes=3, widths=(8,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> file = tempfile.mkdtemp() + "/toy.safetensors"
        >>> weights.save(file, model, variables, image_shape=(4, 4, 1), metadata={"note": "a toy"})
        >>> found = weights.load(file)
        >>> found.head, found.num_classes, found.image_shape, found.metadata["note"]
        ('square_logit', 3, (4, 4, 1), 'a toy')
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise UserError(f"{path} does not end in .safetensors, the format that is written")
    taken = sorted(set(metadata or {}) & set(_OWN_KEYS))
    if taken:
        raise UserError(f"metadata {taken[0]!r} is written by itself; choose another name")
    variables = {name: dict(variables[name]) for name in ("params", "batch_stats") if variables.get(name)}
    trees.restore_like(trees.shapes_of(model, image_shape), variables)
    head, num_classes = _head(model, ood_class)
    arrays = trees.flatten(variables)
    described = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "backbone": json.dumps({"name": _backbone_name(model), **_backbone_options(model)}),
        "head": json.dumps({"name": head, **_head_options(model)}),
        "num_classes": str(num_classes),
        "image_shape": json.dumps(list(image_shape)),
        **(metadata or {}),
    }
    described["digest"] = digests.of_tree(arrays, notes=described)
    write_bytes(path, _canonical(safetensors.numpy.save(arrays, metadata=described)))


def _canonical(content: bytes) -> bytes:
    """The same file with its header sorted: the library writes metadata in another order each time."""
    length = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + length]), sort_keys=True, separators=(",", ":")).encode()
    # The numbers begin at a multiple of eight bytes.
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def load(path: str | Path, *, model: Classifier | None = None, num_classes: int | None = None) -> Weights:
    """Reads a network: a file that `save` wrote, or a torch state dict of the released code's networks.

    Args:
        path: of a .safetensors file, or of a file that `torch.save` wrote (.pt, .pth, .pth.tar or .ckpt; see
            `torch_import.load`).
        model: for a backbone of your own, the classifier that the file's variables belong to.
        num_classes: K, by which a torch state dict of NC (K + 1 outputs) is told from others.

    Raises:
        DataError: when the file is missing, damaged or of another kind.
        UserError: when its variables fit no network of ours, or not `model`.

    Example: see `save`.
    """
    path = Path(path).expanduser()
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        raise DataError(f"{path}: unknown kind of weights; expected a file that ends in {', '.join(SUFFIXES)}")
    try:
        if not name.endswith(".safetensors"):
            return _of_torch(path, num_classes)
        metadata, arrays = _read(path)
        if metadata.get("format") == FORMAT:
            return _own(metadata, arrays, model)
        return _of_torch(arrays, num_classes)
    except DataError as error:
        raise error if str(path) in str(error) else DataError(f"{path}: {error}") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _read(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Metadata and arrays of any safetensors file."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected a .safetensors file")
    content = path.read_bytes()
    try:
        # The reader checks every offset; the metadata is in the header, whose length comes first.
        tensors = safetensors.deserialize(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        arrays = {
            name: np.frombuffer(item["data"], _ITEM_TYPES[item["dtype"]]).reshape(item["shape"])
            for name, item in tensors
        }
    except KeyError as error:
        raise DataError(f"{path}: holds numbers of type {error}; expected one of {sorted(_ITEM_TYPES)}") from None
    except Exception as error:  # The reader has one exception for all damage; what it lets through may raise others.
        raise DataError(f"{path}: not a readable safetensors file ({reason(error)}); copy or export it again") from None
    return header.get("__metadata__") or {}, arrays


def _own(metadata: dict[str, str], arrays: dict[str, np.ndarray], model: Classifier | None) -> Weights:
    version = metadata.get("format_version")
    if version != str(FORMAT_VERSION):
        raise DataError(f"it is of format {version}, this version reads format {FORMAT_VERSION}; export it again")
    described = {name: text for name, text in metadata.items() if name != "digest"}
    if digests.of_tree(arrays, notes=described) != metadata.get("digest"):
        raise DataError("its content does not have the digest that was written with it; copy or export it again")
    try:
        backbone, head = json.loads(metadata["backbone"]), json.loads(metadata["head"])
        num_classes, shape = int(metadata["num_classes"]), tuple(json.loads(metadata["image_shape"]))
        head_name = head.pop("name")
        if head_name not in HEADS or len(shape) != 3:
            raise ValueError(f"head {head_name!r}, images {list(shape)}")
        if model is None and backbone["name"] not in BACKBONES:
            raise UserError(f"its backbone {backbone['name']!r} is none of ours; give the model: load(path, model=…)")
        _bound(backbone, num_classes, shape, arrays)
        model = model or _model(backbone, head_name, head, num_classes)
        template, tree = trees.shapes_of(model, shape), trees.unflatten(arrays)
    except UserError:
        raise
    except Exception as error:  # Flax raises all kinds for sizes that make no network.
        raise DataError(f"its metadata describe no network ({reason(error)}); export it again") from None
    variables = trees.restore_like(template, tree)
    noted = {name: text for name, text in metadata.items() if name not in _OWN_KEYS}
    return Weights(model, jax.tree.map(jnp.asarray, variables), head_name, num_classes, shape, noted)


def _bound(backbone: dict[str, Any], num_classes: int, shape: tuple[int, ...], arrays: dict[str, np.ndarray]) -> None:
    """Raises a ValueError for sizes that the file's own arrays do not bear out, before a network of them is made."""
    numbers = sum(array.size for array in arrays.values())
    if not all(type(n) is int and 0 < n <= _LARGEST_SIDE for n in shape):
        raise ValueError(f"images of {list(shape)}")
    if not 2 <= num_classes <= max(2, numbers):
        raise ValueError(f"{num_classes} classes of {numbers} numbers")
    for name, size in backbone.items():
        each = size if isinstance(size, list) else [size]
        # A network has at least one array a layer, and one number a channel.
        most = 8 * len(arrays) if name == "depth" else max(numbers, 1)
        if len(each) > len(arrays) or any(isinstance(n, int) and abs(n) > most for n in each):
            raise ValueError(f"{name} {size} of {len(arrays)} arrays with {numbers} numbers")


def _model(backbone: dict[str, Any], head: str, options: dict[str, Any], num_classes: int) -> Classifier:
    sizes: dict[str, Any] = {key: tuple(size) if isinstance(size, list) else size for key, size in backbone.items()}
    model = make_classifier(sizes.pop("name"), head, num_classes=num_classes, **sizes)
    return model.clone(head=model.head.clone(**options))


def _of_torch(state_dict: Path | dict[str, np.ndarray], num_classes: int | None) -> Weights:
    model, variables = torch_import.load(state_dict, num_classes=num_classes)
    num_outputs = variables["params"]["head"]["linear"]["bias"].shape[0]
    none_class = num_classes is not None and num_outputs == num_classes + 1
    head, found = _head(model, True if none_class else None)
    return Weights(model, variables, head, found, torch_import.image_shape(variables), {})


def _head(model: Classifier, ood_class: bool | None) -> tuple[str, int]:
    """The head's name, and K."""
    if isinstance(model.head, SquareLogitHead):
        return "square_logit", model.head.num_classes
    if isinstance(model.head, LinearHead):
        ood_class = model.head.has_ood_class if ood_class is None else ood_class
        return ("none_class", model.head.num_outputs - 1) if ood_class else ("linear", model.head.num_outputs)
    raise UserError(f"expected a LinearHead or a SquareLogitHead, got {type(model.head).__name__}")


def _head_options(model: Classifier) -> dict[str, Any]:
    return head_options(model.head)


def _backbone_name(model: Classifier) -> str:
    kind = type(model.backbone)
    return next((name for name, known in BACKBONES.items() if kind is known), kind.__name__)


def _backbone_options(model: Classifier) -> dict[str, Any]:
    """The sizes of one of our backbones; what it computes in is not the file's business."""
    if type(model.backbone) not in BACKBONES.values():
        return {}
    left_out = ("parent", "name", "dtype", "axis_name")
    names = [field.name for field in dataclasses.fields(model.backbone) if field.name not in left_out]
    return {name: getattr(model.backbone, name) for name in names}
