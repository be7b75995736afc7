"""A network as one file that answers: `load_program` reads it where no library that networks are made of is installed.

It is a safetensors file.  The weights lie in it once, under "variables/…".  Beside them are two programs that
`jax.export` wrote, one for uint8 and one for float32 images, for any number of them; and as metadata what is needed to
make an answer of their logits: class names, score, rule, certificate, versions, and a digest of everything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from preload_jax import digests
from preload_jax.checks import as_array
from preload_jax.decisions import Rule, answers
from preload_jax.decisions import reasons as words
from preload_jax.decisions.answers import Predictions
from preload_jax.devices import batches, compilation, training_range
from preload_jax.errors import DataError, UserError, reason, what_instead
from preload_jax.formats import program_contents as contents
from preload_jax.formats import safetensors_file


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
        input_range: (least, largest) number of the training images as the network sees them; None where that is not
            known.
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
    input_range: tuple[float, float] | None
    version: str
    jax_version: str
    platforms: tuple[str, ...]
    digest: str
    _weights: dict[str, jax.Array] = field(repr=False)
    _calls: Mapping[str, Any] = field(repr=False)
    _center: np.ndarray | None = field(repr=False)

    def __repr__(self) -> str:
        proved = "nothing" if self.certificate is None else ", ".join(self.certificate)
        return (
            f"Program(image_shape={self.image_shape}, classes={len(self.class_names)}, score={self.score!r},"
            f" threshold={self.threshold}, rule={self.rule}, certificate: {proved}, digest={self.digest[:12]}…)"
        )

    def predict(self, images: Any, *, use_rule: bool = True, batch_size: int = 500) -> Predictions:
        """What `preload_jax.predict` answers with the file's score, threshold and rule.

        The answers are equal to the bit on the same platform and at the same batch size.

        Args:
            images: uint8 in [0, 255] or float32 in [0, 1], [n, h, w, c]; float64 is rounded to float32.
            use_rule: False answers as `preload_jax.predict` does without a rule: by the OOD class, where there is one.
            batch_size: how many images each compiled call has; the last batch is filled up.

        Raises:
            UserError: for no images, images of another type or shape, or values that are not finite.
        """
        images = as_array(images, name="images")
        training_range.warn(images, self.input_range)
        logits = self.logits(images, batch_size=batch_size)
        return answers.answer(
            logits,
            answers.score(self.score, logits),
            has_ood_class=self.has_ood_class,
            threshold=self.threshold,
            rule=self.rule if use_rule else None,
        )

    def logits(self, images: Any, *, batch_size: int = 500) -> Float[np.ndarray, "n k"]:
        """The network's logits, the OOD class's last; arguments and errors as for `predict`."""
        images = as_array(images, name="images")
        given = images.dtype
        images, batch_size = batches.admitted(images, batch_size)
        images = batches.of_type(np.float32, images, given=given)
        if images.shape[1:] != self.image_shape:
            one = ": for one image give images[None]" if images.shape == self.image_shape else ""
            raise UserError(
                f"images of shape {list(images.shape)} do not fit the network; expected"
                f" [n, {', '.join(map(str, self.image_shape))}]{one}"
            )
        if images.dtype.name not in contents.TYPES:
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
        images = as_array(images, name="images")
        if len(images) != len(said.label):
            raise UserError(f"{len(images)} images and answers for {len(said.label)}; give those that were asked about")
        beyond = [""] * len(images)
        radius = (self.certificate or {}).get("input_radius")
        if self._center is not None and radius is not None and radius.get("typical_distances") is not None:
            apart = words.distances(images, self._center) / radius["typical_distance"]
            limits = {"radius": radius["typical_distances"], "confidence": radius["confidence"]}
            beyond = [words.beyond_radius(float(distance), **limits) for distance in apart]
        rule = None if said.p_value is None else self.rule
        limits_of_scores = words.thresholds(said, rule=rule, threshold=self.threshold)
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
    if not isinstance(path, str | Path):
        raise UserError(f"the path is a {type(path).__name__}; expected the name of a file")
    path = Path(path).expanduser()
    if not path.is_file():
        raise DataError(f"{path}: {what_instead(path)}; expected a program, as save_program writes it")
    try:
        contents.check_kind(safetensors_file.peek(path))
        return of_content(path.read_bytes(), digest=digest)
    except DataError as error:
        raise error if str(path) in str(error) else DataError(f"{path}: {error}") from None


def of_content(content: bytes, *, digest: str | None = None) -> Program:
    """The program that a file's bytes hold.

    Raises:
        DataError, UserError: as `load_program`.
    """
    metadata, arrays = safetensors_file.loads(content, "the file")
    contents.check_kind(metadata)
    described = {name: text for name, text in metadata.items() if name != "digest"}
    found = digests.of_tree(arrays, notes=described)
    if found != metadata.get("digest"):
        raise DataError(f"its content does not have the digest that was written with it; {contents.REPAIR}")
    if digest is not None and str(digest).lower() != found:
        raise DataError(f"its digest is {found}, not {digest}: it is another file than was expected")
    start = contents.VARIABLES
    weights = {name.removeprefix(start): jnp.asarray(x) for name, x in arrays.items() if name.startswith(start)}
    try:
        about = contents.about(metadata)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"its description is not what this version writes ({reason(error)}); {contents.REPAIR}"
        ) from None
    outputs = len(about["class_names"]) + about["has_ood_class"]
    calls = {}
    for kind in contents.TYPES:
        if f"{contents.PROGRAMS}{kind}" not in arrays:
            raise DataError(f"it holds no program for {kind} images; {contents.REPAIR}")
        exported = contents.exported(arrays[f"{contents.PROGRAMS}{kind}"].tobytes(), metadata["jax"])
        contents.check_program(exported, weights, (kind, about["image_shape"], outputs))
        calls[kind] = compilation.jit(exported.call)
    center = arrays.get(contents.CENTER)
    if center is not None and center.shape != about["image_shape"]:
        raise DataError(f"its center has the shape {list(center.shape)}, not that of one image; {contents.REPAIR}")
    return Program(**about, digest=found, _weights=weights, _calls=calls, _center=center)
