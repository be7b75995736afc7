"""Prepared sets: what the stock TFDS builder reads back, and that a set is prepared wholly or not at all."""

import os
import signal
import subprocess
import sys
import time
from collections import namedtuple

import numpy as np
import pytest

from preload_jax.data.preparing import tfds_source
from preload_jax.data.preparing.prepare import prepare
from preload_jax.data.preparing.prepared import prepared_splits
from preload_jax.errors import DataError, NotPreparedError


def entries(folder):
    """Everything under a folder, for telling whether anything was left there."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) if folder.exists() else []


def as_set(images, labels):
    return sorted((int(label), image.tobytes()) for image, label in zip(images, labels, strict=True))


@pytest.fixture
def source(tmp_path):
    return tmp_path / "source"


def test_mnist_as_the_stock_builder_reads_it(make, source, data_dir):
    import tensorflow_datasets as tfds

    content = make.mnist(source)
    item = make.tiny("mnist", train=20, test=10)
    assert prepare(item, data_dir=data_dir, source=source) == {"train": 20, "test": 10}
    assert prepared_splits(item, data_dir=data_dir) == {"train": 20, "test": 10}
    stock = tfds.builder("mnist", data_dir=data_dir)
    for split, (images, labels) in content.items():
        rows = list(stock.as_data_source(split))
        assert as_set([row["image"] for row in rows], [row["label"] for row in rows]) == as_set(images, labels)
        ours = tfds_source.read(item, split, data_dir=data_dir)
        np.testing.assert_array_equal(ours.images, np.stack([row["image"] for row in rows]))
        np.testing.assert_array_equal(ours.labels, [row["label"] for row in rows])
    assert "tensorflow" not in sys.modules
    assert not any("incomplete" in entry for entry in entries(data_dir))


@pytest.mark.parametrize("form", ["python", "binary"])
@pytest.mark.parametrize("num_classes", [10, 100])
def test_cifar_as_the_stock_builder_reads_it(make, source, data_dir, form, num_classes):
    import tensorflow_datasets as tfds

    parts = getattr(make, f"cifar_{form}")(source, num_classes)
    name = f"cifar{num_classes}"
    prepare(name, data_dir=data_dir, source=source, check_sizes=False)
    rows = list(tfds.builder(name, data_dir=data_dir).as_data_source("test"))
    images, labels, coarse = parts["test_batch" if num_classes == 10 else "test"]
    assert as_set([row["image"] for row in rows], [row["label"] for row in rows]) == as_set(images, labels)
    if num_classes == 100:
        assert as_set([row["image"] for row in rows], [row["coarse_label"] for row in rows]) == as_set(images, coarse)


def test_svhn_as_the_stock_builder_reads_it(make, source, data_dir):
    import tensorflow_datasets as tfds

    content = make.svhn(source)
    prepare("svhn", data_dir=data_dir, source=source, check_sizes=False)
    rows = list(tfds.builder("svhn_cropped", data_dir=data_dir).as_data_source("train"))
    assert as_set([row["image"] for row in rows], [row["label"] for row in rows]) == as_set(*content["train"])


def test_emnist_lies_on_its_side_in_tfds_and_stands_here(make, source, data_dir):
    import tensorflow_datasets as tfds

    images, labels = make.mnist(source, prefix="emnist-letters-", test="test", low=1, high=27)["test"]
    item = make.tiny("emnist", train=20, test=10)
    prepare(item, data_dir=data_dir, source=source)
    rows = list(tfds.builder("emnist/letters", data_dir=data_dir).as_data_source("test"))
    assert as_set([row["image"] for row in rows], [row["label"] for row in rows]) == as_set(images, labels)
    ours = tfds_source.read(item, "test", data_dir=data_dir)
    assert as_set(ours.images, ours.labels) == as_set(images.transpose(0, 2, 1), labels)


def test_an_emnist_that_tfds_cut_short_is_refused(make, source, data_dir):
    """TFDS 4.9's own builder stops at 14,800 of the 20,800 test images."""
    make.mnist(source, sizes=(5, 14_800), prefix="emnist-letters-", test="test", low=1, high=27)
    prepare("emnist", data_dir=data_dir, source=source, check_sizes=False)
    with pytest.raises(DataError, match="cut short by an older TFDS"):
        tfds_source.read("emnist", "test", data_dir=data_dir)


def test_lsun_is_kept_whole_and_squashed_when_read(make, source, data_dir):
    import tensorflow_datasets as tfds
    from PIL import Image

    make.image_folder(source, classes=("x",), each=3, size=(60, 40))
    make.image_folder(source, classes=("y",), each=2, size=(30, 50))
    prepare("lsun_classroom", data_dir=data_dir, source=source / "x", check_sizes=False)
    rows = list(tfds.builder("lsun/classroom", data_dir=data_dir).as_data_source("validation"))
    assert {row["image"].shape for row in rows} == {(40, 60, 3)}
    ours = tfds_source.read("lsun_classroom", "test", data_dir=data_dir).images
    expected = [Image.fromarray(row["image"]).resize((32, 32), Image.Resampling.BILINEAR) for row in rows]
    np.testing.assert_array_equal(ours, np.stack(expected))


def test_test_images_alone_make_an_ood_set(make, source, data_dir):
    make.cifar_python(source, 100, only=["test"])
    said = []
    splits = prepare("cifar100", data_dir=data_dir, source=source, check_sizes=False, report=said.append)
    assert splits == {"test": 4}
    assert said == ["cifar100: no train files found; prepared as an OOD test set only"]
    with pytest.raises(NotPreparedError, match="the train split of cifar100 is not prepared"):
        tfds_source.read("cifar100", "train", data_dir=data_dir)
    # With all files the set is completed.
    make.cifar_python(source, 100)
    assert prepare("cifar100", data_dir=data_dir, source=source, check_sizes=False) == {"train": 4, "test": 4}


def test_prepared_is_prepared_unless_forced(make, source, data_dir):
    make.mnist(source)
    first = prepare("mnist", data_dir=data_dir, source=source, check_sizes=False)
    make.mnist(source, sizes=(30, 15))
    assert prepare("mnist", data_dir=data_dir, source=source, check_sizes=False) == first
    forced = prepare("mnist", data_dir=data_dir, source=source, check_sizes=False, force=True)
    assert forced == {"train": 30, "test": 15}
    assert len(tfds_source.read("mnist", "test", data_dir=data_dir)) == 15


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def longer_labels(make, source):
    make.write_idx(source / "t10k-labels-idx1-ubyte", np.zeros(11))


def bad_label(make, source):
    make.write_idx(source / "t10k-labels-idx1-ubyte", np.full(10, 10))


def another_magic(make, source):
    (source / "t10k-images-idx3-ubyte.gz").write_bytes(b"<html>not found</html>")


WRONG = {
    "truncated gzip": (lambda make, source: cut(source / "train-images-idx3-ubyte.gz"), "truncated gzip"),
    "wrong magic": (another_magic, "not an idx file"),
    "label outside": (bad_label, "label 10 is outside the classes 0 to 9"),
    "different lengths": (longer_labels, "10 images but 11 labels"),
    "missing file": (lambda make, source: (source / "train-labels-idx1-ubyte.gz").unlink(), "is missing"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_files_leave_nothing(make, source, data_dir, case):
    make.mnist(source)
    damage, message = WRONG[case]
    damage(make, source)
    with pytest.raises(DataError, match=message):
        prepare("mnist", data_dir=data_dir, source=source, check_sizes=False)
    assert entries(data_dir) == []


def test_mis_sized_set(make, source, data_dir):
    make.mnist(source)
    with pytest.raises(DataError, match="mnist train: 20 images; expected 60,000"):
        prepare("mnist", data_dir=data_dir, source=source)
    assert entries(data_dir) == []


def test_a_failed_attempt_keeps_the_set_that_was_there(make, source, data_dir):
    make.mnist(source)
    prepare("mnist", data_dir=data_dir, source=source, check_sizes=False)
    before = entries(data_dir)
    bad_label(make, source)
    with pytest.raises(DataError):
        prepare("mnist", data_dir=data_dir, source=source, check_sizes=False, force=True)
    assert entries(data_dir) == before


@pytest.mark.parametrize("name", ["fashion_mnist", "kmnist"])
def test_the_files_of_another_set(make, source, data_dir, name):
    """MNIST's own test labels are known; here a set whose fingerprint is that of the tiny files stands for it."""
    import hashlib
    from dataclasses import replace

    from preload_jax.data.catalogue import PUBLISHED
    from preload_jax.data.readers import published

    labels = make.mnist(source)["test"][1]
    mnist = replace(PUBLISHED["mnist"], fingerprint=hashlib.sha256(labels.tobytes()).hexdigest())
    split = published.RawSplit(images=np.zeros((10, 28, 28, 1), np.uint8), labels=labels.astype(np.int64))
    with pytest.raises(DataError, match=f"{name} test: these are the files of mnist"):
        published.check(split, item=PUBLISHED[name], name="test", expected_size=None, others=[mnist])


def test_unknown_set(data_dir):
    with pytest.raises(DataError, match=r"unknown dataset 'mnits' \(did you mean 'mnist'\?\)"):
        prepare("mnits", data_dir=data_dir)


def test_no_source_folder(tmp_path, data_dir):
    with pytest.raises(DataError, match="no such folder"):
        prepare("mnist", data_dir=data_dir, source=tmp_path / "nope")
    assert not data_dir.exists()


def test_too_small_a_disk_is_told_before_anything_is_written(make, source, data_dir, monkeypatch):
    import shutil

    make.mnist(source)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 10**6, 10**6))
    with pytest.raises(DataError, match=r"no space left for mnist in .*: 55 MB needed, 1 MB free"):
        prepare("mnist", data_dir=data_dir, source=source)
    assert entries(data_dir) == []


SLOW_PREPARE = """
import signal, sys, time
# A shell starts what it runs in the background with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from preload_jax.data.preparing import prepare, tfds_writer
encode = tfds_writer._png
def slow(image):
    print("encoding", flush=True)
    time.sleep(0.05)
    return encode(image)
tfds_writer._png = slow
prepare.prepare("mnist", data_dir=sys.argv[1], source=sys.argv[2], check_sizes=False)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_half_way(make, source, data_dir, how):
    content = make.mnist(source, sizes=(200, 10))
    command = [sys.executable, "-c", SLOW_PREPARE, str(data_dir), str(source)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        for _ in range(5):
            assert process.stdout.readline() == b"encoding\n"
        assert any("incomplete." in entry for entry in entries(data_dir))
        os.kill(process.pid, how)
        process.wait(timeout=30)
    from preload_jax.data.catalogue import PUBLISHED

    assert prepared_splits(PUBLISHED["mnist"], data_dir=data_dir) == {}
    with pytest.raises(NotPreparedError):
        tfds_source.read("mnist", "train", data_dir=data_dir)
    if how == signal.SIGINT:
        assert not any("incomplete." in entry for entry in entries(data_dir))
    # The next attempt succeeds and clears up.
    prepare("mnist", data_dir=data_dir, source=source, check_sizes=False)
    assert not any("incomplete." in entry for entry in entries(data_dir))
    assert len(tfds_source.read("mnist", "train", data_dir=data_dir)) == len(content["train"][1])


def test_two_at_a_time_wait_for_each_other(make, source, data_dir):
    make.mnist(source, sizes=(40, 10))
    command = [sys.executable, "-c", SLOW_PREPARE, str(data_dir), str(source)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"encoding\n"
        start = time.monotonic()
        assert prepare("mnist", data_dir=data_dir, source=source, check_sizes=False) == {"train": 40, "test": 10}
        assert time.monotonic() - start > 0.5
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
