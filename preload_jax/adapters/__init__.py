"""Networks of other frameworks as backbones: a plain function, Flax NNX, Equinox.

An adapter is a Linen module, so that `Classifier`, `fit`, `attach`, `predict`, the detectors and the guarantees take it
as any other backbone.  Its parameters are the network's own, and training starts from them.
"""

from preload_jax.adapters.equinox import from_equinox
from preload_jax.adapters.function import from_function
from preload_jax.adapters.module import Adapted
from preload_jax.adapters.nnx import from_nnx
from preload_jax.adapters.trained import unwrap, variables

__all__ = ["Adapted", "from_equinox", "from_function", "from_nnx", "unwrap", "variables"]
