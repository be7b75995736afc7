"""What is already prepared in a data directory. Looks at the files only, so it needs no TFDS and is fast."""

import json
from pathlib import Path

from preload_jax.data.catalogue import PUBLISHED
from preload_jax.data.published_set import PublishedSet
from preload_jax.errors import NotPreparedError, require_plain_file

# What a set that TFDS has no builder for is stored under, where TFDS would have a version.
ARRAYS_FOLDER = "arrays"


def prepared_dir(item: PublishedSet, *, data_dir: Path) -> Path | None:
    """The folder of a prepared set, of its newest version; None if it is not prepared."""
    # Sets are written elsewhere, and moved here when they are complete.
    if item.tfds_name is None:
        folder = data_dir / item.name / ARRAYS_FOLDER
        return folder if folder.is_dir() else None
    found = sorted((data_dir / item.tfds_name).glob("[0-9]*/dataset_info.json"))
    return found[-1].parent if found else None


def prepared_splits(item: PublishedSet, *, data_dir: Path) -> dict[str, int]:
    """Number of images in each prepared split of a set; empty if it is not prepared."""
    folder = prepared_dir(item, data_dir=data_dir)
    if folder is None:
        return {}
    for name in ("splits.json", "dataset_info.json"):
        require_plain_file(folder / name)
    try:
        if item.tfds_name is None:
            return json.loads((folder / "splits.json").read_text())
        ours = {theirs: ours for ours, theirs in item.tfds_splits.items()}
        splits = json.loads((folder / "dataset_info.json").read_text())["splits"]
        return {ours.get(s["name"], s["name"]): sum(int(n) for n in s["shardLengths"]) for s in splits}
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return {}  # A damaged description: as good as not prepared.


def is_prepared(name: str, *, data_dir: Path, split: str = "test") -> bool:
    """Whether a split of the published set `name` can be read from `data_dir`."""
    return name in PUBLISHED and split in prepared_splits(PUBLISHED[name], data_dir=data_dir)


def require(item: PublishedSet, split: str, *, data_dir: Path) -> Path:
    """The folder of a prepared set that has `split`; NotPreparedError with the command to run if there is none."""
    folder = prepared_dir(item, data_dir=data_dir)
    splits = prepared_splits(item, data_dir=data_dir)
    if folder is None or split not in splits:
        what = f"the {split} split of {item.name}" if splits else item.name
        raise NotPreparedError(
            f"{what} is not prepared in {data_dir}; run `python -m experiments.prepare_data --dataset={item.name}` "
            "(add --source=DIR if you already have the files)"
        )
    return folder
