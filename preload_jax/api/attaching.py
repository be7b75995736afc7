"""An OOD class for a trained network by the front door: `attach`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from preload_jax import guarantees, methods
from preload_jax.api import inputs, notices
from preload_jax.api.fitting import Variables, fit_by
from preload_jax.errors import UserError
from preload_jax.models import Classifier, LinearHead, SquareLogitHead
from preload_jax.models.classifier import require_classifier
from preload_jax.short_repr import short_repr
from preload_jax.training import fit as fitting
from preload_jax.training import starting
from preload_jax.training.data import TrainingData
from preload_jax.training.iterables import Batches
from preload_jax.training.loop import Report
from preload_jax.training.stage import Numbers, Settings


@dataclass(frozen=True)
class Attached:
    """A trained network with an OOD class beside its own.

    Attributes:
        model: the new classifier.
        variables: its variables, {"params", "batch_stats"}.  The backbone and the weights of the K classes are those
            that were given.
        bound: the largest confidence of each class, arrays [K]; see `guarantees.confidence_bound`.  It is over
            embeddings ≥ 0 if the network's operations prove that they are, and else over all embeddings.

    Example: see `attach`.
    """

    model: Classifier
    variables: dict[str, Any]
    bound: guarantees.ConfidenceBound

    __repr__ = short_repr


def attach(
    model: Classifier,
    variables: Variables,
    images: Any,
    labels: Any = None,
    outliers: Any = None,
    *,
    epochs: int = 10,
    batch_size: int = 128,
    learning_rate: float = 1e-1,
    weight_decay: float = 0.0,
    ood_weight: float = 1.0,
    seed: int = 0,
    on_report: Callable[[Report], None] | None = None,
    progress: Any = False,
) -> Attached:
    """Gives a trained network an OOD class and leaves everything it has untouched, to the bit (stage 1 of PreLoad-FT).

    Only w' and b of the square logit are trained, on the frozen network's features.  The features are computed only
    once, if they fit into memory and that saves work.
    `fit(..., method="preload", variables=attached.variables)` then fine-tunes everything, which is stage 2.

    Args:
        model: a `Classifier` with a `LinearHead`.
        variables: its trained variables.
        images, labels, outliers: as for `fit`.
        epochs, batch_size, learning_rate, weight_decay, ood_weight, seed, on_report, progress: as for `fit`, with Adam.

    Raises:
        UserError: for another head, or if data and model do not fit.

    Warns if embeddings stay bounded far away, as after a layer norm: the OOD class then need not win there.  Also if
    the network is right about its training images no more often than chance, as one that divides uint8 by 255 itself.

    Example:
        >>> import numpy as np
        >>> from preload_jax import attach, fit, make_classifier, predict
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 2, 64)
        >>> images = (np.array([60, 190])[labels][:, None, None, None] * np.ones((4, 4, 1))).astype(np.uint8)
        >>> outliers = rng.integers(0, 256, (64, 4, 4, 1), dtype=np.uint8)
        >>> model = make_classifier("mlp", "linear", num_classes=2, widths=(16,))
        >>> variables = fit(model, images, labels, epochs=40, batch_size=32, learning_rate=1e-2)
        >>> attached = attach(model, variables, images, labels, outliers, epochs=20, batch_size=32)
        >>> bool(predict(attached.model, attached.variables, 1e4 * images.astype(np.float32)).is_ood.all())
        True
        >>> bool(np.isfinite(attached.bound.log_odds).all())
        True
    """
    require_classifier(model, variables)
    # One's own subclass may compute anything, which the new head would not.
    known = type(model.head) is LinearHead and fitting.head_kind(model) == "linear"
    if not known or type(model) is not Classifier:
        got = type(model if known else model.head).__name__
        raise UserError(f"attach needs a Classifier with a LinearHead, got {got}")
    grown = Classifier(model.backbone, SquareLogitHead(model.head.num_classes))
    numbers = Numbers(epochs, "adam", learning_rate, weight_decay, ood_weight)
    settings = Settings(methods.get("preload_ft"), ood_head=numbers, batch_size=batch_size, seed=seed)

    def look(data: TrainingData | Batches) -> None:
        # With what it starts from, such as a distance that is new; the K logits are those of the network given.
        started = starting.variables_of(grown, settings, inputs.shape_of(data), variables)
        notices.of_chance(grown, started, *inputs.some_labelled(data, fitting.LOOKED_AT))

    trained, shape = fit_by(
        grown,
        settings,
        images,
        labels,
        outliers,
        variables,
        on_report=on_report,
        progress=progress,
        num_stages=1,
        called="attach",
        before=look,
    )
    # The bound over embeddings ≥ 0 is the lower one, but holds only where the network's operations prove that they are.
    nonnegative = guarantees.nonnegative_embeddings(grown, trained, shape)
    return Attached(grown, trained, guarantees.confidence_bound(trained["params"]["head"], nonnegative=nonnegative))
