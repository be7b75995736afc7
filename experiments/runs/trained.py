"""A trained network to evaluate or to ask, out of a run's folder or of a weights file."""

import dataclasses
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.cli.display import Display
from experiments.runs import classes, configuration, data, gaussians, recipes, records, released_names, rules
from experiments.runs import folder as runs
from experiments.runs.configuration import Config
from preload_jax import methods
from preload_jax.data import datasets, names, own_data, own_digest, specs
from preload_jax.data.specs import DatasetSpec, own_spec
from preload_jax.decisions import Rule
from preload_jax.detectors import Detector
from preload_jax.errors import DataError, UserError
from preload_jax.evaluation import Scorer
from preload_jax.formats import strict_json, weights


@dataclass(frozen=True)
class Trained:
    """A trained network and what it was trained as.

    Attributes:
        source: the folder or file, as it was given.
        config: the data set, the method, and the numbers that evaluation depends on.
        spec: of the data set.
        model: the classifier, in float32.
        variables: its variables.
        run_dir: the run's folder, where there is one.
        gaussians: DDU's, where they were kept.
    """

    source: Path
    config: Config
    spec: DatasetSpec
    model: Any
    variables: dict[str, Any]
    run_dir: runs.RunDir | None = None
    gaussians: Detector | None = None

    @property
    def method(self) -> methods.Method:
        return methods.get(self.config.method)

    @property
    def score(self) -> str | Detector | None:
        """The method's function of the logits, or DDU's Gaussians; None where those are lost."""
        return self.gaussians if self.method.scores_features else self.method.score

    def rule(self) -> Rule | None:
        """The rule that the run keeps; None for a network without one."""
        if self.run_dir is None or not self.run_dir.rule.is_file():
            return None
        scorer = Scorer(self.model, self.variables, self.method.has_ood_class, self.score)
        return rules.read(self.run_dir.rule, scorer=scorer)


def read(
    run: Path | None,
    file: Path | None,
    *,
    dataset: str | None,
    method: str | None,
    recipe: str | None,
    display: Display,
) -> Trained:
    """The network of a finished run, or of a weights file.

    Args:
        run: a run's folder; then nothing else is given.
        file: .safetensors, .pt or .pth, see `weights.load`.
        dataset, method: what the file does not say, or says wrongly.
        recipe: whose ECE and DDU's jitter to use with a file that does not say.
        display: is told what was guessed from the file's name, and warned of a damaged checkpoint.

    Raises:
        UserError: when not exactly one of `run` and `file` is given, something is missing, or they do not fit.
    """
    if (run is None) == (file is None):
        raise UserError("give either --run=DIR, a finished run, or --weights=FILE (.safetensors, .pt or .pth)")
    if file is not None:
        return _of_file(file, dataset=dataset, method=method, recipe=recipe, display=display)
    assert run is not None
    for name, value in (("--dataset", dataset), ("--method", method), ("--recipe", recipe)):
        if value is not None:
            raise UserError(f"{name}={value} is for --weights; a run says itself what it is")
    run_dir = runs.RunDir(run)
    run_dir.read_config()
    run_dir.read_results()
    loaded = runs.load_run(run, on_damaged=display.warn)
    kept = gaussians.read(run_dir.ddu) if loaded.method.scores_features else None
    return Trained(run, loaded.config, loaded.spec, loaded.model, loaded.variables, run_dir, kept)


def export(trained: Trained, path: Path) -> None:
    """Writes the network to a safetensors file that needs nothing else to be evaluated.

    Raises:
        UserError: when the file's name does not end in .safetensors.
    """
    config = trained.config
    about, arrays = ("", {}) if trained.gaussians is None else gaussians.dump(trained.gaussians)
    weights.save(
        path,
        trained.model,
        trained.variables,
        image_shape=trained.spec.image_shape,
        ood_class=trained.method.has_ood_class,
        metadata={
            "dataset": config.dataset,
            "method": config.method,
            "seed": str(config.seed),
            "class_names": json.dumps(trained.spec.class_names),
            "config": json.dumps(configuration.as_dict(config)),
            **({"ddu": about} if about else {}),
        },
        arrays=arrays,
    )


def _of_file(path: Path, *, dataset: str | None, method: str | None, recipe: str | None, display: Display) -> Trained:
    told = released_names.told(path)
    supposed = dataset or told.get("dataset")
    num_classes = None if supposed is None else datasets.get(supposed).num_classes
    loaded = weights.load(path, num_classes=num_classes)
    said = loaded.metadata or told
    guessed = [f"{key} {told[key]}" for key, given in (("dataset", dataset), ("method", method)) if not given and told]
    if guessed and said is told:
        display.say(f"{path.name} is by its name of {', '.join(guessed)}")
    spec = _spec(path, loaded, dataset, said.get("dataset"))
    method = method or said.get("method") or _usual_method(path, loaded)
    if methods.get(method).draws:
        raise UserError(f"a file of weights holds no dropout, of which {method} draws its networks; give --run=DIR")
    if methods.get(method).head != loaded.head:
        raise UserError(
            f"{path} holds a network with a {loaded.head} head ({loaded.num_classes} classes);"
            f" {method} needs a {methods.get(method).head} head: give another --method"
        )
    _check_fits(path, loaded, spec, given=dataset)
    config = _config(path, loaded, spec, method, recipe, seed=int(said.get("seed", 0)))
    config = replace(config, data_digest=_data_digest(path, loaded, dataset, display))
    # Another recipe may have another jitter.
    kept = _held_gaussians(path, loaded) if methods.get(method).scores_features and recipe is None else None
    return Trained(path, config, spec, loaded.model, loaded.variables, gaussians=kept)


def _held_gaussians(path: Path, loaded: weights.Weights) -> Detector | None:
    """What the file holds of DDU; None where it holds nothing."""
    if "ddu" not in loaded.metadata:
        return None
    try:
        return gaussians.restore(loaded.metadata["ddu"], loaded.arrays)
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path}: its Gaussians are not what an export writes ({error}); export it again") from None


def _usual_method(path: Path, loaded: weights.Weights) -> str:
    """Of a head that leaves one way to score."""
    if loaded.head == "square_logit":
        return "preload"
    if loaded.head == "none_class":
        return "nc"
    raise UserError(
        f"{path} does not say its method, which decides the score; give --method=standard, ddu, oe, oe_ft, doe_ft or"
        " energy_ft"
    )


def _spec(path: Path, loaded: weights.Weights, given: str | None, said: str | None) -> DatasetSpec:
    """The data set that is asked for, or that the file holds, or that it names."""
    name = given or said
    if len(loaded.image_shape) != 3:
        raise UserError(
            f"{path} holds a network for inputs of shape {list(loaded.image_shape)}; the commands take images: use"
            " weights.load and predict in Python"
        )
    height, width, channels = loaded.image_shape
    if name is None:
        raise UserError(f"{path} does not say what it was trained on; give --dataset")
    if given is None and (held := _held_spec(loaded)) is not None:
        return held
    try:
        # A folder's images get the size that the network takes.
        return datasets.get(name, image_size=(height, width) if names.is_folder(name) else None)
    except DataError:
        known = class_names(path, loaded)
        if given is not None or known is None or not own_data.is_own(name):
            raise
        return own_spec(name, image_shape=(height, width, channels), class_names=known)


def class_names(path: Path, loaded: weights.Weights) -> tuple[str, ...] | None:
    """What a file says of its classes; None where it says nothing.

    Raises:
        DataError: where that is no list of texts.
    """
    written = loaded.metadata.get("class_names")
    if written is None:
        return None
    try:
        found = strict_json.parse(written)
    except ValueError:
        found = None
    if not records.is_texts(found):
        raise DataError(
            f"{path}: its class_names are {written[:40]!r}; expected a JSON list of texts: write the file again, with"
            " json.dumps(names)"
        )
    return tuple(found)


def _held_spec(loaded: weights.Weights) -> DatasetSpec | None:
    """What the file holds of its data set; None for files of earlier versions."""
    try:
        return specs.from_dict(strict_json.parse(loaded.metadata["config"])["data"])
    except (KeyError, TypeError, ValueError):
        return None


def _check_fits(path: Path, loaded: weights.Weights, spec: DatasetSpec, *, given: str | None) -> None:
    """Raises a UserError unless the network is for the data set's images and classes, as far as the file says them."""
    if (loaded.num_classes, loaded.image_shape) != (spec.num_classes, spec.image_shape):
        raise UserError(
            f"{path} holds a network for {loaded.num_classes} classes of images {list(loaded.image_shape)};"
            f" {spec.name} has {spec.num_classes} classes of {list(spec.image_shape)}: give another --dataset"
        )
    held = _held_spec(loaded)
    if given is None and held is not None:
        return
    known = class_names(path, loaded) or (None if held is None else held.class_names)
    if known is not None:
        advice = "other data with the classes of the network"
        classes.require_same(known, spec.class_names, of=path, dataset=spec.name, advice=advice)


def _config(
    path: Path, loaded: weights.Weights, spec: DatasetSpec, method: str, recipe: str | None, *, seed: int
) -> Config:
    """What the file was exported with; the recipe's where it does not say, or another recipe is asked for."""
    written = loaded.metadata.get("config")
    if written is None or recipe is not None:
        return recipes.get(spec, method, seed=seed, recipe=recipe or "paper")
    config = read_config(path, written, data=dataclasses.asdict(spec))
    return replace(config, dataset=spec.name, method=method)


def _data_digest(path: Path, loaded: weights.Weights, given: str | None, display: Display) -> str | None:
    """What the data must have; of others than the file was trained on nothing, which is said."""
    try:
        there = json.loads(loaded.metadata["config"])
        known, name = there["data_digest"], str(there["dataset"])
    except (KeyError, TypeError, ValueError):  # Of earlier versions.
        return None
    if known is None or given is None or datasets.canonical(given) == datasets.canonical(name):
        return known
    if not own_digest.may_be_one(known, now := data.digest(given)):
        display.warn(
            f"{given} has other images than {path} was trained on: those that it was trained on are no test of it"
        )
    return now


def read_config(path: Path, written: str, **changed: Any) -> Config:
    """The configuration that an export wrote into a file.

    Raises:
        DataError: for one of another version.
    """
    try:
        return configuration.from_dict({**strict_json.parse(written), **changed})
    except (UserError, ValueError, TypeError) as error:
        raise DataError(f"{path}: its configuration is of another version ({error}); export it again") from None
