"""The commands and the Python code of the documentation, as tests read them."""

import itertools
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
SHELL = ("sh", "bash", "shell", "console")
# A page shows what the command after it prints.
PROGRAM_OUTPUT = "{program-output} "


@dataclass(frozen=True)
class Command:
    """One simple command: `page` and `line` say where it is."""

    page: str
    line: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {' '.join(self.words)}"

    @property
    def module(self) -> str | None:
        """M of `python -m M`, whichever virtual environment's python it is."""
        name = Path(self.words[0]).name
        return self.words[2] if name in ("python", "python3") and self.words[1:2] == ("-m",) else None


@dataclass(frozen=True)
class Block:
    """A fenced block of code; `line` is that of its first line, from 1."""

    page: str
    line: int
    language: str
    text: str


def blocks(path: Path) -> Iterator[Block]:
    """The fenced blocks of a page, those inside lists and quotes, too."""
    for token in MarkdownIt().parse(path.read_text()):
        if token.type != "fence":
            continue
        page, info = str(path.relative_to(ROOT)), token.info.strip()
        if info.startswith(PROGRAM_OUTPUT):
            yield Block(page, _line(token), "sh", info.removeprefix(PROGRAM_OUTPUT))
        else:
            yield Block(page, _line(token) + 1, info.split(" ")[0], token.content)


def _line(token: Token) -> int:
    assert token.map is not None
    return token.map[0] + 1


def commands(block: Block) -> Iterator[Command]:
    """The simple commands of a shell block: comments and output left out, `a && b` taken apart, lines joined at \\."""
    text = block.text.replace("\\\n", " \x00")  # joined, with a trace of it so that lines still count
    for offset, line in enumerate(_numbered(text), start=block.line):
        number, source = offset, line
        if block.language == "console":
            if not source.startswith("$ "):
                continue
            source = source[2:]
        for words in split(source):
            yield Command(block.page, number, _launched(words))


def _launched(words: tuple[str, ...]) -> tuple[str, ...]:
    """What `srun --option=… COMMAND` starts; any other command as it is."""
    return tuple(itertools.dropwhile(lambda word: word.startswith("--"), words[1:])) if words[0] == "srun" else words


def _numbered(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield line.replace("\x00", "")
        yield from [""] * line.count("\x00")


def split(line: str) -> Iterator[tuple[str, ...]]:
    """The words of each command of a line, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    tokens = iter(lexer)
    for token in tokens:
        if set(token) <= set("&|;"):
            if words:
                yield tuple(words)
            words = []
        elif set(token) <= set("<>"):
            next(tokens)
        else:
            words.append(token)
    if words:
        yield tuple(words)


def all_commands() -> list[Command]:
    """Of all pages, in order."""
    return [
        command for page in PAGES for block in blocks(page) if block.language in SHELL for command in commands(block)
    ]
