"""Scores on balls: guaranteed ≥ attacked ≥ as they are; nothing in a ball is above; the head's maxima are exact."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from preload_jax import guarantees, make_classifier, models, scores
from preload_jax.errors import UserError
from preload_jax.guarantees.head_box import largest_differences, largest_logits
from preload_jax.guarantees.head_parameters import HeadParameters

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (6, 4, 4, 1), np.uint8)


def network(head, **options):
    model = make_classifier("mlp", head, num_classes=3, widths=(16,), **options)
    return model, model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))


@pytest.mark.parametrize(
    ("head", "score"),
    [
        ("square_logit", None),
        ("none_class", None),
        ("linear", None),
        ("linear", "negative_energy"),
    ],
)
def test_no_point_of_a_ball_scores_above_what_is_guaranteed(head, score):
    model, variables = network(head)
    found = guarantees.ball_certificate(model, variables, IMAGES, 0.05, score=score, steps=10)
    assert (found.scores <= found.attacked).all()
    assert (found.attacked <= found.guaranteed).all()
    assert (found.attacked > found.scores).any()
    score_of = getattr(scores, found.score)
    for _ in range(20):
        points = np.clip(IMAGES / 255 + 0.05 * RNG.uniform(-1, 1, IMAGES.shape), 0, 1).astype(np.float32)
        logits = model.apply(variables, jnp.asarray(points))
        assert (np.asarray(score_of(logits)) <= found.guaranteed).all()
        assert (np.asarray(jax.nn.softmax(logits)[:, :3].max(axis=1)) <= found.largest_confidence).all()
    named = found.auroc(np.asarray(found.scores) + 0.1)
    assert named["auroc"] >= named["attacked"] >= named["guaranteed"]


@pytest.mark.parametrize("head", ["square_logit", "linear"])
def test_without_a_ball_the_guarantee_is_the_score(head):
    model, variables = network(head)
    found = guarantees.ball_certificate(model, variables, IMAGES, 0.0)
    np.testing.assert_array_equal(found.attacked, found.scores)
    np.testing.assert_allclose(found.guaranteed, found.scores, atol=5e-3)
    probabilities = jax.nn.softmax(model.apply(variables, jnp.asarray(IMAGES / 255, jnp.float32)))
    np.testing.assert_allclose(found.largest_confidence, probabilities[:, :3].max(axis=1), atol=2e-3)


def test_the_distance_feature_is_bounded_too():
    backbone = models.WithDistance(models.MLP(widths=(8,)), center=np.full((4, 4, 1), 0.5), scale=1.0)
    model = models.Classifier(backbone, models.SquareLogitHead(3, min_weight=0.2))
    variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
    found = guarantees.ball_certificate(model, variables, IMAGES, 0.02)
    assert (found.attacked <= found.guaranteed).all()
    near = guarantees.ball_certificate(model, variables, IMAGES, 0.0)
    np.testing.assert_allclose(near.guaranteed, near.scores, atol=5e-3)


@pytest.mark.parametrize("exponent", [2, 4])
def test_the_heads_maxima_are_those_of_a_fine_grid(exponent):
    head = HeadParameters(RNG.normal(size=(3, 2)), RNG.normal(size=3), RNG.uniform(0.1, 1.0, 2), 0.3, exponent)
    low, high = np.array([[-1.0, 0.2]]), np.array([[0.7, 1.5]])
    differences, slack = largest_differences(head, low, high)
    axes = [np.linspace(low[0, j], high[0, j], 401) for j in range(2)]
    g = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    z = g @ head.weights.T + head.bias
    z = np.concatenate([z, (g**exponent @ head.square_weights + head.ood_bias)[:, None]], axis=1)
    expected = (z[:, :3, None] - z[:, None]).max(axis=0)
    np.testing.assert_allclose(differences[0], expected, atol=1e-4)
    np.testing.assert_allclose(largest_logits(head, low, high)[0], z[:, :3].max(axis=0), atol=1e-9)
    assert 0.0 < slack[0] < 1e-3


def test_the_guarantee_of_one_linear_layer_by_hand():
    # G is the input itself, K = 2 and z = (g, −g): the difference 2 g is at most 2 (½ + ε).
    model = models.Classifier(models.MLP(widths=(1,)), models.LinearHead(2))
    variables = {
        "params": {
            "backbone": {"hidden0": {"kernel": jnp.ones((1, 1)), "bias": jnp.zeros(1)}},
            "head": {"linear": {"kernel": jnp.array([[1.0, -1.0]]), "bias": jnp.zeros(2)}},
        }
    }
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 1, 1, 1)))
    (name,) = shapes["params"]["backbone"]
    variables["params"]["backbone"] = {name: variables["params"]["backbone"]["hidden0"]}
    found = guarantees.ball_certificate(model, variables, np.full((1, 1, 1, 1), 0.5, np.float32), 0.25)
    np.testing.assert_allclose(found.guaranteed, 1.5, atol=1e-4)
    np.testing.assert_allclose(found.attacked, 1.5, atol=1e-5)
    np.testing.assert_allclose(found.largest_confidence, expit(1.5), atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": -0.1}, "epsilon must be finite and at least 0, got -0.1"),
        ({"steps": -1}, "steps must be at least 0, got -1"),
        ({"rounding": "False"}, "rounding must be True or False, got 'False'"),
        (
            {"score": "max_probability"},
            r"no bound on a ball for the score 'max_probability' of this head; expected one",
        ),
    ],
)
@pytest.mark.usefixtures("unannotated")
def test_what_makes_no_sense(change, message):
    model, variables = network("square_logit")
    with pytest.raises(UserError, match=message):
        guarantees.ball_certificate(model, variables, IMAGES, **change)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.ma.array(IMAGES, mask=IMAGES > 9), "a masked array was given"),
        (IMAGES.astype(np.int64), "images of type int64; expected uint8"),
        (IMAGES * 1e39 + 1e39, "images, as float32, hold NaN or infinity in 6 of 6"),
        (None, "images of shape"),
    ],
)
@pytest.mark.usefixtures("unannotated")
def test_what_predict_refuses_is_refused(images, message):
    with pytest.raises(UserError, match=message):
        guarantees.ball_certificate(*network("square_logit"), images)


@pytest.mark.usefixtures("unannotated")
def test_scores_beside_a_ball_are_numbers():
    found = guarantees.BallCertificate(0.1, "energy", *(np.zeros(2),) * 4)
    assert found.auroc([0.5, 1.0])["auroc"] == 1.0
    for wrong, message in (
        (np.ma.array([0.1, 0.2], mask=[0, 1]), "a masked array was given"),
        ([np.nan], "1 of 1 scores_in are NaN"),
        ([1e39], "scores_in are too large or too small for float32"),
    ):
        with pytest.raises(UserError, match=message):
            found.auroc(wrong)
