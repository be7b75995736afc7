"""A resolved data set says everything, reads no name again, and notices when its files change."""

import json
import shutil
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from preload_jax.data import datasets, own_data
from preload_jax.data.preparing.prepare import prepare
from preload_jax.errors import DataError, NotPreparedError


@pytest.fixture
def folder(make, tmp_path):
    return make.image_folder(tmp_path / "x", classes=("dog", "cat"), each=20, size=(8, 8), mode="L")


def test_a_known_set(tmp_path):
    digits = datasets.resolve("digits", data_dir=tmp_path)
    assert (digits.name, digits.canonical_name, digits.image_shape, digits.num_classes) == (
        "digits",
        "digits",
        (8, 8, 1),
        10,
    )
    assert (digits.class_names, digits.training_range, digits.data_dir) == (tuple("0123456789"), (0, 255), tmp_path)
    assert digits.spec is datasets.DATASETS["digits"]
    with pytest.raises(FrozenInstanceError):
        digits.canonical_name = "x"
    cifar = datasets.resolve("cifar10", data_dir=tmp_path)
    assert cifar.source == f"prepared in {tmp_path}"
    with pytest.raises(NotPreparedError, match=str(tmp_path)):
        cifar.load()


def test_ones_own_folder(folder, data_dir):
    own = datasets.resolve(f"folder:{folder}/", data_dir=data_dir)
    assert own.canonical_name == f"folder:{folder}"
    assert (own.name, own.source) == (f"folder:{folder}/", str(folder))
    assert (own.class_names, own.num_classes, own.image_shape) == (("cat", "dog"), 2, (8, 8, 1))


def test_the_old_functions_are_thin_calls(make, tmp_path, folder, data_dir):
    name = f"folder:{folder}"
    resolved = datasets.resolve(name, data_dir=data_dir)
    assert datasets.get(name) == resolved.spec
    other, splits = datasets.load(name, data_dir=data_dir), resolved.load()
    assert other.own_validation == splits.own_validation
    for first, second in (
        (other.train, splits.train),
        (other.validation, splits.validation),
        (other.test, splits.test),
    ):
        np.testing.assert_array_equal(first.images, second.images)
        np.testing.assert_array_equal(first.labels, second.labels)
    make.mnist(tmp_path / "mnist")
    prepare("mnist", data_dir=data_dir, source=tmp_path, check_sizes=False)
    for ood in ("smooth", "uniform", "mnist"):
        expected = datasets.load_ood(ood, in_domain=resolved.spec, test_images=splits.test.images, data_dir=data_dir)
        np.testing.assert_array_equal(resolved.load_ood(ood, test_images=splits.test.images), expected)
    assert resolved.available_ood() == datasets.available_ood(resolved.spec, data_dir=data_dir)
    assert "mnist" in resolved.available_ood()[0]
    resolved.check_ood("mnist")
    with pytest.raises(NotPreparedError):
        resolved.check_ood("cifar10")
    expected = datasets.load_outliers("smooth", in_domain=resolved.spec, train_images=splits.train.images, seed=3)
    np.testing.assert_array_equal(resolved.load_outliers("smooth", train_images=splits.train.images, seed=3), expected)


def test_the_name_is_not_read_again(folder, data_dir, monkeypatch):
    resolved = datasets.resolve(f"folder:{folder}", data_dir=data_dir)
    monkeypatch.delattr(own_data, "describe")
    assert len(resolved.load(validation="none").train) == 32
    # A new class folder changes nothing that was said.
    (folder / "ant").mkdir()
    (folder / "ant" / "1.png").write_bytes((folder / "cat" / "00.png").read_bytes())
    assert set(resolved.load(validation="none").train.labels) == {0, 1}


@pytest.mark.parametrize("change", ["removed", "rewritten"])
def test_files_that_change_in_between_are_noticed(folder, data_dir, change):
    resolved = datasets.resolve(f"folder:{folder}", data_dir=data_dir)
    path = folder / "cat" / "00.png"
    path.unlink() if change == "removed" else path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(DataError, match="was changed while it was in use"):
        resolved.load()


def test_an_npz_that_changes_in_between_is_noticed(make, tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, images=make.random_images(20, (8, 8)), labels=np.arange(20) % 2)
    resolved = datasets.resolve(str(path))
    np.savez(path, images=make.random_images(20, (8, 8)), labels=np.arange(20) % 4)
    with pytest.raises(DataError, match="was changed while it was in use"):
        resolved.load()


def test_a_description_is_enough(folder, data_dir):
    """A finished run is used without its training data; those that changed their meaning are refused."""
    resolved = datasets.resolve(f"folder:{folder}/", data_dir=data_dir)
    values = json.loads(json.dumps(resolved.as_dict()))
    first = resolved.load()
    again = datasets.described(values, data_dir=data_dir)
    assert replace(again, own=resolved.own) == resolved
    np.testing.assert_array_equal(again.load().train.images, first.train.images)
    (folder / "dog").rename(folder / "ant")
    again = datasets.described(values, data_dir=data_dir)
    assert again.class_names == ("cat", "dog")
    with pytest.raises(
        DataError, match=r"its classes are \['ant', 'cat'\]; expected \['cat', 'dog'\], as they were when"
    ):
        again.load()
    shutil.rmtree(folder)
    again = datasets.described(values, data_dir=data_dir)
    assert (again.num_classes, again.image_shape, again.spec) == (2, (8, 8, 1), resolved.spec)
    assert again.available_ood() == resolved.available_ood()
    with pytest.raises(DataError, match="no such folder"):
        again.load()
    digits = datasets.resolve("digits", data_dir=data_dir)
    assert datasets.described(digits.as_dict(), data_dir=data_dir) == digits


@pytest.mark.parametrize(
    "change",
    [
        {"image_shape": [8, 8]},
        {"image_shape": [0, 8, 1]},
        {"class_names": []},
        {"class_names": 3},
        {"training_range": "x"},
    ],
)
def test_what_is_no_description(folder, change):
    values = datasets.resolve(f"folder:{folder}").as_dict()
    with pytest.raises(DataError, match="not the description of a data set"):
        datasets.described({**values, **change})
    for missing in values:
        with pytest.raises(DataError, match="not the description of a data set"):
            datasets.described({key: value for key, value in values.items() if key != missing})


@pytest.mark.parametrize(
    ("name", "outliers", "seen"),
    [
        ("smooth", "smooth", True),
        ("uniform", "smooth", False),
        ("faraway", "uniform", False),
        ("cifar_gr", "cifar10", True),
        ("svhn", "svhn_cropped", True),
        ("fmnist_3d", "fashion_mnist", True),
        ("cifar100", "cifar10", False),
        ("folder:x", "folder:./x/", True),
        ("folder:x", "folder:y", False),
    ],
)
def test_what_was_seen_in_training(name, outliers, seen):
    assert datasets.seen_in_training(name, outliers) is seen
