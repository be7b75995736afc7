"""Maps from a network's logits to recalibrated logits: the table of them, fitting, using, keeping."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax import digests
from preload_jax.checks import as_array, check_labels, require_finite
from preload_jax.errors import UserError, unknown
from preload_jax.integers import require_flag, require_integer
from preload_jax.log_sum_exp import log_softmax, log_sum_exp, softmax
from preload_jax.recalibration import dirichlet, spline, temperature, vector
from preload_jax.short_repr import short_repr

_FORMAT = 1
# Of logits that a map is fitted to: their differences are numbers in float32, and have digits.
_LARGEST = 1e30


@dataclass(frozen=True)
class Row:
    """What there is to know of a map.

    Attributes:
        title: for people.
        source: who proposed it.
        fit: (logits [n, k] in float64, labels [n], options) → parameters.
        logits: (parameters, logits) → recalibrated logits, in JAX.
        scales_all: whether it takes the OOD class's logit, too; else P(OOD) stays what it is.
        keeps_order: whether the largest of the K probabilities stays the largest.
        each_class: whether it has numbers for each class, so that each needs an example.
    """

    title: str
    source: str
    fit: Callable[..., dict[str, np.ndarray]]
    logits: Callable[[dict[str, Any], Array], Array]
    scales_all: bool = False
    keeps_order: bool = False
    each_class: bool = False

    @property
    def options(self) -> list[str]:
        return list(inspect.signature(self.fit).parameters)[2:]


# Name → row; the names are what `fit` and `evaluate --recalibrate` take.
TABLE: dict[str, Row] = {
    "temperature": Row(
        "Temperature", "Guo et al., 2017", temperature.fit, temperature.logits, scales_all=True, keeps_order=True
    ),
    "vector": Row("Vector", "Guo et al., 2017", vector.fit, vector.logits, each_class=True),
    "dirichlet": Row("Dirichlet", "Kull et al., 2019", dirichlet.fit, dirichlet.logits, each_class=True),
    "spline": Row("Spline", "Gupta et al., 2020", spline.fit, spline.logits, keeps_order=True),
}


@dataclass(frozen=True)
class Recalibration:
    """A fitted map from a network's logits to logits whose softmax is recalibrated.

    Attributes:
        method: the name in `TABLE`.
        num_classes: K.
        has_ood_class: whether logits have one more column, of the OOD class.
        examples: how many it was fitted to.
        parameters: what was fitted, by name, in float64.

    Example: see `fit`.
    """

    method: str
    num_classes: int
    has_ood_class: bool
    examples: int
    parameters: Mapping[str, Float[np.ndarray, "..."]]

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if self.method not in TABLE:
            raise UserError(unknown("recalibration", self.method, TABLE))
        k = require_integer("num_classes", self.num_classes, at_least=2)
        shapes = {name: np.shape(value) for name, value in self.parameters.items()}
        wanted = {
            "temperature": {"temperature": ()},
            "vector": {"scale": (k,), "offset": (k,)},
            "dirichlet": {"matrix": (k, k), "offset": (k,)},
            "spline": dict.fromkeys(("log_odds", "probability"), shapes.get("log_odds", (1,))),
        }[self.method]
        finite = all(np.isfinite(value).all() for value in self.parameters.values())
        if shapes != wanted or not finite or not np.min(self.parameters.get("temperature", 1.0)) > 0.0:
            raise UserError(
                f"the parameters {shapes} are not those of {self.method} for {k} classes, {wanted}, finite numbers;"
                " use recalibration.fit"
            )

    def logits(self, logits: Any) -> Float[Array, "n k"]:
        """Logits whose softmax is the recalibrated probabilities, in the same columns.

        They are made for `scores`, `metrics` and whatever else takes logits.  Pure and compiled; works under jit.

        Args:
            logits: [n, K], or [n, K + 1] with an OOD class last, as the network gave them.

        Raises:
            UserError: for another number of columns, or logits that are NaN or infinite.
        """
        values = logits if isinstance(logits, jax.Array) else as_array(logits, name="logits")
        columns = self.num_classes + self.has_ood_class
        if values.ndim != 2 or values.shape[1] != columns or not jnp.issubdtype(values.dtype, jnp.floating):
            raise UserError(
                f"logits are {values.dtype} {list(values.shape)}; the recalibration was fitted to {columns} columns,"
                f" {self._columns()}: expected floating point [n, {columns}]"
            )
        wide = _in_range(values)
        numbers = {name: jnp.asarray(value, wide.dtype) for name, value in self.parameters.items()}
        return _logits(numbers, wide, method=self.method, has_ood_class=self.has_ood_class)

    def probabilities(self, logits: Any) -> Float[Array, "n k"]:
        """The recalibrated probabilities, in the columns of `logits`: the softmax of `self.logits(logits)`."""
        return softmax(self.logits(logits))

    def record(self) -> dict[str, Any]:
        """Everything, for JSON, with a digest; `from_record` reads it."""
        return digests.sealed(
            {
                "format": _FORMAT,
                "method": self.method,
                "num_classes": self.num_classes,
                "has_ood_class": self.has_ood_class,
                "examples": self.examples,
                # As text, which keeps every bit.
                "parameters": {
                    name: {"shape": list(value.shape), "values": [float(x).hex() for x in value.ravel()]}
                    for name, value in self.parameters.items()
                },
            }
        )

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Recalibration":
        """The recalibration of a record.

        Raises:
            UserError: for a record that is damaged or of a newer format.
        """
        values = digests.unsealed(
            record,
            what="the recalibration",
            written_by="Recalibration.record()",
            newest=_FORMAT,
            advice="fit it again",
        )
        try:
            parameters = {
                name: np.array([float.fromhex(x) for x in kept["values"]]).reshape(kept["shape"])
                for name, kept in values["parameters"].items()
            }
            method, num_classes, with_ood, examples = (
                values[name] for name in ("method", "num_classes", "has_ood_class", "examples")
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"the recalibration is not what Recalibration.record() returned ({error!r}); fit it again"
            ) from None
        return cls(method, num_classes, with_ood, examples, parameters)

    def _columns(self) -> str:
        return f"{self.num_classes} classes" + (" and the OOD class" if self.has_ood_class else "")


@partial(jax.jit, static_argnames=("method", "has_ood_class"))
def _logits(parameters: dict[str, Any], logits: Array, *, method: str, has_ood_class: bool) -> Array:
    row = TABLE[method]
    if row.scales_all or not has_ood_class:
        return row.logits(parameters, logits)
    of_classes, of_ood = logits[:, :-1], logits[:, -1:]
    log_q = log_softmax(row.logits(parameters, of_classes))
    # The classes now sum to 1, so the OOD class's logit is its log-odds; the difference may overflow.  The largest is
    # taken off first: a sum of equal large logits would lose its log K.
    top = jnp.max(of_classes, axis=-1, keepdims=True)
    log_odds = (of_ood - top) - log_sum_exp(of_classes - top)[..., None]
    largest = jnp.finfo(logits.dtype).max
    return jnp.concatenate([log_q, jnp.clip(log_odds, -largest, largest)], axis=-1)


def fit(method: str, logits: Any, labels: Any, *, has_ood_class: bool = False, **options: Any) -> Recalibration:
    """A recalibration of the K classes' probabilities, from held-out labelled logits.

    With q = softmax(z_1 … z_K), each method has a map of its own:

    - "temperature": softmax(z / T), T > 0, by cross-entropy (Guo et al., 2017).  The largest stays the largest.
    - "vector": softmax(a ∘ z + b), by cross-entropy and a penalty (Guo et al., 2017).  Another may become the largest.
    - "dirichlet": softmax(W log q + b), by cross-entropy and ODIR (Kull et al., 2019).  Another may become the largest.
    - "spline": r(s) in place of the largest probability s, by least squares; the others keep their ratios (Gupta et
      al., 2020).  The largest stays the largest.

    **With an OOD class**, temperature scales all K + 1 logits, and so P(OOD) changes.  The others recalibrate q, the
    probabilities given that the input is in-domain, and keep P(OOD): P(c) = (1 − P(OOD)) q'_c.  Then the score of the
    OOD class, its rule and where it goes far away stay what they are.  Whether the OOD class is the largest of all
    K + 1 may change.  `guarantee` says what is proved.

    **The penalties** of vector and Dirichlet pull the map to the one that changes nothing.  They are scale/K ‖a − 1‖²
    and intercept/K ‖b‖²; and off_diagonal/(K(K − 1)) Σ_{i≠j} w_ij² and intercept/K ‖b‖², which are ODIR, and
    diagonal/K Σ_j (w_jj − 1)².  Guo et al. have no penalty and Kull et al. none on the diagonal: then a minimum need
    not exist, and small data often have none.  Strengths that are not given are all the same: that of 10, 1, 0.1, 0.01
    and 0.001 after which the cross-entropy of five held-out parts of the examples rises.

    **The spline** changes nothing but the largest probability, r(s) = s + δ'(t(s)): δ is a natural cubic spline of
    `knots` knots through the accumulated differences between right and s over the fractile t of s.  r is linear in the
    log-odds of s between two examples (the authors: in s, which float32 rounds to 1) and constant beyond them, at
    least ½/(n + 1) away from 0 and 1, and no smaller than what keeps the class the largest.

    Args:
        method: see above.
        logits: [n, K], or [n, K + 1] with an OOD class last, of examples that the network was not trained on.
        labels: [n] integers in 0 … K − 1.
        has_ood_class: whether the last logit is the OOD class.
        options: `scale`, `intercept` of vector; `off_diagonal`, `diagonal`, `intercept` of Dirichlet, all above 0;
            `knots` of the spline, 6 as in the paper.

    Raises:
        UserError: for another method or option, no examples, logits that are not finite, labels that are no class, a
            class without an example where the map has numbers for each, or data of which no temperature is best.

    Example:
        >>> import numpy as np
        >>> from preload_jax import recalibration
        >>> logits = np.log(np.array([[0.9, 0.1]] * 4))  # 90 % sure, and right in three of four
        >>> found = recalibration.fit("temperature", logits, np.array([0, 0, 0, 1]))
        >>> round(float(found.parameters["temperature"]), 6), found.probabilities(logits)[0].round(4).tolist()
        (2.0, [0.75, 0.25])
    """
    if method not in TABLE:
        raise UserError(unknown("recalibration", method, TABLE))
    row = TABLE[method]
    if others := sorted(options.keys() - set(row.options)):
        raise UserError(f"{method} has no option {others[0]!r}; expected one of {row.options}")
    has_ood_class = require_flag("has_ood_class", has_ood_class)
    values, y = _checked(logits, labels, has_ood_class=has_ood_class)
    num_classes = values.shape[1] - has_ood_class
    counts = np.bincount(y, minlength=num_classes)
    if row.each_class and not counts.all():
        raise UserError(
            f"class {int(np.argmin(counts))} of {num_classes} has no example, and {method} has numbers for each class;"
            " give examples of all classes, or fit temperature or spline"
        )
    fitted = row.fit(values if row.scales_all else values[:, :num_classes], y, **options)
    return Recalibration(method, num_classes, has_ood_class, len(y), fitted)


def _in_range(values: Any) -> Array:
    """The logits in JAX's float32, or float64 where that is there and they have it; a UserError for what overflows."""
    if isinstance(values, jax.core.Tracer):
        return values if values.dtype == jnp.float64 else values.astype(jnp.float32)
    require_finite(values, name="logits")
    if not isinstance(values, jax.Array):
        wide = jax.dtypes.canonicalize_dtype(np.float64) if values.dtype.itemsize >= 8 else np.float32
        with np.errstate(over="ignore"):
            values = values.astype(wide)
        require_finite(values, name=f"logits, as {np.dtype(wide)},")
    array = jnp.asarray(values)
    return array if array.dtype == jnp.float64 else array.astype(jnp.float32)


def _checked(logits: Any, labels: Any, *, has_ood_class: bool) -> tuple[np.ndarray, np.ndarray]:
    values, y = as_array(logits, name="logits"), check_labels(labels)
    least = 2 + bool(has_ood_class)
    if values.ndim != 2 or values.shape[1] < least or not jnp.issubdtype(values.dtype, jnp.floating):
        what = "two classes and the OOD class" if has_ood_class else "two classes"
        raise UserError(
            f"logits are {values.dtype} {list(values.shape)}; expected floating point [n, k] of {what} at least"
        )
    if len(values) != len(y):
        raise UserError(f"{len(values)} logits but {len(y)} labels; expected one label an example")
    if not len(y):
        raise UserError("no examples; give logits and labels of held-out in-domain inputs")
    require_finite(values, name="logits")
    largest = float(np.abs(values.astype(np.float64)).max())
    if largest > _LARGEST:
        raise UserError(
            f"logits run up to {largest:.3g}; expected at most {_LARGEST:g}: subtract each row's largest, or scale them"
        )
    num_classes = values.shape[1] - has_ood_class
    if y.max() >= num_classes:
        raise UserError(f"labels run from {y.min()} to {y.max()}; expected 0 to {num_classes - 1}")
    return values.astype(np.float64), y
