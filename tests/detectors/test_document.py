"""The documentation's table is the table's."""

import pytest

from preload_jax import detectors
from tests.detectors import document


@pytest.mark.parametrize("page", document.PAGES)
def test_the_page_has_these_rows(page):
    text, expected = document.with_table(page)
    assert text == expected, "run `python -m tests.detectors.document`"


def test_the_readme_says_how_many_there_are():
    assert f"[{len(detectors.TABLE)} detectors]" in (document.DOCS.parent / "README.md").read_text()
