"""JSON as files of ours have it, read strictly."""

import json
import math
from typing import Any


def parse(content: bytes | str) -> Any:
    """JSON in UTF-8 without NaN, infinity and numbers that a float does not hold, such as 1e999.

    Raises:
        ValueError: for anything else.

    Example:
        >>> parse('{"a": [1, 2.5]}')
        {'a': [1, 2.5]}
    """
    try:
        text = content.decode() if isinstance(content, bytes) else content
        return json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:20]} is larger than any number that can be kept")
    return number
