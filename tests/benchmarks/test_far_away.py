"""The benchmark of verdicts far away: both occur, and the network agrees."""

import jax
import numpy as np
import pytest

from benchmarks import far_away


@pytest.mark.slow
def test_both_verdicts_occur_and_the_network_agrees():
    directions = jax.random.normal(jax.random.key(0), (40, 8, 8, 1))
    network = far_away.trained("mlp", "standard", 2, directions, **far_away._ADAM)
    lowered = far_away.falling(network)
    # One vector less for every class: no softmax probability changes.
    one, two = (np.exp(x - np.log(np.exp(x).sum(axis=1, keepdims=True))) for x in map(_logits, (network, lowered)))
    np.testing.assert_allclose(one, two, atol=1e-9)
    names = ["energy", "scale", "msp", "odin"]
    usual, other = (far_away.verdicts(each, names, directions, 1e8) for each in (network, lowered))
    assert usual["energy"][:2] == (0.0, 1.0)
    assert other["energy"][0] == other["scale"][0] == 0.5
    assert other["msp"][0] == other["odin"][0] == 0.0
    assert {row[1] for row in other.values()} == {1.0}


def _logits(network):
    with far_away.enable_x64(True):
        logits = np.concatenate([part.logits for part in network.outputs(network.images)])
    return logits - logits.max(axis=1, keepdims=True)
