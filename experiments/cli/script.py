"""The script `preload-jax`: each command by its name, wherever it is started.

`python -m experiments.run` looks into the current folder first.  In a project with a folder `experiments` of its own it
finds that one.  A script looks among the installed packages.
"""

import importlib
import sys
from typing import NoReturn

from experiments.cli import command_line, invocation, terminal
from experiments.cli.display import show
from experiments.cli.invocation import COMMANDS, SCRIPT
from preload_jax.errors import did_you_mean


def main() -> NoReturn:
    """Carries out the command that the first argument names, and ends as it does."""
    invocation.by_script()
    name, *options = sys.argv[1:] or [""]
    if name in ("-h", "--help"):
        terminal.prepare()
        with terminal.quiet_when_closed():
            show(_help())
        sys.exit(0)
    known = name.replace("-", "_")
    if known not in COMMANDS:
        what = f"unknown command {name!r}{did_you_mean(known, COMMANDS)}" if name else "no command"
        command_line.fail(f"{what}; expected one of {', '.join(COMMANDS)}; see {SCRIPT} --help")
    command = importlib.import_module(f"experiments.{known}.command")
    sys.argv = [f"{SCRIPT} {known}", *options]
    command_line.run_command(command.main, command.Args, prog=f"{SCRIPT} {known}")


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: {SCRIPT} COMMAND [OPTIONS]",
            "",
            'Classifiers that say "I don\'t know" far from their training data. The commands:',
            "",
            *lines,
            "",
            f"{SCRIPT} COMMAND --help lists a command's options. python -m experiments.COMMAND does the same.",
        ]
    )


if __name__ == "__main__":
    main()
