"""What a file says is proved: the numbers of the functions that are gathered, for JSON, and of known heads alone."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax.errors import UserError
from preload_jax.formats import load_program, save_program
from preload_jax.guarantees import confidence_bound, input_radius, program_certificate, safe_radius
from preload_jax.models import MLP, Classifier, LinearHead, SquareLogitHead, WithDistance

SHAPE = (4, 4, 1)


def begun(model):
    return model.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))


def square(distance=False):
    body = MLP(widths=(6,))
    head = SquareLogitHead(3, min_weight=0.2, initial_scale="inverse_width")
    model = Classifier(WithDistance(body, center=np.zeros(SHAPE), scale=2.0) if distance else body, head)
    return model, begun(model)


@pytest.mark.parametrize("distance", [False, True])
def test_it_gathers_what_the_functions_say(distance, tmp_path):
    model, variables = square(distance)
    found = program_certificate(model, variables, SHAPE, confidence=0.6, class_names=("a", "b", "c"))
    options = {"nonnegative": True, "min_weight": 0.2}
    bound = confidence_bound(variables["params"]["head"], **options)
    radius = safe_radius(variables["params"]["head"], 0.6, **options)
    rows = found["largest_confidence"]["classes"]
    assert [row["name"] for row in rows] == ["a", "b", "c"]
    assert [row["largest_log_odds"] for row in rows] == bound.log_odds.tolist()
    assert [row["safe_radius"] for row in rows] == radius.class_radii.tolist()
    assert found["safe_radius"] == {"confidence": 0.6, "radius": radius.radius}
    assert ("input_radius" in found["holds_for"]) == distance
    apart = found["input_radius"]
    if distance:
        expected = input_radius(model, variables, 0.6)
        assert (apart["typical_distances"], apart["typical_distance"]) == (expected.relative, 2.0)
    else:
        assert apart is None
    save_program(tmp_path / "a", model, variables, image_shape=SHAPE, certificate=found)
    assert load_program(tmp_path / "a").certificate == found == json.loads(json.dumps(found))


@pytest.mark.parametrize("none_class", [False, True])
def test_a_head_without_a_bound_has_null_for_infinity(none_class):
    model = Classifier(WithDistance(MLP(widths=(6,))), LinearHead(3 + none_class, none_class=none_class))
    variables = begun(model)
    found = program_certificate(model, variables, SHAPE)
    assert [row["name"] for row in found["largest_confidence"]["classes"]] == ["0", "1", "2"]
    bound = confidence_bound(variables["params"]["head"], nonnegative=False)
    expected = [float(x) if np.isfinite(x) else None for x in bound.log_odds[:3]]
    assert [row["largest_log_odds"] for row in found["largest_confidence"]["classes"]] == expected
    assert None in expected
    assert found["safe_radius"]["radius"] is None
    assert found["input_radius"] is None


class Own(LinearHead):
    """Of the same parameters."""


def test_what_nothing_is_known_of_is_refused():
    model, variables = square()
    own = Classifier(MLP(widths=(6,)), Own(3))
    for call, message in (
        (lambda: program_certificate(own, begun(own), SHAPE), "one of the library's heads, got Own"),
        (lambda: program_certificate(model, begun(own), SHAPE), "the variables are of another network"),
        (lambda: program_certificate(model, variables, SHAPE, class_names=("a", "b")), "expected 3 names"),
        (lambda: program_certificate(model, variables, SHAPE, class_names="abc"), "expected 3 names"),
        (lambda: program_certificate(model, variables, SHAPE, confidence=1.0), "confidence"),
    ):
        with pytest.raises(UserError, match=message):
            call()
