"""Watches a stream of images with a trained network: `python -m experiments.watch --program=FILE FOLDER`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from experiments import cli


@dataclass(frozen=True)
class Args:
    """Answers for images as they come, one JSON line each, and tells when they are no longer in-domain.

    A line has the class, how sure it is, the verdict of the run's rule, the reasons for it, and what the monitor has
    seen: how many images, how many of them OOD, the evidence of a drift, and whether there was one. An image that
    cannot be read has a line with "error" instead, and the exit status is then 1.
    """

    images: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE …", help_behavior_hint="")
    ] = ()
    """Files and folders of images. None, or "-": standard input, which has names of files, one a line, or .npy arrays,
    one after another."""
    program: Annotated[Path | None, cli.option("FILE", "none")] = None
    """A file of experiments.export."""
    run: Annotated[Path | None, cli.option("DIR", "none")] = None
    """The folder of a finished run, such as runs/digits/preload/seed0."""
    state: Annotated[Path | None, cli.option("FILE", "none")] = None
    """Keeps what the monitor has seen, and goes on from it."""
    error: float = 0.01
    """The probability of a false "drifted", however long it watches."""
    quiet: cli.Quiet = False


def main(args: Args) -> int:
    """Reads the network, answers image by image, and keeps the monitor's state; returns the exit status."""
    from experiments.cli import compile_cache
    from experiments.cli.display import Display
    from experiments.watch import asker, watching

    display = Display(quiet=args.quiet)
    compile_cache.use()
    watched = asker.read(args.program, args.run, display=display)
    kept = watching.Kept(watched.rule, args.state, error=args.error, why_no_rule=watched.why_no_rule)
    return watching.watch(watched, kept, args.images, display=display)
