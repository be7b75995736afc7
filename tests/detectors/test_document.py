"""The documentation's table is the table's."""

import pytest

from preload_jax import detectors
from tests.detectors import document


@pytest.mark.parametrize("page", document.PAGES)
def test_the_page_has_these_rows(page):
    text, expected = document.with_table(page)
    assert text == expected, "run `python -m tests.detectors.document`"


def test_there_are_thirty_of_different_references():
    assert len(detectors.TABLE) >= 30
    assert len({row.url for row in detectors.TABLE.values()}) >= 25
    assert len({row.equation for row in detectors.TABLE.values()}) >= 30
