"""Standard output and error as they are: any encoding, closed pipes, and tables that fit a terminal or a file."""

import codecs
import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.cli import invocation
from experiments.cli.visible import visible

# What stands for signs that an encoding does not have.
_PLAIN = {
    "↓": "v",
    "↑": "^",
    "→": "->",
    "←": "<-",
    "±": "+-",
    "≠": "!=",
    "≤": "<=",
    "≥": ">=",
    "×": "x",
    "·": "*",
    "…": "...",
    "–": "-",
    "—": "-",
    "−": "-",
    "°": " deg",
    "²": "^2",
    "′": "'",
    "λ": "lambda",
    "∞": "inf",
    "‖": "||",
    "½": "1/2",
    "†": "+",
    "‡": "++",
    "’": "'",
    "‘": "'",
    "“": '"',
    "”": '"',
    "│": "|",
    "─": "-",
}
# In place of a file's name.
STANDARD_OUTPUT = "standard output"
_HANDLER = "preload_jax.plain"
# Columns of what goes into a file: more than any table has.
_UNBOUNDED = 100_000
_BROKEN_PIPE = 128 + 13
# What stays on one line to be copied: a command and its options, in quotation marks or not, and else a word.
_WHOLE = re.compile(
    r"[`(]?(?:python -m|pip install|preload-jax) (?:'[^']*'|[^';,)`]|[;,)](?!\s|$))+[;,)`]*\s*|\s*\S+\s*"
)
# A first column is not made narrower than this for the others to fit beside it.
_LEAST_LABEL = 12


def _replaced(error: UnicodeError) -> tuple[str | bytes, int]:
    """For `codecs`: a plain sign where there is one, and a backslash escape elsewhere."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    if all(sign in _PLAIN for sign in signs):
        return "".join(_PLAIN[sign] for sign in signs), error.end
    if len(signs) > 1:
        return _replaced(UnicodeEncodeError(error.encoding, error.object, error.start, error.start + 1, error.reason))
    return codecs.backslashreplace_errors(error)


codecs.register_error(_HANDLER, _replaced)


def prepare() -> None:
    """Lets standard output and error take any text; ones that are closed take it and drop it."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


@contextlib.contextmanager
def quiet_when_closed() -> Iterator[None]:
    """Ends the process quietly, as the system's own programs end, when nobody reads what it writes any more."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    except BrokenPipeError:
        _drop()
        sys.exit(_BROKEN_PIPE)
    except OSError:
        # Python flushes once more when it ends, and would fail once more.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        raise


@contextlib.contextmanager
def to_standard_output() -> Iterator[None]:
    """Gives errors of standard output its name: the system names files alone."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, STANDARD_OUTPUT) from None


def _drop() -> None:
    """What is still to be written goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())


class ErrorConsole(Console):
    """Standard error; a closed pipe is `quiet_when_closed`'s to deal with."""

    def on_broken_pipe(self) -> None:
        raise  # rich calls it where it has caught the error


def plain(text: str, *, keep: str = "") -> str:
    """The text with plain signs for those that standard output cannot show: before a table is laid out with it.

    Signs that would act on the terminal are escaped, see `visible`, but those of `keep`.
    """
    encoding, text = _encoding(), visible(text, keep=keep)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.encode(encoding, _HANDLER).decode(encoding)
    return text


def _encoding() -> str:
    return getattr(sys.stdout, "encoding", None) or "utf-8"


class _Pages(io.StringIO):
    """Text on its way to standard output, in whose encoding rich chooses how boxes are drawn."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return _encoding()


def rendered(*parts: Table | str | Text, width: int | None = None) -> str:
    """Tables and lines as text for standard output.

    On a terminal a table that is too wide is folded: into several with the same first column, and where even that
    is too wide, within cells.  Lines are `wrapped`.  In a file all are as wide as they need to be.

    Args:
        *parts: tables, and lines without markup.
        width: in columns; None for the terminal's, or none in a file.
    """
    screen = Console(highlight=False, emoji=False, force_jupyter=False)
    if width is None:
        width = screen.width if sys.stdout is not None and sys.stdout.isatty() else _UNBOUNDED
    console = Console(
        file=_Pages(),
        width=width,
        highlight=False,
        # A name such as folder:ab is no sign in colours.
        emoji=False,
        force_jupyter=False,
        force_terminal=screen.is_terminal or None,
    )
    for part in parts:
        if isinstance(part, Table):
            for table in _folded(part, console):
                console.print(table)
        else:
            line = wrapped(visible(part, keep="\n"), width) if isinstance(part, str) else part
            console.print(line, markup=False, soft_wrap=True)
    return console.file.getvalue()  # type: ignore[attr-defined]


def wrapped(text: str, width: int) -> str:
    """The text in lines of at most so many columns, ended between words.

    A word that is too long, such as a path, and a command stay whole: the terminal folds them, and they can be copied.
    """
    return "\n".join(_in_lines(line, width) for line in text.split("\n"))


def for_errors(text: str) -> str:
    """The text as standard error shows it: in one line, which is `wrapped` on a terminal."""
    text = visible(invocation.spelled(text))
    if sys.stderr is None or not sys.stderr.isatty():
        return text
    return wrapped(text, Console(stderr=True).width)


def _in_lines(text: str, width: int) -> str:
    lines = [""]
    for part in _WHOLE.findall(text):
        if lines[-1] and cell_len(lines[-1]) + cell_len(part.rstrip()) > width:
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _folded(table: Table, console: Console) -> list[Table]:
    """The table, or several of some of its columns each, every one with the first."""
    cells = [[_sign(cell, keep="\n") for cell in column.cells] for column in table.columns]
    headers = [_sign(column.header, keep="\n") for column in table.columns]
    sizes = []
    for header, column, whole in zip(headers, cells, (column.no_wrap for column in table.columns), strict=True):
        measured = [console.measure(cell) for cell in (header, *column)]
        # Cells that must stay whole have words that are as long as they are; titles may have several lines.
        least_of_cells = (m.maximum if whole else m.minimum for m in measured[1:])
        sizes.append((max([measured[0].minimum, *least_of_cells]), max(m.maximum for m in measured)))
    # A frame, and a blank on each side of a cell.
    room = console.width - 1
    least = [low for low, _ in sizes]
    least[0] = min(least[0], max(_LEAST_LABEL, room - 3 - max(least[1:], default=0) - 3))
    groups: list[list[int]] = [[]]
    for i in range(1, len(least)):
        if groups[-1] and sum(least[j] + 3 for j in (0, *groups[-1], i)) > room:
            groups.append([])
        groups[-1].append(i)
    return [_part(table, [0, *group], headers, cells, _widths(sizes, least, [0, *group], room)) for group in groups]


def _widths(sizes: Sequence[tuple[int, int]], least: Sequence[int], group: Sequence[int], room: int) -> list[int]:
    """The least width of each column, and what is left given to the first that want it."""
    left = room - sum(least[i] + 3 for i in group)
    widths = []
    for i in group:
        more = max(0, min(left, sizes[i][1] - least[i]))
        left -= more
        widths.append(least[i] + more)
    if left < 0:  # Even two columns are too wide: the second folds within its cells.
        widths[-1] = max(1, widths[-1] + left)
    return widths


def _part(table: Table, group: Sequence[int], headers: list[Any], cells: list[Any], widths: Sequence[int]) -> Table:
    title = None if table.title is None else _sign(table.title)
    part = Table(title=title, title_justify=table.title_justify, show_header=table.show_header, box=table.box)
    for i, width in zip(group, widths, strict=True):
        column = table.columns[i]
        part.add_column(headers[i], justify=column.justify, style=column.style, overflow="fold", width=width)
    for number, row in enumerate(table.rows):
        part.add_row(*(cells[i][number] for i in group), style=row.style, end_section=row.end_section)
    return part


def _sign(cell: Any, *, keep: str = "") -> Any:
    """A cell in signs that standard output has."""
    if isinstance(cell, str):
        return plain(cell, keep=keep)
    if isinstance(cell, Text) and plain(cell.plain, keep=keep) != cell.plain:
        return Text.assemble(*((plain(part.plain, keep=keep), part.style) for part in _styled(cell)))
    return cell


def _styled(text: Text) -> list[Text]:
    """The parts of a text that have one style each."""
    cuts = sorted({0, len(text), *(edge for span in text.spans for edge in (span.start, span.end))})
    parts = []
    for part in text.divide(cuts[1:-1]):
        part.style = part.spans[0].style if part.spans else text.style
        parts.append(part)
    return parts
