"""The last-layer Laplace approximation against JAX's Hessian and plain NumPy, in float64; the head gives the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from preload_jax import bayes, models, predict
from preload_jax.bayes import curvature, prior
from preload_jax.errors import UserError
from tests import toy

N, D, K = 40, 4, 3
RNG = np.random.default_rng(0)
FEATURES, KERNEL, BIAS = np.abs(RNG.normal(size=(N, D))), RNG.normal(size=(D, K)), RNG.normal(size=K)
ASKED = 4.0 * RNG.normal(size=(6, D))
LABELS = RNG.integers(0, K, N)


def fitted(structure, precision=0.7):
    return bayes.posterior(FEATURES, head=(KERNEL, BIAS), structure=structure, prior_precision=precision)


def test_the_full_curvature_is_the_hessian_of_the_cross_entropy():
    with_one = np.column_stack([FEATURES, np.ones(N)])

    def loss(theta):
        logits = jnp.asarray(with_one) @ theta.reshape(K, D + 1).T
        return -jax.nn.log_softmax(logits)[jnp.arange(N), jnp.asarray(LABELS)].sum()

    with toy.enable_x64(True):
        hessian = np.asarray(jax.hessian(loss)(jnp.asarray(np.column_stack([KERNEL.T, BIAS]).ravel())))
    found = fitted("full")
    covariance = np.linalg.inv(hessian + 0.7 * np.eye(len(hessian)))
    np.testing.assert_allclose(found.curvature.matrix(0.7).reshape(covariance.shape), covariance, rtol=1e-8, atol=1e-12)
    # Of the logits: J Σ Jᵀ with J = I ⊗ g̃.
    for g, of_one in zip(ASKED, found.covariance(ASKED), strict=True):
        jacobian = np.kron(np.eye(K), np.append(g, 1.0))
        np.testing.assert_allclose(of_one, jacobian @ covariance @ jacobian.T, rtol=1e-8, atol=1e-12)


def test_the_kronecker_factors():
    p = softmax(FEATURES @ KERNEL + BIAS, axis=1)
    gamma = sum(np.diag(row) - np.outer(row, row) for row in p)
    of_weights = np.linalg.inv(np.kron(gamma, FEATURES.T @ FEATURES / N) + 0.7 * np.eye(K * D))
    of_bias = np.linalg.inv(gamma + 0.7 * np.eye(K))
    found = fitted("kron").covariance(ASKED)
    for g, of_one in zip(ASKED, found, strict=True):
        jacobian = np.kron(np.eye(K), g)
        np.testing.assert_allclose(of_one, jacobian @ of_weights @ jacobian.T + of_bias, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("structure", ["kron", "full"])
def test_the_curvature_of_outliers_counts_by_their_weight(structure):
    """λ n/m = 2 is each outlier twice."""
    outliers = np.abs(RNG.normal(size=(N // 2, D)))
    options = {"head": (KERNEL, BIAS), "structure": structure, "prior_precision": 0.7}
    found = bayes.posterior(FEATURES, outliers=outliers, ood_weight=1.0, **options)
    expected = bayes.posterior(np.concatenate([FEATURES, outliers, outliers]), **options)
    np.testing.assert_allclose(found.covariance(ASKED), expected.covariance(ASKED), rtol=1e-9)
    without = bayes.posterior(FEATURES, outliers=outliers, ood_weight=0.0, **options)
    np.testing.assert_allclose(without.covariance(ASKED), fitted(structure).covariance(ASKED), rtol=1e-9)


@pytest.mark.parametrize("structure", ["kron", "full"])
def test_predictives(structure):
    found = fitted(structure)
    mean, covariance = ASKED @ KERNEL + BIAS, found.covariance(ASKED)
    variances = np.stack([np.diag(each) for each in covariance])
    np.testing.assert_allclose(
        found.probabilities(ASKED), softmax(mean / np.sqrt(1 + np.pi / 8 * variances), axis=1), rtol=1e-10
    )
    # Monte Carlo with a generator of NumPy's.
    rng = np.random.default_rng(1)
    for z, c, of_one in zip(
        mean, covariance, found.probabilities(ASKED, key=jax.random.key(0), samples=4000), strict=True
    ):
        expected = softmax(rng.multivariate_normal(z, c, 4000), axis=1).mean(axis=0)
        np.testing.assert_allclose(of_one, expected, atol=0.04)


@pytest.mark.parametrize("structure", ["kron", "full"])
def test_the_prior_of_the_largest_marginal_likelihood(structure):
    found = bayes.posterior(FEATURES, head=(KERNEL, BIAS), structure=structure)
    norm = np.sum(KERNEL**2) + np.sum(BIAS**2)
    values = found.curvature.eigenvalues

    def log_evidence(precision):
        return -0.5 * (np.log(values + precision).sum() - len(values) * np.log(precision) + precision * norm)

    grid = np.logspace(-3, 3, 2001)
    best = grid[np.argmax([log_evidence(each) for each in grid])]
    np.testing.assert_allclose(found.prior_precision, best, rtol=0.01)
    np.testing.assert_allclose(prior.log_evidence(values, norm, 0.3), log_evidence(0.3), rtol=1e-10)


def test_the_prior_of_the_largest_likelihood_of_held_out_examples():
    held_out = (np.abs(ASKED), RNG.integers(0, K, len(ASKED)))
    found = bayes.posterior(FEATURES, head=(KERNEL, BIAS), validation=held_out)

    def likelihood(precision):
        log_p = log_softmax(fitted("kron", precision).logits(held_out[0]), axis=1)
        return log_p[np.arange(len(ASKED)), held_out[1]].mean()

    best = max(likelihood(each) for each in np.logspace(-8, 8, 81))
    assert likelihood(found.prior_precision) >= best - 1e-6


@pytest.mark.parametrize("structure", ["kron", "full"])
def test_the_network_gives_the_posteriors_predictive_and_stays_finite(structure):
    model, images = toy.model("linear"), np.asarray(toy.data().images)[:60]
    variables = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, *toy.SHAPE)))
    bayesian, own = bayes.fit_laplace(model, variables, images, structure=structure, prior_precision=0.5)
    assert isinstance(bayesian.head, models.LaplaceHead)
    _, features = model.apply(variables, jnp.asarray(images / np.float32(255)), features=True)
    linear = variables["params"]["head"]["linear"]
    expected = bayes.posterior(
        features, head=(linear["kernel"], linear["bias"]), structure=structure, prior_precision=0.5
    )
    np.testing.assert_allclose(
        predict(bayesian, own, images).probabilities, expected.probabilities(features), rtol=1e-4
    )
    for size in (1e15, 3e38):
        with pytest.warns(UserWarning, match="images run from"):
            far = predict(bayesian, own, size * np.ones((1, *toy.SHAPE), np.float32))
        assert np.isfinite(far.score).all()
        assert far.probabilities.max() < 1.0
    # It is fitted anew to a network that has a posterior already.
    again, _ = bayes.fit_laplace(bayesian, own, images)
    assert again == bayesian


def test_features_of_which_one_is_always_zero():
    """The curvature is singular, and the prior's precision is all that the dead feature has: 1/δ."""
    dead = np.column_stack([FEATURES, np.zeros(N)])
    head = np.vstack([KERNEL, np.zeros(K)]), BIAS
    for structure in ("kron", "full"):
        found = bayes.posterior(dead, head=head, structure=structure, prior_precision=0.25)
        only = np.zeros((1, D + 1))
        origin = found.covariance(only)
        only[0, -1] = 3.0
        np.testing.assert_allclose(found.covariance(only) - origin, 9.0 / 0.25 * np.eye(K)[None], rtol=1e-6, atol=1e-7)


def test_what_is_refused(monkeypatch):
    head = (KERNEL, BIAS)
    for options, message in (
        ({"prior_precision": 0.0}, "prior_precision must be finite and above 0 .*, got 0.0"),
        ({"prior_precision": 1e300}, "at most 1e.08, got 1e.300"),
        ({"prior_precision": np.nan}, "prior_precision must be finite"),
        ({"structure": "diagonal"}, r"unknown structure 'diagonal'; expected one of kron, full"),
        ({"prior_precision": 1.0, "validation": (FEATURES, LABELS)}, "both say what the prior is; leave one out"),
        ({"validation": (FEATURES, LABELS + 1)}, "40 held-out features, 40 labels; expected one of 3 classes each"),
    ):
        with pytest.raises(UserError, match=message):
            bayes.posterior(FEATURES, head=head, **options)
    with pytest.raises(UserError, match=r"features of shape \[40, 3\]; the last layer takes \[n, 4\]"):
        bayes.posterior(FEATURES[:, :3], head=head)
    with pytest.raises(UserError, match="features hold NaN or infinity in 40 of 40"):
        bayes.posterior(np.inf * FEATURES, head=head)
    monkeypatch.setattr(curvature, "MOST_WEIGHTS", 14)
    with pytest.raises(UserError, match="15 weights and biases; a full covariance is made of at most 14: give struct"):
        bayes.posterior(FEATURES, head=head, structure="full")
    with pytest.raises(UserError, match="the head is a SquareLogitHead with an OOD class; a last-layer Laplace"):
        bayes.fit_laplace(toy.model(), {"params": {}}, np.zeros((1, *toy.SHAPE)))
