"""JSON documents of our own: written in one way only, with a digest, and checked by a schema when they are read.

Files that were written before there were digests are read, too; the schema is all that checks them.
"""

import json
import re
from pathlib import Path
from typing import Any

from preload_jax.errors import DataError
from preload_jax.formats import digests, files, schema

_DIGEST, _LOOKS_LIKE_ONE = "digest", re.compile("sha256:[0-9a-f]{16,64}")
# Of a line's digest, which is to find damage, not forgery.
_LINE_DIGITS = 16
# Of a document's bytes: a run's results have a few thousand.
_MOST = 1 << 26


def write(path: Path, document: dict[str, Any]) -> None:
    """Writes a document as indented JSON, whole or not at all: names sorted, with a digest.

    Raises:
        ValueError: for NaN and infinity, which other readers stumble on.
    """
    files.write_bytes(path, dumps(document))


def dumps(document: dict[str, Any]) -> bytes:
    """The bytes that `write` writes."""
    text = json.dumps(_with_digest(document, digits=64), indent=2, sort_keys=True, allow_nan=False)
    return text.encode() + b"\n"


def line(document: dict[str, Any]) -> bytes:
    """A document as one line of JSON, for a file that grows; without the line's end."""
    return json.dumps(_with_digest(document, digits=_LINE_DIGITS), sort_keys=True, allow_nan=False).encode()


def read(path: Path, kind: Any) -> dict[str, Any]:
    """The document in a file, without its digest.

    Args:
        path: of the file.
        kind: its schema, see `schema`.

    Raises:
        DataError: when it is damaged, or not what the schema says, in one line without the path.
        OSError: when there is no such file, or it cannot be read.
    """
    return loads(files.read_bytes(path, most=_MOST), kind)


def loads(content: bytes, kind: Any) -> dict[str, Any]:
    """The document that `dumps` or `line` made bytes of; errors as for `read`."""
    try:
        document = json.loads(content, parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise DataError(f"it holds {type(document).__name__}, expected a table of names")
    written = document.pop(_DIGEST, None)
    # Damage to the name of the digest makes it another name.
    if written is None and any(isinstance(v, str) and _LOOKS_LIKE_ONE.fullmatch(v) for v in document.values()):
        raise DataError("its digest is there under another name")
    if written is not None and not _is_digest(written, document):
        raise DataError("its content does not have the digest that was written with it")
    wrong = schema.mismatch(document, kind)
    if wrong is not None:
        raise DataError(wrong)
    return document


def _with_digest(document: dict[str, Any], *, digits: int) -> dict[str, Any]:
    # As it will be read: names that are numbers become text.
    plain = json.loads(json.dumps(document, allow_nan=False))
    return {**plain, _DIGEST: "sha256:" + digests.of_json(plain)[:digits]}


def _is_digest(written: Any, document: dict[str, Any]) -> bool:
    if not isinstance(written, str) or not _LOOKS_LIKE_ONE.fullmatch(written):
        return False
    digits = written.removeprefix("sha256:")
    try:
        return digests.of_json(document).startswith(digits)
    except ValueError:  # a number that became infinite
        return False


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a name is there twice")
    return document
