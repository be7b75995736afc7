"""The documentation's table is the table's."""

from preload_jax import detectors
from tests.detectors import document


def test_the_document_has_these_rows():
    text = document.DOCUMENT.read_text()
    assert document.with_table(text) == text, "run `python -m tests.detectors.document`"


def test_there_are_thirty_of_different_references():
    assert len(detectors.TABLE) >= 30
    assert len({row.url for row in detectors.TABLE.values()}) >= 25
    assert len({row.equation for row in detectors.TABLE.values()}) >= 30
