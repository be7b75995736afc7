"""Damages files, seeded, and reads them: nothing but a DataError of one line, in little memory and time.

`python -m tests.data.fuzzing COUNT SEED READER…` limits its own address space, reads COUNT damaged files of each reader
(of all, where none is named), and prints what it found as JSON, a line each. A process of its own, since the limit is
the process's.
"""

import gzip
import io
import json
import os
import pickle
import random
import resource
import signal
import sys
import tarfile
import tempfile
import time
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from preload_jax.data import datasets, own_data
from preload_jax.data.catalogue import PUBLISHED
from preload_jax.data.readers import array_files, files, image_files, lmdb_images, matlab, published, single_images
from preload_jax.data.readers.pickles import load_pickle
from preload_jax.errors import DataError
from tests import published_files as make

ADDRESS_SPACE = 2 * 2**30
SECONDS = 20
MNIST, CIFAR10, CIFAR100, SVHN, LSUN, EMNIST = (
    PUBLISHED[name] for name in ("mnist", "cifar10", "cifar100", "svhn", "lsun_classroom", "emnist")
)
PIXELS = make.random_images(1, (9, 11, 3))[0]
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")


def saved(save, *arguments, **options):
    buffer = io.BytesIO()
    save(buffer, *arguments, **options)
    return buffer.getvalue()


def mat(compressed):
    from scipy.io import savemat

    images = np.moveaxis(make.random_images(3, (32, 32, 3)), 0, -1)
    return saved(savemat, {"X": images, "y": np.array([[1], [2], [10]])}, do_compression=compressed)


def batch(protocol, scalars):
    labels = [np.int16(1), np.int64(2)] if scalars else [1, 2]
    data = make.random_images(2, (3072,))
    return pickle.dumps({b"data": data, b"labels": labels, b"filenames": ["a", "b"]}, protocol=protocol)


def lmdb_file():
    """A page tree as lmdb writes it, with two small values and a large one."""
    import lmdb

    with tempfile.TemporaryDirectory() as folder:
        with lmdb.open(folder, map_size=1 << 24) as environment, environment.begin(write=True) as transaction:
            for number in range(60):
                image = make.encoded(make.random_images(1, (8 + 40 * (number == 3), 40, 3))[0])
                transaction.put(f"{number:03d}".encode(), image)
        return Path(folder, "data.mdb").read_bytes()


def archive(kind):
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        if kind == "zip":
            make.mnist(Path(folder, "c"), prefix="emnist-letters-", test="test")
            with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
                for path in Path(folder, "c").iterdir():
                    packed.write(path, f"gzip/{path.name}")
        else:
            make.cifar_binary(Path(folder, "c"))
            with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
                packed.add(Path(folder, "c"), "cifar-10-batches-bin")
    return buffer.getvalue()


def unpack(path, item):
    with tempfile.TemporaryDirectory() as scratch:
        layout = item.layouts[0]
        files.unpack(path, item, layout, Path(scratch))


def own_npz(path):
    own_data.read(own_data.describe(str(path)), data_dir=path.parent)


def ood_npy(path):
    digits = datasets.get("digits")
    np.asarray(datasets.load_ood(str(path), in_domain=digits, test_images=np.zeros((1, 8, 8, 1), np.uint8)))


def images_of(path):
    image_files.describe(path)
    image_files.read(path)
    image_files.read(path, shrink_to=(4, 4))


LABELS = np.arange(20) % 2
ARRAYS = {"images": make.random_images(20, (8, 8)), "labels": LABELS}
# (name of the file, whole contents to damage, what reads it)
READERS = {
    "idx": (
        "x",
        lambda: [make.idx_bytes(make.random_images(5, (28, 28)))],
        lambda p: published.read_idx(p, limit=10**7),
    ),
    "idx_gz": (
        "x.gz",
        lambda: [gzip.compress(make.idx_bytes(make.random_images(5, (28, 28))))],
        lambda p: published.read_idx(p, limit=MNIST.file_limit),
    ),
    "cifar_python": (
        "data_batch_1",
        lambda: [batch(protocol, scalars) for protocol in (0, 2, 4, 5) for scalars in (False, True)],
        lambda p: published.cifar_python([p], CIFAR10),
    ),
    "pickle": ("x", lambda: [pickle.dumps({"a": [1, (2, 3)], "b": b"c"})], lambda p: load_pickle(p.read_bytes(), p)),
    "cifar_binary": ("x.bin", lambda: [bytes(3 * 3073)], lambda p: published.cifar_binary([p], CIFAR10)),
    "matlab": ("x.mat", lambda: [mat(False), mat(True)], lambda p: matlab.read(p, limit=SVHN.file_limit)),
    "svhn": ("x.mat", lambda: [mat(False), mat(True)], lambda p: published.svhn([p], SVHN)),
    "lmdb": ("data.mdb", lambda: [lmdb_file()], lambda p: lmdb_images.read(p, limit=LSUN.file_limit)),
    "npy": ("x.npy", lambda: [saved(np.save, make.random_images(5, (8, 8, 3)))], ood_npy),
    "single_npy": (
        "x.npy",
        lambda: [saved(np.save, make.random_images(5, (8, 8, 3)) / order) for order in (255, np.float16(255))],
        lambda p: single_images.read([p], (8, 8, 3)),
    ),
    "npz": (
        "x.npz",
        lambda: [saved(save, **ARRAYS) for save in (np.savez, np.savez_compressed)],
        own_npz,
    ),
    "npz_headers": (
        "x.npz",
        lambda: [saved(np.savez, **ARRAYS)],
        lambda p: array_files.declared(p, ["images", "labels"]),
    ),
    "tar": ("x.tar.gz", lambda: [archive("tar")], lambda p: unpack(p, CIFAR10)),
    "zip": ("x.zip", lambda: [archive("zip")], lambda p: unpack(p, EMNIST)),
    "image": ("x.png", lambda: [saved(Image.fromarray(PIXELS).save, form) for form in FORMATS], images_of),
    "image_lossless": (
        "x.png",
        lambda: (
            [
                saved(Image.fromarray(PIXELS).convert(mode).save, form)
                for form, mode in (("PNG", "P"), ("PNG", "LA"), ("TIFF", "CMYK"), ("TIFF", "1"), ("PNG", "RGBA"))
            ]
            + [
                saved(Image.fromarray(PIXELS).save, "TIFF", compression=name)
                for name in ("tiff_lzw", "jpeg", "packbits")
            ]
        ),
        images_of,
    ),
}
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**40, 2**63 - 1, 2**64 - 1)


def damaged(content, source):
    """Bytes changed, numbers made large, parts cut off, repeated, moved or filled; inside of gzip and zlib, too."""
    if content[:2] == b"\x1f\x8b" and source.random() < 0.5:
        return gzip.compress(damaged(gzip.decompress(content), source), 1)
    if content[124:128] == b"\x00\x01IM" and content[128:129] == b"\x0f" and source.random() < 0.7:
        return with_damaged_elements(content, source)
    changed = bytearray(content)
    for _ in range(source.choice((1, 1, 2, 4, 8))):
        near = min(len(changed), source.choice((16, 130, 600, 10**9)))
        place = source.randrange(near) if near else 0
        kind = source.random()
        if kind < 0.35 and changed:
            changed[place] = source.choice((source.randrange(256), changed[place] ^ 1 << source.randrange(8)))
        elif kind < 0.65:
            size, order = source.choice((1, 2, 4, 8)), source.choice(("little", "big"))
            number = (source.choice(_NUMBERS) + source.choice((-1, 0, 0, 1))) % 2 ** (8 * size)
            changed[place : place + size] = number.to_bytes(size, order)
        elif kind < 0.75:
            del changed[place : place + source.choice((1, 4, 100))]
        elif kind < 0.85:
            part = changed[place : place + source.choice((1, 8, 64, 4_096))]
            changed[place:place] = part * source.choice((1, 3, 1_000))
        elif kind < 0.95:
            changed[place:place] = source.randbytes(source.choice((1, 4, 16)))
        else:
            del changed[place:]
    return bytes(changed)


def with_damaged_elements(content, source):
    """A compressed MATLAB file whose elements are damaged before they are packed."""
    parts, place = [content[:128]], 128
    while place < len(content):
        size = int.from_bytes(content[place + 4 : place + 8], "little")
        packed = zlib.compress(damaged(zlib.decompress(content[place + 8 : place + 8 + size]), source), 1)
        parts.append(content[place : place + 4] + len(packed).to_bytes(4, "little") + packed)
        place += 8 + size
    return b"".join(parts)


class TooSlowError(BaseException):
    """Not an Exception, which a reader would take for the file's fault."""


def stop(*_):
    raise TooSlowError(f"more than {SECONDS} s")


def problem(read, path):
    """What is wrong with how a file is read, or None; and whether it was refused."""
    signal.alarm(SECONDS)
    try:
        read(path)
    except DataError as error:
        return (None if "\n" not in str(error) and str(path.parent) in str(error) else repr(error)), True
    except BaseException as error:
        return f"{type(error).__name__}: {error}", False
    finally:
        signal.alarm(0)
    return None, False


def limit():
    """Limits this process's address space, and lets it be stopped."""
    warnings.simplefilter("ignore")  # Pillow's, about what it could still read
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.signal(signal.SIGALRM, stop)


def fuzz(name, count, seed):
    """Reads `count` damaged files."""
    file, contents, read = READERS[name]
    contents = contents()
    source, problems, refused, slowest = random.Random(f"{name} {seed}"), [], 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, file)
        for number in range(count):
            content = damaged(source.choice(contents), source)
            path.write_bytes(content)
            start = time.perf_counter()
            found, was_refused = problem(read, path)
            slowest = max(slowest, time.perf_counter() - start)
            refused += was_refused
            if found is not None:
                problems.append([number, found[:300]])
                if keep := os.environ.get("KEEP"):
                    Path(keep, f"{name}_{number}").write_bytes(content)
    with open("/proc/self/status") as status:
        # Of this process alone: what getrusage says begins with its parent's, from before it was started.
        peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
    values = {"tried": count, "refused": refused, "problems": problems[:20], "peak_mb": round(peak)}
    return {"name": name, **values, "slowest": round(slowest, 2)}


if __name__ == "__main__":
    limit()
    for reader in sys.argv[3:] or READERS:
        print(json.dumps(fuzz(reader, int(sys.argv[1]), int(sys.argv[2]))), flush=True)
