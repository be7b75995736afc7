"""Our reader of MATLAB files against SciPy's, and against damage."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from preload_jax.data.readers import matlab
from preload_jax.errors import DataError

NUMBERS = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]


@settings(max_examples=40, deadline=None)
@given(
    compressed=st.booleans(),
    dtype=st.sampled_from(NUMBERS),
    shape=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    name=st.sampled_from(["X", "y", "a_longer_name"]),
)
def test_reads_what_scipy_wrote(tmp_path_factory, compressed, dtype, shape, name):
    path = tmp_path_factory.getbasetemp() / "x.mat"
    array = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    savemat(path, {name: array, "text": "passed over", "z": np.array([[1j]])}, do_compression=compressed)
    read = matlab.read(path, limit=10**6)
    assert read.keys() == {name}
    np.testing.assert_array_equal(read[name], array)
    assert read[name].dtype == array.dtype


def test_matlab_stores_numbers_in_the_smallest_type_that_holds_them(tmp_path):
    """A double array may be stored as bytes: class 6, numbers of type 2."""
    parts = [(6, struct.pack("<II", 6, 0)), (5, struct.pack("<ii", 3, 1)), (1, b"y"), (2, bytes([1, 9, 10]))]
    body = b"".join(struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8) for kind, data in parts)
    path = tmp_path / "x.mat"
    path.write_bytes(bytes(124) + b"\x00\x01IM" + struct.pack("<II", 14, len(body)) + body)
    read = matlab.read(path, limit=10**6)["y"]
    assert read.dtype == np.float64
    assert read.tolist() == [[1], [9], [10]]


@pytest.mark.parametrize("content", [b"", b"MATLAB 5.0", bytes(200), b"\x89HDF\r\n\x1a\n" + bytes(200)])
def test_other_files(tmp_path, content):
    path = tmp_path / "x.mat"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"x.mat: not a readable MATLAB file"):
        matlab.read(path, limit=10**6)


@pytest.mark.parametrize("start", [0, 512])
def test_version_7_3_is_named_with_what_helps(tmp_path, start):
    path = tmp_path / "x.mat"
    path.write_bytes(
        b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(start)[:start] + b"\x89HDF\r\n\x1a\n" + bytes(2_000)
    )
    with pytest.raises(
        DataError, match=r"version 7\.3, which is HDF5\); take the published file, or save it from MATLAB"
    ):
        matlab.read(path, limit=10**6)


@pytest.mark.parametrize("compressed", [True, False])
def test_arrays_that_are_larger_than_the_limit(tmp_path, compressed):
    savemat(tmp_path / "x.mat", {"X": np.zeros((100, 100))}, do_compression=compressed)
    assert matlab.read(tmp_path / "x.mat", limit=81_000)["X"].shape == (100, 100)
    with pytest.raises(DataError, match="holds more than 79,999 bytes"):
        matlab.read(tmp_path / "x.mat", limit=79_999)


@pytest.mark.parametrize("compressed", [True, False])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_only_data_errors_escape(make, tmp_path_factory, compressed, data):
    path = tmp_path_factory.getbasetemp() / "damaged.mat"
    savemat(path, {"X": np.arange(40, dtype=np.uint8).reshape(2, 20), "y": np.ones((3, 1))}, do_compression=compressed)
    content = bytearray(path.read_bytes())
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    for _ in range(data.draw(st.integers(0, 4))):
        if len(content) > 128:
            content[data.draw(st.integers(128, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    assert "\n" not in make.error_of(lambda: matlab.read(path, limit=10**6))
