"""Searches for hyper-parameters as the paper did: `python -m experiments.tune`."""

import functools
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from experiments import cli
from experiments.cli import RecipeInt, RecipeStr
from experiments.cli.terminal import for_errors
from experiments.runs.data import digest, load_splits

if TYPE_CHECKING:
    from experiments.runs.configuration import Config


@dataclass(frozen=True)
class Args:
    """Searches for hyper-parameters with the paper's strategies and ranges; needs the package optuna (extra `tune`).

    preload: Bayesian optimisation of learning rate and weight decay. energy_ft: random search of the margins.
    preload_ft_init and preload_ft: random search of λ, learning rate and weight decay of the first and of the second
    stage; the second uses the best of the first where that was searched. The score is accuracy on in-domain validation
    images. The same command goes on with a search that was stopped.
    """

    method: str = "preload"
    """preload, energy_ft, preload_ft_init or preload_ft."""
    dataset: str = "digits"
    """As for experiments.run."""
    trials: int = 50
    """How many altogether; more can be asked for later."""
    seed: int = 0
    """Fixes the search and every training."""
    ood_set: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: accuracy alone)")] = None
    """Held-out OOD set whose AUROC is rewarded, too; leave it out of later comparisons."""
    ood_reward: float = 1.0
    """With --ood-set the score is accuracy + ood-reward × AUROC."""
    no_pruning: bool = False
    """Trains every trial to its end, even one that falls behind the median of the earlier ones."""
    recipe: str = "paper"
    """Where what is not searched comes from."""
    outliers: RecipeStr = None
    """As for experiments.run."""
    epochs: RecipeInt = None
    """As for experiments.run."""
    root: Path = Path("runs")
    """The search is kept in ROOT/DATASET/tuning/METHOD.db; fine-tuning starts from ROOT/DATASET/standard/seedN."""
    data_dir: cli.DataDir = None
    devices: cli.Devices = "1"
    data_placement: cli.DataPlacement = "auto"
    quiet: cli.Quiet = False
    json: cli.Json = False


def main(args: Args) -> int:
    """Searches and shows the best; returns the exit status."""
    from experiments.run import command as run
    from experiments.runs import folder as runs
    from experiments.tune import search_spaces, study
    from preload_jax.checks import require_number
    from preload_jax.errors import UserError, did_you_mean

    if args.method not in search_spaces.SPACES:
        tuned = search_spaces.SPACES
        raise UserError(
            f"unknown --method {args.method!r}{did_you_mean(args.method, tuned)}; the paper tuned {', '.join(tuned)}"
        )
    if args.trials < 1:
        raise UserError(f"--trials must be at least 1, got {args.trials}")
    require_number("--ood-reward", args.ood_reward, at_least=0.0)
    if args.ood_set is None and args.ood_reward != Args.ood_reward:
        raise UserError("--ood-reward is of an OOD set; give --ood-set, too, or leave it out")
    space = search_spaces.SPACES[args.method]
    study.optuna()
    config = run.resolve(
        run.Args(
            dataset=args.dataset,
            method=space.method,
            seed=args.seed,
            recipe=args.recipe,
            outliers=args.outliers,
            epochs=args.epochs,
        )
    )
    if args.epochs is not None:
        config = replace(config, init=replace(config.init, epochs=args.epochs))
    path = runs.default_path(config, root=args.root).parent.parent / "tuning" / f"{args.method}.db"
    with study.locked(path):
        return _search(args, config, path)


def _search(args: Args, config: "Config", path: Path) -> int:
    from experiments.cli.display import Display
    from experiments.cli.interrupts import Interrupted, at_once
    from experiments.runs import configuration
    from experiments.runs import folder as runs
    from experiments.tune import search_spaces, study

    display, space = Display(quiet=args.quiet, json=args.json), search_spaces.SPACES[args.method]
    first: dict[str, float] = {}
    if args.method == "preload_ft" and (first := _best_first_stage(path.with_name("preload_ft_init.db"))):
        display.say(f"first stage as it was searched: {' '.join(search_spaces.options(first))}")
        config = search_spaces.SPACES["preload_ft_init"].apply(config, first)
    settings = {
        **runs.flat(configuration.as_dict(config)),
        "ood_set": args.ood_set,
        "ood_reward": args.ood_reward if args.ood_set else None,
        "pruning": not args.no_pruning,
    }
    found = study.open_study(path, name=args.method, settings=settings, usual=configuration.usual())
    study.require_same_data(found, digest(config.dataset), dataset=config.dataset, path=path)
    there = len(study.finished(found))
    if there:
        display.say(f"{path} has {there} trials; going on to {args.trials}")
    if there < args.trials:
        try:
            with at_once(), study.named_if_in_use(path):
                _go_on(args, config, found, display)
        except Interrupted as stop:
            command = shlex.join(["python", "-m", "experiments.tune", *sys.argv[1:]])
            display.warn(f"{stop}; the search is saved, and this goes on: {command}")
            return stop.status
    if not any(trial.value is not None and trial.state.name == "COMPLETE" for trial in found.trials):
        print(for_errors(f"error: no trial of {path} trained to its end; see the ranges"), file=sys.stderr)
        return 1
    best = found.best_trial
    options = _as_searched(args, space.method, path)
    options += search_spaces.options({**first, **best.params})
    count, command = len(study.finished(found)), shlex.join(["python", "-m", "experiments.run", *options])
    display.result(
        {
            "search": str(path),
            "num_trials": count,
            "best": {"trial": best.number, "score": best.value, "values": {**first, **best.params}},
            "command": command,
        },
        text=f"best of {count} trials: score {best.value:.4f} (trial {best.number})\n{command}",
    )
    display.end({"search": path})
    return 0


def _as_searched(args: Args, method: str, path: Path) -> list[str]:
    """The options that train once more what was searched, in a folder of its own beside the recipe's run."""
    given = {
        "dataset": args.dataset,
        "method": method,
        "recipe": args.recipe,
        "outliers": args.outliers,
        "epochs": args.epochs,
        "init.epochs": args.epochs if method == "preload_ft" else None,
        "seed": args.seed or None,
        "root": args.root if args.root != Path("runs") else None,
        "run-dir": path.parent.parent / method / f"tuned_seed{args.seed}",
        "data-dir": args.data_dir,
    }
    return [f"--{name}={value}" for name, value in given.items() if value is not None]


def _go_on(args: Args, config: "Config", found: Any, display: Any) -> None:
    from experiments.cli import compile_cache
    from experiments.run import train, workflow
    from experiments.run.options import Options
    from experiments.run.start import starting_point
    from experiments.tune import objective, search_spaces, study
    from preload_jax.devices import sharding
    from preload_jax.errors import UserError

    space = search_spaces.SPACES[args.method]
    compile_cache.use()
    options = Options(
        root=args.root,
        data_dir=args.data_dir,
        quiet=args.quiet,
        devices=args.devices,
        data_placement=args.data_placement,
    )
    sharding.check_batch_size(config.batch_size, options.hardware.mesh)
    splits = load_splits(config, data_dir=args.data_dir)
    if not len(splits.validation):
        raise UserError(f"{config.dataset} has no validation images; tuning needs some")
    ood = None
    if args.ood_set is not None:
        ood = objective.held_out_ood(args.ood_set, config, splits, data_dir=args.data_dir)
    load_data = functools.cache(
        lambda: train.load_training_data(config, splits, data_dir=args.data_dir, hardware=options.hardware)
    )
    start = starting_point(config, load_data, obtain=workflow.obtain, options=options, display=display)
    goal = objective.Objective(splits, start, ood, args.ood_reward, space.stages, load_data, options.hardware)

    def told(trial: Any) -> None:
        outcome = f"score {trial.value:.4f}" if trial.state.name == "COMPLETE" else trial.state.name.lower()
        values = " ".join(search_spaces.options(trial.params))
        display.say(f"[{len(study.finished(found))}/{args.trials}] {outcome}  {values}")
        update(len(study.finished(found)))

    title, there = f"{args.dataset} {args.method}", len(study.finished(found))
    with display.progress(title, total=args.trials, done=there, unit="trials") as update:
        study.search(
            found,
            space,
            num_trials=args.trials,
            seed=args.seed,
            prune=not args.no_pruning,
            evaluate=lambda values, report: goal.run(space.apply(config, values), report=report),
            told=told,
        )


def _best_first_stage(path: Path) -> dict[str, float]:
    """The best values of a search for the first stage; none where there was no search."""
    from experiments.tune import study

    if not path.is_file():
        return {}
    searched = study.read_study(path, name="preload_ft_init")
    complete = any(trial.state.name == "COMPLETE" for trial in searched.trials)
    return dict(searched.best_params) if complete else {}
