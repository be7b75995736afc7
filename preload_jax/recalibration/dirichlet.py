"""The Dirichlet map: a matrix and an offset on the log-probabilities, with ODIR (Kull et al., 2019)."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float

from preload_jax.log_sum_exp import log_softmax
from preload_jax.recalibration import convex

# Beyond this, sums of products could overflow float32.
_LARGEST = 1e30


def fit(
    logits: np.ndarray,
    labels: np.ndarray,
    *,
    off_diagonal: float | None = None,
    diagonal: float | None = None,
    intercept: float | None = None,
) -> dict[str, np.ndarray]:
    """W and b of the smallest mean −log softmax(W log q + b)_y, q = softmax(z), + ODIR + a pull of the diagonal.

    ODIR, off-diagonal and intercept regularisation, is off_diagonal/(K(K−1)) Σ_{i≠j} w_ij² + intercept/K Σ_j b_j².
    The pull is diagonal/K Σ_j (w_jj − 1)²; Kull et al. have none, and then there may be no minimum.
    """
    n, k = logits.shape
    inputs = np.concatenate([scipy.special.log_softmax(logits, axis=1), np.ones((n, 1))], axis=1)
    eye, last = np.eye(k, k + 1), np.eye(1, k + 1, k).repeat(k, axis=0)
    penalties = {
        "off_diagonal": (1.0 - eye - last) / (k * (k - 1)),
        "diagonal": eye / k,
        "intercept": last / k,
    }
    strengths = {"off_diagonal": off_diagonal, "diagonal": diagonal, "intercept": intercept}
    theta = convex.fit(convex.Problem(inputs, labels, eye, penalties), strengths)
    return {"matrix": theta[:, :k], "offset": theta[:, k]}


def logits(parameters: dict[str, Any], z: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """W log softmax(z) + b."""
    log_q = jnp.clip(log_softmax(z), -_LARGEST, _LARGEST)
    return jnp.matmul(log_q, parameters["matrix"].T, precision="highest") + parameters["offset"][None]
