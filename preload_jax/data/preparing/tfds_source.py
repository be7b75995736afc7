"""Reads prepared TFDS data sets into memory, without TensorFlow.

The first read decodes the PNGs; the arrays are then kept beside the data set, under a key made from the content of its
files, and later reads just load them.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from preload_jax.data.cache import CACHE_FOLDER, cached, content_key
from preload_jax.data.catalogue import PUBLISHED
from preload_jax.data.preparing import prepared
from preload_jax.data.published_set import PublishedSet
from preload_jax.data.readers.image_files import to_array
from preload_jax.data.splits import Arrays
from preload_jax.errors import DataError, NotPreparedError, reason

_CUT_EMNIST = (88_800, 14_800)
_CHUNK = 1_000
# Not every name is one that a folder below the data directory can have.
_TFDS_NAME = re.compile(r"\w[\w.+-]{0,99}(/\w[\w.+-]{0,99})?")


def read(dataset: str | PublishedSet, split: str, *, data_dir: Path) -> Arrays:
    """Reads one split of a prepared published set.

    Args:
      dataset: a key of `PUBLISHED`, or a set of the caller's own.
      split: "train" or "test".
      data_dir: where the prepared data sets are.

    Returns:
      Images uint8 [n, h, w, c], upright and in the set's shape, and labels int32 [n], in the order in which TFDS
      stored them.

    Raises:
      NotPreparedError: if the set or the split is not there.
      DataError: if it is there but cannot be read.
    """
    item = PUBLISHED[dataset] if isinstance(dataset, str) else dataset
    folder = prepared.require(item, split, data_dir=data_dir)
    if item.name == "emnist" and prepared.prepared_splits(item, data_dir=data_dir)[split] in _CUT_EMNIST:
        raise DataError(f"{folder}: cut short by an older TFDS; run prepare_data --dataset=emnist --force")
    stored = item.tfds_splits.get(split, split)
    key = content_key(sorted(folder.glob(f"*-{stored}.*-of-*")))
    arrays = cached(
        data_dir / CACHE_FOLDER / f"{item.name}-{split}-{key}.npz", lambda: _decode(folder, stored, item.image_shape)
    )
    images = arrays["images"]
    return Arrays(images=images.transpose(0, 2, 1, 3) if item.transposed else images, labels=arrays["labels"])


def newest(name: str, *, data_dir: Path) -> Path | None:
    """The folder of the newest version of a TFDS data set that is prepared there; None where none is."""
    versions = sorted((data_dir / name).glob("[0-9]*/dataset_info.json")) if _TFDS_NAME.fullmatch(name) else []
    return versions[-1].parent if versions else None


def read_any(name: str, *, data_dir: Path, image_shape: tuple[int, int, int]) -> np.ndarray:
    """The training images of any prepared TFDS data set that has images, squashed to `image_shape` (uint8).

    Args:
      name: TFDS's name, with the configuration if there is one: "stl10", "imagenet_resized/32x32".
      data_dir: where the prepared data sets are.
      image_shape: (h, w, c) of the result.
    """
    import tensorflow_datasets as tfds

    folder = newest(name, data_dir=data_dir)
    if folder is None:
        raise NotPreparedError(f"{name} is not prepared in {data_dir}")
    try:
        splits = list(tfds.builder_from_directory(folder).info.splits)
    except Exception as error:
        raise DataError(f"{folder}: damaged ({reason(error)})") from error
    split = "train" if "train" in splits else splits[0]
    key = content_key(sorted(folder.glob(f"*-{split}.*-of-*")))
    size = "x".join(map(str, image_shape))
    path = data_dir / CACHE_FOLDER / f"{name.replace('/', '-')}-{split}-{size}-{key}.npz"
    return cached(path, lambda: _decode(folder, split, image_shape))["images"]


def _decode(folder: Path, split: str, image_shape: tuple[int, int, int]) -> dict[str, np.ndarray]:
    try:
        records = list(_records(folder, split))
        images = np.stack([_decode_image(record["image"], image_shape) for record in records])
        labels = np.array([int(record.get("label", 0)) for record in records], np.int32)
    except NotImplementedError as error:
        raise DataError(f"{folder}: not stored as array_record; prepare it again with --force") from error
    except MemoryError:
        raise
    except Exception as error:  # TFDS, array_record and Pillow raise all kinds for a damaged file.
        raise DataError(f"{folder}: damaged ({reason(error)}); prepare it again with --force") from error
    return {"images": images, "labels": labels}


def _records(folder: Path, split: str) -> Iterator[dict[str, Any]]:
    """The records of a split with their images still encoded: reading many at a time is ten times as fast."""
    import tensorflow_datasets as tfds

    decoders: Any = {"image": tfds.decode.SkipDecoding()}
    source: Any = tfds.builder_from_directory(folder).as_data_source(split, decoders=decoders)
    for start in range(0, len(source), _CHUNK):
        yield from source.__getitems__(range(start, min(start + _CHUNK, len(source))))


def _decode_image(content: bytes, image_shape: tuple[int, int, int]) -> np.ndarray:
    from PIL import Image

    return to_array(Image.open(io.BytesIO(content)).convert("L" if image_shape[2] == 1 else "RGB"), image_shape[:2])
