"""Names of folders that are splits by what they differ in."""

import numpy as np
import pytest
from PIL import Image

from preload_jax.data.own_folder import list_folder
from preload_jax.data.split_names import paired
from preload_jax.errors import DataError

PAIRS = [
    ("asl_alphabet_train", "asl_alphabet_test"),
    ("01_train", "02_val"),
    ("trains", "tests"),
    ("My Training Images", "my test images"),
    ("train_cats_v2", "test_cats_v2"),
    ("trainA", "testA"),
    ("birdsTrain", "birdsTest"),
    ("birds-training-set", "birds-validation"),
    ("2019.trn", "2020.tst"),
    ("oiseaux_\xe9t\xe9_train", "oiseaux_\xe9t\xe9_eval"),
]
OTHERS = [
    ("test tube", "training shoe"),
    ("train", "car"),
    ("trains", "cars"),
    ("freight train", "passenger train"),
    ("test", "tests"),
    ("train driver", "test pilot"),
    ("val d'isere", "test"),
    ("trainer", "tester"),
    ("strain", "contest"),
    ("training", "train"),
    ("train_test", "test"),
    ("validation stamp", "test stamp"),
]


@pytest.mark.parametrize(("train", "other"), PAIRS)
def test_splits_by_what_they_differ_in(train, other):
    assert paired(["zebra", other, train, "ant"]) == (train, other)


@pytest.mark.parametrize("names", OTHERS)
def test_classes(names):
    assert paired(names) is None


def images(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(5):
        Image.fromarray(np.full((4, 4), number, np.uint8)).save(folder / f"{number}.png")


@pytest.mark.parametrize(("train", "other"), PAIRS)
@pytest.mark.parametrize("beside", [(), ("extra",)])
def test_a_flat_test_folder_beside_its_training_folder_is_refused(tmp_path, train, other, beside):
    for name in "ABC":
        images(tmp_path / train / name)
    for name in (other, *beside):
        images(tmp_path / name)
    with pytest.raises(DataError, match=r"splits\? Their names differ in that alone; if they are splits, lay them out"):
        list_folder(tmp_path)


@pytest.mark.parametrize(("train", "other"), PAIRS)
def test_splits_inside_of_classes_are_refused(tmp_path, train, other):
    for name in ("ant", "bee"):
        images(tmp_path / name / train)
        images(tmp_path / name / other)
    with pytest.raises(DataError, match=r"ant: has splits in it; expected .*/SPLIT/CLASS/IMAGE"):
        list_folder(tmp_path)


@pytest.mark.parametrize(
    "names", [names for names in OTHERS if names not in (("training", "train"), ("test", "tests"))]
)
def test_classes_of_such_names_are_classes(tmp_path, names):
    for name in names:
        images(tmp_path / name)
    images(tmp_path / "ant")
    assert set(list_folder(tmp_path).class_names) == {"ant", *names}
