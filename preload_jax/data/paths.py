"""Where prepared data sets and caches are."""

import os
from pathlib import Path


def default_data_dir() -> Path:
    """TFDS's own default: $TFDS_DATA_DIR, or ~/tensorflow_datasets."""
    return expanded(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")


def data_root(data_dir: str | Path | None) -> Path:
    """`data_dir` as a path, or the default if it is None."""
    return default_data_dir() if data_dir is None else expanded(data_dir)


def expanded(path: str | Path) -> Path:
    """The path with a user's own folder for `~`, which stays where there is none: HOME is not set, no such user."""
    return Path(os.path.expanduser(path))
