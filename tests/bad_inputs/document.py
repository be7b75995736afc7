"""The table as docs/reliability.md shows it."""

from pathlib import Path

from tests.bad_inputs import command_line, data_files, frameworks, library, run_folders, weights_files

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- table: python -m tests.bad_inputs -->\n", "<!-- end of the table -->\n"
SECTIONS = {
    "Command line": command_line.ROWS,
    "Data files": data_files.ROWS,
    "Run folders and checkpoints": run_folders.ROWS,
    "Weights and images": weights_files.ROWS,
    "Library": library.ROWS,
    "Networks of other frameworks": frameworks.ROWS,
}
CALLS = [*library.ROWS, *frameworks.ROWS]
COMMANDS = [row for rows in SECTIONS.values() for row in rows if row not in CALLS]


def table() -> str:
    """All sections in Markdown."""
    parts = []
    for title, rows in SECTIONS.items():
        lines = [
            f"### {title}",
            "",
            "| you do | you see | it ends with |",
            "| --- | --- | --- |",
            *(row.line for row in rows),
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def with_table(text: str) -> str:
    """The document's text with the table between its marks replaced."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"
