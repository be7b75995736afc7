"""Several processes that train one network, one on each machine: the first alone writes, and all do the same.

Of one process every function here is what it would be without the others.  What processes tell each other, beside what
the compiled steps do, goes through the coordination service of `jax.distributed`: it can wait longer than a
collective, and reports a process that is gone.
"""

import inspect
import itertools
import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from preload_jax.errors import CheckpointError, UserError, reason

T = TypeVar("T")

# Seconds: to find each other, until a process that says nothing is lost, and to end together.
_TIMEOUTS = {"initialization_timeout": 120, "heartbeat_timeout_seconds": 60, "shutdown_timeout_seconds": 30}
# Seconds that the others wait for the first process's evaluation, and between two looks at signals meanwhile.
_LONGEST_WAIT, _LOOK = 6 * 3600, 2

_numbers = itertools.count()


def join(*, cluster: bool, coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    """Finds the other processes.

    Args:
        cluster: what is None is asked of the cluster (Cloud TPU, Slurm, Open MPI, Kubernetes).
        coordinator: HOST:PORT of the first process.
        num_processes: how many there are.
        process_id: which one this is, from 0.

    Raises:
        UserError: when the numbers make no sense, no cluster is found, or the others do not come.
    """
    if num_processes is not None and num_processes < 1:
        raise UserError(f"num_processes must be at least 1, got {num_processes}")
    if process_id is not None and process_id < 0:
        raise UserError(f"process_id must be at least 0, got {process_id}")
    if None not in (process_id, num_processes) and process_id >= num_processes:  # type: ignore[operator]
        raise UserError(
            f"process_id must be from 0 to {num_processes - 1}, since num_processes is {num_processes},"  # type: ignore[operator]
            f" got {process_id}"
        )
    if coordinator is not None and not coordinator.rpartition(":")[2].isdecimal():
        raise UserError(f"coordinator must be HOST:PORT of the first process, got {coordinator!r}")
    if not cluster and None in (coordinator, num_processes, process_id):
        raise UserError(
            "give coordinator (HOST:PORT), num_processes and process_id, all three; or none of them on a"
            " cluster that tells them"
        )
    # Older versions of JAX lack some.
    known = inspect.signature(jax.distributed.initialize).parameters
    timeouts = {name: seconds for name, seconds in _TIMEOUTS.items() if name in known}
    try:
        jax.distributed.initialize(coordinator, num_processes, process_id, **timeouts)  # type: ignore[arg-type]
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"the processes did not find each other ({reason(error)}); start all of them at about the same time,"
            " with the coordinator (HOST:PORT) of the first where no cluster tells it"
        ) from error


def is_first() -> bool:
    """Whether this process writes."""
    return jax.process_index() == 0


def from_first(make: Callable[[], T]) -> T:
    """What `make` returns in the first process, for JSON; it is not called in the others.

    Raises:
        UserError, CheckpointError: that it raises there, in every process; any other exception is a UserError in the
            others.
    """
    if jax.process_count() == 1:
        return make()
    key = f"preload_jax/{next(_numbers)}"
    if is_first():
        try:
            value = make()
        except BaseException as error:  # A signal ends the first process, too, and the others must not wait for it.
            kind = "CheckpointError" if isinstance(error, CheckpointError) else "UserError"
            message = str(error) if isinstance(error, UserError | CheckpointError) else reason(error)
            _client().key_value_set(key, json.dumps({"raised": kind, "message": message}))
            raise
        _client().key_value_set(key, json.dumps({"value": value}))
        return value
    said = json.loads(_wait(key))
    if "raised" in said:
        raise {"CheckpointError": CheckpointError, "UserError": UserError}[said["raised"]](said["message"])
    return said["value"]


def together(make: Callable[[], T], *, alike: Callable[[T], Any] | None = None, what: str = "inputs") -> T:
    """What `make` returns in each process.

    Args:
        make: called in each.
        alike: what of its value has to be the same in all, for JSON.
        what: what messages call the value.

    Raises:
        UserError: when it raises one, or an OSError, in any process, or when the values are not alike.
    """
    if jax.process_count() == 1:
        return make()
    error, value, told = None, None, {}
    try:
        value = make()
        told = {"value": None if alike is None else alike(value)}
    except (UserError, OSError) as raised:
        error, told = raised, {"raised": str(raised)}
    said = exchanged(told)
    if error is not None:
        raise error
    for process, other in enumerate(said):
        if "raised" in other:
            raise UserError(f"process {process}: {other['raised']}")
    for process, other in enumerate(said):
        if other != said[0]:
            raise UserError(
                f"process {process} was given other {what} than process 0 ({other['value']}, {said[0]['value']}); all"
                " processes share the work, so give all of them the same"
            )
    return value  # type: ignore[return-value]


def exchanged(value: Any) -> list[Any]:
    """The values of all processes, for JSON, in their order; every process calls it."""
    if jax.process_count() == 1:
        return [value]
    key, own = f"preload_jax/{next(_numbers)}", jax.process_index()
    _client().key_value_set(f"{key}/{own}", json.dumps(value))
    # JSON makes lists of tuples: the own value has to equal the others'.
    return [
        json.loads(json.dumps(value) if process == own else _wait(f"{key}/{process}"))
        for process in range(jax.process_count())
    ]


def any_signal(received: int | None) -> int | None:
    """The signal that this process received, or another one."""
    if jax.process_count() == 1:
        return received
    return int(multihost_utils.process_allgather(np.int32(received or 0)).max()) or None


def _client() -> Any:
    # The service has no public name; Orbax uses it in the same way.
    from jax._src import distributed

    return distributed.global_state.client


def _wait(key: str) -> str:
    """The text that another process has put there or will put there."""
    end = time.monotonic() + _LONGEST_WAIT
    while True:
        try:
            return _client().blocking_key_value_get(key, _LOOK * 1000)
        except RuntimeError as error:
            # Any other error: a process is gone.
            if "DEADLINE_EXCEEDED" not in str(error) or time.monotonic() > end:
                raise
