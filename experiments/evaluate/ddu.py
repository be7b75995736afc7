"""DDU's Gaussians of a run: fitted once, and kept in its folder, so that the training images are not needed again."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from preload_jax.detectors import Detector
from preload_jax.errors import DataError, reason
from preload_jax.formats.files import write_bytes


def write(path: Path, detector: Detector) -> None:
    """The fitted arrays and the options, as one .npz file without pickles."""
    buffer = io.BytesIO()
    arrays = {f"fitted.{name}": np.asarray(value) for name, value in detector.fitted.items()}
    about = {"options": dict(detector.options), "num_classes": detector.num_classes, "width": detector.width}
    np.savez(buffer, about=np.array(json.dumps(about, sort_keys=True)), **arrays)  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


def read(path: Path) -> Detector | None:
    """What `write` wrote; None where there is no file.

    Raises:
        DataError: when the file is damaged.
    """
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            about: dict[str, Any] = json.loads(str(file["about"]))
            fitted = {name.removeprefix("fitted."): file[name] for name in file.files if name != "about"}
        return Detector("ddu", fitted, about["options"], about["num_classes"], None, about["width"])
    except Exception as error:  # of zipfile, NumPy and json, which have no common class
        raise DataError(f"{path} is damaged ({reason(error)}); remove it and evaluate the run again") from None
