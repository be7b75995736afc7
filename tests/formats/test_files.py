"""Writing: whole or not at all, by several at once, and never through a link."""

import os
import threading

import pytest

from preload_jax.errors import DataError, UserError
from preload_jax.formats import files


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    files.write_bytes(path, b"old")

    def no_space(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left on device") as caught:
        files.write_bytes(path, b"new")
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


def test_several_writers_of_one_path(tmp_path):
    path, contents, errors = tmp_path / "a.bin", [bytes([i]) * 50_000 for i in range(8)], []

    def write(content):
        try:
            for _ in range(25):
                files.write_bytes(path, content)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert path.read_bytes() in contents
    assert names(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path, there):
    victim, path = tmp_path / "victim", tmp_path / "folder" / "a.bin"
    path.parent.mkdir()
    path.symlink_to(victim)
    if there:
        victim.write_bytes(b"precious")
    files.write_bytes(path, b"new")
    assert not path.is_symlink()
    assert path.read_bytes() == b"new"
    assert (victim.read_bytes() == b"precious") if there else not victim.exists()


def test_links_at_the_usual_temporary_names_are_not_followed(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "a.bin"
    victim.write_bytes(b"precious")
    for name in (".a.bin.tmp", "a.bin.tmp", f".a.bin.{os.getpid()}.tmp"):
        (tmp_path / name).symlink_to(victim)
    files.write_bytes(path, b"new")
    assert (path.read_bytes(), victim.read_bytes()) == (b"new", b"precious")


def test_even_a_name_that_is_guessed_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(files.secrets, "token_hex", lambda size: "0" * 16)
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / f".a.bin.{'0' * 16}.tmp").symlink_to(victim)
    with pytest.raises(OSError, match="File exists"):
        files.write_bytes(tmp_path / "a.bin", b"new")
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "\udcff.bin", "a b\n"])
def test_any_name_that_a_file_may_have(tmp_path, name):
    files.write_bytes(tmp_path / name, b"new")
    assert names(tmp_path) == [name]


@pytest.mark.parametrize(
    "action", [lambda path: files.append_line(path, b"x"), files.open_lock], ids=["append", "lock"]
)
@pytest.mark.parametrize("there", [True, False])
def test_lines_and_locks_do_not_go_through_a_link(tmp_path, action, there):
    victim, path = tmp_path / "victim", tmp_path / "a"
    path.symlink_to(victim)
    if there:
        victim.write_bytes(b"precious")
    with pytest.raises(UserError, match="is a link; expected a file of this program's own"):
        action(path)
    assert (victim.read_bytes() == b"precious") if there else not victim.exists()


def test_lines_are_added_and_a_locks_content_stays(tmp_path):
    path = tmp_path / "a"
    for line in (b"one", b"two\n"):
        files.append_line(path, line)
    os.close(files.open_lock(path))
    assert path.read_bytes() == b"one\ntwo\n"
    os.close(files.open_lock(tmp_path / "new"))
    assert (tmp_path / "new").read_bytes() == b""


@pytest.mark.parametrize(
    ("name", "errno"),
    [("new", None), ("new/folders/x", None), ("file", None), ("file/x", 20), ("file/a/b", 20), ("loop/x", 40),
     ("x" * 300, 36), (f"new/{'x' * 300}", None), ("gone/x", None)],
)  # fmt: skip
def test_a_place_is_checked_before_it_is_needed(tmp_path, name, errno):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    if errno is None:
        files.check_place(tmp_path / name)
    else:
        with pytest.raises(OSError, match=f"Errno {errno}") as caught:
            files.check_place(tmp_path / name)
        assert (caught.value.errno, caught.value.filename) == (errno, str(tmp_path / name))


def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path):
    kept = ["a.tmp", ".a.tmp", ".notes.of.mine.tmp", "results.json"]
    for name in (*kept, f".results.json.{'0f' * 8}.tmp"):
        (tmp_path / name).write_bytes(b"")
    files.remove_incomplete(tmp_path)
    assert names(tmp_path) == sorted(kept)


def test_reading_is_bounded(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    assert files.read_bytes(path, most=100) == b"x" * 100
    with pytest.raises(DataError, match="more than 99 bytes"):
        files.read_bytes(path, most=99)
    os.mkfifo(tmp_path / "pipe")
    for odd in (tmp_path / "pipe", tmp_path):
        with pytest.raises(DataError, match="no plain file"):
            files.read_bytes(odd, most=100)
    with pytest.raises(FileNotFoundError):
        files.read_bytes(tmp_path / "none", most=100)
