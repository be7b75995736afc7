"""Reading a pickle must never run what is in it."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from preload_jax.data.readers.pickles import load_pickle
from preload_jax.errors import DataError

PATH = Path("data_batch_1")


class Malicious:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (self.target,)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_code_is_refused_and_not_run(tmp_path, protocol):
    target = tmp_path / "owned"
    content = pickle.dumps({"data": Malicious(str(target))}, protocol=protocol)
    with pytest.raises(DataError, match="which an array does not need"):
        load_pickle(content, PATH)
    assert not target.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cbuiltins\neval\n(V1\ntR.",
        b"cos\nsystem\n(Vtrue\ntR.",
        b"cnumpy\nload\n(Vx\ntR.",
        b"cnumpy.f2py.capi_maps\nos\n.",
        b"c__builtin__\ngetattr\n.",
    ],
)
def test_names_outside_the_list_are_refused(content):
    with pytest.raises(DataError):
        load_pickle(content, PATH)


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_lists_and_strings_are_read(protocol):
    value = {b"data": np.arange(6, dtype=np.uint8).reshape(2, 3), "labels": [1, 2], b"batch_label": b"one of 5"}
    read = load_pickle(pickle.dumps(value, protocol=protocol), PATH)
    np.testing.assert_array_equal(read["data"], value[b"data"])
    assert read["labels"] == [1, 2]
    assert read["batch_label"] == b"one of 5"


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("dtype", ["u1", "i2", "<u2", ">i2", ">u4", "i8", "f2", ">f4", "f8", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_every_type_and_order(protocol, dtype, order):
    array = np.asarray(np.arange(24).reshape(2, 3, 4), dtype, order=order)
    scalars = list(array.ravel()[:3])
    read = load_pickle(pickle.dumps({"a": array, "scalars": scalars, "empty": array[:0]}, protocol=protocol), PATH)
    np.testing.assert_array_equal(read["a"], array)
    assert read["scalars"] == scalars
    assert read["empty"].shape == (0, 3, 4)


@pytest.mark.parametrize("array", [np.array(["text"]), np.zeros(2, "i4,f4"), np.array([{}]), np.zeros(1, "M8[s]")])
def test_arrays_of_other_things_are_refused(array):
    with pytest.raises(DataError, match="not a readable pickle of arrays"):
        load_pickle(pickle.dumps({"a": array}), PATH)


@pytest.mark.parametrize("key", [(1, 2), None, 1.5, frozenset([1])])
def test_keys_are_names(key):
    with pytest.raises(DataError, match="not a readable pickle of arrays"):
        load_pickle(pickle.dumps({key: 1}), PATH)


def test_python_2_pickles_as_published_are_read():
    """A dictionary that Python 2 wrote: its strings are bytes, its module names are NumPy 1's."""
    content = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b"
        b"\x87Rq\x05(K\x01K\x01K\x03\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89U\x03\x07\x08\xfftbU\x06labelsq\x08]q\tK\x06au."
    )
    read = load_pickle(content, PATH)
    assert read["data"].tolist() == [[7, 8, 255]]
    assert read["labels"] == [6]


@pytest.mark.parametrize("content", [b"", b"\x80", b"}", b"not a pickle", b"\x80\x02]q\x00."])
def test_damaged_pickles(content):
    with pytest.raises(DataError, match="data_batch_1"):
        load_pickle(content, PATH)
