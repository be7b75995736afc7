"""The user's own images, from class folders and from .npz files."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from preload_jax.data import datasets, own_data
from preload_jax.errors import DataError


def load(name, data_dir, **options):
    return datasets.load(name, data_dir=data_dir, **options)


def everything(splits):
    parts = (splits.train, splits.validation, splits.test)
    return np.concatenate([part.images for part in parts]), np.concatenate([part.labels for part in parts])


@pytest.mark.parametrize(
    ("mode", "size", "shape", "backbone"),
    [
        ("L", (28, 28), (28, 28, 1), "lenet"),
        ("RGB", (32, 32), (32, 32, 3), "conv_net"),
        ("RGB", (40, 24), (24, 40, 3), "conv_net"),
        ("L", (8, 8), (8, 8, 1), "mlp"),
        ("RGB", (96, 64), (64, 96, 3), "conv_net"),
        ("RGB", (97, 64), (32, 32, 3), "conv_net"),
    ],
)
def test_shape_channels_and_classes_are_inferred(make, tmp_path, mode, size, shape, backbone):
    make.image_folder(tmp_path, classes=("dog", "ant", "cat"), mode=mode, size=size)
    spec = datasets.get(f"folder:{tmp_path}")
    assert (spec.image_shape, spec.backbone) == (shape, backbone)
    assert spec.class_names == ("ant", "cat", "dog")
    assert spec.num_classes == 3
    assert spec.ood_sets[-4:] == ("uniform", "smooth", "faraway", "faraway_rd")


def test_folder_is_read_with_the_right_labels(make, tmp_path, data_dir):
    make.image_folder(tmp_path / "x", classes=("a", "b"), each=20)
    splits = load(f"folder:{tmp_path / 'x'}", data_dir)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (32, 1, 7)
    found = {(image.tobytes(), int(label)) for image, label in zip(*everything(splits), strict=True)}
    expected = {
        (np.asarray(Image.open(path)).tobytes(), label)
        for label, name in enumerate("ab")
        for path in (tmp_path / "x" / name).iterdir()
    }
    assert found == expected


def test_a_given_test_split_is_kept(make, tmp_path, data_dir):
    make.image_folder(tmp_path / "train", classes=("a", "b"), each=10)
    make.image_folder(tmp_path / "test", classes=("b",), each=10, seed=1)
    splits = load(f"folder:{tmp_path}", data_dir)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (20, 2, 8)
    assert (splits.test.labels == 1).all()


def test_a_class_may_be_called_test_and_have_folders_of_its_own(make, tmp_path):
    root = tmp_path / "test"
    make.image_folder(root, classes=("test", "x"), each=1)
    make.image_folder(root / "x", classes=("deep", "deeper"), each=1)
    assert datasets.get(f"folder:{root}").class_names == ("test", "x")


def test_images_of_several_sizes_become_32x32(make, tmp_path, data_dir):
    make.image_folder(tmp_path, classes=("a",), size=(20, 30), each=20)
    make.image_folder(tmp_path, classes=("b",), size=(30, 20), each=20, mode="L")
    images, _ = everything(load(f"folder:{tmp_path}", data_dir))
    assert images.shape[1:] == (32, 32, 3)


def test_sixteen_bit_grey_keeps_its_range(tmp_path, data_dir):
    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(15):
            values = np.linspace(0, 65_535, 64).astype(np.uint16).reshape(8, 8)
            Image.fromarray(values).save(tmp_path / name / f"{i}.png")
    images, _ = everything(load(f"folder:{tmp_path}", data_dir))
    assert images.shape[1:] == (8, 8, 1)
    assert (images.min(), images.max()) == (0, 255)
    assert len(np.unique(images)) == 64


def test_a_corrupt_image_is_skipped_with_a_count_or_refused(make, tmp_path, data_dir):
    make.image_folder(tmp_path, each=20)
    bad = tmp_path / "a" / "03.png"
    bad.write_bytes(bad.read_bytes()[:60])
    for _ in range(2):  # The second time from the cache.
        said = []
        splits = load(f"folder:{tmp_path}", data_dir, report=said.append)
        assert len(everything(splits)[0]) == 39
        assert len(said) == 1
        assert said[0].startswith(f"skipped 1 of 40 images; the first: {bad}: not a readable image")
    with pytest.raises(DataError, match=r"03.png: not a readable image"):
        load(f"folder:{tmp_path}", data_dir, strict=True)


def test_what_is_skipped_shifts_no_label_and_no_split(make, tmp_path, data_dir):
    make.image_folder(tmp_path / "train", each=10)
    make.image_folder(tmp_path / "test", each=10, seed=1)
    (tmp_path / "train" / "a" / "00.png").write_bytes(b"no image")
    splits = load(f"folder:{tmp_path}", data_dir, validation="none")
    assert [np.bincount(part.labels).tolist() for part in (splits.train, splits.test)] == [[9, 10], [10, 10]]


def test_only_corrupt_images(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match="none of 2 images is readable"):
        datasets.get(f"folder:{tmp_path}")


def test_changed_folders_are_read_anew(make, tmp_path, data_dir):
    make.image_folder(tmp_path, each=20)
    load(f"folder:{tmp_path}", data_dir)
    make.image_folder(tmp_path, each=22)
    assert len(everything(load(f"folder:{tmp_path}", data_dir))[0]) == 44


def test_changed_data_is_described_anew(make, tmp_path):
    for side in (8, 12):
        make.image_folder(tmp_path / "x", size=(side, side), each=1)
        np.savez(tmp_path / "own.npz", images=make.random_images(20, (side, side)), labels=np.arange(20) % 2)
        for name in (f"folder:{tmp_path / 'x'}", str(tmp_path / "own.npz")):
            assert datasets.get(name).image_shape[:2] == (side, side)


def loose_image(make, folder):
    make.image_folder(folder, each=3)
    make.image_folder(folder, classes=("",), each=1)


WRONG_FOLDERS = {
    "missing": (lambda make, folder: None, "no such folder"),
    "empty": (lambda make, folder: folder.mkdir(), "no images"),
    "one class": (lambda make, folder: make.image_folder(folder, classes=("a",)), "only one class, 'a'"),
    "loose image": (loose_image, "00.png: not in a class sub-folder"),
    "test class not trained": (
        lambda make, folder: (make.image_folder(folder / "train"), make.image_folder(folder / "test", classes=("c",))),
        "class 'c' has no images in",
    ),
}


@pytest.mark.parametrize("case", WRONG_FOLDERS)
def test_wrong_folder(make, tmp_path, case):
    write, message = WRONG_FOLDERS[case]
    write(make, tmp_path / "x")
    with pytest.raises(DataError, match=message):
        datasets.get(f"folder:{tmp_path / 'x'}")


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 1), (32, 32, 3)])
def test_npz(make, tmp_path, data_dir, shape):
    images, labels = make.random_images(50, shape), np.arange(50) % 5
    np.savez(tmp_path / "own.npz", images=images, labels=labels)
    spec = datasets.get(str(tmp_path / "own.npz"))
    assert spec.image_shape == (*shape, 1)[:3]
    assert spec.num_classes == 5
    found_images, found_labels = everything(load(spec, data_dir))
    assert len(found_images) == 50
    lookup = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    assert all(lookup[i.tobytes()] == label for i, label in zip(found_images, found_labels, strict=True))


def test_npz_with_a_test_split_as_keras_has_it(make, tmp_path, data_dir):
    np.savez(
        tmp_path / "mnist.npz",
        x_train=make.random_images(20, (8, 8)),
        y_train=np.arange(20) % 2,
        x_test=make.random_images(10, (8, 8), 1),
        y_test=(np.arange(10) % 2)[:, None],
    )
    splits = load(str(tmp_path / "mnist.npz"), data_dir, validation="train")
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (16, 4, 10)


IMAGES, LABELS = np.zeros((20, 8, 8), np.uint8), np.arange(20) % 2
WRONG_NPZ = {
    "no labels": ({"images": IMAGES}, r"has \['images'\]; expected 'images' and 'labels'"),
    "floats": ({"images": IMAGES / 255, "labels": LABELS}, r"'images' is float64 \[20, 8, 8\]; expected uint8"),
    "flat": ({"images": IMAGES.reshape(20, 64), "labels": LABELS}, r"uint8 \[20, 64\]; expected uint8"),
    "planar": ({"images": np.zeros((20, 3, 8, 8), np.uint8), "labels": LABELS}, r"\[20, 3, 8, 8\]; expected uint8"),
    "lengths": ({"images": IMAGES, "labels": LABELS[:19]}, "20 images and 19 labels"),
    "few": ({"images": IMAGES[:5], "labels": LABELS[:5]}, "at least 10"),
    "float labels": ({"images": IMAGES, "labels": LABELS / 2}, "'labels' is float64"),
    "one-hot labels": ({"images": IMAGES, "labels": np.eye(20, dtype=int)}, r"int64 \[20, 20\]; expected integers"),
    "negative": ({"images": IMAGES, "labels": LABELS - 1}, "labels from -1 to 0"),
    "too large": ({"images": IMAGES, "labels": LABELS * 10_000}, "labels from 0 to 10000; expected 0 to K - 1"),
    "one class": ({"images": IMAGES, "labels": LABELS * 0}, "only one class"),
    "test differs": (
        {"images": IMAGES, "labels": LABELS, "test_images": IMAGES[:, :4], "test_labels": LABELS},
        "differ in shape",
    ),
    "scalar labels": ({"images": IMAGES, "labels": np.array(3)}, r"'labels' is int64 \[\]; expected integers \[n\]"),
    "flat labels of another length": (
        {"images": IMAGES, "labels": LABELS.reshape(2, 10)},
        r"int64 \[2, 10\]; expected",
    ),
    "scalar images": ({"images": np.uint8(1), "labels": LABELS}, r"'images' is uint8 \[\]; expected uint8"),
    "no pixels": ({"images": IMAGES[:, :0], "labels": LABELS}, r"uint8 \[20, 0, 8\]; expected uint8"),
    "from 1": (
        {"images": IMAGES, "labels": LABELS + 1},
        "labels from 1 to 2, but no image has label 0; expected 0 to K",
    ),
    "a gap": (
        {"images": IMAGES, "labels": 3 * LABELS},
        "no image has label 1; .* number the 2 classes 0 to 1, or say with",
    ),
    "truth values": ({"images": IMAGES, "labels": LABELS == 1}, "'labels' is bool"),
    "text": ({"images": IMAGES, "labels": LABELS.astype("U3")}, "'labels' is <U3"),
    "unsigned and large": (
        {"images": IMAGES, "labels": LABELS.astype(np.uint64) * np.uint64(2**63)},
        "labels from 0 to 9223372036854775808",
    ),
    "several labels an image": (
        {"train_images": IMAGES, "train_labels": np.zeros((20, 14), int)},
        r"'train_labels' is int64 \[20, 14\]",
    ),
    "validation without images": (
        {"train_images": IMAGES, "train_labels": LABELS, "val_labels": LABELS},
        "'val_labels' is read as labels of the validation split, of which there are no images: add 'val_images'",
    ),
    "few names": (
        {"images": IMAGES, "labels": LABELS, "class_names": ["a"]},
        "labels from 0 to 1, but 1 'class_names'",
    ),
    "names twice": ({"images": IMAGES, "labels": LABELS, "class_names": ["a", "a"]}, "expected K different strings"),
    "numbers for names": ({"images": IMAGES, "labels": LABELS, "class_names": [1, 2]}, "'class_names' is int64"),
    "test without labels": (
        {"images": IMAGES, "labels": LABELS, "test_images": IMAGES},
        "'test_images' is read as images of the test split, of which there are no labels: add 'test_labels'",
    ),
}


@pytest.mark.parametrize("case", WRONG_NPZ)
def test_wrong_npz(tmp_path, case):
    content, message = WRONG_NPZ[case]
    np.savez(tmp_path / "own.npz", **content)
    with pytest.raises(DataError, match=message):
        datasets.get(str(tmp_path / "own.npz"))


@pytest.mark.parametrize("dtype", ["i1", "u1", "<i8", ">i2", ">u4"])
def test_npz_as_medmnist_has_it(make, tmp_path, data_dir, dtype):
    counts, content = {"train": 20, "val": 12, "test": 10}, {}
    for split, count in counts.items():
        content[f"{split}_images"] = make.random_images(count, (8, 8), count)
        content[f"{split}_labels"] = (np.arange(count) % 3)[:, None].astype(dtype)
    np.savez_compressed(tmp_path / "pathmnist.npz", **content)
    splits = load(str(tmp_path / "pathmnist.npz"), data_dir)
    for part, split in ((splits.train, "train"), (splits.validation, "val"), (splits.test, "test")):
        np.testing.assert_array_equal(part.images[..., 0], content[f"{split}_images"])
        np.testing.assert_array_equal(part.labels, content[f"{split}_labels"][:, 0])
        assert part.labels.dtype == np.int32


def test_npz_that_names_its_classes(tmp_path):
    """The names say how many classes there are, also one without an image."""
    for names in (np.array(["cat", "dog", "emu"]), np.array([b"cat", b"dog", b"emu"])):
        np.savez(tmp_path / "own.npz", images=IMAGES, labels=2 * LABELS, class_names=names)
        spec = datasets.get(str(tmp_path / "own.npz"))
        assert (spec.class_names, spec.num_classes) == (("cat", "dog", "emu"), 3)


def test_npz_with_objects_is_not_unpickled(tmp_path):
    np.savez(tmp_path / "own.npz", images=np.array([None]), labels=LABELS)
    with pytest.raises(DataError, match=r"not a readable .npz"):
        datasets.get(str(tmp_path / "own.npz"))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_npz_is_one_data_error(make, tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    np.savez(path, images=IMAGES, labels=LABELS)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    assert "\n" not in make.error_of(lambda: datasets.get(str(path)))


@pytest.mark.parametrize("validation", ["test", "train", "none"])
@pytest.mark.parametrize("others", [(), ("test",), ("val",), ("test", "val")], ids=str)
@pytest.mark.parametrize("kind", ["folder", "arrays"])
def test_how_many_images_are_trained_is_known_before_they_are_read(make, tmp_path, data_dir, kind, others, validation):
    if kind == "folder":
        for number, split in enumerate(("train", *others)):
            make.image_folder(tmp_path / "x" / split, each=13, seed=number)
        name = f"folder:{tmp_path / 'x'}"
    else:
        content = {}
        for number, split in enumerate(("train", *others)):
            content |= {f"x_{split}": make.random_images(26, (8, 8), number), f"y_{split}": np.arange(26) % 2}
        np.savez(tmp_path / "x.npz", **content)
        name = f"{tmp_path}/x.npz"
    splits = datasets.load(name, data_dir=data_dir, validation=validation)
    assert own_data.num_training(own_data.describe(name), validation) == len(splits.train)
