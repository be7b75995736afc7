"""Numbers that users give: what is one, and which."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax.checks import check_labels, require_number, require_share
from preload_jax.errors import UserError
from preload_jax.integers import require_integer, require_seed


@pytest.mark.parametrize("given", [3, np.int64(3), np.uint8(3), np.array(3), jnp.int32(3)])
def test_integers_of_any_library(given):
    found = require_integer("k", given, at_least=1)
    assert (type(found), found) == (int, 3)


@pytest.mark.parametrize("given", [3.0, 2.5, "3", True, np.bool_(True), None, [3], np.array([3, 4]), 3j, math.nan])
def test_what_is_no_integer(given):
    with pytest.raises(UserError, match=r"^k must be an integer, got "):
        require_integer("k", given, at_least=1)


def test_seeds_have_32_bits():
    assert require_seed(2**32 - 1) == 2**32 - 1
    for given, message in (
        (-1, "seed must be at least 0, got -1"),
        (2**32, r"seed must be below 2\*\*32, got 4294967296: JAX reads 32 bits of it"),
        (2**64, "seed must be below"),
        (0.0, "seed must be an integer, got 0.0"),
    ):
        with pytest.raises(UserError, match=f"^{message}"):
            require_seed(given)


def test_integers_that_are_too_small():
    with pytest.raises(UserError, match=r"^k must be at least 1, got 0$"):
        require_integer("k", 0, at_least=1)


@pytest.mark.parametrize("given", [2, 2.0, np.float32(2), np.array(2.0), jnp.float32(2), jnp.asarray(2)])
def test_numbers_of_any_library(given):
    found = require_number("x", given, above=0.0)
    assert (type(found), found) == (float, 2.0)


@pytest.mark.parametrize("given", ["2", True, None, [2.0], np.array([2.0]), 2j, np.complex64(2), jnp.ones(2)])
def test_what_is_no_number(given):
    with pytest.raises(UserError, match=r"^x must be a number, got "):
        require_number("x", given)


@pytest.mark.parametrize(
    ("given", "bounds", "words"),
    [
        (math.nan, {}, "finite"),
        (-math.inf, {"at_least": 0.0}, "finite and at least 0"),
        (-1e-9, {"at_least": 0.0}, "finite and at least 0"),
        (0.0, {"above": 0.0}, "finite and above 0"),
        (101, {"at_least": 0.0, "at_most": 100.0}, "finite and at least 0 and at most 100"),
    ],
)
def test_numbers_out_of_range(given, bounds, words):
    with pytest.raises(UserError) as caught:
        require_number("x", given, **bounds)
    assert str(caught.value) == f"x must be {words}, got {given!r}"


def test_bounds_themselves_are_in_range():
    assert require_number("x", 0, at_least=0.0, at_most=0.0) == 0.0


@pytest.mark.parametrize("given", [0, 1, 1.5, -0.1, math.nan, "0.5", [0.5]])
def test_confidences_lie_between_0_and_1(given):
    assert require_share("confidence", 0.5) == 0.5
    with pytest.raises(UserError, match="confidence must lie between 0 and 1, both excluded, got "):
        require_share("confidence", given)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array(["a"]), r"labels are <U1 \[1\]; expected integers 0 … K - 1, one an image$"),
        (np.eye(3), r"labels are float64 \[3, 3\]; .* of one-hot labels, .* give labels.argmax\(axis=1\)"),
        (np.eye(3, dtype=int), r"labels of shape \[3, 3\]; .* of one-hot labels, .* give labels.argmax\(axis=1\)"),
        (np.array([0.0]), "labels are float64"),
        (np.array([True]), "labels are bool"),
        (np.array([0], object), "labels are object"),
        (np.eye(3, dtype=int), r"labels of shape \[3, 3\]; expected \[n\]"),
        (np.array(3), r"labels of shape \[\]"),
        (np.array([-1, 2]), "labels run from -1 to 2"),
        (np.array([2**31]), "labels run from 2147483648 to 2147483648"),
    ],
)
def test_labels_that_are_none(labels, message):
    with pytest.raises(UserError, match=message):
        check_labels(labels)


def test_labels_of_any_integer_type():
    assert check_labels([0, 2]).tolist() == [0, 2]
    assert check_labels(np.zeros(0, np.uint8)).shape == (0,)
