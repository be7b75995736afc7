"""What a row of the table of detectors says; imports no JAX."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# What a detector may need, and how messages call it.
NEEDS = {
    "features": "features [n, d]",
    "logits": "logits [n, K]",
    "ood_logit": "logits [n, K + 1] whose last column is the OOD class",
    "labels": "labels of the training data",
    "head": "head=(kernel [d, K], bias [K])",
    "maps": "maps, a tuple of feature maps [n, h, w, c]",
    "images": "images [n, ...]",
    "network": "network, a JAX function of images that returns Outputs",
}

# What the score does along almost every ray x₀ + t·u as t → ∞, in one word.
FAR_AWAY = {
    "always": "falls to −∞: always called OOD",
    "never": "rises to +∞ or to its largest value: never called OOD",
    "contest": "rises or falls without limit, as the direction decides",
    "direction": "tends to a number that the direction alone decides",
    "bounded": "tends to a number where features are ≥ 0",
    "undecided": "not derived here",
}


@dataclass(frozen=True)
class Row:
    """One detector.

    Attributes:
        title: as tables print it.
        module: the file in `preload_jax.detectors` with its `fit`, `score` and `limit`.
        reference: authors, venue, year.
        year: of the reference.
        url: of the reference.
        equation: the score, higher = more in-domain, in LaTeX.
        needs: what it reads, of `NEEDS`.
        far_away: what the score does along a ray, of `FAR_AWAY`.
        options: hyper-parameters and their defaults.
        origin: where these defaults are from.
        price: what fitting stores and what a score costs.
        passes: how often fitting reads the training data; 0 for those that learn nothing.
        on_host: whether it scores on the host, with NumPy: in float64, over a bank of examples piece by piece, or what
            a compiled call is slower at on a CPU.
        telling: whether a score is not finite wherever an input of it is not; inputs are looked at only then.
        fixed: what tells this row from others of the same file.

    Example: see `get`.
    """

    title: str
    module: str
    reference: str
    year: int
    url: str
    equation: str
    needs: tuple[str, ...]
    far_away: str
    options: Mapping[str, Any] = field(default_factory=dict)
    origin: str = "none"
    price: str = "stores nothing; O(K) a score"
    passes: int = 0
    on_host: bool = False
    telling: bool = False
    fixed: Mapping[str, Any] = field(default_factory=dict)
