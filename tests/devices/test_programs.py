"""Digests of functions tell what they compute now from what they computed before."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import make_classifier
from preload_jax.devices import programs

IMAGES = jax.ShapeDtypeStruct((2, 5), jnp.float32)
KERNEL = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


class Holder:
    def __init__(self):
        self.kernel, self.power = KERNEL, 2.0


def plain(held):
    return lambda x: (x @ held.kernel) ** held.power


def jitted_inside(held):
    def function(x):
        return jax.jit(lambda y: jax.nn.relu(y @ held.kernel) * held.power)(x)

    return function


def in_a_loop(held):
    def function(x):
        return jax.lax.fori_loop(0, 2, lambda i, y: y + (x @ held.kernel) ** held.power, jnp.zeros((2, 3)))

    return function


@pytest.mark.parametrize("make", [plain, jitted_inside, in_a_loop])
@pytest.mark.parametrize("change", [{"kernel": -KERNEL}, {"power": 3.0}, {"kernel": np.flip(KERNEL)}])
def test_a_digest_is_of_what_the_function_closes_over_now(make, change):
    held = Holder()
    function = make(held)
    before = programs.digest(function, IMAGES)
    assert programs.digest(function, IMAGES) == before
    old = {name: getattr(held, name) for name in change}
    vars(held).update(change)
    assert programs.digest(function, IMAGES) != before
    vars(held).update(old)
    assert programs.digest(function, IMAGES) == before


def test_a_function_of_what_is_traced_is_like_no_other():
    def asked(kernel):
        digests = [programs.digest(lambda x: x @ kernel, IMAGES) for _ in range(2)]
        assert digests[0] != digests[1]
        return kernel

    jax.jit(asked)(KERNEL)


def test_traced_is_not_what_jax_kept():
    held = Holder()
    function = plain(held)
    jax.make_jaxpr(function)(IMAGES)
    held.power = 3.0
    assert str(programs.traced(function, IMAGES).jaxpr) != str(jax.make_jaxpr(function)(IMAGES).jaxpr)


def test_the_librarys_own_networks_need_no_digest():
    class Own(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(3)(x)

    own = Own()
    variables = own.init(jax.random.key(0), jnp.zeros((1, 5)))
    model = make_classifier("mlp", "linear", num_classes=3, widths=(8,))
    assert programs.digest(model) == ""
    assert programs.digest(own.apply, variables, IMAGES) != ""
