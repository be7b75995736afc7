"""OOD images made worse before a step: the most confident ones near them, by the network as it is.

PreLoad with adversarial outliers trains the OOD class on them (the paper's future work, its conclusion); ACET's step
(`training.noise`) starts from noise.  The search sees the network in evaluation mode, and no gradient passes it.
"""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Num

from preload_jax import attacks, scores
from preload_jax.training.steps import Batch, Hyperparameters, Task, TrainState, gradient_step


def worst_near(
    state: TrainState,
    images: Num[Array, "n ..."],
    key: Array,
    *,
    score: Callable[[Array], Array],
    task: Task,
    hyper: Hyperparameters,
) -> Num[Array, "n ..."]:
    """The images within ε of the given ones whose logits score highest, found in `task.adversarial_steps` steps.

    Raises:
        UserError: for integers, such as tokens.
    """

    def score_of(x: Array) -> Array:
        logits: Any = task.model.apply(state.variables, x)
        return score(logits)

    found = attacks.pgd(
        score_of,
        images,
        key=key,
        epsilon=hyper.own["adversarial_epsilon"],
        steps=task.adversarial_steps,
    )
    return jax.lax.stop_gradient(found)


def adversarial_step(
    state: TrainState, batch: Batch, key: Array, *, task: Task, hyper: Hyperparameters
) -> tuple[TrainState, dict[str, Array]]:
    """`gradient_step` on outliers that were moved to where the K classes are most probable.

    Raises:
        UserError: for integers, such as tokens.
    """
    if batch.outliers is None:
        raise ValueError("adversarial outliers need auxiliary OOD images, got none")
    attack_key, key = jax.random.split(key)
    outliers = worst_near(state, batch.outliers, attack_key, score=scores.in_domain_probability, task=task, hyper=hyper)
    return gradient_step(state, batch._replace(outliers=outliers), key, task=task, hyper=hyper)
