"""A deep ensemble out of the folders of several runs, as one trained network."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from experiments.cli.display import Display
from experiments.runs import folder, trained
from experiments.runs.configuration import Config
from experiments.runs.trained import Trained
from preload_jax import digests, models
from preload_jax.errors import UserError

# Scores of probabilities, which a mean of probabilities has, too.
_OF_PROBABILITIES = ("max_probability", "in_domain_probability")


def check_alone(args: Any) -> None:
    """Raises a UserError where a command line names another network beside an ensemble, or what runs say themselves."""
    for name in ("run", "weights", "dataset", "method", "recipe"):
        if getattr(args, name, None) is not None:
            raise UserError(f"--{name} is for one network, and --ensemble names several runs; leave one out")


def read(folders: Sequence[str], *, display: Display) -> Trained:
    """The ensemble of finished runs, see `models.ensemble`; its configuration is the first's.

    Args:
        folders: two at least, of runs of one method on one data set.
        display: is warned of damaged checkpoints, and of settings that differ.

    Raises:
        UserError: for fewer than two, one that is given twice or copied, runs of other data sets, methods or
            validation images, or a method whose score is not of probabilities.
    """
    paths = [Path(folder) for folder in folders]
    if len(paths) < 2:
        raise UserError(f"--ensemble names {len(paths)} runs; give two at least, DIR,DIR,…")
    if len({path.resolve() for path in paths}) < len(paths):
        raise UserError("--ensemble names a run twice; a network that is counted twice makes no ensemble")
    found = [trained.read(path, None, dataset=None, method=None, recipe=None, display=display) for path in paths]
    first, known = found[0], dict[str, Trained]()
    for each in found:
        _check_alike(first, each)
        if (twin := known.setdefault(digests.of_tree(jax.device_get(each.variables)), each)) is not each:
            raise UserError(
                f"{each.source} holds the same network as {twin.source}; a network that is counted twice makes no"
                " ensemble"
            )
        if differing := _differing(first.config, each.config):
            display.warn(f"{each.source} was not trained as {first.source} was: {', '.join(differing)}")
    if first.score not in _OF_PROBABILITIES or first.method.draws:
        raise UserError(
            f"an ensemble's answer is a mean of probabilities, of which {first.method.name} has no score of its own;"
            " give runs of another method"
        )
    model, variables = models.ensemble([each.model for each in found], [each.variables for each in found])
    source = Path(",".join(str(path) for path in paths))
    return replace(first, source=source, model=model, variables=variables, run_dir=None)


def _differing(first: Config, other: Config) -> list[str]:
    """The settings in which two runs differ beside the seed, and what each starts from."""
    found = folder.differences(folder.comparable(first), folder.comparable(other))
    return [
        f"{folder.option(name)} {here!r} (there {there!r})"
        for name, there, here in found
        if name not in ("seed", "start")
    ]


def _check_alike(first: Trained, other: Trained) -> None:
    """Raises a UserError unless two runs are of one data set, its classes, one method and one split."""
    for what, here, there in (
        ("data set", first.config.dataset, other.config.dataset),
        ("method", first.method.name, other.method.name),
        ("--validation", first.config.validation, other.config.validation),
        ("shape of images", list(first.spec.image_shape), list(other.spec.image_shape)),
        ("classes", list(first.spec.class_names), list(other.spec.class_names)),
    ):
        if here != there:
            raise UserError(
                f"{other.source} differs in {what}: {there}, and {first.source} has {here}; an ensemble is of runs"
                " that differ in the seed"
            )
