"""OOD test sets, in the shape of the in-domain images."""

import zlib
from pathlib import Path

import numpy as np

from preload_jax.data import builtin, noise
from preload_jax.data.catalogue import DERIVED, PUBLISHED
from preload_jax.data.images import resize, to_channels, to_shape
from preload_jax.data.own_data import FOLDER_PREFIX
from preload_jax.data.paths import data_root
from preload_jax.data.preparing import tfds_source
from preload_jax.data.preparing.prepared import is_prepared, require
from preload_jax.data.readers import image_folder
from preload_jax.data.readers.array_sets import open_images
from preload_jax.data.specs import NOISE_SETS, DatasetSpec, unknown

_BUILT_IN = ("photo", *NOISE_SETS)


def load_ood(
    name: str,
    *,
    in_domain: DatasetSpec,
    test_images: np.ndarray,
    data_dir: str | Path | None = None,
    seed: int = 0,
    num_images: int | None = None,
    far_distance: float = 10_000.0,
) -> np.ndarray:
    """Loads or makes one OOD test set.

    Args:
      name: one of `in_domain.ood_sets`, any other set that has test images, "folder:PATH" (all images in a folder,
        squashed to the in-domain shape) or FILE.npy.
      in_domain: the data set that the images are out of the domain of; they come in its shape.
      test_images: its test images, uint8 [n, h, w, c]; smooth noise is made of them, one for one.
      data_dir: where the prepared data sets are; None for TFDS's own default.
      seed: fixes the made sets; each set has a stream of its own, whatever else is loaded.
      num_images: size of the made sets (except smooth); None for `in_domain.noise_size`. Loaded sets are used whole.
      far_distance: t of FarAway and FarAway-RD.

    Returns:
      uint8 [n, h, w, c] of a loaded set; float32 of a made one, in [0, 1] except for FarAway and FarAway-RD.

    Raises:
      DataError: for an unknown name; NotPreparedError when the set has to be prepared first.
    """
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    count = in_domain.noise_size if num_images is None else num_images
    shape = (count, *in_domain.image_shape)
    if name == "uniform":
        return noise.uniform(rng, shape)
    if name == "smooth":
        return noise.smooth(rng, test_images)
    if name == "faraway":
        return noise.faraway(rng, shape, distance=far_distance)
    if name == "faraway_rd":
        return noise.faraway_rd(rng, shape, distance=far_distance)
    if name == "photo":
        return builtin.photo_crops(rng, "test", num_images=count, image_shape=in_domain.image_shape)
    if name.startswith(FOLDER_PREFIX):
        return _folder(_folder_path(name), in_domain.image_shape)
    images = _test_images(name, data_root(data_dir))
    return to_shape(images, in_domain.image_shape)


def check_ood(name: str, *, data_dir: str | Path | None = None) -> None:
    """Reads no images, and raises what `load_ood` would if there is no such set, or if it has to be prepared first."""
    if name in _BUILT_IN:
        return
    if name.startswith(FOLDER_PREFIX):
        image_folder.find_images(_folder_path(name))
    elif name.endswith(".npy"):
        open_images(Path(name).expanduser())
    else:
        require(PUBLISHED[_published(name)], "test", data_dir=data_root(data_dir))


def available_ood(spec: DatasetSpec, *, data_dir: str | Path | None = None) -> tuple[list[str], list[str]]:
    """Splits `spec.ood_sets`, in order, into those that can be loaded now and those that have to be prepared first."""
    root = data_root(data_dir)
    available: list[str] = []
    missing: list[str] = []
    for name in spec.ood_sets:
        ready = name in _BUILT_IN or is_prepared(DERIVED.get(name, name), data_dir=root)
        (available if ready else missing).append(name)
    return available, missing


def _folder_path(name: str) -> Path:
    return Path(name.removeprefix(FOLDER_PREFIX)).expanduser()


def _folder(folder: Path, image_shape: tuple[int, int, int]) -> np.ndarray:
    height, width, channels = image_shape

    def decode(_: int, path: Path) -> np.ndarray:
        return to_channels(image_folder.to_array(image_folder.open_image(path), (height, width))[None], channels)[0]

    # An unreadable image is an error: a test set that quietly shrank would not be the one that was asked for.
    images, _ = image_folder.read_images(image_folder.find_images(folder), decode, strict=True)
    return np.stack(images)


def _test_images(name: str, data_dir: Path) -> np.ndarray:
    """The test images of a published set, or the user's own (uint8), in their own shape."""
    if name.endswith(".npy"):
        return open_images(Path(name).expanduser())
    images = tfds_source.read(_published(name), "test", data_dir=data_dir).images
    if name == "cifar_gr":
        # Released code: CIFAR-10 shrunk to 28x28, and the mean of the channels instead of the luma.
        mean = resize(images, (28, 28)).mean(axis=-1, keepdims=True, dtype=np.float32)
        return np.rint(mean).astype(np.uint8)
    return images


def _published(name: str) -> str:
    """The published set whose test images `name` is, or is made of."""
    published = [item.name for item in PUBLISHED.values() if item.tfds_name is not None]
    if name not in published and name not in DERIVED:
        raise unknown("OOD set", name, [*_BUILT_IN, *DERIVED, *published, "folder:PATH", "FILE.npy"])
    return DERIVED.get(name, name)
