import chex
import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.errors import JaxRuntimeError

from preload_jax.devices import compilation


@pytest.fixture
def fresh_options():
    compilation.compiler_options.cache_clear()
    yield
    compilation.compiler_options.cache_clear()


def _gradients(images, kernel):
    def loss(images, kernel):
        return jnp.sum(lax.conv_general_dilated(images, kernel, (2, 2), "SAME", dimension_numbers=_LAYOUT) ** 2)

    return jax.grad(loss, argnums=(0, 1))(images, kernel)


_LAYOUT = ("NHWC", "HWIO", "NHWC")


def test_gradients_of_a_convolution_are_the_same_with_the_options():
    image_key, kernel_key = jax.random.split(jax.random.key(0))
    images, kernel = jax.random.normal(image_key, (6, 9, 9, 3)), jax.random.normal(kernel_key, (3, 3, 3, 5))
    expected = jax.jit(_gradients)(images, kernel)
    chex.assert_trees_all_close(compilation.jit(_gradients)(images, kernel), expected, rtol=1e-5)


def test_initial_weights_are_the_same_bits_where_a_program_is_compiled_in_less_time():
    def draw(key):
        return jax.random.normal(key, (40, 30)), jax.random.uniform(key, (7, 90), minval=-0.3, maxval=0.3)

    key = jax.random.key(1)
    chex.assert_trees_all_equal(compilation.jit(draw, rare=True)(key), jax.jit(draw)(key))


@pytest.mark.usefixtures("fresh_options")
@pytest.mark.parametrize("error", [ValueError, JaxRuntimeError])
def test_a_release_that_does_not_know_the_options_goes_without(monkeypatch, error):
    jit = jax.jit

    def old_jit(function, *, compiler_options=None, **options):
        def refuse(*arguments):
            raise error("No such compile option")

        return refuse if compiler_options else jit(function, **options)

    monkeypatch.setattr(jax, "jit", old_jit)
    assert compilation.jit(lambda x: 2 * x)(3.0) == 6.0


@pytest.mark.usefixtures("fresh_options")
def test_no_options_where_the_backend_is_no_cpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert compilation.compiler_options() == {}


def test_the_options_of_jit_are_jax_jits():
    @compilation.jit(static_argnames="power")
    def raised(x, *, power):
        assert isinstance(power, int)
        return x**power

    assert raised(3.0, power=2) == 9.0
    assert raised.__name__ == "raised"
