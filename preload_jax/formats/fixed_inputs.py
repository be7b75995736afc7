"""What a network says of fixed inputs: nothing else in a file tells its code from other code of the same shapes."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from preload_jax.devices import forward
from preload_jax.devices.variables import inputs_of
from preload_jax.errors import DataError, UserError, reason
from preload_jax.formats import strict_json

# What a file has: answers to several inputs, or, of earlier versions, the logits of the first of them.
KEY, EARLIER = "answers_to_fixed_inputs", "answer_to_a_fixed_input"
# By which answers may differ on another device, of an input's largest: in float32, and where anything is in half
# precision.
_ROUNDING, _OF_HALVES = 2e-3, 2e-2
# In files of earlier versions, of each logit and of the middle one.
_ROUNDING_EARLIER = 0.05
# Of an input's entries: answers that this much moves are another device's to decide, and are not kept.
_NUDGE = 1e-5
# Of an input's features that are kept, spread over all.
_MOST_FEATURES = 256

_Outputs = tuple[np.ndarray, np.ndarray]


def written(model: Any, variables: Mapping[str, Any], image_shape: tuple[int, ...]) -> str | None:
    """The answers as a file has them; None where none is finite and stable, or the network cannot be asked."""
    given, rounding = _inputs(model, image_shape), _rounding(model, variables, image_shape)
    try:
        found, moved = (_ask(model, variables, inputs) for inputs in (given, _nudged(given)))
    except Exception:  # It can be kept all the same.
        return None
    kept = _alike(found, moved, rounding / 2)
    if not kept.any():
        return None
    # Few digits: the last ones are the machine's.
    logits, features = (
        [[float(f"{number:.6g}") for number in row] if keep else None for row, keep in zip(rows, kept, strict=True)]
        for rows in found
    )
    return json.dumps({"logits": logits, "features": features, "rounding": rounding})


def require_same(model: Any, variables: Any, image_shape: tuple[int, ...], metadata: Mapping[str, str]) -> None:
    """Raises a UserError where the model gives other answers than those in a file's metadata, if it has any."""
    key = next((key for key in (KEY, EARLIER) if key in metadata), None)
    if key is None:
        return
    try:
        kept = strict_json.parse(metadata[key])
        same = (_same if key == KEY else _same_as_earlier)(kept, model, variables, image_shape)
    except UserError:
        raise
    except Exception as error:  # A file may hold any JSON there.
        raise DataError(f"its {key} are no logits and features ({reason(error)}); export it again") from None
    if not same:
        raise UserError(
            "the model gives other logits or features with these variables than the network that was saved; give the"
            " same code: its layers have the same shapes and compute something else"
        )


def _same(kept: Any, model: Any, variables: Any, image_shape: tuple[int, ...]) -> bool:
    rounding = max(float(kept["rounding"]), _rounding(model, variables, image_shape))
    numbers = [row is not None for row in kept["logits"]]
    logits, features = (np.array([row for row in kept[name] if row is not None]) for name in ("logits", "features"))
    given = _inputs(model, image_shape)
    found = _asked(model, variables, given[np.flatnonzero(numbers)])
    return found is not None and bool(_alike((logits, features), found, rounding).all())


def _same_as_earlier(kept: Any, model: Any, variables: Any, image_shape: tuple[int, ...]) -> bool:
    expected, found = np.array(kept, np.float64).reshape(-1), _asked(model, variables, _inputs(model, image_shape)[:1])
    if found is None or found[0][0].shape != expected.shape:
        return False
    atol = _ROUNDING_EARLIER * np.median(np.abs(expected))
    return bool(np.allclose(found[0][0], expected, rtol=_ROUNDING_EARLIER, atol=atol))


def _inputs(model: Any, image_shape: tuple[int, ...]) -> np.ndarray:
    """Inputs of training's scale, negative ones, small, large and far-away ones; the first is that of all versions."""
    form, rng = inputs_of(model, image_shape), np.random.default_rng(0)
    if form.dtype == np.int32:
        # Of tokens the first two, which every vocabulary has.
        return np.stack([*(rng.integers(0, 2, image_shape) for _ in range(4)), *np.indices((2, *image_shape))[0]])
    unit, both = rng.random(image_shape), rng.normal(size=image_shape)
    return np.stack([unit, -unit, both, 0.01 * both, 10 * both, 1e3 * both, 1e3 * unit, 0 * unit])


def _nudged(inputs: np.ndarray) -> np.ndarray:
    if inputs.dtype.kind == "i":
        return inputs
    return inputs * (1 + _NUDGE * np.random.default_rng(1).choice([-1, 1], inputs.shape))


def _asked(model: Any, variables: Any, inputs: np.ndarray) -> _Outputs | None:
    try:
        return _ask(model, variables, inputs)
    except Exception:  # Another network may not even take them.
        return None


def _ask(model: Any, variables: Any, inputs: np.ndarray) -> _Outputs:
    dtype = inputs_of(model, inputs.shape[1:]).dtype
    # GPUs and TPUs would round products to other numbers than CPUs do.
    with jax.default_matmul_precision("highest"):
        logits, features = forward.predict(model, variables, inputs.astype(dtype), batch_size=1, features=True)
    features = np.asarray(features).reshape(len(inputs), -1)
    count = features.shape[1]
    return logits, features[:, np.linspace(0, count - 1, min(count, _MOST_FEATURES)).astype(int)]


def _alike(expected: _Outputs, found: _Outputs, rounding: float) -> np.ndarray:
    """For each input whether both answers are finite and equal up to rounding, [n]."""
    same = np.ones(len(expected[0]), bool)
    for first, second in zip(expected, found, strict=True):
        if first.shape != second.shape:
            return np.zeros_like(same)
        largest = np.abs(first).max(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            near = np.abs(second - first) <= rounding * largest + np.finfo(np.float32).eps
        same &= (near & np.isfinite(first) & np.isfinite(second)).all(axis=1)
    return same


def _rounding(model: Any, variables: Any, image_shape: tuple[int, ...]) -> float:
    try:
        traced = jax.make_jaxpr(partial(model.apply, features=True))(variables, inputs_of(model, image_shape))
    except Exception:  # What asks it says what is wrong.
        return _ROUNDING
    return _OF_HALVES if "f16[" in str(traced) else _ROUNDING
