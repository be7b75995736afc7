"""Tiny data sets in the publishers' own formats."""

import gzip
import io
import pickle
import struct
from dataclasses import replace

import numpy as np
from PIL import Image

from preload_jax.data.catalogue import CORRUPTIONS, PUBLISHED
from preload_jax.errors import DataError


def idx_bytes(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write_idx(path, array, *, zipped=True):
    content = idx_bytes(array)
    path = path.with_name(f"{path.name}.gz") if zipped else path
    path.write_bytes(gzip.compress(content) if zipped else content)
    return path


def random_images(n, shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def mnist(folder, *, sizes=(20, 10), prefix="", test="t10k", zipped=True, low=0, high=10):
    """The four idx files; returns {split: (images [n, 28, 28], labels [n])}."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {}
    for seed, (split, stem, n) in enumerate((("train", "train", sizes[0]), ("test", test, sizes[1]))):
        images = random_images(n, (28, 28), seed)
        labels = (low + np.arange(n) % (high - low)).astype(np.uint8)
        write_idx(folder / f"{prefix}{stem}-images-idx3-ubyte", images, zipped=zipped)
        write_idx(folder / f"{prefix}{stem}-labels-idx1-ubyte", labels, zipped=zipped)
        content[split] = images, labels
    return content


def _planar(images):
    return images.transpose(0, 3, 1, 2).reshape(len(images), 3072)


def _cifar_parts(num_classes, n=4):
    """{file: (images, labels, coarse labels)} with the publisher's names of the files."""
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"] if num_classes == 10 else ["train", "test"]
    return {
        name: (random_images(n, (32, 32, 3), seed), (np.arange(n) + seed) % num_classes, np.arange(n) % 20)
        for seed, name in enumerate(names)
    }


def cifar_python(folder, num_classes=10, *, only=None):
    folder.mkdir(parents=True, exist_ok=True)
    parts = _cifar_parts(num_classes)
    for name, (images, labels, coarse) in parts.items():
        if only is not None and name not in only:
            continue
        batch = {b"data": _planar(images), b"batch_label": name.encode()}
        if num_classes == 10:
            batch[b"labels"] = labels.tolist()
        else:
            batch |= {b"fine_labels": labels.tolist(), b"coarse_labels": coarse.tolist()}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return parts


def cifar_binary(folder, num_classes=10):
    folder.mkdir(parents=True, exist_ok=True)
    parts = _cifar_parts(num_classes)
    for name, (images, labels, coarse) in parts.items():
        columns = [labels] if num_classes == 10 else [coarse, labels]
        records = np.concatenate([np.stack(columns, 1).astype(np.uint8), _planar(images)], axis=1)
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    return parts


def svhn(folder, n=10):
    from scipy.io import savemat

    folder.mkdir(parents=True, exist_ok=True)
    content = {}
    for seed, split in enumerate(("train", "test")):
        images = random_images(n, (32, 32, 3), seed)
        labels = np.arange(n) % 10  # published as 1 … 10, where 10 is the digit 0
        published = np.where(labels == 0, 10, labels).astype(np.uint8)
        savemat(folder / f"{split}_32x32.mat", {"X": np.moveaxis(images, 0, -1), "y": published[:, None]})
        content[split] = images, labels
    return content


def image_folder(folder, *, classes=("a", "b"), each=6, size=(12, 10), mode="RGB", suffix="png", seed=0):
    rng = np.random.default_rng(seed)
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
            Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(folder / name / f"{i:02d}.{suffix}")
    return folder


def encoded(image, kind="PNG"):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind)
    return buffer.getvalue()


def cifar10_c(folder, n=2, *, names=CORRUPTIONS):
    folder.mkdir(parents=True, exist_ok=True)
    content = {name: random_images(5 * n, (32, 32, 3), seed) for seed, name in enumerate(names)}
    for name, images in content.items():
        np.save(folder / f"{name}.npy", images)
    np.save(folder / "labels.npy", np.tile(np.arange(n) % 10, 5).astype(np.uint8))
    return content


def tiny(name, **sizes):
    """A published set that has other sizes than the real one."""
    return replace(PUBLISHED[name], sizes=sizes)


def error_of(call):
    """The message of the DataError that `call` raises, or nothing; other errors escape."""
    try:
        call()
    except DataError as error:
        return str(error)
    return ""
