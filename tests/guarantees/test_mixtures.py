"""Limits along rays of MC dropout, ensembles and a Laplace approximation: the networks themselves, far away."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import bayes, guarantees, models
from preload_jax.errors import UserError
from tests import toy

N = 40
DIRECTIONS = np.random.default_rng(1).normal(size=(N, *toy.SHAPE)).astype(np.float32)
UNITS = DIRECTIONS / np.sqrt(np.square(DIRECTIONS).sum(axis=(1, 2, 3), keepdims=True))


def initialised(model, seed=0):
    return jax.jit(model.init)(jax.random.key(seed), jnp.asarray(UNITS[:1]))


def probabilities(model, variables, images):
    return np.asarray(jax.nn.softmax(jax.jit(model.apply)(variables, jnp.asarray(images))))


@pytest.fixture(scope="module", params=["kron", "full"])
def laplace(request):
    model = models.make_classifier("mlp", "linear", num_classes=3, widths=(8,))
    images = np.asarray(toy.data().images)[:60]
    return bayes.fit_laplace(model, initialised(model), images, structure=request.param)


def test_laplace(laplace):
    model, variables = laplace
    found = guarantees.far_away_limit(model, variables, DIRECTIONS)
    assert not found.undecided.any()
    assert (found.winner == -1).all()
    for t, tolerance in ((1e3, 3e-3), (1e6, 1e-5), (1e9, 1e-5)):
        np.testing.assert_allclose(found.probabilities, probabilities(model, variables, t * UNITS), atol=tolerance)
    p = found.probabilities
    np.testing.assert_allclose(found.log_odds, np.log(p) - np.log1p(-p), rtol=1e-9)
    # A start changes no slope of these rays, only which units rest.
    moved = guarantees.far_away_limit(model, variables, DIRECTIONS, starts=UNITS)
    np.testing.assert_allclose(moved.probabilities, p, atol=1e-5)


def test_laplace_along_a_ray_to_which_no_unit_responds(laplace):
    model, variables = laplace
    dense = variables["params"]["backbone"]["dense1"]
    silent = {**dense, "kernel": -abs(dense["kernel"]), "bias": dense["bias"]}
    dead = {**variables, "params": {**variables["params"], "backbone": {"dense1": silent}}}
    found = guarantees.far_away_limit(model, dead, abs(DIRECTIONS[:2]))
    assert found.dead.all()
    expected = probabilities(model, dead, 1e6 * abs(UNITS[:2]))
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-6)


def test_the_bound_holds_everywhere_and_is_below_kristiadis(laplace):
    model, variables = laplace
    bound = guarantees.laplace_bound(variables)
    found = guarantees.far_away_limit(model, variables, DIRECTIONS)
    assert (found.log_odds.max(axis=0) <= bound.log_odds).all()
    assert (bound.attained_log_odds <= bound.log_odds).all()
    assert (bound.confidence < 1.0).all()
    # Features that no network needs to make, the worst ones among them.
    features = np.concatenate([50.0 * np.random.default_rng(0).normal(size=(500, 8)), 1e3 * bound.embeddings])
    head = {name: variables[name]["head"] for name in ("params", "batch_stats")}
    logits = np.asarray(model.head.apply(head, jnp.asarray(features, jnp.float32)), np.float64)
    others = np.stack([np.logaddexp.reduce(np.delete(logits, c, axis=1), axis=1) for c in range(3)], axis=1)
    assert ((logits - others).max(axis=0) <= bound.log_odds + 1e-5).all()
    np.testing.assert_allclose(np.diag((logits - others)[500:]), bound.attained_log_odds, atol=0.01)
    # Each logit's own limit, against ‖w̃‖ / √(π/8 λ_min(Σ)).
    linear, stats = variables["params"]["head"]["linear"], variables["batch_stats"]["head"]
    weights = np.column_stack([np.asarray(linear["kernel"]).T, linear["bias"]])
    if "factor" in stats:
        smallest = [np.linalg.svd(np.asarray(f, np.float64), compute_uv=False).min() ** 2 for f in stats["factor"]]
    else:
        smallest = np.asarray(stats["variances"]).min(axis=0)
    theirs = np.linalg.norm(weights, axis=1) / np.sqrt(np.pi / 8 * np.asarray(smallest))
    largest = np.abs(logits).max(axis=0)
    assert (largest <= theirs).all()
    assert (bound.log_odds <= theirs - np.log(np.exp(-theirs).sum() - np.exp(-theirs))).all()


@pytest.mark.parametrize("head", ["linear", "square_logit"])
def test_an_ensemble(head):
    model = models.make_classifier("mlp", head, num_classes=3, widths=(8,))
    together, variables = models.ensemble([model] * 3, [initialised(model, seed) for seed in range(3)])
    found = guarantees.far_away_limit(together, variables, DIRECTIONS)
    assert not found.undecided.any()
    np.testing.assert_allclose(found.probabilities, probabilities(together, variables, 1e8 * UNITS), atol=1e-6)
    certain = found.probabilities.max(axis=1) == 1.0
    assert (found.winner[certain] == found.probabilities[certain].argmax(axis=1)).all()
    assert (found.winner[~certain] == -1).all()
    if head == "square_logit":
        assert (found.winner == 3).all()
    else:
        # They disagree along some rays, and there the confidence is a count of networks.
        assert set(np.round(3 * found.probabilities[~certain].max(axis=1))) == {1.0, 2.0} or not certain.all()


def test_mc_dropout():
    model = models.MCDropout(models.MLP(widths=(8,), dropout=0.4), models.LinearHead(3), samples=2)
    variables = initialised(model)
    found = guarantees.far_away_limit(model, variables, DIRECTIONS)
    decided = ~found.undecided
    assert decided.mean() > 0.9
    expected = probabilities(model, variables, 1e8 * UNITS)
    np.testing.assert_allclose(found.probabilities[decided], expected[decided], atol=1e-5)
    certain = found.probabilities[decided].max(axis=1) == 1.0
    assert 0 < certain.mean() < 1
    np.testing.assert_array_equal(found.winner[decided] >= 0, certain)
    with pytest.raises(UserError, match="expected a Classifier with a LinearHead or a SquareLogitHead, got MCDropout"):
        guarantees.ray_certificate(model, variables, DIRECTIONS)
    # A bound of the network without dropout is none of the mean over draws of it.
    with pytest.raises(UserError, match="expected a Classifier with a LinearHead or a SquareLogitHead, got MCDropout"):
        guarantees.ball_certificate(model, variables, UNITS)
