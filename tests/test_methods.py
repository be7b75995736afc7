"""The table of methods: complete, consistent, and refusing what it does not have."""

import pytest

from preload_jax import losses, methods, scores
from preload_jax.errors import UserError
from preload_jax.models import HEADS


def test_the_papers_nine_in_its_order():
    titles = [method.title for method in methods.METHODS.values()]
    assert titles == ["Standard", "DDU", "NC", "OE", "PreLoad", "OE-FT", "DOE-FT", "Energy-FT", "PreLoad-FT"]


def test_each_is_trained_and_scored_as_the_paper_says():
    rows = {
        "standard": (("all",), losses.classification, scores.max_probability),
        "ddu": ((), losses.classification, None),
        "nc": (("all",), losses.extra_class, scores.in_domain_probability),
        "oe": (("all",), losses.outlier_exposure, scores.max_probability),
        "preload": (("all",), losses.extra_class, scores.in_domain_probability),
        "oe_ft": (("all",), losses.outlier_exposure, scores.max_probability),
        "doe_ft": (("all",), losses.outlier_exposure, scores.max_probability),
        "energy_ft": (("all",), losses.energy_margins, scores.negative_energy),
        "preload_ft": (("ood_head", "all"), losses.extra_class, scores.in_domain_probability),
    }
    assert {name: (row.stages, row.objective, row.score) for name, row in methods.METHODS.items()} == rows


@pytest.mark.parametrize("method", methods.METHODS.values(), ids=lambda m: m.name)
def test_rows_are_consistent(method):
    assert method.head in HEADS
    assert method.starts_from in (None, "standard")
    assert method.has_ood_class == (method.objective.__name__ == "extra_class")
    assert method.uses_outliers == (method.objective is not losses.classification)
    assert (method.starts_from is not None) == (method.name == "ddu" or method.name.endswith("_ft"))
    assert set(method.stages) <= {"all", "ood_head"}
    if method.score is None:
        assert method.starts_from is not None
    if "ood_head" in method.stages:
        assert method.head == "square_logit"


def test_unknown_method():
    with pytest.raises(UserError, match=r"unknown method 'preloda'; expected one of \['standard', 'ddu'"):
        methods.get("preloda")
