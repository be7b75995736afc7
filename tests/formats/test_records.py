"""Documents: always the same bytes, and any flipped bit is noticed or harmless."""

import json
import random

import pytest

from preload_jax.errors import DataError
from preload_jax.formats import records

DOCUMENT = {
    "name": "α run",
    "accuracy": 0.1,
    "sizes": [1, 2, 3],
    "nested": {"b": None, "a": True, "c": {"x": -1e-300}},
    "large": 2**60,
    "empty": {},
}
KIND = {"name": str}


def flips(content, *, count=200, seed=0):
    """The content with one bit flipped, each time another one."""
    draw = random.Random(seed)
    for position in sorted(draw.sample(range(8 * len(content)), min(count, 8 * len(content)))):
        changed = bytearray(content)
        changed[position // 8] ^= 1 << position % 8
        yield bytes(changed)


def test_there_and_back():
    assert records.loads(records.dumps(DOCUMENT), KIND) == DOCUMENT
    assert records.loads(records.line(DOCUMENT), KIND) == DOCUMENT
    assert b"\n" not in records.line(DOCUMENT)


def test_the_same_document_is_the_same_bytes():
    shuffled = dict(reversed(DOCUMENT.items()))
    assert records.dumps(shuffled) == records.dumps(DOCUMENT)
    assert list(json.loads(records.dumps(DOCUMENT))) == sorted({*DOCUMENT, "digest"})


def test_names_that_are_numbers():
    document = {"by_seed": {10: 1, 9: 2}}
    assert records.loads(records.dumps(document), {}) == {"by_seed": {"10": 1, "9": 2}}


@pytest.mark.parametrize("write", [records.dumps, records.line])
def test_every_flipped_bit_is_noticed_or_harmless(write):
    noticed = []
    for changed in flips(write(DOCUMENT), count=100_000):
        try:
            assert records.loads(changed, KIND) == DOCUMENT
        except DataError as error:
            noticed.append(str(error))
    assert len(noticed) > 1_000
    assert all("\n" not in message for message in noticed)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"1", b"\xff\xfe", b"\x00" * 100, b'{"a": NaN}', b'{"name": "x", "a": -Infinity}',
     b'{"name": "x", "name": "y"}', b"[" * 100_000, b'{"a":' * 100_000, b'{"name": "x", "a": 1e999, "digest": "sha256:'
     + b"0" * 64 + b'"}', b'{"name": "x", "a": ' + b"9" * 5_000 + b"}", b'{"name": "x", "digest": 3}',
     b'{"name": "x", "digest": "sha256:"}', b'{"name": "x", "digest": ""}', b'{"name": 3}', b"{}"],
)  # fmt: skip
def test_anything_else_is_refused(content):
    with pytest.raises(DataError):
        records.loads(content, KIND)


def test_what_was_written_before_there_were_digests_is_read():
    assert records.loads(json.dumps(DOCUMENT).encode(), KIND) == DOCUMENT


def test_nan_is_not_written():
    for write in (records.dumps, records.line):
        with pytest.raises(ValueError, match="JSON compliant"):
            write({"a": float("nan")})


def test_files(tmp_path):
    records.write(tmp_path / "a.json", DOCUMENT)
    assert records.read(tmp_path / "a.json", KIND) == DOCUMENT
    with pytest.raises(FileNotFoundError):
        records.read(tmp_path / "b.json", KIND)
