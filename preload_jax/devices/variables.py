"""What a network's variables look like: their names and shapes, and whether given ones are its own."""

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from flax import serialization
from flax.core import unfreeze
from flax.errors import (
    InvalidRngError,
    ModifyScopeVariableError,
    ScopeCollectionNotFound,
    ScopeParamNotFoundError,
    ScopeParamShapeError,
    ScopeVariableNotFoundError,
)

from preload_jax.checks import require_unmasked
from preload_jax.errors import UserError

_COLLECTIONS = ("params", "batch_stats")
# Of `models.WithDistance`, whose fields may hold them instead.
_IN_FIELDS = ("center", "scale")


@lru_cache(maxsize=64)  # Asked with every batch.
def input_type(model: nn.Module, image_shape: tuple[int, ...]) -> type:
    """`numpy.int32` for a network that takes integers alone, such as tokens; else `numpy.float32`.

    A network that takes both takes floating point: integers are mostly pixels that were not divided by 255.
    """
    for dtype in (np.float32, np.int32):
        try:
            jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, *image_shape), dtype))
        except Exception:  # What it says of floating point is shown where the network is used.
            continue
        return dtype
    return np.float32


def inputs_of(model: nn.Module, image_shape: tuple[int, ...], count: int = 1) -> jax.ShapeDtypeStruct:
    """The shape and type of so many inputs, as the model takes them.

    Raises:
        UserError: see `require_hashable`.
    """
    require_hashable(model)
    return jax.ShapeDtypeStruct((count, *image_shape), input_type(model, tuple(image_shape)))


def shapes_of(model: nn.Module, image_shape: tuple[int, ...]) -> Any:
    """The shapes of a model's variables; no array is made, however large the images are said to be."""
    return jax.eval_shape(model.init, jax.random.key(0), inputs_of(model, image_shape))


def difference(template: Any, tree: Mapping[str, Any]) -> tuple[str, str | None, str | None] | None:
    """The first array by name whose shape is not the template's: (name, its shape, the template's); None for none."""
    expected, got = _shapes(serialization.to_state_dict(template)), _shapes(tree)
    for name in sorted(expected.keys() | got.keys()):
        if expected.get(name) != got.get(name):
            return name, got.get(name), expected.get(name)
    return None


def require_own(model: nn.Module, variables: Any, image_shape: tuple[int, ...], *, count: int = 0) -> None:
    """Raises a UserError unless the variables are the model's own, and it takes images of the shape.

    A network ignores variables that it does not look for, and so would answer, wrongly, with those of a network that
    has a layer or a logit more.  What it looks for and does not find, or finds in another shape, it says in its own
    way; here that is said in ours, before anything is computed.

    Args:
        model: any module f(images).
        variables: {"params", "batch_stats", …}, each a dictionary; the names in other collections are not looked at.
        image_shape: of one image.
        count: how many there are, where they are given.
    """
    require_variables(variables)
    require_hashable(model)
    shapes, structure = _described(variables)
    problem = _problem(model, shapes, structure, tuple(image_shape))
    if problem is None:
        return
    # The rows of one image were taken for images.
    if len(image_shape) > 1 and count and _problem(model, shapes, structure, (count, *image_shape)) is None:
        sizes = ", ".join(map(str, (count, *image_shape)))
        raise UserError(f"images of shape [{sizes}]; expected [n, {sizes}]: for one image give images[None]")
    raise UserError(problem)


def takes(model: nn.Module, variables: Any, image_shape: tuple[int, ...]) -> bool:
    """Whether the network, with these variables, answers about an input of a shape."""
    require_variables(variables)
    require_hashable(model)
    return _problem(model, *_described(variables), tuple(image_shape)) is None


def require_types(model: nn.Module, variables: Any, image_shape: tuple[int, ...]) -> None:
    """Raises a UserError where variables are of other kinds of numbers than the model's own, as `require_own` does."""
    shapes, structure = _described(variables)
    problem = _of_other_type(model, jax.tree.unflatten(structure, [dtype for _, dtype in shapes]), image_shape)
    if problem is not None:
        raise UserError(problem)


def require_rays(model: nn.Module, variables: Any, image_shape: tuple[int, ...]) -> None:
    """`require_own`, and a UserError for a network whose inputs are no points of a space, such as tokens."""
    if inputs_of(model, image_shape).dtype == np.int32:
        raise UserError(
            "the network takes integers, such as tokens, and no ray leads through them; ask about the network that"
            " follows the embedding"
        )
    require_own(model, variables, image_shape)


def require_variables(variables: Any) -> None:
    """Raises a UserError unless variables are a dictionary of dictionaries, one of them "params"."""
    if not isinstance(variables, Mapping) or not isinstance(variables.get("params"), Mapping):
        raise UserError(
            f'the variables are a {type(variables).__name__}; expected {{"params": …}}, as model.init and fit return'
        )
    for name, collection in variables.items():
        if not isinstance(collection, Mapping):
            raise UserError(
                f"the variables hold {name!r}, a {type(collection).__name__}; expected collections of arrays alone,"
                f' such as {{"params": …, "batch_stats": …}}: leave {name!r} out'
            )


def require_hashable(model: nn.Module) -> None:
    """Raises a UserError for a module whose fields cannot be compared: JAX could not tell it from another."""
    try:
        hash(model)
    except TypeError:
        field, kind = _unhashable(model) or ("a field", "what cannot be hashed")
        raise UserError(
            f"JAX cannot compile the network: its {field} is {kind}; give fields tuples, numbers and names (a list as a"
            " tuple, an array as a variable)"
        ) from None


def _unhashable(module: Any, of: str = "") -> tuple[str, str] | None:
    """The first field that cannot be hashed, and its type."""
    for field in dataclasses.fields(module) if dataclasses.is_dataclass(module) else ():
        value, name = getattr(module, field.name), f"{of}{field.name}"
        try:
            hash(value)
        except TypeError:
            return _unhashable(value, f"{name}.") or (name, f"a {type(value).__name__}")
    return None


def plain(variables: Any) -> Any:
    """The variables as nested dicts of arrays: neither frozen nor boxed."""
    return nn.meta.unbox(unfreeze(variables))


def _of_another(model: nn.Module, variables: Mapping[str, Any], image_shape: tuple[int, ...]) -> str | None:
    """Which variable the model does not have, or misses; None for none."""
    expected = _names(model, image_shape)
    if expected is None:
        return None
    got = _shapes({name: variables.get(name, {}) for name in _COLLECTIONS})
    body = getattr(model, "backbone", None)
    in_fields = {
        f"batch_stats/backbone/distance_{field}" for field in _IN_FIELDS if getattr(body, field, None) is not None
    }
    missing = expected.keys() - got.keys() - in_fields
    extra = got.keys() - expected.keys()
    if extra:
        # What a network makes in training alone, such as the layers of an auxiliary loss, is its own, too.
        extra -= (_names(model, image_shape, train=True) or {}).keys()
    for name in sorted(missing | extra):
        return (
            f"the variables are of another network: {name} is {got.get(name, 'missing')},"
            f" the model has {expected.get(name, 'nothing')} there; give the model's own"
        )
    return None


def _of_other_type(model: nn.Module, types: Any, image_shape: tuple[int, ...]) -> str | None:
    """Which variable is no number of the kind that the model's own is; None for none.  Precisions may differ."""
    try:
        own = shapes_of(model, image_shape)
    except Exception:  # It says so itself, and better.
        own = {}
    expected = {path_name(path): leaf.dtype for path, leaf in jax.tree_util.tree_leaves_with_path(plain(own))}
    for path, dtype in jax.tree_util.tree_leaves_with_path(types):
        name = path_name(path)
        wanted = expected.get(name, dtype)
        if _kind(dtype) != _kind(wanted):
            return (
                f"the variables are of another type: {name} is {dtype}, the model has {wanted} there; give its own, or"
                " cast them where nothing is lost"
            )
        if not getattr(dtype, "isnative", True):
            return f"{name} is {dtype!r}, of another byte order than this machine's; give x.astype({dtype.name!r})"
    return None


def _kind(dtype: Any) -> Any:
    kinds = (np.floating, np.integer, np.bool_, np.complexfloating)
    return next((kind for kind in kinds if jax.numpy.issubdtype(dtype, kind)), dtype)


def _described(variables: Any) -> tuple[tuple[tuple[Any, Any], ...], Any]:
    """(shape, type) of every variable, and how they are nested."""
    leaves, structure = jax.tree.flatten(plain(variables))
    require_unmasked(*leaves)
    return tuple((np.shape(leaf), _dtype(leaf)) for leaf in leaves), structure


def _dtype(leaf: Any) -> Any:
    return getattr(leaf, "dtype", None) or np.asarray(leaf).dtype


@lru_cache(maxsize=64)  # Asked with every batch.
def _problem(
    model: nn.Module, shapes: tuple[tuple[Any, Any], ...], structure: Any, image_shape: tuple[int, ...]
) -> str | None:
    """Why the network, with variables of these shapes, does not answer for an image of this one; None if it does."""
    types = jax.tree.unflatten(structure, [dtype for _, dtype in shapes])
    if (problem := _of_other_type(model, types, image_shape)) is not None:
        return problem
    variables = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*each) for each in shapes])
    if (problem := _of_another(model, variables, image_shape)) is not None:
        return problem
    images, shape = inputs_of(model, image_shape), f"[n, {', '.join(map(str, image_shape))}]"
    try:
        jax.eval_shape(model.apply, variables, images)
    except ScopeParamShapeError as error:
        said = _first_line(error)
        if "/head" in said:
            # An adapter takes networks as they are.
            last = ". Does the network still have its last layer?" if hasattr(model.backbone, "network") else ""
            return f"the variables do not fit the network; give the model's own ({said}){last}"
        return (
            f"images of shape {shape} do not fit the network; expected the height, width and channels that it was"
            f" trained on ({said})"
        )
    except (ScopeCollectionNotFound, ScopeParamNotFoundError, ScopeVariableNotFoundError) as error:
        return f"the variables lack something that the network reads; give the model's own ({_first_line(error)})"
    except ModifyScopeVariableError as error:
        return (
            f"the network changes its variables when it is asked ({_first_line(error)}); let train decide, as in"
            " nn.BatchNorm(use_running_average=not train)"
        )
    except InvalidRngError as error:
        return (
            f"the network draws random numbers when it is asked ({_first_line(error)}); give one that does so in"
            " training alone"
        )
    except UserError as error:  # It is one clear line already.
        return str(error)
    except Exception as error:
        return f"the network does not take images of shape {shape}: {type(error).__name__}: {_first_line(error)}"
    return None


def _first_line(error: Exception) -> str:
    lines = str(error).split(" (http")[0].splitlines()
    return lines[0] if lines else ""


def _names(model: nn.Module, image_shape: tuple[int, ...], *, train: bool = False) -> dict[str, str] | None:
    """The model's names, None where images of the shape do not pass through it; it says so itself, and better."""
    try:
        found = _shapes_in_training(model, image_shape) if train else shapes_of(model, image_shape)
    except Exception:
        return None
    return _shapes({name: found.get(name, {}) for name in _COLLECTIONS})


def _shapes_in_training(model: nn.Module, image_shape: tuple[int, ...]) -> Any:
    images, key = inputs_of(model, image_shape, count=2), jax.random.key(0)
    return jax.eval_shape(lambda x: model.init({"params": key, "dropout": key}, x, train=True), images)


def _shapes(tree: Any) -> dict[str, str]:
    """The path and shape of every array of a nested dict, as text."""
    leaves = jax.tree_util.tree_leaves_with_path(nn.meta.unbox(tree))
    return {path_name(path): f"an array {list(np.shape(leaf))}" for path, leaf in leaves}


def path_name(path: Any) -> str:
    """The path of a leaf of nested dicts, such as "params/head/linear/kernel"."""
    return "/".join(str(getattr(entry, "key", getattr(entry, "idx", entry))) for entry in path)
