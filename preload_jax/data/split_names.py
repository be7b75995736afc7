"""What people call splits: of folders, and of arrays."""

import re

SPLITS = ("train", "validation", "test")
# train, Training, val, VALID, test_set, val2017, ...
_SPLIT_NAME = re.compile(
    r"(?:(?P<train>train(?:ing)?|trn)|(?P<validation>val(?:id(?:ation)?)?|dev)"
    r"|(?P<test>test(?:ing)?|tst|eval(?:uation)?))[ _.-]?(?:set|split|data|images?|imgs?)?[ _.-]?\d*",
    re.IGNORECASE,
)


def split_meant(name: str) -> str | None:
    """Which of `SPLITS` a name means, in any of its usual spellings; None for another name."""
    match = _SPLIT_NAME.fullmatch(name)
    return next((split for split in SPLITS if match[split]), None) if match else None
