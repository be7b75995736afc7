"""RGPR against plain NumPy in float64, near the data and far away; the head gives the same and stays finite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from scipy.special import log_softmax, softmax

from preload_jax import bayes, guarantees, models, predict
from preload_jax.errors import UserError
from preload_jax.guarantees.ray_inputs import unit_directions
from tests import toy

IMAGES, LABELS = (np.asarray(x)[:60] for x in (toy.data().images, toy.data().labels))
# One pixel is the same in all images.
IMAGES = IMAGES.copy()
IMAGES[:, 0, 0] = 51
VARIANCE = 1e-3
DIRECTIONS = np.random.default_rng(1).normal(size=(20, *toy.SHAPE))


@pytest.fixture(scope="module")
def network():
    model = models.make_classifier("mlp", "linear", num_classes=3, widths=(8,))
    return model, jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, *toy.SHAPE)))


@pytest.fixture(scope="module", params=["kron", "full"])
def rgpr(request, network):
    return bayes.fit_rgpr(*network, IMAGES, structure=request.param, prior_precision=0.5, variance=VARIANCE)


def kernel(images):
    """σ²/3 of the mean |x̂|³, from the paper."""
    train = IMAGES.reshape(60, -1) / 255
    deviation = train.std(axis=0)
    deviation[0] = 1.0
    return VARIANCE / 3 * (np.abs((images.reshape(len(images), -1) - train.mean(axis=0)) / deviation) ** 3).mean(axis=1)


def logits(variables, images):
    """The network's, in float64, from its stored numbers."""
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), variables["params"])
    stats = {name: np.asarray(x, np.float64) for name, x in variables["batch_stats"]["head"].items()}
    dense, linear = params["backbone"]["dense1"], params["head"]["linear"]
    g = np.maximum(images.reshape(len(images), -1) @ dense["kernel"] + dense["bias"], 0.0)
    with_one = np.column_stack([g, np.ones(len(g))])
    if "factor" in stats:
        v = np.stack([np.square(with_one @ factor).sum(axis=1) for factor in stats["factor"]], axis=1)
    else:
        v = np.column_stack([np.square(g @ stats["basis"]), np.ones(len(g))]) @ stats["variances"]
    z = g @ linear["kernel"] + linear["bias"]
    return z / np.sqrt(1.0 + np.pi / 8 * (v + kernel(images)[:, None]))


def test_the_kernel_is_that_of_infinitely_many_relus():
    """∫ over the knots c of max(0, x − c)² for x > 0, as many towards −∞; a mean over the dimensions."""
    found = bayes.spline(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    x = np.array([0.7, -1.9])
    of_each = [scipy.integrate.quad(lambda c, end=end: (end - c) ** 2, 0.0, end)[0] for end in np.abs(x)]
    np.testing.assert_allclose(found.variances(x[None]), [np.mean(of_each)], rtol=1e-10)
    assert found.variances(np.zeros((1, 2))).tolist() == [0.0]


def test_images_are_measured_in_blocks(monkeypatch):
    whole = bayes.spline(IMAGES)
    monkeypatch.setattr("preload_jax.bayes.rgpr._BLOCK", 7)
    for name in ("center", "scale"):
        np.testing.assert_allclose(getattr(bayes.spline(IMAGES), name), getattr(whole, name), rtol=1e-12)
    assert whole.scale[0, 0, 0] == 1.0
    np.testing.assert_allclose(VARIANCE * whole.variances(IMAGES), kernel(IMAGES / 255), rtol=1e-10)


def test_predictions(rgpr):
    model, variables = rgpr
    assert type(model.head) is models.RGPRHead
    # So far from the data that the kernel counts.
    images = (IMAGES / 255 + 3.0 * DIRECTIONS[:1]).astype(np.float32)
    assert kernel(images).min() > 0.1
    with pytest.warns(UserWarning, match="images run from"):
        found = predict(model, variables, images).probabilities
    np.testing.assert_allclose(found, softmax(logits(variables, images.astype(np.float64)), axis=1), rtol=2e-4)


def test_beside_laplace(network, rgpr):
    """The same classes as Laplace's, no more confident anywhere, and nearly as confident on the training images."""
    structure = rgpr[0].head.structure
    laplace = bayes.fit_laplace(*network, IMAGES, structure=structure, prior_precision=0.5)
    near = [predict(*each, IMAGES).probabilities for each in (laplace, rgpr)]
    assert (near[0].argmax(axis=1) == near[1].argmax(axis=1)).all()
    assert (near[1].max(axis=1) <= near[0].max(axis=1) + 1e-6).all()
    np.testing.assert_allclose(near[0], near[1], atol=1e-3)


def test_far_away_all_classes_are_equally_likely(rgpr):
    model, variables = rgpr
    found = guarantees.far_away_limit(model, variables, DIRECTIONS, starts=DIRECTIONS[::-1])
    assert not found.undecided.any()
    assert (found.winner == -1).all()
    np.testing.assert_allclose(found.probabilities, np.full((20, 3), 1 / 3), rtol=1e-15)
    np.testing.assert_allclose(found.log_odds, np.full((20, 3), -np.log(2)), rtol=1e-15)
    # Logits fall like t^{-1/2}, in float64.
    units = unit_directions(DIRECTIONS, np.float64)
    for t in (1e3, 1e5, 1e7, 1e9):
        at, later = (logits(variables, each * units) for each in (t, 100 * t))
        p = softmax(at, axis=1)
        assert np.abs(p - found.probabilities).max() < 60.0 / np.sqrt(t)
        if t >= 1e5:
            np.testing.assert_allclose(later, at / 10.0, rtol=0.02, atol=1e-2 * np.abs(at).max())
    # And in the network, up to where it pulls images back.
    far = np.asarray(jax.nn.softmax(jax.jit(model.apply)(variables, jnp.asarray(1e9 * units, jnp.float32))))
    np.testing.assert_allclose(far, found.probabilities, atol=1e-3)


def test_a_ray_to_which_no_unit_responds(rgpr):
    model, variables = rgpr
    dense = variables["params"]["backbone"]["dense1"]
    silent = {**dense, "kernel": -abs(dense["kernel"])}
    dead = {**variables, "params": {**variables["params"], "backbone": {"dense1": silent}}}
    found = guarantees.far_away_limit(model, dead, abs(DIRECTIONS[:2]))
    assert found.dead.all()
    np.testing.assert_allclose(found.probabilities, np.full((2, 3), 1 / 3))
    units = unit_directions(abs(DIRECTIONS[:2]), np.float64)
    np.testing.assert_allclose(softmax(logits(dead, 1e9 * units), axis=1), found.probabilities, atol=1e-8)


def test_nothing_overflows_and_laplaces_bound_holds(rgpr):
    model, variables = rgpr
    bound = guarantees.laplace_bound(variables)
    np.testing.assert_allclose(bound.attained_log_odds, -np.log(2))
    assert "grows faster" in bound.reason
    for size in (1e15, 3e38):
        with pytest.warns(UserWarning, match="images run from"):
            far = predict(model, variables, size * np.ones((1, *toy.SHAPE), np.float32))
        assert np.isfinite(far.score).all()
        assert 1 / 3 - 1e-6 < far.probabilities.max() < 0.34
        assert (np.log(far.probabilities) - np.log1p(-far.probabilities) <= bound.log_odds).all()


def test_the_variance_of_the_largest_likelihood_of_held_out_examples(network):
    # Labels that the network does not expect: the more variance, the better.
    model, variables = network
    images = IMAGES / 255 + 0.1 * np.random.default_rng(2).normal(size=IMAGES.shape)
    labels = predict(model, variables, IMAGES).probabilities.argmin(axis=1)
    labels[::2] = LABELS[::2]
    held_out = images.astype(np.float32), labels
    _, found = bayes.fit_rgpr(model, variables, IMAGES, prior_precision=100.0, validation=held_out)
    features = np.asarray(model.apply(variables, jnp.asarray(held_out[0]), features=True)[1])
    train = np.asarray(model.apply(variables, jnp.asarray(IMAGES / np.float32(255)), features=True)[1])
    linear = variables["params"]["head"]["linear"]
    laplace = bayes.posterior(train, head=(linear["kernel"], linear["bias"]), prior_precision=100.0)

    def likelihood(variance):
        of_all = laplace.logits(features, more_variance=variance / VARIANCE * kernel(held_out[0]))
        return log_softmax(of_all, axis=1)[np.arange(60), labels].mean()

    best = max(likelihood(each) for each in np.logspace(-14, 6, 201))
    assert likelihood(float(found["batch_stats"]["head"]["spline_deviation"]) ** 2) >= best - 1e-5


def test_it_is_fitted_anew_to_a_network_that_has_a_posterior_already(rgpr):
    again, variables = bayes.fit_rgpr(*rgpr, IMAGES)
    assert again == rgpr[0]
    np.testing.assert_allclose(variables["batch_stats"]["head"]["spline_deviation"], np.sqrt(1e-3), rtol=1e-6)
    laplace, own = bayes.fit_laplace(*rgpr, IMAGES)
    assert type(laplace.head) is models.LaplaceHead
    assert not any(name.startswith("spline") for name in own["batch_stats"]["head"])


def test_what_is_refused(network, rgpr):
    for variance in (0.0, -1.0, np.nan, np.inf, 1e30):
        with pytest.raises(UserError, match=r"variance must be finite and at least 1e-20 and below 1e\+20, got"):
            bayes.fit_rgpr(*network, IMAGES, variance=variance)
    with pytest.raises(UserError, match="variance and validation both say what σ² is; leave one out"):
        bayes.fit_rgpr(*network, IMAGES, variance=1.0, validation=(IMAGES, LABELS))
    with pytest.raises(UserError, match="60 held-out images, 60 labels; expected one of 3 classes each"):
        bayes.fit_rgpr(*network, IMAGES, validation=(IMAGES, LABELS + 1))
    with pytest.raises(UserError, match="the head is a SquareLogitHead with an OOD class; a last-layer Laplace"):
        bayes.fit_rgpr(toy.model(), {"params": {}}, IMAGES)
    with pytest.raises(UserError, match="images of type int32: a distance between integers, such as tokens, says noth"):
        bayes.spline(IMAGES.astype(np.int32))
    with pytest.raises(UserError, match="images hold NaN or infinity in 60 of 60"):
        bayes.spline(np.full((60, 4), np.nan))
    with pytest.raises(UserError, match=r"images of shape \[0, 4\]; expected \[n, …\], n at least 1"):
        bayes.spline(np.zeros((0, 4)))
    model, variables = rgpr
    head = {name: tree["head"] for name, tree in variables.items()}
    features = jnp.ones((2, 8))
    with pytest.raises(UserError, match="variance of RGPR is of images in floating point, got nothing"):
        model.head.apply(head, features)
    with pytest.raises(UserError, match="variance of RGPR is of images in floating point, got int32"):
        model.head.apply(head, features, jnp.ones((2, *toy.SHAPE), jnp.int32))
    with pytest.raises(UserError, match=r"images \[2, 5\] with a center \[4, 4, 1\]; expected one image's shape"):
        model.head.apply(head, features, jnp.ones((2, 5)))


def test_scales_that_float32_does_not_have_are_1(network):
    images = np.random.default_rng(0).random((40, *toy.SHAPE))
    images[:, 0, 0] *= 1e-50
    images[:, 1, 1] *= 1e-40
    model, variables = bayes.fit_rgpr(*network, images, prior_precision=0.5)
    assert np.isfinite(predict(model, variables, images).probabilities).all()
    assert float(np.min(variables["batch_stats"]["head"]["spline_scale"])) > 0.0


@pytest.mark.parametrize("given", [np.array([["a"]]), np.array([[None]]), np.array([[1j]])])
def test_what_is_no_image_is_refused(given):
    with pytest.raises(UserError, match="expected uint8 or floating point"):
        bayes.spline(given)
    with pytest.raises(UserError, match=r"expected \[n, 2\]"):
        bayes.spline(np.eye(2)).variances(np.ones((3, 1)))


@pytest.mark.usefixtures("unannotated")
@pytest.mark.parametrize("fit", [bayes.fit_laplace, bayes.fit_rgpr])
def test_held_out_examples_are_a_pair(fit, network):
    with pytest.raises(UserError, match=r"expected \(images, labels\)"):
        fit(*network, IMAGES, validation="test")
