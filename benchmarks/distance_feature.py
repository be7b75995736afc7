"""What floors under the OOD class's weights and the distance feature do to a network: a table.

    python -m benchmarks.distance_feature --epochs=40 --seeds=2
    python -m benchmarks.distance_feature --width=1024 --kappa=2 --floors 0.05,1 0.05,0.25
    python -m benchmarks.distance_feature --runs runs/fashion_mnist/preload/seed0 …

trains on the digits, or measures finished runs.  One row a head and seed: accuracy, the largest log-odds that any input
can get, the radius in typical distances beyond which no class reaches 0.5, the largest confidence on random rays from
the training mean at 1 to 30 typical distances, and the FPR-95 of means of two test images by two scores: 1 − P(OOD),
and the likeliest class's log-odds.
"""

import argparse
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from experiments.runs import folder as folders
from experiments.runs.data import load_splits
from preload_jax import fit, guarantees, metrics, scores
from preload_jax.data import datasets
from preload_jax.data.splits import Splits
from preload_jax.devices import forward
from preload_jax.models import (
    MLP,
    Classifier,
    SquareLogitHead,
    WithDistance,
    features_nonnegative,
    head_options,
    typical_distance,
)
from preload_jax.training.augment import Augmentations, Rays

# (min_weight, min_distance_weight); None for no distance at all.
FLOORS = ((0.0, None), (0.0, 0.0), (0.05, 0.05), (0.2, 0.2), (0.02, 1.0), (0.2, 1.0))
DISTANCES = (1.0, 2.0, 3.0, 5.0, 10.0, 30.0)
HEADER = (
    f"floor, of the distance | seed | accuracy | ECE | log-odds | radius | rays at {DISTANCES} | FPR-95 by OOD, class"
)


class NormalizedMLP(nn.Module):
    """Layer norms and GELU, and a layer norm last: embeddings are bounded, and the paper's theorem says nothing."""

    widths: tuple[int, ...] = (256, 256)

    @nn.compact
    def __call__(self, images: Array, *, train: bool = False) -> Array:
        x = images.reshape(len(images), -1)
        for _ in range(2):
            x = nn.gelu(nn.LayerNorm()(nn.Dense(self.widths[0])(x)))
        return nn.LayerNorm()(nn.Dense(self.widths[-1])(x))


BACKBONES = {"mlp": MLP, "norms": NormalizedMLP}


def train(
    backbone: str,
    floors: tuple[float, float | None],
    data: dict[str, Any],
    *,
    width: int,
    kappa: float,
    epochs: int,
    seed: int,
    augmentations: Augmentations,
) -> Any:
    """(model, variables) of one row."""
    min_weight, min_distance_weight = floors
    head = SquareLogitHead(
        10, initial_scale="inverse_width", min_weight=min_weight, min_distance_weight=min_distance_weight
    )
    body: nn.Module = BACKBONES[backbone](widths=(256, width))
    if min_distance_weight is not None:
        body = WithDistance(body, weight=kappa, **data["typical"])
    model = Classifier(body, head)
    variables = fit(
        model, data["images"], data["labels"], data["outliers"], epochs=epochs, seed=seed, augmentations=augmentations
    )
    return model, variables


def measure(model: Classifier, variables: Any, data: dict[str, Any]) -> dict[str, Any]:
    """The row's numbers."""
    logits, means, rays = (
        forward.predict(model, variables, np.asarray(images, np.float32))[0]
        for images in (data["test_images"] / 255, data["means"], data["rays"])
    )
    found = metrics.classification(logits, data["test_labels"], has_ood_class=True)
    nonnegative = features_nonnegative(model.backbone)
    bound = guarantees.confidence_bound(
        variables["params"]["head"], nonnegative=nonnegative, **head_options(model.head)
    )
    radius = float("inf")
    if isinstance(model.backbone, WithDistance):
        radius = guarantees.input_radius(model, variables, 0.5).relative
    on_rays = np.asarray(jax.nn.softmax(jnp.asarray(rays)))[:, :-1].max(axis=1).reshape(len(DISTANCES), -1)
    rules = (scores.in_domain_probability, _class_log_odds)
    return {
        "accuracy": 100 * found["accuracy"],
        "ece": 100 * found["ece"],
        "largest log-odds": bound.log_odds.max(),
        "radius": radius,
        "rays": on_rays.max(axis=1),
        "fpr": [100 * float(metrics.fpr_at_tpr(*(np.asarray(rule(x)) for x in (logits, means)))) for rule in rules],
    }


def _class_log_odds(logits: Any) -> Array:
    """log P − log(1 − P) of the likeliest of the K classes."""
    log_p = jax.nn.log_softmax(jnp.asarray(logits))[:, :-1].max(axis=1)
    return log_p - jnp.log(-jnp.expm1(log_p))


def load(num_rays: int) -> dict[str, Any]:
    """The digits, crops of a photo as outliers, and what a network is asked about."""
    spec = datasets.get("digits")
    splits = datasets.load(spec)
    images = splits.train.images
    return {
        "images": images,
        "labels": splits.train.labels,
        "outliers": datasets.load_outliers("photo", in_domain=spec, train_images=images),
        **probes(splits, num_rays),
    }


def probes(splits: Splits, num_rays: int) -> dict[str, Any]:
    """What a network is asked about: test images, means of two of different classes, rays from the training mean."""
    images, test_images, test_labels = splits.train.images, splits.test.images, splits.test.labels
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, len(test_images), (2, 4000))
    differ = test_labels[first] != test_labels[second]
    typical = typical_distance(images)
    units = rng.normal(size=(num_rays, *images.shape[1:]))
    units /= np.linalg.norm(units.reshape(num_rays, -1), axis=1).reshape(-1, 1, 1, 1)
    return {
        "test_images": test_images,
        "test_labels": test_labels,
        "means": (test_images[first[differ]] / 255 + test_images[second[differ]] / 255)[:2000] / 2,
        "rays": np.concatenate([typical["center"] + t * typical["scale"] * units for t in DISTANCES]),
        "typical": typical,
    }


def show(floors: tuple[float | None, float | None], seed: int, row: dict[str, Any]) -> None:
    """Prints a row."""
    rays, fpr = (" ".join(f"{x:.2f}" for x in row[name]) for name in ("rays", "fpr"))
    print(
        f"{floors[0]}, {floors[1]} | {seed} | {row['accuracy']:.1f} | {row['ece']:.1f} |"
        f" {row['largest log-odds']:.1f} | {row['radius']:.1f} | {rays} | {fpr}",
        flush=True,
    )


def main() -> None:
    """Trains and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", choices=sorted(BACKBONES), default="mlp")
    parser.add_argument("--width", type=int, default=256, help="of the features")
    parser.add_argument("--kappa", type=float, default=1.0, help="κ, which multiplies the distance")
    parser.add_argument("--floors", nargs="+", help="pairs such as 0.05,1 in place of the table's")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rays", type=int, default=1000)
    parser.add_argument("--ray-outliers", type=float, default=0.0, help="share of outliers that are rays instead")
    parser.add_argument("--runs", type=Path, nargs="+", help="finished runs, measured instead")
    options = parser.parse_args()
    print(HEADER, flush=True)
    if options.runs:
        for folder in options.runs:
            run = folders.load_run(folder)
            data = probes(load_splits(run.config, data_dir=None), options.rays)
            floors = (run.config.min_weight, run.config.min_distance_weight)
            show(floors, run.config.seed, measure(run.model, run.variables, data))
        return
    augmentations = Augmentations(rays=Rays(options.ray_outliers) if options.ray_outliers else None)
    data = load(options.rays)
    asked = [tuple(map(float, pair.split(","))) for pair in options.floors or ()]
    for floors in asked or FLOORS:
        for seed in range(options.seeds):
            model, variables = train(
                options.backbone,
                floors,
                data,
                width=options.width,
                kappa=options.kappa,
                epochs=options.epochs,
                seed=seed,
                augmentations=augmentations,
            )
            show(floors, seed, measure(model, variables, data))


if __name__ == "__main__":
    main()
