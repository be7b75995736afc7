"""Files written whole or not at all: by several writers at once, beside planted links, in sorted order."""

import os
import threading

import pytest

from preload_jax.formats.files import open_lock, write_bytes


def test_what_is_written_is_there_and_nothing_else(tmp_path):
    write_bytes(tmp_path / "new" / "x.json", b"one")
    write_bytes(tmp_path / "new" / "x.json", b"two")
    assert (tmp_path / "new" / "x.json").read_bytes() == b"two"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["x.json"]


def test_a_link_in_the_files_place_is_replaced_not_followed(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "x"
    victim.write_text("precious")
    path.symlink_to(victim)
    (tmp_path / ".x.tmp").symlink_to(victim)
    write_bytes(path, b"new")
    assert victim.read_text() == "precious"
    assert not path.is_symlink()
    assert path.read_bytes() == b"new"


def test_many_writers_of_one_path_all_succeed(tmp_path):
    path, failed = tmp_path / "x", []

    def write(content):
        for _ in range(40):
            try:
                write_bytes(path, content)
            except OSError as error:
                failed.append(error)

    threads = [threading.Thread(target=write, args=(bytes([n]) * 1000,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(set(path.read_bytes())) == 1
    assert os.listdir(tmp_path) == ["x"]


def test_an_error_names_the_file_and_leaves_what_was_there(tmp_path):
    (tmp_path / "x").mkdir()
    with pytest.raises(OSError, match="x"):
        write_bytes(tmp_path / "x", b"new")
    assert os.listdir(tmp_path) == ["x"]


def test_a_lock_is_never_emptied_and_never_a_link(tmp_path):
    path = tmp_path / ".lock"
    path.write_text("somebody's")
    open_lock(path).close()
    assert path.read_text() == "somebody's"
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="link"):
        open_lock(tmp_path / "link")
    open_lock(tmp_path / "new").close()
    assert (tmp_path / "new").read_text() == ""
