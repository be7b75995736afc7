"""Which folders are checkpoints, and that the user's own are never among them."""

import pytest

from preload_jax.errors import UserError
from preload_jax.formats import checkpoint_folders


def put(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")


@pytest.mark.parametrize(
    ("name", "inside", "is_one"),
    [
        *(("10", part, True) for part in ("state/d", "record/x", "_CHECKPOINT_METADATA", "commit_success.txt")),
        ("10-2", "state/d", True),
        ("10.orbax-checkpoint-tmp-3", "anything", True),
        ("10", "notes.txt", False),
        ("best", "state/d", False),
        ("１０", "state/d", False),
    ],
)
def test_a_checkpoint_is_known_by_its_name_and_any_part(tmp_path, name, inside, is_one):
    put(tmp_path, f"{name}/{inside}")
    assert checkpoint_folders.is_checkpoint(tmp_path / name) == is_one


def test_folders_of_the_users_that_have_numbers_are_named(tmp_path):
    checkpoint_folders.require_own(tmp_path / "not there")
    put(tmp_path, "notes/a.txt", "3/state/d")
    checkpoint_folders.require_own(tmp_path)
    put(tmp_path, "2026/a.txt", "7")
    with pytest.raises(UserError, match=r"holds 2026, 7, which no training wrote; .* give a folder of their own"):
        checkpoint_folders.require_own(tmp_path)


def test_what_was_set_aside_stays(tmp_path):
    found = []
    for _ in range(3):
        found.append(checkpoint_folders.set_aside(tmp_path / "checkpoints" / "20"))
        found[-1].mkdir(parents=True)
    assert [path.name for path in found] == ["20", "20-2", "20-3"]
    assert {path.parent for path in found} == {tmp_path / "damaged_checkpoints"}
