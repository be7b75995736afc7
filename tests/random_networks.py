"""Random classifiers with biases and BN statistics that matter, for tests of properties that hold for all of them."""

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
HEADS = ("linear", "none_class", "square_logit")
NUM_CLASSES = 3


def random_classifier(backbone, head, *, seed=0, **options):
    """(model, variables, image shape); offsets and statistics are far from their initial 0 and 1."""
    shape, small = SMALL[backbone]
    model = make_classifier(backbone, head, num_classes=NUM_CLASSES, **small, **options)
    variables = model.init(jax.random.key(seed), jnp.zeros((1, *shape)))
    rng = np.random.default_rng(seed)

    def perturb(path, leaf):
        draw = {
            "mean": lambda: rng.normal(size=leaf.shape),
            "var": lambda: rng.uniform(0.2, 2.0, leaf.shape),
            "scale": lambda: rng.uniform(0.5, 1.5, leaf.shape),
            "bias": lambda: leaf + 0.3 * rng.normal(size=leaf.shape),
        }.get(path[-1].key, lambda: leaf)
        return jnp.asarray(draw(), jnp.float32)

    return model, jax.tree_util.tree_map_with_path(perturb, variables), shape


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
