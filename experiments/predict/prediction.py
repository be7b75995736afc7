"""What a trained network says of a few images, and by which rule they are OOD."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from rich.markup import escape
from rich.table import Table

from experiments.cli.display import Display
from experiments.cli.terminal import rendered
from experiments.evaluate import report
from experiments.runs.data import load_splits
from experiments.runs.trained import Trained
from preload_jax import api, metrics
from preload_jax.data.readers.single_images import SingleImage
from preload_jax.data.splits import Arrays, Splits
from preload_jax.errors import DataError, UserError
from preload_jax.evaluation import Scorer

_ARGMAX = "OOD where the OOD class is the most probable of all (the paper's rule)"


def check_tpr(tpr: float) -> None:
    """Raises a UserError unless it is a share."""
    if not 0.0 < tpr < 1.0:
        raise UserError(f"--tpr must be between 0 and 1, both excluded, got {tpr}")


def predict(
    network: Trained, images: Sequence[SingleImage], *, tpr: float, data_dir: Path | None, display: Display
) -> dict[str, Any]:
    """Class, confidence, P(OOD), score and verdict of each image, and the rule; for JSON.

    Networks without an OOD class call an image OOD when its score is below what a share `tpr` of the data set's
    validation images reaches (of its test images where none are held out); without the data set, of the test images
    that the run was evaluated on; without those, nothing is said.

    Raises:
        DataError: when the method's score needs the training images (ddu) and they are not prepared.
    """
    method, spec = network.method, network.spec
    splits = None
    if not method.has_ood_class:
        splits = _load(network, data_dir, required=method.scores_features and network.gaussians is None)
    nothing = Arrays(np.empty((0, *spec.image_shape), np.uint8), np.empty(0, np.int32))
    scorer, _ = report.scorer_of(
        network.config,
        network.model,
        network.variables,
        train=splits.train if splits else nothing,
        display=display,
        fitted=network.gaussians,
    )
    threshold, rule = None, _ARGMAX
    if not method.has_ood_class:
        threshold, rule = _threshold(network, splits, scorer, tpr)
    said = api.predict(
        network.model,
        network.variables,
        _stack(images),
        score=scorer.score,
        ood_class=scorer.has_ood_class,
        threshold=threshold,
        batch_size=min(500, len(images)),
    )
    rows = []
    for i, image in enumerate(images):
        rows.append(
            {
                "image": image.name,
                "changes": list(image.changes),
                "label": int(said.label[i]),
                "class": spec.class_names[said.label[i]],
                "confidence": float(said.probabilities[i].max()),
                "ood_probability": None if said.ood_probability is None else float(said.ood_probability[i]),
                "score": float(said.score[i]),
                "is_ood": None if said.is_ood is None else bool(said.is_ood[i]),
            }
        )
    return {
        "source": str(network.source),
        "dataset": spec.name,
        "method": method.name,
        "rule": rule,
        "threshold": threshold,
        "higher_score": "in_domain",
        "images": rows,
    }


def _load(network: Trained, data_dir: Path | None, *, required: bool) -> Splits | None:
    """The data set; None where it is not here and can be done without."""
    config = network.config
    try:
        return load_splits(config, data_dir=data_dir)
    except DataError:
        if required:
            raise
        return None


def _threshold(network: Trained, splits: Splits | None, scorer: Scorer, tpr: float) -> tuple[float | None, str]:
    """The score at which a share `tpr` of in-domain images passes, and the rule in words."""
    name = network.spec.name
    if splits is not None:
        kind, arrays = ("validation", splits.validation) if len(splits.validation) else ("test", splits.test)
        scores = scorer(arrays.images).scores
        source = f"the {len(arrays):,} {kind} images of {name}"
    elif network.run_dir is not None and network.run_dir.scores.is_file():
        with np.load(network.run_dir.scores) as file:
            scores = file["in_domain"]
        source = f"the {len(scores):,} test images of {name} that the run was evaluated on"
    else:
        return None, f"No verdict: {name} is not here, with whose images the threshold is chosen (--data-dir)"
    threshold = float(metrics.threshold_at_tpr(jnp.asarray(scores), tpr=tpr))
    return threshold, f"OOD where the score is below {threshold:.4g}, which {100 * tpr:g} % of {source} reach"


def _stack(images: Sequence[SingleImage]) -> np.ndarray:
    """All as one array: uint8, or float32 where one of them is."""
    if all(image.image.dtype == np.uint8 for image in images):
        return np.stack([image.image for image in images])
    floats = [x.image / np.float32(255) if x.image.dtype == np.uint8 else x.image for x in images]
    return np.stack(floats)


def table(values: dict[str, Any], *, width: int | None = None) -> str:
    """The predictions as text for a terminal."""
    view = Table(title=escape(f"{values['dataset']}, {values['method']}, {values['source']}"), title_justify="left")
    view.add_column("image", overflow="fold")
    view.add_column("class")
    for name in ("confidence", "P(OOD)", "score"):
        view.add_column(name, justify="right")
    view.add_column("verdict")
    for row in values["images"]:
        ood = row["ood_probability"]
        view.add_row(
            escape(row["image"]),
            escape(row["class"]),
            f"{100 * row['confidence']:.1f} %",
            "–" if ood is None else f"{100 * ood:.1f} %",
            f"{row['score']:.3g}",
            {True: "OOD", False: "in-domain", None: "–"}[row["is_ood"]],
        )
    changes = [f"{row['image']} was {', '.join(row['changes'])}" for row in values["images"] if row["changes"]]
    return rendered(view, f"{values['rule']}.  A higher score means more in-domain.", *changes, width=width)
