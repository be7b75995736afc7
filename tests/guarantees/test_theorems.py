"""The paper's two theorems as properties of the head: for any embedding, far away, with jit, without it and with pmap.

Hypothesis draws the head and the ray; the embeddings of a ReLU network far along a ray are t·u + a (Hein et al., 2019),
and these are what the head is given.  Theorem 1: no class's confidence tends to 1.  Theorem 2: where u ≠ 0, the OOD
class's does.
"""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from preload_jax import LinearHead, SquareLogitHead, square_logit

NUM_CLASSES, WIDTH = 3, 4
EXPONENTS = (2, 4, 6)
# Along a ray: near, and as far as floats of 32 bits go.
NEAR, FAR = (0.0, 1e-3, 0.1, 1.0, 3.0, 10.0, 100.0, 1e4), (1e8, 1e12, 1e20, 1e30)
VARIANTS = chex.variants(with_jit=True, without_jit=True, with_pmap=True)
FEW = settings(max_examples=15, deadline=None)


def numbers(shape, low, high):
    return hnp.arrays(np.float32, shape, elements=st.floats(low, high, width=32))


@st.composite
def heads(draw):
    """Parameters of a head, all finite: what the theorems ask for."""
    linear = {"kernel": draw(numbers((WIDTH, NUM_CLASSES), -5, 5)), "bias": draw(numbers(NUM_CLASSES, -5, 5))}
    ood = {"raw_weights": draw(numbers(WIDTH, -3, 3)), "bias": draw(numbers((), -5, 5))}
    return jax.tree.map(jnp.asarray, {"linear": linear, "ood": ood})


# A component of the embedding grows along the ray, or stays.
SLOPES = hnp.arrays(
    np.float32,
    WIDTH,
    elements=st.just(0.0) | st.floats(0.125, 8, width=32) | st.floats(-8, -0.125, width=32),
)
OFFSETS = numbers(WIDTH, -8, 8)


def embeddings(slope, offset, distances):
    return jnp.asarray(np.asarray(distances)[:, None] * slope + offset, jnp.float32)


def logits(params, features, *, exponent):
    return SquareLogitHead(NUM_CLASSES, exponent=exponent).apply({"params": params}, features)


def largest_log_odds(params, exponent):
    """The supremum of z_c − z_{K+1} over all embeddings, [K]: of w g − v gᵖ it is (p − 1) v (|w| / (p v))^(p/(p−1))."""
    p, params = exponent, jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    v, w = np.exp(params["ood"]["raw_weights"])[:, None], np.abs(params["linear"]["kernel"])
    most = ((p - 1) * v * (w / (p * v)) ** (p / (p - 1))).sum(axis=0)
    return most + params["linear"]["bias"] - params["ood"]["bias"]


def log_odds(z):
    """log P(c) − log(1 − P(c)) of each in-domain class, in float64, [n, K]."""
    z = np.asarray(z, np.float64)
    others = [scipy.special.logsumexp(np.delete(z, c, axis=1), axis=1) for c in range(NUM_CLASSES)]
    return z[:, :NUM_CLASSES] - np.stack(others, axis=1)


class TheoremOne(chex.TestCase):
    """No class's confidence passes a number below 1, wherever the embedding is."""

    @VARIANTS
    def test_no_confidence_passes_its_largest(self):
        forward = {exponent: self.variant(partial(logits, exponent=exponent)) for exponent in EXPONENTS}

        @FEW
        @given(heads(), SLOPES, OFFSETS, st.sampled_from(EXPONENTS))
        def holds(params, slope, offset, exponent):
            features = embeddings(slope, offset, NEAR + FAR)
            z = forward[exponent](params, features)
            chex.assert_shape(z, (len(features), NUM_CLASSES + 1))
            chex.assert_tree_all_finite(z)
            most = largest_log_odds(params, exponent)
            assert np.isfinite(most).all()
            # The logits' rounding, near the largest; far away nothing comes close.
            x, z = np.abs(np.asarray(features, np.float64)), np.asarray(z, np.float64)
            size = np.minimum(x @ np.abs(np.asarray(params["linear"]["kernel"])), np.abs(z[:, -1:]))
            slack = 1e-5 * (1.0 + size) + 1e-4 * np.abs(most)
            assert (log_odds(z) <= most + slack).all()

        holds()

    @VARIANTS
    def test_an_embedding_that_stays_keeps_its_confidences(self):
        # u = 0, what theorem 2 leaves out: the limit is the confidence at a.
        forward = self.variant(partial(logits, exponent=2))

        @FEW
        @given(heads(), OFFSETS)
        def holds(params, offset):
            z = forward(params, embeddings(np.zeros(WIDTH, np.float32), offset, NEAR + FAR))
            chex.assert_trees_all_equal(z, jnp.broadcast_to(z[:1], z.shape))
            assert (log_odds(z) <= largest_log_odds(params, 2) + 1e-3 * (1.0 + np.abs(np.asarray(z)).max())).all()

        holds()

    @VARIANTS
    def test_a_linear_head_reaches_certainty(self):
        # Without the extra class the theorem does not hold, so the two above can fail.
        forward = self.variant(lambda params, x: LinearHead(NUM_CLASSES).apply({"params": params}, x))
        kernel = np.eye(WIDTH, NUM_CLASSES, dtype=np.float32)
        params = {"linear": {"kernel": jnp.asarray(kernel), "bias": jnp.zeros(3)}}
        z = forward(params, embeddings(kernel[:, 0], np.zeros(WIDTH), FAR))
        assert (jax.nn.softmax(z)[:, 0] == 1.0).all()


class TheoremTwo(chex.TestCase):
    """Far away along almost any ray the OOD class is the most probable one, and certain in the limit."""

    @VARIANTS
    def test_the_ood_class_takes_over_and_stays(self):
        forward = {exponent: self.variant(partial(logits, exponent=exponent)) for exponent in EXPONENTS}

        @FEW
        @given(heads(), SLOPES.filter(lambda u: u.any()), OFFSETS, st.sampled_from(EXPONENTS))
        def holds(params, slope, offset, exponent):
            z = forward[exponent](params, embeddings(slope, offset, FAR))
            chex.assert_tree_all_finite(z)
            assert (np.asarray(z).argmax(axis=1) == NUM_CLASSES).all()
            chex.assert_trees_all_equal(jax.nn.softmax(z)[:, -1], jnp.ones(len(FAR)))

        holds()

    @VARIANTS
    def test_the_last_logit_is_the_square_logit(self):
        # The theorems are about equation 4, whoever computes it.
        function = self.variant(lambda x, w, b: square_logit(x, w, b, exponent=4))

        @FEW
        @given(heads(), SLOPES, OFFSETS)
        def holds(params, slope, offset):
            features = embeddings(slope, offset, NEAR)
            alone = function(features, params["ood"]["raw_weights"], params["ood"]["bias"])
            chex.assert_trees_all_close(alone, logits(params, features, exponent=4)[:, -1], rtol=1e-6)
            v = np.exp(np.asarray(params["ood"]["raw_weights"], np.float64))
            expected = np.asarray(features, np.float64) ** 4 @ v + float(params["ood"]["bias"])
            np.testing.assert_allclose(alone, expected, rtol=1e-4, atol=1e-4)

        holds()

    @VARIANTS
    def test_gradients_stay_finite_far_away(self):
        def loss(params, features, exponent):
            z = logits(params, features, exponent=exponent)
            return -jax.nn.log_softmax(z)[:, -1].mean()

        gradients = {p: self.variant(jax.grad(partial(loss, exponent=p), argnums=(0, 1))) for p in EXPONENTS}

        @FEW
        @given(heads(), SLOPES, OFFSETS, st.sampled_from(EXPONENTS))
        def holds(params, slope, offset, exponent):
            found = gradients[exponent](params, embeddings(slope, offset, NEAR + FAR))
            chex.assert_trees_all_equal_structs(found[0], params)
            chex.assert_tree_all_finite(found)

        holds()
