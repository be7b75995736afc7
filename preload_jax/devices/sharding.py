"""Many devices, of one process or of several: a batch is divided among them, everything else is on each.

The compiled step is written for the whole batch; XLA divides it (GSPMD).  A mean over the batch, BN's too, is thus the
mean over all devices' shares, and what is random does not depend on how many there are.
"""

from typing import Any, Literal, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from preload_jax.errors import UserError

Tree = TypeVar("Tree")
Devices = int | Literal["all"]

AXIS = "batch"


def make_mesh(devices: Devices = 1, *, local: bool = False) -> Mesh | None:
    """The devices that share a batch, in one axis named "batch"; None for one device, which needs no mesh.

    Args:
        devices: how many of each process, the first ones, or "all".
        local: leaves other processes' devices out.

    Raises:
        UserError: for less than one device, or more than there are.
    """
    processes = [jax.process_index()] if local else range(jax.process_count())
    there = [jax.local_devices(process_index=process) for process in processes]
    most = min(map(len, there))
    if devices == "all":
        devices = most
    if isinstance(devices, bool) or not isinstance(devices, int | np.integer) or not 1 <= devices <= most:
        kind, where = there[0][0].platform.upper(), "" if len(there) == 1 else " in each process"
        found = f"there is 1 {kind}{where}" if most == 1 else f"there are {most} {kind} devices{where}"
        raise UserError(
            f"{devices!r} devices asked for, {found}; choose {'1' if most == 1 else f'1 to {most}'}, or all"
        )
    chosen = [device for own in there for device in own[:devices]]
    if len(chosen) == 1:
        return None
    # Auto: XLA chooses layouts from the constraints below.  `jax.make_mesh` has another default since JAX 0.9.
    return Mesh(np.array(chosen), (AXIS,), axis_types=(AxisType.Auto,))


def own(mesh: Mesh | None) -> Mesh | None:
    """This process's devices of a mesh; None for one device."""
    return make_mesh(len(mesh.local_devices), local=True) if mesh is not None and mesh.is_multi_process else mesh


def check_batch_size(batch_size: int, mesh: Mesh | None) -> None:
    """Raises a UserError unless every device gets the same share of a batch."""
    if mesh is not None and batch_size % mesh.size:
        raise UserError(
            f"a batch of {batch_size} cannot be divided among {mesh.size} devices; choose a multiple of their number"
        )


def constrain(tree: Tree, mesh: Mesh | None, *axes: str | None) -> Tree:
    """Inside a compiled call: divides the leading axes of arrays over those of the mesh; no axes: whole on each."""
    if mesh is None:
        return tree
    sharding = NamedSharding(mesh, PartitionSpec(*axes))
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, sharding), tree)


def put(array: Any, mesh: Mesh | None, *axes: str | None) -> jax.Array:
    """An array on the mesh's devices, divided as `constrain` says; each process gives the shares of its own devices."""
    if mesh is None:
        return jax.device_put(array)
    sharding = NamedSharding(mesh, PartitionSpec(*axes))
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    host = np.asarray(array)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def replicate(tree: Tree, mesh: Mesh | None) -> Tree:
    """A pytree of arrays, whole on each device; the first process's where there are several."""
    if mesh is None:
        return tree
    return jax.tree.map(lambda x: put(x, mesh), from_first(tree))


def from_first(tree: Tree) -> Tree:
    """The first process's values of a pytree of arrays, the same in structure and shapes in all."""
    return tree if jax.process_count() == 1 else multihost_utils.broadcast_one_to_all(tree)


def to_one_device(tree: Tree, mesh: Mesh | None) -> Tree:
    """What `replicate` put on each device, on the default one alone."""
    return tree if mesh is None else jax.tree.map(lambda x: jax.device_put(np.asarray(x)), tree)
