"""Every detector that pytorch-ood 0.4 has, too, gives its scores in float64.

Theirs are higher for OOD.  Some of ours are an increasing function of theirs, or theirs have another scale: `AS_THEIRS`
says how ours become theirs.  The numbers are in `tests/golden/detectors.json`; where pytorch-ood is installed they are
computed anew.  `EXCEPTIONS` are the detectors whose definitions differ.
"""

import json

import numpy as np
import pytest
import scipy.special
import scipy.stats

from preload_jax import detectors
from tests import toy
from tests.detectors import problem, pytorch_ood_scores
from tests.torchvision_for_cpus import pytorch_ood

GOLDEN = json.loads(pytorch_ood_scores.GOLDEN.read_text())
# They add 1e-6·I to the scatter matrix, we divide that by n first.
_SCATTER = {"jitter": 1e-6 / problem.N}
OPTIONS = {
    "mahalanobis": _SCATTER,
    "mahalanobis_noise": {**_SCATTER, "noise": pytorch_ood_scores.NOISE},
    "mahalanobis_ensemble": _SCATTER,
    "relative_mahalanobis": _SCATTER,
    "ddu": {"jitter": 1e-6, "weighted": True, "unbiased": False},
    "gram": {"held_out": 0},
    "openmax": pytorch_ood_scores.OPENMAX,
}


def negative(score):
    return -score


def minus_probability(score):
    """They take the probability, we its log-odds."""
    return -scipy.special.expit(score)


AS_THEIRS = {
    "msp": minus_probability,
    "odin": minus_probability,
    "openmax": lambda score: scipy.special.expit(-score),
    "entropy": lambda score: np.exp(-score),
    # A mean over classes, we a sum.
    "gen": lambda score: np.exp(-score) / problem.K,
    # Half the distance, by the inverse of the scatter matrix, not of the covariance.
    "mahalanobis": lambda score: -score / 2 / problem.N,
    "mahalanobis_noise": lambda score: -score / 2 / problem.N,
    "mahalanobis_ensemble": lambda score: -score / 2 / problem.N,
    "relative_mahalanobis": lambda score: -score / problem.N,
}
# What they fit by a search that stops early: a tolerance of its own.
LOOSE = {"openmax": 1e-4}
EXCEPTIONS = {
    "temperature": "they stop L-BFGS after 50 steps at rate 0.01, we find the minimum",
    "vra": "they clip each feature between percentiles of its own, we all features between the same two (as OpenOOD)",
}


def ours(name):
    with toy.enable_x64(True):
        detector = name.removesuffix("_noise")
        return AS_THEIRS.get(name, negative)(problem.scores(detector, **OPTIONS.get(name, {})))


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_scores_are_pytorch_oods(name):
    found, expected = ours(name), np.array(GOLDEN[name])
    assert len(np.unique(expected)) > 30
    np.testing.assert_allclose(found, expected, rtol=LOOSE.get(name, 1e-5), atol=1e-12)
    if name not in LOOSE:
        assert scipy.stats.spearmanr(found, expected).statistic > 1.0 - 1e-12


def test_the_golden_numbers_are_what_pytorch_ood_gives_today():
    pytorch_ood()
    for name, expected in pytorch_ood_scores.compute().items():
        np.testing.assert_allclose(expected, GOLDEN[name], rtol=1e-7, atol=1e-12, err_msg=name)


def test_every_detector_of_both_is_compared_or_an_exception():
    compared = {name.removesuffix("_noise") for name in GOLDEN}
    only_here = set(detectors.TABLE) - compared - set(EXCEPTIONS)
    assert only_here == {"preload", "nc", "mahalanobis_pp", "she_euclidean", "cosine", "relation", "residual"}
