"""Draws the paper's figures and a run's: `python -m experiments.figures`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from experiments import cli
from experiments.cli.visible import visible

_ALL = "(default: all)"


@dataclass(frozen=True)
class Args:
    """Draws the paper's figures, and pictures of finished runs, as PNG files.

    toy_2d and toy_1d (Figures 1 and 2) need no run, and --dataset leaves them out unless --figure names them; shift
    (Figure 3) needs runs evaluated with --shift; roc, histograms, reliability and rays are of the runs under --root.
    """

    figure: Annotated[str, tyro.conf.arg(metavar="NAMES", help_behavior_hint=_ALL)] = ""
    """Which: toy_2d, toy_1d, shift, roc, histograms, reliability, rays; several joined by commas."""
    root: Path = Path("runs")
    """Folder that finished runs are under."""
    output: Path = Path("figures")
    """Folder for the pictures."""
    dataset: Annotated[str, tyro.conf.arg(metavar="NAMES", help_behavior_hint=_ALL)] = ""
    """Only these in-domain data sets, joined by commas."""
    method: Annotated[str, tyro.conf.arg(metavar="NAMES", help_behavior_hint=_ALL)] = ""
    """Only these methods, joined by commas."""
    seed: int = 0
    """Of the runs that roc, histograms, reliability and rays show; of the toy networks, too."""
    data_dir: cli.DataDir = None


def main(args: Args) -> int:
    """Draws and says where each picture is; returns the exit status."""
    from experiments.cli import compile_cache, filters
    from experiments.cli.display import Display, show
    from experiments.figures import pictures as drawing
    from experiments.runs import titles
    from preload_jax.formats.files import check_place
    from preload_jax.integers import require_seed

    names = filters.names(args.figure, option="--figure", known=drawing.DRAWERS)
    methods = filters.names(args.method, option="--method", known=titles.METHOD_TITLES)
    require_seed(args.seed, name="--seed")
    check_place(args.output / "figure.png")
    compile_cache.use()
    request = drawing.Request(
        root=args.root,
        output=args.output,
        datasets=filters.parts(args.dataset),
        methods=methods,
        seed=args.seed,
        data_dir=args.data_dir,
    )
    display = Display()
    # To who waits at a terminal; a notebook or a file would keep the lines.
    say = display.say if display.has_bars else drawing.silent
    # The toy problems are of no data set.
    every = tuple(name for name in drawing.DRAWERS if not (args.dataset and name in drawing.TOYS))
    for path in drawing.draw(request, names=names or every, asked=bool(names), say=say):
        show(visible(str(path)))
    return 0
