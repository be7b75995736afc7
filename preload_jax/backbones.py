"""The networks by name, as data: one row each, with the facts that others ask for.  Nothing here imports JAX."""

import importlib
from dataclasses import dataclass
from typing import Any

from preload_jax.errors import UserError, unknown


@dataclass(frozen=True)
class Backbone:
    """One row.

    Attributes:
        name: as the command line spells it.
        place: "module:class" of the Linen module.
        optimizer: which one the paper trains it with; of networks that the paper does not have, the usual one.
        learning_rates: from scratch, and of fine-tuning.
        nonnegative: whether no feature is negative, as after a final ReLU.
        bounded: whether features stay bounded however far an image is, as after a final layer norm.
        zero_bias: whether the class biases start at 0; else as torch's default has them.
        options: of the module, which a run's configuration may set.
        small_images: whether recipes take the numbers of the embedded digits, not the paper's.
        small_batches: whether recipes take batches of 32, for data sets of some hundred images.
    """

    name: str
    place: str
    optimizer: str = "adam"
    learning_rates: tuple[float, float] = (1e-3, 1e-3)
    nonnegative: bool = True
    bounded: bool = False
    zero_bias: bool = True
    options: tuple[str, ...] = ()
    small_images: bool = False
    small_batches: bool = False

    @property
    def module(self) -> Any:
        """The class."""
        module, name = self.place.split(":")
        return getattr(importlib.import_module(module), name)


BACKBONES: dict[str, Backbone] = {
    row.name: row
    for row in (
        Backbone("lenet", "preload_jax.models.lenet:LeNet", zero_bias=False),
        Backbone("mlp", "preload_jax.models.mlp:MLP", small_images=True),
        Backbone(
            "wide_resnet",
            "preload_jax.models.wide_resnet:WideResNet",
            optimizer="sgd",
            learning_rates=(1e-1, 1e-3),
            options=("dropout",),
        ),
        Backbone("conv_net", "preload_jax.models.conv_net:ConvNet", small_images=True, small_batches=True),
        *(
            Backbone(
                name.lower(),
                f"preload_jax.models.resnet:{name}",
                optimizer="sgd",
                learning_rates=(1e-1, 1e-3),
            )
            for name in ("ResNet18", "ResNet34", "ResNet50")
        ),
        Backbone(
            "vit",
            "preload_jax.models.vit:ViT",
            learning_rates=(5e-4, 1e-4),
            nonnegative=False,
            bounded=True,
        ),
    )
}


def get(name: str) -> Backbone:
    """The row of a network.

    Raises:
        UserError: for an unknown name.
    """
    if name not in BACKBONES:
        raise UserError(unknown("backbone", name, sorted(BACKBONES)))
    return BACKBONES[name]


def is_nonnegative(backbone: Any) -> bool | None:
    """Whether a module's features are never negative; None for one that is not in the table."""
    for row in BACKBONES.values():
        if type(backbone) is row.module:
            return row.nonnegative
    return None
