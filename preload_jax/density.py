"""DDU: one Gaussian a class on the embeddings of a trained network (Mukhoti et al., 2023).

Runs in NumPy on the host, in float64: the covariances of ReLU embeddings are close to singular, float32 is not enough
for them, and accelerators have no fast float64.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from preload_jax.errors import UserError

# The largest score that float32 metrics can hold; a density further away than this is given this.
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class ClassGaussians:
    """Fitted Gaussians.

    Attributes:
        means: [K, d].
        cholesky: lower Cholesky factors of the covariances plus jitter·I, [K, d, d].
        jitter: what was added to each variance, in squared units of the features.
    """

    means: np.ndarray
    cholesky: np.ndarray
    jitter: float

    def log_density(self, features: np.ndarray) -> np.ndarray:
        """log N(g; μ_c, Σ_c) of each feature vector in each class: [n, d] → [n, K]; −inf where it overflows."""
        features = np.asarray(features, np.float64)
        out = np.empty((len(features), len(self.means)))
        for c, (mean, factor) in enumerate(zip(self.means, self.cholesky, strict=True)):
            with np.errstate(over="ignore"):
                whitened = scipy.linalg.solve_triangular(factor, (features - mean).T, lower=True, check_finite=False)
                squared_distance = np.einsum("dn,dn->n", whitened, whitened)
            log_determinant = 2.0 * np.log(np.diag(factor)).sum()
            out[:, c] = -0.5 * (squared_distance + log_determinant + len(mean) * np.log(2.0 * np.pi))
        return np.where(np.isnan(out), -np.inf, out)

    def score(self, features: np.ndarray) -> np.ndarray:
        """log Σ_c N(g; μ_c, Σ_c), unweighted: higher is more in-domain.  [n, d] → [n], float32, always finite.

        Raises:
            ValueError: when a feature is not finite.
        """
        bad = int(np.sum(~np.isfinite(features)))
        if bad:
            raise ValueError(f"{bad} of {features.size} features are not finite: their density is not defined")
        log_density = self.log_density(features)
        largest = np.maximum(log_density.max(axis=1, keepdims=True), -_LARGEST)
        score = largest[:, 0] + np.log(np.maximum(np.exp(log_density - largest).sum(axis=1), np.finfo(float).tiny))
        return score.astype(np.float32)


def fit(features: np.ndarray, labels: np.ndarray, *, num_classes: int, jitter: float | None = None) -> ClassGaussians:
    """Means and covariances (divided by n − 1) of each class's embeddings.

    Args:
        features: [n, d].
        labels: [n], in 0 … num_classes − 1.
        num_classes: the number K of classes.
        jitter: added to every variance.  None tries 0 and then ε·s·{1, 10, 100, …}, with ε the float64 rounding unit
            and s the mean variance, and keeps the first for which every class has a Cholesky factor.  A feature that
            never fires has variance 0 and so needs some.  Released code: 0.1.

    Raises:
        ValueError: when a class has fewer than two images, or a feature is not finite.
    """
    features = np.asarray(features, np.float64)
    labels = np.asarray(labels)
    if not np.isfinite(features).all():
        raise ValueError(f"{int(np.sum(~np.isfinite(features)))} of {features.size} features are not finite")
    counts = np.bincount(labels, minlength=num_classes)
    if counts.min() < 2:
        raise UserError(f"class {counts.argmin()} has {counts.min()} images; a covariance needs at least 2")
    classes = [features[labels == c] for c in range(num_classes)]
    means = np.stack([x.mean(axis=0) for x in classes])
    covariances = [(x - m).T @ (x - m) / (len(x) - 1) for x, m in zip(classes, means, strict=True)]
    for amount in _ladder(covariances) if jitter is None else [jitter]:
        factors = _cholesky(covariances, amount)
        if factors is not None:
            return ClassGaussians(means, factors, amount)
    raise UserError(f"no class covariance is positive definite with jitter {amount:g}; give a larger one")


def _ladder(covariances: list[np.ndarray]) -> list[float]:
    scale = float(np.mean([np.diag(c).mean() for c in covariances])) or 1.0
    return [0.0] + [float(np.finfo(float).eps) * scale * 10.0**k for k in range(18)]


def _cholesky(covariances: list[np.ndarray], jitter: float) -> np.ndarray | None:
    """The factors of all covariances plus jitter·I, or None where one is not positive definite."""
    try:
        return np.stack([np.linalg.cholesky(c + jitter * np.eye(len(c))) for c in covariances])
    except np.linalg.LinAlgError:
        return None
