"""Checkpoints: what is saved is what is read; every kind of damage is found; the one before is used."""

import errno
import json
import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from orbax.checkpoint import CheckpointManager

from preload_jax.errors import CheckpointError, UserError
from preload_jax.formats import checkpoints, trees
from preload_jax.formats.checkpoints import Checkpoints


def tree(i):
    return {
        "step": jnp.asarray(i, jnp.int32),
        "params": {"dense": {"kernel": jnp.full((30, 40), i, jnp.float32), "bias": jnp.arange(3.0) + i}},
        "memory": {},
    }


NOTES = {"stage": 0, "losses": [0.1, 2.5], "last_loss": 1 / 3}


def save(folder, *positions, **options):
    with Checkpoints(folder, **options) as store:
        for i in positions:
            store.save(i, tree(i), notes=NOTES)


def restore(folder):
    said = []
    with Checkpoints(folder) as store:
        return store.restore(on_damaged=said.append), said


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path):
    save(tmp_path / "checkpoints", 1, 2)
    return tmp_path / "checkpoints"


def largest(folder):
    """The file that holds the arrays."""
    return max((path for path in (folder / "state" / "d").rglob("*")), key=lambda path: path.stat().st_size)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change_notes(folder):
    path = folder / "record" / "metadata"
    record = json.loads(path.read_text())
    record["notes"]["losses"][1] = 2.6
    path.write_text(json.dumps(record))


DAMAGE = {
    "a truncated array": lambda newest: cut(largest(newest)),
    "a flipped byte in an array": lambda newest: flip(largest(newest)),
    "a missing array": lambda newest: largest(newest).unlink(),
    "an empty index": lambda newest: (newest / "state" / "manifest.ocdbt").write_bytes(b""),
    "a missing index": lambda newest: (newest / "state" / "_METADATA").unlink(),
    "a missing record": lambda newest: (newest / "record" / "metadata").unlink(),
    "a truncated record": lambda newest: cut(newest / "record" / "metadata"),
    "another note": change_notes,
}


def test_round_trip(tmp_path):
    state = {**tree(7), "half": jnp.ones(5, jnp.bfloat16), "scalar": jnp.float32(0.1)}
    with Checkpoints(tmp_path / "checkpoints") as store:
        store.save(7, state, notes=NOTES)
    saved, said = restore(tmp_path / "checkpoints")
    assert (saved.position, saved.notes, said) == (7, NOTES, [])
    flat, read = jax.tree.leaves(state), jax.tree.leaves(saved.tree)
    for a, b in zip(flat, read, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert jax.tree.structure(trees.restore_like(state, saved.tree)) == jax.tree.structure(state)


def test_what_is_saved_is_a_copy_however_late_it_is_written(tmp_path, monkeypatch):
    array, write, late = np.zeros(1000), CheckpointManager.save, []
    monkeypatch.setattr(
        CheckpointManager, "save", lambda *given, **options: late.append(partial(write, *given, **options))
    )
    with Checkpoints(tmp_path) as store:
        store.save(1, {"a": array})
        array += 1
        late[0]()
    assert not restore(tmp_path)[0].tree["a"].any()


def test_the_newest_two_are_kept(tmp_path):
    save(tmp_path, *range(1, 6))
    assert names(tmp_path) == ["4", "5"]


def test_nothing_to_restore(tmp_path):
    assert restore(tmp_path / "checkpoints") == (None, [])
    with pytest.raises(UserError, match=r"no checkpoints in .*; train the run first"):
        checkpoints.load(tmp_path / "none")
    with pytest.raises(UserError, match=r"no checkpoints in .*; train the run first"):
        checkpoints.load(tmp_path / "checkpoints")


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_and_the_one_before_is_used(folder, kind, capfd):
    DAMAGE[kind](folder / "2")
    saved, said = restore(folder)
    assert saved.position == 1
    np.testing.assert_array_equal(saved.tree["params"]["dense"]["bias"], np.arange(3.0) + 1)
    assert len(said) == 1
    assert said[0].startswith(f"checkpoint {folder / '2'} is damaged (")
    assert said[0].endswith("; using 1 instead")
    assert "\n" not in said[0]
    # Set aside, so that it is said once and its place is free.
    assert (names(folder), names(folder.parent / "damaged_checkpoints")) == (["1"], ["2"])
    assert restore(folder)[1] == []
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["a flipped byte in an array", "a missing record"])
def test_all_damaged_is_an_error_every_time(folder, kind):
    for position in ("1", "2"):
        DAMAGE[kind](folder / position)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"every checkpoint in .* is damaged .*train again from the start"):
            restore(folder)
    assert names(folder) == ["1", "2"]


def test_training_goes_on_after_damage(folder):
    cut(largest(folder / "2"))
    with Checkpoints(folder) as store:
        assert store.restore().position == 1
        store.save(2, tree(2), notes=NOTES)
    saved, said = restore(folder)
    assert (saved.position, said) == (2, [])


def test_a_reader_changes_nothing(folder):
    """Another process may be writing there."""
    (folder / "3.orbax-checkpoint-tmp").mkdir()
    cut(largest(folder / "2"))
    said = []
    assert checkpoints.load(folder, on_damaged=said.append).position == 1
    assert len(said) == 1
    assert names(folder) == ["1", "2", "3.orbax-checkpoint-tmp"]


def test_what_a_killed_writer_left_is_removed(folder):
    leftover = folder / "3.orbax-checkpoint-tmp" / "state.orbax-checkpoint-tmp"
    leftover.mkdir(parents=True)
    (leftover / "half").write_bytes(b"half")
    saved, said = restore(folder)
    assert (saved.position, said) == (2, [])
    save(folder, 3)
    assert names(folder) == ["2", "3"]


def test_no_space_is_an_os_error_and_the_last_good_one_is_kept(folder, monkeypatch):
    """What the writer raises for a full disk, in tensorstore's words."""

    def fail(*args, **kwargs):
        raise ValueError("RESOURCE_EXHAUSTED: Error writing local file \"x\": … [os_error_code='28']")

    with monkeypatch.context() as patch, Checkpoints(folder) as store:
        patch.setattr(CheckpointManager, "save", fail)
        with pytest.raises(OSError, match="No space left on device") as error:
            store.save(3, tree(3))
    assert error.value.errno == errno.ENOSPC
    assert error.value.filename == str(folder)
    assert restore(folder)[0].position == 2


def test_the_last_checkpoints_error_does_not_hide_the_one_on_its_way(folder, monkeypatch):
    def full(manager):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(CheckpointManager, "close", full)
    with pytest.raises(ZeroDivisionError), Checkpoints(folder):
        raise ZeroDivisionError
    with pytest.raises(OSError, match="No space left on device"), Checkpoints(folder):
        pass


@pytest.mark.parametrize("name", ["a b", "a]", "{a}", "ü,;'\"", "$HOME", "~", "%41", "#"])
def test_a_path_of_any_usual_name_works(name, tmp_path):
    save(tmp_path / name / "checkpoints", 1, 2)
    assert checkpoints.load(tmp_path / name / "checkpoints").position == 2


@pytest.mark.parametrize("name", ["a[1]", "a[", "a*", "a?", "a\\b", "a\udcff"])
def test_a_path_in_which_nothing_would_be_found_again_is_refused_before_anything_is_written(name, tmp_path):
    for place in (tmp_path / name, tmp_path / name / "checkpoints"):
        with pytest.raises(UserError, match=r"checkpoints cannot be written in .*; choose another folder for the run"):
            Checkpoints(place)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["record/metadata", "_CHECKPOINT_METADATA", "state/_METADATA"])
def test_a_pipe_in_a_checkpoint_is_refused_and_not_waited_for(folder, name):
    place = folder / "2" / name
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    with pytest.raises(UserError) as error:
        restore(folder)
    assert str(error.value).startswith(f"{place}: not a regular file; expected a plain file")


def test_what_was_set_aside_before_stays(folder):
    for number in (1, 2):
        cut(largest(folder / "2"))
        (folder / "2" / f"{number}.txt").write_text("")
        with Checkpoints(folder) as store:
            store.restore()
            store.save(2, tree(2), notes=NOTES)
    assert [(folder.parent / "damaged_checkpoints" / name).is_file() for name in ("2/1.txt", "2-2/2.txt")] == [
        True,
        True,
    ]


def test_folders_of_the_users_with_numbers_are_not_touched(folder):
    (folder / "1" / "notes.txt").write_text("of a checkpoint")
    (folder / "2026").mkdir()
    (folder / "2026" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="holds 2026, which no training wrote"):
        Checkpoints(folder)
    assert names(folder) == ["1", "2", "2026"]
    # Reading removes nothing.
    assert checkpoints.load(folder).position == 2
