"""Comma lists on command lines: of data sets, methods, OOD sets and seeds."""

import os
from collections.abc import Iterable

from preload_jax.data.names import is_file, is_folder, path_of, split_list
from preload_jax.errors import UserError, did_you_mean, what_instead
from preload_jax.integers import require_seed

# Numbers that an option names at most: far more than there are runs, and few enough to list.
_MOST = 10_000


def parts(text: str) -> tuple[str, ...]:
    """What stands between the commas, without blanks, empty parts and repetitions; folders may have commas in them."""
    return split_list(text)


def some(text: str | None, *, option: str) -> tuple[str, ...]:
    """`parts` of an option that names at least one where it is given, and none where it is not.

    Raises:
        UserError: for one that is empty, as of a variable of the shell that is not set.
    """
    found = () if text is None else parts(text)
    if text is not None and not found:
        raise UserError(f"{option}={text} names none; expected names joined by commas, or leave it out")
    return found


def names(text: str, *, option: str, known: Iterable[str], also: tuple[str, ...] = ()) -> tuple[str, ...]:
    """A comma list of names, each in `known` or beginning with one of `also`, without repetitions.

    Raises:
        UserError: for another name.
    """
    known = tuple(known)
    given = parts(text)
    for name in given:
        if name not in known and not any(name.startswith(prefix) for prefix in also):
            meant = did_you_mean(name, known)
            raise UserError(f"unknown {option} {name!r}{meant}; expected some of {', '.join(known)}, joined by commas")
    return given


def require_there(name: str, *, option: str) -> None:
    """Refuses a folder or file of the user's that is not there, before any work; other names it lets pass.

    Raises:
        UserError: beginning with the option.
    """
    there, path = f"{option} {name}", path_of(name) if is_folder(name) or is_file(name) else None
    if path is None:
        return
    if is_folder(name) and not os.path.isdir(path):
        found = "a file, not a folder" if os.path.exists(path) else "no such folder"
        raise UserError(f"{there}: {found}; expected a folder of images")
    if is_file(name) and not os.path.isfile(path):
        raise UserError(f"{there}: {what_instead(path)}; expected a file of images")


def numbers(text: str, *, option: str) -> tuple[int, ...]:
    """A comma list of seeds and ranges of them, such as 0,1,5-9, without repetitions.

    Raises:
        UserError: for anything else, and for more than anybody has runs of.
    """
    found: list[int] = []
    for part in parts(text):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UserError(f"{option} {text!r}: {part!r} is no number or range; expected for example 0,1,2 or 0-4")
        # So many digits are enough to be refused for; of thousands Python makes no number.
        low, high = (require_seed(int(end.lstrip("0")[:11] or "0"), name=option) for end in (first, last or first))
        if high < low:
            raise UserError(f"{option} {text!r}: {part!r} runs backwards; expected for example 0-4")
        if len(found) + high - low >= _MOST:
            raise UserError(f"{option} {text!r} names more than {_MOST:,} numbers; expected fewer, such as 0-4")
        found += range(low, high + 1)
    if not found:
        raise UserError(f"{option} {text!r} names none; expected for example 0,1,2 or 0-4")
    return tuple(dict.fromkeys(found))


def detectors(text: str) -> tuple[str, ...]:
    """The detectors of a comma list, without repetitions, or all.

    Raises:
        UserError: for an unknown one, or none.
    """
    from preload_jax import detectors as known

    if text == "all":
        return tuple(known.TABLE)
    found = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip()) and known.get(name)))
    if not found:
        raise UserError(f"--detectors={text} names none; expected all, or some of {', '.join(known.TABLE)}")
    return found


def recalibrations(text: str) -> tuple[str, ...]:
    """The recalibrations of a comma list, without repetitions, or all.

    Raises:
        UserError: for an unknown one, or none.
    """
    from preload_jax.recalibration import TABLE

    found = tuple(TABLE) if text == "all" else names(text, option="recalibration", known=TABLE)
    if not found:
        raise UserError(f"--recalibrate={text} names none; expected all, or some of {', '.join(TABLE)}")
    return found
