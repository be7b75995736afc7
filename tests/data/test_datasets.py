"""The door: names, the embedded digits, and the paper's protocol on prepared sets."""

import subprocess
import sys

import numpy as np
import pytest

from preload_jax.data import datasets
from preload_jax.data.preparing.prepare import prepare
from preload_jax.errors import DataError, NotPreparedError


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "fashion-mnist",
            r"unknown dataset 'fashion-mnist' \(did you mean 'fashion_mnist'\?\); expected one of FILE.npz, ",
        ),
        ("", "unknown dataset ''; expected one of"),
        ("imagenet", "unknown dataset 'imagenet'"),
        ("nowhere.npz", "nowhere.npz: no such file"),
        ("folder:/nowhere", "/nowhere: no such folder"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(DataError, match=message):
        datasets.get(name)


@pytest.mark.usefixtures("unannotated")
@pytest.mark.parametrize("name", [None, 3, b"digits", ["digits"], True])
def test_names_that_are_none(name):
    for call in (datasets.get, datasets.resolve, datasets.load):
        with pytest.raises(DataError, match="a data set must be given by name, such as 'digits' or 'folder:PATH', got"):
            call(name)


def test_a_path_is_a_name(make, tmp_path):
    np.savez(tmp_path / "own.npz", images=make.random_images(20, (8, 8)), labels=np.arange(20) % 2)
    for call in (datasets.get, datasets.resolve):
        assert call(tmp_path / "own.npz") == call(str(tmp_path / "own.npz"))
    assert len(datasets.load(tmp_path / "own.npz", validation="none").train) == 16
    with pytest.raises(DataError, match=f"did you mean folder:{tmp_path}"):
        datasets.get(tmp_path)


def test_digits_are_split_evenly_and_always_alike():
    first, second = datasets.load("digits"), datasets.load("digits")
    assert (len(first.train), len(first.validation), len(first.test)) == (1_297, 100, 400)
    assert first.train.images.shape == (1_297, 8, 8, 1)
    assert (first.train.images.min(), first.train.images.max()) == (0, 255)
    np.testing.assert_array_equal(first.validation.images, second.validation.images)
    share = np.bincount(np.concatenate([first.validation.labels, first.test.labels]))
    assert share.min() >= 48
    assert share.max() <= 52


def test_digits_are_the_published_ones():
    from sklearn.datasets import load_digits

    splits = datasets.load("digits")
    images = np.concatenate([part.images for part in (splits.train, splits.validation, splits.test)])
    raw = np.rint(images[..., 0] / (255 / 16)).astype(int)
    assert sorted(map(tuple, raw.reshape(-1, 64))) == sorted(map(tuple, load_digits().data.astype(int)))


def test_not_prepared(data_dir):
    with pytest.raises(NotPreparedError, match=r"mnist is not prepared in .* --dataset=mnist"):
        datasets.load("mnist", data_dir=data_dir)


@pytest.mark.parametrize(("validation", "sizes"), [("test", (30, 4, 16)), ("train", (24, 6, 20))])
def test_prepared_sets_follow_the_protocol(make, tmp_path, data_dir, validation, sizes):
    make.mnist(tmp_path / "mnist", sizes=(30, 20))
    prepare("mnist", data_dir=data_dir, source=tmp_path, check_sizes=False)
    splits = datasets.load("mnist", data_dir=data_dir, validation=validation)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == sizes


def test_the_default_data_directory_is_tfds_own(monkeypatch, tmp_path):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "x"))
    assert datasets.default_data_dir() == tmp_path / "x"
    monkeypatch.delenv("TFDS_DATA_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert datasets.default_data_dir() == tmp_path / "tensorflow_datasets"


def test_importing_is_light():
    heavy = "tensorflow_datasets", "sklearn", "scipy", "PIL", "jax", "tensorflow", "array_record"
    code = f"import sys, preload_jax.data.datasets; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "[]"
