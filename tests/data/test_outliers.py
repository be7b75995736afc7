"""Auxiliary OOD images: made, cropped from folders, or prepared."""

import numpy as np
import pytest
from PIL import Image

from preload_jax.data import datasets, outliers
from preload_jax.data.preparing.prepare import prepare
from preload_jax.data.readers import image_folder
from preload_jax.errors import DataError, NotPreparedError, UserError

DIGITS, MNIST, CIFAR10 = (datasets.DATASETS[name] for name in ("digits", "mnist", "cifar10"))


def load(name, spec=CIFAR10, *, images=None, **options):
    if images is None:
        images = np.full((9, *spec.image_shape), 128, np.uint8)
    return datasets.load_outliers(name, in_domain=spec, train_images=images, **options)


@pytest.mark.parametrize("spec", [DIGITS, MNIST, CIFAR10], ids=lambda spec: spec.name)
@pytest.mark.parametrize(("name", "count"), [("photo", 5_000), ("smooth", 9), ("uniform", 9)])
def test_made_outliers(spec, name, count):
    images = load(name, spec)
    assert images.shape == (count, *spec.image_shape)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(images, load(name, spec))


def test_made_outliers_fill_the_range_of_bytes():
    assert set(np.unique(load("uniform", MNIST))) == set(range(256))
    images = np.repeat(np.array([0, 255], np.uint8), 2_000)[:, None, None, None]
    black, white = load("smooth", images=images).reshape(2, 2_000).astype(int)
    # sigmoid(±γ/2), rounded: γ ~ U(5, 30), and beyond 12.47 it is 0 and 255.
    for away in (black, 255 - white):
        assert away.max() == 19
        assert (away == 0).mean() == pytest.approx((30 - 12.47) / 25, abs=0.05)


def test_what_is_made_for_training_is_not_what_is_made_for_testing():
    """Each seed has images of its own, and so have training and testing, even if they are made of the same images."""
    images = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 1), np.uint8)
    made = []
    for seed in (0, 1):
        for name in ("smooth", "photo"):
            tested = datasets.load_ood(name, in_domain=DIGITS, test_images=images, seed=seed, num_images=1)
            if name == "smooth":
                tested = np.rint(255 * tested).astype(np.uint8)
            made += [tested[0].tobytes(), load(name, DIGITS, images=images, seed=seed)[0].tobytes()]
    assert len(set(made)) == len(made) == 8


@pytest.mark.parametrize(
    ("spec", "shape"), [(CIFAR10, (32, 32, 3)), (MNIST, (32, 32, 3)), (DIGITS, (8, 8, 1))], ids=["rgb", "grey", "tiny"]
)
def test_folder_crops(make, tmp_path, data_dir, spec, shape):
    make.image_folder(tmp_path / "x", size=(80, 60), each=3)
    for to_crop, expected in ((True, shape), (False, spec.image_shape)):
        images = load(f"folder:{tmp_path / 'x'}", spec, data_dir=data_dir, num_crops=50, to_crop=to_crop)
        assert images.shape == (50, *expected)
        assert images.dtype == np.uint8


def test_folder_crops_are_made_once_and_repeat(make, tmp_path, data_dir, monkeypatch):
    make.image_folder(tmp_path / "x", size=(80, 60), each=3)
    name, options = f"folder:{tmp_path / 'x'}", {"num_crops": 40}
    first = load(name, data_dir=data_dir, **options)
    elsewhere = load(name, data_dir=tmp_path / "other", **options)
    np.testing.assert_array_equal(first, elsewhere)
    assert (first != load(name, data_dir=data_dir, seed=1, **options)).any()
    monkeypatch.setattr(image_folder, "read_images", None)  # Nobody reads them again.
    np.testing.assert_array_equal(first, load(name, data_dir=data_dir, **options))


def test_crops_of_another_shape_or_number_are_made_anew(make, tmp_path, data_dir):
    make.image_folder(tmp_path / "x", size=(80, 60), each=1)
    for spec, count in ((CIFAR10, 8), (DIGITS, 8), (CIFAR10, 6)):
        assert len(load(f"folder:{tmp_path / 'x'}", spec, data_dir=data_dir, num_crops=count)) == count


def test_every_image_and_every_seed_has_crops_of_its_own(tmp_path, data_dir):
    (tmp_path / "x").mkdir()
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8))
    for name in "ab":  # the same photo twice
        photo.save(tmp_path / "x" / f"{name}.png")
    crops = [load(f"folder:{tmp_path / 'x'}", data_dir=data_dir, num_crops=8, seed=seed) for seed in (0, 1)]
    assert len({crop.tobytes() for crop in np.concatenate(crops)}) == 16


def test_every_image_gives_as_many_crops(tmp_path, data_dir):
    (tmp_path / "x").mkdir()
    for value in range(5):
        Image.new("RGB", (50, 50), (value, value, value)).save(tmp_path / "x" / f"{value}.png")
    crops = load(f"folder:{tmp_path / 'x'}", data_dir=data_dir, num_crops=50)
    assert np.bincount(crops[:, 0, 0, 0]).tolist() == [10] * 5
    # In no order, so that those left out are of all images.
    assert (np.diff(crops[:, 0, 0, 0].astype(int)) < 0).any()


@pytest.mark.parametrize("size", [(2_000, 3_000), (256, 384)])
def test_large_jpegs_are_decoded_small_and_look_the_same(tmp_path, data_dir, size):
    """A JPEG decoded at a fraction of its size gives the crops that the whole one gives."""
    (tmp_path / "x").mkdir()
    waves = np.sin(np.linspace(0, 80, size[0]))[:, None] * np.cos(np.linspace(0, 120, size[1]))
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
        load(f"folder:{tmp_path / 'x'}", data_dir=data_dir, num_crops=12, strict=True)


def test_the_users_own_array(make, tmp_path):
    images = make.random_images(5, (32, 32, 3))
    np.save(tmp_path / "own.npy", images)
    np.testing.assert_array_equal(load(str(tmp_path / "own.npy")), images)
    assert load(str(tmp_path / "own.npy"), DIGITS).shape == (5, 8, 8, 1)
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
    images = make.random_images(9, (32, 32, 3))
    np.save(tmp_path / "300K_random_images.npy", images)
    prepare("random_images_300k", data_dir=data_dir, source=tmp_path, check_sizes=False)
    monkeypatch.setattr(outliers, "_MAX_IMAGES", 4)
    first, second = (load("random_images_300k", data_dir=data_dir) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    rows = [next(row for row in range(9) if np.array_equal(images[row], image)) for image in first]
    assert len(set(rows)) == 4
    assert rows != [0, 1, 2, 3]  # any, not the first


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


@pytest.mark.parametrize("name", ["imagenet", "cifar10_c", "", "..", "../x", "/", "a\0b", "x" * 5_000, "\udcff"])
def test_wrong_names(data_dir, name):
    with pytest.raises(DataError, match="unknown outliers"):
        load(name, data_dir=data_dir)


def test_what_is_there_is_known_before_anything_is_loaded(make, tmp_path, data_dir):
    for name in ("photo", "smooth", "uniform", "folder:anything", "a.npy"):
        outliers.require_known(name, data_dir=data_dir)
    for name in ("photos", "", "imagenet", "../x"):
        with pytest.raises(DataError, match="unknown outliers"):
            outliers.require_known(name, data_dir=data_dir)
    with pytest.raises(NotPreparedError, match=r"outliers svhn .* are not prepared"):
        outliers.require_known("svhn", data_dir=data_dir)
    make.svhn(tmp_path)
    prepare("svhn", data_dir=data_dir, source=tmp_path, check_sizes=False)
    outliers.require_known("svhn", data_dir=data_dir)
    outliers.require_known("svhn_cropped", data_dir=data_dir)


@pytest.mark.usefixtures("unannotated")
@pytest.mark.parametrize("name", [None, 3, b"photo", ["photo"], True])
def test_names_that_are_none(name):
    with pytest.raises(DataError, match="outliers must be given by name, such as"):
        datasets.load_outliers(name, in_domain=DIGITS, train_images=np.zeros((3, 8, 8, 1), np.uint8))


@pytest.mark.usefixtures("unannotated")
@pytest.mark.parametrize("number", [0, -1, 2.5, True, "3"])
def test_numbers_of_crops_that_are_none(make, tmp_path, data_dir, number):
    make.image_folder(tmp_path / "x")
    options = {"in_domain": DIGITS, "train_images": np.zeros((3, 8, 8, 1), np.uint8), "data_dir": data_dir}
    with pytest.raises(UserError, match=r"num_crops must be (an integer|at least 1), got"):
        datasets.load_outliers(f"folder:{tmp_path / 'x'}", num_crops=number, **options)


def test_the_in_domain_images_are_no_outliers(data_dir):
    with pytest.raises(DataError, match="in-domain images themselves"):
        load("cifar10", data_dir=data_dir)


@pytest.mark.parametrize("spec", [DIGITS, MNIST, CIFAR10], ids=lambda spec: spec.name)
@pytest.mark.parametrize("kind", ["photo", "smooth", "uniform", "folder", "array", "prepared", "npy grey"])
def test_what_is_loaded_for_a_set_fits_fit_for_it(make, tmp_path, data_dir, spec, kind):
    make.image_folder(tmp_path / "x", size=(40, 30), each=2)
    np.save(tmp_path / "own.npy", make.random_images(5, (32, 32, 3)))
    np.save(tmp_path / "grey.npy", make.random_images(5, (20, 20, 1)))
    name = {"folder": f"folder:{tmp_path}/x", "array": f"{tmp_path}/own.npy", "npy grey": f"{tmp_path}/grey.npy"}
    if kind == "prepared":
        make.svhn(tmp_path)
        prepare("svhn", data_dir=data_dir, source=tmp_path, check_sizes=False)
    images = load(name.get(kind, {"prepared": "svhn"}.get(kind, kind)), spec, data_dir=data_dir, num_crops=8)
    assert images.shape[1:] == spec.image_shape
    assert images.dtype == np.uint8
