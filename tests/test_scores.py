"""Scores: monotone in the paper's probabilities, and without the ties that rounded probabilities have."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from preload_jax import scores

LOGITS = hnp.arrays(np.float32, st.sampled_from([(1, 3), (4, 6)]), elements=st.floats(-20, 20, width=32))


class Scores(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True)
    def test_literal_values(self):
        logits = jnp.log(jnp.array([[0.5, 0.25, 0.25]]))
        np.testing.assert_allclose(self.variant(scores.max_probability)(logits), [0.0], atol=1e-6)
        np.testing.assert_allclose(self.variant(scores.in_domain_probability)(logits), [np.log(3.0)], rtol=1e-6)
        np.testing.assert_allclose(self.variant(scores.negative_energy)(logits + 2.0), [2.0], rtol=1e-6)

    @chex.variants(with_jit=True, without_jit=True)
    def test_batches_of_one_and_three_agree(self):
        logits = jnp.array([[-1.0, 0.0, 1.0]])
        for score in (scores.max_probability, scores.in_domain_probability, scores.negative_energy):
            one = self.variant(score)(logits)
            three = self.variant(score)(jnp.repeat(logits, 3, axis=0))
            np.testing.assert_array_equal(three, np.repeat(one, 3))


@settings(max_examples=60, deadline=None)
@given(LOGITS)
def test_scores_are_the_log_odds_of_the_papers_probabilities(logits):
    p = np.asarray(jax.nn.softmax(jnp.asarray(logits, jnp.float32), axis=-1), np.float64)
    exact = np.exp(np.float64(logits) - np.float64(logits).max(axis=1, keepdims=True))
    exact /= exact.sum(axis=1, keepdims=True)
    largest = exact.max(axis=1)
    rest = np.sort(exact, axis=1)[:, :-1].sum(axis=1)
    np.testing.assert_allclose(
        scores.max_probability(jnp.asarray(logits)), np.log(largest / rest), rtol=1e-4, atol=1e-4
    )
    inside = exact[:, :-1].sum(axis=1)
    np.testing.assert_allclose(
        scores.in_domain_probability(jnp.asarray(logits)), np.log(inside / exact[:, -1]), rtol=1e-4, atol=1e-4
    )
    assert p.shape == exact.shape


def test_inputs_that_tie_as_probabilities_do_not_tie_as_scores():
    logits = jnp.array([[30.0, 0.0, 0.0], [40.0, 0.0, 0.0]])
    assert np.unique(np.asarray(jax.nn.softmax(logits)).max(axis=1)).size == 1
    assert np.unique(np.asarray(scores.max_probability(logits))).size == 2


def test_far_away_logits_give_finite_scores():
    largest = float(np.finfo(np.float32).max)
    logits = jnp.array([[1e30, -1e30, largest], [0.0, 0.0, largest]])
    chex.assert_tree_all_finite((scores.in_domain_probability(logits), scores.negative_energy(logits)))


@pytest.mark.parametrize("score", [scores.max_probability, scores.in_domain_probability, scores.negative_energy])
def test_half_precision_logits_are_computed_in_float32(score):
    half = jnp.linspace(-3.0, 4.0, 15).reshape(3, 5).astype(jnp.bfloat16)
    found = score(half)
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, score(half.astype(jnp.float32)))
