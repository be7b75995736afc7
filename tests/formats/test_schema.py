"""Schemas: what fits, and what is said of what does not."""

from dataclasses import dataclass, field

import pytest

from preload_jax.formats import schema

KIND = {"a": int, "b?": (float, None), "c": [str], "d": {str: {"x": float}}, "e?": bool, "f?": object}
GOOD = {"a": 1, "c": [], "d": {}}


@pytest.mark.parametrize(
    "change",
    [{}, {"b": None}, {"b": 1}, {"b": 0.5}, {"c": ["x"]}, {"d": {"any": {"x": 1, "y": "z"}}}, {"e": False}, {"g": 1},
     {"f": [1]}, {"a": 2**70}],
)  # fmt: skip
def test_what_fits(change):
    assert schema.mismatch({**GOOD, **change}, KIND) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": "1"}, 'a is "1", expected a whole number'),
        ({"a": 1.0}, "a is 1.0, expected a whole number"),
        ({"a": True}, "a is true, expected a whole number"),
        ({"a": None}, "a is null, expected a whole number"),
        ({"b": True}, "b is true, expected a finite number or nothing"),
        ({"b": float("inf")}, "b is Infinity, expected a finite number or nothing"),
        ({"c": {}}, "c is {}, expected a list"),
        ({"c": ["x", 2]}, "c.1 is 2, expected text"),
        ({"d": []}, "d is [], expected a table of names"),
        ({"d": {"any": {}}}, "d.any.x is missing, expected a finite number"),
        ({"d": {"any": {"x": "s" * 99}}}, f'd.any.x is "{"s" * 36}…, expected a finite number'),
        ({"e": 1}, "e is 1, expected true or false"),
    ],
)
def test_what_does_not(change, words):
    assert schema.mismatch({**GOOD, **change}, KIND) == words


def test_the_whole_value():
    assert schema.mismatch([1], KIND) == "it is [1], expected a table of names"
    assert schema.mismatch({}, {"a": int}) == "a is missing, expected a whole number"
    assert schema.mismatch("x", (str, None)) is None


@dataclass
class Inner:
    rate: float = 0.1


@dataclass
class Outer:
    name: str
    steps: int | None = None
    inner: Inner = field(default_factory=Inner)
    shape: tuple[int, int] = (1, 2)


def test_a_dataclass_as_a_schema():
    kind = schema.of_dataclass(Outer)
    assert kind == {"name?": str, "steps?": (int, None), "inner?": {"rate?": float}, "shape?": object}
    assert schema.mismatch({"inner": {"rate": "x"}}, kind) == 'inner.rate is "x", expected a finite number'
