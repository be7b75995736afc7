"""Which folders are checkpoints, and where they can be kept; told without JAX, and without orbax, which writes them."""

import os
import re
from pathlib import Path

from preload_jax.errors import UserError

# Beside the folder of the checkpoints.
DAMAGED = "damaged_checkpoints"
# A position; among those set aside, also the second of one position, and so on.
_NAME = re.compile(r"\d+(-\d+)?", re.ASCII)
_HALF_WRITTEN = re.compile(r"\d+\.orbax-checkpoint-tmp.*", re.ASCII)
# What a checkpoint has, by any of which it is known: some may be lost, or not yet removed.
_PARTS = {"state", "record", "_CHECKPOINT_METADATA", "commit_success.txt"}
# Orbax looks for what it has written by a pattern of which the path is a part.
_OF_PATTERNS = re.compile(r"[\[*?\\]")
# Folders in a message.
_MOST_NAMED = 5


def is_checkpoint(path: Path) -> bool:
    """Whether it was written as one, be it whole, damaged, half written or half removed."""
    if path.is_symlink() or not path.is_dir():
        return False
    if _HALF_WRITTEN.fullmatch(path.name):
        return True
    names = {each.name for each in path.iterdir()}
    return _NAME.fullmatch(path.name) is not None and (not names or bool(names & _PARTS))


def others(folder: Path) -> list[Path]:
    """What has the name of a checkpoint in a folder, and is none."""
    there = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in there if _NAME.fullmatch(path.name) and not is_checkpoint(path)]


def require_own(directory: Path) -> None:
    """Raises a UserError for a folder in which checkpoints would take the place of what is the user's."""
    if taken := [path.name for path in others(directory)]:
        shown = ", ".join(taken[:_MOST_NAMED]) + (", …" if len(taken) > _MOST_NAMED else "")
        raise UserError(
            f"{directory} holds {shown}, which no training wrote; checkpoints have numbers for names, and older ones"
            " are removed: move it away, or give a folder of their own"
        )


def require_plain(directory: Path) -> None:
    """Raises a UserError for a path in which orbax cannot write checkpoints."""
    text = os.fsencode(directory).decode(errors="replace")
    found = _OF_PATTERNS.search(text)
    if found or "\ufffd" in text:
        what = f"{found[0]!r} is in its path" if found else "its path is no UTF-8"
        raise UserError(f"checkpoints cannot be written in {text}: {what}; choose another folder for the run")


def set_aside(path: Path) -> Path:
    """Where a damaged checkpoint is moved to: a name that is free, for what was set aside before stays."""
    folder = path.parent.parent / DAMAGED
    aside, number = folder / path.name, 1
    while os.path.lexists(aside):
        number += 1
        aside = folder / f"{path.name}-{number}"
    return aside
