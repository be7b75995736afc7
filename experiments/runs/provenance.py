"""What results say of where they were made: the code's commit, the machine, and the command that makes them again."""

import os
import platform
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import preload_jax
from experiments.runs import folder

_PACKAGE = Path(preload_jax.__file__).parent


def commit(package: Path = _PACKAGE) -> str | None:
    """The commit that the code is of, and " modified" where files differ or are new; None where git knows none.

    An installed copy is of no commit, even if the folder that it is installed in belongs to some other repository.
    """
    try:
        # Fails unless git has this very file.
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        found = _git(package, "rev-parse", "HEAD").strip()
        changes = _git(package, "status", "--porcelain", "--", ".", ":/experiments")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{found} modified" if changes else found


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def machine() -> str:
    """The accelerator, or the processor and its cores."""
    import jax

    device = jax.devices()[0]
    return f"{os.cpu_count()} CPU cores, {platform.machine()}" if device.platform == "cpu" else device.device_kind


def command(values: Mapping[str, Any]) -> str:
    """The command that makes a run's or an ensemble's results; folders of images by the last part of their names."""
    if "ensemble" in values:
        return shlex.join(["python", "-m", "experiments.evaluate", f"--ensemble={','.join(values['ensemble'])}"])
    options = {f"--{name}": values[name] for name in ("dataset", "method", "seed")}
    if values.get("recipe") not in (None, "paper"):
        options["--recipe"] = values["recipe"]
    for departure in values["not_as_recipe"]:  # "name value (recipe's value)"
        name, _, rest = departure.partition(" ")
        options[folder.option(name)] = _short(rest.rpartition(" (")[0])
    return shlex.join(["python", "-m", "experiments.run", *(f"{name}={value}" for name, value in options.items())])


def _short(value: str) -> str:
    prefix, folder_of_images, path = value.partition("folder:")
    return f"folder:{Path(path).name}" if folder_of_images and not prefix else value
