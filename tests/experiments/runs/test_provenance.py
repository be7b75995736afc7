"""The commit that code is of: of a clone, a changed clone, an installed copy in somebody's repository, without git."""

import subprocess

import pytest

from experiments.runs import provenance


@pytest.fixture
def clone(tmp_path):
    """A repository with two packages in it."""
    for name in ("preload_jax", "experiments"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first")
    return tmp_path


def git(folder, *arguments):
    return subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def test_a_clones_commit_and_whether_its_code_was_changed(clone):
    head = git(clone, "rev-parse", "HEAD")
    (clone / "notes.txt").write_text("no code")
    assert provenance.commit(clone / "preload_jax") == head
    (clone / "experiments" / "new.py").write_text("")
    assert provenance.commit(clone / "preload_jax") == f"{head} modified"
    (clone / "experiments" / "new.py").unlink()
    (clone / "experiments" / "__init__.py").write_text("changed = True")
    assert provenance.commit(clone / "preload_jax") == f"{head} modified"


def test_an_installed_copy_has_no_commit_of_the_repository_it_lies_in(clone):
    installed = clone / ".venv" / "preload_jax"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert provenance.commit(installed) is None


def test_without_git_or_a_repository_there_is_none(clone, monkeypatch):
    assert provenance.commit(clone / "missing") is None
    monkeypatch.setenv("PATH", "")
    assert provenance.commit(clone / "preload_jax") is None


def test_a_machine_without_an_accelerator_is_its_cores():
    assert "CPU cores" in provenance.machine()
