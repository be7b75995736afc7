"""The table of methods: each row binds, and each method trains and scores as the paper says; unknown names."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

from preload_jax import evaluation, methods, own_numbers, scores
from preload_jax.errors import UserError
from preload_jax.methods import METHODS
from preload_jax.models import HEADS
from preload_jax.training.stage import STEPS
from tests import toy


def test_the_papers_nine_in_its_order():
    titles = [METHODS[name].title for name in methods.PAPER]
    assert titles == ["Standard", "DDU", "NC", "OE", "PreLoad", "OE-FT", "DOE-FT", "Energy-FT", "PreLoad-FT"]


def _cross_entropy(logits, labels):
    return -log_softmax(logits, axis=1)[np.arange(len(labels)), labels].mean()


def _classification(logits, labels, logits_ood):
    return _cross_entropy(logits, labels)


def _extra_class(logits, labels, logits_ood):
    """With the released code's half."""
    ood = np.full(len(logits_ood), logits.shape[1] - 1)
    return (_cross_entropy(logits, labels) + 0.3 * _cross_entropy(logits_ood, ood)) / 2


def _exposure(logits, labels, logits_ood):
    return _cross_entropy(logits, labels) - 0.3 * log_softmax(logits_ood, axis=1).mean()


def _energy_margins(logits, labels, logits_ood):
    inside, outside = -logsumexp(logits, axis=1), -logsumexp(logits_ood, axis=1)
    hinges = np.maximum(inside + 3.0, 0) ** 2, np.maximum(-1.0 - outside, 0) ** 2
    return _cross_entropy(logits, labels) + 0.3 * (hinges[0].mean() + hinges[1].mean())


def _log_odds_of_the_largest(logits):
    p = np.exp(log_softmax(logits, axis=1)).max(axis=1)
    return np.log(p / (1 - p))


def _log_odds_of_the_classes(logits):
    p = np.exp(log_softmax(logits, axis=1))[:, :-1].sum(axis=1)
    return np.log(p / (1 - p))


def _negative_energy(logits):
    return np.log(np.exp(logits).sum(axis=1))


# The paper's section 4 and supplement: the loss, for λ = 0.3, m_in = −3 and m_ood = −1, and the score.
_PAPER = {
    "standard": (_classification, _log_odds_of_the_largest),
    "nc": (_extra_class, _log_odds_of_the_classes),
    "oe": (_exposure, _log_odds_of_the_largest),
    "preload": (_extra_class, _log_odds_of_the_classes),
    "oe_ft": (_exposure, _log_odds_of_the_largest),
    "doe_ft": (_exposure, _log_odds_of_the_largest),
    "energy_ft": (_energy_margins, _negative_energy),
    "preload_ft": (_extra_class, _log_odds_of_the_classes),
}


@pytest.mark.parametrize("name", _PAPER)
def test_each_is_trained_and_scored_as_the_paper_says(name):
    loss, score = _PAPER[name]
    rng = np.random.default_rng(0)
    logits, logits_ood = jnp.asarray(rng.normal(size=(2, 40, 4)), jnp.float32)
    labels = jnp.asarray(rng.integers(0, 3, 40), jnp.int32)
    numbers = toy.hyper(name, ood_weight=0.3, margin_in=-3.0, margin_ood=-1.0).objective
    found = toy.task(name, total_steps=1).objective(logits, labels, logits_ood, **numbers)
    exact, exact_ood = (np.asarray(array, np.float64) for array in (logits, logits_ood))
    np.testing.assert_allclose(found, loss(exact, np.asarray(labels), exact_ood), rtol=1e-5)
    np.testing.assert_allclose(getattr(scores, METHODS[name].score)(logits), score(exact), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name", [name for name, row in METHODS.items() if not row.in_paper and row.stages and not row.draws]
)
def test_others_are_the_papers_with_one_thing_changed(name):
    row, like = METHODS[name], METHODS[METHODS[name].tuned_as]
    assert like.in_paper
    # CCU's head knows two densities beside the linear logits.
    for field in ("stages", "score", "starts_from", *(("head",) if name != "ccu" else ())):
        assert getattr(row, field) == getattr(like, field)
    changed = {field for field in ("objective", "step") if getattr(row, field) != getattr(like, field)}
    assert bool(changed) != (row.distance is not None)


@pytest.mark.parametrize("name", METHODS)
def test_own_numbers_are_known_and_usual_ones_make_sense(name):
    for number, usual in METHODS[name].own:
        own_numbers.check(number, usual)
        assert name in methods.with_option(number)


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
    starts = {name: row.starts_from for name, row in METHODS.items() if row.starts_from not in (None, "standard")}
    assert starts == {"laplace_oe": "oe"}


def test_an_option_says_whose_it_is():
    assert methods.with_option("margin_in") == ("energy_ft",)
    square = ("preload", "preload_ft", "preload_certified", "preload_certified_ft", "preload_adv")
    assert methods.with_option("exponent") == square
    assert methods.with_option("focal_gamma") == ("focal",)
    assert methods.with_option("adversarial_steps") == ("acet", "preload_adv")
    assert methods.with_option("min_weight") == ("preload_certified", "preload_certified_ft")
    assert methods.with_option("ood_weight") == tuple(METHODS)


def test_the_table_imports_no_jax():
    # The help of every command reads it, and importing JAX takes a second.
    code = "import sys; from preload_jax import methods; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_unknown_method():
    with pytest.raises(
        UserError, match=r"unknown method 'preloda' \(did you mean 'preload'\?\); expected one of standard, ddu, "
    ):
        methods.get("preloda")
