"""What a tuning trial does: trains without leaving files, and tells its score on validation images after each epoch."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from experiments.cli.interrupts import Interrupted, Signals
from experiments.run import train
from experiments.run.train import Hardware
from experiments.runs import folder as runs
from experiments.runs.configuration import Config
from preload_jax import evaluation, methods, metrics
from preload_jax.data import datasets
from preload_jax.data.splits import Splits
from preload_jax.errors import UserError
from preload_jax.evaluation import Scorer
from preload_jax.training.data import TrainingData
from preload_jax.training.run import Callbacks, Progress
from preload_jax.training.stage import Stage

# Another stream than the OOD test sets', which are made with seed 0.
_OOD_SEED = 1
# Scores of a trial at most, so that pruning costs little beside training.
_MAX_REPORTS = 20


@dataclass(frozen=True)
class Objective:
    """The score of a configuration: accuracy on validation images, and on request how well it tells OOD images apart.

    Attributes:
        splits: of the in-domain set.
        start: variables of the network that fine-tuning starts from; None for random weights.
        ood_images: of the held-out OOD set; None scores accuracy alone, as the paper does.
        ood_reward: score = accuracy + ood_reward × AUROC.
        stages: how many of the method's stages are trained.
        load_data: gives the training images and outliers, the same in every trial.
        hardware: on which devices.
    """

    splits: Splits
    start: dict[str, Any] | None
    ood_images: np.ndarray | None
    ood_reward: float
    stages: int
    load_data: Callable[[], TrainingData]
    hardware: Hardware = field(default_factory=Hardware)

    def score(self, config: Config, variables: dict[str, Any]) -> float:
        """The score of a network, a fraction where accuracy counts alone."""
        method = methods.get(config.method)
        model = runs.build_model(config)
        scorer = Scorer(model, variables, method.has_ood_class, method.score, self.hardware.mesh)
        outputs = scorer(self.splits.validation.images)
        accuracy = evaluation.accuracy(outputs.logits, self.splits.validation.labels)
        if self.ood_images is None:
            return accuracy
        auroc = metrics.auroc(outputs.scores, scorer(self.ood_images).scores)
        return accuracy + self.ood_reward * float(auroc)

    def run(self, config: Config, *, report: Callable[[int, float], bool]) -> float:
        """Trains, and returns the final score.

        Args:
            config: of the trial.
            report: is told epochs done and the score now and then, and says whether to stop here.

        Raises:
            Interrupted: SIGINT or SIGTERM came.
            training.loop.NonFiniteLossError: training diverged.
        """
        stages = train.stages(config, num_images=len(self.splits.train), hardware=self.hardware)[: self.stages]
        every = max(1, sum(stage.numbers.epochs for stage in stages) // _MAX_REPORTS)
        epochs_done = 0

        @contextlib.contextmanager
        def watch(stage: Stage, done: int) -> Iterator[Callable[[Progress], None]]:
            def tell(progress: Progress) -> None:
                nonlocal epochs_done
                epochs_done += progress.report.ends_epoch
                ends_stage = progress.report.step == stage.plan.total_steps
                if progress.report.ends_epoch and epochs_done % every == 0 and not ends_stage:
                    score = self.score(config, progress.report.state.variables)
                    if report(epochs_done, score):
                        raise _StoppedHere(score)

            yield tell

        with Signals() as signals:
            callbacks = Callbacks(watch, stop=lambda: Interrupted(signals.received) if signals.received else None)
            try:
                variables = train.fitted(
                    config,
                    num_images=len(self.splits.train),
                    load_data=self.load_data,
                    start=self.start,
                    hardware=self.hardware,
                    callbacks=callbacks,
                    num_stages=self.stages,
                )
            except _StoppedHere as stopped:
                return stopped.score
        return self.score(config, variables)


class _StoppedHere(Exception):
    """The search gave up a trial; its score so far."""

    def __init__(self, score: float):
        super().__init__()
        self.score = score


def held_out_ood(name: str, config: Config, splits: Splits, *, data_dir: Path | None) -> np.ndarray:
    """Images of an OOD set that tuning may look at.

    Raises:
        UserError: when the set is unknown or has to be prepared first.
    """
    spec = config.data
    if name in ("faraway", "faraway_rd"):
        raise UserError(f"--ood-set={name}: PreLoad is perfect there whatever its numbers; name a set of real images")
    return datasets.load_ood(
        name,
        in_domain=spec,
        test_images=splits.validation.images,
        data_dir=data_dir,
        seed=_OOD_SEED,
        num_images=len(splits.validation),
        far_distance=config.far_distance,
    )
