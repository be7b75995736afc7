"""`certify --ball`: what is too large is refused before anything is computed."""

import pytest

from experiments.certify import ball
from preload_jax import make_classifier, methods
from preload_jax.errors import UserError


@pytest.mark.parametrize(("epsilon", "farthest"), [(1e30, 1.0), (1e15, 1.0), (1.0, 1e15)])
def test_a_ball_beyond_what_networks_take_is_refused_at_once(epsilon, farthest):
    model = make_classifier("mlp", "linear", num_classes=3)
    with pytest.raises(
        UserError, match=r"^--ball=\S+ leaves what networks take unchanged, values below 1e\+15; give less"
    ):
        ball.require(model, methods.get("standard"), epsilon=epsilon, farthest=farthest)
    ball.require(model, methods.get("standard"), epsilon=0.01, farthest=1e4)
