"""All detectors, one row each: what they are, what they need, what they do far away; imports no JAX."""

from preload_jax.detectors import rows_features, rows_head, rows_logits
from preload_jax.detectors.row import Row
from preload_jax.errors import UserError, unknown

TABLE: dict[str, Row] = {**rows_logits.ROWS, **rows_features.ROWS, **rows_head.ROWS}


def get(name: str) -> Row:
    """The row of a detector.

    Raises:
        UserError: for an unknown name.

    Example:
        >>> from preload_jax import detectors
        >>> detectors.get("vim").needs
        ('features', 'logits', 'head')
    """
    if name not in TABLE:
        raise UserError(unknown("detector", name, TABLE))
    return TABLE[name]
