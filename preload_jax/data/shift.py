"""Shifted test sets: the same classes, but rotated or corrupted images.

Every function yields one `Shifted` at a time, since CIFAR-10-C as a whole is 2.9 GB.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from preload_jax.data.catalogue import CORRUPTIONS, PUBLISHED
from preload_jax.data.paths import data_root
from preload_jax.data.preparing.prepared import prepared_splits
from preload_jax.data.readers import array_sets
from preload_jax.data.specs import unknown
from preload_jax.data.splits import Arrays
from preload_jax.errors import DataError, UserError
from preload_jax.integers import require_seed

SHIFTS = {
    "rotation": "rotated by 0° to 180°",
    "cifar10_c": "CIFAR-10-C, the published files",
    "corruptions": "corruptions made here with the package imagecorruptions (not the published CIFAR-10-C)",
}
DEGREES = tuple(range(0, 181, 15))
SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Shifted:
    """A test set under one shift.

    Attributes:
      kind: "rotation" or the name of a corruption.
      level: degrees of a rotation, or severity 1 to 5 of a corruption.
      data: the shifted images, with the labels they had before.
    """

    kind: str
    level: int
    data: Arrays


def load(
    name: str,
    *,
    test: Arrays | None,
    data_dir: str | Path | None = None,
    seed: int = 0,
    num_images: int | None = None,
) -> Iterator[Shifted]:
    """All levels of one shift.

    Args:
      name: a key of `SHIFTS`.
      test: the in-domain test set, uint8 images [n, h, w, c]; "cifar10_c" has its own.
      data_dir: where the prepared data sets are; None for TFDS's own default.
      seed: fixes the corruptions made here.
      num_images: how many test images to use, the first ones; None for all.

    Raises:
      DataError: for an unknown name; NotPreparedError when CIFAR-10-C has to be prepared first.
      UserError: when the package that makes corruptions is not installed.
    """
    if name not in SHIFTS:
        raise unknown("shift", name, SHIFTS)
    require_seed(seed)
    if name == "cifar10_c":
        return cifar10_c(data_dir=data_dir, num_images=num_images)
    if test is None:
        raise DataError(f"shift {name!r} needs the test set that it is made of")
    taken = test if num_images is None else test.take(np.arange(min(num_images, len(test))))
    return rotations(taken) if name == "rotation" else corruptions(taken, seed=seed)


def rotations(test: Arrays, *, degrees: Sequence[int] = DEGREES) -> Iterator[Shifted]:
    """The test images rotated counter-clockwise about their centre: nearest neighbour, zeros where nothing was."""
    for angle in degrees:
        yield Shifted("rotation", angle, Arrays(images=rotate(test.images, float(angle)), labels=test.labels))


def rotate(images: UInt8[np.ndarray, "n h w c"], degrees: float) -> UInt8[np.ndarray, "n h w c"]:
    """Images uint8 [n, h, w, c] rotated counter-clockwise, as Pillow does it."""
    from PIL import Image

    rotated = np.empty_like(images)
    for row, image in enumerate(images):
        pillow = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
        rotated[row] = np.asarray(pillow.rotate(degrees, Image.Resampling.NEAREST)).reshape(image.shape)
    return rotated


def cifar10_c(*, data_dir: str | Path | None = None, num_images: int | None = None) -> Iterator[Shifted]:
    """The published CIFAR-10-C: 19 corruptions × 5 severities of the 10,000 test images, in the publisher's order."""
    item, root = PUBLISHED["cifar10_c"], data_root(data_dir)
    labels = np.asarray(array_sets.open_array(item, "test", data_dir=root, name="labels"), np.int32)
    # Each file has the severities one after another.
    each = prepared_splits(item, data_dir=root)["test"] // len(SEVERITIES)
    taken = each if num_images is None else min(num_images, each)

    def sets() -> Iterator[Shifted]:
        for name in CORRUPTIONS:
            images = array_sets.open_array(item, "test", data_dir=root, name=name)
            for severity in SEVERITIES:
                start = each * (severity - 1)
                rows = slice(start, start + taken)
                yield Shifted(name, severity, Arrays(images=np.asarray(images[rows]), labels=labels[rows]))

    return sets()


def corruptions(
    test: Arrays,
    *,
    seed: int = 0,
    names: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
) -> Iterator[Shifted]:
    """Corruptions in the style of CIFAR-10-C, made from the test images: about 0.8 ms an image on one core.

    They differ from the published CIFAR-10-C, whose strengths were set for 32x32 images: the package's are those of
    ImageNet-C. Results on them are not comparable with published ones.

    Raises:
      UserError: if the package is not installed.
      DataError: if the images are not RGB of at least 32x32 pixels, which is what the package takes.
    """
    require_seed(seed)
    corrupt = _corrupt_function()
    _, height, width, channels = test.images.shape
    if min(height, width) < 32 or channels != 3:
        raise DataError(f"corruptions need RGB images of at least 32x32 pixels, got {height}x{width}x{channels}")
    if unknown_names := [name for name in names if name not in CORRUPTIONS]:
        raise unknown("corruption", unknown_names[0], CORRUPTIONS)

    def sets() -> Iterator[Shifted]:
        for name in names:
            for severity in severities:
                images = _corrupted(corrupt, test.images, name, severity, seed)
                yield Shifted(name, severity, Arrays(images=images, labels=test.labels))

    return sets()


def _corrupt_function() -> Any:
    try:
        from imagecorruptions import corrupt
    except ImportError as error:
        raise UserError(
            "making corruptions needs the package imagecorruptions-imaug; run `pip install preload-jax[corruptions]`"
        ) from error
    return corrupt


def _corrupted(corrupt: Any, images: np.ndarray, name: str, severity: int, seed: int) -> np.ndarray:
    """One corruption of all images, the same for the same seed; NumPy's global generator is left as it was."""
    state = np.random.get_state()
    # The package draws from the global generator, except for two functions that take a seed.
    np.random.seed([seed, CORRUPTIONS.index(name), severity])
    own_seed = name in ("glass_blur", "impulse_noise")
    try:
        corrupted = np.empty_like(images)
        for row, image in enumerate(images):
            options = {"seed": seed * len(images) + row} if own_seed else {}
            corrupted[row] = corrupt(image, corruption_name=name, severity=severity, **options)
    finally:
        np.random.set_state(state)
    return corrupted
