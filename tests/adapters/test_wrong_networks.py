"""What is no network, or no function of parameters and images: one clear line each."""

import itertools
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from preload_jax import Classifier, LinearHead, SquareLogitHead, adapters, detectors, fit, predict
from preload_jax.errors import UserError
from tests import toy
from tests.adapters import networks

UNIT = jnp.ones((2, *toy.SHAPE))
KEY = jax.random.key(0)
KERNEL = np.ones((16, 4), np.float32)
COUNT = itertools.count()


def dense(params, images):
    return images.reshape(len(images), -1) @ params


def clock(params, images):
    return dense(params, images) * (time.perf_counter() % 1.0)


def random(params, images):
    return dense(params, images) + np.random.normal(size=(1, 4)).astype(np.float32)


def counter(params, images):
    x = dense(params, images)
    for _ in range(next(COUNT)):
        x = jnp.sin(x)
    return x


@jax.jit
def compiled_clock(params, images):
    return clock(params, images)


def callback(params, images):
    x = dense(params, images)
    return jax.experimental.io_callback(lambda y: y, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def branches(params, images):
    return dense(params, images) if images.sum() > 0 else dense(-params, images)


@pytest.mark.skipif(not hasattr(nnx, "static"), reason="older Flax keeps a function wherever it is set")
def test_a_function_in_the_place_of_a_layer_is_told_what_to_do():
    network = networks.nnx_network()
    network.second = lambda features: features
    words = (
        "has a variable second of kind function, and training does not know it; put a module in its place, such as one"
        " whose __call__ returns what it is given, or delete second before the function is set"
    )
    with pytest.raises(UserError, match=words):
        adapters.from_nnx(network)


def test_a_network_that_still_has_its_last_layer_is_told():
    model = Classifier(adapters.from_nnx(networks.nnx_network()), LinearHead(3))
    variables = adapters.variables(model, np.ones((5, 3), np.float32))
    with pytest.raises(UserError, match=r"do not fit the network; .* Does the network still have its last layer\?$"):
        predict(model, variables, UNIT)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (clock, "the function clock is another each time it is asked, as with a clock"),
        (compiled_clock, "the function compiled_clock is another each time it is asked"),
        (random, "the function random is another each time it is asked"),
        (counter, "the function counter is another each time it is asked"),
        (callback, "the function callback has side effects"),
        (branches, r"the function branches asks for values .*TracerBoolConversionError.; use jnp.where"),
        (lambda p, x: np.asarray(dense(p, x)), "asks for values that are known only when it runs"),
        (lambda p, x: (dense(p, x), x), "returns a tuple; expected one array of features"),
        (lambda p, x: [dense(p, x)], "returns a list; expected one array of features"),
        (lambda p, x: x, r"makes features of shape \[2, 4, 4, 1\] of 2 images; expected \[n, d\]"),
        (lambda p, x: dense(p, x)[0], r"makes features of shape \[4\] of 2 images"),
        (lambda p, x: dense(p, x) > 0, "makes features of type bool; expected floating point"),
        (lambda p, x: dense(p[:3], x), r"does not take images \[2, 4, 4, 1\]: .*it is called as f\(params, images\)"),
        (lambda x: x, r"does not take images .* it is called as f\(params, images\)"),
    ],
)
def test_functions_that_are_none(function, message):
    model = Classifier(adapters.from_function(function, KERNEL), SquareLogitHead(3))
    with pytest.raises(UserError, match=message):
        model.init(KEY, UNIT)


def test_fit_and_predict_say_the_same_line():
    model = Classifier(adapters.from_function(random, KERNEL), LinearHead(3))
    images, labels = np.zeros((8, *toy.SHAPE), np.uint8), np.arange(8) % 3
    with pytest.raises(UserError, match=r"^the function random is another"):
        fit(model, images, labels, batch_size=4)
    with pytest.raises(UserError, match=r"^the function random is another"):
        predict(model, adapters.variables(model, np.ones((4, 3))), images)


def test_a_function_that_prints_or_has_arrays_of_its_own_is_welcome():
    table = np.arange(16 * 4, dtype=np.float32).reshape(16, 4)

    def features(params, images):
        jax.debug.print("{}", images[0, 0, 0, 0])
        return jax.nn.relu(jax.nn.gelu(dense(params, images))) + dense(jnp.asarray(table), images)

    assert adapters.from_function(features, KERNEL).init_with_output(KEY, UNIT)[0].shape == (2, 4)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"w": [1.0, 2.0]}, r"the parameters of the function dense: w/0 is a float; expected arrays alone"),
        ({"w": KERNEL, "name": "relu"}, "name is a str; expected arrays alone"),
        ({"steps": np.arange(3)}, r"steps is int64 \[3\]; expected floating point"),
        (3, "value is a int; expected arrays alone"),
        ({"w": np.ma.array(np.ones((2, 4), np.float32), mask=True)}, "w is a masked array; its hidden values would"),
    ],
)
def test_parameters_that_are_no_arrays(params, message):
    with pytest.raises(UserError, match=message):
        adapters.from_function(dense, params)


class Codebook(nnx.Variable):
    pass


class WithCodebook(nnx.Module):
    def __init__(self):
        self.codes = Codebook(jnp.ones(3))

    def __call__(self, images):
        return images


class Restless(nnx.Module):
    def __init__(self, rngs):
        self.rngs = rngs

    def __call__(self, images):
        x = images.reshape(len(images), -1)
        return x + jax.random.normal(self.rngs.noise(), x.shape)


class Plain(eqx.Module):
    layer: eqx.nn.Linear

    def __call__(self, images):
        return self.layer(images.reshape(len(images), -1))


def test_modules_that_are_not_taken():
    with pytest.raises(UserError, match="a variable codes of kind Codebook, and training does not know it; make it"):
        adapters.from_nnx(WithCodebook())
    with pytest.raises(UserError, match=r"the network is the class WithCodebook; expected an instance of flax.nnx"):
        adapters.from_nnx(WithCodebook)
    with pytest.raises(UserError, match="Restless draws random numbers or changes its statistics in evaluation mode"):
        adapters.from_nnx(Restless(nnx.Rngs(noise=0))).init(KEY, UNIT)
    with pytest.raises(UserError, match=r"the network is a function; expected an equinox.Module"):
        adapters.from_equinox(dense)
    network = eqx.nn.Linear(4, 3, key=KEY)
    with pytest.raises(UserError, match="a state is given, and the Equinox module Linear has no parameter of that"):
        adapters.from_equinox(network, state=eqx.nn.State(network))
    with pytest.raises(UserError, match="the Equinox module BatchNorm takes a state; give from_equinox"):
        adapters.from_equinox(eqx.nn.BatchNorm(3, axis_name="a"))


def test_one_image_or_all():
    alone = adapters.from_equinox(networks.equinox_network(), batched=True)
    with pytest.raises(UserError, match="it is called with the whole batch: leave batched out where it takes one"):
        alone.init(KEY, UNIT)
    whole = adapters.from_equinox(Plain(eqx.nn.Linear(4, 3, key=KEY)))
    with pytest.raises(UserError, match="it is called with one image: give batched=True where it takes the whole"):
        whole.init(KEY, UNIT)


def test_the_last_layer_s_shape():
    model = Classifier(adapters.from_function(dense, KERNEL), LinearHead(3))
    cases = {
        r"kernel is of shape \[3, 4\]; expected \[d, 3\], a column a class: give its transpose, kernel.T": (
            np.ones((3, 4)),
            None,
        ),
        r"kernel is of shape \[4\]; expected \[d, 3\]": (np.ones(4), None),
        r"bias is of shape \[4\]; expected \[3\]": (np.ones((4, 3)), np.ones(4)),
        "kernel is int64; expected floating point": (np.ones((4, 3), int), None),
        "kernel hold NaN or infinity": (np.full((4, 3), np.nan), None),
    }
    for message, given in cases.items():
        with pytest.raises(UserError, match=message):
            adapters.variables(model, *given)
    with pytest.raises(UserError, match=r"the network's last layer is a LinearHead, got SquareLogitHead"):
        adapters.variables(Classifier(model.backbone, SquareLogitHead(3)), np.ones((4, 3)))
    with pytest.raises(UserError, match=r"the backbone is a Linen; expected one that adapters.from_function"):
        adapters.variables(Classifier(networks.Linen(), LinearHead(3)), np.ones((4, 3)))
    with pytest.raises(UserError, match=r"params/head/linear/kernel|do not fit"):
        predict(model, adapters.variables(model, np.ones((5, 3))), np.zeros((2, *toy.SHAPE), np.uint8))


def test_variables_of_another_network():
    model = Classifier(adapters.from_function(dense, {"kernel": KERNEL}), LinearHead(3))
    for given in ({"params": {}}, {"params": {"backbone": {"network": {"kernel": jnp.ones((16, 5))}}}}):
        with pytest.raises(UserError, match="the variables are of another network: kernel is"):
            adapters.unwrap(model, given)


def test_detectors_that_look_into_layers():
    model = Classifier(adapters.from_function(dense, KERNEL), LinearHead(3))
    variables = adapters.variables(model, np.ones((4, 3)))
    with pytest.raises(UserError, match="the backbone is a Adapted without Linen layers"):
        detectors.outputs(model, variables, np.zeros((2, *toy.SHAPE), np.uint8), maps=True)
