"""CCU's two densities, of training images and of outliers: where they start, and the step that trains them.

They start as mixtures of spherical Gaussians by EM, in the metric of the training images' covariance.  Each step also
follows the gradient of their likelihood (Meinke and Hein, 2020, eq. 8), with a small learning rate of their own and
without weight decay, as the paper has it.

Released code: all weights of a mixture are equal, and so are its σ_k at the start; this is kept.  Its metric takes the
singular values of the data in place of C's eigenvalues, which makes it C^{−1/4}; here it is the paper's C^{−1/2}.  It
trains the means in pixels, and here they are trained in the metric's coordinates.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Num
from threadpoolctl import threadpool_limits

from preload_jax.checks import require_finite
from preload_jax.devices.batches import to_float
from preload_jax.errors import UserError
from preload_jax.integers import require_seed
from preload_jax.models import CCUHead, Classifier
from preload_jax.models.ccu_head import LOG_MARGIN, Densities
from preload_jax.training import augment
from preload_jax.training.augment import Augmentations
from preload_jax.training.data import TrainingData
from preload_jax.training.steps import (
    Batch,
    Hyperparameters,
    Task,
    TrainState,
    average,
    descend,
    forward,
    step_metrics,
)

# Of C's eigenvalues below so much of the largest.
_SMALLEST_EIGENVALUE = 1e-6
# Variances that the metric can hold in float32.
_VARIANCES = (1e-20, 1e20)
# The paper: as many outliers.  As many images, here.
_MOST_FITTED = 20_000
# Images that are augmented at once.
_BLOCK = 1000

_ADAM = optax.scale_by_adam()


def measured(
    images: Num[np.ndarray, "n ..."], outliers: Num[np.ndarray, "m ..."], *, components: int, seed: int = 0
) -> dict[str, dict[str, Array]]:
    """The variables of `models.ccu_head.Densities` by EM: {"params": …, "batch_stats": …}.

    C is the covariance of the images, eigenvalues below 10⁻⁶ of the largest raised to that.  Both mixtures are fitted
    by EM, from k-means, to Wᵀ(x − c) with W Wᵀ = C⁻¹.  Each has one σ² at the start, the mean of the components'; θ is
    at least 2 σ.

    Args:
        images, outliers: floating point, as the network takes them.
        components: M, of each mixture.
        seed: of k-means.

    Raises:
        UserError: for fewer images or outliers than components, NaN or infinity, or images whose largest variance is 0
            or outside what float32 holds.
    """
    require_seed(seed)
    for name, given in (("images", images), ("outliers", outliers)):
        require_finite(given, name=name)
        if len(given) < components:
            raise UserError(f"{len(given)} {name} for {components} components; give more, or fewer components")
    rows = np.asarray(images, np.float64).reshape(len(images), -1)
    center = rows.mean(axis=0)
    with threadpool_limits(limits=1):  # In several threads k-means would add up in another order each time.
        eigenvalues, vectors = np.linalg.eigh(np.cov(rows, rowvar=False, bias=True).reshape(rows.shape[1], -1))
        if not _VARIANCES[0] < eigenvalues[-1] < _VARIANCES[1]:
            raise UserError(
                f"the images' largest variance is {eigenvalues[-1]:.3g}; expected images that differ, in [0, 1] or"
                " normalised"
            )
        whitening = vectors / np.sqrt(np.maximum(eigenvalues, _SMALLEST_EIGENVALUE * eigenvalues[-1]))
        fit = partial(_by_em, components=components, seed=seed)
        in_means, in_variance = fit((rows - center) @ whitening)
        out_means, out_variance = fit(
            (np.asarray(outliers, np.float64).reshape(len(outliers), -1) - center) @ whitening
        )
    start = {
        "in_means": in_means,
        "in_log_variances": np.full(components, np.log(in_variance)),
        "out_means": out_means,
        "out_log_variances": np.full(components, max(np.log(out_variance), np.log(in_variance) + LOG_MARGIN)),
    }
    kept = {"center": center.reshape(images.shape[1:]), "whitening": whitening}
    return {
        collection: {name: jnp.asarray(values, jnp.float32) for name, values in found.items()}
        for collection, found in (("params", start), ("batch_stats", kept))
    }


def _by_em(rows: Float[np.ndarray, "n d"], *, components: int, seed: int) -> tuple[np.ndarray, float]:
    """The means of a mixture of spherical Gaussians, and the mean of their variances."""
    from sklearn.mixture import GaussianMixture

    with warnings.catch_warnings():
        # Of fewer different images than components, or of EM that goes on: the start need not be the optimum.
        warnings.simplefilter("ignore")
        found = GaussianMixture(components, covariance_type="spherical", random_state=seed).fit(rows)
    return found.means_, float(found.covariances_.mean())


def prepared(
    model: Classifier,
    variables: dict[str, Any],
    data: TrainingData,
    *,
    ood_weight: float,
    augmentations: Augmentations,
    seed: int,
) -> dict[str, Any]:
    """A network's variables with `measured` densities of at most 20,000 images and outliers, and p(o) / p(i) = λ.

    Raises:
        UserError: for λ = 0, no outliers, and as `measured` raises.
    """
    head = model.head
    assert isinstance(head, CCUHead)
    if ood_weight <= 0.0:
        raise UserError(f"ood_weight is {ood_weight:g}; ccu takes it as p(o) / p(i), which must be above 0")
    if data.outliers is None:
        raise UserError("ccu needs outliers; give some")
    shape = tuple(data.images.shape[1:])
    in_domain = partial(augment.augment_in_domain, policy=augmentations.in_domain)
    ood = partial(augment.augment_outliers, policy=augmentations.outliers, image_shape=shape)
    image_key, outlier_key = jax.random.split(jax.random.key(seed))
    images = seen(np.asarray(data.images), in_domain, image_key)
    outliers = seen(np.asarray(data.outliers), ood, outlier_key)
    found = measured(images, outliers, components=head.components, seed=seed)
    of_head: dict[str, dict[str, Any]] = {
        "params": {"densities": found["params"]},
        "batch_stats": {
            "densities": found["batch_stats"],
            "log_prior_odds": jnp.log(jnp.asarray(ood_weight, jnp.float32)),
        },
    }
    return {
        name: {**tree, "head": {**tree.get("head", {}), **of_head.get(name, {})}} for name, tree in variables.items()
    }


def seen(
    images: np.ndarray, augmented: Callable[[Array, Array], Array], key: Array, *, most: int = _MOST_FITTED
) -> Float[np.ndarray, "n ..."]:
    """Some of the images, in floating point, as training shows them to the network."""
    order_key, key = jax.random.split(key)
    rows = np.sort(np.asarray(jax.random.permutation(order_key, len(images)))[:most])
    blocks = [rows[i : i + _BLOCK] for i in range(0, len(rows), _BLOCK)]
    return np.concatenate(
        [
            np.asarray(to_float(augmented(jax.random.fold_in(key, i), jnp.asarray(images[block]))))
            for i, block in enumerate(blocks)
        ]
    )


def init_memory(params: Any) -> Any:
    """The moments of the densities' own Adam."""
    return _ADAM.init(params["head"]["densities"])


def densities_step(
    state: TrainState, batch: Batch, key: Array, *, task: Task, hyper: Hyperparameters
) -> tuple[TrainState, dict[str, Array]]:
    """A step down the objective of log p(y | x), minus the densities' log-likelihood: the paper's eq. 8.

    L = E −log p(y | x) − log p(x) + λ E (1/K) Σ_c −log p(c | z) − log p(z), z being outliers.  The loss that is told is
    without the terms of log p(x) and log p(z), which are known up to a constant only.
    """
    if batch.outliers is None:
        raise ValueError("CCU needs auxiliary OOD images, got none")
    outliers, prior_odds = batch.outliers, hyper.objective["ood_weight"]
    densities = Densities(task.model.head.components)
    kept = state.batch_stats["head"]["densities"]

    def loss_fn(params: Any) -> tuple[Array, Any]:
        out = forward(params, state.batch_stats, batch, key, model=task.model, train=True)
        loss = task.objective(out.logits_in, batch.labels, out.logits_ood, **hyper.objective)

        def log_likelihood(images: Array) -> Array:
            variables = {"params": params["head"]["densities"], "batch_stats": kept}
            log_in, log_out = cast(tuple[Array, Array], densities.apply(variables, images))
            return jnp.logaddexp(log_in, log_out + jnp.log(prior_odds)).mean()

        whole = loss - log_likelihood(batch.images) - prior_odds * log_likelihood(outliers)
        return average(whole, task.axis_name), (average(loss, task.axis_name), out)

    (_, (loss, out)), gradients = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    of_densities = average(gradients["head"]["densities"], task.axis_name)
    before, rate = state.params["head"]["densities"], hyper.own["density_learning_rate"]
    with jax.numpy_dtype_promotion("standard"):
        rate = optax.cosine_decay_schedule(rate, task.total_steps)(state.step)
        direction, memory = _ADAM.update(of_densities, state.memory)
        after = jax.tree.map(lambda p, d: (p - rate * d).astype(p.dtype), before, direction)
    least = after["in_log_variances"].max() + LOG_MARGIN
    after["out_log_variances"] = jnp.maximum(after["out_log_variances"], least)
    state = descend(state, gradients, task=task, hyper=hyper)
    # What the network's optimiser made of the densities is not used.
    params = {**state.params, "head": {**state.params["head"], "densities": after}}
    stats = average(out.batch_stats, task.axis_name)
    state = replace(state, params=params, batch_stats=stats, memory=memory, step=state.step + 1)
    return state, step_metrics(loss, out.logits_in, batch.labels, axis_name=task.axis_name)
