"""Whether a trained network is what a run can start from."""

from pathlib import Path

from experiments.runs import networks
from experiments.runs.configuration import Config
from preload_jax import methods
from preload_jax.errors import UserError

# Classes in a message.
_MAX_NAMED = 10


def require_fits(there: Config, config: Config, *, of: Path) -> None:
    """Raises a UserError unless a run of one configuration can be the start of another's.

    Args:
        there: of what was trained before.
        config: of the run that starts from it.
        of: the folder or file that it is in.
    """
    needed = methods.get(config.method).starts_from
    if there.method != needed or there.dataset != config.dataset:
        raise UserError(
            f"{of} holds {there.method} on {there.dataset};"
            f" {config.method} needs the run of {needed} on {config.dataset}"
        )
    if there.data.backbone != config.data.backbone:
        raise UserError(
            f"{of} holds a {there.data.backbone}, this run has a {config.data.backbone}; give the same"
            " --backbone, or another --root or --start"
        )
    if (there.backbone_options, there.data.image_shape) != (config.backbone_options, config.data.image_shape):
        raise UserError(
            f"{of} holds a {_form(there)}, this run has a {_form(config)}; give the same --backbone.* and"
            " --image-size, or another --root or --start"
        )
    if there.data.class_names != config.data.class_names:
        raise UserError(
            f"{of} knows the classes {_named(there)}, and {config.dataset} has {_named(config)} now; labels would mean"
            " other classes: give the data that it was trained on, or another --root or --start"
        )
    if there.data.augmentation != config.data.augmentation:
        raise UserError(
            f"{of} was trained with another augmentation than this run has; give the same --augmentation.*,"
            " or another --root or --start"
        )
    if there.validation != config.validation:
        # Its training images may be this run's validation images.
        raise UserError(
            f"{of} was trained with --validation={there.validation}, this run has"
            f" --validation={config.validation}; give the same, or another --root or --start"
        )


def _named(config: Config) -> str:
    names = config.data.class_names
    return ", ".join(names[:_MAX_NAMED]) + (f", … ({len(names):,})" if len(names) > _MAX_NAMED else "")


def _form(config: Config) -> str:
    options, shape = networks.spelled(config.backbone_options), "×".join(map(str, config.data.image_shape))
    return f"{config.data.backbone}{options} for images of {shape}"
