"""A plain function f(params, images) as a backbone."""

import inspect
from collections.abc import Callable, Hashable
from typing import Any

from preload_jax.adapters.module import Adapted, Network
from preload_jax.adapters.trees import Tree
from preload_jax.errors import UserError

# What a function is told by name, where it has a parameter of that name.
_KEYWORDS = ("train", "key")


def from_function(function: Callable[..., Any], params: Any) -> Adapted:
    """A function of parameters and images as a backbone for `Classifier`.

    `init` and `fit` start from the parameters that are given here.  The variables hold them under
    `["params"]["backbone"]["network"]`; `unwrap` gives them back as the tree that they were.

    Args:
        function: f(params, images) → features [n, d], of images [n, h, w, c] in [0, 1].  Where it has a parameter
            `train`, it is told whether it is being trained.  Where it has a parameter `key`, it gets a key for
            dropout in training, and None otherwise.  It may be compiled by `jax.jit` or not.
        params: a tree of floating-point arrays: dictionaries, lists, tuples, or any pytree.

    Returns:
        A Linen module `f(images, *, train)` → features [n, d].  Two of one function and of parameters of the same
        shapes are equal.

    Raises:
        UserError: for what is no function, or parameters that are no floating-point arrays.  When it is first called:
            for a function that returns no features [n, d], that branches on values, or that is another each time.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax import Classifier, SquareLogitHead, adapters
        >>> def features(params, images):
        ...     return jax.nn.relu(images.reshape(images.shape[0], -1) @ params["kernel"])
        >>> params = {"kernel": jnp.ones((16, 8))}
        >>> model = Classifier(adapters.from_function(features, params), SquareLogitHead(num_classes=3))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> model.apply(variables, jnp.ones((5, 4, 4, 1))).shape, list(variables["params"]["backbone"]["network"])
        ((5, 4), ['kernel'])
    """
    if not callable(function):
        raise UserError(f"the function is a {type(function).__name__}; expected f(params, images) → features [n, d]")
    title = f"function {getattr(function, '__qualname__', type(function).__name__)}"
    calls = _Function(function, title, Tree(params, what=f"the parameters of the {title}"))
    hint = "; it is called as f(params, images)"
    return Adapted(
        Network(
            title, calls, _identity(function), calls.params, Tree({}, what=""), draws="key" in calls.told, hint=hint
        )
    )


class _Function:
    may_change = True

    def __init__(self, function: Callable[..., Any], title: str, params: Tree):
        # Compiled functions keep their first tracing, and would hide that another differs.
        compiled = hasattr(function, "__wrapped__") and hasattr(function, "lower")
        self._function: Any = function.__wrapped__ if compiled else function  # type: ignore[attr-defined]
        self.params = params
        try:
            parameters = inspect.signature(self._function).parameters
        except (TypeError, ValueError):
            parameters = {}  # type: ignore[assignment]
        self.told = tuple(name for name in _KEYWORDS if name in parameters)

    def __call__(self, params: Any, stats: Any, images: Any, *, train: bool, key: Any) -> tuple[Any, Any]:
        known = {"train": train, "key": key}
        return self._function(self.params.rebuilt(params), images, **{name: known[name] for name in self.told}), stats

    def restored(self, params: Any, stats: Any) -> Any:
        return self.params.rebuilt(params)


def _identity(function: Any) -> Hashable:
    try:
        hash(function)
    except TypeError:
        return _Same(function)
    return function


class _Same:
    """Equal for one and the same object alone."""

    def __init__(self, value: Any):
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)
