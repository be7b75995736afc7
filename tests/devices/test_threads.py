"""Blocks in threads: in their order, few at a time, with the errors that they raise; sums are the same each time."""

import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from preload_jax import detectors
from preload_jax.devices import threads


def blas_threads():
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_results_come_in_order_and_few_are_drawn_ahead():
    drawn = []

    def items():
        for i in range(50):
            drawn.append(i)
            yield i

    def slow_at_first(i):
        time.sleep(0.02 if i == 0 else 0.0)
        return i

    before = blas_threads()
    found = threads.in_order(slow_at_first, items())
    assert next(found) == 0
    assert len(drawn) <= threads.cores() + 2
    assert list(found) == list(range(1, 50))
    assert blas_threads() == before


def test_errors_arrive():
    with pytest.raises(ZeroDivisionError):
        list(threads.in_order(lambda x: 1 / x, [1, 2, 0, 3]))


def test_a_fit_is_the_same_each_time_to_the_bit(monkeypatch):
    monkeypatch.setattr("preload_jax.detectors.data.BLOCK", 1 << 12)
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(3000, 16)).astype(np.float32), np.arange(3000) % 3
    fits = [detectors.fit("mahalanobis", detectors.Outputs(features), labels).fitted for _ in range(3)]
    for other in fits[1:]:
        for name, value in fits[0].items():
            np.testing.assert_array_equal(value, other[name])
