"""Which rows to look at where all of them would take too long."""

import numpy as np
from jaxtyping import Int


def spread(size: int, most: int) -> Int[np.ndarray, "n"]:
    """At most so many of the rows 0 … size − 1, in their order and spread evenly over all of them.

    Never the first ones: folders and sorted arrays hold one class after the other, so those are of one class.

    Example:
        >>> from preload_jax.rows import spread
        >>> spread(9, 3).tolist(), spread(2, 3).tolist()
        ([0, 4, 8], [0, 1])
    """
    return np.linspace(0, size - 1, min(size, most)).astype(int)
