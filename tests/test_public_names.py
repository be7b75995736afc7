"""Every public name says what it is, and its example runs."""

import doctest
import inspect
import types

import pytest

import preload_jax
from preload_jax import formats, models
from preload_jax.data import datasets
from preload_jax.errors import DataError, UserError


def public():
    """name → object, of the package and of the modules that it exports."""
    for name in preload_jax.__all__:
        value = getattr(preload_jax, name)
        if not isinstance(value, types.ModuleType):
            yield name, value
            continue
        names = getattr(value, "__all__", None) or [
            key
            for key, item in vars(value).items()
            if not key.startswith("_") and callable(item) and getattr(item, "__module__", "") == value.__name__
        ]
        # Tables and other values are read, not called.
        yield from ((f"{name}.{key}", item) for key in names if callable(item := getattr(value, key)))


NAMES = dict(public())
# Of the modules that come into play one step further.
NAMES |= {f"models.{name}": item for name in models.__all__ if callable(item := getattr(models, name))}
# Of programs, which are for machines without Flax.
NAMES |= {f"formats.{name}": getattr(formats, name) for name in formats.__all__}
DATA = ("available_ood", "get", "load", "load_ood", "load_outliers", "resolve")
NAMES |= {f"data.datasets.{name}": getattr(datasets, name) for name in DATA}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_example_runs(name):
    text = inspect.getdoc(NAMES[name])
    if "Example: see `" in text:
        other = text.split("Example: see `")[1].split("`")[0]
        assert any(key.split(".")[-1] == other for key in NAMES), other
        return
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert test.examples, f"{name} has no example"
    assert doctest.DocTestRunner().run(test).failed == 0


def test_the_package_shows_its_names_and_no_others():
    assert set(dir(preload_jax)) == {*preload_jax.__all__, "__version__"}
    assert preload_jax.UserError is UserError
    assert preload_jax.DataError is DataError


def test_the_modules_are_reachable_from_the_top():
    for name in ("metrics.fpr_at_tpr", "guarantees.safe_radius", "losses.extra_class", "weights.load", "fit"):
        assert name in NAMES
