"""Names as a person may see them: no sign of a file's or a class's name acts on the terminal, or breaks a table."""

import unicodedata

from rich.markup import escape

# Control signs, ends of lines and paragraphs, and halves of signs, which bytes that are no UTF-8 become.
_HIDDEN = frozenset({"Cc", "Zl", "Zp", "Cs"})
# What turns the direction of writing, so that a name reads as another.
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def visible(text: str, *, keep: str = "") -> str:
    """The text with escapes in place of signs that act instead of being seen; `keep` has those that may stay.

    Example:
        >>> visible("a\\x1b[31mb\\n"), visible("a\\nb", keep="\\n")
        ('a\\\\x1b[31mb\\\\n', 'a\\nb')
    """
    if text.isprintable():
        return text
    return "".join(escaped(sign) if _acts(sign) and sign not in keep else sign for sign in text)


def named(text: str) -> str:
    """A name for a cell or title of rich's tables: on one line, and no markup."""
    return escape(visible(text))


def escaped(sign: str) -> str:
    """One sign as Python writes it in a text: \\x1b, \\n, \\u202e."""
    return sign.encode("unicode_escape").decode()


def _acts(sign: str) -> bool:
    return sign in _TURNING or unicodedata.category(sign) in _HIDDEN
