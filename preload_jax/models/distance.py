"""The distance from the training data as one more feature, which the OOD class alone sees: ours, not the paper's."""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from preload_jax.checks import as_array, as_points, is_real, require_number, unit_of
from preload_jax.errors import UserError

# What is said of tokens.
OF_INTEGERS = (
    "a distance between integers, such as tokens, says nothing; put WithDistance around what follows their embedding"
)
# Images whose distances are computed at once.
_BLOCK = 1000


class Constant:
    """A read-only array that can be compared and hashed, as the fields of a module must be."""

    def __init__(self, values: Any):
        given = as_array(values, name="the distance's center")
        if not is_real(given.dtype):
            raise UserError(f"the distance's center is of type {given.dtype}; expected real numbers: a mean image")
        self.values = np.array(given, np.float32)
        self.values.setflags(write=False)
        self._key = (self.values.shape, self.values.tobytes())
        self._hash = hash(self._key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype or np.float32)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Constant({list(self.values.shape)})"


class WithDistance(nn.Module):
    """G(x) of a backbone and, last, κ·r(x) with r(x) = ‖x − μ‖₂ / m: how far x is from the training data.

    In a `Classifier` the K classes see only G(x), and the OOD class sees both.  So far from the data the OOD logit
    outgrows the others, whatever the backbone does there.  `guarantees.input_radius` computes the distance.

    μ and m are kept with the variables, in "batch_stats" beside the backbone's own.  If the variables hold them, they
    are used instead of the fields.  The backbone's variables have the same paths as without the distance.
    What `init` makes where a field is None is not measured: 0 and 1 stand for it, and the variables say so by the sign
    of m, which is then below 0 (the network takes its size).  `fit` and `attach` measure it, and `input_radius`
    refuses it.

    Attributes:
        backbone: a module `f(images, *, train)` → features [n, d].
        center: μ, the mean of the training images, of the shape of one image.  None: the variables hold it, and `fit`
            measures it.
        scale: m > 0, the median distance of the training images from μ.  None: as for `center`.
        weight: κ > 0.

    Raises:
        UserError: for a scale or weight that is not a positive number, a center that is not finite, images of another
            shape than the center's, or integers.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import models
        >>> images = np.random.default_rng(0).integers(0, 256, (50, 4, 4, 1), np.uint8)
        >>> backbone = models.WithDistance(models.MLP(widths=(6,)), **models.typical_distance(images))
        >>> model = models.Classifier(backbone, models.SquareLogitHead(3, min_weight=0.2))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> logits, features = model.apply(variables, jnp.asarray(images / 255, jnp.float32), features=True)
        >>> logits.shape, features.shape, round(float(jnp.median(features[:, -1])), 4)
        ((50, 4), (50, 7), 1.0)
    """

    backbone: nn.Module
    center: Any = None
    scale: Any = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.center is not None and not isinstance(self.center, Constant):
            self.center = Constant(self.center)
        self.scale = None if self.scale is None else require_number("the distance's scale", self.scale, above=0.0)
        self.weight = require_number("the distance's weight", self.weight, above=0.0)
        for name, value in (("scale", self.scale), ("weight", self.weight)):
            # The network has them in float32.
            if value is not None and not 0.0 < np.float32(value) < np.inf:
                raise UserError(f"the distance's {name} must be a positive number, got {value}")
        if self.center is not None and not np.isfinite(self.center.values).all():
            raise UserError("the distance's center holds NaN or infinity; expected a finite mean image")
        super().__post_init__()

    def setup(self) -> None:
        # The backbone's variables have the paths that they have without the distance.
        nn.share_scope(self, self.backbone)

    @nn.compact
    def __call__(self, images: Num[Array, "n ..."], *, train: bool = False) -> Float[Array, "n d"]:
        if not jnp.issubdtype(images.dtype, jnp.floating):
            raise UserError(OF_INTEGERS)
        center = self._constant("distance_center", np.zeros(images.shape[1:]) if self.center is None else self.center)
        scale = 1.0 if self.scale is None else self.scale
        # The sign says that it, or the center, stands for what is not measured yet.
        scale = jnp.abs(self._constant("distance_scale", -scale if None in (self.center, self.scale) else scale))
        if center.shape != images.shape[1:]:
            raise UserError(
                f"images {list(images.shape)} with a center {list(center.shape)}; expected one image's shape"
            )
        distance = self.weight * (_norm(images.astype(jnp.float32) - center[None]) / scale)
        embedding = self.backbone(images, train=train)
        # Of many more than 1e38 typical distances this is the largest float: the logit has reached it before.
        distance = jnp.minimum(distance, jnp.finfo(jnp.float32).max)
        return jnp.concatenate([embedding.astype(jnp.float32), distance[:, None]], axis=-1)

    def _constant(self, name: str, value: Any) -> Array:
        """What the variables hold under the name; where they do not, the value, which `init` puts there."""
        if self.is_initializing() or self.has_variable("batch_stats", name):
            found = self.variable("batch_stats", name, lambda: jnp.asarray(np.asarray(value), jnp.float32)).value
            return jnp.asarray(found, jnp.float32)
        return jnp.asarray(np.asarray(value), jnp.float32)


def is_measured(variables: Mapping[str, Any]) -> bool:
    """Whether the μ and m that a classifier's variables hold are of images, and not what `init` puts in their place."""
    kept = variables.get("batch_stats", {}).get("backbone", {})
    return "distance_scale" not in kept or not np.any(np.asarray(kept["distance_scale"]) < 0.0)


def typical_distance(images: np.ndarray, *, center: np.ndarray | None = None) -> dict[str, Any]:
    """μ and m of training images, as `WithDistance` takes them: the mean image, and the median distance from it.

    Args:
        images: uint8 in [0, 255], scaled to [0, 1] as the networks take them, or floating point; [n, ...], n ≥ 1.
        center: another μ than their mean, in the networks' units.

    Returns:
        {"center": float32 of one image's shape, "scale": float}.

    Raises:
        UserError: for images that `predict` would refuse, or all the same; a center of another shape or not finite.

    Example:
        >>> import numpy as np
        >>> from preload_jax import models
        >>> found = models.typical_distance(np.array([[0.0, 0.0], [0.0, 2.0], [4.0, 1.0], [4.0, 1.0]]))
        >>> found["center"].tolist(), round(found["scale"], 4)
        ([2.0, 1.0], 2.118)
    """
    images = as_points(images)
    unit = unit_of(images)
    blocks = [images[i : i + _BLOCK] for i in range(0, len(images), _BLOCK)]
    mean = sum(block.sum(axis=0, dtype=np.float64) for block in blocks) / (len(images) * unit)
    mu = mean if center is None else _checked_center(center, images.shape[1:])
    distances = np.concatenate(
        [np.linalg.norm((block / unit - mu).reshape(len(block), -1), axis=1) for block in blocks]
    )
    scale = float(np.median(distances))
    if not 0.0 < scale < np.inf:
        raise UserError(f"the images' median distance from their mean is {scale}; expected finite images that differ")
    return {"center": np.asarray(mu, np.float32), "scale": scale}


def _checked_center(center: Any, shape: tuple[int, ...]) -> np.ndarray:
    """In float64."""
    values = Constant(center).values
    if values.shape != shape or not np.isfinite(values).all():
        raise UserError(
            f"the distance's center is {list(values.shape)}, images are {list(shape)} each; expected finite numbers of"
            " one image's shape"
        )
    return values.astype(np.float64)


def _norm(differences: Array) -> Array:
    """The Euclidean length of each row, of any rank; no square of it overflows."""
    rows = jax.lax.collapse(differences, 1)
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(rows), axis=1, keepdims=True))
    # At 0 the length has no gradient: it is taken of something else there, and not used.
    zero = largest == 0.0
    scaled = jnp.where(zero, 1.0, rows) / jnp.where(zero, 1.0, largest)
    return jnp.where(zero, 0.0, largest * jnp.sqrt(jnp.sum(jnp.square(scaled), axis=1, keepdims=True)))[:, 0]
