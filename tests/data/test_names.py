"""One folder has one name, commas may be in it, and a path given bare is understood."""

import os

import numpy as np
import pytest

from preload_jax.data import datasets, names
from preload_jax.errors import DataError


def test_one_folder_has_one_name(tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to("x")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    spellings = ("x", "x/", "./x", "x//", f"{tmp_path}/x", "x/../x", "~/x", "link", "link/")
    assert {names.canonical(f"folder:{spelling}") for spelling in spellings} == {f"folder:{tmp_path}/x"}
    assert {names.canonical(name) for name in ("a.npz", "./a.npz")} == {f"{tmp_path}/a.npz"}
    assert names.canonical("cifar10") == "cifar10"


def test_commas_in_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a,b", "c", "d,e,f", "g, h"):
        os.mkdir(name)
    (tmp_path / "x,y.npy").write_bytes(b"")
    for text, expected in (
        ("uniform, smooth,,uniform", ("uniform", "smooth")),
        ("folder:a,b", ("folder:a,b",)),
        ("smooth,folder:a,b,uniform", ("smooth", "folder:a,b", "uniform")),
        ("folder:c,b", ("folder:c", "b")),
        ("folder:d,e,f,folder:c", ("folder:d,e,f", "folder:c")),
        ("folder:g, h,mnist", ("folder:g, h", "mnist")),
        ("x,y.npy,folder:a,b/", ("x,y.npy", "folder:a,b/")),
        ("folder:none,b", ("folder:none", "b")),
        ("folder:c,folder:c/,folder:./c", ("folder:c",)),
        (",,", ()),
    ):
        assert names.split_list(text) == expected, text


@pytest.mark.parametrize(
    ("name", "expected"), [("folder:", "folder; expected folder:PATH"), ("list:", "file; expected")]
)
def test_a_prefix_alone_is_not_the_current_folder(name, expected, tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    message = f"{name} names no {expected}"
    digits = datasets.get("digits")
    for refused in (
        lambda: names.canonical(name),
        lambda: names.split_list(f"uniform,{name}"),
        lambda: datasets.check_ood(name),
        lambda: datasets.load_outliers(name, in_domain=digits, train_images=np.zeros((2, 8, 8, 1), np.uint8)),
    ):
        with pytest.raises(DataError, match=message):
            refused()


@pytest.mark.parametrize("given", ["{0}", "{0}/", "./photos", "~/photos", "photos", "photos/"])
def test_a_bare_path_is_understood(make, tmp_path, monkeypatch, given):
    make.image_folder(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    name = given.format(tmp_path / "photos")
    message = rf"\(did you mean folder:{name}\?\)"
    digits = datasets.get("digits")
    images = datasets.load("digits").train.images[:20]
    with pytest.raises(DataError, match=message):
        datasets.get(name)
    with pytest.raises(DataError, match=message):
        datasets.load_ood(name, in_domain=digits, test_images=images)
    with pytest.raises(DataError, match=message):
        datasets.load_outliers(name, in_domain=digits, train_images=images, data_dir=tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "x" * 5_000,
        "x" * 5_000 + ".npz",
        "x" * 300 + ".npy",
        "folder:" + "x/" * 3_000,
        "a\0b.npz",
        "folder:a\0b",
        "\0",
        "~nobody-x/y.npz",
        "folder:",
    ],
)
def test_names_that_nothing_can_have(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError):
        datasets.resolve(name)
    for load in (datasets.load_ood, datasets.check_ood):
        options = (
            {}
            if load is datasets.check_ood
            else {"in_domain": datasets.get("digits"), "test_images": np.zeros((9, 8, 8, 1), np.uint8)}
        )
        with pytest.raises(DataError):
            load(name, data_dir=tmp_path, **options)


def test_the_in_domain_images_are_no_outliers_however_they_are_named(make, tmp_path, data_dir):
    make.image_folder(tmp_path / "x")
    spec = datasets.get(f"folder:{tmp_path}/x")
    with pytest.raises(DataError, match="in-domain images themselves"):
        datasets.load_outliers(
            f"folder:{tmp_path}/x/", in_domain=spec, train_images=np.zeros((9, 12, 10, 3), np.uint8), data_dir=data_dir
        )
