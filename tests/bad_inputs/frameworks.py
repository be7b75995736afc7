"""Networks of other frameworks, as `adapters` take them.

`asked(f, params)` makes a network of a function and asks it about `images`; `dense` are the parameters of a layer, and
`layer(params, images)` is its function.
"""

from tests.bad_inputs import call

ROWS = [
    call(
        "asked(lambda p, x: layer(p, x) * next(counter), dense)",
        "the function <lambda> is another each time it is asked, as with a clock, a counter or NumPy's random numbers"
        " in it; expected a function of parameters and images alone: pass what changes as a parameter",
        did="A function with a counter in it as `adapters.from_function(f, params)`",
    ),
    call(
        "asked(lambda p, x: layer(p, x) + np.float32(np.random.normal()), dense)",
        "the function <lambda> is another each time it is asked, as with a clock, a counter or NumPy's random numbers"
        " in it; expected a function of parameters and images alone: pass what changes as a parameter",
        did="A function that draws NumPy's random numbers",
    ),
    call(
        "asked(lambda p, x: jax.experimental.io_callback(lambda y: y, layer(p, x), layer(p, x)), dense)",
        "the function <lambda> has side effects (io_callback); expected a function of parameters and images alone",
        did="A function that calls Python when it runs",
    ),
    call(
        "asked(lambda p, x: layer(p, x) if x.sum() > 0 else x, dense)",
        "the function <lambda> asks for values that are known only when it runs, in an if, a loop or NumPy"
        " (TracerBoolConversionError); use jnp.where or jax.lax.cond, and jax.numpy",
        did="A function that branches on values",
    ),
    call(
        "asked(lambda p, x: (layer(p, x), x), dense)",
        "the function <lambda> returns a tuple; expected one array of features [n, d]: return the embedding alone,"
        " without logits or anything else",
        did="A function that returns logits and features",
    ),
    call(
        "asked(lambda p, x: x, dense)",
        "the function <lambda> makes features of shape [6, 8, 8, 1] of 6 images; expected [n, d]: pool or flatten them;"
        " it is called as f(params, images)",
        did="A function that returns maps, not features",
    ),
    call(
        "asked(layer, {'kernel': dense, 'rate': 0.1})",
        "the parameters of the function layer: rate is a float; expected arrays alone: put settings into the function"
        " or the module, not among its parameters",
        did="Parameters with a number among the arrays",
    ),
    call(
        "asked(layer, {'kernel': dense, 'steps': np.arange(3, dtype=np.int32)})",
        "the parameters of the function layer: steps is int32 [3]; expected floating point: training changes all of"
        " them. Let the function close over the others",
        did="Parameters with integers among them",
    ),
    call(
        "adapters.from_nnx(nnx.Linear)",
        "the network is the class Linear; expected an instance of flax.nnx.Module",
    ),
    call(
        "adapters.from_nnx(cached)",
        "the NNX module MultiHeadAttention has a variable cache_index of kind Cache, and training does not know it;"
        " make it an nnx.Param, which is trained, or an nnx.BatchStat, which training mode updates",
        did="An NNX module with a cache: `adapters.from_nnx(network)`",
    ),
    call(
        "adapters.from_equinox(layer)",
        "the network is a function; expected an equinox.Module that can be called",
    ),
    call(
        "adapters.from_equinox(eqx.nn.Linear(8, 4, key=key)).init(key, images / np.float32(255))",
        "the Equinox module Linear does not take images [6, 8, 8, 1]: …; it is called with one image: give batched=True"
        " where it takes the whole batch, and channels_first=True where it takes [c, h, w]",
        did="An Equinox module that does not take one image: `adapters.from_equinox(network)`",
    ),
    call(
        "adapters.from_equinox(eqx.nn.BatchNorm(8, axis_name='batch', mode='batch'))",
        "the Equinox module BatchNorm takes a state; give from_equinox(network, state=state), as eqx.nn.make_with_state"
        " returns both",
        did="An Equinox module with batch norm, without its state",
    ),
    call(
        "adapters.variables(models.Classifier(adapters.from_function(layer, dense), models.LinearHead(4)), np.ones((4,"
        " 8)))",
        "the last layer's kernel is of shape [4, 8]; expected [d, 4], a column a class: give its transpose, kernel.T"
        " (Equinox and torch keep it as [K, d])",
        did="`adapters.variables(model, kernel)` with torch's [K, d]",
    ),
    call(
        "adapters.unwrap(model, variables)",
        "the backbone is a MLP; expected one that adapters.from_function, from_nnx or from_equinox made",
    ),
]
