"""What a run starts from: random weights, a file, or the `standard` run of its data and seed, trained if missing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.cli.display import Display
from experiments.run import start_checks, start_file
from experiments.run.options import Options
from experiments.runs import folder as runs
from experiments.runs import recipes, settings
from experiments.runs.configuration import Config
from experiments.runs.run_dir import RunDir
from experiments.runs.shared_folder import SharedFolder
from preload_jax import losses, methods
from preload_jax.devices import forward, processes
from preload_jax.errors import UserError
from preload_jax.training import augment
from preload_jax.training import data as training_data
from preload_jax.training.data import TrainingData

# Images of each kind whose mean energy is measured.
_ASKED = 1_000


def starting_point(
    config: Config,
    load_data: Callable[[], TrainingData],
    *,
    obtain: Callable[..., Any],
    options: Options,
    display: Display,
) -> dict[str, Any] | None:
    """The variables that the method starts from; None for random weights.

    Args:
        config: of the run.
        load_data: its data, looked at before a missing start is trained: what is wrong with the outliers is said now.
        obtain: carries out another run, see `workflow.obtain`.
        options, display: of this run.

    Raises:
        UserError: when the start is not what the method needs.
    """
    method = methods.get(config.method)
    if method.starts_from is None:
        if options.start is not None:
            raise UserError(f"--start {options.start}: {config.method} starts from random weights; leave --start out")
        return None
    wanted = standard_config(config, method.starts_from)
    if options.start is not None and processes.from_first(options.start.is_file):
        return start_file.read(options.start, config, wanted, load_data=load_data, display=display)
    there = SharedFolder(RunDir(options.start or runs.default_path(wanted, root=options.root)))
    start_checks.require_kept(there.path, options.run_dir or runs.default_path(config, root=options.root))
    own = replace(options, run_dir=None, start=None, overwrite=False)
    if not there.is_finished():
        if options.start is not None:
            is_there = processes.from_first(options.start.exists)
            problem = " holds no finished run" if is_there else ": no such file or folder"
            raise UserError(
                f"--start {options.start}{problem}; give the folder of a finished {method.starts_from} run, or a file"
                " of its weights"
            )
        limit = "" if config.max_steps is None else f", for {config.max_steps} steps at most as this run"
        display.say(
            f"{config.method} starts from the {method.starts_from} network, which is not there:"
            f" training it first, in {there.path}{limit}"
        )
        wanted = there.config_or(wanted)
        load_data()
        obtain(wanted, there.run_dir, options=own, display=display)
    found = there.read_config()
    start_checks.require_fits(found, config, of=there.path, given=options.start is not None)
    if there.is_damaged():
        # Not the network that its results are about; the end of its training is repeated.
        there.forget_results()
        obtain(found, there.run_dir, options=own, display=display)
    accuracy = there.read_results()["in_domain"]["accuracy"]
    elsewhere = start_checks.moved(found.dataset, config.dataset, same_images=start_checks.same_images(found, config))
    display.say(f"starting from {there.path} (accuracy {100 * accuracy:.1f} %){elsewhere}")
    return there.read_variables(found)


def standard_config(config: Config, method: str) -> Config:
    """Of the run that a run starts from: the recipe's, with what the two must have in common."""
    usual = recipes.get(config.data, method, seed=config.seed, recipe=config.recipe)
    return replace(
        usual,
        dataset=config.dataset,
        batch_size=config.batch_size,
        # The limit of a smoke test is one for what it starts from, too.
        max_steps=config.max_steps,
        precision=config.precision,
        validation=config.validation,
        validation_rows=config.validation_rows,
        dropout=config.dropout,
        backbone_options=config.backbone_options,
        ood_images=config.ood_images,
    )


def say_mean_energies(config: Config, start: dict[str, Any], data: TrainingData, *, display: Display) -> None:
    """The pretrained network's mean energies beside the margins: margins far from them wreck accuracy.

    Of 1,000 training images and 1,000 auxiliary OOD images, made to fit as training does it.
    """
    model, policy = runs.build_model(config), settings.augmentations(config).outliers
    assert data.outliers is not None
    some = jnp.asarray(training_data.some_of(data.outliers, _ASKED))
    outliers = augment.augment_outliers(jax.random.key(0), some, policy=policy, image_shape=data.images.shape[1:])
    means = []
    for images in (training_data.some_of(data.images, _ASKED), outliers):
        logits, _ = forward.predict(model, start, np.asarray(images))
        means.append(float(np.mean(losses.energy(jnp.asarray(logits)))))
    display.say(
        f"mean energy of the starting network: {means[0]:.2f} on training images (margin {config.margin_in:g}),"
        f" {means[1]:.2f} on {config.outliers} (margin {config.margin_ood:g})"
    )
