"""Networks that cannot be trained are refused before training, in words."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import Classifier, LinearHead, attach, fit
from preload_jax.errors import UserError

SHAPE = (4, 4, 1)
IMAGES = np.random.default_rng(0).integers(0, 256, (8, *SHAPE), np.uint8)
LABELS = np.arange(8) % 3


class Loop(nn.Module):
    @nn.compact
    def __call__(self, images, *, train=False):
        hidden = nn.relu(nn.Dense(4)(images.reshape(images.shape[0], -1)))
        return jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, 1.1 * s[1]), (0, hidden))[1]


class Named(nn.Module):
    @nn.compact
    def __call__(self, images, *, train=False):
        return {"features": nn.Dense(4)(images.reshape(images.shape[0], -1))}


class Whole(nn.Module):
    @nn.compact
    def __call__(self, images, *, train=False):
        step = self.param("step", lambda key: jnp.ones((), jnp.int32))
        return nn.Dense(4)(images.reshape(images.shape[0], -1)) * step.astype(jnp.float32)


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        (Loop(), "the network has no gradient by its parameters .ValueError: Reverse-mode"),
        (Whole(), "the network has no gradient by its parameters .TypeError: grad requires real"),
        (Named(), r"does not take training images of shape \[4, 4, 1\]: TypeError: the backbone returned a dict"),
    ],
)
def test_what_cannot_be_trained_is_refused(backbone, message):
    with pytest.raises(UserError, match=message):
        fit(Classifier(backbone, LinearHead(3)), IMAGES, LABELS, epochs=1, batch_size=4)


def test_a_network_without_a_gradient_gets_an_ood_class():
    model = Classifier(Loop(), LinearHead(3))
    variables = model.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    attached = attach(model, variables, IMAGES, LABELS, IMAGES, epochs=1, batch_size=4)
    assert attached.variables["params"]["head"]["ood"]["raw_weights"].shape == (4,)
