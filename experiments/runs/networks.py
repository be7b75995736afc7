"""The options of a run's network: the fields of its module, as the command line spells and types them."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from experiments.runs.configuration import Config
from experiments.runs.folder import as_arguments, build_model
from preload_jax import backbones
from preload_jax.errors import UserError, did_you_mean

# Fields of each module that are not its form.
_NOT_ITS_FORM = ("parent", "name", "dtype", "axis_name")


def options(backbone: str) -> dict[str, Any]:
    """Name → type of what `--backbone.NAME` may set.

    Raises:
        UserError: for an unknown network.
    """
    row = backbones.get(backbone)
    hints = typing.get_type_hints(row.module)
    names = [field.name for field in dataclasses.fields(row.module) if field.init]
    return {name: hints[name] for name in names if name not in (*_NOT_ITS_FORM, *row.options)}


def read(backbone: str, given: Mapping[str, str]) -> dict[str, Any]:
    """Values as JSON has them, of the text that the command line has.

    Args:
        backbone: the network's name.
        given: text by the option's name.

    Raises:
        UserError: for an unknown option, text that is no value of its type, and values that make no network.
    """
    known, found = options(backbone), {}
    for name, text in given.items():
        if name in backbones.get(backbone).options:
            raise UserError(f"--backbone.{name} is an option of its own: give --{name.replace('_', '-')}={text}")
        if name not in known:
            meant = did_you_mean(name, known)
            raise UserError(
                f"unknown option --backbone.{name} of {backbone}{meant}; expected one of {', '.join(sorted(known))}"
            )
        try:
            found[name] = _value(known[name], text)
        except ValueError:
            raise UserError(f"--backbone.{name} must be {_in_words(known[name])}, got {text!r}") from None
    try:
        backbones.get(backbone).module(**as_arguments(found))
    except UserError as error:
        asked = ", ".join(f"--backbone.{name}={text}" for name, text in given.items())
        raise UserError(f"{asked}: {error}") from None
    return found


def spelled(options: Mapping[str, Any]) -> str:
    """The options as the command line has them, a blank before each."""
    texts = {n: ",".join(map(str, x)) if isinstance(x, list) else str(x).lower() for n, x in options.items()}
    return "".join(f" --backbone.{name.replace('_', '-')}={text}" for name, text in texts.items())


def _value(kind: Any, text: str) -> Any:
    if _is_optional(kind):
        return None if text.lower() == "none" else _value(_plain(kind), text)
    if typing.get_origin(kind) is tuple:
        one, parts = typing.get_args(kind)[0], text.split(",")
        if _length(kind) not in (None, len(parts)):
            raise ValueError(text)
        return [_value(one, part) for part in parts]
    return kind(text)


def _in_words(kind: Any) -> str:
    if _is_optional(kind):
        return f"{_in_words(_plain(kind))}, or none"
    if typing.get_origin(kind) is tuple:
        one = typing.get_args(kind)[0]
        count = f"{_length(kind)} " if _length(kind) is not None else ""
        return f"{count}{'integers' if one is int else 'numbers'} with commas between"
    return {int: "an integer", float: "a number"}.get(kind, "text")


def _length(kind: Any) -> int | None:
    """How many values a tuple has; None for any number."""
    kinds = typing.get_args(kind)
    return None if Ellipsis in kinds else len(kinds)


def _is_optional(kind: Any) -> bool:
    return typing.get_origin(kind) in (types.UnionType, typing.Union)


def _plain(kind: Any) -> Any:
    return next(each for each in typing.get_args(kind) if each is not type(None))


def check_size(config: Config) -> None:
    """Raises a UserError where the network does not take images of the data set's size, or is larger than memory.

    Nothing is computed.
    """
    import jax
    import jax.numpy as jnp

    from preload_jax.training import memory

    images = jax.ShapeDtypeStruct((2, *config.data.image_shape), jnp.float32)
    key, model = jax.eval_shape(lambda: jax.random.key(0)), build_model(config)
    try:
        variables = jax.eval_shape(model.init, key, images)
    except UserError as error:
        raise UserError(f"{error}: give another --image-size or --backbone") from None
    if (problem := memory.problem_of_weights(variables)) is not None:
        raise UserError(f"{problem}: give another --image-size or --backbone")
