"""Auxiliary OOD images, which the networks are trained on."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from preload_jax.data import builtin, noise
from preload_jax.data.blocks import joined
from preload_jax.data.cache import CACHE_FOLDER, cached, listing_key
from preload_jax.data.catalogue import PUBLISHED
from preload_jax.data.images import random_resized_crops, to_channels, to_shape
from preload_jax.data.names import as_text, canonical, is_folder, path_of, stream
from preload_jax.data.paths import data_root
from preload_jax.data.preparing import tfds_source
from preload_jax.data.preparing.prepared import is_prepared
from preload_jax.data.readers import array_sets, image_folder
from preload_jax.data.readers.array_files import open_images
from preload_jax.data.readers.bounds import require_memory
from preload_jax.data.readers.image_folder import Report
from preload_jax.data.specs import DatasetSpec, unknown
from preload_jax.errors import DataError, NotPreparedError
from preload_jax.integers import require_integer, require_seed

MADE = ("photo", "smooth", "uniform")
_ALTERNATIVES = "or choose --outliers=folder:PATH (any photos), smooth or uniform"
_NUM_PHOTO_CROPS = 5_000
_NUM_FOLDER_CROPS = 100_000
_CROP_BYTES = 2**30  # of a folder's crops: fewer of large ones
_MAX_IMAGES = 300_000  # as many as the paper's


def load_outliers(
    name: str | Path,
    *,
    in_domain: DatasetSpec,
    train_images: np.ndarray,
    data_dir: str | Path | None = None,
    seed: int = 0,
    num_crops: int | None = None,
    to_crop: bool = False,
    strict: bool = False,
    report: Report | None = None,
) -> np.ndarray:
    """Loads or makes the auxiliary OOD images of a training run.

    Args:
      name: "photo" (crops of a bundled photo), "smooth", "uniform", "random_images_300k", "imagenet32",
        "folder:PATH" (crops of any folder of images), FILE.npy, or a prepared TFDS data set.
      in_domain: the data set that the images are out of the domain of.
      train_images: its training images, uint8 [n, h, w, c]; smooth noise is made of them, one for one.
      data_dir: where the prepared data sets and the cached crops are; None for TFDS's own default.
      seed: fixes the made images and the crops.
      num_crops: number of crops from a folder; None for 100,000, but not more than 1 GiB.
      to_crop: leaves the images at the shape that the data set's `outlier_augmentation` makes its crops of
        (`stored_shape`), for a caller that applies it.
      strict: an unreadable image in a folder is an error; else it is skipped.
      report: is told, in one line each, what was skipped or changed.

    Returns:
      uint8 [n, h, w, c] in the in-domain shape, as `preload_jax.fit` takes them; with `to_crop` in `stored_shape`,
      except for "photo", "smooth" and "uniform".

    Raises:
      UserError: for a seed or a number of crops that is none.
      DataError: for an unknown name; NotPreparedError when the images have to be prepared first.

    Example:
      >>> from preload_jax.data import datasets
      >>> images = datasets.load("digits").train.images
      >>> datasets.load_outliers("smooth", in_domain=datasets.get("digits"), train_images=images).shape
      (1297, 8, 8, 1)
    """
    name = as_text(name, what="outliers")
    if num_crops is not None:
        num_crops = require_integer("num_crops", num_crops, at_least=1)
    rng = np.random.default_rng([require_seed(seed), stream(f"outliers {canonical(name)}")])
    root = data_root(data_dir)
    if canonical(name) == canonical(in_domain.name):
        raise DataError(f"outliers {name!r} are the in-domain images themselves; choose others")
    if name == "photo":
        return builtin.photo_crops(rng, "train", num_images=_NUM_PHOTO_CROPS, image_shape=in_domain.image_shape)
    if name == "smooth":
        blocks = (np.rint(255 * block).astype(np.uint8) for block in noise.smooth_blocks(rng, train_images))
        return joined(blocks, train_images.shape, np.uint8)
    if name == "uniform":
        return rng.integers(0, 256, train_images.shape, dtype=np.uint8)
    shape = stored_shape(in_domain) if to_crop else in_domain.image_shape
    if is_folder(name):
        return folder_crops(
            path_of(name),
            image_shape=shape,
            num_crops=min(_NUM_FOLDER_CROPS, _CROP_BYTES // math.prod(shape)) if num_crops is None else num_crops,
            seed=seed,
            data_dir=root,
            strict=strict,
            report=report,
        )
    return to_shape(open_images(path_of(name)) if name.endswith(".npy") else _prepared(name, rng, root, shape), shape)


def stored_shape(in_domain: DatasetSpec) -> tuple[int, int, int]:
    """The shape of outliers at rest: 32x32 in colour for the paper's data sets, else the in-domain shape."""
    return (32, 32, 3) if in_domain.image_shape[:2] in ((28, 28), (32, 32)) else in_domain.image_shape


def folder_crops(
    folder: Path,
    *,
    image_shape: tuple[int, int, int],
    num_crops: int,
    seed: int,
    data_dir: Path,
    strict: bool = False,
    report: Report | None = None,
) -> np.ndarray:
    """Random resized crops of the images in a folder, as many of each; made once, the same for the same seed.

    Returns:
      uint8 [num_crops, *image_shape].
    """
    paths = image_folder.find_images(folder, report=report)
    require_memory(folder, num_crops * math.prod(image_shape), copies=2)
    key = listing_key(paths, image_shape, num_crops, seed, strict, "3")
    arrays = cached(
        data_dir / CACHE_FOLDER / f"crops-{key}.npz",
        lambda: _make_crops(paths, image_shape, num_crops, seed, strict),
        names=("images", "said"),
    )
    if report is not None and (message := str(arrays["said"])):
        report(message)
    return arrays["images"]


def _make_crops(
    paths: list[Path], image_shape: tuple[int, int, int], num_crops: int, seed: int, strict: bool
) -> dict[str, np.ndarray]:
    height, width, channels = image_shape
    each = -(-num_crops // len(paths))
    messages: list[str] = []

    def keep(row: int, image: Any) -> np.ndarray:
        # A generator for each image: the crops do not depend on which thread comes first.
        rng = np.random.default_rng([seed, row])
        return to_channels(random_resized_crops(rng, image, num_crops=each, size=(height, width)), channels)

    # The smallest crops have a seventh of the photo's side, so this much is twice what they need.
    enough = 14 * width, 14 * height
    crops, _ = image_folder.read_images(paths, keep, shrink_to=enough, strict=strict, report=messages.append)
    images = np.concatenate(crops)
    # Shuffled, so that cutting to the wanted number takes from all images alike.
    order = np.random.default_rng([seed, len(paths)]).permutation(len(images))[:num_crops]
    return {"images": images[order], "said": np.array("; ".join(messages))}


def _prepared(name: str, rng: np.random.Generator, data_dir: Path, shape: tuple[int, int, int]) -> np.ndarray:
    """Images of a prepared set: a published one by our name, or any other TFDS data set by its own."""
    require_known(name, data_dir=data_dir)
    item = PUBLISHED.get(name)
    if item is None or item.purpose == "shift":
        return tfds_source.read_any(name, data_dir=data_dir, image_shape=shape)
    split = _split(name, data_dir)
    if item.tfds_name is not None:
        return tfds_source.read(item, split, data_dir=data_dir).images
    images = array_sets.open_array(item, split, data_dir=data_dir)
    if len(images) <= _MAX_IMAGES:
        return images
    return images[np.sort(rng.permutation(len(images))[:_MAX_IMAGES])]


def require_known(name: str, *, data_dir: str | Path | None = None) -> None:
    """Refuses the name of outliers that are not there, before anything is loaded; files and folders it lets pass.

    Raises:
      DataError: for an unknown name; NotPreparedError when the images have to be prepared first.

    Example:
      >>> from preload_jax.data import outliers
      >>> outliers.require_known("smooth")
    """
    if name in MADE or is_folder(name) or name.endswith(".npy"):
        return
    root, item = data_root(data_dir), PUBLISHED.get(name)
    if item is None or item.purpose == "shift":
        if tfds_source.newest(name, data_dir=root) is None:
            raise unknown(
                "outliers", name, [*MADE, "folder:PATH", "FILE.npy", *PUBLISHED, "a TFDS data set prepared there"]
            )
        return
    if not is_prepared(name, data_dir=root, split=_split(name, root)):
        file = item.remote[0]
        size = ", ".join(map(str, (sum(item.sizes.values()), *item.image_shape)))
        raise NotPreparedError(
            f"outliers {name} (uint8 [{size}], {file.name} from {file.url}) are not prepared in {root}; "
            f"run `python -m experiments.prepare_data --dataset={name}` (--source=DIR if you have the file), "
            f"{_ALTERNATIVES}"
        )


def _split(name: str, data_dir: Path) -> str:
    return "train" if is_prepared(name, data_dir=data_dir, split="train") else "test"
