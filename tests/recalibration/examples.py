"""Logits and labels that the tests of recalibrations are fitted to."""

import numpy as np
from scipy.special import log_softmax, softmax


def some(seed=0, *, n=400, k=4, sharper=3.0):
    """Logits of a network that is too sure of itself, and labels."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, k))
    labels = (softmax(logits, axis=1).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    labels[:k] = np.arange(k)
    return sharper * logits + rng.normal(size=k), labels


def cross_entropy(logits, labels):
    return -log_softmax(logits, axis=1)[np.arange(len(labels)), labels].mean()


def with_ood(seed=0, **options):
    """Logits of K classes and an OOD class, and labels."""
    z, y = some(seed, **options)
    return np.concatenate([z, np.random.default_rng(seed).normal(-2.0, 3.0, (len(z), 1))], axis=1), y
