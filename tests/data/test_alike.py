"""Names that look alike have one key, and a message shows how they differ."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preload_jax.data.alike import alike, both_shown

COMPOSED, DECOMPOSED = "caf\xe9", "cafe\u0301"


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        ("cat", "Cat", "'cat' and 'Cat'"),
        ("cat", "cat ", "'cat' and 'cat '"),
        ("a cat", "a\xa0 cat", r"'a cat' and 'a\xa0 cat'"),
        ("a", "a ", "'a' and 'a '"),
        (COMPOSED, DECOMPOSED, r"'caf\xe9' and 'cafe\u0301'"),
        (COMPOSED, DECOMPOSED.upper(), f"'{COMPOSED}' and '{DECOMPOSED.upper()}'"),
        ("\xe9", "e\u0301", r"'\xe9' and 'e\u0301'"),
    ],
)
def test_names_that_look_alike(one, other, shown):
    assert alike(one) == alike(other)
    assert both_shown(one, other) == shown


@pytest.mark.parametrize(
    ("one", "other"),
    [("cat", "cats"), ("a cat", "acat"), ("A", "a"), ("\xc9", "e\u0301"), ("1", "01"), ("cafe", COMPOSED)],
)
def test_other_names(one, other):
    assert alike(one) != alike(other)


@given(st.text(min_size=1))
def test_the_key_of_every_form_is_one(name):
    assert alike(unicodedata.normalize("NFD", name)) == alike(unicodedata.normalize("NFC", name)) == alike(f" {name}\t")
