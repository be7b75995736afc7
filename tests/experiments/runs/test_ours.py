"""What runs wrote into a folder, and what is the user's."""

import pytest

from experiments.runs import ours
from experiments.runs.run_dir import RunDir
from preload_jax.errors import UserError

_CONFIG = '{"dataset": "digits", "method": "preload", "seed": 0}'


def _put(root, *names, text="mine"):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def _there(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_what_runs_wrote_is_removed_and_nothing_else(tmp_path):
    mine = ["checkpoints/mine/m.txt", "figures/mine.txt", "notes.txt", "shift_notes.json", "tensorboard/p"]
    written = ["checkpoints/10/state/d", "damaged_checkpoints/20/record/metadata", "shift_rotation.jsonl"]
    written += ["checkpoints/30.orbax-checkpoint-tmp/state", "tensorboard/events.out.tfevents.17.vm"]
    _put(tmp_path, *mine, *written, *ours.FILES)
    _put(tmp_path, "config.json", text=_CONFIG)
    ours.require_room(tmp_path)
    ours.remove(tmp_path)
    assert _there(tmp_path) == mine
    assert not (tmp_path / "damaged_checkpoints").exists()


@pytest.mark.parametrize("name", [*ours.FILES, "checkpoints", "figures", "tensorboard", "checkpoints/7"])
def test_a_name_that_the_user_took_is_refused_where_there_is_no_run(tmp_path, name):
    _put(tmp_path, name, "checkpoints/mine/m.txt" if name != "checkpoints" else "other.txt")
    with pytest.raises(UserError, match=f"holds {name}, which no run wrote and a run would replace; move it away"):
        RunDir(tmp_path).clear()
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("name", ["results.json/a", "checkpoints/7/model.pt", "figures"])
def test_in_a_run_what_it_cannot_have_written_is_refused(tmp_path, name):
    _put(tmp_path, "config.json", text=_CONFIG)
    _put(tmp_path, name)
    with pytest.raises(UserError, match=name.removesuffix("/a").removesuffix("/model.pt")):
        RunDir(tmp_path).clear()
    assert (tmp_path / "config.json").is_file()


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"b": 1}'])
@pytest.mark.parametrize("sign", ["results.json", "checkpoints/10/_CHECKPOINT_METADATA"])
def test_a_run_is_known_without_its_configuration(tmp_path, damaged, sign):
    _put(tmp_path, "config.json", text=damaged)
    _put(tmp_path, sign, text=_CONFIG)
    RunDir(tmp_path).clear()
    assert _there(tmp_path) == []


@pytest.mark.parametrize("name", ["checkpoints", "figures", "tensorboard"])
def test_a_folder_on_another_disk_stays_linked(tmp_path, name):
    elsewhere, outside = tmp_path / "elsewhere", tmp_path / "outside"
    _put(elsewhere, "10/record/metadata", "events.out.tfevents.17.vm", "score_histograms.png")
    _put(outside, "file")
    (elsewhere / "link").symlink_to(outside)
    run = RunDir(tmp_path / "run")
    _put(run.path, "config.json", text=_CONFIG)
    (run.path / name).symlink_to(elsewhere)
    removed = {"checkpoints": "10/record/metadata", "tensorboard": "events.out.tfevents.17.vm"}
    before = _there(elsewhere)
    run.clear()
    assert (run.path / name).is_symlink()
    assert set(before) - set(_there(elsewhere)) == {removed.get(name, "score_histograms.png")}
    assert (outside / "file").is_file()
    run.clear()


@pytest.mark.parametrize("place", ["checkpoints", "damaged_checkpoints"])
def test_numbers_that_the_user_took_are_refused_and_what_is_half_removed_is_not(tmp_path, place):
    _put(tmp_path, "config.json", text=_CONFIG)
    _put(tmp_path, f"{place}/10/commit_success.txt", f"{place}/20/notes.txt")
    with pytest.raises(UserError, match=f"holds {place}/20, which no run wrote"):
        RunDir(tmp_path).clear()
    (tmp_path / place / "20" / "notes.txt").rename(tmp_path / "notes.txt")
    RunDir(tmp_path).clear()
    assert _there(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("name", ["", "checkpoints", "figures", "tensorboard"])
def test_where_one_file_cannot_be_removed_all_stay(tmp_path, monkeypatch, name):
    _put(tmp_path, "checkpoints/10/state/d", "figures/score_histograms.png", "tensorboard/events.out.tfevents.17.vm")
    _put(tmp_path, "config.json", "results.json", text=_CONFIG)
    before, access = _there(tmp_path), ours.os.access
    monkeypatch.setattr(ours.os, "access", lambda path, mode: path != tmp_path / name and access(path, mode))
    with pytest.raises(PermissionError) as error:
        RunDir(tmp_path).clear()
    assert error.value.filename == str(tmp_path / name)
    assert _there(tmp_path) == before
