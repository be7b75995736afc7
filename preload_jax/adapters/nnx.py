"""A Flax NNX module as a backbone."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.adapters.module import Adapted, Network
from preload_jax.adapters.trees import Tree
from preload_jax.errors import UserError


def from_nnx(network: Any) -> Adapted:
    """A Flax NNX module as a backbone for `Classifier`.

    The module's `nnx.Param`s are trained, and its `nnx.BatchStat`s are updated in training.  `train` is NNX's
    `module.train()` and `module.eval()`: it switches `deterministic` and `use_running_average` of all layers.
    Dropout draws from Linen's stream "dropout", which `fit` provides.

    The module is copied: `init` and `fit` start from the weights that it has now, and it is left as it is.  `unwrap`
    gives a module with the trained weights back.

    Args:
        network: an instance of `nnx.Module`, f(images) → features [n, d], of images [n, h, w, c] in [0, 1].

    Returns:
        A Linen module `f(images, *, train)` → features [n, d].  Two of the same layers, sizes and settings are equal.

    Raises:
        UserError: for what is no NNX module, or one with variables that are neither `nnx.Param` nor `nnx.BatchStat`
            nor random numbers.  When it is first called: for a module that returns no features [n, d], that branches
            on values, or that draws random numbers or changes its variables in evaluation mode.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from flax import nnx
        >>> from preload_jax import Classifier, SquareLogitHead, adapters
        >>> class Network(nnx.Module):
        ...     def __init__(self, rngs):
        ...         self.hidden = nnx.Linear(16, 8, rngs=rngs)
        ...     def __call__(self, images):
        ...         return nnx.relu(self.hidden(images.reshape(images.shape[0], -1)))
        >>> model = Classifier(adapters.from_nnx(Network(nnx.Rngs(0))), SquareLogitHead(num_classes=3))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> model.apply(variables, jnp.ones((5, 4, 4, 1))).shape
        (5, 4)
    """
    from flax import nnx

    if not isinstance(network, nnx.Module):
        what = f"the class {network.__name__}" if isinstance(network, type) else f"a {type(network).__name__}"
        raise UserError(f"the network is {what}; expected an instance of flax.nnx.Module")
    title = f"NNX module {type(network).__name__}"
    graph, *states = nnx.split(network, nnx.Param, nnx.BatchStat, nnx.RngState, ...)
    params, stats, random, others = states
    _require_none(nnx, others, title)
    calls = _Module(
        title,
        graph,
        Tree(params, what=f"the {title}", last="value"),
        Tree(stats, what=f"the statistics of the {title}", floating=False, last="value"),
        random,
    )
    # Of another count of layers, or of other settings, both graphs differ.
    static = (calls.graphs[False], calls.graphs[True])
    return Adapted(Network(title, calls, static, calls.params, calls.stats, draws=bool(jax.tree.leaves(random))))


def _require_none(nnx: Any, others: Any, title: str) -> None:
    for path, variable in nnx.to_flat_state(others) if hasattr(nnx, "to_flat_state") else others.flat_state().items():
        kind = getattr(variable, "type", type(variable)).__name__
        name = "/".join(map(str, path))
        if kind == "Intermediate":
            what = "call nnx.pop(network, nnx.Intermediate) before"
        elif not isinstance(variable, nnx.Variable) and not hasattr(variable, "type") and callable(variable):
            # NNX takes what is set where a layer was for a tree of arrays.
            what = (
                "put a module in its place, such as one whose __call__ returns what it is given, or delete"
                f" {name} before the function is set"
            )
        else:
            what = "make it an nnx.Param, which is trained, or an nnx.BatchStat, which training mode updates"
        raise UserError(f"the {title} has a variable {name} of kind {kind}, and training does not know it; {what}")


class _Module:
    """A module as a graph, apart from its arrays."""

    def __init__(self, title: str, graph: Any, params: Tree, stats: Tree, random: Any):
        from flax import nnx

        self._title, self._graph, self.params, self.stats = title, graph, params, stats
        self._random, self._random_structure = jax.tree.flatten(random)
        self.graphs = {}
        for train in (False, True):
            module = self.restored(params.nested(), stats.nested())
            (module.train if train else module.eval)()
            self.graphs[train] = nnx.graphdef(module)

    def __call__(self, params: Any, stats: Any, images: Any, *, train: bool, key: Any) -> tuple[Any, Any]:
        from flax import nnx

        random = self._drawn_from(jax.random.key(0) if key is None else key)
        module = self._merged(self.graphs[train], params, stats, random)
        features = module(images)
        after = jax.tree.leaves(nnx.state(module, nnx.BatchStat))
        changed = [*after, *jax.tree.leaves(nnx.state(module, nnx.RngState))]
        before = [*self.stats.flat(stats), *random]
        if not train and any(new is not old for new, old in zip(changed, before, strict=True)):
            raise UserError(
                f"the {self._title} draws random numbers or changes its statistics in evaluation mode; let its layers"
                " obey deterministic and use_running_average, which module.eval() sets"
            )
        return features, self.stats.renamed(after)

    def restored(self, params: Any, stats: Any) -> Any:
        return self._merged(self._graph, params, stats, self._random)

    def _merged(self, graph: Any, params: Any, stats: Any, random: list[Any]) -> Any:
        from flax import nnx

        states = self.params.rebuilt(params), self.stats.rebuilt(stats)
        return nnx.merge(graph, *states, jax.tree.unflatten(self._random_structure, random))

    def _drawn_from(self, key: Any) -> list[Any]:
        """Keys of this call for each of the module's streams, and counts that begin at 0."""
        found: list[Any] = []
        for i, leaf in enumerate(self._random):
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                mine = jax.random.fold_in(key, i)
                found.append(jax.random.split(mine, leaf.shape) if leaf.shape else mine)
            else:
                found.append(jnp.asarray(np.zeros(leaf.shape, leaf.dtype)))
        return found
