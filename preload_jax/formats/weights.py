"""A trained network in one file: safetensors files of our own, and torch's.

A safetensors file holds every variable under its path (`params/head/linear/kernel`, `batch_stats/backbone/bn/mean`),
and as metadata what the network is (backbone, head, K, the images' shape) and whatever else the writer noted, so that
the file alone is enough to use it.  Any safetensors reader can read it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax import digests
from preload_jax.checks import as_array
from preload_jax.devices import training_range
from preload_jax.devices.variables import require_types, shapes_of
from preload_jax.errors import DataError, UserError, reason
from preload_jax.formats import (
    descriptions,
    fixed_inputs,
    safetensors_file,
    strict_json,
    torch_file,
    torch_import,
    trees,
)
from preload_jax.formats.files import write_bytes
from preload_jax.models import Classifier
from preload_jax.models.classifier import require_classifier

FORMAT, FORMAT_VERSION = "preload_jax", 1
# What `save` writes by itself.
_RANGE = "input_range"
_OWN_KEYS = (
    "format",
    "format_version",
    *descriptions.KEYS,
    fixed_inputs.KEY,
    fixed_inputs.EARLIER,
    _RANGE,
    "digest",
)
_EXTRA = "extra/"


@dataclass(frozen=True)
class Weights:
    """A network out of a file.

    Attributes:
        model: the classifier, in float32.
        variables: its variables.
        head: "linear", "none_class" or "square_logit".
        num_classes: K, never counting the OOD class.
        image_shape: of one input, such as (height, width, channels).
        metadata: what else was noted in the file, text by name; of torch's files nothing.
        arrays: what else was kept in it, array by name.
        input_range: (least, largest) number of the training inputs as the network sees them; None where the file does
            not say.
        is_torch: whether it is a file of torch's, whose tensors do not tell all of the network, such as `mean`.

    Example: see `save`.
    """

    model: Classifier
    variables: dict[str, Any]
    head: str
    num_classes: int
    image_shape: tuple[int, ...]
    metadata: dict[str, str]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    input_range: tuple[float, float] | None = None
    is_torch: bool = False


def save(
    path: str | Path,
    model: Classifier,
    variables: Mapping[str, Any],
    *,
    image_shape: tuple[int, ...],
    ood_class: bool | None = None,
    metadata: Mapping[str, str] | None = None,
    arrays: Mapping[str, np.ndarray] | None = None,
    input_range: tuple[float | int, float | int] | None = None,
) -> None:
    """Writes a classifier to a safetensors file, whole or not at all.

    The file of a network with code of your own, be it a subclass of the library's, also holds its answers to some fixed
    inputs, by which `load` tells another network with weights of the same shapes.

    Args:
        path: ends in ".safetensors".
        model: any `Classifier` with the library's heads, or subclasses of them; one with a backbone or a subclass of
            your own is read back with `load(path, model=model)`.
        variables: its variables.
        image_shape: of one input, such as (height, width, channels).
        ood_class: whether the last logit is the OOD class; None: as the head says.
        metadata: further text by name, such as {"dataset": "mnist", "method": "preload"}.
        arrays: further arrays by name, such as a fitted detector's; they lie in the file as "extra/NAME".
        input_range: (least, largest) number of the training inputs as the network sees them, such as (0, 1) of images;
            whoever loads the file is warned of inputs of another scale.  None: what `fit` saw, where it returned these
            variables in this process.

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
    if not isinstance(path, str | Path):
        raise UserError(f"the path is a {type(path).__name__}; expected the name of a file")
    path = Path(path)
    if path.suffix != ".safetensors":
        raise UserError(f"{path} does not end in .safetensors, the format that is written")
    require_classifier(model, variables)
    variables = descriptions.collections_of(variables)
    image_shape, extra = descriptions.shape_of_one(image_shape), _extra(arrays)
    _check_notes(metadata)
    trained = training_range.check(input_range) or training_range.recall(variables)
    trees.restore_like(shapes_of(model, image_shape), variables)
    require_types(model, variables, image_shape)
    described = {"format": FORMAT, "format_version": str(FORMAT_VERSION), **(metadata or {})}
    described |= descriptions.describe(model, image_shape, ood_class=ood_class)
    if descriptions.own_code(model) and (answers := fixed_inputs.written(model, variables, image_shape)) is not None:
        described[fixed_inputs.KEY] = answers
    if trained is not None:
        described[_RANGE] = json.dumps(trained)
    everything = trees.flatten(variables)
    everything |= {f"{_EXTRA}{name}": array for name, array in extra.items()}
    described["digest"] = digests.of_tree(everything, notes=described)
    write_bytes(path, safetensors_file.dumps(everything, described))


def _check_notes(metadata: Any) -> None:
    if metadata is not None and not (
        isinstance(metadata, Mapping) and all(isinstance(text, str) for pair in metadata.items() for text in pair)
    ):
        raise UserError(f"metadata are {metadata!r}; expected text by name, such as {{'dataset': 'mnist'}}")
    taken = sorted(set(metadata or {}) & set(_OWN_KEYS))
    if taken:
        raise UserError(f"metadata {taken[0]!r} is written by itself; choose another name")


def _extra(arrays: Any) -> dict[str, np.ndarray]:
    """Further arrays as a file holds them."""
    if arrays is None:
        return {}
    if not isinstance(arrays, Mapping) or not all(isinstance(name, str) for name in arrays):
        raise UserError(f"arrays are a {type(arrays).__name__}; expected arrays by name")
    return {name: _native(f"array {name!r}", array) for name, array in arrays.items()}


def _native(name: str, given: Any) -> np.ndarray:
    array = np.array(as_array(given, name=name), order="C")
    if array.dtype.newbyteorder("=") not in safetensors_file.TYPES:
        raise UserError(f"{name} is {array.dtype}; expected one of {', '.join(map(str, safetensors_file.TYPES))}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def load(
    path: str | Path,
    *,
    model: Classifier | None = None,
    num_classes: int | None = None,
    heads: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Weights:
    """Reads a network: a file that `save` wrote, or a torch state dict of a network that `torch_import.load` knows.

    Args:
        path: of a .safetensors file, or of one that `torch.save` wrote (see `torch_import.load`); what it is, is told
            from its content, whatever its name.
        model: for code of your own, the classifier that the file's variables belong to.
        num_classes: K, by which a torch state dict of NC (K + 1 outputs) is told from others.
        heads, mean, std: of a torch state dict, as for `torch_import.load`; a file that `save` wrote has them.

    Raises:
        DataError: when the file is missing, damaged or of another kind.
        UserError: when its variables fit no network of ours, or not `model`, or `model` has other code or gives other
            answers with them than the network that was saved; files of earlier versions do not say which those are.

    Example: see `save`.
    """
    if not isinstance(path, str | Path):
        raise UserError(f"the path is a {type(path).__name__}; expected the name of a file")
    if model is not None:
        require_classifier(model)
    path = Path(path).expanduser()
    of_torch = partial(_of_torch, num_classes=num_classes, heads=heads, mean=mean, std=std)
    try:
        if torch_file.is_one(path):
            return of_torch(path)
        metadata, arrays = safetensors_file.read(path)
        if metadata.get("format") == FORMAT:
            if (heads, mean, std) != (None, None, None):
                raise UserError(
                    "heads, mean and std are for torch's state dicts, this file has its own; leave them out"
                )
            return _own(metadata, arrays, model)
        if metadata.get("format") == f"{FORMAT}.program":
            raise DataError("it is a program, which load_program reads; expected a network's weights")
        return of_torch(arrays)
    except DataError as error:
        raise error if str(path) in str(error) else DataError(f"{path}: {error}") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def is_torch(path: str | Path) -> bool:
    """Whether a file of weights is torch's: of another kind than `save` writes.

    Raises:
        DataError: for a damaged file.

    Example:
        >>> import tempfile, numpy as np
        >>> from safetensors.numpy import save_file
        >>> from preload_jax import weights
        >>> file = tempfile.mkdtemp() + "/resnet.safetensors"
        >>> save_file({"fc.weight": np.zeros((3, 8), np.float32)}, file)
        >>> weights.is_torch(file)
        True
    """
    path = Path(path).expanduser()
    return torch_file.is_one(path) or safetensors_file.peek(path).get("format") != FORMAT


def _own(metadata: dict[str, str], arrays: dict[str, np.ndarray], model: Classifier | None) -> Weights:
    version = metadata.get("format_version")
    if version != str(FORMAT_VERSION):
        raise DataError(f"it is of format {version}, this version reads format {FORMAT_VERSION}; export it again")
    described = {name: text for name, text in metadata.items() if name != "digest"}
    if digests.of_tree(arrays, notes=described) != metadata.get("digest"):
        raise DataError("its content does not have the digest that was written with it; copy or export it again")
    extra = {name.removeprefix(_EXTRA): array for name, array in arrays.items() if name.startswith(_EXTRA)}
    arrays = {name: array for name, array in arrays.items() if not name.startswith(_EXTRA)}
    found = descriptions.read(metadata, arrays, model=model)
    try:
        template, tree = shapes_of(found.model, found.image_shape), trees.unflatten(arrays)
    except Exception as error:  # Flax raises all kinds for sizes that make no network.
        raise DataError(f"its metadata describe no network ({reason(error)}); export it again") from None
    variables = jax.tree.map(jnp.asarray, trees.restore_like(template, tree))
    if model is not None:
        fixed_inputs.require_same(model, variables, found.image_shape, metadata)
    trained = _range(metadata.get(_RANGE))
    training_range.remember(variables, trained)
    noted = {name: text for name, text in metadata.items() if name not in _OWN_KEYS}
    return Weights(found.model, variables, found.head, found.num_classes, found.image_shape, noted, extra, trained)


def _range(written: str | None) -> training_range.Range | None:
    try:
        return training_range.check(None if written is None else strict_json.parse(written))
    except (UserError, ValueError) as error:
        raise DataError(f"its {_RANGE} is not two numbers ({reason(error)}); export it again") from None


def _of_torch(state_dict: Path | dict[str, np.ndarray], *, num_classes: int | None, **options: Any) -> Weights:
    model, variables = torch_import.load(state_dict, num_classes=num_classes, **options)
    num_outputs = variables["params"]["head"]["linear"]["bias"].shape[0]
    none_class = num_classes is not None and num_outputs == num_classes + 1
    head, found = descriptions.head_of(model, True if none_class else None)
    return Weights(model, variables, head, found, torch_import.image_shape(variables), {}, is_torch=True)
