"""Random classifiers with biases and BN statistics that matter, for tests of properties that hold for all of them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.models import make_classifier

# Image shape and options of a small network of every backbone.
SMALL = {
    "mlp": ((6, 6, 1), {"widths": (24, 16)}),
    "lenet": ((8, 8, 1), {"channels": (4, 6), "width": 20}),
    "wide_resnet": ((8, 8, 3), {"depth": 10, "widen_factor": 1}),
}
# Others, which fewer tests look at: each is compiled for a while.
MORE = {
    "conv_net": ((8, 9, 1), {"channels": (4, 6)}),
    "resnet18": ((8, 8, 3), {"blocks": (1, 1), "width": 4}),
    "resnet34": ((9, 9, 3), {"blocks": (1, 1), "width": 4, "stem": "imagenet", "mean": (0.5,) * 3, "std": (0.25,) * 3}),
    "resnet50": ((8, 8, 1), {"blocks": (1, 1), "width": 2}),
    "vit": ((8, 8, 1), {"patch": 4, "depth": 1, "width": 8, "heads": 2}),
}
HEADS = ("linear", "none_class", "square_logit")
NUM_CLASSES = 3


def random_classifier(backbone, head, *, seed=0, **options):
    """(model, variables, image shape); offsets and statistics are far from their initial 0 and 1."""
    shape, small = (SMALL | MORE)[backbone]
    model = make_classifier(backbone, head, num_classes=NUM_CLASSES, **small, **options)
    # Drawn from their shapes alone where initialising, operation by operation, would take longest.
    init = model.init if backbone in SMALL else partial(jax.eval_shape, model.init)
    variables = init(jax.random.key(seed), jnp.zeros((1, *shape)))
    rng = np.random.default_rng(seed)

    def perturb(path, leaf):
        draw = {
            "mean": lambda: rng.normal(size=leaf.shape),
            "var": lambda: rng.uniform(0.2, 2.0, leaf.shape),
            "scale": lambda: rng.uniform(0.5, 1.5, leaf.shape),
            "distance_scale": lambda: abs(leaf),  # As if it were measured.
            "bias": lambda: (leaf if backbone in SMALL else 0.0) + 0.3 * rng.normal(size=leaf.shape),
        }.get(path[-1].key, lambda: leaf if backbone in SMALL else _kernel(rng, leaf.shape))
        return jnp.asarray(draw(), jnp.float32)

    return model, jax.tree_util.tree_map_with_path(perturb, variables), shape


def _kernel(rng, shape):
    return rng.normal(size=shape) * max(np.prod(shape[:-1]), 1) ** -0.5


def backbone_variables(variables):
    return {name: tree["backbone"] for name, tree in variables.items() if "backbone" in tree}


def random_head(rng, *, num_classes, width, weight_scale=0.3, log_scale=-1.0):
    """Parameters of a square-logit head."""
    return {
        "linear": {
            "kernel": weight_scale * rng.normal(size=(width, num_classes)),
            "bias": rng.normal(size=num_classes),
        },
        "ood": {"raw_weights": log_scale + rng.normal(size=width), "bias": rng.normal()},
    }
