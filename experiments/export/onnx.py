"""A network's logits as an ONNX file, by the package jax2onnx, and checked with onnxruntime."""

import importlib.metadata
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from preload_jax.errors import UserError, reason
from preload_jax.formats.files import write_bytes

# Of logits, relative to the largest.
_ROUNDING = 1e-4
# Images that the file is asked about, in one batch and in another.
_SIZES = (1, 5)


def require() -> None:
    """Raises a UserError unless the packages are there."""
    try:
        import jax2onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError:
        raise UserError(
            "--onnx needs the packages jax2onnx and onnxruntime: pip install jax2onnx onnxruntime"
        ) from None


def write(path: Path, model: Any, variables: Mapping[str, Any], image_shape: tuple[int, int, int]) -> dict[str, Any]:
    """Writes the logits of float32 images in [0, 1], any number of them, whole or not at all.

    Returns:
        {"file", "onnxruntime", "jax2onnx", "largest_difference"}: of logits, between onnxruntime and the network.

    Raises:
        UserError: when the packages are missing, jax2onnx cannot convert the network, or onnxruntime answers otherwise.
    """
    require()
    import jax2onnx
    import onnxruntime

    versions = {name: importlib.metadata.version(name) for name in ("jax2onnx", "onnxruntime")}
    logging.getLogger("onnx_ir").setLevel(logging.ERROR)
    try:
        converted = jax2onnx.to_onnx(lambda images: model.apply(variables, images), inputs=[("n", *image_shape)])
        content = converted.SerializeToString()
        options = onnxruntime.SessionOptions()
        # It warns of shapes that it mends.
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # A converter, and a loader, of their own kinds.
        raise UserError(
            f"jax2onnx {versions['jax2onnx']} cannot write this network as ONNX ({reason(error)}); --out writes a"
            " program"
        ) from None
    largest, rng = 0.0, np.random.default_rng(0)
    for size in _SIZES:
        images = rng.random((size, *image_shape), np.float32)
        found = session.run(None, {session.get_inputs()[0].name: images})[0]
        expected = np.asarray(model.apply(variables, jnp.asarray(images)))
        apart = float(np.abs(found - expected).max()) if found.shape == expected.shape else np.inf
        if not apart <= _ROUNDING * max(1.0, float(np.abs(expected).max())):
            raise UserError(
                f"onnxruntime {versions['onnxruntime']} answers otherwise than the network, by {apart:.3g}; nothing was"
                " written"
            )
        largest = max(largest, apart)
    write_bytes(path, content)
    return {"file": str(path), **versions, "largest_difference": largest}
