"""DDU's Gaussians: fitted once, kept with a run and in an exported file; the training images are not needed again."""

import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from preload_jax.detectors import Detector
from preload_jax.errors import DataError, reason, require_plain_file
from preload_jax.formats import strict_json
from preload_jax.formats.files import write_bytes


def dump(detector: Detector) -> tuple[str, dict[str, np.ndarray]]:
    """What it is, as text, and its arrays by name."""
    about = {"options": dict(detector.options), "num_classes": detector.num_classes, "width": detector.width}
    arrays = {f"fitted.{name}": np.asarray(value) for name, value in detector.fitted.items()}
    return json.dumps(about, sort_keys=True), arrays


def restore(about: str, arrays: Mapping[str, np.ndarray]) -> Detector:
    """The detector that `dump` took apart.

    Raises:
        ValueError: when something is missing or has another shape.
    """
    said = strict_json.parse(about)
    fitted = {name.removeprefix("fitted."): np.asarray(array) for name, array in arrays.items()}
    classes, width = said["num_classes"], said["width"]
    expected = {"means": (classes, width), "cholesky": (classes, width, width), "log_weights": (classes,), "jitter": ()}
    found = {name: array.shape for name, array in fitted.items()}
    if found != expected:
        raise ValueError(f"arrays {found}; expected {expected}")
    return Detector("ddu", fitted, said["options"], classes, None, width)


def write(path: Path, detector: Detector) -> None:
    """As one .npz file without pickles."""
    about, arrays = dump(detector)
    buffer = io.BytesIO()
    np.savez(buffer, about=np.array(about), **arrays)  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


def read(path: Path) -> Detector | None:
    """What `write` wrote; None where there is no file.

    Raises:
        DataError: when the file is damaged.
    """
    require_plain_file(path)
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            return restore(str(file["about"]), {name: file[name] for name in file.files if name != "about"})
    except Exception as error:  # of zipfile, NumPy and json, which have no common class
        raise DataError(f"{path} is damaged ({reason(error)}); remove it and evaluate the run again") from None
