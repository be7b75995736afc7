"""Where prepared data sets and caches are."""

import os
from pathlib import Path


def default_data_dir() -> Path:
    """TFDS's own default: $TFDS_DATA_DIR, or ~/tensorflow_datasets."""
    return Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()


def data_root(data_dir: str | Path | None) -> Path:
    """`data_dir` as a path, or the default if it is None."""
    return default_data_dir() if data_dir is None else Path(data_dir).expanduser()
