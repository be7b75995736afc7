"""The curvature of the cross-entropy in the last layer's weights, as a Laplace approximation takes it.

H = Σ_n (diag p_n − p_n p_nᵀ) ⊗ g̃_n g̃_nᵀ with g̃ = (g, 1): the Hessian of Σ_n −log p(y_n | x_n) in W and b, which is
also the generalised Gauss-Newton matrix.  Everything is in float64 on the host.
"""

from dataclasses import dataclass

import numpy as np
import scipy.special
from jaxtyping import Float

from preload_jax.errors import UserError

# Weights of the last layer of which a full covariance is made: 200 MB, and a minute.
MOST_WEIGHTS = 5000
# Rows whose Hessians are formed at once.
_ROWS = 256


@dataclass(frozen=True)
class Kron:
    """H ≈ Γ ⊗ A for W, and Γ for b: A = 1/n Σ g gᵀ, Γ = Σ_n (diag p_n − p_n p_nᵀ) (Ritter et al., 2018).

    Attributes:
        feature_values, feature_basis: eigenvalues [d] and eigenvectors [d, d] of A.
        class_values, class_basis: of Γ, [K] and [K, K].
    """

    feature_values: Float[np.ndarray, "d"]
    feature_basis: Float[np.ndarray, "d d"]
    class_values: Float[np.ndarray, "k"]
    class_basis: Float[np.ndarray, "k k"]

    @property
    def eigenvalues(self) -> Float[np.ndarray, "p"]:
        """All K (d + 1)."""
        return np.concatenate([np.outer(self.feature_values, self.class_values).ravel(), self.class_values])

    def inverse_values(self, precision: float) -> Float[np.ndarray, "d1 k"]:
        """1/(α_i γ_j + δ), and 1/(γ_j + δ) in the last row."""
        values = np.append(self.feature_values, 1.0)[:, None] * self.class_values
        return 1.0 / (values + precision)

    def covariances(self, features: Float[np.ndarray, "n d"], precision: float) -> Float[np.ndarray, "n k k"]:
        """Of the logits: Q_Γ diag_j(Σ_i (Q_Aᵀg)_i² / (α_i γ_j + δ) + 1/(γ_j + δ)) Q_Γᵀ."""
        squares = np.square(features @ self.feature_basis)
        values = np.column_stack([squares, np.ones(len(squares))]) @ self.inverse_values(precision)
        return np.einsum("ij,nj,kj->nik", self.class_basis, values, self.class_basis)

    def blocks(self, precision: float) -> Float[np.ndarray, "k d1 d1"]:
        """Σ_c, the covariance of each class's own weights and bias."""
        weights = self.class_variances(precision)
        d, k = len(self.feature_values), len(self.class_values)
        found = np.zeros((k, d + 1, d + 1))
        for c in range(k):
            found[c, :d, :d] = (self.feature_basis * weights[:d, c]) @ self.feature_basis.T
            found[c, d, d] = weights[d, c]
        return found

    def class_variances(self, precision: float) -> Float[np.ndarray, "d1 k"]:
        """ω: Σ_j (Q_Γ)_cj² / (α_i γ_j + δ), the eigenvalues of Σ_c; the bias's in the last row."""
        return self.inverse_values(precision) @ np.square(self.class_basis).T

    def stats(self, precision: float) -> dict[str, np.ndarray]:
        """What a `LaplaceHead` keeps."""
        return {"basis": self.feature_basis, "variances": self.class_variances(precision)}


@dataclass(frozen=True)
class Full:
    """H itself, by its eigenvalues [P] and eigenvectors [P, P], P = K (d + 1); class after class, each bias last."""

    values: Float[np.ndarray, "p"]
    basis: Float[np.ndarray, "p p"]
    num_classes: int

    @property
    def eigenvalues(self) -> Float[np.ndarray, "p"]:
        """All K (d + 1)."""
        return self.values

    def matrix(self, precision: float) -> Float[np.ndarray, "k d1 k d1"]:
        """(H + δ I)⁻¹."""
        size = len(self.values) // self.num_classes
        inverse = (self.basis / (self.values + precision)) @ self.basis.T
        return inverse.reshape(self.num_classes, size, self.num_classes, size)

    def covariances(self, features: Float[np.ndarray, "n d"], precision: float) -> Float[np.ndarray, "n k k"]:
        """Of the logits: g̃ᵀ Σ_cc' g̃."""
        with_one = np.column_stack([features, np.ones(len(features))])
        half = np.tensordot(with_one, self.matrix(precision), axes=(1, 1))
        return np.einsum("nkle,ne->nkl", half, with_one)

    def blocks(self, precision: float) -> Float[np.ndarray, "k d1 d1"]:
        """Σ_c, the covariance of each class's own weights and bias."""
        return np.einsum("kdke->kde", self.matrix(precision))

    def stats(self, precision: float) -> dict[str, np.ndarray]:
        """What a `LaplaceHead` keeps."""
        try:
            return {"factor": np.linalg.cholesky(self.blocks(precision))}
        except np.linalg.LinAlgError:
            raise UserError(
                f"the posterior's precisions reach from {self.values.min() + precision:.3g} to"
                f" {self.values.max() + precision:.3g}, too far apart for float64; give a larger prior_precision, or a"
                " smaller ood_weight"
            ) from None


Curvature = Kron | Full


def kron(features: Float[np.ndarray, "n d"], logits: Float[np.ndarray, "n k"], weights: Float[np.ndarray, "n"]) -> Kron:
    """The Kronecker-factored curvature of a last layer with these inputs and outputs, each counted by its weight."""
    p = scipy.special.softmax(logits, axis=1)
    weighted = weights[:, None] * p
    gamma = np.diag(weighted.sum(axis=0)) - weighted.T @ p
    return Kron(*_eigen((weights[:, None] * features).T @ features / weights.sum()), *_eigen(gamma))


def full(features: Float[np.ndarray, "n d"], logits: Float[np.ndarray, "n k"], weights: Float[np.ndarray, "n"]) -> Full:
    """The whole Hessian of a last layer with these inputs and outputs, each counted by its weight.

    Raises:
        UserError: for more than `MOST_WEIGHTS` weights and biases.
    """
    n, k = logits.shape
    size = features.shape[1] + 1
    if k * size > MOST_WEIGHTS:
        raise UserError(
            f"the last layer has {k * size:,} weights and biases; a full covariance is made of at most"
            f' {MOST_WEIGHTS:,}: give structure="kron"'
        )
    p = scipy.special.softmax(logits, axis=1)
    hessian = np.zeros((k * size, k * size))
    for start in range(0, n, _ROWS):
        rows = slice(start, start + _ROWS)
        g = np.column_stack([features[rows], np.ones(len(features[rows]))]) * np.sqrt(weights[rows, None])
        weighted = (p[rows, :, None] * g[:, None, :]).reshape(len(g), -1)
        hessian -= weighted.T @ weighted
        for c in range(k):
            at = slice(c * size, (c + 1) * size)
            hessian[at, at] += (p[rows, c, None] * g).T @ g
    return Full(*_eigen(hessian), k)


def _eigen(matrix: Float[np.ndarray, "d d"]) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, those below 0 by rounding as 0, and eigenvectors: of a singular matrix, too."""
    values, vectors = np.linalg.eigh(matrix)
    return np.maximum(values, 0.0), vectors
