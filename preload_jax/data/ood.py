"""OOD test sets, in the shape of the in-domain images."""

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from preload_jax.data import builtin, noise
from preload_jax.data.blocks import Made
from preload_jax.data.catalogue import DERIVED, PUBLISHED
from preload_jax.data.images import resize, to_shape
from preload_jax.data.names import as_text, canonical, is_folder, is_list, path_of, stream
from preload_jax.data.names import did_you_mean as path_meant
from preload_jax.data.paths import data_root
from preload_jax.data.preparing import tfds_source
from preload_jax.data.preparing.prepared import is_prepared, require
from preload_jax.data.readers import image_folder, image_list
from preload_jax.data.readers.array_files import open_images
from preload_jax.data.readers.image_folder import Report
from preload_jax.data.specs import DATASETS, NOISE_SETS, DatasetSpec, unknown
from preload_jax.errors import DataError, UserError, did_you_mean
from preload_jax.integers import as_float, require_integer, require_seed, shown

Protocol = Literal["ours", "released_code", "paper"]
PROTOCOLS: tuple[str, ...] = get_args(Protocol)
_BUILT_IN = ("photo", *NOISE_SETS)
_FARTHEST = 1e30  # float32 goes to 3e38, and directions are of a few units.


def load_ood(
    name: str | Path,
    *,
    in_domain: DatasetSpec,
    test_images: np.ndarray,
    train_images: np.ndarray | None = None,
    protocol: Protocol = "ours",
    data_dir: str | Path | None = None,
    seed: int = 0,
    num_images: int | None = None,
    far_distance: float = 10_000.0,
    strict: bool = False,
    report: Report | None = None,
    in_blocks: bool = False,
) -> Any:
    """Loads or makes one OOD test set.

    Args:
      name: one of `in_domain.ood_sets`, any other set that has test images, "folder:PATH" (all images in a folder,
        squashed to the in-domain shape), "list:FILE" (those of a list in OpenOOD's form) or FILE.npy.
      in_domain: the data set that the images are out of the domain of; they come in its shape.
      test_images: its test images, uint8 [n, h, w, c]; smooth noise is made of them, one for one.
      train_images: its training images, which smooth noise is made of in the protocol "paper".
      protocol: "ours"; "released_code" makes smooth noise of at most `in_domain.noise_size` test images, and keeps
        the channels' mean of CIFAR-Gr in floating point; "paper" makes smooth noise of training images instead, as
        many as "released_code" has.
      data_dir: where the prepared data sets are; None for TFDS's own default.
      seed: fixes the made sets; each set has a stream of its own, whatever else is loaded.
      num_images: size of the made sets. None for `in_domain.noise_size`, and for smooth as many as it is made of; of
        the user's own data as many as there are test images, at most `in_domain.noise_size`. Loaded sets are used
        whole.
      far_distance: t of FarAway and FarAway-RD, above 0 and at most 1e30.
      strict: an unreadable image in a folder is an error; else it is skipped.
      report: is told, in one line each, what was skipped or changed.
      in_blocks: a made set comes as an iterator of blocks of it, of at most `blocks.NUMBERS` numbers or one image, so
        that it is never together in memory.

    Returns:
      uint8 [n, h, w, c] of a loaded set and of "photo"; float32 of another made one, in [0, 1] except for FarAway and
      FarAway-RD.

    Raises:
      UserError: for a number that is not as above.
      DataError: for an unknown name, and for that of the in-domain images; NotPreparedError when the set has to be
        prepared first.

    Example:
      >>> from preload_jax.data import datasets
      >>> test_images = datasets.load("digits").test.images
      >>> far = datasets.load_ood("faraway", in_domain=datasets.get("digits"), test_images=test_images, num_images=3)
      >>> far.shape, bool(far.max() > 1_000)
      ((3, 8, 8, 1), True)
    """
    if protocol not in PROTOCOLS:
        raise DataError(f"unknown protocol {protocol!r}; expected one of {', '.join(PROTOCOLS)}")
    name = as_text(name, what="an OOD set")
    if canonical(name) == canonical(in_domain.name):
        raise DataError(f"the OOD set {name!r} is the in-domain images themselves; choose another")
    require_seed(seed)
    far_distance = _require_distance(far_distance)
    if num_images is not None:
        num_images = require_integer("num_images", num_images, at_least=1)
    if name in _BUILT_IN:
        rng = np.random.default_rng([seed, stream(canonical(name))])
        if name == "smooth":
            found = _smooth(rng, in_domain, test_images, train_images, protocol, num_images)
        else:
            count = _noise_size(in_domain, len(test_images)) if num_images is None else num_images
            found = _made(name, rng, (count, *in_domain.image_shape), far_distance)
        return iter(found) if in_blocks else found.array()
    if is_folder(name):
        paths = image_folder.find_images(path_of(name), report=report)
    elif is_list(name):
        paths, _ = image_list.find_images(path_of(name))
    else:
        paths = []
    if paths:
        return image_folder.read_squashed(
            paths, in_domain.image_shape, where=path_of(name), strict=strict, report=report
        )[0]
    images = _test_images(name, data_root(data_dir))
    if name == "cifar_gr":
        return _channel_mean(images, in_domain.image_shape, exact=protocol == "released_code")
    return to_shape(images, in_domain.image_shape)


def _require_distance(value: Any) -> float:
    """The distance as a float, if its images are finite numbers; a UserError otherwise."""
    number = value.item() if getattr(value, "ndim", None) == 0 else value
    if isinstance(number, bool) or not isinstance(number, Real):
        raise UserError(f"far_distance must be a number, got {value!r}")
    distance = as_float(number)
    if not 0 < distance <= _FARTHEST:
        raise UserError(f"far_distance must be above 0 and at most {_FARTHEST:g}, got {shown(value)}")
    return distance


def _noise_size(in_domain: DatasetSpec, test_size: int) -> int:
    return in_domain.noise_size if in_domain.name in DATASETS else max(1, min(in_domain.noise_size, test_size))


def _smooth_source(
    in_domain: DatasetSpec,
    test_images: np.ndarray,
    train_images: np.ndarray | None,
    protocol: Protocol,
    rng: np.random.Generator,
) -> np.ndarray:
    """The images that smooth noise is made of."""
    if protocol == "ours":
        return test_images
    if protocol == "released_code":
        return test_images[: in_domain.noise_size]
    if train_images is None:
        raise DataError("the paper's smooth noise is made of training images; give train_images, uint8 [n, h, w, c]")
    rows = rng.permutation(len(train_images))[: min(in_domain.noise_size, len(test_images))]
    return train_images[np.sort(rows)]


def _smooth(
    rng: np.random.Generator,
    in_domain: DatasetSpec,
    test_images: np.ndarray,
    train_images: np.ndarray | None,
    protocol: Protocol,
    num_images: int | None,
) -> Made:
    source = _smooth_source(in_domain, test_images, train_images, protocol, rng)
    count = num_images
    if count is None:
        count = len(source) if in_domain.name in DATASETS else _noise_size(in_domain, len(source))
    blocks = partial(noise.smooth_blocks, images=source, num_images=count)
    return Made((count, *source.shape[1:]), np.float32, lambda: blocks(copy.deepcopy(rng)))


def _made(name: str, rng: np.random.Generator, shape: tuple[int, ...], distance: float) -> Made:
    blocks: dict[str, Callable[[np.random.Generator], Iterator[np.ndarray]]] = {
        "uniform": partial(noise.uniform_blocks, shape=shape),
        "faraway": partial(noise.faraway_blocks, shape=shape, distance=distance),
        "faraway_rd": partial(noise.faraway_rd_blocks, shape=shape, distance=distance),
        "photo": partial(builtin.photo_crop_blocks, which="test", shape=shape),
    }
    dtype = np.uint8 if name == "photo" else np.float32
    return Made(shape, dtype, lambda: blocks[name](copy.deepcopy(rng)))


def check_ood(name: str | Path, *, data_dir: str | Path | None = None) -> None:
    """Checks that an OOD set can be loaded, without reading its images.

    Args:
      name: of the OOD set, as for `load_ood`.
      data_dir: where the prepared data sets are; None for TFDS's own default.

    Raises:
      DataError: for an unknown name; NotPreparedError if the set has to be prepared first.
    """
    name = as_text(name, what="an OOD set")
    if name in _BUILT_IN:
        return
    if is_folder(name):
        image_folder.find_images(path_of(name))
    elif is_list(name):
        image_list.find_images(path_of(name))
    elif name.endswith(".npy"):
        open_images(path_of(name))
    else:
        require(PUBLISHED[_published(name)], "test", data_dir=data_root(data_dir))


def seen_in_training(name: str, outliers: str) -> bool:
    """Whether an OOD test set is of the kind that a network was trained on.

    Args:
      name: of the OOD test set.
      outliers: of the auxiliary OOD images. Another split of a set, other noise of one kind and a set that is made
        of another ("cifar_gr" of "cifar10") count as seen.
    """
    return _origin(name) == _origin(outliers)


def _origin(name: str) -> str:
    by_tfds_name = {item.tfds_name: item.name for item in PUBLISHED.values() if item.tfds_name is not None}
    return canonical(DERIVED.get(name, by_tfds_name.get(name, name)))


def available_ood(spec: DatasetSpec, *, data_dir: str | Path | None = None) -> tuple[list[str], list[str]]:
    """Which of a data set's OOD sets can be loaded now, and which have to be prepared first.

    Args:
      spec: the in-domain data set.
      data_dir: where the prepared data sets are; None for TFDS's own default.

    Returns:
      (available, missing): two lists of names, in the order of `spec.ood_sets`.

    Example:
      >>> from preload_jax.data import datasets
      >>> datasets.available_ood(datasets.get("digits"))
      (['photo', 'uniform', 'smooth', 'faraway', 'faraway_rd'], [])
    """
    root = data_root(data_dir)
    available: list[str] = []
    missing: list[str] = []
    for name in spec.ood_sets:
        ready = name in _BUILT_IN or is_prepared(DERIVED.get(name, name), data_dir=root)
        (available if ready else missing).append(name)
    return available, missing


def _channel_mean(images: np.ndarray, image_shape: tuple[int, int, int], *, exact: bool) -> np.ndarray:
    """CIFAR-10 shrunk to 28x28, and the mean of the channels instead of the luma, as the released code has it.

    Returns:
      uint8, rounded; where `exact`, float32 in [0, 1].
    """
    mean = resize(images, (28, 28)).mean(axis=-1, keepdims=True, dtype=np.float32)
    if exact and image_shape[:2] == (28, 28):
        return np.repeat(mean / np.float32(255), image_shape[2], axis=-1)
    return to_shape(np.rint(mean).astype(np.uint8), image_shape)


def _test_images(name: str, data_dir: Path) -> np.ndarray:
    """The test images of a published set, or the user's own (uint8), in their own shape."""
    if name.endswith(".npy"):
        return open_images(path_of(name))
    return tfds_source.read(_published(name), "test", data_dir=data_dir).images


def _published(name: str) -> str:
    """The published set whose test images `name` is, or is made of."""
    require_known([name])
    return DERIVED.get(name, name)


def require_known(names: Sequence[str]) -> None:
    """Refuses names that are of no OOD set, all of them in one line; whether the others are there, it does not ask.

    Raises:
      DataError: when there is such a name.
    """
    published = [item.name for item in PUBLISHED.values() if item.tfds_name is not None]
    tables = [*_BUILT_IN, *DERIVED, *published]
    own = [name for name in names if is_folder(name) or is_list(name) or name.endswith(".npy")]
    strange = [name for name in names if name not in (*tables, *own)]
    if not strange:
        return
    expected = [*tables, "folder:PATH", "list:FILE", "FILE.npy"]
    if len(strange) == 1:
        raise unknown("OOD set", strange[0], expected)
    named = ", ".join(f"{name!r}{path_meant(name) or did_you_mean(name, expected)}" for name in strange)
    raise DataError(f"unknown OOD sets {named}; expected some of {', '.join(sorted(expected))}")
