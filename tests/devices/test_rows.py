"""Which operations of a traced network join the rows of a batch."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax.devices import rows

RNG = np.random.default_rng(0)


def cumulated(x):
    def step(carry, row):
        return carry + row, carry * row

    return jax.lax.scan(step, jnp.zeros(x.shape[1:]), x)[1]


def counted(x):
    """Row after row, with a number that no row changes handed on."""
    return jax.lax.scan(lambda i, row: (i + 1, row * 2), 0, x)[1]


def recurrent(x):
    """A hidden state for each row, of which the batch's mean is taken away; it does not hold rows at first."""

    def step(hidden, _):
        hidden = hidden - hidden.mean(axis=0, keepdims=True)
        return jnp.tanh(hidden + x), None

    return jax.lax.scan(step, jnp.zeros(x.shape), None, length=3)[0]


JOINING = {
    "mean of the batch": (lambda x: x - x.mean(axis=0, keepdims=True), "reduce_sum"),
    "largest of the batch": (lambda x: x / x.max(), "reduce_max"),
    "order turned round": (lambda x: x[::-1], "rev"),
    "neighbours": (lambda x: x - jnp.roll(x, 1, axis=0), "slice"),
    "attention between images": (lambda x: x @ x.T @ x, "dot_general"),
    "ranks": (lambda x: jnp.argsort(x, axis=0).astype(jnp.float32), "sort"),
    "running sum": (lambda x: jnp.cumsum(x, axis=0), "cumsum"),
    "one after the other": (cumulated, "scan"),
    "in a hidden state": (recurrent, "reduce_sum"),
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


def traced(function, shape=(6,)):
    return rows.Traced.of(lambda weight, x: function(weight * x), 2.0, shape, np.float32)


@pytest.mark.parametrize("function", ALONE.values(), ids=ALONE)
def test_what_treats_rows_alone_does_not_count_them(function):
    assert not traced(function).counts_rows


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x / x.shape[0],
        lambda x: x * (100.0 / len(x)),
        lambda x: jax.jit(lambda y: y + len(y))(x),
        lambda x: jax.lax.cond(x.sum() > 0, lambda y: y * len(y), lambda y: y, x),
        lambda x: jax.lax.scan(lambda c, row: (c, row / len(x)), 0, x)[1],
        lambda x: x if len(x) == rows.ROWS else 2 * x,
        lambda x: x + np.full((1, 6), len(x), np.float32),
    ],
)
def test_what_counts_rows_is_told(function):
    assert traced(function).counts_rows


def test_loops_are_told():
    assert traced(lambda x: jax.lax.while_loop(lambda y: y.sum() < 9, lambda y: 2 * y, x)).loops
    assert traced(jax.vmap(lambda r: jax.lax.while_loop(lambda y: y.sum() < 9, lambda y: 2 * y, r))).loops
    assert traced(jax.jit(lambda x: jax.lax.while_loop(lambda y: y.sum() < 9, lambda y: 2 * y, x))).loops
    assert not traced(lambda x: jax.lax.fori_loop(0, 3, lambda _, y: 2 * y, x)).loops
    assert not traced(jnp.tanh).loops


def test_what_cannot_be_traced_says_nothing():
    assert traced(lambda x: x.reshape(12, 6)) is None
    assert traced(lambda x: x if x[0, 0] > 0 else 2 * x) is None


def test_a_compiled_function_with_options_is_read_too():
    compiled = jax.jit(
        lambda weight, x, k: k * weight * x / len(x), compiler_options={"xla_embed_ir_in_executable": False}
    )
    assert rows.Traced.of(partial(compiled, k=2.0), 2.0, (6,), np.float32).counts_rows
