"""What a run will compute from what, in a few lines before it begins."""

import numpy as np

from experiments.cli.display import Display
from experiments.run import effort, train
from experiments.runs import networks, recipes, settings
from experiments.runs.configuration import Config
from preload_jax.data.specs import DATASETS, own_backbone
from preload_jax.data.splits import Splits
from preload_jax.training.optimizers import Optimizer


def describe(config: Config, splits: Splits, *, display: Display) -> None:
    """Says the sizes of the splits, the stages, and what differs from the recipe; the rest is in config.json."""
    whose = "the data set's own" if splits.own_validation else f"out of the {config.validation} split"
    held_out = f"{len(splits.validation):,} validation ({whose}) and "
    display.say(
        f"{config.dataset}: {len(splits.train):,} training, {held_out if len(splits.validation) else ''}"
        f"{len(splits.test):,} test images"
    )
    stages = train.stages(config, num_images=len(splits.train))
    if config.dataset not in DATASETS:
        for line in _own(config):
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
    if changed := recipes.departures(config):
        display.say(f"other than the {config.recipe} recipe: " + ", ".join(changed))


def _own(config: Config) -> list[str]:
    """What was made of the user's own images, and why."""
    spec = config.data
    classes = ", ".join(spec.class_names[:10]) + (", …" if spec.num_classes > 10 else "")
    done = spec.note or "as they are"
    usual, why = own_backbone(spec.image_shape)
    reason = f"since {why}" if spec.backbone == usual else f"as asked ({usual} is usual for them)"
    return [
        f"{spec.num_classes} classes: {classes}",
        f"images get {'×'.join(map(str, spec.image_shape))}: {done} (a folder's: --image-size)",
        f"network {spec.backbone}{networks.spelled(config.backbone_options)}, {reason}; --backbone chooses another",
    ]
