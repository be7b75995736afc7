"""A run's folder: where it is, and the network in it; `run_dir` has the names in it."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.runs import configuration
from experiments.runs.configuration import Config
from experiments.runs.run_dir import RunDir
from preload_jax.data import datasets, names, own_digest
from preload_jax.data.readers import image_files, image_folder
from preload_jax.data.specs import DatasetSpec
from preload_jax.errors import UserError
from preload_jax.formats.files import write_bytes

# Of a digest in a message.
_DIGITS = 16


def default_path(config: Config, *, root: Path = Path("runs")) -> Path:
    """runs/DATASET/METHOD/seedN."""
    return place(config.dataset, config.method, config.seed, root=root)


def place(dataset: str, method: str, seed: int, *, root: Path) -> Path:
    """ROOT/DATASET/METHOD/seedN; a folder or file of the user's is named by its last part."""
    path = Path(dataset.removeprefix("folder:").rstrip("/"))
    # "." and ".." have no part of their own, and would lead out of the root.
    named = path.resolve() if path.name in ("", "..") else path
    return root / named.stem / method / f"seed{seed}"


def require_apart(run_dir: RunDir, *images: str) -> None:
    """Refuses to keep a run where its figures would be taken for images, or hide them.

    Args:
        run_dir: of the run.
        images: names of data sets; of those that are folders a run may stand in a sub-folder of its own.

    Raises:
        UserError: for such a folder.
    """
    place = Path(os.path.realpath(run_dir.path))
    for name in filter(names.is_folder, images):
        root = Path(os.path.realpath(names.path_of(name)))
        if place == root or (root in place.parents and place.is_dir() and _holds_images(place)):
            raise UserError(
                f"--run-dir={run_dir.path}: this folder holds images of {name}, and the run's figures would be taken"
                f" for some; give another, or leave it out"
            )


def _holds_images(folder: Path) -> bool:
    """Whether a folder that is no run has images in it."""
    found = (path.suffix.lower() in image_files.SUFFIXES for path in image_folder.files(folder))
    return not image_folder.is_run(os.listdir(folder)) and any(found)


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all: to a temporary name, then renamed."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Writes a value as indented JSON, keys sorted; NaN and infinity are refused: other readers stumble on them."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False, sort_keys=True) + "\n")


def check_same_config(run_dir: RunDir, config: Config) -> None:
    """Refuses a folder that was made with another configuration.

    Raises:
        UserError: naming the fields that differ.
    """
    if not run_dir.is_begun():
        return
    if not run_dir.config.is_file():
        raise UserError(
            f"{run_dir.path} holds a run without its config.json, so it may be another's;"
            " give --overwrite to replace it, or another --run-dir"
        )
    both = run_dir.read_config(), config
    there, here = ({**comparable(each), "start": start} for each, start in zip(both, _starts(*both), strict=True))
    same_data = all(there[name] == here[name] for name in ("dataset", "data.class_names"))
    if same_data and not own_digest.may_be_one(*(each.data_digest for each in both)):
        raise UserError(
            f"{run_dir.path} holds a run on other images of {config.dataset}, of which some were added, removed or"
            " changed since; put them back, or give --overwrite to train again, or another --run-dir"
        )
    differing = [f"{option(name)} {was!r} there, {asked!r} asked for" for name, was, asked in differences(there, here)]
    if differing:
        raise UserError(
            f"{run_dir.path} holds a run of another configuration: {'; '.join(differing)};"
            " give --overwrite to replace it, or another --run-dir"
        )


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(name, value, value) of the settings in which two configurations, see `comparable`, are not the same."""
    return [(name, one.get(name), other.get(name)) for name in {**one, **other} if one.get(name) != other.get(name)]


def option(name: str) -> str:
    """A setting as the command line spells it; what a data set is mostly has no option."""
    of_data = {"data.image_shape": "--image-size", "data.backbone": "--backbone"}
    of_data |= {f"data.augmentation.{each}": f"--augmentation.{each}" for each in ("probability", "flip")}
    if name.startswith("data"):
        return of_data.get(name, name)
    return f"--{name.replace('backbone_options.', 'backbone.').replace('_', '-')}"


def comparable(config: Config) -> dict[str, Any]:
    """The settings, a folder's or file's name in the one spelling that all its spellings have."""
    values = flat(configuration.as_dict(config))
    # Words alone, which another version may choose otherwise.
    del values["data.note"]
    # The path and the digest are compared together.
    del values["start_digest"]
    # Said in words of its own.
    del values["data_digest"]
    return {**values, **dict.fromkeys(("dataset", "data.name", "data.title"), datasets.canonical(config.dataset))}


def _starts(*configs: Config) -> list[str | None]:
    """What each starts from, to be compared: files by their content, where all are known, else by one spelling."""
    digests = [config.start_digest for config in configs]
    paths = [None if config.start is None else os.path.realpath(config.start) for config in configs]
    if None in digests:
        return paths
    if len(set(digests)) == 1:
        # The same file, wherever it is now.
        return [paths[0]] * len(paths)
    return [f"{path} (SHA-256 {str(digest)[:_DIGITS]})" for path, digest in zip(paths, digests, strict=True)]


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one, names joined by dots: as the command line spells the options."""
    joined: dict[str, Any] = {}
    for name, value in values.items():
        joined |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return joined


@dataclass(frozen=True)
class Run:
    """A trained run, read from its folder."""

    dir: RunDir
    config: Config
    variables: dict[str, Any]

    @cached_property
    def spec(self) -> DatasetSpec:
        return self.config.data

    @cached_property
    def method(self) -> Any:
        from preload_jax import methods

        return methods.get(self.config.method)

    @cached_property
    def model(self) -> Any:
        """The classifier in float32, as evaluation uses it."""
        return build_model(self.config)


def build_model(config: Config, *, dtype: Any = None) -> Any:
    """The classifier of a configuration; `dtype` is of its backbone's computation, float32 by default."""
    import jax.numpy as jnp

    from preload_jax import backbones, methods, models

    spec, method, row = config.data, methods.get(config.method), backbones.get(config.data.backbone)
    fields = (*row.options, *(("dropout",) if method.draws else ()))
    options = {name: getattr(config, name) for name in fields} | as_arguments(config.backbone_options)
    model = models.make_classifier(
        spec.backbone,
        method.head,
        num_classes=spec.num_classes,
        initial_scale=config.head_scale,
        exponent=config.exponent,
        distance=config.distance,
        min_weight=config.min_weight,
        min_distance_weight=config.min_distance_weight,
        structure=config.covariance,
        components=config.components,
        dtype=jnp.float32 if dtype is None else dtype,
        **options,
    )
    return models.MCDropout(model.backbone, model.head, config.samples) if method.draws else model


def as_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as a module takes them: JSON's lists are tuples there."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def load_run(path: str | Path, *, on_damaged: Any = lambda message: None) -> Run:
    """Reads a run's configuration and its newest variables.

    Raises:
        UserError: when the folder holds no run, or no checkpoint, or one of another architecture or run.
        CheckpointError: when every checkpoint is damaged.
    """
    import jax
    import jax.numpy as jnp

    from preload_jax.formats import checkpoints, trees
    from preload_jax.training import loop as training

    run_dir = RunDir(Path(path))
    config = run_dir.read_config()
    damaged: list[str] = []
    saved = checkpoints.load(run_dir.checkpoints, on_damaged=damaged.append)
    for message in damaged:
        on_damaged(message)
    spec = config.data
    model = build_model(config)
    template = jax.eval_shape(lambda: training.init_variables(model, spec.image_shape, key=jax.random.key(0)))
    variables = trees.restore_like(template, {name: saved.tree[name] for name in ("params", "batch_stats")})
    run = Run(run_dir, config, jax.tree.map(jnp.asarray, variables))
    if not damaged and run_dir.is_finished():
        _require_of_its_rule(run)
    return run


def _require_of_its_rule(run: Run) -> None:
    """Refuses a finished run's checkpoint where rule.json, if there is one, tells that it is of another network."""
    from experiments.runs import gaussians, rules
    from preload_jax.evaluation import Scorer

    fitted = gaussians.read(run.dir.ddu) if run.method.scores_features else None
    if run.method.scores_features and fitted is None:
        return
    scorer = Scorer(run.model, run.variables, run.method.has_ood_class, fitted or run.method.score)
    if rules.is_of_another(run.dir.rule, scorer=scorer):
        beside = f"{run.dir.checkpoints} and {run.dir.ddu.name} hold" if fitted else f"{run.dir.checkpoints} holds"
        raise UserError(
            f"{run.dir.rule} is of another network than {beside}, so one of them is of another run;"
            " put back the files that belong together, or give --overwrite to train again"
        )
