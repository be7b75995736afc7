"""Downloading with TFDS's manager, against a server on this machine that is asked for a few files and then stops."""

import hashlib
import http.server
import tarfile
import threading
from dataclasses import replace

import numpy as np
import pytest

from preload_jax.data.catalogue import PUBLISHED
from preload_jax.data.preparing import tfds_source
from preload_jax.data.preparing.prepare import prepare
from preload_jax.data.preparing.prepared import prepared_splits
from preload_jax.data.published_set import RemoteFile
from preload_jax.errors import DataError

HOST = "127.0.0.1"


class _Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path.rpartition("/")[2])
        if self.server.cut_after is not None:
            content = (self.server.folder / self.path.lstrip("/")).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: self.server.cut_after])
            self.close_connection = True
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "published"
    folder.mkdir()
    handler = lambda *args: _Handler(*args, directory=str(folder))  # noqa: E731
    with http.server.ThreadingHTTPServer((HOST, 0), handler) as running:
        running.folder, running.asked, running.cut_after = folder, [], None
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield running
        running.shutdown()
        thread.join(10)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def remote(server, name):
    """The published set `name` as if it were published by `server`: its files' own sizes and checksums."""
    files = []
    for path in sorted(server.folder.iterdir()):
        content = path.read_bytes()
        url = f"http://{HOST}:{server.server_port}/{path.name}"
        files.append(RemoteFile(url, len(content), hashlib.sha256(content).hexdigest()))
    return replace(PUBLISHED[name], remote=tuple(files))


def test_download_check_and_prepare(make, server, data_dir):
    content = make.mnist(server.folder)
    item = replace(remote(server, "mnist"), sizes={"train": 20, "test": 10})
    assert prepare(item, data_dir=data_dir) == {"train": 20, "test": 10}
    ours = tfds_source.read(item, "test", data_dir=data_dir)
    assert sorted(i.tobytes() for i in ours.images) == sorted(i.tobytes() for i in content["test"][0])
    assert sorted(server.asked) == sorted(path.name for path in server.folder.iterdir())


def test_an_archive(make, server, data_dir, tmp_path):
    parts = make.cifar_binary(tmp_path / "content")
    with tarfile.open(server.folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "content", "cifar-10-batches-bin")
    assert prepare(remote(server, "cifar10"), data_dir=data_dir, check_sizes=False) == {"train": 20, "test": 4}
    ours = tfds_source.read("cifar10", "test", data_dir=data_dir)
    assert sorted(i.tobytes() for i in ours.images) == sorted(i.tobytes() for i in parts["test_batch"][0])


def test_an_array_without_a_known_checksum(make, server, data_dir):
    np.save(server.folder / "300K_random_images.npy", make.random_images(4, (32, 32, 3)))
    item = remote(server, "random_images_300k")
    item = replace(item, remote=tuple(replace(file, sha256=None) for file in item.remote))
    assert prepare(item, data_dir=data_dir, check_sizes=False) == {"train": 4}


def test_a_wrong_checksum_is_refused(make, server, data_dir):
    make.mnist(server.folder)
    item = remote(server, "mnist")
    item = replace(item, remote=(replace(item.remote[0], sha256="0" * 64), *item.remote[1:]))
    with pytest.raises(DataError, match=r"mnist: download failed \(NonMatchingChecksumError.*--source"):
        prepare(item, data_dir=data_dir, check_sizes=False)
    assert prepared_splits(item, data_dir=data_dir) == {}


def test_a_truncated_download_is_refused(make, server, data_dir):
    make.mnist(server.folder)
    server.cut_after = 100
    with pytest.raises(DataError, match="download failed"):
        prepare(remote(server, "mnist"), data_dir=data_dir, check_sizes=False)
    assert prepared_splits(PUBLISHED["mnist"], data_dir=data_dir) == {}
    # The next attempt goes through, and clears up what the first one left.
    server.cut_after = None
    prepare(remote(server, "mnist"), data_dir=data_dir, check_sizes=False)
    assert not list(data_dir.glob("downloads/**/*.tmp.*"))


def test_a_missing_file_is_refused_and_those_before_it_are_not_fetched_again(make, server, data_dir):
    make.mnist(server.folder)
    item = remote(server, "mnist")
    missing = server.folder / "t10k-labels-idx1-ubyte.gz"
    content = missing.read_bytes()
    missing.unlink()
    with pytest.raises(DataError, match=r"download failed \(DownloadError: .*404"):
        prepare(item, data_dir=data_dir, check_sizes=False)
    before = sorted(server.asked)
    assert missing.name in before
    missing.write_bytes(content)
    server.asked.clear()
    prepare(item, data_dir=data_dir, check_sizes=False)
    # Nothing goes on behind a failed attempt's back, and the next asks for what was not fetched yet.
    assert sorted(server.asked + before) == sorted([*(file.name for file in item.remote), missing.name])


def test_nothing_is_fetched_twice(make, server, data_dir):
    make.mnist(server.folder)
    item = remote(server, "mnist")
    prepare(item, data_dir=data_dir, check_sizes=False)
    server.asked.clear()
    prepare(item, data_dir=data_dir, check_sizes=False, force=True)
    assert server.asked == []


def test_no_server_fails_at_once(data_dir, make):
    file = RemoteFile(f"http://{HOST}:9/mnist.gz", 1, "0" * 64)  # The discard port: nobody listens.
    with pytest.raises(DataError, match=r"mnist: download failed \(cannot reach 127.0.0.1:9: .*--source"):
        prepare(replace(make.tiny("mnist", train=1, test=1), remote=(file,)), data_dir=data_dir)
