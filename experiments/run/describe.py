"""What a run will compute from what, in a few lines before it begins."""

from experiments.cli.display import Display
from experiments.run import effort, train
from experiments.runs import recipes, settings
from experiments.runs.configuration import Config
from preload_jax.data.specs import DATASETS
from preload_jax.data.splits import Splits
from preload_jax.training.optimizers import Optimizer


def describe(config: Config, splits: Splits, *, display: Display) -> None:
    """Says the sizes of the splits, the stages, and what differs from the recipe; the rest is in config.json."""
    held_out = f"{len(splits.validation):,} validation (out of the {config.validation} split) and "
    display.say(
        f"{config.dataset}: {len(splits.train):,} training, {held_out if len(splits.validation) else ''}"
        f"{len(splits.test):,} test images"
    )
    stages = train.stages(config, num_images=len(splits.train))
    if config.dataset not in DATASETS:
        shape = "×".join(map(str, config.data.image_shape))
        note = f", {config.data.note}" if config.data.note else ""
        display.say(f"images of {shape}{note}; network {config.data.backbone} (--backbone chooses another)")
    for warning in effort.warnings(stages, config.data.image_shape):
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
