"""Arrays in .npz files: always the same bytes, any flipped bit is noticed or harmless, other readers read them."""

import io
import zipfile

import numpy as np
import pytest

from preload_jax.errors import DataError
from preload_jax.formats import arrays
from tests.formats.test_records import flips

ARRAYS = {
    "in_domain": np.linspace(-3, 3, 40, dtype=np.float32),
    "folder:a/b": np.arange(6.0).reshape(2, 3).T,
    "one": np.float64(2.5),
    "none": np.empty(0, np.float32),
}


def same(found):
    return found.keys() == ARRAYS.keys() and all(
        found[name].dtype == array.dtype and np.array_equal(found[name], array) for name, array in ARRAYS.items()
    )


def test_there_and_back(tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(arrays.dumps(ARRAYS))
    assert same(arrays.read(path))
    with np.load(path) as file:
        assert same(dict(file))
    assert arrays.dumps(dict(reversed(ARRAYS.items()))) == path.read_bytes()
    buffer = io.BytesIO()
    np.savez(buffer, **ARRAYS)  # as older runs have them
    path.write_bytes(buffer.getvalue())
    assert same(arrays.read(path))


def test_every_flipped_bit_is_noticed_or_harmless(tmp_path):
    path, noticed = tmp_path / "a.npz", []
    for changed in flips(arrays.dumps(ARRAYS), count=1_500):
        path.write_bytes(changed)
        try:
            assert same(arrays.read(path))
        except DataError as error:
            noticed.append(str(error))
    assert len(noticed) > 700
    assert all(str(path) in message for message in noticed)


def archive(members, **options):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **options) as file:
        for name, content in members:
            file.writestr(name, content)
    return buffer.getvalue()


def header(shape, dtype="<f4"):
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04 and so on",
        archive([("a.npy", header((10**12,)) + bytes(8))]),
        archive([("a.npy", header((2,)) + bytes(12))]),
        archive([("a.npy", header((2,), "|O") + bytes(16))]),
        archive([("a.npy", b"\x80\x04\x95pickled")]),
        archive([("a.npy", header((2**20,)) + bytes(2**22))], compression=zipfile.ZIP_DEFLATED),
    ],
)
def test_anything_else_is_refused(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError):
        arrays.read(tmp_path / "a.npz")
