"""The released PyTorch code's numbers, and the formula that rebuilds the weights and inputs they were computed from.

Tensors are numbered n = 0, 1, … in the order of `tensors`; with flat index i and s = sin(0.7·i + n + phase):
weights of more than one dimension are s / √(product of shape[1:]), BN weights 1 + 0.1·s, biases and running means
0.1·s, running variances 1 + 0.5·s².  Inputs (NCHW) are 0.5 + 0.5·sin(0.13·i + phase).
"""

import json
import pathlib

import numpy as np

REFERENCE = json.loads((pathlib.Path(__file__).parent / "reference.json").read_text())
PHASE = REFERENCE["phase"]


def tensor(name: str, shape: list[int], number: int) -> np.ndarray:
    s = np.sin(0.7 * np.arange(np.prod(shape)) + number + PHASE).reshape(shape)
    if name.endswith("running_var"):
        value = 1 + 0.5 * s**2
    elif name.endswith(("running_mean", "bias")):
        value = 0.1 * s
    elif len(shape) > 1:
        value = s / np.sqrt(np.prod(shape[1:]))
    else:
        value = 1 + 0.1 * s
    return value.astype(np.float32)


def state_dict(model: str) -> dict[str, np.ndarray]:
    return {name: tensor(name, shape, n) for n, (name, shape) in enumerate(REFERENCE["models"][model]["tensors"])}


def images(model: str) -> np.ndarray:
    shape = REFERENCE["models"][model]["input_shape_nchw"]
    flat = 0.5 + 0.5 * np.sin(0.13 * np.arange(np.prod(shape)) + PHASE)
    return flat.reshape(shape).transpose(0, 2, 3, 1).astype(np.float32)
