"""A file of a network's weights that a run starts from: of an export, of `weights.save`, or of torch."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.cli.display import Display
from experiments.run import start_checks
from experiments.runs import folder as runs
from experiments.runs import released_names, trained
from experiments.runs.configuration import Config
from experiments.runs.shared_folder import variables_of_first
from preload_jax import methods
from preload_jax.devices import forward, processes
from preload_jax.devices.variables import difference, shapes_of
from preload_jax.errors import UserError
from preload_jax.formats import descriptions, weights
from preload_jax.training import data as training_data
from preload_jax.training.data import TrainingData

# Training images that the network is asked about.
_ASKED = 1_000


def read(
    path: Path, config: Config, wanted: Config, *, load_data: Callable[[], TrainingData], display: Display
) -> dict[str, Any]:
    """The variables in a file, after a look at whether they are what the method starts from.

    A torch file does not tell how its images were normalised, and some networks have the same names and shapes.  So
    the accuracy on training images is said.

    Args:
        path: .safetensors, .pt or .pth, see `weights.load`.
        config: of the run.
        wanted: of the run that it would start from otherwise.
        load_data: the run's training images.
        display: is told.

    Raises:
        UserError: for a file of another method, data set or network.
        DataError: for a damaged file, or one of another kind.
    """
    variables = variables_of_first(lambda: _variables(path, config, wanted, display), wanted)
    data = load_data()
    logits, _ = forward.predict(runs.build_model(wanted), variables, training_data.some_of(data.images, _ASKED))
    accuracy = np.mean(
        logits[:, : config.data.num_classes].argmax(axis=1) == training_data.some_of(data.labels, _ASKED)
    )
    display.say(f"starting from {path} (accuracy on {len(logits):,} training images {100 * accuracy:.1f} %)")
    return variables


def with_digest(config: Config) -> Config:
    """The configuration with the digest of the file that it starts from; a file that is gone, or a folder, has none."""

    def digest(path: Path) -> str | None:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    if (start := config.start) is None:
        return config
    return replace(config, start_digest=processes.from_first(lambda: digest(Path(start))))


def _variables(path: Path, config: Config, wanted: Config, display: Display) -> dict[str, Any]:
    loaded = _load(path, config, wanted)
    written, same = loaded.metadata.get("config"), True
    if written is None:
        _require_said(path, loaded, config, wanted)
    else:
        trained_as = trained.read_config(path, written)
        start_checks.require_fits(trained_as, config, of=path, given=True)
        same = start_checks.same_images(trained_as, config)
    named = loaded.metadata.get("dataset", config.dataset)
    if elsewhere := start_checks.moved(named, config.dataset, same_images=same):
        display.say(f"--start {path}{elsewhere}")
    head = methods.get(wanted.method).head
    if (loaded.head, loaded.num_classes) != (head, config.data.num_classes):
        raise UserError(
            f"--start {path} holds a network with a {loaded.head} head for {loaded.num_classes} classes;"
            f" {config.method} starts from a {head} head for {config.data.num_classes}"
        )
    model, shape = runs.build_model(wanted), config.data.image_shape
    if not loaded.is_torch and loaded.image_shape != shape:
        of_file, of_run = ("×".join(map(str, each)) for each in (loaded.image_shape, shape))
        raise UserError(
            f"--start {path} holds a network for images of {of_file}, this run's are {of_run}; give the --image-size"
            " that the file's network has"
        )
    here, there = (descriptions.describe(each, shape, ood_class=False)["backbone"] for each in (model, loaded.model))
    if loaded.is_torch:
        # Its tensors do not tell all of the rest.
        here, there = (json.loads(each)["name"] for each in (here, there))
    if here != there:
        raise UserError(
            f"--start {path} holds a network {there}, this run has {here}; give the same --backbone and --backbone.*"
        )
    differs = difference(shapes_of(model, shape), loaded.variables)
    if differs is not None:
        name, has, wants = differs
        raise UserError(
            f"--start {path}: {name} is {has or 'missing'}, this run's network has {wants or 'nothing'} there; give the"
            " --backbone.* and the --image-size that the file's network has"
        )
    return jax.tree.map(np.asarray, loaded.variables)


def _load(path: Path, config: Config, wanted: Config) -> weights.Weights:
    load = partial(weights.load, path, num_classes=config.data.num_classes)
    try:
        return load()
    except UserError:
        # The heads of torch's ViTs are in no tensor; where the width does not tell them either, the run does.
        heads = getattr(runs.build_model(wanted).backbone, "heads", None)
        if heads is None or not weights.is_torch(path):
            raise
        return load(heads=heads)


def _require_said(path: Path, loaded: weights.Weights, config: Config, wanted: Config) -> None:
    """Raises a UserError unless what a file without a configuration says of itself, or its name, fits the run."""
    said = loaded.metadata or released_names.told(path)
    classes = trained.class_names(path, loaded)
    if said.get("method", wanted.method) != wanted.method:
        raise UserError(f"--start {path}: its method is {said['method']}; {config.method} needs {wanted.method} here")
    dataset = said.get("dataset", config.dataset)
    if not start_checks.same_data(dataset, config.dataset, given=classes is not None):
        raise UserError(f"--start {path}: its dataset is {dataset}; {config.method} needs {config.dataset} here")
    if classes is not None:
        start_checks.require_classes(classes, config, of=path)
