"""Downloads published files with TFDS's manager: checksums, a cache of complete files, progress bars."""

import errno
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from preload_jax.data.preparing.tfds_writer import progress_bars
from preload_jax.data.published_set import PublishedSet
from preload_jax.data.readers import files
from preload_jax.errors import DataError, reason

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)


def download(item: PublishedSet, *, data_dir: Path, scratch: Path, show_progress: bool = False) -> files.Found:
    """Downloads a set's files with TFDS's manager.

    The manager checks sizes and checksums, and keeps complete files in `data_dir`/downloads, so that a download that
    was interrupted goes on with the files that are missing.  One file after the other: after an error nothing goes on
    in the background, where a second attempt would take it for leftovers.

    Raises:
      DataError: if the server does not answer, or sends something else than expected.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import checksums

    known = {
        file.url: checksums.UrlInfo(size=file.size, checksum=file.sha256, filename=file.name)
        for file in item.remote
        if file.sha256
    }
    if not any((data_dir / "downloads" / item.name).glob("**/*.INFO*")):
        _require_server(item)
    manager: Any = tfds.download.DownloadManager(
        download_dir=data_dir / "downloads", url_infos=known, dataset_name=item.name
    )
    try:
        with progress_bars(show_progress):
            paths = {file.name: Path(manager.download(file.url)) for file in item.remote}
    except Exception as error:  # requests, urllib3 and TFDS each have their own.
        if getattr(error, "errno", None) in _DISK_ERRORS:
            raise
        raise _download_error(item, reason(error)) from error
    layout = item.layouts[0]
    if layout.archives:
        return layout, files.unpack(paths[item.remote[0].name], item, layout, scratch)
    by_name = {name.removesuffix(".gz"): path for name, path in paths.items()}
    return layout, {split: [by_name[name] for name in names] for split, names in layout.files.items()}


def _require_server(item: PublishedSet) -> None:
    """Raises DataError at once where there is no network; TFDS's manager would try for three minutes."""
    if getproxies():
        return  # The proxy may reach what this machine cannot.
    url = urlsplit(item.remote[0].url)
    try:
        socket.create_connection((url.hostname or "", url.port or (443 if url.scheme == "https" else 80)), 10).close()
    except OSError as error:
        raise _download_error(item, f"cannot reach {url.netloc}: {reason(error)}") from error


def _download_error(item: PublishedSet, why: str) -> DataError:
    return DataError(
        f"{item.name}: download failed ({why}); get {files.expected_files(item)} and name their folder with --source"
    )
