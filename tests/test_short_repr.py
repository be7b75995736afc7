"""What is printed of results: one line, of arrays their type and shape."""

import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import detectors, guarantees, predict
from preload_jax.api.attaching import Attached
from preload_jax.short_repr import short_repr
from tests import toy

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(300, 16)).astype(np.float32)
VARIABLES = toy.model().init(toy.jax.random.key(0), jnp.zeros((1, *toy.SHAPE)))
RADIUS = guarantees.InputRadius(0.5, 10.0, 2.0, np.zeros(3), np.zeros((28, 28, 1)), 5.0, nonnegative=True)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            RADIUS,
            "InputRadius(confidence=0.5, radius=10, relative=2, class_log_odds=float64[3], center=float64[28, 28,",
        ),
        (detectors.fit("knn", detectors.Outputs(FEATURES)), "Detector(name='knn', fitted={'"),
        (detectors.Outputs(jnp.asarray(FEATURES)), "Outputs(features=float32[300, 16], logits=None, maps=None,"),
        (
            predict(toy.model(), VARIABLES, np.zeros((5, *toy.SHAPE), np.uint8)),
            "Predictions(probabilities=float32[5, 3], ",
        ),
        (
            Attached(toy.model(), VARIABLES, guarantees.confidence_bound(VARIABLES["params"]["head"])),
            "Attached(model=Classifier, variables={'params': {'backbone': {'dense1': {",
        ),
        (guarantees.safe_radius(VARIABLES["params"]["head"], 0.5), "SafeRadius(confidence=0.5, radius="),
    ],
)
def test_results_are_printed_in_one_line(found, said):
    assert repr(found).startswith(said)
    assert "\n" not in repr(found)
    assert len(repr(found)) < 900


def test_modules_and_many_entries_are_shortened():
    found = guarantees.EmbeddingBehaviour(np.zeros(2, bool), np.zeros(2, bool), nonnegative=False)
    assert repr(found) == "EmbeddingBehaviour(bounded=bool[2], undecided=bool[2], nonnegative=False)"
    of_many = detectors.Detector("x", {str(i): np.zeros(i + 1) for i in range(9)}, {}, 2, (FEATURES, FEATURES), 3)
    assert short_repr(of_many) == (
        "Detector(name='x', fitted={'0': float64[1], '1': float64[2], '2': float64[3], '3': float64[4],"
        " '4': float64[5], '5': float64[6], …}, options={}, num_classes=2, head=(float32[300, 16],"
        " float32[300, 16]), width=3, stated=None)"
    )
