"""Mixup's step: images and labels are mixed with those of another image of the batch (Zhang et al., 2018).

s ~ Beta(α, α) is drawn once a step, as the code of Zhang et al. does, with which Thulasidasan et al. (2019) train.  The
partner of each image is one of the same batch: under `shard_map`, of the same device's share.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from preload_jax.errors import UserError
from preload_jax.training.steps import Batch, Hyperparameters, Task, TrainState, step_down


def mixup_step(
    state: TrainState, batch: Batch, key: Array, *, task: Task, hyper: Hyperparameters
) -> tuple[TrainState, dict[str, Array]]:
    """`gradient_step` on s · x + (1 − s) · x'; the accuracy counts the label of x, so it says little.

    Raises:
        UserError: for integers, such as tokens: there is nothing between them.
    """
    images = batch.images
    if not jnp.issubdtype(images.dtype, jnp.floating):
        raise UserError("mixup mixes images; between integers, such as tokens, there is nothing: use another method")
    share_key, partner_key, key = jax.random.split(key, 3)
    alpha = jnp.asarray(hyper.own["mixup_alpha"], jnp.float32)
    share = jax.random.beta(share_key, alpha, alpha, dtype=jnp.float32)
    partner = jax.random.permutation(partner_key, len(images))
    mixed = (share * images + (1.0 - share) * images[partner]).astype(images.dtype)
    numbers = {**hyper.objective, "partners": batch.labels[partner], "share": share}
    return step_down(state, batch._replace(images=mixed), key, task=task, hyper=hyper, numbers=numbers)
