"""What the training images say before the first step; the distance has a file of its own."""

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax import bayes, methods, models
from preload_jax.data.specs import Augmentation
from preload_jax.training import augment
from preload_jax.training.augment import Augmentations
from preload_jax.training.data import TrainingData
from preload_jax.training.prepared import prepared
from preload_jax.training.stage import Numbers, Settings

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (12, 4, 4, 1), np.uint8)


def test_laplace_of_outlier_exposure_sees_as_many_outliers_as_images_in_their_shape():
    """In colour and larger: they are cropped and turn grey, as in training."""
    outliers = np.arange(20, dtype=np.uint8)[:, None, None, None] * np.ones((1, 6, 6, 3), np.uint8)
    model = models.make_classifier("mlp", "laplace", num_classes=3, widths=(8,))
    variables = model.init(jax.random.key(0), jnp.ones((1, 4, 4, 1)))
    settings = Settings(
        methods.get("laplace_oe"),
        Numbers(ood_weight=0.5),
        prior_precision=1.0,
        augmentations=Augmentations(outliers=Augmentation(1.0, flip=False, pad=0, mode="edge")),
    )
    data = TrainingData(IMAGES, np.arange(12) % 3, outliers)
    found = prepared(model, settings, {}, variables, lambda: data)["batch_stats"]["head"]
    order, _ = jax.random.split(jax.random.key(settings.seed))
    chosen = np.sort(np.asarray(jax.random.permutation(order, 20))[:12])
    # Each outlier is of one grey, so that no crop changes it.
    grey = np.broadcast_to(np.asarray(augment.luma(jnp.asarray(outliers[chosen]))), (12, 6, 6, 1))[:, :4, :4]
    linear = models.make_classifier("mlp", "linear", num_classes=3, widths=(8,))
    own = {"params": {**variables["params"], "head": {"linear": variables["params"]["head"]["linear"]}}}
    _, expected = bayes.fit_laplace(linear, own, IMAGES, prior_precision=1.0, outliers=grey, ood_weight=0.5)
    for name, value in expected["batch_stats"]["head"].items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)
