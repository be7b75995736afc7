"""Finds a published set's files in a folder of the user's, or inside an archive there."""

import errno
import gzip
import os
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from preload_jax.data.published_set import Layout, PublishedSet
from preload_jax.data.readers.bounds import AtMost, copy, too_large
from preload_jax.data.readers.image_files import SUFFIXES
from preload_jax.data.readers.image_folder import find_images
from preload_jax.errors import DataError, reason

Found = tuple[Layout, dict[str, list[Path]]]
_OTHER_FILES = 2**26  # bytes of what else is in an archive, such as a readme
# The disk's fault, not the archive's.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO)


class FilesNotFoundError(DataError):
    """A folder has none of a set's files."""


def find(item: PublishedSet, source: Path, *, scratch: Path, only_named: bool = False) -> Found:
    """Finds a set's files in a folder.

    Args:
      item: the set.
      source: a folder with the set's files or archive, or with a sub-folder (one of `item.folders`) that has them.
      scratch: an empty folder to unpack an archive into.
      only_named: takes files whose names other sets have, too (MNIST, F-MNIST and K-MNIST all do), only from a folder
        with one of the set's own names.

    Returns:
      The layout the files are in, and per split their paths. A set may have its test split only.

    Raises:
      FilesNotFoundError: if there is nothing of the set.
      DataError: if there is no such folder, or one of the set's files is missing.
    """
    if not os.path.isdir(source):
        raise DataError(f"{source}: no such folder; expected the folder with the files of {item.name}")
    folders = [source / name for name in item.folders if (source / name).is_dir()] + [source]
    for folder in folders:
        for layout in item.layouts:
            named = folder is not source or source.name in item.folders
            if only_named and layout.common_names and not named:
                continue
            if found := _in_folder(item, layout, folder):
                return layout, found
    for folder in folders:
        for layout in item.layouts:
            archive = next((folder / name for name in layout.archives if (folder / name).is_file()), None)
            if archive is not None:
                return layout, unpack(archive, item, layout, scratch)
    raise FilesNotFoundError(f"{source}: has no files of {item.name}; expected {expected_files(item)}")


def expected_files(item: PublishedSet) -> str:
    """In words, the files that a set can be prepared from."""
    names = [name for files in item.layouts[0].files.values() for name in files]
    shown = ", ".join(names if len(names) <= 6 else [*names[:3], "…", names[-1]])
    others = [archive for layout in item.layouts for archive in layout.archives]
    if item.name == "lsun_classroom":
        others.append("a folder of images")
    return shown + (f" (or {' or '.join(others)})" if others else " (each may end in .gz)")


def _in_folder(item: PublishedSet, layout: Layout, folder: Path, *, where: Path | None = None) -> dict[str, list[Path]]:
    """Per split the paths of a layout's files; empty if none of them is there. Errors speak of `where`."""
    where = where or folder
    if layout.files.get("test") == ("*",):
        has_images = any(path.suffix.lower() in SUFFIXES for path in folder.iterdir())
        return {"test": find_images(folder)} if has_images else {}
    found = {}
    for split, names in layout.files.items():
        paths = {name: _plain_or_gz(folder, name) for name in names}
        present = [path for path in paths.values() if path is not None]
        if present and len(present) < len(names):
            missing = next(name for name, path in paths.items() if path is None)
            raise DataError(f"{where}: {missing} of {item.name} is missing")
        if present:
            found[split] = present
    if found and "test" in layout.files and "test" not in found:
        raise DataError(f"{where}: {layout.files['test'][0]} of {item.name} is missing")
    return found


def _plain_or_gz(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def unpack(archive: Path, item: PublishedSet, layout: Layout, scratch: Path) -> dict[str, list[Path]]:
    """Unpacks the files of a layout from a .zip or .tar archive, wherever they are in it, into `scratch`."""
    wanted = {name for names in layout.files.values() for name in names}
    limit = item.file_limit
    try:
        for name, size, file in _members(archive, len(wanted) * limit + _OTHER_FILES):
            plain = name.removesuffix(".gz")
            if plain not in wanted:
                continue
            if size > limit:
                raise too_large(f"{archive}: {name}", limit)
            with (scratch / plain).open("xb") as target:
                copy(file, target, limit, f"{archive}: {name}")
    except DataError:
        raise
    except FileExistsError:
        raise DataError(f"{archive}: has {plain} twice") from None
    except Exception as error:  # zipfile, tarfile, gzip and zlib raise all kinds for damaged files.
        if getattr(error, "errno", None) in _DISK_ERRORS:
            raise
        raise DataError(
            f"{archive}: damaged or truncated archive ({reason(error)}); copy or download it again"
        ) from error
    found = _in_folder(item, layout, scratch, where=archive)
    if not found:
        raise DataError(f"{archive}: has no files of {item.name}; expected {expected_files(item)}")
    return found


def _members(archive: Path, limit: int) -> Iterator[tuple[str, int, Any]]:
    """The (name without folders, declared size, content) of each file in an archive.

    Of a tar archive at most `limit` bytes are unpacked; of a .zip only what is read.
    """
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                if not entry.is_dir():
                    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                        raise zipfile.BadZipFile(f"{entry.filename} is packed in an unusual way")
                    with packed.open(entry) as file:
                        yield Path(entry.filename).name, entry.file_size, file
        return
    # As a stream: no header can make the reader jump, or read more than there is.
    with _unzipped(archive) as plain, _tar_stream(AtMost(plain, limit, archive)) as packed_tar:
        for member in packed_tar:
            if member.isfile() and (content := packed_tar.extractfile(member)) is not None:
                yield Path(member.name).name, member.size, content


def _tar_stream(file: AtMost) -> tarfile.TarFile:
    return tarfile.open(fileobj=file, mode="r|")  # type: ignore[call-overload]


def _unzipped(archive: Path) -> Any:
    with archive.open("rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    return gzip.open(archive) if is_gzip else archive.open("rb")
