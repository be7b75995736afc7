"""What a run and the commands about it write into the run's folder, told from what a user keeps there."""

import errno
import os
import shutil
from pathlib import Path

from preload_jax.data.shift import SHIFTS
from preload_jax.errors import UserError
from preload_jax.formats import checkpoint_folders
from preload_jax.formats.strict_json import parse

# The configuration last: while it is there, it says what the rest is.
FILES = (
    "results.json", "certificate.json", "detectors.json", "rule.json", "metrics.jsonl", "scores.npz", "ddu.npz",
    *(f"shift_{name}.json{lines}" for name in SHIFTS for lines in ("", "l")),
    *(f"figures/{name}.png" for name in ("score_histograms", "certificate", "detectors_far_away")),
    "config.json",
)  # fmt: skip
_OF_CHECKPOINTS = ("checkpoints", checkpoint_folders.DAMAGED)
FOLDERS = (*_OF_CHECKPOINTS, "figures", "tensorboard")
_EVENTS = "events.out.tfevents.*"
# By which a record is a run's.
_NEEDED = {"dataset", "method", "seed"}


def require_room(folder: Path) -> None:
    """Refuses a folder in which a run would write over, or remove, or trip over, what is the user's.

    Raises:
        UserError: naming it.
    """
    taken = [name for name in FILES if (folder / name).is_dir()]
    taken += [name for name in FOLDERS if (folder / name).exists() and not (folder / name).is_dir()]
    taken += [f"{name}/{path.name}" for name in _OF_CHECKPOINTS for path in checkpoint_folders.others(folder / name)]
    if not taken and not _is_run(folder):
        taken = [name for name in FILES if (folder / name).exists()]
    if taken:
        raise UserError(
            f"{folder} holds {', '.join(taken)}, which no run wrote and a run would replace;"
            " move it away, or give another --run-dir"
        )


def remove(folder: Path) -> None:
    """Removes what runs wrote from a folder that `require_room` passed, and nothing else; links to folders stay.

    Raises:
        PermissionError: where one of them cannot be removed; then everything stays.
    """
    for place in (folder, *(folder / name for name in FOLDERS)):
        # Looked at before the first is gone.
        if place.is_dir() and _entries(place) and not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
    for name in FILES[:-1]:
        (folder / name).unlink(missing_ok=True)
    remove_events(folder / "tensorboard")
    for name in _OF_CHECKPOINTS:
        for path in _entries(folder / name):
            if checkpoint_folders.is_checkpoint(path):
                shutil.rmtree(path)
    for name in FOLDERS:
        if (folder / name).is_dir() and not (folder / name).is_symlink() and not _entries(folder / name):
            (folder / name).rmdir()
    (folder / FILES[-1]).unlink(missing_ok=True)


def remove_events(folder: Path) -> None:
    """Removes TensorBoard's files of events from a folder."""
    for path in folder.glob(_EVENTS):
        path.unlink()


def _is_run(folder: Path) -> bool:
    """Whether anything in it tells that it is the folder of a run: what is damaged tells nothing."""
    checkpoints = (path for name in _OF_CHECKPOINTS for path in _entries(folder / name))
    return any(_tells(folder / name) for name in ("config.json", "results.json")) or any(
        checkpoint_folders.is_checkpoint(path) and _entries(path) for path in checkpoints
    )


def _tells(path: Path) -> bool:
    try:
        value = parse(path.read_bytes()) if path.is_file() else None
    except ValueError:
        return False
    return isinstance(value, dict) and value.keys() >= _NEEDED


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
