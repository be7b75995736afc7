"""Pictures of results; `python -m experiments.figures` draws them all."""

from experiments.drawing.scores import score_histograms
from experiments.drawing.style import ACCENT, IN_DOMAIN, OOD, save

__all__ = ["ACCENT", "IN_DOMAIN", "OOD", "save", "score_histograms"]
