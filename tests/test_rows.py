"""Some rows of many: of every part, whatever their order."""

import numpy as np
import pytest

from preload_jax.rows import spread


@pytest.mark.parametrize(("size", "most"), [(3_900, 1_000), (1_000_000, 256), (257, 256), (7, 2)])
def test_each_class_of_sorted_rows_has_its_share(size, most):
    found = spread(size, most)
    assert (len(found), found[0], found[-1]) == (most, 0, size - 1)
    assert (np.diff(found) > 0).all()
    assert np.ptp(np.diff(found)) <= 1


@pytest.mark.parametrize("size", [0, 1, 2, 256])
def test_few_rows_are_all_taken(size):
    np.testing.assert_array_equal(spread(size, 256), np.arange(size))
