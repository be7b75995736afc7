"""Networks that join the rows of a batch: their answers would depend on what stands beside an input."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import Classifier, SquareLogitHead, adapters, detectors, evaluate, fit, predict
from preload_jax.devices import rows
from preload_jax.errors import UserError

RNG = np.random.default_rng(0)
KERNEL = RNG.normal(size=(16, 6)).astype(np.float32)
IMAGES = RNG.random((12, 4, 4, 1), np.float32)
LABELS = np.arange(12) % 3


def flat(images):
    return images.reshape(len(images), -1)


def cumulated(x):
    def step(carry, row):
        return carry + row, carry * row

    return jax.lax.scan(step, jnp.zeros(x.shape[1:]), x)[1]


def counted(x):
    """Row after row, with a number that no row changes handed on."""
    return jax.lax.scan(lambda i, row: (i + 1, row * 2), 0, x)[1]


JOINING = {
    "mean of the batch": (lambda x: x - x.mean(axis=0, keepdims=True), "reduce_sum"),
    "largest of the batch": (lambda x: x / x.max(), "reduce_max"),
    "order turned round": (lambda x: x[::-1], "rev"),
    "neighbours": (lambda x: x - jnp.roll(x, 1, axis=0), "slice"),
    "attention between images": (lambda x: x @ x.T @ x, "dot_general"),
    "ranks": (lambda x: jnp.argsort(x, axis=0).astype(jnp.float32), "sort"),
    "running sum": (lambda x: jnp.cumsum(x, axis=0), "cumsum"),
    "one after the other": (cumulated, "scan"),
    "in one branch": (
        lambda x: jax.lax.cond(True, lambda y: y - y.mean(0, keepdims=True), lambda y: y, x),
        "reduce_sum",
    ),
}
NORM = nn.BatchNorm(use_running_average=True).init(jax.random.key(0), np.ones((2, 6), np.float32))
ALONE = {
    "rows one by one": lambda x: jax.lax.map(lambda row: row / (1 + row.max()), x),
    "counted": counted,
    "mapped": jax.vmap(lambda row: row - row.mean()),
    "sorted features": lambda x: jnp.sort(x, axis=1),
    "loop": lambda x: jax.lax.while_loop(lambda s: s[1] < 3, lambda s: (s[0] * 2, s[1] + 1), (x, 0))[0],
    "merged and parted": lambda x: x.reshape(-1, 2).cumsum(axis=1).reshape(x.shape),
    "a norm's statistics that are kept": lambda x: nn.BatchNorm(use_running_average=True).apply(NORM, x),
}


def operations_of(function):
    jaxpr = jax.make_jaxpr(function)(jax.ShapeDtypeStruct((rows.ROWS, 6), jnp.float32)).jaxpr
    return list(rows.operations(jaxpr, set(jaxpr.invars)))


@pytest.mark.parametrize("name", JOINING)
def test_what_joins_rows_is_found_with_its_line(name):
    function, operation = JOINING[name]
    found = [seen for seen in operations_of(function) if seen.joins]
    assert found[0].name == operation
    assert "test_rows.py:" in found[0].line


@pytest.mark.parametrize("function", ALONE.values(), ids=ALONE)
def test_what_treats_rows_alone_is_not(function):
    seen = operations_of(function)
    assert seen
    assert not any(operation.joins for operation in seen)
    # The same by numbers: no row depends on another.
    x = RNG.normal(size=(4, 6)).astype(np.float32)
    slopes = np.abs(jax.jacfwd(function)(x)).sum(axis=(1, 3))
    np.testing.assert_array_equal(slopes > 0, np.eye(4))


def model_of(function):
    def features(params, images):
        return jax.nn.relu(function(flat(images) @ params["kernel"]))

    return Classifier(adapters.from_function(features, {"kernel": KERNEL}), SquareLogitHead(num_classes=3))


USES = {
    "predict": lambda model, variables: predict(model, variables, IMAGES),
    "evaluate": lambda model, variables: evaluate(model, variables, (IMAGES, LABELS)),
    "detectors.outputs": lambda model, variables: detectors.outputs(model, variables, IMAGES),
    "fit": lambda model, variables: fit(
        model, (255 * IMAGES).astype(np.uint8), LABELS, (255 * IMAGES).astype(np.uint8), epochs=1, batch_size=4
    ),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_they_are_refused_before_anything_is_computed(use):
    model = model_of(JOINING["mean of the batch"][0])
    variables = model.init(jax.random.key(0), jnp.asarray(IMAGES[:1]))
    with pytest.raises(UserError, match=r"'reduce_sum' at .*test_rows.py:\d+.* joins rows of a batch, as batch norm"):
        use(model, variables)


def test_others_answer_about_an_image_whatever_stands_beside_it():
    model = model_of(ALONE["rows one by one"])
    variables = model.init(jax.random.key(0), jnp.asarray(IMAGES[:1]))
    together, alone = (predict(model, variables, images).score for images in (IMAGES, IMAGES[:1]))
    np.testing.assert_array_equal(together[:1], alone)
