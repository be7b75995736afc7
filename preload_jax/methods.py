"""The training methods, as data: one row each, from which training, evaluation, help, titles and tables derive.

A row names its objective (`losses`), step (`training.stage.STEPS`) and score (`scores`); training and evaluation bind
the names.  So nothing here imports JAX, and a command's help is quick.
"""

from dataclasses import dataclass
from typing import Any

from preload_jax.errors import UserError, unknown


@dataclass(frozen=True)
class Method:
    """One row.

    Attributes:
        name: as the command line spells it.
        title: as the paper's tables spell it.
        head: "linear", "none_class", "square_logit", "laplace", "rgpr" or "ccu", see `models.make_classifier`.
        stages: what is trained, in order: "all", or "ood_head" (w' and b alone).  Empty: nothing is.
        objective: name of the combined objective, a function of `losses`.
        score: name of the score, a function of `scores`; or of the detector that scores features ("ddu").
        starts_from: the method whose trained network is the starting point; None: random weights.
        uses_outliers: whether training sees auxiliary OOD images.
        makes_noise: whether it makes OOD images of its own, in each step.
        step: name of the training step.
        clip_norm: limit of the gradient's 2-norm; None for none.
        options: the settings that mean something for this method and not for every one.
        own: numbers that only such methods have (`own_numbers`), and their usual values.
        ood_weight: λ where it was not tuned.
        distance: κ of the distance feature that the network then has, see `models.WithDistance`; None for none.
        min_weight, min_distance_weight: floors under the OOD class's weights, see `models.SquareLogitHead`.
        in_paper: whether the paper has it.  The others are this project's own.
        numbers_of: the method whose tuned numbers it takes, where the paper does not have it.
        draws: whether its answers are means over draws of the network by its dropout, see `models.MCDropout`.
    """

    name: str
    title: str
    head: str
    stages: tuple[str, ...]
    objective: str
    score: str
    starts_from: str | None = None
    uses_outliers: bool = True
    makes_noise: bool = False
    step: str = "gradient"
    clip_norm: float | None = None
    options: tuple[str, ...] = ()
    own: tuple[tuple[str, float | int], ...] = ()
    ood_weight: float = 1.0
    distance: float | None = None
    min_weight: float = 0.0
    min_distance_weight: float | None = None
    in_paper: bool = True
    numbers_of: str = ""
    draws: bool = False

    @property
    def tuned_as(self) -> str:
        """The method whose tuned numbers are its own."""
        return self.numbers_of or self.name

    @property
    def sees_ood(self) -> bool:
        """Whether training sees OOD images, given or made, and so has a λ."""
        return self.uses_outliers or self.makes_noise

    @property
    def has_ood_class(self) -> bool:
        """Whether the last logit is the OOD class."""
        return self.head in ("none_class", "square_logit")

    @property
    def fine_tunes(self) -> bool:
        """Whether training goes on from a trained network."""
        return self.starts_from is not None and bool(self.stages)

    @property
    def scores_features(self) -> bool:
        """Whether the score is a detector's, fitted to the features of the training images."""
        return self.score == "ddu"


_OOD_CLASS: dict[str, Any] = {"objective": "extra_class", "score": "in_domain_probability"}
_EXPOSURE: dict[str, Any] = {"head": "linear", "objective": "outlier_exposure", "score": "max_probability"}
_ALL = ("all",)
_SQUARE_LOGIT = ("objective_half", "head_scale", "exponent")
# A network with a certificate in input space: docs/guarantees.md has what the floors cost and give.
_CERTIFIED: dict[str, Any] = {"in_paper": False, "distance": 1.0, "min_distance_weight": 1.0}
_FLOORS = ("distance", "min_weight", "min_distance_weight")
# A softmax network that is trained otherwise, from the papers that the paper cites; scored as Standard.
_SOFTMAX: dict[str, Any] = {
    "head": "linear",
    "stages": _ALL,
    "score": "max_probability",
    "uses_outliers": False,
    "in_paper": False,
    "numbers_of": "standard",
}
# A little Bayes.
_BAYES: dict[str, Any] = {
    "objective": "classification",
    "score": "max_probability",
    "uses_outliers": False,
    "in_paper": False,
    "numbers_of": "standard",
}

# In the order of the paper's tables, and then what is ours.
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("standard", "Standard", "linear", _ALL, "classification", "max_probability", uses_outliers=False),
        Method(
            "ddu",
            "DDU",
            "linear",
            (),
            "classification",
            "ddu",
            starts_from="standard",
            uses_outliers=False,
            options=("ddu_jitter",),
        ),
        Method("nc", "NC", "none_class", _ALL, **_OOD_CLASS, options=("objective_half",)),
        Method("oe", "OE", stages=_ALL, **_EXPOSURE, ood_weight=0.5, options=("oe_class_mean",)),
        Method("preload", "PreLoad", "square_logit", _ALL, **_OOD_CLASS, options=_SQUARE_LOGIT),
        Method(
            "oe_ft",
            "OE-FT",
            stages=_ALL,
            **_EXPOSURE,
            starts_from="standard",
            ood_weight=0.5,
            options=("oe_class_mean",),
        ),
        Method(
            "doe_ft",
            "DOE-FT",
            stages=_ALL,
            **_EXPOSURE,
            starts_from="standard",
            step="worst_case",
            clip_norm=1.0,
            options=("warmup_epochs", "perturbation_decay"),
        ),
        Method(
            "energy_ft",
            "Energy-FT",
            "linear",
            _ALL,
            "energy_margins",
            "negative_energy",
            starts_from="standard",
            ood_weight=0.1,
            options=("margin_in", "margin_ood"),
        ),
        Method(
            "preload_ft",
            "PreLoad-FT",
            "square_logit",
            ("ood_head", "all"),
            **_OOD_CLASS,
            starts_from="standard",
            options=("init", *_SQUARE_LOGIT),
        ),
        Method(
            "preload_certified",
            "PreLoad certified",
            "square_logit",
            _ALL,
            **_OOD_CLASS,
            **_CERTIFIED,
            options=(*_SQUARE_LOGIT, *_FLOORS),
            min_weight=0.2,
            numbers_of="preload",
        ),
        Method(
            "preload_certified_ft",
            "PreLoad-FT certified",
            "square_logit",
            ("ood_head", "all"),
            **_OOD_CLASS,
            **_CERTIFIED,
            starts_from="standard",
            options=("init", *_SQUARE_LOGIT, *_FLOORS),
            # Embeddings of a network that was trained without a floor are large.
            min_weight=0.01,
            numbers_of="preload_ft",
        ),
        # Müller et al. (2019), their α for images.
        Method(
            "label_smoothing",
            "Label smoothing",
            objective="label_smoothing",
            own=(("label_smoothing", 0.1),),
            **_SOFTMAX,
        ),
        # Thulasidasan et al. (2019): α between 0.2 and 0.4 calibrates best.
        Method("mixup", "Mixup", objective="mixup", step="mixup", own=(("mixup_alpha", 0.3),), **_SOFTMAX),
        # The loss of Lin et al. (2017), for calibration with γ = 3 as in Mukhoti et al. (2020).
        Method("focal", "Focal", objective="focal", own=(("focal_gamma", 3.0),), **_SOFTMAX),
        # The penalty of Kumar et al. (2018), with λ = 2 as in the code of Mukhoti et al. (2020).
        Method("mmce", "MMCE", objective="mmce", own=(("mmce_weight", 2.0),), **_SOFTMAX),
        # Hein et al. (2019): as much noise as images; ACET moves it by 40 steps of ε / 40.
        Method("ceda", "CEDA", objective="low_confidence", step="noise", makes_noise=True, **_SOFTMAX),
        Method(
            "acet",
            "ACET",
            objective="low_confidence",
            step="noise",
            makes_noise=True,
            own=(("adversarial_epsilon", 0.3), ("adversarial_steps", 40)),
            **_SOFTMAX,
        ),
        # Meinke and Hein (2020): 100 Gaussians of images and of outliers, trained with a learning rate of 1e-5.
        Method(
            "ccu",
            "CCU",
            stages=_ALL,
            **(_EXPOSURE | {"head": "ccu"}),
            step="densities",
            options=("components",),
            own=(("density_learning_rate", 1e-5),),
            in_paper=False,
            numbers_of="standard",
        ),
        # The paper's future work.
        Method(
            "preload_adv",
            "PreLoad adversarial",
            "square_logit",
            _ALL,
            **_OOD_CLASS,
            step="adversarial",
            options=_SQUARE_LOGIT,
            own=(("adversarial_epsilon", 0.01), ("adversarial_steps", 5)),
            in_paper=False,
            numbers_of="preload",
        ),
        Method(
            "laplace",
            "Laplace",
            "laplace",
            (),
            **_BAYES,
            starts_from="standard",
            options=("covariance", "prior_precision"),
        ),
        # Kristiadi et al. (2022): Laplace of a network that was trained with outliers.
        Method(
            "laplace_oe",
            "Laplace, OE",
            "laplace",
            (),
            **_BAYES | {"uses_outliers": True, "numbers_of": "oe"},
            starts_from="oe",
            ood_weight=0.5,
            options=("covariance", "prior_precision"),
        ),
        # Kristiadi et al. (2021).  Their code finds σ² of the inputs by held-out likelihood: 9e-4 on SVHN, 4e-3 on
        # CIFAR-10 and 9e-3 on CIFAR-100; 3e-8 on MNIST, whose pixels at the border hardly vary.
        Method(
            "rgpr",
            "RGPR",
            "rgpr",
            (),
            **_BAYES,
            starts_from="standard",
            options=("covariance", "prior_precision"),
            own=(("spline_variance", 1e-3),),
        ),
        Method("mc_dropout", "MC dropout", "linear", _ALL, **_BAYES, options=("samples",), draws=True),
    )
}
# Those of the paper.
PAPER = tuple(name for name, row in METHODS.items() if row.in_paper)


def get(name: str) -> Method:
    """The row of a method.

    Raises:
        UserError: for an unknown name.
    """
    if name not in METHODS:
        raise UserError(unknown("method", name, METHODS))
    return METHODS[name]


def with_option(option: str) -> tuple[str, ...]:
    """The methods for which a setting means something; all of them where it is no method's own."""
    own = tuple(name for name, row in METHODS.items() if option in (*row.options, *dict(row.own)))
    return own or tuple(METHODS)
