"""The limit of every score along rays: brute force in float64 at large t, on made rays and on a trained network's."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits

from preload_jax import detectors, guarantees, make_classifier
from preload_jax import fit as train
from preload_jax.errors import UserError
from tests import toy
from tests.detectors import problem

DECIDED = [name for name, row in detectors.TABLE.items() if row.far_away != "undecided"]
OF_FEATURES = [name for name in DECIDED if name not in ("odin", "preload", "nc")]
EXTRA = {"knn_raw": ("knn", {"normalize": False}), "nci_cosine": ("nci", {"alpha": 0.0})}


def made_rays():
    """s and a: features that rise, fall and rest, few or all of them; and some that are dead in every feature."""
    rng = np.random.default_rng(3)
    s = rng.normal(size=(160, problem.D))
    s = (s + 0.1 * np.sign(s)) * (rng.uniform(size=(160, problem.D)) < rng.uniform(size=(160, 1)))
    s[:80] = np.abs(s[:80])
    s[::20] = 0.0
    return s, rng.uniform(0.0, 2.0, size=s.shape)


def heads():
    """A head of usual size, and one whose logits all fall along most rays."""
    kernel, bias = problem.head()
    return {"usual": (kernel, bias), "falling": (kernel - 0.4, bias)}


def scores_at(detector, s, a, head, t):
    features = t * s + a
    return detectors.score(detector, detectors.Outputs(features, features @ head[0] + head[1]))


def require_limit(limit, far, farther, factor):
    """Numbers are near, and what tends to ±∞ has its sign and grew with t."""
    finite = np.isfinite(limit)
    np.testing.assert_allclose(farther[finite], limit[finite], rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(np.sign(farther[~finite]), np.sign(limit[~finite]))
    assert (np.abs(farther[~finite]) > 0.3 * factor * np.abs(far[~finite])).all()


@pytest.mark.parametrize("kind", ["usual", "falling"])
@pytest.mark.parametrize("name", [*OF_FEATURES, *EXTRA])
def test_limits_are_what_large_t_gives(name, kind):
    head = heads()[kind]
    base, options = EXTRA.get(name, (name, problem.OPTIONS.get(name, {})))
    a = problem.arrays()
    outputs = detectors.Outputs(a["train"], a["train"] @ problem.head()[0] + problem.head()[1])
    s, rest = made_rays()
    if name in ("ash_s", "scale"):
        with pytest.raises(ValueError, match="for features >= 0"):
            detectors.limit(problem.fitted(name), s, rest)
        s, rest = s[:80], rest[:80]
    with toy.enable_x64(True):
        detector = detectors.fit(base, outputs, problem.LABELS, head=head, **options)
        limit = detectors.limit(detector, s, rest, head=head)
        far, farther = (scores_at(detector, s, rest, head, t) for t in (1e5, 1e7))
    # −log H and −log G grow like t·γ at least; the rest like t.
    require_limit(limit, far, farther, 100.0)


def test_both_verdicts_occur():
    s, rest = made_rays()
    moving = s.any(axis=1)
    for name in ("max_logit", "energy", "vim", "ash_p", "ash_b", "ash_s", "scale", "openmax"):
        signs = set()
        rows = moving & (np.arange(len(s)) < (80 if name in ("ash_s", "scale") else len(s)))
        rays = s[rows], rest[rows]
        for head in heads().values():
            detector = detectors.fit(
                name, problem.outputs("train"), problem.LABELS, head=head, **problem.OPTIONS.get(name, {})
            )
            signs |= set(np.sign(detectors.limit(detector, *rays, head=head)))
        assert signs == {-1.0, 1.0}, name


def test_relative_mahalanobis_where_the_means_do_not_differ():
    """Along s = Σ v, with v orthogonal to every difference of means, no class is seen: the score does not change."""
    a = problem.arrays()
    means = np.stack([a["train"][c == problem.LABELS].mean(axis=0) for c in range(problem.K)])
    residual = a["train"] - means[problem.LABELS]
    _, _, right = np.linalg.svd(means - means.mean(axis=0))
    s = (residual.T @ residual / problem.N @ right[-1])[None]
    detector = problem.fitted("relative_mahalanobis")
    found = detectors.limit(detector, s, np.ones((1, problem.D)))
    at_rest = detectors.score(detector, detectors.Outputs(np.ones((1, problem.D))))
    np.testing.assert_allclose(found, at_rest, rtol=1e-6)


def test_odin_is_never_called_ood():
    with toy.enable_x64(True):
        detector = problem.fitted("odin")
        images = np.random.default_rng(0).uniform(size=(20, 10))
        slopes = np.maximum(images @ problem.arrays()["weights"], 0.0)
        limit = detectors.limit(detector, slopes, np.zeros_like(slopes), head=problem.head())
        far = detectors.score(detector, detectors.Outputs(images=1e8 * images, network=problem.network))
    assert (limit == np.inf).all()
    assert (far > 100.0).all()


def test_the_ood_class():
    kernel, bias = problem.head()
    logits = problem.arrays()["train_logits"]
    s, rest = made_rays()
    with toy.enable_x64(True):
        nc = detectors.fit("nc", detectors.Outputs(logits=logits))
        limit = detectors.limit(nc, s, rest, head=(kernel, bias))
        farther = scores_at(nc, s, rest, (kernel, bias), 1e7)
    finite = np.isfinite(limit)
    np.testing.assert_array_equal(np.sign(farther[~finite]), np.sign(limit[~finite]))
    assert set(np.sign(limit[~finite])) == {-1.0, 1.0}
    np.testing.assert_allclose(farther[finite], limit[finite], rtol=1e-5, atol=1e-5)
    preload = detectors.fit("preload", detectors.Outputs(logits=logits))
    own = kernel[:, :-1], bias[:-1]
    np.testing.assert_array_equal(detectors.limit(preload, s, rest, head=own) == -np.inf, s.any(axis=1))


def test_an_ood_logit_of_the_other_kind_is_refused():
    """The limit of a linear OOD logit is not that of a square one, nor the other way round."""
    kernel, bias = problem.head()
    logits = problem.arrays()["train_logits"]
    s, rest = made_rays()
    nc, preload = (detectors.fit(name, detectors.Outputs(logits=logits)) for name in ("nc", "preload"))
    with pytest.raises(UserError, match="whose logit is linear, and in the head"):
        detectors.limit(nc, s, rest, head=(kernel[:, :-1], bias[:-1]))
    with pytest.raises(UserError, match="whose logit is square, and not in it"):
        detectors.limit(preload, s, rest, head=(kernel, bias))


@cache
def digits():
    """A small network trained on the digits, its outputs, and slopes and constants along 1,500 directions."""
    data = load_digits()
    images = (data.images[..., None] / 16 * 255).astype(np.uint8)
    labels = data.target.astype(np.int32)
    model = make_classifier("mlp", "linear", num_classes=10, widths=(64, 64))
    variables = train(model, images, labels, epochs=8, batch_size=64, learning_rate=3e-3)
    directions = np.asarray(jax.random.normal(jax.random.key(1), (1500, 8, 8, 1)))
    backbone = {"params": variables["params"]["backbone"]}
    s = guarantees.ray_slopes(model.backbone, backbone, jnp.asarray(directions))
    a = guarantees.ray_constants(model.backbone, backbone, jnp.asarray(directions))
    head = variables["params"]["head"]["linear"]
    outputs = detectors.outputs(model, variables, images)
    return model, variables, outputs, labels, directions, np.asarray(s), np.asarray(a), (head["kernel"], head["bias"])


@pytest.mark.parametrize("name", OF_FEATURES)
def test_verdicts_on_a_trained_network(name):
    """OOD or not, by the threshold of 95 % of the training data: the limit's verdict and the network's at t = 10⁶."""
    model, variables, outputs, labels, directions, s, a, head = digits()
    options = {"k": 10} if name == "knn" else {}
    detector = detectors.fit(name, outputs, labels, head=head, **options)
    threshold = np.quantile(detectors.score(detector, outputs), 0.05)
    limit = detectors.limit(detector, s, a, head=head)
    far = detectors.outputs(model, variables, 1e6 * directions.astype(np.float32))
    verdicts = detectors.score(detector, far) < threshold
    agreement = np.mean((limit < threshold) == verdicts)
    print(f"{name}: called OOD {100 * np.mean(limit < threshold):.1f} %, agreement {100 * agreement:.2f} %")
    assert agreement >= 0.998
    # The table's word.
    share = np.mean(limit < threshold)
    word = detectors.TABLE[name].far_away
    assert share > 0.99 or word != "always"
    assert share < 0.01 or word != "never"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: (s * np.nan, s), "slopes hold NaN or infinity in 20 of 20"),
        (lambda s: (s, s + np.inf), "constants hold NaN or infinity in 20 of 20"),
        (
            lambda s: (s[:, :3], s[:, :3]),
            r"slopes and constants have 3 columns; (ddu|energy) was fitted to|head's kernel",
        ),
        (lambda s: (np.ma.array(s, mask=s > 0), s), "a masked array was given"),
        (lambda s: (None, s), "slopes of type object; expected real numbers"),
        (lambda s: (s[0], s[0]), r"expected \[n, d\] both"),
    ],
)
def test_slopes_and_constants_that_are_none_are_refused(change, message):
    s = np.random.default_rng(0).normal(size=(20, len(problem.head()[0])))
    of_logits = detectors.fit("energy", detectors.Outputs(logits=problem.arrays()["train_logits"]))
    for detector, head in ((problem.fitted("ddu"), None), (of_logits, problem.head())):
        with pytest.raises(UserError, match=message):
            detectors.limit(detector, *change(s), head=head)
