"""Runs the paper's experiments, all or some: `python -m experiments.paper`."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from experiments import cli
from experiments.cli import RecipeInt, RecipeStr
from experiments.cli.terminal import for_errors

if TYPE_CHECKING:
    from experiments.paper.grid import Job
    from experiments.runs.configuration import Config

_PAPERS = "(default: the paper's)"


@dataclass(frozen=True)
class Args:
    """Runs the paper's experiments: 5 data sets × 9 methods × 5 seeds, then its data-set shifts.

    What is finished is skipped, and a failure does not stop the rest; failures are listed at the end (status 1). The
    same command goes on after it was stopped. Several of them may work in the same folder: no run is done twice.
    """

    dataset: Annotated[str, tyro.conf.arg(metavar="NAMES", help_behavior_hint=_PAPERS)] = ""
    """Only these data sets, joined by commas; digits, folder:PATH and FILE.npz work, too."""
    method: Annotated[str, tyro.conf.arg(metavar="NAMES", help_behavior_hint="(default: all nine)")] = ""
    """Only these methods, joined by commas; standard is added where one starts from it."""
    seeds: str = "0-4"
    """Numbers and ranges, joined by commas."""
    shift: Annotated[str, tyro.conf.arg(metavar="NAMES", help_behavior_hint=_PAPERS)] = ""
    """Shifts of every data set in place of the paper's (MNIST: rotation; CIFAR-10: cifar10_c, or corruptions where that
    is not prepared): rotation, cifar10_c, corruptions; or none."""
    shift_images: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: all)")] = None
    """How many test images a shift uses."""
    detectors: Annotated[str | None, tyro.conf.arg(metavar="all|A,B,…|list", help_behavior_hint="(default: none)")] = (
        None
    )
    """Also fits these detectors to every network's outputs, as experiments.run does."""
    list: bool = False
    """Shows the plan, what is finished and a rough estimate of the cost; does nothing."""
    shard: Annotated[str, tyro.conf.arg(metavar="I/N", help_behavior_hint="(default: everything)")] = ""
    """Only part I, from 1 to N, of N: for the job array of a cluster."""
    recipe: str = "paper"
    """paper, released_code (what the authors' code does), or tuned (the paper's, and ours where we found better)."""
    outliers: RecipeStr = None
    """Auxiliary OOD images of every run, see experiments.run."""
    epochs: RecipeInt = None
    """Passes over the training images, of every run."""
    max_steps: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: no limit)")] = None
    """Ends every training after so many steps."""
    root: Path = Path("runs")
    """Runs are kept in ROOT/DATASET/METHOD/seedN."""
    data_dir: cli.DataDir = None
    devices: cli.Devices = "1"
    data_placement: cli.DataPlacement = "auto"
    tensorboard: cli.TensorBoard = False
    quiet: cli.Quiet = False
    json: cli.Json = False


def plan(args: Args) -> "list[Job]":
    """The cells that the filters and the shard leave, in order.

    Raises:
        UserError: for an unknown name, or when nothing is left.
    """
    from experiments.cli import filters
    from experiments.paper import grid
    from preload_jax.data import datasets, shift
    from preload_jax.errors import UserError
    from preload_jax.methods import METHODS, PAPER

    also = ("folder:", *(part for part in args.dataset.split(",") if part.endswith(".npz")))
    chosen = filters.names(args.dataset, option="--dataset", known=datasets.DATASETS, also=also)
    chosen = chosen or grid.PAPER_DATASETS
    methods = filters.names(args.method, option="--method", known=METHODS) or PAPER
    shifts = filters.names(args.shift, option="--shift", known=(*shift.SHIFTS, "none"))
    if "none" in shifts and len(shifts) > 1:
        raise UserError(f"--shift={args.shift}: none stands alone; leave it or the others out")
    by_dataset: dict[str, tuple[str, ...]] = grid.PAPER_SHIFTS
    if shifts:
        by_dataset = dict.fromkeys(chosen, () if shifts == ("none",) else shifts)
    cells = grid.jobs(
        datasets=chosen, methods=methods, seeds=filters.numbers(args.seeds, option="--seeds"), shifts=by_dataset
    )
    if args.shard:
        cells = grid.shard(cells, *grid.parse_shard(args.shard))
        if not cells:
            raise UserError(f"--shard={args.shard} has nothing to do: there are fewer runs than shards")
    return cells


def with_possible_shifts(
    cells: "list[Job]", args: Args, configure: "Callable[[Job], Config]", *, warn: Callable[[str], None]
) -> "list[Job]":
    """The cells without the evaluations under shift that cannot be made here, which `warn` is told of.

    Where the paper's CIFAR-10-C is not prepared, corruptions made here take its place if their package is installed.

    Raises:
        UserError: when a shift that --shift names is possible for no data set.
    """
    from experiments.evaluate import shift as shift_report
    from preload_jax.errors import UserError

    def problem(cell: "Job", shift: str) -> UserError | None:
        try:
            shift_report.check(shift, configure(cell), data_dir=args.data_dir, num_images=args.shift_images)
        except UserError as error:
            return error
        return None

    groups: dict[tuple[str, str], list[Job]] = {}
    for cell in cells:
        if cell.shift is not None and not cell.is_finished(args.root):
            groups.setdefault((cell.dataset, cell.shift), []).append(cell)
    problems = {key: problem(group[0], key[1]) for key, group in groups.items()}
    for name in {shift for _, shift in groups} if args.shift else ():
        reasons = [error for (_, shift), error in problems.items() if shift == name]
        if all(reasons):
            raise reasons[0]  # type: ignore[misc]
    replaced: dict[Job, Job | None] = {}
    for (dataset, shift), group in groups.items():
        if (error := problems[dataset, shift]) is None:
            continue
        other = problem(group[0], "corruptions") if shift == "cifar10_c" and not args.shift else error
        if other is None:
            warn(f"{error}; until then {dataset} is evaluated under corruptions made here, not the published ones")
            replaced |= {cell: replace(cell, shift="corruptions") for cell in group}
        else:
            also = "" if other is error else f"; corruptions can't be made in its place: {other}"
            warn(f"left out {len(group)} evaluations of {dataset} under {shift}: {error}{also}")
            replaced |= dict.fromkeys(group)
    return [new for cell in cells if (new := replaced.get(cell, cell)) is not None]


def main(args: Args) -> int:
    """Plans, and lists or works; returns the exit status."""
    from experiments.cli import detector_list

    if args.detectors == detector_list.WORD:
        return detector_list.show(args)
    cells = plan(args)
    import jax

    from experiments.cli import compile_cache, filters
    from experiments.cli.display import Display
    from experiments.cli.interrupts import Interrupted, at_once
    from experiments.paper import grid
    from experiments.paper import listing as grid_list
    from experiments.paper import worker as grid_worker
    from experiments.paper.display import GridDisplay
    from experiments.run import command as run
    from experiments.run import event_log
    from experiments.run.options import Options
    from preload_jax.devices import sharding

    def configure(cell: "Job") -> run.configuration.Config:
        return run.resolve(
            run.Args(
                dataset=cell.dataset,
                method=cell.method,
                seed=cell.seed,
                recipe=args.recipe,
                outliers=args.outliers,
                epochs=args.epochs,
                max_steps=args.max_steps,
            )
        )

    for cell in cells:
        configure(cell)  # what is wrong with the options is said now
    if args.tensorboard:
        event_log.require()
    listing = Display(quiet=args.quiet, json=args.json)
    cells = with_possible_shifts(cells, args, configure, warn=listing.warn)
    accelerator = jax.default_backend() != "cpu"
    cost = partial(grid.seconds, accelerator=accelerator, epochs=args.epochs, shift_images=args.shift_images)
    others = {cell: why for cell in cells if (why := cell.problem(args.root, configure(cell)))}
    for cell in [cell for cell in others if cell.shift is None][:3]:
        listing.warn(f"{cell.title} does not count as done: {others[cell]}")
    if len(others) > 3:
        listing.warn(f"in all, {len(others)} of the plan's places hold runs of another configuration")
    if args.list:
        machine = "an H100-like accelerator" if accelerator else "two CPU cores"
        text = grid_list.table(cells, root=args.root, cost=cost, machine=machine, others=others)
        document = grid_list.document(cells, root=args.root, cost=cost, machine=machine, others=others)
        listing.result(document, text=text)
        return 0
    compile_cache.use()
    options = Options(
        root=args.root,
        data_dir=args.data_dir,
        quiet=True,
        tensorboard=args.tensorboard,
        detectors=filters.detectors(args.detectors) if args.detectors is not None else (),
        devices=args.devices,
        data_placement=args.data_placement,
    )
    for cell in cells:
        sharding.check_batch_size(configure(cell).batch_size, options.hardware.mesh)
    with GridDisplay(total=len(cells), cost=cost(cells), quiet=args.quiet, json=args.json) as display:
        worker = grid_worker.Worker(configure, options, display, shift_images=args.shift_images, epochs=args.epochs)
        try:
            with at_once():
                worker.work(cells)
        except Interrupted as stop:
            again = shlex.join(["python", "-m", "experiments.paper", *sys.argv[1:]])
            display.warn(f"{stop}; everything is saved, and this goes on: {again}")
            return stop.status
    outcome = worker.outcome
    elsewhere = f", {len(outcome.elsewhere)} in the hands of other processes" if outcome.elsewhere else ""
    display.result(
        outcome.document(args.root),
        text=f"{len(outcome.done)} done, {len(outcome.skipped)} were finished{elsewhere}, {len(outcome.failed)} failed;"
        f" results in {args.root}",
    )
    for cell, why in outcome.failed.items():
        print(for_errors(f"failed: {cell.title}: {' '.join(why.split())}"), file=sys.stderr)
    if outcome.failed:
        return 1
    command = ["python", "-m"]
    next = {"make the tables": [*command, "experiments.tables", f"--root={args.root}"]}
    if any(cell.shift for cell in cells):
        next["draw Figure 3"] = [*command, "experiments.figures", "--figure=shift", f"--root={args.root}"]
    listing.end({}, next=next)
    return 0
