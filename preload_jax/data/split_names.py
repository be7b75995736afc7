"""What people call splits: of folders, and of arrays."""

import re
from collections.abc import Iterable

SPLITS = ("train", "validation", "test")
_FILLER = r"(?:set|split|data|images?|imgs?)"
# train, Training, val, VALID, test_set, val2017, ...
_SPLIT_NAME = re.compile(
    r"(?:(?P<train>train(?:ing)?|trn)|(?P<validation>val(?:id(?:ation)?)?|dev)"
    rf"|(?P<test>test(?:ing)?|tst|eval(?:uation)?))[ _.-]?{_FILLER}?[ _.-]?\d*",
    re.IGNORECASE,
)


def split_meant(name: str) -> str | None:
    """Which of `SPLITS` a name means, in any of its usual spellings; None for another name."""
    match = _SPLIT_NAME.fullmatch(name)
    return next((split for split in SPLITS if match[split]), None) if match else None


def paired(names: Iterable[str]) -> tuple[str, str] | None:
    """Two names that are equal but for the split in them, the first of training images: "asl_train" and "asl_test".

    "test tube" and "training shoe" are not: what is left of them differs.  Numbers count for nothing ("01_train").
    """
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for name in sorted(names):
        # Words end where another capital begins, too: "trainA".
        words = re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.strip()))
        meant = [split_meant(re.sub(r"s$", "", word, flags=re.IGNORECASE)) for word in words]
        if len(set(meant) - {None}) == 1:
            left = tuple(
                word.casefold()
                for word, split in zip(words, meant, strict=True)
                if split is None and not re.fullmatch(_FILLER, word, re.IGNORECASE)
            )
            found.setdefault(left, {}).setdefault(next(split for split in meant if split), name)
    for of_one in found.values():
        if "train" in of_one and len(of_one) > 1:
            return of_one["train"], next(name for split, name in of_one.items() if split != "train")
    return None
