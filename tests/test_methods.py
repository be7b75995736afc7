"""The table of methods: each row binds, and each method trains and scores as the paper says; unknown names."""

import subprocess
import sys

import pytest

from preload_jax import evaluation, losses, methods, scores
from preload_jax.errors import UserError
from preload_jax.methods import METHODS
from preload_jax.models import HEADS
from preload_jax.training.stage import OBJECTIVES, STEPS


def test_the_papers_nine_in_its_order():
    titles = [METHODS[name].title for name in methods.PAPER]
    assert titles == ["Standard", "DDU", "NC", "OE", "PreLoad", "OE-FT", "DOE-FT", "Energy-FT", "PreLoad-FT"]


# The paper's section 4 and supplement: how each is trained, and what it scores with.
_PAPER = {
    "standard": (("all",), losses.classification, "max_probability"),
    "ddu": ((), losses.classification, "ddu"),
    "nc": (("all",), losses.extra_class, "in_domain_probability"),
    "oe": (("all",), losses.outlier_exposure, "max_probability"),
    "preload": (("all",), losses.extra_class, "in_domain_probability"),
    "oe_ft": (("all",), losses.outlier_exposure, "max_probability"),
    "doe_ft": (("all",), losses.outlier_exposure, "max_probability"),
    "energy_ft": (("all",), losses.energy_margins, "negative_energy"),
    "preload_ft": (("ood_head", "all"), losses.extra_class, "in_domain_probability"),
}


@pytest.mark.parametrize("name", methods.PAPER)
def test_each_is_trained_and_scored_as_the_paper_says(name):
    row = METHODS[name]
    assert (row.stages, OBJECTIVES[row.objective], row.score) == _PAPER[name]
    assert (row.distance, row.min_weight, row.min_distance_weight, row.tuned_as) == (None, 0.0, None, name)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in methods.PAPER])
def test_ours_are_the_papers_with_a_certificate(name):
    row, like = METHODS[name], METHODS[METHODS[name].tuned_as]
    assert like.in_paper
    assert not row.in_paper
    for field in ("head", "stages", "objective", "score", "starts_from", "step"):
        assert getattr(row, field) == getattr(like, field)
    assert row.distance == 1.0
    assert row.min_weight > 0
    assert row.min_distance_weight == 1.0


@pytest.mark.parametrize("name", METHODS)
def test_every_name_means_something_where_it_is_used(name):
    row = METHODS[name]
    assert row.head in HEADS
    assert row.step in STEPS
    assert row.scores_features or hasattr(scores, row.score)
    if not row.scores_features:
        evaluation.Scorer(None, {}, row.has_ood_class, row.score)


def test_only_fine_tuning_starts_from_a_trained_network():
    assert {name for name, row in METHODS.items() if row.fine_tunes} == {n for n in METHODS if n.endswith("_ft")}
    assert {row.starts_from for row in METHODS.values()} == {None, "standard"}


def test_an_option_says_whose_it_is():
    assert methods.with_option("margin_in") == ("energy_ft",)
    assert methods.with_option("exponent") == ("preload", "preload_ft", "preload_certified", "preload_certified_ft")
    assert methods.with_option("min_weight") == ("preload_certified", "preload_certified_ft")
    assert methods.with_option("ood_weight") == tuple(METHODS)


def test_the_table_imports_no_jax():
    # The help of every command reads it, and importing JAX takes a second.
    code = "import sys; from preload_jax import methods; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_unknown_method():
    with pytest.raises(UserError, match=r"unknown method 'preloda'; expected one of \['standard', 'ddu'"):
        methods.get("preloda")
