"""Lists and prepares data sets: `python -m experiments.prepare_data [--dataset=NAME|all] [--source=DIR]`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import tyro

from experiments import cli

if TYPE_CHECKING:
    from experiments.cli.display import Display


@dataclass(frozen=True)
class Args:
    """Turns the files that a data set's publisher distributes into a TFDS data set, without TensorFlow.

    With no option it lists the data sets: what each is for, its size, and whether it is prepared.
    """

    dataset: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: list them)")] = None
    """The set to prepare, or all."""
    source: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: download)")] = None
    """Folder that has the publisher's files already, or (for all) sub-folders with them."""
    data_dir: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: TFDS's)")] = None
    """Where prepared sets are kept; TFDS's default is $TFDS_DATA_DIR, else ~/tensorflow_datasets."""
    force: bool = False
    """Prepares the set anew if it is there already."""
    quiet: cli.Quiet = False
    json: cli.Json = False


def main(args: Args) -> int:
    """Lists or prepares; returns the exit status."""
    from experiments.cli.display import Display
    from preload_jax.data.paths import data_root
    from preload_jax.errors import UserError

    root, display = data_root(args.data_dir), Display(quiet=args.quiet, json=args.json)
    if args.dataset is None:
        if args.source is not None:
            raise UserError("--source without --dataset; name the set to prepare, or --dataset=all")
        sets = [dict(zip(_COLUMNS, row, strict=True)) for row in (*_built_in_rows(), *_published_rows(root))]
        display.result({"data_dir": str(root), "sets": sets}, text=listing(root))
        return 0
    if args.dataset == "all":
        return _prepare_all(args, root, display)
    splits = _prepare(args.dataset, args, root, display, only_named=False)
    _tell({args.dataset: splits}, root, display)
    return 0


def _tell(prepared: dict[str, dict[str, int]], root: Path, display: "Display") -> None:
    """The result, and a run to try with the first set that has training images."""
    from preload_jax.data.specs import DATASETS

    lines = [f"{name}: {_sizes(splits)} images in {root}" for name, splits in prepared.items()]
    display.result({"data_dir": str(root), "prepared": prepared}, text="\n".join(lines))
    trainable = next((name for name, splits in prepared.items() if name in DATASETS and "train" in splits), None)
    if trainable is not None:
        run = ["python", "-m", "experiments.run", f"--dataset={trainable}", f"--data-dir={root}"]
        display.end({}, next={"train on it": [*run, "--outliers=smooth"]})


def _prepare(name: str, args: Args, root: Path, display: "Display", *, only_named: bool) -> dict[str, int]:
    from preload_jax.data.preparing.prepare import prepare

    return prepare(
        name,
        data_dir=root,
        source=args.source,
        only_named=only_named,
        force=args.force,
        show_progress=display.has_bars,
        report=display.warn,
    )


def _prepare_all(args: Args, root: Path, display: "Display") -> int:
    """Prepares every set it can, and says at the end which it could not."""
    from preload_jax.data.catalogue import PUBLISHED
    from preload_jax.data.readers.files import FilesNotFoundError
    from preload_jax.errors import DataError

    prepared: dict[str, dict[str, int]] = {}
    absent: list[str] = []
    failed: list[str] = []
    for i, name in enumerate(PUBLISHED, start=1):
        try:
            prepared[name] = _prepare(name, args, root, display, only_named=True)
            display.say(f"[{i}/{len(PUBLISHED)}] {name}: {_sizes(prepared[name])} images")
        except FilesNotFoundError:
            absent.append(name)
        except DataError as error:
            failed.append(name)
            display.warn(f"{name}: {error}")
    if prepared:
        _tell(prepared, root, display)
    if absent:
        display.say(f"not found in {args.source}: {', '.join(absent)}")
    if failed or not prepared:
        raise DataError(f"not prepared: {', '.join(failed or absent)}")
    return 0


_COLUMNS = ("set", "for", "images", "download", "state", "from")


def listing(root: Path) -> str:
    """A table of all data sets, one a line."""
    rows = [_COLUMNS, *_built_in_rows(), *_published_rows(root)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([f"Data directory: {root}", "", *lines])


def _built_in_rows() -> list[tuple[str, ...]]:
    ready = "-", "built in"
    return [
        ("digits", "in-domain", "1,297 train, 500 test", *ready, "scikit-learn"),
        ("photo", "auxiliary, OOD test", "crops of two photos", *ready, "scikit-learn"),
        ("smooth", "auxiliary, OOD test", "as many as in-domain", *ready, "made of the in-domain images"),
        ("uniform", "auxiliary, OOD test", "10,000 test", *ready, "made"),
        ("faraway", "OOD test", "10,000 test", *ready, "made"),
        ("faraway_rd", "OOD test", "10,000 test", *ready, "made"),
        ("rotation", "shift", "13 x test", *ready, "made of the in-domain test images"),
    ]


def _published_rows(root: Path) -> list[tuple[str, ...]]:
    from preload_jax.data.catalogue import DERIVED, PUBLISHED
    from preload_jax.data.preparing.prepared import is_prepared, prepared_splits

    rows: list[tuple[str, ...]] = []
    for item in PUBLISHED.values():
        splits = prepared_splits(item, data_dir=root)
        partly = "prepared" if splits.keys() >= item.sizes.keys() else f"{' and '.join(splits)} only"
        state = partly if splits else "missing"
        size = f"{item.download_size / 1e6:,.0f} MB"
        host = urlsplit(item.remote[0].url).netloc
        rows.append((item.name, item.purpose, _sizes(splits or item.sizes), size, state, host))
    for name, origin in DERIVED.items():
        state = "ready" if is_prepared(origin, data_dir=root) else f"needs {origin}"
        rows.append((name, "OOD test", "10,000 test", "-", state, f"made of the {origin} test images"))
    return rows


def _sizes(splits: dict[str, int]) -> str:
    return ", ".join(f"{size:,} {name}" for name, size in splits.items())
