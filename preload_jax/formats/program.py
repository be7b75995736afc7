"""A network as one file that answers: `load_program` reads it where no library that networks are made of is installed.

It is a safetensors file.  The weights lie in it once, under "variables/…".  Beside them are two programs that
`jax.export` wrote, one for uint8 and one for float32 images, for any number of them; and as metadata what is needed to
make an answer of their logits: class names, score, rule, certificate, versions, and a digest of everything.
"""

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from preload_jax import __version__, digests
from preload_jax.checks import require_number, require_unmasked, warn_of_range
from preload_jax.decisions import Rule, answers
from preload_jax.decisions import reasons as words
from preload_jax.decisions.answers import Predictions
from preload_jax.devices import batches, compilation
from preload_jax.errors import DataError, UserError, reason
from preload_jax.formats import safetensors_file

FORMAT, FORMAT_VERSION = "preload_jax.program", 1
PLATFORMS = ("cpu", "cuda", "tpu")
VARIABLES, PROGRAMS, CENTER = "variables/", "program/", "center"
# What a program may be asked about.
TYPES = ("uint8", "float32")
_REPAIR = "copy or export it again"
# The one custom call that a program for any number of images has: that the number is at least 1.
_ALLOWED_CALL = "custom_call @shape_assertion("
# What XLA has to leave a program by, beside custom calls.
_WAYS_OUT = ("infeed", "outfeed", "stablehlo.send", "stablehlo.recv")
# Numbers of one image, as descriptions have them.
_MOST_NUMBERS = 1 << 24


@dataclass(frozen=True)
class Program:
    """A network out of a file of `save_program`, ready to be asked.

    Attributes:
        image_shape: (height, width, channels) of its images.
        class_names: of the K classes.
        has_ood_class: whether the last logit is the OOD class.
        score: name of the function of `scores` that scores its logits.
        threshold: below which a score is OOD, for a network without an OOD class; None for none.
        rule: the `decisions.Rule` that decides which images are OOD; None for none.
        certificate: what is proved about the network, and for which precision; None for nothing.
        notes: what else the writer noted, text by name.
        version: of preload_jax, which wrote the file.
        jax_version: of JAX, which wrote the programs in it.
        platforms: that it runs on.
        digest: SHA-256 of everything in the file.

    Example: see `load_program`.
    """

    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    has_ood_class: bool
    score: str
    threshold: float | None
    rule: Rule | None
    certificate: dict[str, Any] | None
    notes: dict[str, str]
    version: str
    jax_version: str
    platforms: tuple[str, ...]
    digest: str
    _weights: dict[str, jax.Array] = field(repr=False)
    _calls: Mapping[str, Any] = field(repr=False)
    _center: np.ndarray | None = field(repr=False)

    def predict(self, images: Any, *, batch_size: int = 500) -> Predictions:
        """What `preload_jax.predict` answers with the file's score, threshold and rule.

        The answers are equal to the bit on the same platform and at the same batch size.

        Args:
            images: uint8 in [0, 255] or float32 in [0, 1], [n, h, w, c]; float64 is rounded to float32.
            batch_size: how many images each compiled call has; the last batch is filled up.

        Raises:
            UserError: for no images, images of another type or shape, or values that are not finite.
        """
        require_unmasked(images)
        images = np.asarray(images)
        warn_of_range(images)
        logits = self.logits(images, batch_size=batch_size)
        return answers.answer(
            logits,
            answers.score(self.score, logits),
            has_ood_class=self.has_ood_class,
            threshold=self.threshold,
            rule=self.rule,
        )

    def logits(self, images: Any, *, batch_size: int = 500) -> Float[np.ndarray, "n k"]:
        """The network's logits, the OOD class's last; arguments and errors as for `predict`."""
        images, batch_size = batches.admitted(np.asarray(images), batch_size)
        if images.shape[1:] != self.image_shape:
            raise UserError(
                f"images of shape {list(images.shape)} do not fit the network; expected"
                f" [n, {', '.join(map(str, self.image_shape))}]"
            )
        if images.dtype.name not in TYPES:
            raise UserError(f"images of type {images.dtype}; the program takes uint8 or float32: convert them")
        call, found = self._calls[images.dtype.name], []
        for padded, size in batches.padded(images, batch_size):
            found.append(np.asarray(call(self._weights, padded))[:size])
        return np.concatenate(found)

    def reasons(self, images: Any, said: Predictions) -> list[list[str]]:
        """For each image what speaks for its being OOD, in words; an empty list for nothing.

        Args:
            images: that `predict` was asked about.
            said: what it answered.
        """
        images = np.asarray(images)
        beyond = [""] * len(images)
        radius = (self.certificate or {}).get("input_radius")
        if self._center is not None and radius is not None and radius.get("typical_distances") is not None:
            apart = words.distances(images, self._center) / radius["typical_distance"]
            limits = {"radius": radius["typical_distances"], "confidence": radius["confidence"]}
            beyond = [words.beyond_radius(float(distance), **limits) for distance in apart]
        limits_of_scores = words.thresholds(said, rule=self.rule, threshold=self.threshold)
        return words.reasons(list(images), said, thresholds=limits_of_scores, beyond=beyond)


def load_program(path: str | Path, *, digest: str | None = None) -> Program:
    """Reads a network that `save_program` or `experiments.export` wrote, ready to be asked.

    It takes JAX and the packages flatbuffers, jaxtyping and safetensors; not Flax, Optax, Orbax or TFDS.  No Python
    code is in the file, so none is run.  But its program is compiled and computes what it likes, and JAX takes it for
    granted that it comes from someone you trust.

    Args:
        path: of the file.
        digest: that the file must have, as `Program.digest` and `experiments.export` tell it; None: as the file says.

    Raises:
        DataError: when the file is missing, damaged, of another kind, of a newer version, not the one with the digest,
            or when its program does more than compute.
        UserError: when flatbuffers is missing.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np, tempfile
        >>> from preload_jax import make_classifier, predict
        >>> from preload_jax.formats import load_program, save_program
        >>> model = make_classifier("mlp", "square_logit", num_classes=3, widths=(8,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> file = tempfile.mkdtemp() + "/toy.program"
        >>> digest = save_program(file, model, variables, image_shape=(4, 4, 1), class_names=("a", "b", "c"))
        >>> program, images = load_program(file, digest=digest), np.full((5, 4, 4, 1), 9, np.uint8)
        >>> program.class_names, program.score
        (('a', 'b', 'c'), 'in_domain_probability')
        >>> same = program.predict(images).score == predict(model, variables, images).score
        >>> bool(same.all())
        True
    """
    path = Path(path).expanduser()
    try:
        _check_kind(safetensors_file.peek(path))
        return of_content(path.read_bytes(), digest=digest)
    except DataError as error:
        raise error if str(path) in str(error) else DataError(f"{path}: {error}") from None


def of_content(content: bytes, *, digest: str | None = None) -> Program:
    """The program that a file's bytes hold.

    Raises:
        DataError, UserError: as `load_program`.
    """
    metadata, arrays = safetensors_file.loads(content, "the file")
    _check_kind(metadata)
    described = {name: text for name, text in metadata.items() if name != "digest"}
    found = digests.of_tree(arrays, notes=described)
    if found != metadata.get("digest"):
        raise DataError(f"its content does not have the digest that was written with it; {_REPAIR}")
    if digest is not None and digest != found:
        raise DataError(f"its digest is {found}, not {digest}: it is another file than was expected")
    weights = {name.removeprefix(VARIABLES): jnp.asarray(x) for name, x in arrays.items() if name.startswith(VARIABLES)}
    try:
        about = _about(metadata)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"its description is not what this version writes ({reason(error)}); {_REPAIR}") from None
    outputs = len(about["class_names"]) + about["has_ood_class"]
    calls = {}
    for kind in TYPES:
        if f"{PROGRAMS}{kind}" not in arrays:
            raise DataError(f"it holds no program for {kind} images; {_REPAIR}")
        exported = _exported(arrays[f"{PROGRAMS}{kind}"].tobytes(), metadata["jax"])
        _check_program(exported, weights, (kind, about["image_shape"], outputs))
        calls[kind] = compilation.jit(exported.call)
    center = arrays.get(CENTER)
    if center is not None and center.shape != about["image_shape"]:
        raise DataError(f"its center has the shape {list(center.shape)}, not that of one image; {_REPAIR}")
    return Program(**about, digest=found, _weights=weights, _calls=calls, _center=center)


def _check_kind(metadata: Mapping[str, str]) -> None:
    """Raises a DataError unless it is a program of a version that is read here."""
    kind, version = metadata.get("format"), metadata.get("format_version", "")
    if kind == "preload_jax":
        raise DataError(
            "it holds a network's weights, not a program: weights.load reads it, save_program makes one of it"
        )
    if kind != FORMAT:
        raise DataError("it is not a program; expected a file that save_program wrote")
    if not re.fullmatch(r"[1-9][0-9]{0,8}", version):
        raise DataError(f"its format's version is {version[:20]!r}; {_REPAIR}")
    if int(version) > FORMAT_VERSION:
        raise DataError(
            f"it is a program of format {version}, of preload_jax {metadata.get('preload_jax', '?')[:20]}; this"
            f" version, {__version__}, reads formats up to {FORMAT_VERSION}: update preload_jax"
        )


def _about(metadata: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a `Program` that the description says, each of them checked; raises ValueError and its kin."""
    about = json.loads(metadata["about"], parse_constant=_no_constant)
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
        "version": metadata["preload_jax"],
        "jax_version": metadata["jax"],
        "platforms": platforms,
    }


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def require_flatbuffers() -> None:
    """Raises a UserError unless the package is there that `jax.export` writes and reads with."""
    try:
        import flatbuffers  # noqa: F401
    except ImportError:
        raise UserError("programs need the package flatbuffers: pip install flatbuffers") from None


def _exported(content: bytes, written_by: str) -> jax.export.Exported:
    require_flatbuffers()
    try:
        return jax.export.deserialize(bytearray(content))
    except Exception as error:  # Of a version that it does not know, JAX says so in several ways.
        raise DataError(
            f"its program, which JAX {written_by[:20]} wrote, cannot be read by JAX {jax.__version__}"
            f" ({reason(error)}); export it again with a version at most 6 months older than the one that reads it"
        ) from None


def _check_program(
    exported: jax.export.Exported, weights: Mapping[str, jax.Array], expected: tuple[str, tuple[int, ...], int]
) -> None:
    """Raises a DataError unless a program maps the weights and images to logits, and does nothing else."""
    kind, image_shape, outputs = expected
    takes = [*(weights[name] for name in sorted(weights)), jax.ShapeDtypeStruct((1, *image_shape), kind)]
    given = [_signature(aval) for aval in exported.in_avals]
    wanted = [_signature(array) for array in takes]
    # How many images there are is for the caller to say.
    if given != wanted or [_signature(aval) for aval in exported.out_avals] != [((1, outputs), "float32")]:
        raise DataError(f"its program for {kind} images does not take the weights that it holds; {_REPAIR}")
    if exported.nr_devices != 1 or exported.ordered_effects or exported.unordered_effects:
        raise DataError("its program has side effects or takes several devices; expected one that computes and no more")
    if jax.default_backend() not in exported.platforms and not _is_gpu_of(exported.platforms):
        raise DataError(f"its program is for {', '.join(exported.platforms)}; here is {jax.default_backend()}")
    try:
        text = exported.mlir_module()
    except Exception as error:  # The parser has its own.
        raise DataError(f"its program cannot be read ({reason(error)}); {_REPAIR}") from None
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
