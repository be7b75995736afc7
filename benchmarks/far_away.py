"""How often each detector calls far-away inputs OOD: its limit, and the network itself far out, in float64.

`python -m benchmarks.far_away` trains networks on the digits and prints a table.  Of random directions it has the
percentage whose limit is below the threshold that 95 % of the training images reach, and the percentage for which the
score of the network at t·u, computed in float64 throughout, gives the same verdict.  A constant agrees with a constant,
so one of the networks is made such that both verdicts occur: the same vector is subtracted from the weights of every
class.  No softmax probability changes by that, but the largest logit falls along half of the directions.
"""

import argparse
import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

from preload_jax import detectors, fit, guarantees, make_classifier
from preload_jax.detectors import Outputs
from preload_jax.guarantees.germs.rays import enable_x64

_BATCH = 500
_SIZES: dict[str, dict[str, Any]] = {
    "mlp": {"widths": (128, 128)},
    "lenet": {"width": 128},
    "wide_resnet": {"depth": 10, "widen_factor": 1},
}
_ADAM: dict[str, Any] = {"optimizer": "adam", "learning_rate": 2e-3}
_SGD: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 0.1, "weight_decay": 5e-4}


@dataclass(frozen=True)
class Network:
    """A trained backbone with a linear head, its training images, and its features t·s + a along rays.

    Attributes:
        backbone: x → features, in float64.
        head: (kernel [d, K], bias [K]); K + 1 columns with an OOD class.
        images, labels: of the training data.
        slopes, constants: s and a, [n, d].
    """

    backbone: Any
    head: tuple[np.ndarray, np.ndarray]
    images: np.ndarray
    labels: np.ndarray
    slopes: np.ndarray
    constants: np.ndarray

    def outputs(self, images: np.ndarray) -> list[Outputs]:
        """All that a detector may read, in float64, in batches."""
        kernel, bias = (jnp.asarray(part) for part in self.head)

        @jax.tree_util.Partial
        def network(x: Any) -> Outputs:
            features = self.backbone(x)
            return Outputs(features, features @ kernel + bias[None])

        forward, found = jax.jit(lambda x: network(x)), []
        for start in range(0, len(images), _BATCH):
            batch = images[start : start + _BATCH]
            said = forward(batch)
            found.append(Outputs(np.asarray(said.features), np.asarray(said.logits), images=batch, network=network))
        return found


def trained(kind: str, method: str, epochs: int, directions: Any, **options: Any) -> Network:
    """A network trained on the digits; with uniform noise as outliers where the method has an OOD class."""
    data = load_digits()
    images, labels = (data.images[..., None] / 16 * 255).astype(np.uint8), data.target.astype(np.int32)
    head = {"standard": "linear", "nc": "none_class"}[method]
    model = make_classifier(kind, head, num_classes=10, **_SIZES[kind])
    noise = np.random.default_rng(0).integers(0, 256, images.shape, np.uint8) if method == "nc" else None
    variables = fit(model, images, labels, noise, epochs=epochs, batch_size=128, method=method, **options)
    own = {collection: tree["backbone"] for collection, tree in variables.items() if "backbone" in tree}
    linear = variables["params"]["head"]["linear"]
    exact = dataclasses.replace(model.backbone, dtype=jnp.float64, parent=None, name=None)
    with enable_x64(True):
        in_float64 = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)), own)
    return Network(
        jax.tree_util.Partial(exact.apply, in_float64),
        (np.asarray(linear["kernel"], np.float64), np.asarray(linear["bias"], np.float64)),
        images / 255.0,
        labels,
        np.asarray(guarantees.ray_slopes(model.backbone, own, directions), np.float64),
        np.asarray(guarantees.ray_constants(model.backbone, own, directions), np.float64),
    )


def falling(network: Network) -> Network:
    """The same network with one vector less in the weights of every class: p₁ < 0 in half of the directions."""
    kernel, bias = network.head
    sums = network.slopes.sum(axis=1)
    moving = sums > 0.0
    share = np.median((network.slopes @ kernel).max(axis=1)[moving] / sums[moving])
    return dataclasses.replace(network, head=(kernel - share, bias))


def detectors_of(method: str) -> list[str]:
    """Those whose limit is derived, and that read what such a network has."""
    rows = {name: row for name, row in detectors.TABLE.items() if row.far_away != "undecided"}
    return ["nc"] if method == "nc" else [name for name, row in rows.items() if "ood_logit" not in row.needs]


def verdicts(network: Network, names: list[str], directions: Any, t: float) -> dict[str, tuple[float, float, float]]:
    """name → (share called OOD in the limit, share where the score at t says the same, of the others the margin).

    The margin: how near the limits of the rays that differ are to the threshold at most, as a share of it.
    """
    found = {}
    with enable_x64(True):
        train, far = network.outputs(network.images), network.outputs(t * np.asarray(directions, np.float64))
        whole = Outputs(*(np.concatenate([getattr(part, name) for part in train]) for name in ("features", "logits")))
        for name in names:
            detector = detectors.fit(name, whole, network.labels, head=network.head, num_classes=10)
            threshold = float(np.quantile(detectors.score(detector, train), 0.05))
            limit = detectors.limit(detector, network.slopes, network.constants, head=network.head)
            differ = (detectors.score(detector, far) < threshold) != (limit < threshold)
            margin = np.abs(limit[differ] - threshold).max(initial=0.0) / max(abs(threshold), 1e-300)
            found[name] = float(np.mean(limit < threshold)), 1.0 - float(np.mean(differ)), float(margin)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--directions", type=int, default=10_000)
    parser.add_argument("--backbone", default="mlp", choices=list(_SIZES))
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--distance", type=float, default=1e8, help="t")
    options = parser.parse_args()
    directions = jax.random.normal(jax.random.key(1), (options.directions, 8, 8, 1))
    networks = {
        "Adam": ("standard", trained(options.backbone, "standard", options.epochs, directions, **_ADAM)),
        "SGD": ("standard", trained(options.backbone, "standard", options.epochs, directions, **_SGD)),
    }
    networks["falling"] = ("standard", falling(networks["Adam"][1]))
    networks["NC"] = ("nc", trained(options.backbone, "nc", options.epochs, directions, **_ADAM))
    found = {}
    for title, (method, network) in networks.items():
        largest = (network.slopes @ network.head[0]).max(axis=1)
        print(f"{title}: p₁ < 0 in {100 * np.mean(largest < 0):.2f} % of {options.directions:,} directions", flush=True)
        found[title] = verdicts(network, detectors_of(method), directions, options.distance)
    print(f"\n| detector | {' | '.join(f'{title}: OOD | agrees' for title in found)} |")
    print(f"|---|{'---|' * 2 * len(found)}")
    for name in [*detectors_of("standard"), "nc"]:
        cells = [found[title].get(name) for title in found]
        texts = ["– | –" if cell is None else f"{100 * cell[0]:.2f} % | {100 * cell[1]:.2f} %" for cell in cells]
        print(f"| {detectors.TABLE[name].title} | {' | '.join(texts)} |")
    for title, rows in found.items():
        for name, (_, same, margin) in rows.items():
            if same < 1.0:
                print(f"{title}, {name}: the rays that differ have limits within {100 * margin:.2g} % of the threshold")


if __name__ == "__main__":
    main()
