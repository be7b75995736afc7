"""The user's own images as an in-domain data set: class sub-folders ("folder:PATH") or arrays in a .npz file."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from preload_jax.data.cache import CACHE_FOLDER, cached, listing_key
from preload_jax.data.readers import image_folder
from preload_jax.data.readers.image_folder import Report
from preload_jax.data.specs import DatasetSpec, own_spec
from preload_jax.data.splits import Arrays, stratified_split
from preload_jax.errors import DataError, reason

FOLDER_PREFIX = "folder:"
_MAX_NATIVE_SIZE = 96  # pixels; larger images, and images of several sizes, are resized to 32x32
_RESIZED = (32, 32)
_TEST_SHARE = 0.2
# (train images, train labels, test images, test labels): ours, and those of Keras's files.
_KEYS = (("images", "labels", "test_images", "test_labels"), ("x_train", "y_train", "x_test", "y_test"))


@dataclass(frozen=True)
class _Listing:
    """The image files of a folder with their labels; `test` marks those of a given test split."""

    paths: list[Path]
    labels: np.ndarray
    test: np.ndarray
    class_names: tuple[str, ...]
    has_test: bool


def is_own(name: str) -> bool:
    """Whether a data set's name means the user's own data."""
    return name.startswith(FOLDER_PREFIX) or name.endswith(".npz")


def spec(name: str) -> DatasetSpec:
    """Describes the user's own data: shape, channels and classes are told from the images.

    Raises:
      DataError: if there is no such folder or file, or it does not hold labelled images.
    """
    if name.startswith(FOLDER_PREFIX):
        listing = _list(_folder(name))
        shape = _common_shape(tuple(listing.paths), listing_key(listing.paths))
        return own_spec(name, image_shape=shape, class_names=listing.class_names)
    path = Path(name).expanduser()
    return _npz_spec(name, listing_key([path]) if path.is_file() else "")


def read(
    dataset: DatasetSpec, *, data_dir: Path, strict: bool = False, report: Report | None = None
) -> tuple[Arrays, Arrays]:
    """Reads the user's own data as (train, test); without a test split of its own, a fixed fifth is tested.

    Args:
      dataset: what `spec` returned.
      data_dir: where decoded images are cached.
      strict: an unreadable image is an error instead of being skipped.
      report: is told how many images were skipped or resized.
    """
    if not dataset.name.startswith(FOLDER_PREFIX):
        return _read_npz(Path(dataset.name).expanduser())
    listing = _list(_folder(dataset.name))
    key = listing_key(listing.paths, dataset.image_shape, strict)
    arrays = cached(data_dir / CACHE_FOLDER / f"folder-{key}.npz", lambda: _decode(listing, dataset, strict))
    if report is not None and (message := str(arrays["skipped"])):
        report(message)
    data = Arrays(images=arrays["images"], labels=arrays["labels"])
    if listing.has_test:
        return data.take(np.flatnonzero(~arrays["test"])), data.take(np.flatnonzero(arrays["test"]))
    return _split(data)


def _folder(name: str) -> Path:
    return Path(name.removeprefix(FOLDER_PREFIX)).expanduser()


def _list(folder: Path) -> _Listing:
    parts = [folder / "train", folder / "test"]
    has_test = all(part.is_dir() for part in parts)
    paths: list[Path] = []
    classes: list[str] = []
    test: list[bool] = []
    for root in parts if has_test else [folder]:
        found = image_folder.find_images(root)
        loose = next((path for path in found if path.parent == root), None)
        if loose is not None:
            raise DataError(f"{loose}: not in a class sub-folder; expected {root}/CLASS/IMAGE")
        paths += found
        classes += [path.relative_to(root).parts[0] for path in found]
        test += [root.name == "test" and has_test] * len(found)
    is_test = np.array(test)
    names = sorted({name for name, in_test in zip(classes, test, strict=True) if not in_test})
    unseen = sorted(set(classes) - set(names))
    if unseen:
        raise DataError(f"{parts[1]}: class {unseen[0]!r} has no images in {parts[0]}")
    if len(names) < 2:
        raise DataError(f"{folder}: only one class, {names[0]!r}; expected at least two sub-folders, one a class")
    labels = np.array([names.index(name) for name in classes], np.int32)
    return _Listing(paths, labels, is_test, tuple(names), has_test)


@functools.lru_cache(maxsize=4)  # A run asks for its spec many times; `key` changes when a file does.
def _common_shape(paths: tuple[Path, ...], key: str) -> tuple[int, int, int]:
    """The shape of the images if they all have one and it is small, else 32x32; grey only if all are."""
    from PIL import Image

    sizes, grey = set(), True
    for path in paths:
        try:
            with Image.open(path) as image:
                sizes.add(image.size)
                grey &= image.mode == "L" or image.mode.startswith(("1", "I"))
        except Exception:  # Unreadable: skipped, or an error, when the images are read.
            continue
    if not sizes:
        raise DataError(f"{paths[0].parent.parent}: none of {len(paths):,} images is readable")
    width, height = sizes.pop()
    height, width = _RESIZED if sizes or max(width, height) > _MAX_NATIVE_SIZE else (height, width)
    return height, width, 1 if grey else 3


def _decode(listing: _Listing, dataset: DatasetSpec, strict: bool) -> dict[str, np.ndarray]:
    height, width, channels = dataset.image_shape
    messages: list[str] = []

    def decode(_: int, path: Path) -> np.ndarray:
        image = image_folder.open_image(path).convert("L" if channels == 1 else "RGB")
        return image_folder.to_array(image, (height, width))

    images, rows = image_folder.read_images(listing.paths, decode, strict=strict, report=messages.append)
    return {
        "images": np.stack(images),
        "labels": listing.labels[rows],
        "test": listing.test[rows],
        "skipped": np.array("; ".join(messages)),
    }


def _split(data: Arrays) -> tuple[Arrays, Arrays]:
    train_rows, test_rows = stratified_split(data.labels, test_size=round(_TEST_SHARE * len(data)))
    return data.take(train_rows), data.take(test_rows)


@functools.lru_cache(maxsize=4)
def _npz_spec(name: str, key: str) -> DatasetSpec:
    train, test = _read_npz(Path(name).expanduser())
    num_classes = int(max(train.labels.max(), test.labels.max())) + 1
    return own_spec(name, image_shape=train.images.shape[1:], class_names=tuple(map(str, range(num_classes))))


def _read_npz(path: Path) -> tuple[Arrays, Arrays]:
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected a .npz with arrays 'images' and 'labels'")
    try:
        with np.load(path, allow_pickle=False) as file:
            content = {name: file[name] for name in file.files}
    except Exception as error:  # zipfile, zlib and NumPy raise all kinds for damaged files.
        raise DataError(f"{path}: not a readable .npz file ({reason(error)})") from error
    for images, labels, test_images, test_labels in _KEYS:
        if images in content and labels in content:
            train = _check_pair(content, images, labels, path)
            if len(np.unique(train.labels)) < 2:
                raise DataError(f"{path}: only one class, {train.labels[0]}; expected at least two")
            if test_images not in content:
                return _split(train)
            if test_labels not in content:
                raise DataError(f"{path}: has '{test_images}' but no '{test_labels}'")
            test = _check_pair(content, test_images, test_labels, path)
            if test.images.shape[1:] != train.images.shape[1:]:
                raise DataError(f"{path}: '{test_images}' and '{images}' differ in shape")
            return train, test
    raise DataError(f"{path}: has {sorted(content)}; expected 'images' and 'labels'")


def _check_pair(content: Mapping[str, np.ndarray], images_key: str, labels_key: str, path: Path) -> Arrays:
    images = content[images_key]
    labels = content[labels_key]
    found = f"{images.dtype} {list(images.shape)}"
    if images.ndim == 3:
        images = images[..., None]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] not in (1, 3):
        raise DataError(f"{path}: '{images_key}' is {found}; expected uint8 [n, h, w] or [n, h, w, 1 or 3]")
    if labels.dtype.kind not in "iu" or labels.size != len(labels):
        raise DataError(f"{path}: '{labels_key}' is {labels.dtype} {list(labels.shape)}; expected integers [n]")
    if len(images) != len(labels) or len(images) < 10:
        raise DataError(f"{path}: {len(images)} images and {len(labels)} labels; expected as many of each, at least 10")
    labels = labels.reshape(-1)
    if labels.min() < 0 or labels.max() >= 10_000:
        raise DataError(f"{path}: labels from {labels.min()} to {labels.max()}; expected 0 to K - 1")
    return Arrays(images=images, labels=labels.astype(np.int32))
