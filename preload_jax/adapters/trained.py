"""The way in and out: variables of a network with its own last layer, and the network of variables."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.adapters.module import NAME, adapter_of
from preload_jax.checks import as_array, require_finite
from preload_jax.devices.variables import difference, require_variables
from preload_jax.errors import UserError
from preload_jax.models import Classifier, LinearHead


def variables(model: Classifier, kernel: Any, bias: Any = None) -> dict[str, Any]:
    """The variables of a network that was trained elsewhere: its weights, and its last layer as the head's.

    logits = G(x) · kernel + bias, with G the adapted network.  `attach` takes model and variables.

    Args:
        model: a `Classifier` of an adapter and a `LinearHead` of K logits.
        kernel: of the network's last layer, [d, K].  Equinox and torch keep it as [K, d]: give its transpose.
        bias: [K]; None for zeros.

    Returns:
        {"params", "batch_stats"}.

    Raises:
        UserError: for another backbone or head, a kernel or bias of another shape or with values that are not finite.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax import Classifier, LinearHead, adapters, predict
        >>> def features(params, images):
        ...     return jax.nn.relu(images.reshape(images.shape[0], -1) @ params)
        >>> model = Classifier(adapters.from_function(features, jnp.ones((16, 8))), LinearHead(3))
        >>> variables = adapters.variables(model, kernel=jnp.eye(8)[:, :3], bias=jnp.zeros(3))
        >>> predict(model, variables, jnp.ones((5, 4, 4, 1))).probabilities.shape
        (5, 3)
    """
    if not isinstance(model, Classifier) or not isinstance(model.head, LinearHead):
        has = type(model.head).__name__ if isinstance(model, Classifier) else type(model).__name__
        raise UserError(f"the network's last layer is a LinearHead, got {has}: give Classifier(adapter, LinearHead(K))")
    network, outputs = adapter_of(model).network, model.head.num_outputs
    kernel = _numbers("kernel", kernel)
    bias = np.zeros(outputs, np.float32) if bias is None else _numbers("bias", bias)
    if kernel.ndim != 2 or kernel.shape[1] != outputs:
        advice = f"expected [d, {outputs}], a column a class"
        if kernel.ndim == 2 and kernel.shape[0] == outputs:
            advice += ": give its transpose, kernel.T (Equinox and torch keep it as [K, d])"
        raise UserError(f"the last layer's kernel is of shape {list(kernel.shape)}; {advice}")
    if bias.shape != (outputs,):
        raise UserError(f"the last layer's bias is of shape {list(bias.shape)}; expected [{outputs}], one a class")
    params: dict[str, Any] = {"head": {"linear": {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(bias)}}}
    if network.params.leaves:
        params["backbone"] = {NAME: network.params.nested()}
    return {
        "params": params,
        "batch_stats": {"backbone": {NAME: network.stats.nested()}} if network.stats.leaves else {},
    }


def _numbers(name: str, given: Any) -> np.ndarray:
    array = as_array(given, name=f"the last layer's {name}")
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise UserError(f"the last layer's {name} is {array.dtype}; expected floating point")
    require_finite(np.atleast_1d(array), name=f"the last layer's {name}")
    return array.astype(np.float32)


def unwrap(model: Any, variables: Mapping[str, Any]) -> Any:
    """The network in its own framework with the weights of variables, such as `fit` returns.

    Args:
        model: the `Classifier` of an adapter, or the adapter.
        variables: the classifier's, or the adapter's own.

    Returns:
        Of `from_function`: the parameters.  Of `from_nnx`: a new module.  Of `from_equinox`: a network, or (network,
        state) where a state was given.  The head's weights are not in it: they are in `variables["params"]["head"]`.

    Raises:
        UserError: for another backbone, or variables of another network.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax import Classifier, LinearHead, adapters
        >>> def features(params, images):
        ...     return jax.nn.relu(images.reshape(images.shape[0], -1) @ params)
        >>> model = Classifier(adapters.from_function(features, jnp.ones((16, 8))), LinearHead(3))
        >>> adapters.unwrap(model, model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))).shape
        (16, 8)
    """
    network = adapter_of(model).network
    require_variables(variables)
    found = {}
    for collection, tree in (("params", network.params), ("batch_stats", network.stats)):
        held: Any = variables.get(collection, {})
        held = held.get("backbone", {}) if isinstance(model, Classifier) else held
        found[collection] = held.get(NAME, {}) if isinstance(held, Mapping) else {}
        differs = difference(tree.shapes(), found[collection])
        if differs is not None:
            name, has, wants = differs
            raise UserError(
                f"the variables are of another network: {name} is {has or 'missing'}, the {network.title} has"
                f" {wants or 'nothing'} there"
            )
    params, stats = (jax.tree.map(jnp.array, found[name]) for name in ("params", "batch_stats"))
    return network.calls.restored(params, stats)
