"""Files of `torch.save`: types, strides, both formats; damaged and hostile ones; and torch itself where it is."""

import collections
import contextlib
import dataclasses
import io
import os
import pickle
import time
import zipfile

import ml_dtypes
import numpy as np
import pytest

from preload_jax.errors import DataError
from preload_jax.formats.torch_file import read_state_dict
from tests import torch_files
from tests.torch_files import Call, Items, Name, Storage, Tensor, tensor

BASE = np.arange(24, dtype=np.float32)
SHARED = Storage(BASE)
# name → (tensor, what it holds)
CASES = {
    "float.weight": (tensor(BASE.reshape(4, 6)), BASE.reshape(4, 6)),
    "transposed.weight": (Tensor(SHARED, 0, (6, 4), (1, 6)), BASE.reshape(4, 6).T),
    "shared.weight": (Tensor(SHARED, 3, (2, 3), (6, 2)), np.array([[3, 5, 7], [9, 11, 13]], np.float32)),
    "expanded.weight": (Tensor(SHARED, 5, (3, 2), (0, 1)), np.array([[5, 6]] * 3, np.float32)),
    "half.weight": (tensor(BASE.astype(np.float16)), BASE.astype(np.float16)),
    "bfloat16.weight": (tensor(BASE.astype(ml_dtypes.bfloat16)), BASE.astype(ml_dtypes.bfloat16)),
    "double.weight": (tensor(np.pi * BASE.astype(np.float64)), np.pi * BASE.astype(np.float64)),
    "num_batches_tracked": (tensor(np.int64(2**40)), np.array(2**40)),
    "flags": (tensor(np.array([True, False])), np.array([True, False])),
    "empty": (tensor(np.zeros((0, 3), np.float32)), np.zeros((0, 3), np.float32)),
}
STATE_DICT = collections.OrderedDict((name, given) for name, (given, _) in CASES.items())
FORMATS = [{}, {"byteorder": "big"}, {"legacy": True}, {"legacy": True, "byteorder": "big"}]


@pytest.mark.parametrize("options", FORMATS, ids=str)
def test_every_type_and_layout(tmp_path, options):
    found = read_state_dict(torch_files.save(tmp_path / "a.pt", STATE_DICT, **options))
    assert list(found) == list(CASES)
    for name, (_, expected) in CASES.items():
        assert found[name].dtype == expected.dtype, name
        np.testing.assert_array_equal(found[name], expected, err_msg=name)
        assert found[name].shape == expected.shape


@pytest.mark.parametrize(
    "wrap",
    [
        lambda part: {"epoch": 3, "state_dict": part, "optimizer": {"state": {0: {"m": tensor(BASE)}}}},
        lambda part: {"network": part, "loss": [0.5, (1, None, True)]},
        lambda part: {"model": part, "ema": torch_files.tensors({"a.weight": BASE})},
    ],
)
def test_a_state_dict_within_a_checkpoint(tmp_path, wrap):
    found = read_state_dict(torch_files.save(tmp_path / "a.pt", wrap(STATE_DICT)))
    assert list(found) == list(CASES)


NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)
COMPLEX = (NUMBERS + 1j * NUMBERS[::-1]).astype(np.complex64)


@pytest.mark.parametrize(
    ("array", "flags", "expected"),
    [
        (NUMBERS, {}, NUMBERS),
        (NUMBERS, {"neg": True}, -NUMBERS),
        (NUMBERS, {"neg": False, "conj": False}, NUMBERS),
        (NUMBERS, {"conj": True}, NUMBERS),
        (COMPLEX, {"conj": True}, COMPLEX.conj()),
        (COMPLEX, {"conj": True, "neg": True}, -COMPLEX.conj()),
    ],
)
@pytest.mark.parametrize("options", FORMATS, ids=str)
def test_flags_of_a_tensor_are_honoured(tmp_path, array, flags, expected, options):
    given = dataclasses.replace(tensor(array), flags=flags)
    found = read_state_dict(torch_files.save(tmp_path / "a.pt", {"a.weight": given}, **options))["a.weight"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("flags", [{"other": True}, {"neg": 1}, {1: True}, [1], "neg"])
def test_flags_that_are_not_known_are_refused(tmp_path, flags):
    given = dataclasses.replace(tensor(NUMBERS), flags=flags)
    with pytest.raises(DataError, match="a tensor in it has"):
        read_state_dict(torch_files.save(tmp_path / "a.pt", {"a.weight": given}))


def test_a_tensor_whose_type_is_said_beside_untyped_bytes(tmp_path):
    for dtype, named in ((np.uint16, "uint16"), (np.float32, "float32"), (ml_dtypes.float8_e4m3fn, "float8_e4m3fn")):
        array = np.arange(6).astype(dtype)
        storage = Storage(array.view(np.uint8))
        arguments = (storage, 1, (2, 2), (2, 1), False, collections.OrderedDict(), Name("torch", named))
        given = {"a.weight": Call(Name("torch._utils", "_rebuild_tensor_v3"), arguments)}
        found = read_state_dict(torch_files.save(tmp_path / "a.pt", given))["a.weight"]
        np.testing.assert_array_equal(found, array[1:5].reshape(2, 2))


def of_type(part):
    """A tensor with attributes of its own."""
    rest = (part.storage, part.offset, part.shape, part.strides, False, collections.OrderedDict())
    arguments = (Name("torch._utils", "_rebuild_tensor_v2"), Name("torch", "Tensor"), rest, {"tag": "hi"})
    return Call(Name("torch._tensor", "_rebuild_from_type_v2"), arguments)


BESIDE = {
    "a scheduler's milestones": Call(Name("collections", "Counter"), ({3: 1, 5: 2},)),
    "an empty counter": Call(Name("collections", "Counter"), ()),
    "a set": Call(Name("__builtin__", "set"), ([1, 2],)),
    "a set of Python 3": Call(Name("builtins", "set"), ([1, 2],)),
    "a complex number": Call(Name("builtins", "complex"), (0.0, 1.0)),
    "bytes": Call(Name("_codecs", "encode"), ("abc", "latin1")),
    "a byte array": Call(Name("builtins", "bytearray"), (Call(Name("_codecs", "encode"), ("abc", "latin1")),)),
    "a size": Call(Name("torch", "Size"), ((2, 3),)),
    "a device": Call(Name("torch", "device"), ("cuda", 0)),
    "a layout": Call(Name("torch.serialization", "_get_layout"), ("torch.strided",)),
    "a type": Name("torch", "float32"),
    "a sparse tensor": Call(Name("torch._utils", "_rebuild_sparse_tensor"), (1, (2, 3))),
    "a generator's state": {"rng": tensor(np.arange(4, dtype=np.uint8))},
    "odd keys": {(1, 2): 3, None: 1, 1.5: 2, True: 0, ("a", ("b", ("c",))): 1},
    "a large number": 2**70,
    "an optimiser": {"state": {0: {"step": tensor(np.float32(3))}}, "param_groups": [{"lr": 0.1, "params": [0]}]},
}


@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("legacy", [False, True])
def test_what_may_be_beside_a_state_dict(tmp_path, name, legacy):
    value = {"state_dict": torch_files.tensors({"a.weight": BASE}), "beside": BESIDE[name]}
    assert list(read_state_dict(torch_files.save(tmp_path / "a.pt", value, legacy=legacy))) == ["a.weight"]


def test_an_odd_tensor_in_a_state_dict_is_named(tmp_path):
    value = {"a.weight": tensor(BASE), "b.weight": BESIDE["a sparse tensor"]}
    with pytest.raises(DataError, match=r"b\.weight is a sparse tensor; expected an ordinary one"):
        read_state_dict(torch_files.save(tmp_path / "a.pt", value))


def test_parameters_and_tensors_with_attributes(tmp_path):
    part, hooks = tensor(NUMBERS), collections.OrderedDict()
    value = {
        "a.weight": Call(Name("torch._utils", "_rebuild_parameter"), (part, True, hooks)),
        "b.weight": Call(Name("torch._utils", "_rebuild_parameter_with_state"), (part, True, hooks, {"tag": "hi"})),
        "c.weight": of_type(part),
    }
    for array in read_state_dict(torch_files.save(tmp_path / "a.pt", value)).values():
        np.testing.assert_array_equal(array, NUMBERS)


def test_without_checksums(tmp_path):
    """As `torch.save` writes with compute_crc32=False."""
    content = torch_files.content(STATE_DICT, checksums=False)
    assert zipfile.ZipFile(io.BytesIO(content)).testzip() is not None
    (tmp_path / "a.pt").write_bytes(content)
    assert list(read_state_dict(tmp_path / "a.pt")) == list(CASES)


def test_a_state_dict_that_is_deeper(tmp_path):
    value = {"run": {"best": {"net": torch_files.tensors({"a.weight": BASE})}}}
    assert list(read_state_dict(torch_files.save(tmp_path / "a.pt", value))) == ["a.weight"]


def nested(depth):
    value = ("x",)
    for _ in range(depth):
        value = (value, value)
    return value


WEIGHT = ("a.weight", tensor(BASE))
REPEATING = {
    "a key": Items(((nested(40), 1), WEIGHT)),
    "a key of a state dict": {"state_dict": Items(((nested(40), tensor(BASE)), WEIGHT))},
    "a key of a counter": Items((WEIGHT, ("b", Call(Name("collections", "Counter"), (Items(((nested(40), 1),)),))))),
    "a set's": Items((WEIGHT, ("b", Call(Name("builtins", "set"), ([nested(40)],))))),
    "all there is": nested(40),
    "a shape": Items((("a.weight", Tensor(SHARED, 0, nested(40), nested(40))),)),
    "a flag": Items((("a.weight", Tensor(SHARED, 0, (1,), (1,), Items(((nested(40), True),)))),)),
}


@pytest.mark.parametrize("where", REPEATING)
def test_parts_that_repeat_take_no_time(tmp_path, where):
    """Hashing, comparing or showing such a tuple takes 2⁴⁰ steps."""
    path = torch_files.save(tmp_path / "a.pt", REPEATING[where])
    started = time.monotonic()
    with contextlib.suppress(DataError):
        read_state_dict(path)
    assert time.monotonic() - started < 10


def test_a_storages_name_that_repeats_takes_no_time(tmp_path):
    name = pickle.dumps(nested(40), protocol=2)[2:-1]
    pid = b"(" + b"X\x07\x00\x00\x00storage" + b"ctorch\nFloatStorage\n" + name + b"X\x03\x00\x00\x00cpuK\x02tQ"
    (tmp_path / "a.pt").write_bytes(archive({"a/data.pkl": b"\x80\x02" + pid + b"."}))
    with pytest.raises(DataError, match="has no name"):
        read_state_dict(tmp_path / "a.pt")


def test_dictionaries_that_repeat_take_no_time(tmp_path):
    value = torch_files.tensors({"a.weight": BASE})
    for _ in range(40):
        value = {"x": value, "y": value}
    started = time.monotonic()
    with pytest.raises(DataError, match="no state dict"):
        read_state_dict(torch_files.save(tmp_path / "a.pt", value))
    assert time.monotonic() - started < 10


def test_more_tensors_and_numbers_than_the_short_pickle_instructions_count(tmp_path):
    last = Storage(np.arange(70_000, dtype=np.float32))
    given = {f"{i}.weight": Tensor(last if i > 200 else SHARED, i % 24, (1,), (1,)) for i in range(300)}
    found = read_state_dict(torch_files.save(tmp_path / "a.pt", collections.OrderedDict(given)))
    np.testing.assert_array_equal([found[name][0] for name in given], np.resize(BASE, 300))


def old(name, *, view=b"N"):
    """A file of an early torch under Python 2: byte strings, GPUs' storages, tensors without their gradients' part."""
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    heads = b"".join(pickle.dumps(head, protocol=2) for head in (0x1950A86A20F9469CFC6C, 1001, system))
    storage = b"((U\x07storagectorch.cuda\nFloatStorage\nU\x01kU\x06cuda:0K\x02" + view + b"tQ"
    tensor = b"ctorch._utils\n_rebuild_tensor\n" + storage + b"K\x00K\x02\x85K\x01\x85tR"
    state_dict = b"\x80\x02ccollections\nOrderedDict\n)R(" + name + tensor + b"u."
    return heads + state_dict + pickle.dumps(["k"], protocol=2) + (2).to_bytes(8, "little") + OLD.tobytes()


OLD = np.array([1.5, -2.0], np.float32)


@pytest.mark.parametrize("name", [b"U\x08a.weight", b"T\x08\x00\x00\x00a.weight"])
def test_a_file_of_python_2(tmp_path, name):
    (tmp_path / "a.pt").write_bytes(old(name))
    found = read_state_dict(tmp_path / "a.pt")
    assert list(found) == ["a.weight"]
    np.testing.assert_array_equal(found["a.weight"], OLD)


def other(value, **options):
    return torch_files.content(value, **options)


def archive(members, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as into:
        for name, content in members.items():
            into.writestr(name, content)
    return file.getvalue()


def wide(shape, strides, offset=0):
    return other({"a.weight": Tensor(SHARED, offset, shape, strides)})


def overlapping():
    """An archive in which two members are the same bytes of the file."""
    content = archive({"a/data.pkl": b".", "a/data/0": b"0" * 5_000, "a/data/1": b"1" * 5_000})
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        first, second = (file.getinfo(f"a/data/{i}").header_offset for i in range(2))
    directory = content[content.index(b"PK\x01\x02") :].replace(
        second.to_bytes(4, "little"), first.to_bytes(4, "little")
    )
    end = directory.index(b"PK\x05\x06")
    position = (second).to_bytes(4, "little")
    return content[:second] + directory[: end + 16] + position + directory[end + 20 :]


RUN = Call(Name("os", "system"), ("touch ran",))
WRONG = {
    "code at the top": (other(RUN), "asks for 'os.system'"),
    "code in a state dict": (other({"a.weight": tensor(BASE), "b": RUN}), "asks for 'os.system'"),
    "code in the older format": (other({"a.weight": RUN}, legacy=True), "asks for 'os.system'"),
    "code behind a name": (archive({"a/data.pkl": b"\x80\x04\x8c\x02os\x8c\x06system\x93."}), "instruction 140"),
    "code by a class's arguments": (archive({"a/data.pkl": b"(S'touch ran'\nios\nsystem\n."}), "instruction 83"),
    "code by protocol 0": (archive({"a/data.pkl": b"cos\nsystem\n(S'touch ran'\ntR."}), "asks for 'os.system'"),
    "attributes of a tensor": (archive({"a/data.pkl": b"\x80\x02K\x01}b."}), "sets attributes"),
    "torch's own loader": (other(Call(Name("torch.storage", "_load_from_bytes"), (b"",))), "_load_from_bytes"),
    "a whole model": (other(Name("models.models", "LeNetMadry")), "asks for 'models.models.LeNetMadry'"),
    "a list": (other([tensor(BASE)]), "holds a list, not a dictionary"),
    "no weights": (other({"epoch": 3, "loss": tensor(BASE)}), "holds no state dict"),
    "two networks": (
        other({k: torch_files.tensors({"a.weight": BASE}) for k in "ab"}),
        r"several state dicts, \['a', 'b'\]",
    ),
    "beyond its storage": (wide((4, 7), (6, 1)), "reaches to number 24 of a storage of 24"),
    "an offset beyond it": (wide((1,), (1,), offset=24), "reaches to number 24"),
    "negative strides": (wide((4,), (-1,)), "something else than sizes"),
    "a size that is true": (wide((True,), (1,)), "something else than sizes"),
    "fewer strides": (wide((4, 6), (1,)), "more or fewer strides"),
    "a terabyte of one number": (wide((10**6, 10**6), (0, 0)), "is made of 24"),
    "a view of a storage": (old(b"U\x08a.weight", view=b"U\x01vK\x00K\x02\x87"), "a view of a storage"),
    "a compressed archive": (archive({"a/data.pkl": b"."}, zipfile.ZIP_DEFLATED), "compressed"),
    "members on top of each other": (overlapping(), "larger than the file"),
    "another archive": (archive({"a.txt": b"hello"}), "no data.pkl"),
    "two pickles": (archive({"a/data.pkl": b".", "b/data.pkl": b"."}), "several data.pkl"),
    "an archive's beginning": (b"PK\x03\x04", "not a readable state dict"),
    "nothing": (b"", "begins with b''"),
    "a web page": (b"<!DOCTYPE html>", "begins with b'<!DOCTYP'"),
    "a plain pickle": (pickle.dumps({"a.weight": BASE}), "begins with"),
}


@pytest.mark.parametrize("name", WRONG)
def test_hostile_and_other_files(tmp_path, monkeypatch, name):
    content, message = WRONG[name]
    (tmp_path / "a.pt").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=message) as caught:
        read_state_dict("a.pt")
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == ["a.pt"]


@pytest.mark.parametrize("legacy", [False, True])
def test_damaged_files(tmp_path, legacy):
    whole = torch_files.content(STATE_DICT, legacy=legacy)
    path = tmp_path / "a.pt"
    for cut in range(0, len(whole), 37):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError):
            read_state_dict(path)
    for at in range(0, len(whole), 11):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            read_state_dict(path)
        except DataError:
            continue
        # Unharmed by luck, or numbers of the older format, which has no checksum.
    with pytest.raises(DataError, match="a folder, not a file"):
        read_state_dict(tmp_path)


def test_torch_and_the_writer_of_these_tests_agree(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not needed to read its files; here it checks the tests")
    types = {"bfloat16.weight": torch.bfloat16}
    for legacy in (False, True):
        path = torch_files.save(tmp_path / "ours.pt", STATE_DICT, legacy=legacy)
        for name, loaded in torch.load(path, weights_only=True).items():
            expected = CASES[name][1]
            assert loaded.dtype == types.get(name, loaded.dtype)
            np.testing.assert_array_equal(loaded.double().numpy(), expected.astype(np.float64), err_msg=name)


def test_files_that_torch_wrote(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not needed to read its files; here it writes some")
    base = torch.arange(24.0)
    network = torch.nn.DataParallel(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)))
    given = {
        "a.weight": base.view(4, 6).T,
        "b.weight": base[3:9],
        "c.weight": base.to(torch.bfloat16).view(4, 6)[:, ::2],
        "d.weight": base.half(),
        "e.weight": base.double()[None].expand(5, 24),
        "f": torch.nn.Parameter(base),
        **network.state_dict(),
    }
    for value in (given, {"epoch": 1, "state_dict": given, "size": base.shape, "device": base.device, "lr": 0.1}):
        for new in (True, False):
            torch.save(value, tmp_path / "a.pt", _use_new_zipfile_serialization=new)
            found = read_state_dict(tmp_path / "a.pt")
            assert found.keys() == given.keys()
            for name, item in given.items():
                assert found[name].dtype.name == str(item.dtype).removeprefix("torch.")
                np.testing.assert_array_equal(found[name].astype(np.float64), item.detach().double().numpy())
    torch.save(network, tmp_path / "a.pt")
    with pytest.raises(DataError, match=r"asks for 'torch\.nn\.parallel"):
        read_state_dict(tmp_path / "a.pt")
