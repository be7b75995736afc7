"""An Equinox module as a backbone."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.adapters.module import Adapted, Network
from preload_jax.adapters.trees import Tree
from preload_jax.errors import UserError


def from_equinox(network: Any, *, state: Any = None, batched: bool = False, channels_first: bool = False) -> Adapted:
    """An Equinox module as a backbone for `Classifier`.

    The module's floating-point JAX arrays are trained, as `eqx.is_inexact_array` tells them.  `train` is the opposite
    of `eqx.nn.inference_mode`.  Where `network` has a parameter `key`, it gets one for each image in training, and
    None otherwise.

    `init` and `fit` start from the weights that the network has.  `unwrap` gives a network with the trained weights
    back.

    Args:
        network: an `eqx.Module`, f(image) → features [d].
        state: what `eqx.nn.make_with_state` returns beside a network with batch norm; the network is then f(image,
            state) → (features, state).
        batched: whether the network takes all images, f(images) → features [n, d], not one.
        channels_first: whether it takes images [c, h, w], as Equinox's convolutions do, and not [h, w, c].

    Returns:
        A Linen module `f(images, *, train)` → features [n, d].  Two of the same layers, sizes and settings are equal.

    Raises:
        UserError: for what is no Equinox module, a state that is missing or not asked for, or batch norms of several
            axis names.  When it is first called: for a module that returns no features [n, d], or branches on values.

    Example:
        >>> import equinox as eqx, jax, jax.numpy as jnp
        >>> from preload_jax import Classifier, SquareLogitHead, adapters
        >>> network = eqx.nn.Sequential([eqx.nn.Lambda(jnp.ravel), eqx.nn.Linear(16, 8, key=jax.random.key(0))])
        >>> model = Classifier(adapters.from_equinox(network), SquareLogitHead(num_classes=3))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> model.apply(variables, jnp.ones((5, 4, 4, 1))).shape
        (5, 4)
    """
    import equinox as eqx

    if not isinstance(network, eqx.Module) or not callable(network):
        what = f"the class {network.__name__}" if isinstance(network, type) else f"a {type(network).__name__}"
        raise UserError(f"the network is {what}; expected an equinox.Module that can be called")
    title = f"Equinox module {type(network).__name__}"
    parameters = inspect.signature(network).parameters
    _check_state(title, parameters.get("state"), state)
    params, rest = eqx.partition(network, eqx.is_inexact_array)
    calls = _Module(
        title,
        Tree(params, what=f"the {title}"),
        rest,
        None if state is None else Tree(state, what=f"the state of the {title}", floating=False),
        takes_key="key" in parameters,
        batched=batched,
        channels_first=channels_first,
        axis_name=_axis_name(eqx, network, title),
    )
    stats = Tree({}, what="") if calls.state is None else calls.state
    draws = calls.takes_key
    return Adapted(Network(title, calls, calls.static, calls.params, stats, draws=draws, hint=calls.hint))


def _check_state(title: str, parameter: inspect.Parameter | None, state: Any) -> None:
    if state is not None and parameter is None:
        raise UserError(f"a state is given, and the {title} has no parameter of that name; leave it out")
    if state is None and parameter is not None and parameter.default is inspect.Parameter.empty:
        raise UserError(
            f"the {title} takes a state; give from_equinox(network, state=state), as eqx.nn.make_with_state returns"
            " both"
        )


def _axis_name(eqx: Any, network: Any, title: str) -> Any:
    """Of the batch, over which batch norms average; None where there are none."""
    layers = jax.tree.leaves(network, is_leaf=lambda x: isinstance(x, eqx.nn.BatchNorm))
    names = {layer.axis_name for layer in layers if isinstance(layer, eqx.nn.BatchNorm)}
    if len(names) > 1 or any(not isinstance(name, str) for name in names):
        raise UserError(
            f"the batch norms of the {title} have axes {sorted(map(str, names))}; give all of them one name"
        )
    return next(iter(names), None)


class _Module:
    """A module apart from its floating-point arrays, and how it is called."""

    def __init__(
        self,
        title: str,
        params: Tree,
        rest: Any,
        state: Tree | None,
        *,
        takes_key: bool,
        batched: bool,
        channels_first: bool,
        axis_name: Any,
    ):
        self._title, self.params, self._rest, self.state = title, params, rest, state
        self.takes_key, self._batched, self._channels_first = takes_key, batched, channels_first
        self._axis_name = axis_name
        leaves, structure = jax.tree.flatten(rest)
        settings = (takes_key, batched, channels_first, axis_name)
        self.static = (tuple(map(_comparable, leaves)), structure, settings)

    @property
    def hint(self) -> str:
        """What is mistaken most, where shapes do not fit."""
        if self._batched:
            return "; it is called with the whole batch: leave batched out where it takes one image"
        told = "" if self._channels_first else ", and channels_first=True where it takes [c, h, w]"
        return f"; it is called with one image: give batched=True where it takes the whole batch{told}"

    def __call__(self, params: Any, stats: Any, images: Any, *, train: bool, key: Any) -> tuple[Any, Any]:
        import equinox as eqx

        network = eqx.nn.inference_mode(eqx.combine(self.params.rebuilt(params), self._rest), value=not train)
        state = None if self.state is None else self.state.rebuilt(stats)
        images = jnp.moveaxis(images, -1, 1) if self._channels_first else images

        def run(given: Any, state: Any, key: Any) -> Any:
            keywords: dict[str, Any] = {"key": key} if self.takes_key else {}
            return network(given, **keywords) if self.state is None else network(given, state, **keywords)

        if self._batched:
            out = run(images, state, key)
        else:
            keys = None if key is None else jax.random.split(key, images.shape[0])
            in_axes = (0, None, None if key is None else 0)
            out_axes = 0 if self.state is None else (0, None)
            out = jax.vmap(run, in_axes, out_axes, axis_name=self._axis_name)(images, state, keys)
        if self.state is None:
            return out, stats
        if not isinstance(out, tuple) or len(out) != 2:
            raise UserError(f"the {self._title} returns a {type(out).__name__}; expected (features, state)")
        return out[0], self.state.renamed(out[1])

    def restored(self, params: Any, stats: Any) -> Any:
        import equinox as eqx

        network = eqx.combine(self.params.rebuilt(params), self._rest)
        return network if self.state is None else (network, self.state.rebuilt(stats))


def _comparable(leaf: Any) -> Any:
    """A leaf, or what says which array it is."""
    if not isinstance(leaf, np.ndarray | jax.Array):
        return leaf
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    return "array", array.shape, str(array.dtype), array.tobytes()
