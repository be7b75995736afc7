"""What every command line shares: parsing, one-line errors, exit statuses, the terminal.

Exit statuses: 0 done; 1 the work itself failed (training diverged, a checkpoint is beyond repair); 2 wrong use;
130 and 143 interrupted by Ctrl-C and SIGTERM.
"""

import contextlib
import dataclasses
import difflib
import errno
import io
import itertools
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import tyro

from experiments.cli import allocator, help_text, open_options, terminal
from experiments.cli.spelling import options_of, spelled
from preload_jax.data.paths import expanded
from preload_jax.errors import CheckpointError, UserError
from preload_jax.methods import METHODS

Args = TypeVar("Args")


def option(metavar: str, default: str, **others: Any) -> Any:
    """For `Annotated`: what an option's value and its default are called in the help."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})", **others)


_RECIPE = "(default: the recipe's)"
RecipeInt = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint=_RECIPE)]
RecipeFloat = Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint=_RECIPE)]
RecipeBool = Annotated[bool | None, tyro.conf.arg(metavar="True|False", help_behavior_hint=_RECIPE)]
Quiet = Annotated[bool, tyro.conf.arg(help="Shows nothing but results, warnings and errors.")]
Json = Annotated[bool, tyro.conf.arg(help="Prints one JSON document in place of text, and nothing else on stdout.")]
TensorBoard = Annotated[
    bool, tyro.conf.arg(help="Also writes a TensorBoard log into the run's folder (extra `tensorboard`).")
]
RecipeStr = Annotated[str | None, tyro.conf.arg(metavar="STR", help_behavior_hint=_RECIPE)]
Method = Annotated[str, tyro.conf.arg(help=f"{', '.join(list(METHODS)[:-1])} or {list(METHODS)[-1]}.")]
DataDir = Annotated[Path | None, option("DIR", "TFDS's", help="Where prepared data sets are.")]
# What to do about an error of a file or folder.
_WHAT_TO_DO = {
    errno.EEXIST: " (expected a folder, or a name that is not taken); choose another",
    errno.ENOTDIR: " (a part of it is a file, expected folders); choose another",
    errno.EISDIR: " (expected a file); choose another",
    errno.ELOOP: " (links that lead to each other); mend them, or choose another",
    errno.ENAMETOOLONG: "; choose a shorter one",
    errno.EFBIG: "; choose a file system that takes such files, or raise the limit (ulimit -f)",
    errno.EIO: "; look at the disk, or choose another",
}
# What JAX says of its environment variables; it reads them when it is imported, which commands do late.
_OF_JAX_SETTINGS = re.compile(r"for JAX flag|for environment|Unable to initialize backend")
# By which XLA's errors of memory begin.
_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
# A number of so many digits, perhaps in groups, is a slip of the keyboard.
_ENDLESS = re.compile(r"\d{41,}|\d{1,3}(?:,\d{3}){13,}")
BackboneOptions = Annotated[
    dict[str, Any] | None, tyro.conf.Fixed, tyro.conf.Suppress, open_options.OptionsOf("backbone")
]
# Of commands that carry out several runs.
Devices = Annotated[str, tyro.conf.arg(metavar="INT|all", help="As for experiments.run.")]
DataPlacement = Annotated[str, tyro.conf.arg(help="As for experiments.run.")]


def run_command(main: Callable[[Any], int | None], args_class: type[Any], *, prog: str) -> NoReturn:
    """Parses the command line into `args_class`, runs `main` on it, and exits with the status that fits.

    `main` returns its exit status (None for 0).  A UserError, and an OSError that is about the user's files (missing,
    not permitted, disk full), end in one line on stderr and status 2, and too little memory in one and status 1;
    anything else is a defect and keeps its traceback.
    """
    allocator.keep_freed_memory()
    closed = sys.stdout is None
    terminal.prepare()
    if closed:
        # Before anything is computed: nobody would see it, and the end would look like a success.
        fail("standard output is closed, and results are printed there; give it a file, or /dev/null to drop them")
    with terminal.quiet_when_closed(), warnings.catch_warnings():
        warnings.showwarning = _in_one_line
        _carry_out(main, args_class, prog)


def _in_one_line(message: Warning | str, *_: Any, **__: Any) -> None:
    """A library's warning as the commands print their own: no file, no line of code."""
    print(terminal.for_errors(f"warning: {' '.join(str(message).split())}"), file=sys.stderr)


def _carry_out(main: Callable[[Any], int | None], args_class: type[Any], prog: str) -> NoReturn:
    try:
        status = main(parse(args_class, sys.argv[1:], prog=prog)) or 0
        with terminal.to_standard_output():
            sys.stdout.flush()  # what it does not take is an error, like any other
        sys.exit(status)
    except BrokenPipeError:
        raise
    except UserError as error:
        fail(spelled(str(error), args_class))
    except CheckpointError as error:
        fail(str(error), status=1)
    except (MemoryError, ValueError, RuntimeError) as error:
        if isinstance(error, MemoryError) or _OUT_OF_MEMORY in str(error):
            what = " ".join(str(error).split()).removeprefix(f"{_OUT_OF_MEMORY}: ")
            fail(f"not enough memory{what and f' ({what})'}: give smaller images, batches or networks", status=1)
        if not _OF_JAX_SETTINGS.search(str(error)):
            raise
        fail(f"JAX's settings in the environment: {' '.join(str(error).split())}; correct or unset that variable")
    except OSError as error:
        explanation = explain_os_error(error)
        if explanation is None:
            raise
        fail(explanation)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def fail(message: str, *, status: int = 2) -> NoReturn:
    """Ends the process with "error: message" on stderr, in one line, in which numbers that nobody reads are cut."""
    line = _ENDLESS.sub(lambda found: f"{found[0][:10]}… ({len(found[0])} signs)", " ".join(message.split()))
    print(terminal.for_errors(f"error: {line}"), file=sys.stderr)
    sys.exit(status)


def parse(args_class: type[Args], argv: Sequence[str], *, prog: str) -> Args:
    """`argv` as an instance of a dataclass, whose docstring is the description and whose fields' are the help.

    Wrong use prints one line and exits with status 2; --help prints the help and exits with 0.
    """
    output, shown = io.StringIO(), io.StringIO()
    try:
        rest, open_ones = open_options.taken(args_class, argv)
    except ValueError as error:
        fail(f"{error}; see {prog} --help")
    try:
        # tyro explains errors in a box of many lines; ours are one line, so the box is caught and unfolded.  It colours
        # the box and the help when standard output is a terminal, whatever NO_COLOR says.
        if {"-h", "--help"} & set(rest):
            help_text.join_lines(args_class)
        to = contextlib.redirect_stdout(shown if _no_color() else sys.stdout)
        with contextlib.redirect_stderr(output), to, terminal.to_standard_output():
            args = tyro.cli(
                args_class,
                args=rest,
                prog=prog,
                config=(tyro.conf.HelptextFromCommentsOff, tyro.conf.FlagCreatePairsOff),
            )
    except SystemExit as exit_:
        if exit_.code in (0, None):
            with terminal.to_standard_output():
                sys.stdout.write(shown.getvalue())
                sys.stdout.flush()
            raise
        fail(f"{_with_guess(_unfold(output.getvalue()), args_class)}; see {prog} --help")
    if (empty := _empty_path(args, rest)) is not None:
        fail(f"{empty} names no file or folder; expected a path (is a variable of the shell not set?)")
    return _at_home(dataclasses.replace(args, **open_ones))  # type: ignore[type-var]


def _no_color() -> bool:
    """Whether the environment asks for no colours, see https://no-color.org."""
    return bool(os.environ.get("NO_COLOR"))


def _empty_path(args: Any, argv: Sequence[str]) -> str | None:
    """The first path that was given as an empty text, which would be the current folder; None where there is none."""
    here, lists = Path(), [each for each in vars(args).values() if isinstance(each, tuple)]
    # Of paths that stand alone and of those that were spelled "." as many must be there.
    if sum(paths.count(here) for paths in lists) > sum(bool(text) and Path(text) == here for text in argv):
        return "''"
    options = {f"--{name.replace('_', '-')}" for name, value in vars(args).items() if value == here}
    for argument, after in itertools.pairwise([*argv, "-"]):
        name, equals, value = argument.partition("=")
        if (name := name.replace("_", "-")) in options and not (value if equals else after):
            return f"{name}="
    return None


def _at_home(args: Args) -> Args:
    """With the user's own folder for `~`, which shells leave as it is after `--root=`."""
    paths = {name: value for name, value in vars(args).items() if isinstance(value, Path)}
    return dataclasses.replace(args, **{name: expanded(path) for name, path in paths.items()})  # type: ignore[type-var]


def _unfold(box: str) -> str:
    """The message of tyro's error box, and the first option that it suggests, as one line."""
    sections: list[list[str]] = [[]]
    box = re.sub(r"\x1b\[[0-9;]*m", "", box)
    for line in (line.strip(" │╭╮╰╯") for line in box.splitlines()):
        # A rule, or the upper edge of the box with the title in it; drawn in ASCII or not, as the terminal allows.
        if re.fullmatch(r"-{3,}|─.*─", line):
            sections.append([])
        elif line:
            sections[-1].append(line)
    # The first section is the title, the second the message, then what was perhaps meant and where help is.
    message = " ".join(sections[1] if len(sections) > 1 else sections[0])
    message = re.sub(r"\s*Got errors:.*", "", message).replace("{None}|", "").rstrip(".")
    for section in sections[2:]:
        if section and section[0].startswith("Perhaps you meant") and len(section) > 1:
            return f"{message}; did you mean {section[1].split()[0]}?"
    return message or "the command line could not be understood"


def _with_guess(message: str, args_class: type[Any]) -> str:
    """The message with the option that was perhaps meant, where tyro knows none that is like the first unknown one."""
    found = re.match(r"Unrecognized options: (--[^\s=]+)", message)
    if found is None or "did you mean" in message:
        return message
    close = difflib.get_close_matches(found[1], options_of(args_class), n=1)
    return f"{message}; did you mean {close[0]}?" if close else message


def explain_os_error(error: OSError) -> str | None:
    """A line for the errors that a user can mend; None for the others."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    if error.filename == terminal.STANDARD_OUTPUT:
        elsewhere = " where there is space" if full else ""
        return f"standard output cannot be written to: {error.strerror}; redirect it to a file{elsewhere}"
    where = f" ({error.filename})" if error.filename else ""
    if full:
        return f"no space left on the device{where}; free some, or choose another --run-dir or --data-dir"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"not allowed to write or read{where}: {error.strerror}; choose another folder or mend its permissions"
    if error.errno == errno.EBADF and not where:
        return "standard output cannot be written to; redirect it to a file"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"too many open files{where}; close some programs, or raise the limit (ulimit -n)"
    if not (error.filename and error.strerror):
        return None
    # Whatever the system says of a file that was named: what is there, or the name, is not as it has to be.
    return f"{error.strerror}: {error.filename}{_WHAT_TO_DO.get(error.errno or 0, '')}"


def overrides(args: Any, into: Any) -> Any:
    """`into` (a dataclass) with every field of the same name that `args` (a dataclass) has and is not None.

    The recipe stays: `into` is of the one that was asked for, and says what it is where nothing was tuned.
    """
    names = {field.name for field in dataclasses.fields(into)} - {"recipe"}
    given = {
        field.name: getattr(args, field.name)
        for field in dataclasses.fields(args)
        if field.name in names and getattr(args, field.name) is not None
    }
    for name, value in given.items():
        if dataclasses.is_dataclass(value):
            given[name] = overrides(value, getattr(into, name))
    return dataclasses.replace(into, **given)
