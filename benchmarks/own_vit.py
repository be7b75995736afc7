"""What can be proved about a vision transformer of one's own, plain and with the distance feature: text, and times.

    python -m benchmarks.own_vit --epochs=100

trains a ViT of two blocks on the digits twice, and certifies both, as `experiments.certify` does with a run.  It ends
in a layer norm, so its embeddings are bounded: theorem 2 says nothing, and the input radius does.
"""

import argparse
import time
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array

from experiments.certify.certificate import certify
from experiments.certify.table import table
from preload_jax import fit
from preload_jax.data import datasets
from preload_jax.models import Classifier, SquareLogitHead, WithDistance


class ViT(nn.Module):
    """Patches with positions, blocks of layer norm, attention and GELU, a layer norm, and the mean of all tokens."""

    patch: int = 2
    width: int = 48
    blocks: int = 2
    heads: int = 4

    @nn.compact
    def __call__(self, images: Array, *, train: bool = False) -> Array:
        size = (self.patch, self.patch)
        x = nn.Conv(self.width, size, size, padding="VALID")(images)
        x = x.reshape(len(x), -1, self.width)
        x = x + self.param("positions", nn.initializers.normal(0.02), x.shape[1:])
        for _ in range(self.blocks):
            x = x + nn.MultiHeadDotProductAttention(self.heads)(nn.LayerNorm()(x))
            y = nn.gelu(nn.Dense(2 * self.width)(nn.LayerNorm()(x)))
            x = x + nn.Dense(self.width)(y)
        return nn.LayerNorm()(x).mean(axis=1)


def main() -> None:
    """Trains, certifies and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directions", type=int, default=1000)
    options = parser.parse_args()
    spec = datasets.get("digits")
    splits = datasets.load(spec)
    test, images = splits.test, splits.train.images
    outliers = datasets.load_outliers("photo", in_domain=spec, train_images=images)
    ood = {
        name: datasets.load_ood(name, in_domain=spec, test_images=test.images)
        for name in ("photo", "smooth", "faraway", "faraway_rd")
    }
    head = SquareLogitHead(10, initial_scale="inverse_width")
    floors = SquareLogitHead(10, initial_scale="inverse_width", min_weight=0.2, min_distance_weight=1.0)
    for title, model in {
        "ViT": Classifier(ViT(), head),
        "ViT with the distance feature": Classifier(WithDistance(ViT()), floors),
    }.items():
        how: dict[str, Any] = {"epochs": options.epochs, "seed": options.seed, "learning_rate": 2e-3}
        variables = fit(model, images, splits.train.labels, outliers, optimizer="adam", **how)
        logits = jax.jit(model.apply)(variables, jnp.asarray(test.images / 255.0, jnp.float32))
        accuracy = float((logits[:, :10].argmax(axis=1) == test.labels).mean())
        start = time.perf_counter()
        found = certify(
            model,
            variables,
            num_classes=10,
            test_images=test.images,
            ood_images=ood,
            key=jax.random.key(options.seed),
            num_directions=options.directions,
        )
        took = time.perf_counter() - start
        names = tuple(str(label) for label in range(10))
        print(table(found, class_names=names, title=f"{title}: {100 * accuracy:.1f} % accuracy", width=100))
        print(f"certified in {took:.1f} s\n", flush=True)


if __name__ == "__main__":
    main()
