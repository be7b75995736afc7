"""The table of bad inputs: what a user did, what they see, how it ends.

Each row is carried out by `tests/experiments/test_bad_inputs.py`, and the rows are the table in docs/reliability.md:
`python -m tests.bad_inputs` writes it there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


def nothing(folder: Path) -> None:
    """No files are needed."""


@dataclass(frozen=True)
class Row:
    """One bad input.

    Attributes:
        did: what the user did, in Markdown; HERE stands for a folder.
        sees: the message; "…" stands for words of another library.
        outcome: "exit 1" or "exit 2" of a command, the exception's type of a call.
        arguments: of a command, "MODULE OPTIONS"; of a call, the expression.
        prepare: makes the files in HERE.
    """

    did: str
    sees: str
    outcome: str
    arguments: str
    prepare: Callable[[Path], None] = nothing

    @property
    def line(self) -> str:
        """The row in Markdown."""
        return f"| {_cell(self.did)} | {_cell(self.sees)} | {self.outcome} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def command(options: str, sees: str, *, did: str = "", outcome: str = "exit 2", prepare=nothing) -> Row:
    """A row of `python -m experiments.MODULE OPTIONS`; the module is `run` where none is named."""
    module, _, rest = options.partition(" ") if not options.startswith("-") else ("run", "", options)
    return Row(did or f"`{module} {rest}`".replace(" `", "`"), sees, outcome, f"{module} {rest}", prepare)


def call(expression: str, sees: str, outcome: str = "UserError", *, did: str = "") -> Row:
    """A row of a call of the library."""
    return Row(did or f"`{expression}`", sees, outcome, expression)
