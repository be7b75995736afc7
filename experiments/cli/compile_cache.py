"""Compiled programs, kept on disk between runs: in a folder that is this user's alone, and of bounded size."""

import contextlib
import os
import stat
import sys
from pathlib import Path

import jax

from experiments.cli.terminal import for_errors

# Bytes that are kept; the programs used last stay.
_LIMIT = 2 * 1024**3


def use() -> None:
    """Keeps compiled programs in JAX_COMPILATION_CACHE_DIR or the user's cache folder.

    Without a folder that is this user's alone nothing is kept, since what is read from there is executed.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = folder()
        if cache is None:
            return
        try:
            _own(cache)
            _bound(cache)
        except OSError as error:
            print(for_errors(f"warning: compiled programs are not kept: {error}"), file=sys.stderr)
            return
        jax.config.update("jax_compilation_cache_dir", str(cache))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        # JAX leaves out what compiled within a second: most of a short run's programs, and of its time.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def folder() -> Path | None:
    """Where they are kept; None for a user without a folder.  As the XDG standard says, empty means unset."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # The standard has relative paths ignored; "~" stays where there is no such folder.
    return Path(caches) / "preload_jax" / "compiled" if os.path.isabs(caches) else None


def _own(cache: Path) -> None:
    """Makes the folder, or checks it: this user's, and closed to all others.

    Raises:
        PermissionError: when it is another user's.
    """
    cache.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.suppress(FileExistsError):
        cache.mkdir(mode=0o700)
    for path in (cache.parent, cache):
        found = path.stat()
        if found.st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to another user")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            # Others could write here until now.
            for file in filter(Path.is_file, path.iterdir()):
                file.unlink()
        path.chmod(0o700)


def _bound(cache: Path) -> None:
    """Removes what was not used for longest, beyond the limit; another process may do the same."""
    files = []
    for file in cache.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found = file.stat()
            files.append((max(found.st_atime, found.st_mtime), found.st_size, file))
    total = sum(size for _, size, _ in files)
    for _, size, file in sorted(files, key=lambda each: each[0]):
        if total <= _LIMIT:
            break
        file.unlink(missing_ok=True)
        total -= size
