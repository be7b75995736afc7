"""Writes the table into docs/reliability.md: `python -m tests.bad_inputs`."""

from tests.bad_inputs.document import DOCUMENT, with_table

DOCUMENT.write_text(with_table(DOCUMENT.read_text()))
