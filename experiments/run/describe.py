"""What a run will compute from what, in a few lines before it begins."""

import numpy as np

from experiments.cli.display import Display
from experiments.run import effort, train
from experiments.runs import networks, recipes, settings
from experiments.runs.configuration import Config
from preload_jax.data import names, own_data
from preload_jax.data.specs import DATASETS, Augmentation, own_backbone
from preload_jax.data.splits import Splits
from preload_jax.training.optimizers import Optimizer


def describe(config: Config, splits: Splits, *, display: Display) -> None:
    """Says the sizes of the splits, the stages, and what differs from the recipe; the rest is in config.json."""
    made_test = config.dataset not in DATASETS and own_data.makes_test(own_data.describe(config.dataset))
    source = "images that were set apart for testing" if made_test and config.validation == "test" else ""
    source = source or f"{config.validation} split"
    whose = "the data set's own" if splits.own_validation else f"out of the {source}"
    held_out = f"{len(splits.validation):,} validation ({whose}) and "
    apart = "; there is no test split, so a fixed fifth of the images was set apart for testing"
    display.say(
        f"{config.dataset}: {len(splits.train):,} training, {held_out if len(splits.validation) else ''}"
        f"{len(splits.test):,} test images{apart * made_test}"
    )
    stages = train.stages(config, num_images=len(splits.train))
    if config.dataset not in DATASETS:
        for line in _own(config, len(splits.train)):
            display.say(line)
    if stages:
        needed = effort.expected(stages, config.data.image_shape)
        if config.dataset not in DATASETS:
            arrays = [each.images for each in (splits.train, splits.validation, splits.test)]
            for line in needed.lines(sum(each.nbytes for each in arrays if not isinstance(each, np.memmap))):
                display.say(line)
        for warning in needed.warnings():
            display.warn(warning)
    for stage in stages:
        numbers = stage.numbers
        assert isinstance(numbers.optimizer, Optimizer)
        text = (
            f"{settings.title(stage, config.dataset)}: {stage.plan.total_steps:,} steps of {config.batch_size} images,"
            f" {numbers.optimizer.name}, learning rate {numbers.learning_rate:g}, weight decay {numbers.weight_decay:g}"
        )
        if stage.method.uses_outliers:
            text += f", λ {numbers.ood_weight:g}, outliers {config.outliers}"
        elif stage.method.makes_noise:
            text += f", λ {numbers.ood_weight:g}, and as much noise"
        display.say(text)
    usual = recipes.get(config.data, config.method, seed=config.seed, recipe=config.recipe)
    if not stages and (config.epochs, config.optimizer) != (usual.epochs, usual.optimizer):
        display.warn(f"{config.method} trains nothing: epochs and optimizer options have no effect")
    changed = recipes.departures(config)
    if config.dataset in DATASETS and changed:
        display.say(f"settings that are not the {config.recipe} recipe's (its own in brackets): " + ", ".join(changed))
    # No recipe says which outliers one's own images need, and the stages name them.
    elif others := [each for each in changed if not each.startswith("outliers ")]:
        display.say("settings that are not the usual ones (those in brackets): " + ", ".join(others))


def _own(config: Config, num_images: int) -> list[str]:
    """What was made of the user's own images, `num_images` of them to train on, and why."""
    spec = config.data
    classes = ", ".join(spec.class_names[:10]) + (", …" if spec.num_classes > 10 else "")
    height, width, channels = spec.image_shape
    size = f"{width}×{height} pixels, {'grey' if channels == 1 else 'in colour'}"
    another = "; --image-size sets another size" if names.is_folder(config.dataset) else ""
    usual, why = own_backbone(spec.image_shape)
    reason = f"since {why}" if spec.backbone == usual else f"as asked ({usual} is usual for them)"
    return [
        f"{spec.num_classes} classes: {classes}",
        f"the network sees images of {size}: {spec.note or 'the size that they have'}{another}",
        f"network {spec.backbone}{networks.spelled(config.backbone_options)}, {reason}; --backbone chooses another",
        _augmentation(spec.augmentation),
        *_batches(config, num_images),
    ]


def _batches(config: Config, num_images: int) -> list[str]:
    """Why the batch is smaller than the recipe's; nothing where the recipe's would fit."""
    usual = recipes.get(config.data, config.method, seed=config.seed, recipe=config.recipe).batch_size
    if usual <= num_images:
        return []
    line = f"batches of {config.batch_size} images: the usual {usual} are more than the {num_images} training images"
    return [f"{line}; --batch-size sets another size"]


def _augmentation(policy: Augmentation | None) -> str:
    """How training images are changed at random, and how not to."""
    if policy is None or not policy.probability:
        return "training images are not changed at random"
    ways = [f"shifted by up to {policy.pad} pixel{'s' if policy.pad > 1 else ''}"] if policy.pad else []
    ways += ["mirrored left to right half the time"] if policy.flip else []
    line = f"{100 * policy.probability:g} % of training images are changed at random: {' and '.join(ways)}"
    if policy.flip:
        line += "; --augmentation.flip=False where mirrored images mean something else, such as letters"
    return line + "; --augmentation.probability=0 changes none"
