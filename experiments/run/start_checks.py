"""Whether a trained network is what a run can start from."""

import os
from collections.abc import Sequence
from pathlib import Path

from experiments.runs import classes, networks
from experiments.runs.configuration import Config
from preload_jax import methods
from preload_jax.data import datasets, names, own_digest
from preload_jax.errors import UserError


def require_fits(there: Config, config: Config, *, of: Path, given: bool) -> None:
    """Raises a UserError unless a run of one configuration can be the start of another's.

    Args:
        there: of what was trained before.
        config: of the run that starts from it.
        of: the folder or file that it is in.
        given: whether the user named it, see `same_data`.
    """
    needed = methods.get(config.method).starts_from
    if there.method != needed or not same_data(there.dataset, config.dataset, given=given):
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
    require_classes(there.data.class_names, config, of=of)
    if there.data.augmentation != config.data.augmentation:
        raise UserError(
            f"{of} was trained with another augmentation than this run has; give the same --augmentation.*,"
            " or another --root or --start"
        )
    if same_data(there.dataset, config.dataset, given=False) and not same_images(there, config):
        raise UserError(
            f"{of} was trained on other images of {config.dataset}, of which some were added, removed or changed since,"
            " so that this run's test images may be among them; put them back, or give another --root or --start"
        )
    if there.validation != config.validation:
        # Its training images may be this run's validation images.
        raise UserError(
            f"{of} was trained with --validation={there.validation}, this run has"
            f" --validation={config.validation}; give the same, or another --root or --start"
        )


def require_kept(there: Path, place: Path) -> None:
    """Raises a UserError where a run would be written in the place of the run that it starts from."""
    if os.path.realpath(there) == os.path.realpath(place):
        raise UserError(
            f"{place} is the folder of the run that this one starts from; give another --run-dir or --start"
        )


def same_data(there: str, here: str, *, given: bool) -> bool:
    """Whether two names mean the same data, as far as names tell.

    Args:
        there: the name of what a network was trained on, perhaps on another machine.
        here: of the run's own.
        given: whether the user named the network as the start.  Then a user's own data may have moved: their classes
            and the images' size say what they are.  A run that is found beside others may be of another folder.
    """
    one_name = datasets.canonical(there) == datasets.canonical(here)
    return one_name or (given and names.is_own(there) and names.is_own(here))


def same_images(there: Config, here: Config) -> bool:
    """Whether two runs have the same images of the user's own, as far as their digests are known."""
    return own_digest.may_be_one(there.data_digest, here.data_digest)


def moved(there: str, here: str, *, same_images: bool = True) -> str:
    """What to say of a start that was trained on data of another name; empty for the same."""
    if same_data(there, here, given=False):
        return ""
    but = "" if same_images else ", and the images are not: this run's test images may be among its training images"
    return f"; it was trained on {there}, which is taken for {here}: classes and image size are the same{but}"


def require_classes(there: Sequence[str], config: Config, *, of: Path) -> None:
    """Raises a UserError unless a run's labels mean what they meant to a network that was trained on these classes."""
    advice = "another --root or --start"
    classes.require_same(there, config.data.class_names, of=of, dataset=config.dataset, advice=advice)


def _form(config: Config) -> str:
    options, shape = networks.spelled(config.backbone_options), "×".join(map(str, config.data.image_shape))
    return f"{config.data.backbone}{options} for images of {shape}"
