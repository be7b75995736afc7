"""Whether labels mean to a network what they mean in a data set: the same classes, in the same order."""

from collections.abc import Sequence

from preload_jax.errors import UserError

# Classes in a message.
_MAX_NAMED = 10


def require_same(there: Sequence[str], here: Sequence[str], *, of: object, dataset: str, advice: str) -> None:
    """Raises a UserError unless the labels mean the same.

    Args:
        there: the classes that the network was trained on.
        here: those of the data.
        of: what holds the network, in a message.
        dataset: the data's name.
        advice: what to do, beside giving the data that the network was trained on.
    """
    if tuple(there) == tuple(here):
        return
    if sorted(there) == sorted(here):
        label = next(i for i, pair in enumerate(zip(there, here, strict=True)) if pair[0] != pair[1])
        problem = (
            f"{of} knows the classes of {dataset} in another order: its class {label} is {there[label]},"
            f" and here it is {here[label]}"
        )
    else:
        problem = f"{of} knows the classes {_named(there)}, and {dataset} has {_named(here)} now"
    raise UserError(f"{problem}; labels would mean other classes: give the data that it was trained on, or {advice}")


def _named(classes: Sequence[str]) -> str:
    return ", ".join(classes[:_MAX_NAMED]) + (f", … ({len(classes):,})" if len(classes) > _MAX_NAMED else "")
