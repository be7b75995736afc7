"""JSON that Python takes and no other reader does is refused."""

import json

import pytest

from preload_jax.formats.strict_json import parse


@pytest.mark.parametrize("text", ['{"a": [1, 2.5, -1e300, null, true, "x"]}', b'"\\udcff"', "1e-999", "[]"])
def test_json_is_read(text):
    assert parse(text) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        *("1e999", "[-1e309]", '{"a": {"b": 2.5E+400}}', "NaN", "[Infinity]", "-Infinity", "", "{", b"\xff"),
        *("9" * 9999, "[" * 100_000, '{"a": ' * 100_000),
    ],
)
def test_anything_else_is_a_value_error(text):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        parse(text)
    assert len(str(error.value)) < 200
