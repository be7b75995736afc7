"""What is known of a network goes with its very weights."""

import gc

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from preload_jax.devices.by_weights import ByWeights

KINDS = {
    "jax": lambda: jnp.ones((2, 3)),
    "numpy": lambda: np.ones((2, 3)),
    "a view": lambda: np.ones((4, 4))[:, ::2],
    "half precision": lambda: np.ones(3, ml_dtypes.bfloat16),
    "empty": lambda: np.zeros(0),
    "no axis": lambda: np.zeros(()),
    "a number of NumPy's": lambda: np.float32(3),
    "a number": lambda: 3.0,
    "objects": lambda: np.array([None]),
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_it_is_found_by_the_same_weights_and_key_alone(make):
    kept, weights = ByWeights(most=8), {"params": {"a": make(), "b": np.zeros(2)}}
    kept.put(weights, "found", "key")
    assert kept.get(weights, "key") == "found"
    assert kept.get({"params": {"a": weights["params"]["a"], "b": np.zeros(2)}}, "key") is None
    assert kept.get(weights, "another") is None
    assert kept.get({"params": {"a": weights["params"]["a"]}}, "key") is None


def test_numpys_that_were_changed_are_others():
    kept, weights = ByWeights(most=8), {"a": np.ones(3)}
    kept.put(weights, 1)
    weights["a"][1] = 2
    assert kept.get(weights) is None
    weights["a"][1] = 1
    assert kept.get(weights) == 1


def test_the_oldest_go_and_nothing_is_kept_alive():
    kept, all_weights = ByWeights(most=2), [{"a": jnp.ones(3) * i} for i in range(3)]
    for number, weights in enumerate(all_weights):
        kept.put(weights, number)
    assert [kept.get(weights) for weights in all_weights] == [None, 1, 2]
    held = [held for held, *_ in kept._kept.values()]
    del all_weights, weights
    gc.collect()
    assert all(each() is None for one in held for each in one)
