"""Small files that say they hold, or unpack to, gigabytes. `python -m tests.data.bombs NAME…` reads them in 2 GB.

Each must end in a DataError, or be read, within the limits of `fuzzing`; what it says is printed as JSON.
"""

import gzip
import io
import json
import os
import pickle
import resource
import signal
import struct
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from pathlib import Path

import numpy as np

from preload_jax.data import datasets
from preload_jax.data.preparing.prepare import prepare
from preload_jax.data.readers import lmdb_images, matlab, published
from preload_jax.data.readers.pickles import load_pickle
from preload_jax.errors import DataError
from tests import published_files as make
from tests.data import fuzzing

GIGABYTE = 2**30


def deflated_zeros(size, *, wbits):
    """`size` zeros, packed a thousand to one: one packed block again and again, so that it is made fast."""
    packer = zlib.compressobj(9, wbits=wbits)
    block = bytes(2**24)
    head = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + again * (size // len(block) - 1)


def mnist(folder, content):
    make.mnist(folder / "mnist")
    (folder / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(content)
    prepare("mnist", data_dir=folder / "data", source=folder)


def gzip_of_zeros(folder):
    mnist(folder, deflated_zeros(10 * GIGABYTE, wbits=31))


def gzip_of_many_members(folder):
    mnist(folder, gzip.compress(bytes(2**26)) * 160)


def idx_that_declares_much(folder):
    header = struct.pack(">BBBBIII", 0, 0, 8, 3, 13_000_000, 28, 28)
    mnist(folder, gzip.compress(header) + deflated_zeros(10 * GIGABYTE, wbits=31))


def sparse_idx(folder):
    make.mnist(folder / "mnist", zipped=False)
    os.truncate(folder / "mnist" / "train-images-idx3-ubyte", GIGABYTE - 1)
    prepare("mnist", data_dir=folder / "data", source=folder, check_sizes=False)


def cifar_tar(folder, name, size, kind=tarfile.REGTYPE):
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    header = member.tobuf(tarfile.GNU_FORMAT)
    packer = zlib.compressobj(1, wbits=31)
    content = packer.compress(header) + packer.flush(zlib.Z_FULL_FLUSH)
    zeros = deflated_zeros(size, wbits=-15)
    (folder / "cifar-10-python.tar.gz").write_bytes(content + zeros)
    prepare("cifar10", data_dir=folder / "data", source=folder)


def tar_with_a_large_member(folder):
    cifar_tar(folder, "c/data_batch_1", 7 * GIGABYTE)


def tar_with_a_large_stranger(folder):
    cifar_tar(folder, "c/readme.html", 7 * GIGABYTE)


def tar_with_a_large_header(folder):
    cifar_tar(folder, "././@LongLink", 7 * GIGABYTE, tarfile.GNUTYPE_LONGNAME)


def zip_with_a_large_member(folder):
    with zipfile.ZipFile(folder / "gzip.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        packed.writestr("gzip/emnist-letters-train-images-idx3-ubyte", bytes(2**27))
    prepare("emnist", data_dir=folder / "data", source=folder)


def svhn(folder, element):
    make.svhn(folder / "svhn")
    body = bytes(124) + b"\x00\x01IM" + struct.pack("<II", 15, len(element)) + element
    (folder / "svhn" / "train_32x32.mat").write_bytes(body)
    prepare("svhn", data_dir=folder / "data", source=folder)


def matlab_of_zeros(folder):
    svhn(folder, deflated_zeros(3 * GIGABYTE, wbits=15))


def matlab_of_small_numbers(folder):
    """Bytes that are to become 8 bytes each."""
    count = 220_000_000
    parts = [(6, struct.pack("<II", 6, 0)), (5, struct.pack("<ii", count, 1)), (1, b"y")]
    head = b"".join(struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8) for kind, data in parts)
    head += struct.pack("<II", 2, count)
    packer = zlib.compressobj(1)
    start = packer.compress(struct.pack("<II", 14, len(head) + count) + head) + packer.flush(zlib.Z_FULL_FLUSH)
    rest = packer.compress(bytes(count)) + packer.flush()
    path = folder / "x.mat"
    element = start + rest
    path.write_bytes(bytes(124) + b"\x00\x01IM" + struct.pack("<II", 15, len(element)) + element)
    matlab.read(path, limit=fuzzing.SVHN.file_limit)


def lmdb_of_one_value(folder):
    """32,000 nodes of one value of 40 MB, in leaves below a branch."""
    page, value = 4_096, 40_000_000
    nodes_a_page = (page - 16) // (2 + 8 + 1 + 8 + 1)
    leaves = 160
    first_value = 3 + leaves

    def header(number, flags, count):
        return struct.pack("<QHHHH", number, 0, flags, 16 + 2 * count, 0)

    def fill(head, nodes):
        place, offsets, body = page, [], b""
        for node in nodes:
            place -= len(node)
            offsets.append(place)
            body = node + body
        content = head + struct.pack(f"<{len(offsets)}H", *offsets)
        return content + bytes(place - len(content)) + body

    big = struct.pack("<HHHH", value & 0xFFFF, value >> 16, 1, 1) + b"k" + struct.pack("<Q", first_value) + b"\0"
    branch = [struct.pack("<HHHH", (3 + n) & 0xFFFF, (3 + n) >> 16, 0, 0) for n in range(leaves)]
    meta = struct.pack("<II", 0xBEEFC0DE, 1) + struct.pack("<QQ", 0, 2**30)
    free = struct.pack("<IHHQQQQQ", page, 0, 0, 0, 0, 0, 0, 2**64 - 1)
    main = struct.pack("<IHHQQQQQ", 0, 0, 2, 1, leaves, 0, leaves * nodes_a_page, 2)
    metas = [
        struct.pack("<QHHHH", n, 0, 8, 0, 0) + meta + free + main + struct.pack("<QQ", first_value, n) for n in (0, 1)
    ]
    content = b"".join(part + bytes(page - len(part)) for part in metas) + fill(header(2, 1, leaves), branch)
    content += b"".join(fill(header(3 + n, 2, nodes_a_page), [big] * nodes_a_page) for n in range(leaves))
    path = folder / "data.mdb"
    path.write_bytes(content + bytes(value + page))
    lmdb_images.read(path, limit=fuzzing.LSUN.file_limit)


def nested(kind):
    value = kind((1,))
    for _ in range(60):
        value = kind((value, value))
    return value


def pickle_of_nested_key(folder):
    # Written by hand: pickling it hashes it, too.
    content = (
        b"\x80\x02}(K\x01\x85q\x00"
        + b"".join(b"h" + bytes([n]) + b"\x86q" + bytes([n + 1]) for n in range(60))
        + b"K\x01u."
    )
    path = folder / "data_batch_1"
    path.write_bytes(content)
    published.cifar_python([path], fuzzing.CIFAR10)


def pickle_of_nested_labels(folder):
    path = folder / "data_batch_1"
    path.write_bytes(pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": nested(list)}, protocol=2))
    published.cifar_python([path], fuzzing.CIFAR10)


def pickle_of_a_set(folder):
    load_pickle(b"\x80\x04\x8f(" + b"K\x01\x85\x94" + b"h\x00\x86\x94" * 50 + b"\x90.", folder / "x")


def pickle_of_a_large_bytearray(folder):
    load_pickle(b"\x80\x05\x96" + struct.pack("<Q", 6 * GIGABYTE) + b"x.", folder / "x")


def pickle_of_copies(folder):
    """One text of 10 MB that is to be encoded a thousand times, each result kept."""
    text = b"X" + struct.pack("<I", 10**7) + b"a" * 10**7 + b"q\x000" + b"X\x06\x00\x00\x00latin1q\x010"
    content = b"\x80\x02" + text + b"c_codecs\nencode\nq\x020(" + b"h\x02h\x00h\x01\x86R" * 1_000 + b"l."
    load_pickle(content, folder / "x")


def pickle_of_marks(folder):
    load_pickle(b"\x80\x02" + b"(" * 30_000_000, folder / "x")


def two_large_images_a_class(folder):
    from PIL import Image

    for name in "ab":
        (folder / "x" / name).mkdir(parents=True)
        for number in range(2):
            path = folder / "x" / name / f"{number}.png"
            if not (folder / "large.png").exists():
                Image.new("RGBA", (8_000, 8_000), (9, 9, 9, 128)).save(folder / "large.png", compress_level=1)
            path.symlink_to(folder / "large.png")
    splits = datasets.load(f"folder:{folder / 'x'}", data_dir=folder / "data", validation="none")
    assert len(splits.train) == 3


def npz_of_zeros(folder):
    path = folder / "own.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (20_000_000, 8, 8, 1)}
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        with packed.open("images.npy", "w", force_zip64=True) as file:
            file.write(header.getvalue())
            for _ in range(20):
                file.write(bytes(64_000_000))
        with packed.open("labels.npy", "w") as file:
            np.save(file, (np.arange(20_000_000) % 2).astype(np.uint8))
    datasets.load(str(path))


def sparse_npy(folder):
    path = folder / "ood.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "|u1", "fortran_order": False, "shape": (100_000_000, 1, 1, 1)}
        )
        file.truncate(file.tell() + 100_000_000)
    datasets.load_ood(
        str(path), in_domain=datasets.get("fashion_mnist"), test_images=np.zeros((1, 28, 28, 1), np.uint8)
    )


def links_that_double(folder):
    """Forty folders, each with two links to the next: a trillion paths."""
    for number in range(40):
        here = folder / "x" / str(number)
        here.mkdir(parents=True)
        for name in "ab":
            (here / name).symlink_to(folder / "x" / str(number + 1))
    (folder / "x" / "40").mkdir()
    datasets.check_ood(f"folder:{folder}/x/0")


BOMBS = {
    function.__name__: function
    for function in (
        gzip_of_zeros,
        gzip_of_many_members,
        idx_that_declares_much,
        sparse_idx,
        tar_with_a_large_member,
        tar_with_a_large_stranger,
        tar_with_a_large_header,
        zip_with_a_large_member,
        matlab_of_zeros,
        matlab_of_small_numbers,
        lmdb_of_one_value,
        pickle_of_nested_key,
        pickle_of_nested_labels,
        pickle_of_a_set,
        pickle_of_a_large_bytearray,
        pickle_of_copies,
        pickle_of_marks,
        two_large_images_a_class,
        npz_of_zeros,
        sparse_npy,
        links_that_double,
    )
}


def written(folder):
    """Bytes that the reader left on the disk."""
    return sum(path.stat().st_blocks * 512 for path in (folder / "data").rglob("*") if path.is_file())


def read(name):
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        said = ""
        signal.alarm(60)  # Making the file counts, too.
        try:
            BOMBS[name](Path(folder))
        except DataError as error:
            said = str(error).replace(folder, "HERE")
        signal.alarm(0)
        disk = written(Path(folder))
    seconds = time.perf_counter() - start
    with open("/proc/self/status") as status:
        # Of this process alone: what getrusage says begins with its parent's, from before it was started.
        peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
    return {
        "name": name,
        "said": said,
        "peak_mb": round(peak),
        "seconds": round(seconds, 1),
        "disk_mb": round(disk / 1e6),
    }


def main(names):
    fuzzing.limit()
    resource.setrlimit(resource.RLIMIT_FSIZE, (GIGABYTE, GIGABYTE))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for name in names:
        print(json.dumps(read(name)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
