"""Which arrays of a .npz file are which split, whatever they are called, and which are not used."""

import re

import numpy as np
import pytest

from preload_jax.data import datasets
from preload_jax.errors import DataError

IMAGES, LABELS = np.repeat(np.arange(20, dtype=np.uint8), 64).reshape(20, 8, 8), np.arange(20) % 2
COUNTS = {"train": 20, "validation": 12, "test": 10}

NAMES = {  # (images, labels) of each split
    "MedMNIST": ["train_images train_labels", "val_images val_labels", "test_images test_labels"],
    "valid": ["train_images train_labels", "valid_images valid_labels", "test_images test_labels"],
    "Keras": ["x_train y_train", "x_val y_val", "x_test y_test"],
    "Keras with valid": ["x_train y_train", "x_valid y_valid", "x_test y_test"],
    "ours": ["images labels", "validation_images validation_labels", "test_images test_labels"],
    "mixed": ["images labels", "dev_images dev_labels", "x_test y_test"],
    "mixed in a pair": ["x_train train_labels", "val_images y_val", "images_test y_test"],
    "large": ["X_train Y_train", "X_VAL y_val", "X_Test y_Test"],
    "behind": ["images_train labels_train", "images_dev labels_dev", "images_eval labels_eval"],
    "joined": ["trainX trainY", "devX devY", "testX testY"],
    "words": [
        "Training_Images Training_Labels",
        "Validation-Images Validation-Labels",
        "testing.images testing.labels",
    ],
    "singular": ["image label", "val_image val_label", "test_img test_label"],
    "short": ["X y", "X_dev y_dev", "X_evaluation y_evaluation"],
    "no test": ["images labels", "valid_images valid_labels"],
    "no validation": ["images labels", "x_test y_test"],
}


def arrays(make, names):
    content = {}
    for count, pair in zip(COUNTS.values(), names, strict=False):
        if pair:
            images, labels = pair.split(" ")
            content |= {images: make.random_images(count, (8, 8), count), labels: np.arange(count) % 2}
    return content


@pytest.mark.parametrize("case", NAMES)
def test_the_splits_are_the_files_own(make, tmp_path, data_dir, case):
    names = NAMES[case]
    if case == "no validation":
        names = [names[0], "", names[1]]
    content = arrays(make, names)
    np.savez(tmp_path / "own.npz", **content)
    said = []
    splits = datasets.load(tmp_path / "own.npz", data_dir=data_dir, validation="none", report=said.append)
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    if case == "no test":
        assert said == [f"{tmp_path}/own.npz: no test split; its validation images are tested"]
        parts = {"train": splits.train, "validation": splits.test}
    else:
        assert said == []
    assert splits.own_validation == (case not in ("no test", "no validation"))
    for pair, part in zip(names, parts.values(), strict=True):
        if pair:
            np.testing.assert_array_equal(part.images[..., 0], content[pair.split(" ")[0]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"Images": IMAGES}, "'images' and 'Images' are both the train images; expected one"),
        ({"train_images": IMAGES}, "'images' and 'train_images' are both the train images; expected one"),
        ({"Y_train": LABELS}, "'Y_train' are both the train labels; expected one: leave the other out, or give it an"),
        (
            {"val_images": IMAGES, "val_labels": LABELS, "x_valid": IMAGES},
            "'val_images' and 'x_valid' are both the validation images",
        ),
        ({"x_test": IMAGES}, "'x_test' is read as images of the test split, .* no labels: add 'y_test'"),
        ({"Y_VAL": LABELS}, "'Y_VAL' is read as labels of the validation split, .* no images: add 'x_val'"),
        (
            {"images_dev": IMAGES},
            "'images_dev' is read as images of the validation split, .* no labels: add 'labels_dev'",
        ),
        (
            {"valid_labels": LABELS},
            "'valid_labels' is read as labels of the validation split, .* no images: add 'valid_images'",
        ),
        ({"testX": IMAGES}, "'testX' is read as images of the test split, .* no labels: add 'testy'"),
    ],
)
def test_splits_that_are_not_clear(tmp_path, content, message):
    np.savez(tmp_path / "own.npz", images=IMAGES, labels=LABELS, **content)
    with pytest.raises(DataError, match=message):
        datasets.get(tmp_path / "own.npz")


@pytest.mark.parametrize(
    "names",
    [("notes",), ("holdout_images", "holdout_labels"), ("extra_images", "index", "test", "max"), ("Class_Names",)],
)
def test_arrays_that_are_not_used_are_not_read_and_are_named(tmp_path, data_dir, names):
    others = {name: np.array([{"pickled": "object"}], object) for name in names}
    np.savez(tmp_path / "own.npz", images=IMAGES, labels=LABELS, class_names=["a", "b"], **others)
    said = []
    datasets.load(tmp_path / "own.npz", data_dir=data_dir, validation="none", report=said.append)
    assert said == [f"{tmp_path}/own.npz: not used are its arrays {', '.join(map(repr, names))}"]


@pytest.mark.parametrize("split", ["val", "test", "dev"])
def test_a_class_that_is_not_trained_is_refused_as_in_a_folder(tmp_path, split):
    content = {"images": IMAGES, "labels": LABELS, f"{split}_images": IMAGES, f"{split}_labels": LABELS + 1}
    np.savez(tmp_path / "own.npz", **content)
    with pytest.raises(DataError, match=f"class 2 of '{split}_labels' has no images in 'images'; leave its images out"):
        datasets.get(tmp_path / "own.npz")
    np.savez(tmp_path / "own.npz", class_names=["a", "b", "c"], **content)
    assert datasets.get(tmp_path / "own.npz").num_classes == 3


@pytest.mark.parametrize("letters", [("x", "y"), ("X", "y"), ("y",)])
def test_single_letters_beside_images_and_labels_are_not_theirs(tmp_path, data_dir, letters):
    np.savez(tmp_path / "own.npz", images=IMAGES, labels=LABELS, **{name: np.zeros(3) for name in letters})
    said = []
    datasets.load(tmp_path / "own.npz", data_dir=data_dir, validation="none", report=said.append)
    assert said == [f"{tmp_path}/own.npz: not used are its arrays {', '.join(map(repr, letters))}"]


def test_what_is_there_is_named_where_something_is_missing(tmp_path):
    np.savez(tmp_path / "own.npz", x=IMAGES, y=LABELS, testy=LABELS)
    expected = (
        "has ['testy', 'x', 'y']; 'testy' is read as labels of the test split, of which there are no images: add"
        " 'testx', or give 'testy' another name"
    )
    with pytest.raises(DataError, match=re.escape(expected)):
        datasets.get(tmp_path / "own.npz")


def test_classes_without_test_images_are_said(tmp_path, data_dir):
    content = {"images": IMAGES, "labels": np.arange(20) % 3, "test_images": IMAGES, "test_labels": LABELS}
    np.savez(tmp_path / "own.npz", **content)
    said = []
    datasets.load(tmp_path / "own.npz", data_dir=data_dir, validation="none", report=said.append)
    untested = f"{tmp_path}/own.npz: no test images of 1 of 3 classes ('2'); results on that split are about the others"
    assert said[-1] == untested
