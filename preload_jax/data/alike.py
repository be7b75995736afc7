"""Names of folders that look alike: another case, blanks that nobody sees, and the two Unicode forms of an accent."""

import unicodedata


def alike(name: str) -> str:
    """The same for names that look alike.

    Single letters in two cases are two names: they are classes of handwriting.
    """
    plain = " ".join(unicodedata.normalize("NFC", name).split())
    return plain if len(plain) == 1 else unicodedata.normalize("NFC", plain.casefold())


def both_shown(one: str, other: str) -> str:
    """Two names that look alike, so that a message shows how they differ."""
    same = unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", other)
    show = ascii if same else repr
    return f"{show(one)} and {show(other)}"
