"""The options of commands that several devices, or several processes, carry out together."""

from typing import Annotated, Any

import tyro

_CLUSTER = "(default: the cluster's)"
ClusterInt = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint=_CLUSTER)]
ClusterStr = Annotated[str | None, tyro.conf.arg(metavar="STR", help_behavior_hint=_CLUSTER)]
DevicesStr = Annotated[
    str, tyro.conf.arg(metavar="INT|all", help_behavior_hint="(default: 1, of several processes all)")
]


def join(options: Any) -> None:
    """Finds the other processes, where the options `distributed`, `coordinator`, … say that there are any."""
    if not options.distributed and (options.coordinator, options.num_processes, options.process_id) == (None,) * 3:
        return
    from preload_jax.devices import processes

    processes.join(
        cluster=options.distributed,
        coordinator=options.coordinator,
        num_processes=options.num_processes,
        process_id=options.process_id,
    )


def mesh(devices: str, *, local: bool = False) -> Any:
    """The devices that `--devices` asks for, see `sharding.make_mesh`.

    Raises:
        UserError: when there are fewer, or it is no number.
    """
    import jax

    from preload_jax.devices import sharding
    from preload_jax.errors import UserError

    if not devices:
        # Of several machines nobody wants one device each.
        devices = "all" if jax.process_count() > 1 else "1"
    if devices != "all" and not devices.isdecimal():
        raise UserError(f"unknown --devices {devices!r}; expected a number or all")
    return sharding.make_mesh("all" if devices == "all" else int(devices), local=local)
