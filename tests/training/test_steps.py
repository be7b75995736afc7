"""The training step on devices that a caller spreads it over, and the state it starts from."""

import doctest
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax.training import steps
from tests import toy


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="this JAX has no jax.shard_map")
def test_the_example_of_axis_name_runs():
    text = inspect.getdoc(steps.gradient_step)
    test = doctest.DocTestParser().get_doctest(text, {}, "gradient_step", None, 0)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


def test_variables_of_a_network_without_batch_norm_may_lack_its_statistics():
    task = toy.task("preload", total_steps=4)
    variables = task.model.init(jax.random.key(0), jnp.zeros((1, *toy.SHAPE)))
    assert "batch_stats" not in variables
    state = steps.init_state(variables, task=task)
    assert state.variables == {"params": state.params, "batch_stats": {}}
    logits = task.model.apply(state.variables, jnp.zeros((2, *toy.SHAPE)))
    np.testing.assert_array_equal(logits, task.model.apply(variables, jnp.zeros((2, *toy.SHAPE))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trainable": "head"}, r"unknown trainable part 'head'; expected one of \['all', 'ood_head'\]"),
        ({"total_steps": 0}, "total_steps must be at least 1, got 0"),
    ],
)
def test_tasks_that_make_no_sense(change, message):
    with pytest.raises(ValueError, match=message):
        toy.task("preload", **{"total_steps": 4, **change})
