"""The command that lists and prepares data sets, as a user runs it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests import published_files

ROOT = Path(__file__).resolve().parents[3]


def run(*options, cwd=ROOT):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    command = [sys.executable, "-m", "experiments.prepare_data", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, env=environment)


def fails(result, *parts):
    """Exit status 2, and one line that has all of `parts`."""
    assert result.returncode == 2, result
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    for part in parts:
        assert part in line


def full_mnist(folder):
    """Files of the published size, mostly zeros, so that they are written fast."""
    folder.mkdir(parents=True)
    for stem, n in (("train", 60_000), ("t10k", 10_000)):
        images = np.zeros((n, 28, 28), np.uint8)
        published_files.write_idx(folder / f"{stem}-images-idx3-ubyte", images, zipped=False)
        published_files.write_idx(folder / f"{stem}-labels-idx1-ubyte", np.arange(n) % 10, zipped=False)


def test_listing(tmp_path):
    result = run("--data-dir", tmp_path)
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert str(tmp_path) in lines[0]
    rows = {line.split()[0]: line for line in lines[2:]}
    from preload_jax.data.catalogue import DERIVED, PUBLISHED

    assert {*PUBLISHED, *DERIVED, "digits", "uniform", "smooth", "faraway", "faraway_rd"} <= rows.keys()
    assert "60,000 train, 10,000 test" in rows["mnist"]
    assert "missing" in rows["mnist"]
    assert "storage.googleapis.com" in rows["mnist"]
    assert "124,800 train, 20,800 test" in rows["emnist"]
    assert "needs cifar10" in rows["cifar_gr"]
    assert list(tmp_path.iterdir()) == []


def test_help_is_fast_and_light():
    start = time.monotonic()
    result = run("--help")
    assert result.returncode == 0
    assert "--source" in result.stdout
    # Two seconds on an idle machine; the tests may share it.
    assert time.monotonic() - start < 6
    code = (
        "import sys, experiments.prepare_data; print([m for m in ('jax', 'tensorflow_datasets') if m in sys.modules])"
    )
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert imported.stdout.strip() == "[]"


def test_prepare_one_and_list_it(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    images = np.lib.format.open_memmap(folder / "300K_random_images.npy", "w+", np.uint8, shape=(300_000, 32, 32, 3))
    images.flush()  # A sparse file.
    result = run("--dataset=random_images_300k", "--source", folder, "--data-dir", tmp_path / "data")
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"random_images_300k: 300,000 train images in {tmp_path / 'data'}\n"
    assert result.stderr == ""
    listed = run("--data-dir", tmp_path / "data").stdout
    (row,) = (line for line in listed.splitlines() if line.startswith("random_images_300k"))
    assert "prepared" in row


def test_prepare_all_of_a_folder(tmp_path):
    full_mnist(tmp_path / "source" / "kmnist")
    result = run("--dataset=all", "--source", tmp_path / "source", "--data-dir", tmp_path / "data")
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"kmnist: 60,000 train, 10,000 test images in {tmp_path / 'data'}\n"
    assert "not found in" in result.stderr
    assert "mnist, fashion_mnist, svhn" in result.stderr
    # A damaged set among them does not keep the others from being prepared, but fails the command.
    (tmp_path / "source" / "svhn").mkdir()
    for split in ("train", "test"):
        (tmp_path / "source" / "svhn" / f"{split}_32x32.mat").write_bytes(b"damaged")
    result = run("--dataset=all", "--source", tmp_path / "source", "--data-dir", tmp_path / "data")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == "error: not prepared: svhn"
    assert "kmnist: 60,000 train" in result.stdout


@pytest.fixture
def source(tmp_path):
    published_files.mnist(tmp_path / "source")
    return tmp_path / "source"


def test_wrong_use(tmp_path, source):
    data = f"--data-dir={tmp_path / 'data'}"
    fails(run("--dataset=mnits", data), "unknown dataset 'mnits' (did you mean 'mnist'?)", "expected one of")
    fails(run("--datasets=mnist", data), "--datasets", "--dataset")
    fails(run("--dataset=mnist", f"--source={tmp_path / 'nope'}", data), "nope: no such folder")
    fails(run("--source", source, data), "--source without --dataset")
    fails(run("--dataset=svhn", f"--source={source}", data), "has no files of svhn; expected train_32x32.mat")
    fails(run("--dataset=mnist", f"--source={source}", data), "mnist train: 20 images; expected 60,000")
    (source / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8b\x08")
    fails(run("--dataset=mnist", f"--source={source}", data), "train-images-idx3-ubyte.gz", "truncated gzip file")
    assert [path.name for path in (tmp_path / "data").iterdir()] == []


def test_a_data_directory_that_is_a_file(tmp_path, source):
    (tmp_path / "data").write_text("")
    fails(run("--dataset=mnist", f"--source={source}", f"--data-dir={tmp_path / 'data'}"), "data is a file")


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/usr/share/datasets/fashion-mnist").is_dir(), reason="the package dataset-fashion-mnist is not installed"
)
def test_real_fashion_mnist(tmp_path):
    from preload_jax.data import datasets

    result = run("--dataset=fashion_mnist", "--source=/usr/share/datasets/fashion-mnist", "--data-dir", tmp_path)
    assert result.stdout == f"fashion_mnist: 60,000 train, 10,000 test images in {tmp_path}\n"
    splits = datasets.load("fashion_mnist", data_dir=tmp_path, validation="train")
    assert len(splits.test) == 10_000
    labels = np.concatenate([splits.train.labels, splits.validation.labels])
    assert np.bincount(labels).tolist() == [6_000] * 10
    images = np.concatenate([splits.train.images, splits.validation.images])
    np.testing.assert_allclose(images.mean() / 255, 0.2860, atol=5e-5)
