"""What results say of where they were made: the code's commit and the machine."""

import os
import platform
import subprocess
from pathlib import Path

import preload_jax

_PACKAGE = Path(preload_jax.__file__).parent


def commit(package: Path = _PACKAGE) -> str | None:
    """The commit that the code is of, with " modified" behind it where files of it differ; None where git knows none.

    An installed copy is of no commit, even if the folder that it is installed in belongs to some other repository.
    """
    try:
        # Fails unless git has this very file.
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        found = _git(package, "rev-parse", "HEAD").strip()
        changes = _git(package, "status", "--porcelain", "--untracked-files=no", "--", ".", ":/experiments")
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
