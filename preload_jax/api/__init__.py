"""The library's front door: train, predict, evaluate, and give a trained network an OOD class.

Arrays in, arrays out.  Images are uint8 in [0, 255] or, except for training, floating point in [0, 1], always
[n, h, w, channels].  Everything else that the library has (losses, metrics, guarantees, data) can be used on its own.
"""

from preload_jax.api.asking import Predictions, evaluate, predict
from preload_jax.api.attaching import Attached, attach
from preload_jax.api.fitting import fit

__all__ = ["Attached", "Predictions", "attach", "evaluate", "fit", "predict"]
