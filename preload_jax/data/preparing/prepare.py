"""Stores published data sets in the data directory: TFDS data sets, made without TensorFlow, and NumPy files."""

import contextlib
import fcntl
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from preload_jax.data.cache import CACHE_FOLDER
from preload_jax.data.catalogue import PUBLISHED
from preload_jax.data.paths import data_root, expanded
from preload_jax.data.preparing import tfds_download, tfds_writer
from preload_jax.data.preparing.prepared import prepared_splits
from preload_jax.data.published_set import PublishedSet
from preload_jax.data.readers import array_sets, files, published
from preload_jax.data.readers.image_folder import Report
from preload_jax.data.specs import unknown
from preload_jax.errors import DataError

_SCRATCH = "incomplete.preload_jax_"


def prepare(
    dataset: str | PublishedSet,
    *,
    data_dir: str | Path | None = None,
    source: str | Path | None = None,
    only_named: bool = False,
    force: bool = False,
    check_sizes: bool = True,
    show_progress: bool = False,
    report: Report | None = None,
) -> dict[str, int]:
    """Prepares one published data set, completely or not at all.

    Args:
      dataset: a key of `PUBLISHED`, or a set of the caller's own (another server, other checksums).
      data_dir: where to write; None for TFDS's own default.
      source: a folder that has the publisher's files; None to download them, checksums checked, with TFDS's manager.
      only_named: looks for the files only in a sub-folder of `source` that has the set's name.
      force: writes the set even if it is already prepared.
      check_sizes: False takes files that hold another number of images than the published ones do.
      show_progress: shows TFDS's progress bars on standard error.
      report: is told, in one line each, what the caller should know about the result.

    Returns:
      The number of images in each split.

    Raises:
      DataError: for an unknown set and for files that are missing, damaged or not what they should be.
      OSError: for a disk that is full or cannot be written to.
    """
    if isinstance(dataset, str):
        if dataset not in PUBLISHED:
            raise unknown("dataset", dataset, PUBLISHED)
        dataset = PUBLISHED[dataset]
    data_dir = data_root(data_dir)
    if source is not None and not expanded(source).is_dir():
        raise DataError(f"{source}: no such folder; expected the folder with the files of {dataset.name}")
    if str(data_dir).startswith("~"):
        raise DataError(f"{data_dir}: there is no such home folder (is HOME set?); give data_dir or set TFDS_DATA_DIR")
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(f"{data_dir}: cannot be the data directory: {error.filename} is a file") from error
    with _one_at_a_time(data_dir):
        splits = prepared_splits(dataset, data_dir=data_dir)
        if splits.keys() >= dataset.sizes.keys() and not force:
            return splits
        remove_leftovers(dataset, data_dir=data_dir)
        _require_space(dataset, data_dir, download=source is None)
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=data_dir) as scratch:
            if source is None:
                found = tfds_download.download(
                    dataset, data_dir=data_dir, scratch=Path(scratch), show_progress=show_progress
                )
            else:
                found = files.find(dataset, expanded(source), scratch=Path(scratch), only_named=only_named)
            splits = _store(
                dataset, found, data_dir, Path(scratch), check_sizes=check_sizes, show_progress=show_progress
            )
    if (missing := dataset.sizes.keys() - splits.keys()) and report is not None:
        report(f"{dataset.name}: no {' or '.join(missing)} files found; prepared as an OOD test set only")
    return splits


def remove_leftovers(item: PublishedSet, *, data_dir: Path) -> None:
    """Removes what a killed `prepare` left: nothing of it reads as a data set, but it takes up space."""
    for pattern in (f"{_SCRATCH}*", f"downloads/{item.name}/**/*.tmp.*"):
        for folder in data_dir.glob(pattern):
            shutil.rmtree(folder, ignore_errors=True)
    for file in (data_dir / CACHE_FOLDER).glob("incomplete.*"):
        file.unlink(missing_ok=True)


def _store(
    item: PublishedSet, found: files.Found, data_dir: Path, scratch: Path, *, check_sizes: bool, show_progress: bool
) -> dict[str, int]:
    layout, paths = found
    if item.tfds_name is None:
        return array_sets.store(item, layout, paths, data_dir=data_dir, scratch=scratch, check_sizes=check_sizes)
    splits = {name: published.READERS[layout.reader](split_paths, item) for name, split_paths in paths.items()}
    for name, split in splits.items():
        expected = item.sizes[name] if check_sizes else None
        published.check(split, item=item, name=name, expected_size=expected, others=PUBLISHED.values())
    tfds_writer.write(item, splits, data_dir=data_dir, scratch=scratch, show_progress=show_progress)
    return {name: len(split.images) for name, split in splits.items()}


def _require_space(item: PublishedSet, data_dir: Path, *, download: bool) -> None:
    """Raises DataError if the disk is too small, rather than let it fill up half-way."""
    needed = sum(item.sizes.values()) * math.prod(item.image_shape) + (item.download_size if download else 0)
    free = shutil.disk_usage(data_dir).free
    if free < needed:
        raise DataError(
            f"no space left for {item.name} in {data_dir}: {needed / 1e6:,.0f} MB needed, {free / 1e6:,.0f} MB free"
        )


@contextlib.contextmanager
def _one_at_a_time(data_dir: Path) -> Iterator[None]:
    """Waits for other processes that prepare sets in `data_dir`, so that none removes what another is writing."""
    folder = os.open(data_dir, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)  # Releases the lock.
