"""Reasons in words: which of them each image has, and at which threshold."""

import numpy as np
import pytest

from preload_jax import decisions
from preload_jax.decisions.answers import Predictions, answer
from preload_jax.decisions.reasons import beyond_radius, distances, reasons, thresholds


def said(**others):
    probabilities = np.array([[0.7, 0.1], [0.2, 0.1]])
    values = {"ood_probability": np.array([0.2, 0.7]), "is_ood": np.array([False, True]), **others}
    return Predictions(probabilities, label=np.array([0, 0]), score=np.array([1.4, -0.8]), **values)


def test_each_image_has_its_own():
    images = [np.zeros((2, 2, 1), np.uint8), np.full((2, 2, 1), 3.0, np.float32)]
    found = reasons(images, said(), thresholds=[None, -0.5], beyond=["", "far"])
    expected = ["the OOD class is the most probable of all", "the score is below -0.5", "far"]
    assert found == [[], [*expected, "its pixels run from 3 to 3, those of the training images from 0 to 1"]]
    # The rule overrules the OOD class.
    found = reasons(images, said(is_ood=np.array([False, False])), thresholds=[None, None], beyond=["", ""])
    assert found == [[], ["its pixels run from 3 to 3, those of the training images from 0 to 1"]]


def test_thresholds_of_rules():
    scores, classes = np.arange(200.0), np.arange(200) % 2
    rule = decisions.calibrate(scores)
    by_class = decisions.calibrate(scores, classes=classes)
    assert thresholds(said(), rule=None, threshold=0.25) == [0.25, 0.25]
    assert thresholds(said(), rule=rule, threshold=None) == [rule.threshold()] * 2
    assert thresholds(said(), rule=by_class, threshold=None) == [by_class.threshold(0)] * 2
    assert by_class.threshold(0) != by_class.threshold(1)


def test_distances_count_bytes_in_units_of_one():
    center = np.full((2, 2, 1), 0.5)
    images = np.stack([np.zeros((2, 2, 1), np.uint8), np.full((2, 2, 1), 255, np.uint8)])
    np.testing.assert_allclose(distances(images, center), [1.0, 1.0])
    np.testing.assert_allclose(distances(images / 255.0, center), [1.0, 1.0])


def test_only_beyond_the_radius():
    assert beyond_radius(1.99, radius=2.0, confidence=0.5) == ""
    assert beyond_radius(2.0, radius=2.0, confidence=0.5).endswith("no class can be more confident than 50 %")


def test_an_answer_needs_numbers():
    with pytest.raises(ValueError, match="the network answers NaN for 1 of 2 images"):
        answer(np.array([[0.0, 1.0], [np.nan, 0.0]], np.float32), np.zeros(2, np.float32), has_ood_class=False)
