"""The table of methods: complete, consistent, and refusing what it does not have."""

import pytest

from preload_jax import methods
from preload_jax.errors import UserError
from preload_jax.models import HEADS


def test_the_papers_nine_in_its_order():
    titles = [method.title for method in methods.METHODS.values()]
    assert titles == ["Standard", "DDU", "NC", "OE", "PreLoad", "OE-FT", "DOE-FT", "Energy-FT", "PreLoad-FT"]


@pytest.mark.parametrize("method", methods.METHODS.values(), ids=lambda m: m.name)
def test_rows_are_consistent(method):
    assert method.head in HEADS
    assert method.starts_from in (None, "standard")
    assert method.has_ood_class == (method.objective.__name__ == "extra_class")
    assert set(method.stages) <= {"all", "ood_head"}
    if method.score is None:
        assert method.starts_from is not None
    if "ood_head" in method.stages:
        assert method.head == "square_logit"


def test_unknown_method():
    with pytest.raises(UserError, match=r"unknown method 'preloda'; expected one of \['standard', 'ddu'"):
        methods.get("preloda")
