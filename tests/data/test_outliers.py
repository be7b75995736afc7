"""Auxiliary OOD images: made, cropped from folders, or prepared."""

import numpy as np
import pytest
from PIL import Image

from preload_jax.data import datasets, outliers
from preload_jax.data.prepare import prepare
from preload_jax.errors import DataError, NotPreparedError

DIGITS, MNIST, CIFAR10 = (datasets.DATASETS[name] for name in ("digits", "mnist", "cifar10"))


def load(name, spec=CIFAR10, **options):
    return datasets.load_outliers(
        name, in_domain=spec, train_images=np.full((9, *spec.image_shape), 128, np.uint8), **options
    )


@pytest.mark.parametrize("spec", [DIGITS, MNIST, CIFAR10], ids=lambda spec: spec.name)
@pytest.mark.parametrize(("name", "count"), [("photo", 5_000), ("smooth", 9), ("uniform", 9)])
def test_made_outliers(spec, name, count):
    images = load(name, spec)
    assert images.shape == (count, *spec.image_shape)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(images, load(name, spec))


@pytest.mark.parametrize(
    ("spec", "shape"), [(CIFAR10, (32, 32, 3)), (MNIST, (32, 32, 3)), (DIGITS, (8, 8, 1))], ids=["rgb", "grey", "tiny"]
)
def test_folder_crops(make, tmp_path, data_dir, spec, shape):
    make.image_folder(tmp_path / "x", size=(80, 60), each=3)
    images = load(f"folder:{tmp_path / 'x'}", spec, data_dir=data_dir, num_crops=50)
    assert images.shape == (50, *shape)
    assert images.dtype == np.uint8


def test_folder_crops_are_made_once_and_repeat(make, tmp_path, data_dir, monkeypatch):
    make.image_folder(tmp_path / "x", size=(80, 60), each=3)
    name, options = f"folder:{tmp_path / 'x'}", {"num_crops": 40}
    first = load(name, data_dir=data_dir, **options)
    elsewhere = load(name, data_dir=tmp_path / "other", **options)
    np.testing.assert_array_equal(first, elsewhere)
    assert (first != load(name, data_dir=data_dir, seed=1, **options)).any()
    monkeypatch.setattr(outliers, "_make_crops", None)
    np.testing.assert_array_equal(first, load(name, data_dir=data_dir, **options))


def test_every_image_gives_as_many_crops(tmp_path, data_dir):
    (tmp_path / "x").mkdir()
    for value in range(5):
        Image.new("RGB", (50, 50), (value, value, value)).save(tmp_path / "x" / f"{value}.png")
    crops = load(f"folder:{tmp_path / 'x'}", data_dir=data_dir, num_crops=50)
    assert np.bincount(crops[:, 0, 0, 0]).tolist() == [10] * 5


def test_large_jpegs_are_decoded_small_and_look_the_same(tmp_path, data_dir):
    """A JPEG decoded at a fraction of its size gives the crops that the whole one gives."""
    (tmp_path / "x").mkdir()
    waves = np.sin(np.linspace(0, 12, 2_000))[:, None] * np.cos(np.linspace(0, 9, 3_000))
    photo = Image.fromarray((127 + 120 * waves).astype(np.uint8)).convert("RGB")
    photo.save(tmp_path / "x" / "photo.jpg", quality=95)
    crops = load(f"folder:{tmp_path / 'x'}", data_dir=data_dir, num_crops=20)
    photo.save(tmp_path / "x" / "photo.png")
    (tmp_path / "x" / "photo.jpg").unlink()
    whole = load(f"folder:{tmp_path / 'x'}", data_dir=data_dir, num_crops=20)
    assert abs(crops.astype(int) - whole).mean() < 3


def test_a_corrupt_image_in_the_folder(make, tmp_path, data_dir):
    make.image_folder(tmp_path / "x", size=(80, 60), each=3)
    (tmp_path / "x" / "a" / "01.png").write_bytes(b"no image")
    for _ in range(2):
        said = []
        images = load(f"folder:{tmp_path / 'x'}", data_dir=data_dir, num_crops=12, report=said.append)
        assert len(images) == 10
        assert "skipped 1 of 6 images; the first: " in said[0]
    with pytest.raises(DataError, match=r"01.png: not a readable image"):
        load(f"folder:{tmp_path / 'x'}", data_dir=data_dir, strict=True)


def test_the_users_own_array(make, tmp_path):
    images = make.random_images(5, (32, 32, 3))
    np.save(tmp_path / "own.npy", images)
    np.testing.assert_array_equal(load(str(tmp_path / "own.npy")), images)
    np.save(tmp_path / "own.npy", images / 255)
    with pytest.raises(DataError, match=r"float64 \[5, 32, 32, 3\]; expected uint8"):
        load(str(tmp_path / "own.npy"))
    with pytest.raises(DataError, match=r"not a readable .npy file"):
        load(str(tmp_path / "nothing.npy"))


def test_random_images(make, tmp_path, data_dir):
    images = make.random_images(5, (32, 32, 3))
    np.save(tmp_path / "300K_random_images.npy", images)
    prepare("random_images_300k", data_dir=data_dir, source=tmp_path, check_sizes=False)
    np.testing.assert_array_equal(load("random_images_300k", data_dir=data_dir), images)
    assert load("random_images_300k", DIGITS, data_dir=data_dir).shape == (5, 8, 8, 1)


def test_at_most_as_many_as_the_paper_has(make, tmp_path, data_dir, monkeypatch):
    np.save(tmp_path / "300K_random_images.npy", make.random_images(9, (32, 32, 3)))
    prepare("random_images_300k", data_dir=data_dir, source=tmp_path, check_sizes=False)
    monkeypatch.setattr(outliers, "_MAX_IMAGES", 4)
    first, second = (load("random_images_300k", data_dir=data_dir) for _ in range(2))
    assert len(first) == 4
    np.testing.assert_array_equal(first, second)


def test_missing_random_images_say_all_there_is_to_know(data_dir):
    with pytest.raises(NotPreparedError) as error:
        load("random_images_300k", data_dir=data_dir)
    for needed in (
        "300K_random_images.npy",
        "https://people.eecs.berkeley.edu/",
        "uint8 [300000, 32, 32, 3]",
        "--source=DIR",
        "folder:PATH",
        "smooth",
        "uniform",
    ):
        assert needed in str(error.value)


def test_prepared_sets_by_our_name_or_by_tfds_name(make, tmp_path, data_dir):
    make.mnist(tmp_path / "FashionMNIST")
    prepare("fashion_mnist", data_dir=data_dir, source=tmp_path, check_sizes=False)
    assert load("fashion_mnist", data_dir=data_dir).shape == (20, 32, 32, 3)
    make.svhn(tmp_path)
    prepare("svhn", data_dir=data_dir, source=tmp_path, check_sizes=False)
    assert load("svhn_cropped", data_dir=data_dir).shape == (10, 32, 32, 3)


@pytest.mark.parametrize("name", ["imagenet", "cifar10_c", "", "..", "../x", "/"])
def test_wrong_names(data_dir, name):
    with pytest.raises(DataError, match="unknown outliers"):
        load(name, data_dir=data_dir)


def test_the_in_domain_images_are_no_outliers(data_dir):
    with pytest.raises(DataError, match="in-domain images themselves"):
        load("cifar10", data_dir=data_dir)
