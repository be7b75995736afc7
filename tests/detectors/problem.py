"""One small problem that all tests of detectors share: clusters of ReLU features, a head, maps, inputs, a network."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax import detectors

N, D, K = 640, 24, 5
LABELS = np.arange(N) % K


@cache
def arrays():
    """name → array in float64; the head classifies most training examples correctly, and predicts every class."""
    rng = np.random.default_rng(7)
    centres = rng.normal(size=(K, D))
    mix = rng.normal(size=(D, D)) / np.sqrt(D)

    def features(labels, noise):
        return np.log1p(np.exp(1.5 * centres[labels] + noise * (rng.normal(size=(len(labels), D)) @ mix)))

    train = features(LABELS, 1.0)
    test = np.concatenate([features(np.arange(30) % K, 1.0), features(np.arange(30) % K, 3.0)])
    # The nearest mean's classifier, a little off, and so soft that no probability is below 1e-7.
    means = np.log1p(np.exp(1.5 * centres))
    middle = means.mean(axis=0)
    kernel = 0.18 * (means - middle).T + 0.02 * rng.normal(size=(D, K))
    bias = -0.09 * np.sum((means - middle) * (means + middle), axis=1) + 0.1 * rng.normal(size=K)
    maps = [rng.normal(size=(n, 3, 3, 8)) ** 2 + 0.5 * (np.arange(n) % K)[:, None, None, None] for n in (N, 60)]
    final = [rng.normal(size=(n, 3, 3, D)) ** 2 for n in (N, 60)]
    images, weights = rng.uniform(size=(60, 10)), rng.normal(size=(10, D))
    train_images = rng.uniform(size=(N, 10))
    return {
        "train": train,
        "test": test,
        "kernel": kernel,
        "bias": bias,
        "train_logits": train @ kernel + bias,
        "test_logits": test @ kernel + bias,
        "train_maps": maps[0],
        "test_maps": maps[1],
        "train_final": final[0],
        "test_final": final[1],
        "train_images": train_images,
        "images": images,
        "weights": weights,
    }


def head():
    a = arrays()
    return a["kernel"], a["bias"]


def network(images):
    """A JAX function of inputs: one ReLU layer, and the head."""
    # Of the images' type: constants in float64 would be cached as such where float64 is on, and wrong where it is off.
    weights, kernel, bias = (jnp.asarray(arrays()[name], images.dtype) for name in ("weights", "kernel", "bias"))
    features = jax.nn.relu(images @ weights)
    return detectors.Outputs(features, features @ kernel + bias[None])


def outputs(part="test", dtype=np.float64):
    """`Outputs` of the training or the test part; the last map has as many channels as features."""
    a = {name: x.astype(dtype) for name, x in arrays().items()}
    images = a["images"] if part == "test" else a["train_images"]
    return detectors.Outputs(a[part], a[f"{part}_logits"], (a[f"{part}_maps"], a[f"{part}_final"]), images, network)


# Options that other implementations have fixed, or that are needed to fit the problem's size.
OPTIONS = {"nnguide": {"k": 10}, "vim": {"dims": 10}, "residual": {"dims": 10}}


def fitted(name, dtype=np.float64, **options):
    """The detector of that name, fitted to the training part."""
    return detectors.fit(name, outputs("train", dtype), LABELS, head=head(), **{**OPTIONS.get(name, {}), **options})


def scores(name, dtype=np.float64, **options):
    """Its scores of the test part."""
    return detectors.score(fitted(name, dtype, **options), outputs("test", dtype))
