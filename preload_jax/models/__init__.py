"""Backbones, heads and the classifier that joins them (Flax Linen)."""

from preload_jax.models.classifier import BACKBONES, HEADS, Classifier, features_nonnegative, make_classifier
from preload_jax.models.distance import WithDistance, typical_distance
from preload_jax.models.heads import LinearHead, SquareLogitHead, head_options
from preload_jax.models.lenet import LeNet
from preload_jax.models.mlp import MLP
from preload_jax.models.ood_logit import INITIAL_SCALES, square_logit
from preload_jax.models.wide_resnet import WideResNet

__all__ = [
    "BACKBONES",
    "HEADS",
    "INITIAL_SCALES",
    "MLP",
    "Classifier",
    "LeNet",
    "LinearHead",
    "SquareLogitHead",
    "WideResNet",
    "WithDistance",
    "features_nonnegative",
    "head_options",
    "make_classifier",
    "square_logit",
    "typical_distance",
]
