"""The variables that a training starts from: random ones, or those given, with what a method adds to them."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from preload_jax.devices.variables import difference, plain, require_own, require_variables
from preload_jax.errors import UserError
from preload_jax.models import CCUHead, Classifier, LaplaceHead
from preload_jax.training import loop, stage
from preload_jax.training.stage import Settings

Variables = Mapping[str, Any]


def variables_of(
    model: Classifier, settings: Settings, image_shape: tuple[int, ...], given: Variables | None
) -> dict[str, Any]:
    """Random weights; or those given, with a new OOD class where the head has one and they have none.

    Raises:
        UserError: for a method that starts from a trained network, without one; for variables of another network.
    """
    method = settings.method
    init_key, head_key, _ = stage.keys(settings.seed)
    if given is None:
        if method.starts_from is not None:
            raise UserError(
                f"{method.name} starts from a trained network; give variables, such as those of"
                f" fit(..., method={method.starts_from!r}) with a linear head"
            )
        return loop.init_variables(model, image_shape, key=init_key)
    started = _completed(model, settings, given, lambda: loop.init_variables(model, image_shape, key=head_key))
    own = _check_shapes(model, image_shape, started)
    # Weights of another precision are trained in the model's.
    cast = {name: jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), started[name], own[name]) for name in own}
    return {**started, **cast}


def require(model: Classifier, settings: Settings, image_shape: tuple[int, ...], given: Variables) -> None:
    """Raises the UserError of `variables_of` for variables of another network; no array is made."""
    _check_shapes(model, image_shape, _completed(model, settings, given, lambda: _shapes(model, image_shape)))


def _completed(
    model: Classifier, settings: Settings, given: Variables, fresh: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """The variables given, and of fresh ones what their head lacks for the method."""
    require_variables(given)
    started = {"batch_stats": {}, **plain(given)}
    # Of variables that are nested otherwise nothing is known here; what they miss is said when all are there.
    head = started["params"].get("head", {})
    if not isinstance(head, Mapping):
        return started
    if isinstance(model.head, LaplaceHead) and "head" not in started["batch_stats"]:
        started["batch_stats"] = {**started["batch_stats"], "head": fresh()["batch_stats"]["head"]}
    if isinstance(model.head, CCUHead) and "densities" not in head:
        made = fresh()
        started = {
            name: {**tree, "head": {**made.get(name, {}).get("head", {}), **tree.get("head", {})}}
            for name, tree in started.items()
        }
    if settings.method.head == "square_logit" and "ood" not in head:
        started = loop.add_ood_head(started, fresh())
    return started


def _check_shapes(model: Classifier, image_shape: tuple[int, ...], variables: Variables) -> dict[str, Any]:
    """The shapes of the network's own; raises a UserError where the variables are not of them."""
    require_own(model, variables, image_shape)
    expected = _shapes(model, image_shape)
    differs = difference(expected, {name: variables[name] for name in expected})
    if differs is not None:
        name, has, wants = differs
        raise UserError(
            f"the variables are of another network: {name} is {has or 'missing'},"
            f" the model has {wants or 'nothing'} there"
        )
    return expected


def _shapes(model: Classifier, image_shape: tuple[int, ...]) -> dict[str, Any]:
    return jax.eval_shape(lambda: loop.init_variables(model, image_shape, key=jax.random.key(0)))
