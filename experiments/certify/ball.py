"""How well OOD images are told apart when each may be moved within an L∞ ball: as they are, attacked, guaranteed."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from rich.table import Table

from experiments.cli.display import Display
from experiments.cli.terminal import rendered
from experiments.cli.visible import named
from experiments.runs import titles
from preload_jax import guarantees
from preload_jax.devices import batches
from preload_jax.errors import UserError
from preload_jax.methods import Method
from preload_jax.models import Classifier
from preload_jax.models.classifier import MAX_INPUT
from preload_jax.models.mixtures import is_mixture

# Images of each OOD set that are looked at, the first ones.
_MOST = 1000


def require(model: Classifier, method: Method, *, epsilon: float, farthest: float) -> None:
    """Refuses what has no bound on a ball, before anything is computed.

    Args:
        model: the network.
        method: of the run.
        epsilon: the ball's radius.
        farthest: the largest value that images of the made OOD sets have.

    Raises:
        UserError: for a score that is not of logits, a mean over networks or weights, or too large a ball.
    """
    if farthest + epsilon >= MAX_INPUT:
        raise UserError(
            f"--ball={epsilon:g} leaves what networks take unchanged, values below {MAX_INPUT:g}; give less: 1 is"
            " already all images in [0, 1], and 0.01 is usual"
        )
    if method.scores_features:
        raise UserError(f"--ball bounds scores of logits, and {method.name} scores features; leave it out")
    if is_mixture(model):
        raise UserError(
            f"--ball bounds what one network makes of its features, and {method.name} mixes several answers; leave it"
            " out"
        )


def measure(
    model: Classifier,
    variables: Mapping[str, Any],
    *,
    method: Method,
    epsilon: float,
    test_images: np.ndarray,
    ood_images: Mapping[str, Any],
    seed: int,
    display: Display,
) -> dict[str, Any]:
    """By OOD set AUROC as it is, after an attack, and guaranteed, and the largest confidences; for JSON.

    Args:
        model, variables: the network.
        method: of the run, whose score is bounded.
        epsilon: the ball's radius, of images in [0, 1].
        test_images: in-domain, which nobody moves.
        ood_images: by the set's name, as for `certificate.certify`; the first 1,000 of each are looked at.
        seed: of the attack.
        display: shows progress.

    Raises:
        UserError: for a network with an operation that has no rule.
    """

    def found(images: np.ndarray, radius: float, steps: int) -> guarantees.BallCertificate:
        return guarantees.ball_certificate(model, variables, images, radius, score=method.score, steps=steps, seed=seed)

    sets = {}
    with display.progress(f"L∞ balls of {epsilon:g}", total=1 + len(ood_images), unit="sets") as update:
        inside = found(test_images, 0.0, 0).scores
        update(1)
        for name, images in ood_images.items():
            ball = found(_first(images), epsilon, 40)
            sets[name] = {
                "size": len(ball.scores),
                **ball.auroc(inside),
                "guaranteed_confidence_mean": float(np.mean(ball.largest_confidence)),
            }
            update(1 + len(sets))
    return {"epsilon": epsilon, "score": method.score, "sets": sets}


def _first(given: Any) -> np.ndarray:
    """The first images of an array, or of blocks that an iterator yields, or of what a function gives of these."""
    images = given() if callable(given) else given
    if not isinstance(images, Iterator):
        return images[:_MOST]
    return np.concatenate(list(itertools.islice(batches.regrouped(images, _MOST), 1)))


def table(values: Mapping[str, Any]) -> str:
    """As text for a terminal."""
    view = Table(title=f"OOD images moved by at most {values['epsilon']:g} in each value: AUROC", title_justify="left")
    view.add_column("OOD test set")
    for title in ("images", "as they are", "attacked", "guaranteed", "mean of largest confidence, guaranteed"):
        view.add_column(title, justify="right")
    for name, row in values["sets"].items():
        shown = [f"{100 * row[key]:.1f}" for key in ("auroc", "attacked", "guaranteed", "guaranteed_confidence_mean")]
        view.add_row(named(titles.ood(name)), f"{row['size']:,}", *shown)
    return rendered(view, "In percent. No point of any ball scores higher than what is guaranteed.\n")
