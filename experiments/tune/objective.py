"""What a tuning trial does: trains without leaving files, and tells its score on validation images after each epoch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.cli.interrupts import Interrupted, Signals
from experiments.run import train
from experiments.run.train import Where
from experiments.runs import folder as runs
from experiments.runs.recipes import Config
from preload_jax import evaluation, methods, metrics
from preload_jax.data import datasets
from preload_jax.data.splits import Splits
from preload_jax.devices import sharding
from preload_jax.errors import UserError
from preload_jax.training import loop as training
from preload_jax.training.loop import TrainingData

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
        where: on which devices.
    """

    splits: Splits
    start: dict[str, Any] | None
    ood_images: np.ndarray | None
    ood_reward: float
    stages: int
    load_data: Callable[[], TrainingData]
    where: Where = field(default_factory=Where)

    def score(self, config: Config, variables: dict[str, Any]) -> float:
        """The score of a network, a fraction where accuracy counts alone."""
        method, model = methods.get(config.method), runs.build_model(config)
        logits, _ = evaluation.predict(model, variables, self.splits.validation.images, mesh=self.where.mesh)
        accuracy = float(np.mean(logits.argmax(axis=1) == self.splits.validation.labels))
        if self.ood_images is None:
            return accuracy
        logits_ood, _ = evaluation.predict(model, variables, self.ood_images, mesh=self.where.mesh)
        scores_in, scores_ood = (jnp.asarray(evaluation.score(method, values)) for values in (logits, logits_ood))
        auroc = metrics.auroc(scores_in, scores_ood)
        return accuracy + self.ood_reward * float(auroc)

    def run(self, config: Config, *, report: Callable[[int, float], bool]) -> float:
        """Trains, and returns the final score.

        Args:
            config: of the trial.
            report: is told epochs done and the score now and then, and says whether to stop here.

        Raises:
            Interrupted: SIGINT or SIGTERM came.
            training.NonFiniteLossError: training diverged.
        """
        data = self.load_data()
        variables, epochs_done, score = train.initial_variables(config, self.start), 0, 0.0
        stages = train.stages(config, num_images=len(self.splits.train), where=self.where)[: self.stages]
        every = max(1, sum(stage.numbers.epochs for stage in stages) // _MAX_REPORTS)
        with Signals() as signals:

            def stop_if_asked(*_: int) -> None:
                if signals.received:
                    raise Interrupted(signals.received)

            for stage in stages:
                state = training.init_state(variables, task=stage.task, method=stage.method)
                with stage.fit(state, data, before_features=stop_if_asked) as parts:
                    for part in parts:
                        state = part.state
                        stop_if_asked()
                        epochs_done += part.ends_epoch
                        if part.ends_epoch and epochs_done % every == 0 and part.step < stage.plan.total_steps:
                            score = self.score(config, state.variables)
                            if report(epochs_done, score):
                                return score
                variables = sharding.to_one_device(state.variables, self.where.mesh)
        return self.score(config, variables)


def held_out_ood(name: str, config: Config, splits: Splits, *, data_dir: Path | None) -> np.ndarray:
    """Images of an OOD set that tuning may look at.

    Raises:
        UserError: when the set is unknown or has to be prepared first.
    """
    spec = datasets.get(config.dataset)
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
