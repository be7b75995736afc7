"""What the time of a training step goes to: the kernels of a GPU, or the operations of a CPU, that take most of it.

    python -m benchmarks.kernels --network=lenet

Training is that of `benchmarks.speed`.  On a CPU the parts of an operation that run on several cores are added up, and
convolutions and large matrix products are seen only in part: they hand their work to threads that do not say what for.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.sides import NETWORKS, Ours
from experiments.cli import allocator

# Beside kernels and operations a profile has the runtime's own: these contain others.
_CONTAINERS = ("ThunkExecutor::", "SlinkyThreadPool::", "end: ", "$")


def profile(network: str, steps: int) -> tuple[list[Any], int]:
    """The events (name, start_ns, duration_ns) of at least so many steps of training, after as many to warm up.

    And how many steps they were: an accelerator takes whole epochs.
    """
    from jax import profiler

    if not hasattr(profiler, "ProfileData"):
        raise SystemExit("error: this release of JAX cannot read a profile; install jax >= 0.7")
    allocator.keep_freed_memory()
    training = Ours(network)
    training.steps(steps)
    with tempfile.TemporaryDirectory() as folder:
        with profiler.trace(folder):
            done = training.steps(steps)
        (path,) = Path(folder).rglob("*.xplane.pb")
        data = profiler.ProfileData.from_file(str(path))
        return list(_events(data, "tf_" if training.on_cpu else "Stream")), done


def _events(data: Any, lines: str) -> Iterator[Any]:
    for plane in data.planes:
        for line in plane.lines:
            if line.name.startswith(lines):
                yield from (event for event in line.events if not event.name.startswith(_CONTAINERS))


def busy_ns(events: list[Any]) -> float:
    """Time in which at least one of the events went on."""
    busy, end = 0.0, 0.0
    for start, stop in sorted((event.start_ns, event.start_ns + event.duration_ns) for event in events):
        if stop > end:
            busy, end = busy + stop - max(start, end), stop
    return busy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=sorted(NETWORKS), default="lenet")
    parser.add_argument("--steps", type=int, default=5, help="at least how many (default: 5)")
    parser.add_argument("--most", type=int, default=25, help="how many lines (default: 25)")
    args = parser.parse_args()
    if args.most < 1 or args.steps < 1:
        parser.error("--steps and --most must be at least 1")
    events, steps = profile(args.network, args.steps)
    times, calls = Counter[str](), Counter[str]()
    for event in events:
        times[event.name] += event.duration_ns
        calls[event.name] += 1
    print(f"{'ms a step':>10} {'calls':>7}  operation")
    for name, nanoseconds in times.most_common(args.most):
        print(f"{nanoseconds / 1e6 / steps:10.4f} {calls[name] / steps:7.1f}  {name[:100]}")
    print(f"{sum(times.values()) / 1e6 / steps:10.4f} {len(events) / steps:7.1f}  all")
    print(f"{busy_ns(events) / 1e6 / steps:10.4f} {'':7}  in which at least one was running")


if __name__ == "__main__":
    main()
