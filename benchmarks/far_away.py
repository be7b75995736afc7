"""How often each detector calls far-away inputs OOD: its limit, and the network itself at t = 10⁶.

`python -m benchmarks.far_away` trains an MLP (or another network) on the digits with Adam, and one with SGD and weight
decay, and prints a table: of 10,000 directions, the percentage whose limit is below the threshold that 95 % of the
training images reach, and the percentage where the network's own score at t·u, in float32, agrees.
"""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

from preload_jax import detectors, fit, guarantees, make_classifier

NAMES = [
    name
    for name, row in detectors.TABLE.items()
    if row.far_away != "undecided" and not {"images", "ood_logit"} & set(row.needs)
]


def network(backbone: str, optimizer: str, epochs: int) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """A trained network and the digits."""
    data = load_digits()
    images, labels = (data.images[..., None] / 16 * 255).astype(np.uint8), data.target.astype(np.int32)
    sizes: dict[str, Any] = {
        "mlp": {"widths": (128, 128)},
        "lenet": {"width": 128},
        "wide_resnet": {"depth": 10, "widen_factor": 1},
    }
    model = make_classifier(backbone, "linear", num_classes=10, **sizes[backbone])
    options: dict[str, Any] = {"optimizer": "adam", "learning_rate": 2e-3}
    if optimizer == "sgd":
        options = {"optimizer": "sgd", "learning_rate": 0.1, "weight_decay": 5e-4}
    variables = fit(model, images, labels, epochs=epochs, batch_size=128, **options)
    return model, variables, images, labels


def shares(backbone: str, optimizer: str, epochs: int, num_directions: int) -> dict[str, tuple[float, float]]:
    """name → (share called OOD in the limit, share where t = 10⁶ says the same)."""
    model, variables, images, labels = network(backbone, optimizer, epochs)
    directions = jax.random.normal(jax.random.key(1), (num_directions, 8, 8, 1))
    own = {collection: tree["backbone"] for collection, tree in variables.items() if "backbone" in tree}
    slopes = guarantees.ray_slopes(model.backbone, own, directions)
    constants = guarantees.ray_constants(model.backbone, own, directions)
    linear = variables["params"]["head"]["linear"]
    head = linear["kernel"], linear["bias"]
    outputs = detectors.outputs(model, variables, images)
    far = detectors.outputs(model, variables, np.asarray(jnp.float32(1e6) * directions))
    largest = np.max(np.asarray(slopes, np.float64) @ np.asarray(head[0], np.float64), axis=1)
    print(f"{optimizer}: largest slope of a logit < 0 in {100 * np.mean(largest < 0):.2f} % of directions", flush=True)
    found = {}
    for name in NAMES:
        detector = detectors.fit(name, outputs, labels, head=head)
        threshold = np.quantile(detectors.score(detector, outputs), 0.05)
        is_ood = detectors.limit(detector, slopes, constants, head=head) < threshold
        found[name] = float(np.mean(is_ood)), float(np.mean((detectors.score(detector, far) < threshold) == is_ood))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--directions", type=int, default=10_000)
    parser.add_argument("--backbone", default="mlp", choices=["mlp", "lenet", "wide_resnet"])
    parser.add_argument("--epochs", type=int, default=30)
    options = parser.parse_args()
    found = {
        optimizer: shares(options.backbone, optimizer, options.epochs, options.directions)
        for optimizer in ("adam", "sgd")
    }
    print("| detector | Adam: OOD | agrees | SGD: OOD | agrees |\n|---|---|---|---|---|")
    for name in NAMES:
        cells = " | ".join(f"{100 * x:.2f} %" for optimizer in found for x in found[optimizer][name])
        print(f"| {detectors.TABLE[name].title} | {cells} |")


if __name__ == "__main__":
    main()
