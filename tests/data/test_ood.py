"""OOD test sets come in the in-domain shape, always the same, each independent of the others."""

import os
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from preload_jax.data import blocks, builtin, datasets, noise
from preload_jax.data.preparing.prepare import prepare
from preload_jax.errors import DataError, NotPreparedError, UserError
from tests import published_files

DIGITS, MNIST, CIFAR10 = (datasets.DATASETS[name] for name in ("digits", "mnist", "cifar10"))


@pytest.fixture
def prepared(make, tmp_path, data_dir):
    make.mnist(tmp_path / "FashionMNIST")
    make.cifar_python(tmp_path / "cifar-10-batches-py")
    for name in ("fashion_mnist", "cifar10"):
        prepare(name, data_dir=data_dir, source=tmp_path, check_sizes=False)
    return data_dir


def load(name, spec=DIGITS, **options):
    test_images = np.arange(7 * np.prod(spec.image_shape), dtype=np.uint8).reshape(7, *spec.image_shape)
    return datasets.load_ood(name, in_domain=spec, test_images=test_images, **options)


@pytest.mark.parametrize("spec", [DIGITS, CIFAR10], ids=lambda spec: spec.name)
@pytest.mark.parametrize("name", ["uniform", "smooth", "faraway", "faraway_rd", "photo"])
def test_made_sets(spec, name):
    images = load(name, spec, num_images=50)
    assert images.shape == (50, *spec.image_shape)
    assert images.dtype == (np.uint8 if name == "photo" else np.float32)
    if name in ("uniform", "smooth"):
        assert 0 <= images.min() < images.max() <= 1
    np.testing.assert_array_equal(images, load(name, spec, num_images=50))
    assert (images != load(name, spec, num_images=50, seed=1)).any()


@pytest.mark.parametrize("name", ["uniform", "smooth", "faraway", "faraway_rd", "photo"])
def test_blocks_are_the_set_and_never_larger_than_declared(name, monkeypatch):
    whole = load(name, num_images=50)
    monkeypatch.setattr(blocks, "NUMBERS", 64 * 8)
    found = list(load(name, num_images=50, in_blocks=True))
    assert max(block.size for block in found) <= 64 * 8
    assert len(found) == 7
    np.testing.assert_array_equal(np.concatenate(found), whole)
    # An image that is larger than a block comes alone.
    monkeypatch.setattr(blocks, "NUMBERS", 10)
    assert {len(block) for block in load(name, num_images=3, in_blocks=True)} == {1}


def test_no_array_of_a_whole_set_is_made(monkeypatch):
    """Of a set of 2 GB only blocks are taken from the generator, whose peak is measured."""
    spec = replace(CIFAR10, image_shape=(224, 224, 3), name="folder:x")
    for name in ("uniform", "faraway_rd", "smooth", "photo"):
        made = load(name, spec, num_images=3_600 if name == "uniform" else 30, in_blocks=True)
        tracemalloc.start()
        assert next(made).size <= blocks.NUMBERS
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # Blocks in float64, and what they are made of.
        assert peak < 12 * 8 * blocks.NUMBERS


def test_smooth_noise_of_more_images_than_there_are_goes_round_again():
    few, many = load("smooth", num_images=7), load("smooth", num_images=20)
    np.testing.assert_array_equal(few, load("smooth"))
    assert len(np.unique(many.reshape(20, -1), axis=0)) == 20
    own = replace(DIGITS, name="folder:x", noise_size=5)
    assert [len(load(name, own)) for name in ("smooth", "uniform", "faraway")] == [5, 5, 5]


def test_sizes_by_default():
    assert len(load("uniform")) == 2_000
    assert len(load("uniform", MNIST)) == 10_000


def test_the_distance_can_be_set():
    near, far = (load("faraway", far_distance=distance, num_images=10) for distance in (1.0, 100.0))
    np.testing.assert_allclose(far, 100 * near, rtol=1e-6)
    step = load("faraway_rd", far_distance=1e6, num_images=10).reshape(10, -1)
    np.testing.assert_allclose(np.linalg.norm(step, axis=1), 1e6, rtol=1e-4)


def test_smooth_noise_is_made_of_the_test_images():
    images = np.zeros((3, 8, 8, 1), np.uint8)
    made = datasets.load_ood("smooth", in_domain=DIGITS, test_images=images)
    assert (made < 0.1).all()  # Black stays black: sigmoid(-γ/2) with γ ≥ 5.
    assert noise.smooth(np.random.default_rng(0), images).shape == images.shape


def test_photo_tests_on_another_photo_than_it_trains_on(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    for name, grey in (("china.jpg", 0), ("flower.jpg", 255)):
        Image.new("RGB", (80, 60), (grey, grey, grey)).save(tmp_path / "images" / name, format="PNG")
    monkeypatch.setattr(builtin, "_bundled", lambda name: tmp_path / name)
    train = datasets.load_outliers("photo", in_domain=DIGITS, train_images=np.zeros((1, 8, 8, 1), np.uint8))
    test = load("photo")
    assert train.shape[1:] == test.shape[1:] == (8, 8, 1)
    assert {train.max(), train.min()} == {0}
    assert {test.max(), test.min()} == {255}


def test_cifar_gr_is_shrunk_and_averaged(make, prepared):
    images = load("cifar_gr", MNIST, data_dir=prepared)
    assert images.shape == (4, 28, 28, 1)
    from preload_jax.data.preparing import tfds_source

    colour = tfds_source.read("cifar10", "test", data_dir=prepared).images
    small = np.stack([np.asarray(Image.fromarray(i).resize((28, 28), Image.Resampling.BILINEAR)) for i in colour])
    np.testing.assert_array_equal(images[..., 0], np.rint(small.mean(axis=-1)).astype(np.uint8))


def test_fmnist_3d_is_enlarged_in_three_equal_channels(prepared):
    images = load("fmnist_3d", CIFAR10, data_dir=prepared)
    assert images.shape == (10, 32, 32, 3)
    assert (images[..., 0] == images[..., 1]).all()
    assert (images[..., 0] == images[..., 2]).all()


def test_any_set_comes_in_the_in_domain_shape(prepared):
    assert load("cifar10", DIGITS, data_dir=prepared).shape == (4, 8, 8, 1)
    assert load("fashion_mnist", CIFAR10, data_dir=prepared).shape == (10, 32, 32, 3)


def test_available(prepared):
    available, missing = datasets.available_ood(MNIST, data_dir=prepared)
    assert available == ["fashion_mnist", "cifar_gr", "uniform", "smooth", "faraway", "faraway_rd"]
    assert missing == ["emnist", "kmnist"]
    assert datasets.available_ood(DIGITS, data_dir=prepared / "nowhere") == (list(DIGITS.ood_sets), [])


def test_a_set_is_checked_without_reading_it(prepared, tmp_path, monkeypatch):
    np.save(tmp_path / "own.npy", np.zeros((2, 8, 8, 1), np.uint8))
    (tmp_path / "folder").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "folder" / "a.png")
    there = (*DIGITS.ood_sets, "cifar_gr", "fashion_mnist", f"folder:{tmp_path}/folder", f"{tmp_path}/own.npy")
    for name in there:
        load(name, data_dir=prepared)
    wrong = ("imagenet", "emnist", "fmnist3d", f"folder:{tmp_path}/none", f"{tmp_path}/none.npy")
    messages = []
    for name in wrong:
        with pytest.raises(DataError) as raised:
            load(name, data_dir=prepared)
        messages.append(str(raised.value))
    for reader in ("load_ood", "_test_images", "image_folder.read_images", "resize"):
        monkeypatch.delattr(f"preload_jax.data.ood.{reader}")
    for name in there:
        datasets.check_ood(name, data_dir=prepared)
    for name, message in zip(wrong, messages, strict=True):
        with pytest.raises(DataError) as raised:
            datasets.check_ood(name, data_dir=prepared)
        assert str(raised.value) == message


def test_the_users_own_images(tmp_path):
    rng = np.random.default_rng(0)
    for name, shape in (("b.png", (9, 7, 3)), ("sub/a.png", (8, 8))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(tmp_path / name)
    assert load(f"folder:{tmp_path}", DIGITS).shape == (2, 8, 8, 1)
    assert load(f"folder:{tmp_path}", CIFAR10).shape == (2, 32, 32, 3)
    np.save(tmp_path / "a.npy", rng.integers(0, 256, (5, 16, 16, 3), np.uint8))
    assert load(f"{tmp_path}/a.npy", DIGITS).shape == (5, 8, 8, 1)
    (tmp_path / "c.png").write_bytes(b"not a picture")
    said = []
    assert len(load(f"folder:{tmp_path}", DIGITS, report=said.append)) == 2
    assert said[0].startswith("left out 1 of 4 files")
    assert said[1].startswith(f"skipped 1 of 3 images; the first: {tmp_path}/c.png: not a readable image")
    with pytest.raises(DataError, match="not a readable image"):
        load(f"folder:{tmp_path}", DIGITS, strict=True)
    np.save(tmp_path / "a.npy", np.zeros((5, 16, 16, 3), np.float32))
    with pytest.raises(DataError, match=r"float32 \[5, 16, 16, 3\]; expected uint8"):
        load(f"{tmp_path}/a.npy", DIGITS)


def test_wrong_names(data_dir):
    with pytest.raises(DataError, match=r"unknown OOD set 'unifrom' \(did you mean 'uniform'\?\)"):
        load("unifrom")
    with pytest.raises(DataError, match="unknown OOD set 'cifar10_c'"):
        load("cifar10_c", CIFAR10, data_dir=data_dir)
    with pytest.raises(NotPreparedError, match="--dataset=cifar10"):
        load("cifar_gr", MNIST, data_dir=data_dir)
    with pytest.raises(NotPreparedError, match="--dataset=svhn"):
        load("svhn", CIFAR10, data_dir=data_dir)


@pytest.mark.parametrize(
    ("protocol", "spec", "count"),
    [("ours", DIGITS, 30), ("released_code", DIGITS, 30), ("released_code", replace(DIGITS, noise_size=20), 20)],
)
def test_smooth_noise_of_test_images(protocol, spec, count):
    """The released code makes one of each test image, but not more than 10,000; black stays black."""
    images = np.full((30, 8, 8, 1), 255, np.uint8)
    images[:20] = 0
    made = datasets.load_ood("smooth", in_domain=spec, test_images=images, protocol=protocol)
    assert (made.mean(axis=(1, 2, 3)) < 0.5).tolist() == [True] * 20 + [False] * (count - 20)


def test_smooth_noise_of_training_images_as_the_paper_says():
    train, test = np.full((50, 8, 8, 1), 255, np.uint8), np.zeros((30, 8, 8, 1), np.uint8)
    options = {"in_domain": DIGITS, "test_images": test, "protocol": "paper"}
    made = datasets.load_ood("smooth", train_images=train, **options)
    assert made.shape == (30, 8, 8, 1)
    assert (made > 0.5).all()
    with pytest.raises(DataError, match="made of training images; give train_images"):
        datasets.load_ood("smooth", **options)


def test_cifar_gr_keeps_its_mean_in_floating_point_in_the_released_codes_protocol(prepared):
    rounded = load("cifar_gr", MNIST, data_dir=prepared)
    exact = load("cifar_gr", MNIST, data_dir=prepared, protocol="released_code")
    assert (exact.dtype, exact.shape) == (np.float32, (4, 28, 28, 1))
    np.testing.assert_array_equal(np.rint(exact * 255).astype(np.uint8), rounded)
    assert len(np.unique(np.round(exact * 255 * 3))) > 256  # thirds of a step
    np.testing.assert_allclose(exact * 255 * 3, np.rint(exact * 255 * 3), atol=1e-3)


@pytest.mark.usefixtures("unannotated")
@pytest.mark.parametrize("name", ["faraway", "faraway_rd", "uniform"])
@pytest.mark.parametrize(
    "distance",
    [float("nan"), float("inf"), -float("inf"), 1e39, 1e31, 10**400, -1.0, 0, True, "10", None, [1.0], np.ones(2), 1j],
)
def test_distances_that_give_no_images(name, distance):
    with pytest.raises(UserError, match="far_distance must be"):
        load(name, far_distance=distance, num_images=2)


@pytest.mark.usefixtures("unannotated")
@pytest.mark.parametrize("name", ["faraway", "faraway_rd"])
@pytest.mark.parametrize("distance", [1e30, 3, np.float32(2), np.array(5.0), 1e-3])
def test_distances_that_give_finite_images(name, distance):
    assert np.isfinite(load(name, far_distance=distance, num_images=3)).all()


@pytest.mark.usefixtures("unannotated")
@pytest.mark.parametrize("name", ["photo", "uniform", "smooth", "faraway", "faraway_rd"])
@pytest.mark.parametrize("number", [0, -1, 2.5, True, "3", np.ones(2)])
def test_numbers_of_images_that_are_none(name, number):
    with pytest.raises(UserError, match=r"num_images must be (an integer|at least 1), got"):
        load(name, num_images=number)


@pytest.mark.usefixtures("unannotated")
@pytest.mark.parametrize("name", [None, 3, b"uniform", ["uniform"], True])
def test_names_that_are_none(name):
    for call in (load, datasets.check_ood):
        with pytest.raises(DataError, match="an OOD set must be given by name, such as"):
            call(name)


def test_a_path_is_a_name(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((5, 8, 8, 1), np.uint8))
    datasets.check_ood(tmp_path / "a.npy")
    assert load(tmp_path / "a.npy").shape == (5, 8, 8, 1)


def test_unknown_protocol():
    with pytest.raises(DataError, match="unknown protocol 'theirs'"):
        getattr(datasets.load_ood, "__wrapped__", datasets.load_ood)(  # The tests' type checker would come first.
            "smooth", in_domain=DIGITS, test_images=None, protocol="theirs"
        )


def test_files_that_are_no_images_by_their_names_are_said(tmp_path):
    Image.new("L", (8, 8), 9).save(tmp_path / "a.png")
    (tmp_path / "b.avif").write_bytes(b"")
    said = []
    assert len(load(f"folder:{tmp_path}", report=said.append)) == 1
    options = {"in_domain": DIGITS, "train_images": np.zeros((3, 8, 8, 1), np.uint8), "data_dir": tmp_path / "data"}
    assert len(datasets.load_outliers(f"folder:{tmp_path}", num_crops=4, report=said.append, **options)) == 4
    assert (
        said
        == [f"left out 1 of 2 files, which are no images by their names (1 of .avif); the first: {tmp_path}/b.avif"] * 2
    )


def test_a_folder_whose_name_is_no_text(tmp_path):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.mkdir(folder)
    Image.new("L", (8, 8), 9).save(f"{folder}/a.png")
    assert load(f"folder:{folder}").shape == (1, 8, 8, 1)
    images = np.zeros((1, 8, 8, 1), np.uint8)
    assert (
        len(
            datasets.load_outliers(
                f"folder:{folder}", in_domain=DIGITS, train_images=images, data_dir=tmp_path, num_crops=4
            )
        )
        == 4
    )


def test_a_folder_with_a_trailing_slash_is_the_same_set(tmp_path):
    Image.new("L", (8, 8), 9).save(tmp_path / "a.png")
    np.testing.assert_array_equal(load(f"folder:{tmp_path}"), load(f"folder:{tmp_path}/"))


@pytest.mark.parametrize("spelled", ["{0}", "{0}/", "{0}/../photos", "{1}/link", "{1}/./photos"])
def test_the_in_domain_images_are_no_ood_set(tmp_path, spelled):
    folder = published_files.image_folder(tmp_path / "photos", size=(8, 8))
    (tmp_path / "link").symlink_to(folder)
    spec = datasets.get(f"folder:{folder}")
    with pytest.raises(DataError, match=r"is the in-domain images themselves; choose another"):
        load("folder:" + spelled.format(folder, tmp_path), spec)
    assert len(load(f"folder:{folder}/a", spec)) == 6


def test_nor_are_they_by_the_name_of_a_published_set():
    for name in ("mnist", "cifar10"):
        with pytest.raises(DataError, match="in-domain images themselves"):
            load(name, datasets.get(name))
