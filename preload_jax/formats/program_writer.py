"""Writes a network as one file that answers, with `jax.export`; `program` reads it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np

import preload_jax
from preload_jax import digests
from preload_jax.checks import require_number
from preload_jax.decisions import Rule, answers
from preload_jax.devices import forward, training_range
from preload_jax.devices.batches import to_float
from preload_jax.devices.variables import require_own
from preload_jax.errors import UserError, reason
from preload_jax.formats import descriptions, program, safetensors_file, trees
from preload_jax.formats import program_contents as contents
from preload_jax.formats.files import write_bytes
from preload_jax.models import Classifier, WithDistance, classifier
from preload_jax.models.distance import is_measured

# Of logits, between a network and its program, relative to the largest: rounding, and nothing else.
_ROUNDING = 1e-4


def save_program(
    path: str | Path,
    model: Classifier,
    variables: Mapping[str, Any],
    *,
    image_shape: tuple[int, int, int],
    class_names: Sequence[str] | None = None,
    score: str | None = None,
    ood_class: bool | None = None,
    threshold: float | None = None,
    rule: Rule | None = None,
    certificate: Mapping[str, Any] | None = None,
    notes: Mapping[str, str] | None = None,
    input_range: tuple[float | int, float | int] | None = None,
) -> str:
    """Writes a classifier as one file that answers by itself, whole or not at all; `load_program` reads it.

    The program is for any number of images, uint8 or float32, on CPUs, CUDA GPUs and TPUs.  It is asked about two
    images before it is written, and compared with the network.

    Args:
        path: of the file.
        model: any `Classifier`, with a backbone of your own, too: it takes images.shape[0], not len(images).
        variables: its variables.
        image_shape: (height, width, channels) of its images.
        class_names: of the K classes; None: "0", "1", …
        score, ood_class, threshold, rule: as for `preload_jax.predict`; a fitted detector as a score is refused.
        certificate: what is proved about the network, for JSON.
        notes: further text by name.
        input_range: as for `weights.save`: the program warns of images of another scale.

    Returns:
        The file's digest.

    Raises:
        UserError: for variables of another model, a detector, names that are not K, a rule of another score, a network
            that has no program for any number of images, or when flatbuffers is missing.

    Example: see `load_program`.
    """
    contents.require_flatbuffers()
    image_shape = _shape(image_shape)
    trained = training_range.check(input_range) or training_range.recall(variables)
    path = Path(path).expanduser()
    if not path.name or path.is_dir():
        raise UserError(f"{str(path)!r} is no name of a file; expected where to write the program")
    variables = descriptions.collections_of(variables)
    require_own(model, variables, image_shape)
    has_ood_class = classifier.has_ood_class(model, ood_class)
    score = answers.default_score(has_ood_class=has_ood_class) if score is None else score
    if not isinstance(score, str):
        raise UserError(
            f"the score is a {type(score).__name__}; a program scores by its logits alone: expected one of"
            f" {list(answers.SCORES)}"
        )
    answers.check_score(score, has_ood_class=has_ood_class)
    answers.check_verdict(rule=rule, threshold=threshold, score=score, has_ood_class=has_ood_class)
    arrays = {f"{contents.VARIABLES}{name}": x for name, x in trees.flatten(variables).items()}
    outputs = 0
    for kind in contents.TYPES:
        exported = _export(model, arrays, image_shape, kind)
        outputs = exported.out_avals[0].shape[-1]
        arrays[f"{contents.PROGRAMS}{kind}"] = np.frombuffer(exported.serialize(), np.uint8)
    center = _center(model, variables)
    arrays |= {} if center is None else {contents.CENTER: center}
    metadata = {
        "format": contents.FORMAT,
        "format_version": str(contents.FORMAT_VERSION),
        "preload_jax": preload_jax.__version__,
        "jax": jax.__version__,
        "about": json.dumps(
            {
                "image_shape": list(image_shape),
                "class_names": _names(class_names, outputs - has_ood_class),
                "has_ood_class": has_ood_class,
                "score": score,
                "threshold": None if threshold is None else require_number("threshold", threshold),
                "rule": None if rule is None else rule.record(),
                "certificate": _for_json("certificate", certificate),
                "notes": _for_json("notes", notes or {}),
                **({} if trained is None else {"input_range": trained}),
                "platforms": list(contents.PLATFORMS),
            },
            allow_nan=False,
        ),
    }
    metadata["digest"] = digests.of_tree(arrays, notes=metadata)
    content = safetensors_file.dumps(arrays, metadata)
    _check(content, model, variables, image_shape)
    write_bytes(path, content)
    return metadata["digest"]


def _shape(given: Any) -> tuple[int, int, int]:
    """(height, width, channels) as integers of Python's."""
    shape = descriptions.shape_of_one(given)
    if len(shape) != 3:
        raise UserError(f"image_shape is {given!r}; expected (height, width, channels) of one image")
    height, width, channels = shape
    return height, width, channels


def _for_json(name: str, value: Any) -> dict[str, Any] | None:
    """A mapping as JSON has it; a UserError for what JSON does not have."""
    if value is None:
        return None
    try:
        found = json.loads(json.dumps(dict(value), allow_nan=False, default=_number))
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} is {str(value)[:60]}; expected a dictionary for JSON ({error})") from None
    return dict(found)


def _number(value: Any) -> Any:
    """NumPy's and JAX's numbers and arrays, which JSON does not know."""
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return np.asarray(value).tolist()
    raise TypeError(f"a {type(value).__name__} is no JSON")


def _export(
    model: Any, arrays: Mapping[str, np.ndarray], image_shape: tuple[int, ...], kind: str
) -> jax.export.Exported:
    """The program from weights by name and images of a type to logits, for any number of images."""
    weights = {
        name.removeprefix(contents.VARIABLES): jax.ShapeDtypeStruct(x.shape, x.dtype)
        for name, x in arrays.items()
        if name.startswith(contents.VARIABLES)
    }
    (number,) = jax.export.symbolic_shape("n")
    images = jax.ShapeDtypeStruct((number, *image_shape), np.dtype(kind))

    def logits(weights: dict[str, jax.Array], images: jax.Array) -> jax.Array:
        return model.apply(trees.unflatten(weights), to_float(images))

    try:
        return jax.export.export(jax.jit(logits), platforms=contents.PLATFORMS)(weights, images)
    except Exception as error:  # A network of anyone's may raise anything.
        raise UserError(
            f"the network has no program for any number of images ({reason(error)}); it may take images.shape[0], but"
            " no int or len of it"
        ) from None


def _center(model: Any, variables: Mapping[str, Any]) -> np.ndarray | None:
    """The mean image of a network that sees the distance from it, for the reasons of its answers."""
    if type(model.backbone) is not WithDistance or not is_measured(variables):
        return None
    kept = variables.get("batch_stats", {}).get("backbone", {})
    found = kept.get("distance_center", model.backbone.center)
    return None if found is None else np.array(found, np.float32)


def _names(given: Sequence[str] | None, num_classes: int) -> list[str]:
    if given is None:
        return [str(label) for label in range(num_classes)]
    if isinstance(given, str) or len(given) != num_classes or not all(isinstance(name, str) for name in given):
        raise UserError(f"class_names are {given!r}; expected {num_classes} names, one for each class")
    return list(given)


def _check(content: bytes, model: Any, variables: Any, image_shape: tuple[int, ...]) -> None:
    """Raises a UserError unless what the bytes say of two images is what the network says."""
    images = np.random.default_rng(0).integers(0, 256, (2, *image_shape), np.uint8)
    expected, _ = forward.predict(model, variables, images, batch_size=2)
    found = program.of_content(content).logits(images, batch_size=2)
    if not np.allclose(found, expected, rtol=_ROUNDING, atol=_ROUNDING * np.abs(expected).max()):
        raise UserError(
            f"the program's logits differ from the network's by up to {np.abs(found - expected).max():.3g}; does it"
            " depend on something that is not in its variables?"
        )
