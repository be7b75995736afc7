"""Writes TFDS data sets without TensorFlow.

TFDS's own builders need TensorFlow to unpack files and to encode images. A subclass of the stock builder that is
handed PNG bytes needs none, and what it writes is what `tfds.builder(name)` reads.
"""

import contextlib
import errno
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from preload_jax.data.published_set import PublishedSet
from preload_jax.data.readers.published import RawSplit
from preload_jax.data.specs import DATASETS


def write(
    item: PublishedSet, splits: dict[str, RawSplit], *, data_dir: Path, scratch: Path, show_progress: bool = False
) -> None:
    """Writes `splits` as the TFDS data set `item.tfds_name`, replacing one that is there.

    It is written in `scratch`, a folder on the same file system, and moved when it is complete.

    Raises:
      OSError: if the disk is full or cannot be written to.
    """
    import tensorflow_datasets as tfds

    name, _, config = item.tfds_name.partition("/")  # type: ignore[union-attr]
    builder = _builder_class(name, item, splits)(
        data_dir=scratch, config=config or None, file_format=tfds.core.FileFormat.ARRAY_RECORD
    )
    with progress_bars(show_progress):
        try:
            builder.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))
        except RuntimeError as error:  # array_record's only error.
            if "No space left" in str(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(data_dir)) from error
            raise
    written = Path(builder.data_dir)
    target = data_dir / written.relative_to(scratch)
    target.parent.mkdir(parents=True, exist_ok=True)
    if config:  # TFDS keeps the name of the default configuration here.
        shutil.copytree(scratch / name / ".config", data_dir / name / ".config", dirs_exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    written.rename(target)


def _builder_class(tfds_name: str, item: PublishedSet, splits: dict[str, RawSplit]) -> Any:
    """The stock builder, except that its examples come from `splits`."""
    import tensorflow_datasets as tfds

    stock: Any = tfds.builder_cls(tfds_name)
    with tfds.core.registered.skip_registration():

        class Prepared(stock):
            name = tfds_name
            pkg_dir_path = stock.pkg_dir_path

            def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
                if item.name in DATASETS and item.name.startswith("cifar"):
                    self.info.features["label"].names = list(DATASETS[item.name].class_names)
                return {
                    item.tfds_splits.get(split, split): _examples(self, split, content)
                    for split, content in splits.items()
                }

            def _log_download_bytes(self) -> None:
                """The stock one prints."""

            def _log_download_done(self) -> None:
                """The stock one prints."""

    return Prepared


def _examples(builder: Any, split: str, content: RawSplit) -> Iterator[tuple[int, dict[str, Any]]]:
    """(key, example) pairs; the keys are the stock builders', so that TFDS shuffles them into the same order."""
    features = builder.info.features
    for row, image in enumerate(content.images):
        example: dict[str, Any] = {"image": _png(image)}
        if "label" in features:
            example["label"] = int(content.labels[row])
        if "id" in features:
            example["id"] = f"{split}_{row:05d}"
        for column, values in content.extra.items():
            example[column] = int(values[row])
        yield row, example


def _png(image: np.ndarray) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(buffer, "PNG")
    return buffer.getvalue()


@contextlib.contextmanager
def progress_bars(show: bool) -> Iterator[None]:
    """Turns TFDS's progress bars on or off, and afterwards back to what they were."""
    from tensorflow_datasets.core.utils import tqdm_utils

    before = tqdm_utils._active
    tqdm_utils.display_progress_bar(show)
    try:
        yield
    finally:
        tqdm_utils.display_progress_bar(before)
