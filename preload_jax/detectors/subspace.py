"""The directions of least variance, which residual and ViM look at."""

import numpy as np

from preload_jax.detectors import moments
from preload_jax.detectors.data import Training
from preload_jax.devices import threads
from preload_jax.errors import UserError


def fit(training: Training, dims: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The origin o = −(Wᵀ)⁺ b [d], where all logits are 0, and R [d, d − dims].

    R spans the eigenvectors of Σ_i (g_i − o)(g_i − o)ᵀ but for the `dims` of the largest eigenvalues.

    Raises:
        UserError: when `dims` leaves nothing, or everything.
    """
    assert training.head is not None
    kernel, bias = training.head
    width = len(kernel)
    if width < 2:
        raise UserError(f"features have {width} column; it needs two at least, of which some directions are left out")
    kept = _default(width) if dims is None else dims
    if not 1 <= kept < width:
        raise UserError(f"dims = {kept}; expected 1 to {width - 1}, fewer than the features")
    origin = -np.linalg.pinv(kernel.T) @ bias
    second = moments.scatter(training, lambda block, _: block.features - origin)
    # Ascending eigenvalues: the first ones vary least.
    with threads.blas_alone():
        _, vectors = np.linalg.eigh(second)
    return origin, np.ascontiguousarray(vectors[:, : width - kept])


def _default(width: int) -> int:
    return 1000 if width > 1500 else 512 if width >= 768 else width // 2
