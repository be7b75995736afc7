"""Backbones, heads and the classifier that joins them (Flax Linen)."""

from preload_jax.models.ccu_head import CCUHead
from preload_jax.models.classifier import BACKBONES, HEADS, Classifier, features_nonnegative, make_classifier
from preload_jax.models.conv_net import ConvNet
from preload_jax.models.distance import WithDistance, typical_distance
from preload_jax.models.heads import LinearHead, SquareLogitHead, head_options
from preload_jax.models.laplace_head import LaplaceHead
from preload_jax.models.lenet import LeNet
from preload_jax.models.mixtures import MCDropout, ensemble
from preload_jax.models.mlp import MLP
from preload_jax.models.ood_logit import INITIAL_SCALES, square_logit
from preload_jax.models.resnet import ResNet18, ResNet34, ResNet50
from preload_jax.models.rgpr_head import RGPRHead
from preload_jax.models.vit import ViT
from preload_jax.models.wide_resnet import WideResNet

__all__ = [
    "BACKBONES",
    "HEADS",
    "INITIAL_SCALES",
    "MLP",
    "CCUHead",
    "Classifier",
    "ConvNet",
    "LaplaceHead",
    "LeNet",
    "LinearHead",
    "MCDropout",
    "RGPRHead",
    "ResNet18",
    "ResNet34",
    "ResNet50",
    "SquareLogitHead",
    "ViT",
    "WideResNet",
    "WithDistance",
    "ensemble",
    "features_nonnegative",
    "head_options",
    "make_classifier",
    "square_logit",
    "typical_distance",
]
