"""CCU's head against the paper's equations in SciPy's float64, by hand, and far away."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from scipy.special import logsumexp, softmax

from preload_jax.errors import UserError
from preload_jax.models import CCUHead, make_classifier

SHAPE, COMPONENTS, CLASSES = (2, 3, 1), 3, 4
SIZE = math.prod(SHAPE)


def network(seed=0, components=COMPONENTS):
    """A classifier with random mixtures whose θ exceed its σ."""
    model = make_classifier("mlp", "ccu", num_classes=CLASSES, components=components, widths=(5,))
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, *SHAPE)))
    variables = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes)
    densities, stats = variables["params"]["head"]["densities"], variables["batch_stats"]["head"]
    for name, low, high in (("in", -0.5, 0.0), ("out", 1.0, 2.0)):
        densities[f"{name}_means"] = rng.normal(size=(components, SIZE)).astype(np.float32)
        densities[f"{name}_log_variances"] = rng.uniform(low, high, components).astype(np.float32)
    stats["densities"]["center"] = rng.uniform(size=SHAPE).astype(np.float32)
    stats["densities"]["whitening"] = (np.eye(SIZE) + 0.3 * rng.normal(size=(SIZE, SIZE))).astype(np.float32)
    stats["log_prior_odds"] = np.float32(np.log(0.3))
    return model, variables


@partial(jax.jit, static_argnames="model")
def log_p(model, variables, images):
    return model.apply(variables, images)


def reference(variables, images):
    """log p(y | x) of the paper's eq. 3, whose densities are SciPy's Gaussians of covariance σ² C in the pixels."""
    float64 = jax.tree.map(lambda x: np.asarray(x, np.float64), variables)
    params, stats = float64["params"], float64["batch_stats"]["head"]
    densities, whitening = params["head"]["densities"], stats["densities"]["whitening"]
    covariance = np.linalg.inv(whitening @ whitening.T)
    rows = images.reshape(len(images), -1)

    def log_density(name):
        means = stats["densities"]["center"].reshape(-1) + densities[f"{name}_means"] @ np.linalg.inv(whitening)
        each = [
            scipy.stats.multivariate_normal(mean, np.exp(v) * (covariance + covariance.T) / 2).logpdf(rows)
            for mean, v in zip(means, densities[f"{name}_log_variances"], strict=True)
        ]
        return logsumexp(each, axis=0) - math.log(len(means))

    hidden = np.maximum(rows @ params["backbone"]["dense1"]["kernel"] + params["backbone"]["dense1"]["bias"], 0.0)
    of_network = softmax(hidden @ params["head"]["linear"]["kernel"] + params["head"]["linear"]["bias"], axis=1)
    weight = np.exp(stats["log_prior_odds"])
    p_in, p_out = np.exp(log_density("in"))[:, None] / (1 + weight), np.exp(log_density("out"))[:, None]
    p_out = p_out * weight / (1 + weight)
    return np.log(of_network * p_in + p_out / CLASSES) - np.log(p_in + p_out)


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_papers_equation(seed):
    model, variables = network(seed)
    images = np.random.default_rng(1).normal(0.5, 0.7, (50, *SHAPE))
    expected = reference(variables, images)
    found = np.asarray(log_p(model, variables, jnp.asarray(images, jnp.float32)))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=2e-5)
    # Both terms matter somewhere.
    assert np.ptp(expected, axis=1).max() > 10 * np.ptp(expected, axis=1).min()


@pytest.mark.parametrize(
    ("x", "weight", "share"),
    # p(x | i) : p(x | o) = exp(−x²/2) : exp(−x²/8)/2.
    [(0.0, 1.0, 2 / 3), (0.0, 2.0, 1 / 2), (2.0, 1.0, math.exp(-2) / (math.exp(-2) + math.exp(-0.5) / 2))],
)
def test_by_hand(x, weight, share):
    head = CCUHead(2, components=1)
    zero, one = np.zeros((1, 1)), np.ones((1, 1))
    variables = {
        "params": {
            "linear": {"kernel": np.array([[math.log(3.0), 0.0]]), "bias": np.zeros(2)},
            "densities": {
                "in_means": zero, "in_log_variances": zero[0], "out_means": zero, "out_log_variances": [math.log(4.0)]
            },
        },
        "batch_stats": {"densities": {"center": zero[0], "whitening": one}, "log_prior_odds": math.log(weight)},
    }  # fmt: skip
    variables = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), variables, is_leaf=lambda a: isinstance(a, list))
    found = np.exp(jax.jit(head.apply)(variables, jnp.ones((1, 1)), jnp.full((1, 1), x)))[0]
    np.testing.assert_allclose(found, [0.75 * share + 0.5 * (1 - share), 0.25 * share + 0.5 * (1 - share)], rtol=1e-6)


@pytest.mark.parametrize("scale", [1e2, 1e6, 1e15, 1e30, 3e38])
def test_far_away_it_is_uniform_and_never_nan(scale):
    model, variables = network()
    away = np.random.default_rng(2).uniform(-1, 1, (20, *SHAPE)).astype(np.float32)
    logits = np.asarray(log_p(model, variables, jnp.asarray(scale * away, jnp.float32)))
    np.testing.assert_array_equal(logits, np.full_like(logits, -math.log(CLASSES)))


def test_gradients_are_finite_at_the_center_and_far_away():
    model, variables = network()
    center = variables["batch_stats"]["head"]["densities"]["center"]
    images = jnp.asarray(np.stack([center, 1e10 * np.ones(SHAPE), -3e38 * np.ones(SHAPE)]), jnp.float32)
    # At a mean of the mixture, too.
    variables["params"]["head"]["densities"]["in_means"][0] = 0.0

    def total(params, x):
        return model.apply({**variables, "params": params}, x).sum()

    for gradient in jax.tree.leaves(jax.jit(jax.grad(total, argnums=(0, 1)))(variables["params"], images)):
        assert np.isfinite(gradient).all()


def test_what_has_no_density_is_refused():
    model, variables = network()
    with pytest.raises(UserError, match="expected one image's shape"):
        model.head.apply(
            {name: tree["head"] for name, tree in variables.items()}, jnp.ones((1, 5)), jnp.ones((1, 3, 2, 1))
        )
    with pytest.raises(UserError, match="integers have none"):
        jax.eval_shape(CCUHead(3, components=1).init, jax.random.key(0), jnp.ones((1, 5)), jnp.ones((1, 4), jnp.int32))
    with pytest.raises(UserError, match="at most 4,096 values"):
        jax.eval_shape(
            CCUHead(3, components=1).init,
            jax.random.key(0),
            jnp.ones((1, 5)),
            jax.ShapeDtypeStruct((1, 65, 64, 1), "f4"),
        )
    with pytest.raises(UserError, match="components must be"):
        make_classifier("mlp", "ccu", num_classes=3, components=0)
