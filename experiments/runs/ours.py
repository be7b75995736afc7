"""What a run and the commands about it write into the run's folder, told from what a user keeps there."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from preload_jax.data.shift import SHIFTS
from preload_jax.errors import UserError
from preload_jax.formats.strict_json import parse

# The configuration last: while it is there, it says what the rest is.
FILES = (
    "results.json", "certificate.json", "detectors.json", "rule.json", "metrics.jsonl", "scores.npz", "ddu.npz",
    *(f"shift_{name}.json{lines}" for name in SHIFTS for lines in ("", "l")),
    *(f"figures/{name}.png" for name in ("score_histograms", "certificate", "detectors_far_away")),
    "config.json",
)  # fmt: skip
_OF_CHECKPOINTS = ("checkpoints", "damaged_checkpoints")
FOLDERS = (*_OF_CHECKPOINTS, "figures", "tensorboard")
# What a checkpoint has, by any of which it is known: one of them may be lost.
_OF_A_CHECKPOINT = {"state", "record", "_CHECKPOINT_METADATA"}
_HALF_A_CHECKPOINT = re.compile(r"\d+\.orbax-checkpoint-tmp.*")
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
    taken += [f"checkpoints/{path.name}" for path in _numbered(folder / "checkpoints") if not _is_checkpoint(path)]
    if not taken and not _is_run(folder):
        taken = [name for name in FILES if (folder / name).exists()]
    if taken:
        raise UserError(
            f"{folder} holds {', '.join(taken)}, which no run wrote and a run would replace;"
            " move it away, or give another --run-dir"
        )


def remove(folder: Path) -> None:
    """Removes what runs wrote from a folder that `require_room` passed, and nothing else; links to folders stay."""
    for name in FILES[:-1]:
        (folder / name).unlink(missing_ok=True)
    remove_events(folder / "tensorboard")
    for name in _OF_CHECKPOINTS:
        for path in _entries(folder / name):
            if _is_checkpoint(path) or _HALF_A_CHECKPOINT.fullmatch(path.name):
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
    checkpoints = (path for name in _OF_CHECKPOINTS for path in _numbered(folder / name))
    return any(_tells(folder / name) for name in ("config.json", "results.json")) or any(
        _is_checkpoint(path) and _entries(path) for path in checkpoints
    )


def _tells(path: Path) -> bool:
    try:
        value = parse(path.read_bytes()) if path.is_file() else None
    except ValueError:
        return False
    return isinstance(value, dict) and value.keys() >= _NEEDED


def _numbered(folder: Path) -> Iterator[Path]:
    return (path for path in _entries(folder) if path.name.isdecimal())


def _is_checkpoint(path: Path) -> bool:
    """Whether a run wrote it, whole or damaged."""
    if not path.name.isdecimal() or path.is_symlink() or not path.is_dir():
        return False
    names = {each.name for each in path.iterdir()}
    return not names or bool(names & _OF_A_CHECKPOINT)


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
