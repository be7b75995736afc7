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
        ("cat", "c\u200bat", r"'cat' and 'c\u200bat'"),
        ("cat", "cat\u200e", r"'cat' and 'cat\u200e'"),
        ("cat", "c\xadat", r"'cat' and 'c\xadat'"),
        ("cat", "\ufeffCat", r"'cat' and '\ufeffCat'"),
        ("\u2764", "\u2764\ufe0f", r"'\u2764' and '\u2764\ufe0f'"),
        ("cat", "\uff43\uff41\uff54", r"'cat' and '\uff43\uff41\uff54'"),
        ("A", "\uff21", r"'A' and '\uff21'"),
        ("\u30ac", "\uff76\uff9e", r"'\u30ac' and '\uff76\uff9e'"),
        ("fish", "\ufb01sh", r"'fish' and '\ufb01sh'"),
        ("\xb5m", "\u03bcm", r"'\xb5m' and '\u03bcm'"),
        ("cat", "cat\x07", r"'cat' and 'cat\x07'"),
        ("cat", "cat\u3164", r"'cat' and 'cat\u3164'"),
    ],
)
def test_names_that_look_alike(one, other, shown):
    assert alike(one) == alike(other)
    assert both_shown(one, other) == shown


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cat", "cats"),
        ("a cat", "acat"),
        ("A", "a"),
        ("\xc9", "e\u0301"),
        ("1", "01"),
        ("cafe", COMPOSED),
        ("x2", "x\xb2"),
        ("R", "\u211d"),
        ("1", "\u2460"),
        ("A", "\uff41"),
        ("k", "\u212a"),
    ],
)
def test_other_names(one, other):
    assert alike(one) != alike(other)


@given(st.text(min_size=1))
def test_the_key_of_every_form_is_one(name):
    assert alike(unicodedata.normalize("NFD", name)) == alike(unicodedata.normalize("NFC", name)) == alike(f" {name}\t")
