"""A network's outputs, and how detectors read them: in blocks of rows, on the host, checked.

A block is a view of rows, at most `BLOCK` bytes of them, and few blocks are worked on at a time: features may be
memory-mapped, or come in batches from an iterable that is larger than memory.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.checks import as_array, require_finite
from preload_jax.detectors import functions
from preload_jax.detectors.row import NEEDS
from preload_jax.errors import UserError
from preload_jax.short_repr import short_repr

# Bytes of a block: enough for matrix products at full speed, and as few blocks as possible where rows are small.
BLOCK = 8 << 20
# Rows of a block that a network reads: its activations are larger than its inputs.
_NETWORK_ROWS = 4096
_ARRAYS = ("features", "logits", "images")
Head = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Outputs:
    """A network's outputs for n inputs, as arrays of NumPy, JAX or torch.  Give what the detector needs.

    Attributes:
        features: outputs of the penultimate layer, [n, d].
        logits: [n, K], or [n, K + 1] with an OOD class last.
        maps: feature maps from early to late layers, each [n, h, w, c] (or [n, c], taken as one position).
        images: the inputs, [n, ...].
        network: a function images → `Outputs` with features and logits, which JAX can trace and differentiate.
        tail: the last of `maps` → logits, for networks that do more than average the last map over its positions.
        num_classes: K of the network, without the OOD class; None where it is not known.  It is used where `fit` is
            given none.

    Example:
        >>> import numpy as np
        >>> from preload_jax import detectors
        >>> outputs = detectors.Outputs(np.ones((5, 8)), np.zeros((5, 3)))
        >>> outputs.features.shape
        (5, 8)
    """

    features: Any = None
    logits: Any = None
    maps: tuple[Any, ...] | None = None
    images: Any = None
    network: Callable[[Any], Any] | None = None
    tail: Callable[[Any], Any] | None = None
    num_classes: int | None = None

    __repr__ = short_repr


jax.tree_util.register_dataclass(
    Outputs, data_fields=["features", "logits", "maps", "images", "network", "tail"], meta_fields=["num_classes"]
)


@dataclass(frozen=True)
class Training:
    """The training data as `fit` functions see it.

    Attributes:
        blocks: called anew for each pass, yields (Outputs of NumPy arrays, labels [rows] or None); with checked=False
            as they come, for those that call `require_finite_block` in a thread of their own.
        num_classes: K.
        head: (kernel [d, K], bias [K]), or None.
        num_rows: n where it is known before they are read.
    """

    blocks: Callable[..., Iterator[tuple[Outputs, Any]]]
    num_classes: int
    head: Head | None
    num_rows: int | None = None


def is_whole(outputs: Any) -> bool:
    """Whether it is one `Outputs`, not an iterable of batches."""
    return isinstance(outputs, Outputs)


def batches(outputs: Any, labels: Any) -> Iterator[tuple[Outputs, Any]]:
    """One pass over an `Outputs` with its labels, or over an iterable (or a function that gives one) of pairs."""
    if is_whole(outputs):
        yield outputs, labels
        return
    given = outputs() if callable(outputs) else outputs
    for batch in given if hasattr(given, "__iter__") or hasattr(given, "__getitem__") else [given]:
        if isinstance(batch, Outputs):
            yield batch, None
        elif isinstance(batch, tuple) and len(batch) == 2 and isinstance(batch[0], Outputs):
            yield batch
        else:
            raise UserError(
                f"a batch is {type(batch).__name__}; expected Outputs, or (Outputs, labels): arrays are given as"
                " detectors.Outputs(features, logits)"
            )


def blocks(
    outputs: Outputs, needs: Iterable[str], *, num_classes: int | None, head: Head | None, checked: bool = True
) -> Iterator[Outputs]:
    """The rows of one `Outputs`, a block at a time, as NumPy arrays of what is needed; finite ones, if `checked`.

    Logits that are missing are computed from features and head; those of an OOD class are cut off, unless needed.

    Raises:
        UserError: where something needed is missing, shapes do not fit, or values are not finite.
    """
    needs = set(needs)
    if "logits" in needs and outputs.logits is None and head is not None:
        needs |= {"features"}
    for name in ("features", "logits", "maps", "images", "network"):
        from_head = name == "logits" and head is not None
        if name in needs and getattr(outputs, name) is None and not from_head:
            raise UserError(f"{name} are missing; this detector needs {NEEDS[name]}: give Outputs({name}=…)")
    if "ood_logit" in needs and outputs.logits is None:
        raise UserError(f"logits are missing; this detector needs {NEEDS['ood_logit']}: give Outputs(logits=…)")
    wanted = needs | ({"logits"} if "ood_logit" in needs else set())
    given = {name: getattr(outputs, name) for name in _ARRAYS if name in wanted}
    arrays = {name: _array(x, name) for name, x in given.items() if x is not None}
    maps = tuple(_array(x, "maps") for x in outputs.maps or ()) if "maps" in needs else ()
    if "ood_logit" in needs and num_classes is not None and arrays["logits"].shape[1:] != (num_classes + 1,):
        raise UserError(
            f"logits of shape {list(arrays['logits'].shape)} for {num_classes} classes; this detector needs"
            f" {NEEDS['ood_logit']}, and the network has none"
        )
    if "logits" in arrays and num_classes is not None and not 0 <= arrays["logits"].shape[1] - num_classes <= 1:
        raise UserError(
            f"logits of shape {list(arrays['logits'].shape)} for {num_classes} classes; expected as many columns, or"
            " one more for an OOD class"
        )
    parts = [*arrays.items(), *(("maps", x) for x in maps)]
    sizes = {len(x) for _, x in parts}
    if len(sizes) > 1:
        shapes = ", ".join(f"{name} {list(x.shape)}" for name, x in parts)
        raise UserError(f"the outputs are {shapes}; expected as many rows in each, one an input{_transpose(parts)}")
    if sizes == {0}:
        raise UserError("no outputs; give at least one row")
    size = _rows_of_a_block([*arrays.values(), *maps])
    size = min(size, _NETWORK_ROWS) if "network" in needs else size
    for start in range(0, max(sizes, default=0), size):
        rows = slice(start, start + size)
        block: dict[str, Any] = {name: _rows(x, rows) for name, x in arrays.items()}
        read = replace(
            outputs,
            **{name: block.get(name) for name in _ARRAYS},
            maps=tuple(_rows(x, rows) for x in maps) or None,
        )
        if checked:
            require_finite_block(read)
        logits = _logits(block, num_classes, head) if "logits" in needs else read.logits
        yield read if logits is read.logits else replace(read, logits=logits)


def _transpose(parts: Iterable[tuple[str, np.ndarray]]) -> str:
    """For messages: the array that fits the others if it is transposed, in case there is one."""
    matrices = {name: x.shape for name, x in parts if x.ndim == 2}
    for name, (rows, columns) in matrices.items():
        if rows != columns and all(len(x) == columns for other, x in parts if other != name):
            return f"; the {name} seem to be transposed: give {name}.T"
    return ""


def require_finite_block(block: Outputs) -> None:
    """Raises a UserError where one of the block's arrays holds NaN or infinity."""
    for name in _ARRAYS:
        if getattr(block, name) is not None:
            require_finite(getattr(block, name), name=name)
    for x in block.maps or ():
        require_finite(x, name="maps")


def _rows_of_a_block(arrays: Iterable[np.ndarray]) -> int:
    """As many rows as fit into `BLOCK`, a power of two, for which functions are compiled."""
    bytes_of_a_row = sum(x.nbytes // max(len(x), 1) for x in arrays)
    return 1 << (max(BLOCK // max(bytes_of_a_row, 1), 1).bit_length() - 1)


def _logits(block: dict[str, np.ndarray], num_classes: int | None, head: Head | None) -> np.ndarray:
    logits = block.get("logits")
    if logits is None:
        assert head is not None
        kernel, bias = head
        logits = block["features"] @ kernel.astype(block["features"].dtype) + bias.astype(block["features"].dtype)
    return logits if num_classes in (None, logits.shape[1]) else logits[:, :num_classes]


def _array(values: Any, name: str) -> np.ndarray:
    """The array as NumPy sees it, without a copy where it lies on the host."""
    array = on_host(values, name=name)
    rank = {"features": (2,), "logits": (2,), "maps": (2, 4)}.get(name)
    if rank and array.ndim not in rank:
        expected = {"features": "[n, d]", "logits": "[n, K]", "maps": "[n, h, w, c] each"}[name]
        one = f"; of one input give {name}[None]" if array.ndim == rank[0] - 1 else ""
        raise UserError(f"{name} of shape {list(array.shape)}; expected {expected}, a row an input{one}")
    if name == "features" and array.shape[1] == 0:
        raise UserError(f"features of shape {list(array.shape)}; expected [n, d] with d at least 1")
    if name != "images" and not jnp.issubdtype(array.dtype, jnp.floating):
        raise UserError(f"{name} of type {array.dtype}; expected floating point, such as float32")
    return array


def on_host(values: Any, *, name: str = "outputs") -> np.ndarray:
    """An array of NumPy, JAX or torch as NumPy's; memory-mapped ones stay so."""
    if hasattr(values, "detach"):
        # Torch's tensors: its bfloat16 has no counterpart in NumPy.
        values = values.detach().cpu()
        values = (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
    return as_array(values, name=name)


def num_rows(outputs: Outputs) -> int:
    """n."""
    arrays = [getattr(outputs, name) for name in _ARRAYS] + list(outputs.maps or ())
    return max((len(x) for x in arrays if x is not None), default=0)


def width(outputs: Outputs) -> int | None:
    """d, or None without features."""
    return columns(outputs.features, name="features")


def columns(values: Any, *, name: str) -> int | None:
    """How many columns an array has, or a list of rows; None where it is none, or no matrix."""
    if values is None:
        return None
    shape = values.shape if hasattr(values, "shape") else on_host(values, name=name).shape
    return int(shape[1]) if len(shape) == 2 else None


def padded(block: Outputs) -> Outputs:
    """The block with its last row repeated, its functions as JAX traces them.

    Up to a multiple of a quarter of a power of two: batches of any size need few compilations, and little is padded.
    """
    count = num_rows(block)
    step = max((1 << (count - 1).bit_length()) // 8, 1)
    rows = -(-count // step) * step

    def pad(x: np.ndarray) -> np.ndarray:
        dtype = jax.dtypes.canonicalize_dtype(x.dtype)
        if dtype == x.dtype and len(x) == rows:
            return x
        result = aligned((rows, *x.shape[1:]), dtype)
        with np.errstate(over="ignore"):
            result[: len(x)], result[len(x) :] = x, x[-1:]
        if dtype != x.dtype:
            require_finite(result[: len(x)], name="outputs, as float32,")
        return result

    arrays: dict[str, Any] = {name: pad(x) for name in _ARRAYS if (x := getattr(block, name)) is not None}
    traced = {name: functions.as_pytree(f) for name in ("network", "tail") if (f := getattr(block, name)) is not None}
    maps = None if block.maps is None else tuple(pad(x) for x in block.maps)
    return replace(block, maps=maps, **arrays, **traced)


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array to be filled that begins at a multiple of 64 bytes: JAX on the CPU reads it where it lies."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.empty(size + 63, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size].view(dtype).reshape(shape)


def _rows(array: np.ndarray, rows: slice) -> np.ndarray:
    block = np.asarray(array[rows])
    if not jnp.issubdtype(block.dtype, jnp.floating):
        return block
    # In the machine's own order of bytes, and no narrower than NumPy's usual products take them.
    with np.errstate(over="ignore"):
        return block.astype(np.float64 if block.dtype.itemsize >= 8 else np.float32, copy=False)


def labels_of(labels: Any, count: int, num_classes: int) -> np.ndarray:
    """Labels as integers, one a row and each a class.

    Raises:
        UserError: otherwise.
    """
    if labels is None:
        raise UserError("labels are missing; this detector needs labels of the training data")
    array = on_host(labels, name="labels")
    if array.ndim != 1 or len(array) != count or not np.issubdtype(array.dtype, np.integer):
        raise UserError(
            f"labels are {array.dtype} {list(array.shape)} and the outputs have {count} rows; expected integers"
            f" [{count}], one a row (features are [n, d] and logits [n, K])"
        )
    if len(array) and (array.min() < 0 or array.max() >= num_classes):
        raise UserError(f"labels run from {array.min()} to {array.max()}; expected 0 to {num_classes - 1}")
    return array
