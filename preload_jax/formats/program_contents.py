"""What is in a program's file, and whether it is what this version writes."""

import functools
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.export

import preload_jax
from preload_jax.checks import require_number
from preload_jax.decisions import Rule, answers
from preload_jax.devices import training_range
from preload_jax.errors import DataError, UserError, reason
from preload_jax.formats import strict_json

FORMAT, FORMAT_VERSION = "preload_jax.program", 1
PLATFORMS = ("cpu", "cuda", "tpu")
VARIABLES, PROGRAMS, CENTER = "variables/", "program/", "center"
# What a program may be asked about.
TYPES = ("uint8", "float32")
REPAIR = "copy or export it again"
# The one custom call that a program for any number of images has: that the number is at least 1.
_ALLOWED_CALL = "custom_call @shape_assertion("
# What XLA has to leave a program by, beside custom calls.
_WAYS_OUT = ("infeed", "outfeed", "stablehlo.send", "stablehlo.recv")
# Numbers of one image, as descriptions have them.
_MOST_NUMBERS = 1 << 24


def check_kind(metadata: Mapping[str, str]) -> None:
    """Raises a DataError unless it is a program of a version that is read here."""
    kind, version = metadata.get("format"), metadata.get("format_version", "")
    if kind == "preload_jax":
        raise DataError(
            "it holds a network's weights, not a program: weights.load reads it, save_program makes one of it"
        )
    if kind != FORMAT:
        raise DataError("it is not a program; expected a file that save_program wrote")
    if not re.fullmatch(r"[1-9][0-9]{0,8}", version):
        raise DataError(f"its format's version is {version[:20]!r}; {REPAIR}")
    if int(version) > FORMAT_VERSION:
        raise DataError(
            f"it is a program of format {version}, of preload_jax {metadata.get('preload_jax', '?')[:20]}; this"
            f" version, {preload_jax.__version__}, reads formats up to {FORMAT_VERSION}: update preload_jax"
        )


def about(metadata: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a `Program` that the description says, each of them checked; raises ValueError and its kin."""
    about = strict_json.parse(metadata["about"])
    shape, names = tuple(about["image_shape"]), tuple(about["class_names"])
    if len(shape) != 3 or not all(type(size) is int and 0 < size <= _MOST_NUMBERS for size in shape):
        raise ValueError(f"images of shape {str(shape)[:60]}")
    if functools.reduce(int.__mul__, shape) > _MOST_NUMBERS:
        raise ValueError(f"images of shape {shape}")
    if len(names) < 2 or not all(isinstance(name, str) for name in names):
        raise ValueError("class_names are not two or more names")
    has_ood_class, score, threshold = about["has_ood_class"], about["score"], about["threshold"]
    if not isinstance(has_ood_class, bool) or not isinstance(score, str):
        raise ValueError("has_ood_class and score are a truth value and a name")
    answers.check_score(score, has_ood_class=has_ood_class)
    rule = None if about["rule"] is None else Rule.from_record(about["rule"])
    threshold = None if threshold is None else require_number("threshold", threshold)
    answers.check_verdict(rule=rule, threshold=threshold, score=score, has_ood_class=has_ood_class)
    for name in ("certificate", "notes"):
        if not isinstance(about[name], dict | None):
            raise ValueError(f"{name} is a {type(about[name]).__name__}")
    notes = {str(name): str(text) for name, text in (about["notes"] or {}).items()}
    platforms = tuple(str(name) for name in about["platforms"])
    return {
        "image_shape": shape,
        "class_names": names,
        "has_ood_class": has_ood_class,
        "score": score,
        "threshold": threshold,
        "rule": rule,
        "certificate": about["certificate"],
        "notes": notes,
        "input_range": training_range.check(about.get("input_range")),
        "version": metadata["preload_jax"],
        "jax_version": metadata["jax"],
        "platforms": platforms,
    }


def require_flatbuffers() -> None:
    """Raises a UserError unless the package is there that `jax.export` writes and reads with."""
    try:
        import flatbuffers  # noqa: F401
    except ImportError:
        raise UserError("programs need the package flatbuffers: pip install flatbuffers") from None


def exported(content: bytes, written_by: str) -> jax.export.Exported:
    require_flatbuffers()
    try:
        return jax.export.deserialize(bytearray(content))
    except Exception as error:  # Of a version that it does not know, JAX says so in several ways.
        raise DataError(
            f"its program, which JAX {written_by[:20]} wrote, cannot be read by JAX {jax.__version__}"
            f" ({reason(error)}); export it again with a version at most 6 months older than the one that reads it"
        ) from None


def check_program(
    exported: jax.export.Exported, weights: Mapping[str, jax.Array], expected: tuple[str, tuple[int, ...], int]
) -> None:
    """Raises a DataError unless a program maps the weights and images to logits, and does nothing else."""
    kind, image_shape, outputs = expected
    takes = [*(weights[name] for name in sorted(weights)), jax.ShapeDtypeStruct((1, *image_shape), kind)]
    given = [_signature(aval) for aval in exported.in_avals]
    wanted = [_signature(array) for array in takes]
    # How many images there are is for the caller to say.
    if given != wanted or [_signature(aval) for aval in exported.out_avals] != [((1, outputs), "float32")]:
        raise DataError(f"its program for {kind} images does not take the weights that it holds; {REPAIR}")
    if exported.nr_devices != 1 or exported.ordered_effects or exported.unordered_effects:
        raise DataError("its program has side effects or takes several devices; expected one that computes and no more")
    if jax.default_backend() not in exported.platforms and not _is_gpu_of(exported.platforms):
        raise DataError(f"its program is for {', '.join(exported.platforms)}; here is {jax.default_backend()}")
    try:
        text = exported.mlir_module()
    except Exception as error:  # The parser has its own.
        raise DataError(f"its program cannot be read ({reason(error)}); {REPAIR}") from None
    # The printed form names every operation; a name within a text is refused, too, which no program of ours has.
    foreign = text.count("custom_call") - text.count(_ALLOWED_CALL)
    if foreign or any(way in text for way in _WAYS_OUT):
        raise DataError(
            "its program calls code outside of it, or exchanges data with the host; expected one that computes"
        )


def _is_gpu_of(platforms: tuple[str, ...]) -> bool:
    return jax.default_backend() == "gpu" and bool({"cuda", "rocm"} & set(platforms))


def _signature(value: Any) -> tuple[tuple[int, ...], str]:
    """(shape, type) of an array, or of what a program takes in its place; the number of images counts as 1."""
    shape = tuple(1 if jax.export.is_symbolic_dim(size) else size for size in value.shape)
    return shape, str(value.dtype)
