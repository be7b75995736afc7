"""Backbones, heads and the classifier that joins them (Flax Linen)."""

from preload_jax.models.classifier import BACKBONES, HEADS, Classifier, make_classifier
from preload_jax.models.heads import INITIAL_SCALES, LinearHead, SquareLogitHead, square_logit
from preload_jax.models.lenet import LeNet
from preload_jax.models.mlp import MLP
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
    "make_classifier",
    "square_logit",
]
