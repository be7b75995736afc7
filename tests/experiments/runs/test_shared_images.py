"""OOD sets of one's own that hold in-domain images are counted and named."""

import shutil

import numpy as np
import pytest
from PIL import Image

from experiments.run import command as run
from experiments.run.command import Args
from experiments.runs import shared_images
from experiments.runs.data import load_splits
from tests import published_files


@pytest.fixture
def photos(tmp_path):
    return published_files.image_folder(tmp_path / "photos", each=15, size=(8, 8))


def said(dataset, sets, place):
    lines = []
    config = run.resolve(Args(dataset=str(dataset), method="standard", outliers="uniform"))
    splits = load_splits(config, data_dir=place / "data")
    shared_images.report_in_domain(config, splits, sets, data_dir=place / "data", warn=lines.append)
    return lines


def test_a_class_a_copy_and_a_list_of_the_in_domain_folder(photos, tmp_path):
    shutil.copytree(photos, tmp_path / "copy")
    others = published_files.image_folder(tmp_path / "others", classes=("x",), size=(8, 8), seed=5)
    (tmp_path / "some.txt").write_text("photos/a/00.png -1\nothers/x/00.png -1\n")
    sets = [f"folder:{tmp_path}/{name}" for name in ("photos/a", "copy", "others")]
    lines = said(f"folder:{photos}", [*sets, f"list:{tmp_path}/some.txt", "uniform"], tmp_path)
    assert [line.split(" are in-domain")[0] for line in lines] == [
        f"15 of 15 images of the OOD set {sets[0]}",
        f"30 of 30 images of the OOD set {sets[1]}",
        f"1 of 2 images of the OOD set list:{tmp_path}/some.txt",
    ]
    assert f"{photos}/a/00.png is {photos}/a/00.png; " in lines[0]
    assert len(list(others.rglob("*.png"))) == 6


def test_arrays_are_compared_by_their_pixels(photos, tmp_path):
    images = np.stack([np.asarray(Image.open(path)) for path in sorted(photos.rglob("*.png"))])
    np.savez(tmp_path / "own.npz", images=images, labels=np.repeat([0, 1], 15))
    np.save(tmp_path / "ood.npy", np.concatenate([images[[3, 20]], 255 - images[:4]]))
    lines = said(tmp_path / "own.npz", [f"{tmp_path}/ood.npy", f"folder:{photos}/b", "smooth"], tmp_path)
    assert [line.split(" are in-domain")[0] for line in lines] == [
        f"2 of 6 images of the OOD set {tmp_path}/ood.npy",
        f"15 of 15 images of the OOD set folder:{photos}/b",
    ]


def test_the_data_set_itself_is_left_to_who_loads_it(photos, tmp_path):
    assert said(f"folder:{photos}", [f"folder:{photos}/"], tmp_path) == []
