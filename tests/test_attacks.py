"""Projected gradient ascent: within its ball, no worse than at its start, at the corner of a linear score."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import attacks
from preload_jax.errors import UserError

KEY = jax.random.key(0)
IMAGES = jax.random.uniform(jax.random.key(1), (20, 3, 3, 1))


def curved(images):
    """A score with many maxima."""
    return jnp.sin(20.0 * images).sum(axis=(1, 2, 3))


@pytest.mark.parametrize("steps", [1, 5, 20])
def test_it_stays_in_the_ball_and_no_score_falls(steps):
    found = attacks.pgd(curved, IMAGES, key=KEY, epsilon=0.1, steps=steps)
    low, high = attacks.ball(IMAGES, 0.1)
    assert bool(jnp.all((low <= found) & (found <= high)))
    assert float(jnp.max(jnp.abs(found - IMAGES))) <= 0.1 + 1e-6
    assert bool(jnp.all(curved(found) >= curved(IMAGES)))
    assert float(jnp.mean(curved(found) - curved(IMAGES))) > 0.5


def test_a_linear_score_is_followed_to_the_corner():
    weights = jax.random.normal(jax.random.key(2), (1, 3, 3, 1))
    found = attacks.pgd(
        lambda x: (weights * x).sum(axis=(1, 2, 3)), IMAGES, key=KEY, epsilon=0.1, steps=4, step_size=1.0
    )
    np.testing.assert_allclose(found, np.clip(IMAGES + 0.1 * np.sign(weights), 0.0, 1.0), atol=1e-6)


def test_far_away_images_may_stay_where_they_are():
    low, high = attacks.ball(jnp.array([[-2.0, 0.0, 5.0]]), 0.25)
    np.testing.assert_allclose(low, [[-2.0, 0.0, 4.75]])
    np.testing.assert_allclose(high, [[-1.75, 0.25, 5.0]])


def test_no_steps_or_no_radius_change_nothing():
    assert attacks.pgd(curved, IMAGES, key=KEY, epsilon=0.1, steps=0) is IMAGES
    np.testing.assert_array_equal(attacks.pgd(curved, IMAGES, key=KEY, epsilon=0.0, steps=3), IMAGES)


def test_tokens_have_no_ball():
    with pytest.raises(UserError, match="inputs that are integers, such as tokens"):
        attacks.pgd(curved, jnp.ones((2, 3), jnp.int32), key=KEY, epsilon=0.1, steps=1)
