"""Run folders that are in use, of another run, read-only or full, through the command line."""

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from experiments.runs import folder as runs
from experiments.runs.run_dir import RunDir
from preload_jax.errors import UserError
from tests import published_files
from tests.experiments.runs_for_tests import SHORT, command, errors, outcome

pytestmark = pytest.mark.usefixtures("plain_pictures")
ROOT = Path(__file__).resolve().parents[3]


def test_a_second_process_is_refused_at_once(folder, capsys):
    with runs.RunDir(folder).locked():
        started = time.monotonic()
        assert command(folder, *SHORT) == 2
        assert time.monotonic() - started < 10
    assert errors(capsys) == [f"error: another process is working in {folder}; wait for it, or give another --run-dir"]


def test_a_killed_process_leaves_no_lock(folder):
    program = (
        "import sys, time, pathlib; from experiments.runs.run_dir import RunDir\n"
        "with RunDir(pathlib.Path(sys.argv[1])).locked():\n    print('locked', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, cwd=ROOT)
    assert holder.stdout.readline() == b"locked\n"
    with pytest.raises(ValueError, match="another process is working"), runs.RunDir(folder).locked():
        pass
    holder.kill()
    holder.communicate()
    with runs.RunDir(folder).locked():
        pass


def test_another_configuration_is_refused_with_its_fields(folder, reference, capsys):
    assert command(folder, *SHORT, "--quiet") == 0
    capsys.readouterr()
    options = [*SHORT, "--precision=bfloat16", "--batch-size=64", "--optimizer.learning-rate=0.1"]
    assert command(folder, *options) == 2
    (line,) = errors(capsys)
    assert line == (
        f"error: {folder} holds a run of another configuration: --optimizer.learning-rate 0.001 there, 0.1 asked for;"
        " --batch-size 128 there, 64 asked for; --precision 'auto' there, 'bfloat16' asked for;"
        " give --overwrite to replace it, or another --run-dir"
    )
    assert outcome(folder) == reference


def test_overwrite_replaces_what_a_run_writes_and_nothing_else(folder, reference):
    assert command(folder, *SHORT, "--seed=1", "--quiet") == 0
    for name in ("certificate.json", "notes of mine.txt"):
        (folder / name).write_text("old")
    assert command(folder, *SHORT, "--quiet", "--overwrite") == 0
    assert outcome(folder) == reference
    assert not (folder / "certificate.json").exists()
    assert (folder / "notes of mine.txt").read_text() == "old"


@pytest.mark.parametrize(
    "wrong",
    [
        "--outliers=HERE/bad.npy",
        "--outliers=folder:HERE/empty",
        "--dataset=folder:HERE/few",
        "--batch-size=5000",
        "--start=HERE/nope --method=oe_ft",
        "--start=HERE/run --method=oe_ft",
        "--start=HERE/run --method=preload",
    ],
)
def test_a_run_that_cannot_be_replaced_stays(tmp_path, folder, reference, wrong):
    np.save(tmp_path / "bad.npy", np.zeros((5, 3)))
    (tmp_path / "empty").mkdir()
    published_files.image_folder(tmp_path / "few", classes=("a", "b"))
    method = ("--method=standard",) if "/run" in wrong else ()
    assert command(folder, *SHORT, *method, "--quiet") == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert command(folder, *SHORT, *wrong.replace("HERE", str(tmp_path)).split(), "--overwrite", "--quiet") == 2
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_run_moved_to_where_none_can_be_written_stays(tmp_path, folder, capsys):
    assert command(folder, *SHORT, "--quiet") == 0
    moved = folder.rename(tmp_path / "run[1]")
    capsys.readouterr()
    assert command(moved, *SHORT, "--quiet", "--overwrite") == 2
    assert "checkpoints cannot be written in" in errors(capsys)[0]
    assert (moved / "results.json").is_file()


@pytest.mark.parametrize("options", [(), ("--overwrite",)])
def test_a_file_of_the_user_is_not_written_over(folder, capsys, options):
    folder.mkdir()
    (folder / "config.json").write_text('{"b": 1}')
    assert command(folder, *SHORT, *options) == 2
    (line,) = errors(capsys)
    assert line.startswith(f"error: {folder} holds config.json, which no run wrote and a run would replace; move it ")
    assert (folder / "config.json").read_text() == '{"b": 1}'


def test_checkpoints_of_an_unknown_configuration_are_not_used(folder, reference, capsys):
    assert command(folder, *SHORT, "--quiet") == 0
    (folder / "config.json").unlink()
    capsys.readouterr()
    assert command(folder, *SHORT) == 2
    assert "holds a run without its config.json" in errors(capsys)[0]


@pytest.mark.parametrize("name", ["scores.npz", "results.json"])
def test_no_space_for_the_results(folder, reference, monkeypatch, capsys, name):
    fsync = os.fsync

    def full(descriptor):
        if name in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    assert command(folder, *SHORT, "--quiet") == 2
    # Before it, perhaps, that so short a training calls everything OOD.
    *_, line = errors(capsys)
    assert line.startswith(f"error: no space left on the device ({folder / name}); free some")
    assert not (folder / "results.json").exists()
    assert list(folder.rglob("*.tmp")) == []
    monkeypatch.undo()
    assert command(folder, *SHORT, "--quiet") == 0
    assert outcome(folder) == reference


def test_a_full_disk_and_then_a_larger_one(tmp_path, reference, capsys):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        assert command(disk / "run", *SHORT, "--quiet") == 2
        (line,) = errors(capsys)
        assert line.startswith(f"error: no space left on the device ({disk / 'run'}")
        subprocess.run(["mount", "-o", "remount,size=50m", str(disk)], check=True)
        assert command(disk / "run", *SHORT, "--quiet") == 0
        assert outcome(disk / "run") == reference
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_read_only_folder(folder, capsys):
    folder.mkdir()
    folder.chmod(0o555)
    protected = False
    if os.geteuid() == 0:  # whom modes do not stop
        protected = (
            shutil.which("chattr") and not subprocess.run(["chattr", "+i", folder], capture_output=True).returncode
        )
        if not protected:
            pytest.skip("nothing is read-only to this user here")
    try:
        assert command(folder, *SHORT, "--quiet") == 2
        (line,) = errors(capsys)
        assert line.startswith(f"error: not allowed to write or read ({folder / '.lock'})")
        assert list(folder.iterdir()) == []
    finally:
        if protected:
            subprocess.run(["chattr", "-i", folder], check=True)


def test_a_file_where_the_folder_should_be(folder, capsys):
    folder.write_text("mine")
    assert command(folder, *SHORT) == 2
    assert errors(capsys) == [f"error: {folder} is a file; expected a folder: give another --run-dir"]
    assert folder.read_text() == "mine"
    assert command(folder / "deeper", *SHORT) == 2
    assert errors(capsys) == [
        f"error: Not a directory: {folder / 'deeper'} (a part of it is a file, expected folders); choose another"
    ]


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    runs.write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        runs.write_json(path, {"a": float("nan")})
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(errno.EIO, "bad disk")))
    with pytest.raises(OSError, match="bad disk"):
        runs.write_json(path, {"a": 2})
    assert path.read_text() == '{\n  "a": 1\n}\n'
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize("place", ["photos", "photos/", "photos/a", "link", "photos/b/inner"])
def test_a_run_is_not_kept_among_images(tmp_path, place):
    photos = published_files.image_folder(tmp_path / "photos", classes=("a", "b", "b/inner"))
    (tmp_path / "link").symlink_to(photos)
    for images in ([f"folder:{photos}"], ["digits", f"folder:{tmp_path}/link"]):
        with pytest.raises(UserError, match="this folder holds images of folder:"):
            runs.require_apart(RunDir(tmp_path / place), *images)


@pytest.mark.parametrize("place", ["photos/runs/seed0", "photos/a/run", "runs", "photos2", "photos/begun", "."])
def test_a_run_may_have_a_folder_of_its_own_inside(tmp_path, place):
    photos = published_files.image_folder(tmp_path / "photos")
    with RunDir(photos / "begun").locked():
        runs.require_apart(RunDir(tmp_path / place), f"folder:{photos}", "smooth", f"{tmp_path}/own.npz")


@pytest.mark.parametrize("name", [".", "./", "../here", "..", "../here/sub/.."])
def test_a_folder_is_named_by_where_it_is(tmp_path, name, monkeypatch):
    (tmp_path / "up" / "here" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "up" / "here")
    expected = "up" if name == ".." else "here"
    assert runs.place(f"folder:{name}", "oe", 0, root=Path("runs")) == Path("runs") / expected / "oe" / "seed0"
