"""The nine methods of the paper, as data: one row each, which training and evaluation read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from preload_jax import losses, outlier_synthesis, scores, steps
from preload_jax.errors import UserError


def _no_memory(params: Any) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Method:
    """One row.

    Attributes:
        name: as the command line spells it.
        title: as the paper's tables spell it.
        head: "linear", "none_class" or "square_logit", see `models.make_classifier`.
        stages: what is trained, in order: "all", or "ood_head" (w' and b alone).  Empty: nothing is.
        objective: the combined objective, see `losses`.
        score: logits → score; None: that of a detector (`detectors`), DDU's.
        starts_from: the method whose trained network is the starting point; None: random weights.
        uses_outliers: whether training sees auxiliary OOD images.
        step: the training step, see `steps`.
        init_memory: params → what the step carries along beside parameters and moments.
        clip_norm: limit of the gradient's 2-norm; None for none.
    """

    name: str
    title: str
    head: str
    stages: tuple[str, ...]
    objective: Callable[..., Any]
    score: Callable[..., Any] | None
    starts_from: str | None = None
    uses_outliers: bool = True
    step: Callable[..., Any] = steps.gradient_step
    init_memory: Callable[[Any], Any] = _no_memory
    clip_norm: float | None = None

    @property
    def has_ood_class(self) -> bool:
        """Whether the last logit is the OOD class."""
        return self.head != "linear"


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "standard",
            "Standard",
            "linear",
            ("all",),
            losses.classification,
            scores.max_probability,
            uses_outliers=False,
        ),
        Method("ddu", "DDU", "linear", (), losses.classification, None, starts_from="standard", uses_outliers=False),
        Method("nc", "NC", "none_class", ("all",), losses.extra_class, scores.in_domain_probability),
        Method("oe", "OE", "linear", ("all",), losses.outlier_exposure, scores.max_probability),
        Method("preload", "PreLoad", "square_logit", ("all",), losses.extra_class, scores.in_domain_probability),
        Method(
            "oe_ft",
            "OE-FT",
            "linear",
            ("all",),
            losses.outlier_exposure,
            scores.max_probability,
            starts_from="standard",
        ),
        Method(
            "doe_ft",
            "DOE-FT",
            "linear",
            ("all",),
            losses.outlier_exposure,
            scores.max_probability,
            starts_from="standard",
            step=outlier_synthesis.worst_case_step,
            init_memory=outlier_synthesis.init_memory,
            clip_norm=1.0,
        ),
        Method(
            "energy_ft",
            "Energy-FT",
            "linear",
            ("all",),
            losses.energy_margins,
            scores.negative_energy,
            starts_from="standard",
        ),
        Method(
            "preload_ft",
            "PreLoad-FT",
            "square_logit",
            ("ood_head", "all"),
            losses.extra_class,
            scores.in_domain_probability,
            starts_from="standard",
        ),
    )
}


def get(name: str) -> Method:
    """The row of a method.

    Raises:
        UserError: for an unknown name.
    """
    if name not in METHODS:
        raise UserError(f"unknown method {name!r}; expected one of {list(METHODS)}")
    return METHODS[name]
