"""Counts, class balance and means of the real sets, where the publishers' files are at hand.

Set PRELOAD_JAX_TEST_DATA to a folder that has mnist/, cifar-10-batches-py/, cifar-100-python/ or outlier_photos/.
"""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from preload_jax.data import datasets
from preload_jax.data.catalogue import PUBLISHED
from preload_jax.data.preparing.prepare import prepare

SOURCE = Path(os.environ.get("PRELOAD_JAX_TEST_DATA", "/nonexistent"))
pytestmark = pytest.mark.slow


def needs(name):
    return pytest.mark.skipif(not (SOURCE / name).is_dir(), reason=f"no {name} in $PRELOAD_JAX_TEST_DATA")


@pytest.mark.parametrize(
    ("name", "means", "balanced"),
    [
        pytest.param("mnist", [0.1307], False, marks=needs("mnist")),
        pytest.param("cifar10", [0.4914, 0.4822, 0.4465], True, marks=needs("cifar-10-batches-py")),
    ],
)
def test_in_domain_sets(data_dir, name, means, balanced):
    item = PUBLISHED[name]
    assert prepare(name, data_dir=data_dir, source=SOURCE) == item.sizes
    splits = datasets.load(name, data_dir=data_dir)
    start = time.monotonic()
    datasets.load(name, data_dir=data_dir)
    assert time.monotonic() - start < 3
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (item.sizes["train"], 1_000, 9_000)
    np.testing.assert_allclose(splits.train.images.mean(axis=(0, 1, 2)) / 255, means, atol=6e-5)
    counts = np.bincount(splits.train.labels)
    assert len(counts) == 10
    if balanced:
        assert counts.tolist() == [5_000] * 10
        assert np.bincount(np.concatenate([splits.validation.labels, splits.test.labels])).tolist() == [1_000] * 10


@needs("cifar-100-python")
def test_cifar100_test_images(data_dir):
    from preload_jax.data.preparing import tfds_source

    assert prepare("cifar100", data_dir=data_dir, source=SOURCE)["test"] == 10_000
    assert np.bincount(tfds_source.read("cifar100", "test", data_dir=data_dir).labels).tolist() == [100] * 100


@needs("outlier_photos")
def test_crops_of_photos_are_made_fast(data_dir):
    start = time.monotonic()
    crops = datasets.load_outliers(
        f"folder:{SOURCE / 'outlier_photos'}",
        in_domain=datasets.get("cifar10"),
        train_images=np.zeros((1, 32, 32, 3), np.uint8),
        data_dir=data_dir,
    )
    assert crops.shape == (100_000, 32, 32, 3)
    assert time.monotonic() - start < 60
