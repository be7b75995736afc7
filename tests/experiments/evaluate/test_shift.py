"""A run under shift, on its own images, and wrong names."""

import json

import numpy as np
import PIL.Image
import pytest

from experiments.run import command as run
from experiments.run.command import Args
from preload_jax.errors import UserError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two classes of small grey pictures, as a user would have them: dark ones and bright ones."""
    root = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for name, level in (("dark", 60), ("bright", 190)):
        (root / name).mkdir()
        for i in range(40):
            pixels = np.clip(rng.normal(level, 20, (12, 12)), 0, 255).astype(np.uint8)
            PIL.Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


def args(folder, root, **options):
    return Args(
        dataset=f"folder:{folder}", outliers="uniform", epochs=80, batch_size=16, root=root, data_dir=root, **options
    )


def test_a_folder_of_pictures_trains_evaluates_and_is_shifted(folder, tmp_path, capsys):
    assert run.main(args(folder, tmp_path, shift="rotation")) == 0
    shown = capsys.readouterr()
    assert "rotated by 0° to 180°" in shown.out
    run_dir = tmp_path / folder.name / "preload" / "seed0"
    results = json.loads((run_dir / "results.json").read_text())
    assert results["in_domain"]["accuracy"] > 0.8
    assert results["ood"]["faraway"]["fpr95"] == 0.0
    shift = json.loads((run_dir / "shift_rotation.json").read_text())
    assert [row["level"] for row in shift["levels"]] == list(range(0, 181, 15))
    # At 0° it is the test set itself; under shift a predicted OOD class is not counted as an error.
    assert shift["levels"][0]["ece"] == pytest.approx(results["in_domain"]["ece"])
    assert shift["levels"][0]["accuracy"] >= results["in_domain"]["accuracy"]
    # Bright stays bright, however it is turned; the corners are black then.
    assert all(row["size"] == results["in_domain"]["size"] for row in shift["levels"])


def test_an_unreadable_picture_is_skipped_or_an_error(folder, tmp_path, capsys):
    broken = folder / "dark" / "broken.png"
    broken.write_bytes(b"not a picture")
    try:
        assert run.main(args(folder, tmp_path / "a")) == 0
        assert "skipped 1 of 81 images" in capsys.readouterr().err
        with pytest.raises(UserError, match=r"broken\.png"):
            run.main(args(folder, tmp_path / "b", strict=True))
    finally:
        broken.unlink()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shift": "turn"}, "unknown --shift 'turn'; expected one of"),
        ({"shift": "cifar10_c"}, "--shift=cifar10_c has the classes of cifar10, the run is of folder:"),
        ({"shift": "rotation", "shift_images": 0}, "--shift-images must be at least 1, got 0"),
    ],
)
def test_a_shift_that_cannot_be_is_said_before_training(folder, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        run.main(args(folder, tmp_path, **options))
    assert not (tmp_path / folder.name).exists()
