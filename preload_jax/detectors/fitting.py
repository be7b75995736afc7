"""`fit`, `score` and `limit` of any detector of the table."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import jax
import numpy as np

from preload_jax import digests
from preload_jax.detectors import arguments, data, functions
from preload_jax.detectors.data import Head, Outputs, Training
from preload_jax.detectors.far_away import Ray
from preload_jax.detectors.row import Row
from preload_jax.detectors.table import get
from preload_jax.errors import UserError
from preload_jax.short_repr import short_repr

# The largest score that float32 metrics can hold; what is further away than this is given this.
_LARGEST = float(np.finfo(np.float32).max)
# What a row needs of the outputs themselves.
_OF_OUTPUTS = ("features", "logits", "ood_logit", "maps", "images", "network")


@dataclass(frozen=True)
class Detector:
    """A fitted detector.

    Attributes:
        name: its row in `TABLE`.
        fitted: what it stores, name → array.
        options: its hyper-parameters.
        num_classes: K, without an OOD class.
        head: (kernel [d, K], bias [K]), or None where none was given.
        width: d, or None where features were not given.
        stated: K as the training data said it; None where they did not.

    Example: see `fit`.
    """

    name: str
    fitted: Mapping[str, Any]
    options: Mapping[str, Any]
    num_classes: int | None
    head: Head | None
    width: int | None
    stated: int | None = None

    __repr__ = short_repr

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that a score depends on, but for the network: the options, and what was learned."""
        notes = {"name": self.name, "options": dict(self.options), "num_classes": self.num_classes}
        return digests.of_tree({"fitted": dict(self.fitted), "head": self.head}, notes=notes)


def fit(
    name: str, outputs: Any, labels: Any = None, *, head: Any = None, num_classes: int | None = None, **options: Any
) -> Detector:
    """Fits the detector of a name to a network's outputs on its training data.

    Args:
        name: a row of `TABLE`.
        outputs: `Outputs` of n examples; or, for data larger than memory, an iterable of batches, each `Outputs` or
            (`Outputs`, labels), or a function that returns such an iterable anew for each pass.
        labels: [n], integers 0 … K − 1, if the detector needs them and `outputs` is one `Outputs`.
        head: (kernel [d, K], bias [K]) of the last layer, z = kernelᵀ g + bias.  Some detectors need it.  It also
            computes logits that are not given.
        num_classes: K; None: as the outputs say, which `outputs` made of a network, or the number of logits, or the
            largest label plus one.  Give it with arrays of your own from a network with an OOD class.  The last logit
            is then left out.
        options: hyper-parameters, see `options` of the detector's row.

    Raises:
        UserError: if something needed is missing or does not fit, a class has no examples, or a value is not finite.

    Example:
        >>> import numpy as np
        >>> from preload_jax import detectors
        >>> rng = np.random.default_rng(0)
        >>> labels = np.arange(300) % 3
        >>> features = rng.normal(size=(300, 4)).astype(np.float32) + 4.0 * np.eye(4, dtype=np.float32)[labels]
        >>> detector = detectors.fit("mahalanobis", detectors.Outputs(features), labels)
        >>> near, far = detectors.score(detector, detectors.Outputs(np.stack([features[0], 100.0 * features[0]])))
        >>> bool(near > far)
        True
    """
    row = get(name)
    chosen = arguments.completed(name, row, options)
    arguments.require_passes(name, row, outputs)
    outputs, first = arguments.peek(outputs, labels)
    checked = arguments.fitting_head(head, row, first)
    num_classes = arguments.count_classes(num_classes, row, outputs, labels, checked, first)
    if checked is not None and num_classes is not None:
        checked = checked[0][:, :num_classes], checked[1][:num_classes]
    width, stated = (data.width(first[0]), first[0].num_classes) if first is not None else (None, None)
    if not row.passes:
        return Detector(name, {}, chosen, num_classes, checked, width, stated)
    count = data.num_rows(outputs) if data.is_whole(outputs) else None
    training = Training(
        partial(_blocks, row, outputs, labels, num_classes, checked, stated), num_classes or 0, checked, count
    )
    fitted = _function(row, "fit")(training, **chosen, **row.fixed)
    return Detector(name, fitted, chosen, num_classes, checked, width, stated)


def score(detector: Detector, outputs: Any) -> np.ndarray:
    """How in-domain each input is: [n], finite, higher = more in-domain.

    It is computed in blocks of rows, in JAX's default floating-point type.  Some detectors compute in float64 on the
    host.  The unit is the detector's own.

    Args:
        detector: what `fit` returned.
        outputs: `Outputs` of the same network, or an iterable of them.

    Raises:
        UserError: if something needed is missing, does not fit or is not finite, or a score is not a number.

    Example: see `fit`.
    """
    row = get(detector.name)

    def blocks() -> Iterator[Outputs]:
        for batch, _ in data.batches(outputs, None):
            arguments.require_stated_classes(detector.stated, detector.num_classes, row, batch)
            given = _needed(
                row, batch, detector.num_classes, detector.head, options=detector.options, checked=not row.telling
            )
            for block in given:
                _require_width(detector, block)
                yield block

    found = list(map(_scorer(row, detector), blocks()))
    if not found:
        raise UserError("no outputs; give at least one row")
    scores = np.concatenate(found)
    if np.isnan(scores).any():
        bad = np.flatnonzero(np.isnan(scores))
        raise UserError(
            f"the {detector.name} score of {len(bad)} of {len(scores)} inputs is no number, first of input {bad[0]};"
            " its features are too large, or constant, for it"
        )
    return np.clip(scores, -_LARGEST, _LARGEST).astype(jax.dtypes.canonicalize_dtype(np.float64), copy=False)


def limit(detector: Detector, slopes: Any, constants: Any, *, head: Any = None) -> np.ndarray:
    """The limit of the score for features t·s + a as t → ∞, [n] in float64: −∞, a number, or +∞.

    Args:
        detector: what `fit` returned.
        slopes, constants: s and a, [n, d], see `guarantees.ray_slopes` and `ray_constants`.
        head: the network's (kernel [d, K], bias [K]), if the detector reads logits and was fitted without a head.

    Raises:
        UserError: for a detector whose limit is not derived, a missing head, or slopes and constants that are not
            finite or not as wide as what the detector was fitted to.

    Example:
        >>> import numpy as np
        >>> from preload_jax import detectors
        >>> labels = np.arange(60) % 3
        >>> features = np.random.default_rng(0).normal(size=(60, 4))
        >>> detector = detectors.fit("ddu", detectors.Outputs(features), labels)
        >>> detectors.limit(detector, np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]), np.zeros((2, 4)))[0]
        np.float64(-inf)
    """
    row = get(detector.name)
    if row.far_away == "undecided":
        raise UserError(f"the limit of {detector.name} is not derived: it reads more than features and logits")
    known = detector.head if head is None else arguments.as_head(head)
    if known is None and ({"logits", "ood_logit", "network"} & set(row.needs)):
        raise UserError(f"head is missing; the limit of {detector.name} needs head=(kernel [d, K], bias [K])")
    s, a = arguments.ray(slopes, constants, width=detector.width, name=detector.name, head=known)
    kernel, bias = known if known is not None else (np.zeros((s.shape[1], 1)), np.zeros(1))
    if row.module == "ood_class" and detector.num_classes is not None:
        linear = not row.fixed["square"]
        if kernel.shape[1] != detector.num_classes + linear:
            raise UserError(
                f"the head has {kernel.shape[1]} columns for {detector.num_classes} classes; the limit of"
                f" {detector.name} is of an OOD class whose logit is"
                f" {'linear, and in the head' if linear else 'square, and not in it'}"
            )
    elif detector.num_classes is not None:
        kernel, bias = kernel[:, : detector.num_classes], bias[: detector.num_classes]
    ray = Ray(s, a, s @ kernel, a @ kernel + bias)
    fitted = {**detector.fitted, "kernel": kernel, "bias": bias}
    return np.asarray(_function(row, "limit")(fitted, ray, **detector.options, **row.fixed), np.float64)


def _scorer(row: Row, detector: Detector) -> Callable[[Outputs], np.ndarray]:
    """A block → its scores.  What the detector stores is moved to the device once."""
    fitted = dict(detector.fitted)
    if "head" in row.needs and detector.head is not None:
        fitted |= {"kernel": detector.head[0], "bias": detector.head[1]}
    options = {**detector.options, **row.fixed}
    if row.on_host:
        score = _function(row, "score")

        def of_block(block: Outputs) -> np.ndarray:
            if not row.telling:
                return np.asarray(score(fitted, block, **options))
            with np.errstate(invalid="ignore", over="ignore"):
                scores = np.asarray(score(fitted, block, **options))
            if not np.isfinite(scores).all():
                data.require_finite_block(block)
            return scores

        return of_block
    chosen, on_device = (row.module, tuple(options.items())), jax.device_put(fitted) if fitted else {}
    anew = cache(_compiled.__wrapped__)  # For this call alone.

    def on_device_of_block(block: Outputs) -> np.ndarray:
        compiled = (anew if functions.may_change(block.network, block.tail) else _compiled)(*chosen)
        return np.asarray(compiled(on_device, data.padded(block)))[: data.num_rows(block)]

    return on_device_of_block


@cache
def _compiled(module: str, options: tuple[tuple[str, Any], ...]) -> Any:
    function = importlib.import_module(f"preload_jax.detectors.{module}").score

    def precise(fitted: Any, outputs: Outputs) -> Any:
        # GPUs and TPUs would otherwise round float32 products to tf32 or bfloat16.
        with jax.default_matmul_precision("highest"):
            return function(fitted, outputs, **dict(options))

    return jax.jit(precise)


def _function(row: Row, name: str) -> Any:
    return getattr(importlib.import_module(f"preload_jax.detectors.{row.module}"), name)


def _needed(
    row: Row,
    batch: Outputs,
    num_classes: int | None,
    head: Head | None,
    *,
    options: Mapping[str, Any] | None = None,
    checked: bool = True,
) -> Iterator[Outputs]:
    needs = [name for name in row.needs if name in _OF_OUTPUTS]
    # Inputs are moved along a gradient.
    needs += ["images", "network"] if (options or {}).get("noise") else []
    return data.blocks(batch, needs, num_classes=num_classes, head=head, checked=checked)


def _blocks(
    row: Row,
    outputs: Any,
    labels: Any,
    num_classes: int | None,
    head: Head | None,
    stated: int | None,
    *,
    checked: bool = True,
) -> Iterator[tuple[Outputs, Any]]:
    """One pass over the training data, a block and its labels at a time."""
    any_rows, width = False, None
    for batch, given in data.batches(outputs, labels):
        arguments.require_stated_classes(stated, num_classes, row, batch)
        start = 0
        whole = None
        for block in _needed(row, batch, num_classes, head, checked=checked):
            rows, any_rows = data.num_rows(block), True
            if width is not None and data.width(block) != width:
                raise UserError(
                    f"features of one batch have {data.width(block)} columns, of another {width}; expected one number"
                )
            width = data.width(block)
            if "labels" in row.needs:
                if whole is None:
                    whole = data.labels_of(given, data.num_rows(batch), num_classes or 0)
                yield block, whole[start : start + rows]
            else:
                yield block, None
            start += rows
    if not any_rows:
        raise UserError("no outputs; give at least one row")


def _require_width(detector: Detector, block: Outputs) -> None:
    """Raises unless the features are as many as those that the detector was fitted to."""
    if block.features is not None and detector.width not in (None, block.features.shape[1]):
        raise UserError(
            f"features have {block.features.shape[1]} columns; {detector.name} was fitted to {detector.width}"
        )
