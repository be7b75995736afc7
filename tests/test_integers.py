"""Integers that users give: any list of them is taken, and what is none is said."""

import re

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from preload_jax.checks import require_number
from preload_jax.errors import UserError
from preload_jax.integers import require_flag, require_integer, require_integers, require_seed
from preload_jax.models import MLP, ConvNet, LeNet, ResNet18


@pytest.fixture
def as_users_have_it():
    """Without the checks of annotations, which only tests switch on."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def listed(values, **options):
    return require_integers("channels", values, what="a list of integers", at_least=1, **options)


@pytest.mark.parametrize(
    "values",
    [(6, 7), [6, 7], range(6, 8), np.array([6, 7], np.uint8), jnp.array([6, 7]), [np.int8(6), jnp.int32(7)]],
    ids=lambda values: type(values).__name__,
)
def test_any_list_of_integers_becomes_a_tuple_of_pythons(values, as_users_have_it):
    found = listed(values)
    assert found == (6, 7)
    assert [type(number) for number in found] == [int, int]
    networks = [LeNet(channels=values), MLP(widths=values), ConvNet(channels=values), ResNet18(blocks=values)]
    assert len({hash(network) for network in networks}) == 4
    assert hash(networks[0]) == hash(LeNet(channels=(6, 7)))


def test_an_array_of_means_is_taken_too(as_users_have_it):
    network = ResNet18(mean=np.array([0.5, 0.25]), std=np.array([1.0, 2.0]))
    assert (network.mean, network.std) == ((0.5, 0.25), (1.0, 2.0))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("67", "channels must be a list of integers, got '67'"),
        (6, "channels must be a list of integers, got 6"),
        (np.array(6), r"channels must be a list of integers, got array\(6\)"),
        ((), r"channels must be a list of integers, got \(\)"),
        ({6, 7}, "channels must be a list of integers, got {6, 7}"),
        (np.array([6.0, 7.0]), "channels must be an integer, got 6.0"),
        (np.array([[6, 7]]), r"channels must be an integer, got \[6, 7\]"),
        ((True, 7), "channels must be an integer, got True"),
        ((0, 7), "channels must be at least 1, got 0"),
    ],
    ids=str,
)
def test_anything_else_is_refused(values, message):
    with pytest.raises(UserError, match=f"^{message}$"):
        listed(values)


def test_how_many_there_are_is_checked():
    with pytest.raises(UserError, match=r"got \(6, 7\)"):
        listed((6, 7), count=3)


@pytest.mark.parametrize("check", [require_seed, lambda value: require_integer("seed", value, at_least=0)])
def test_of_endless_numbers_only_the_size_is_shown(check):
    for given, size in ((10**400, "about 10**400"), (-3 * 10**5000, "about -10**5000")):
        with pytest.raises(UserError, match=rf"^seed must be (below|at least) \S+, got {re.escape(size)}(: JAX .*)?$"):
            check(given)
    with pytest.raises(UserError, match=r"^x must be finite, got about 10\*\*400$"):
        require_number("x", 10**400)


def test_integers_are_below_63_bits():
    assert require_integer("n", 2**63 - 1, at_least=1) == 2**63 - 1
    with pytest.raises(UserError, match=r"^n must be below 2\*\*63, got about 10\*\*18$"):
        require_integer("n", 2**63, at_least=1)


def test_flags_are_bools_alone(as_users_have_it):
    for value in (True, np.True_):
        assert require_flag("nonnegative", value) is True
    for value in (False, np.False_):
        assert require_flag("nonnegative", value) is False
    for value in ("False", "", 0, 1, 1.0, None, [], np.array([True]), np.array(True), jnp.array(True)):
        with pytest.raises(UserError, match=r"^nonnegative must be True or False, got "):
            require_flag("nonnegative", value)
