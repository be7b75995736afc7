"""Comma lists of options."""

import pytest

from experiments.cli import filters
from preload_jax.errors import UserError


@pytest.mark.parametrize("text", ["", ",", " , ,"])
@pytest.mark.parametrize("option", ["--ood", "--near", "--ensemble"])
def test_a_list_that_is_given_and_empty_is_refused(text, option):
    with pytest.raises(UserError) as error:
        filters.some(text, option=option)
    assert str(error.value) == f"{option}={text} names none; expected names joined by commas, or leave it out"
    assert filters.some(None, option=option) == ()
    assert filters.some("a,b,a", option=option) == ("a", "b")
