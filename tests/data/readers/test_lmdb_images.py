"""Our reader of lmdb against the C library, and against damage."""

import os
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preload_jax.data.readers import lmdb_images
from preload_jax.errors import DataError

lmdb = pytest.importorskip("lmdb", reason="the package lmdb writes the files that are read here")


def write(folder, items, *, deleted=()):
    with lmdb.open(str(folder), map_size=1 << 26) as environment:
        with environment.begin(write=True) as transaction:
            for key, value in items.items():
                transaction.put(key, value)
        with environment.begin(write=True) as transaction:
            for key in deleted:
                transaction.delete(key)
    return folder / "data.mdb"


@pytest.mark.parametrize(
    ("count", "size"), [(0, 0), (1, 10), (40, 3_000), (60, 20_000), (3_000, 60)], ids=lambda value: str(value)
)
def test_reads_what_the_library_wrote(tmp_path, count, size):
    source = random.Random(count)
    items = {source.randbytes(20): source.randbytes(source.randint(0, size)) for _ in range(count)}
    gone = list(items)[: count // 3]
    path = write(tmp_path, items, deleted=gone)
    assert lmdb_images.read_items(path, limit=2**26) == sorted((key, items[key]) for key in items.keys() - set(gone))


def test_images_in_the_order_of_their_keys(make, tmp_path):
    images = [make.random_images(1, (5 + i, 7, 3), i)[0] for i in range(3)]
    # LSUN's values are WebP; lossless here, to compare.
    path = write(
        tmp_path, {b"c": make.encoded(images[2]), b"a": make.encoded(images[0]), b"b": make.encoded(images[1])}
    )
    for read, image in zip(lmdb_images.read(path, limit=2**26), images, strict=True):
        np.testing.assert_array_equal(read, image)


def test_a_value_that_is_no_image(tmp_path):
    with pytest.raises(DataError, match=r"image b'k' is not readable"):
        lmdb_images.read(write(tmp_path, {b"k": b"no image"}), limit=2**26)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    items = {f"{i:04d}".encode(): os.urandom(random.Random(i).choice([20, 5_000])) for i in range(150)}
    return write(tmp_path_factory.mktemp("lmdb"), items).read_bytes()


@pytest.mark.parametrize("length", [0, 10, 100, 4_095, 8_192, 20_000])
def test_truncated(good, tmp_path, length):
    path = tmp_path / "data.mdb"
    path.write_bytes(good[:length])
    with pytest.raises(DataError, match="damaged or truncated"):
        lmdb_images.read_items(path, limit=2**26)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_only_data_errors_escape(make, good, tmp_path_factory, data):
    content = bytearray(good)
    for _ in range(data.draw(st.integers(1, 8))):
        page = data.draw(st.integers(0, len(content) // 4096 - 1)) * 4096
        content[page + data.draw(st.integers(0, 200))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.mdb"
    path.write_bytes(content)
    assert "\n" not in make.error_of(lambda: lmdb_images.read_items(path, limit=2**26))
