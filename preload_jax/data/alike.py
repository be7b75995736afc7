"""Names of folders that look alike: another case, characters that nobody sees, and other forms of the same letters."""

import unicodedata

# Beside the category Cf: variation selectors, the grapheme joiner, and letters and symbols without ink.
_UNSEEN = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x2800, 0x3164, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10)))
) | frozenset(map(chr, range(0xE0100, 0xE01F0)))
# Of the category Cf, but seen: Arabic signs that enclose numbers, and the letters of which flags are made.
_SEEN = frozenset(map(chr, (*range(0x0600, 0x0900), *range(0xE0020, 0xE0080))))
_NO_INK = ("Cf", "Cc")
# Forms of a letter that differ in width alone; those that look different (², ℝ, ①) are other names.
_FORMS = ("<wide>", "<narrow>", "<noBreak>", "<compat>")


def alike(name: str) -> str:
    """The same for names that look alike.

    Single letters in two cases are two names: they are classes of handwriting.
    """
    plain = " ".join(_seen(name).split())
    return plain if len(plain) == 1 else unicodedata.normalize("NFC", plain.casefold())


def both_shown(one: str, other: str) -> str:
    """Two names that look alike, so that a message shows how they differ."""
    show = ascii if _seen(one) == _seen(other) else repr
    return f"{show(one)} and {show(other)}"


def _seen(name: str) -> str:
    """What is seen of a name, in one form."""
    return unicodedata.normalize("NFC", "".join(map(_of_letter, unicodedata.normalize("NFD", name))))


def _of_letter(letter: str) -> str:
    if letter in _UNSEEN or (letter not in _SEEN and not letter.isspace() and unicodedata.category(letter) in _NO_INK):
        return ""
    wide = unicodedata.decomposition(letter).startswith(_FORMS)
    return unicodedata.normalize("NFKD", letter) if wide else letter
