"""Ten minutes of one GPU: the speed goals, then as much of the paper's grids as time allows.

    python -m benchmarks.gpu --out=gpu --data-dir=data --outliers=random_images_300k

The steps are in the order in which they fill tables soonest.  Each keeps what it printed in OUT/NAME.txt.
OUT/steps.json says how each ended and how long it took, OUT/runs has the runs.  The same command goes on: a step that
is done is skipped, and a grid that was stopped continues where it was.  A step that fails does not stop the rest
(status 1).
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import sides, speed
from preload_jax.formats.files import write_bytes

# A step with less time than this left is not begun: Python, JAX and a compiler start first.
LEAST_SECONDS = 20.0
# So long a grid has to save its state after SIGTERM.
_GRACE = 30.0


@dataclass(frozen=True)
class Step:
    """A command of this repository: its name, and what follows `python -m`."""

    name: str
    words: tuple[str, ...]


def plan(common: Sequence[str]) -> list[Step]:
    """What is measured and trained, in order; `common` are options of every grid."""

    def grid(name: str, *words: str) -> Step:
        return Step(name, ("experiments.paper", "--shift=none", *words, *common))

    quick = "standard,preload,preload_ft"
    return [
        Step("speed_lenet", ("benchmarks.speed", "--only=lenet", "--rounds=3")),
        Step("speed_wide_resnet", ("benchmarks.speed", "--only=wide_resnet", "--rounds=3")),
        Step("five_seeds", ("benchmarks.gpu", "--five-seeds")),
        # LeNet: a run takes seconds, and one seed fills a table.
        grid("fashion_mnist", "--dataset=fashion_mnist", "--seeds=0"),
        grid("cifar10_quick", "--dataset=cifar10", f"--method={quick}", "--seeds=0"),
        grid("mnist", "--dataset=mnist", "--seeds=0"),
        grid("cifar100_quick", "--dataset=cifar100", f"--method={quick}", "--seeds=0"),
        grid("fashion_mnist_seeds", "--dataset=fashion_mnist", "--seeds=1-4"),
        grid("mnist_seeds", "--dataset=mnist", "--seeds=1-4"),
        grid("cifar10", "--dataset=cifar10", "--seeds=0"),
        grid("cifar100", "--dataset=cifar100", "--seeds=0"),
    ]


def five_seeds(network: str = "lenet", *, count: int = 5, steps: int | None = None, rounds: int = 3) -> speed.Row:
    """An epoch of each of so many networks, a process each and all at once, against one network's.

    `steps`: in place of an epoch.
    """
    steps = steps or sides.NETWORKS[network][0] // sides.BATCH_SIZE
    workers = [sides.Worker("ours", network) for _ in range(count)]
    try:

        def together(some: Sequence[sides.Worker]) -> float:
            start = time.perf_counter()
            for worker in some:
                worker.send("steps", steps)
            for worker in some:
                worker.answer()
            return time.perf_counter() - start

        times = speed.in_turn([lambda: together(workers), lambda: together(workers[:1])], rounds)
    finally:
        for worker in workers:
            worker.__exit__()
    title = f"{sides.TITLES[network]}, {count} seeds in {count} processes"
    return speed.Row(title, *times, baseline_name="one seed", goal=speed.GOALS["five seeds"])


def carry_out(steps: Sequence[Step], out: Path, *, seconds: float) -> int:
    """The steps that are not done, until the time is over; returns 1 if one failed."""
    out.mkdir(parents=True, exist_ok=True)
    record = out / "steps.json"
    done: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {}
    end, failed = time.monotonic() + seconds, False
    for step in steps:
        if done.get(step.name, {}).get("status") == 0:
            continue
        left = end - time.monotonic()
        if left < LEAST_SECONDS:
            print(f"{step.name}: no time left; the same command goes on")
            break
        start = time.monotonic()
        with open(out / f"{step.name}.txt", "w") as file:
            status = _run([sys.executable, "-m", *step.words], file, timeout=left)
        took = time.monotonic() - start
        ended = "done" if status == 0 else "stopped" if status is None else f"failed with status {status}"
        print(f"{step.name}: {ended} after {took:.0f} s", flush=True)
        failed |= status not in (0, None)
        done[step.name] = {"status": status, "seconds": round(took, 1), "command": list(step.words)}
        write_bytes(record, (json.dumps(done, indent=1) + "\n").encode())
    return int(failed)


def _run(command: list[str], file: Any, *, timeout: float) -> int | None:
    """The status; None where it was stopped, which the commands answer by saving."""
    process = subprocess.Popen(command, cwd=sides.ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        return None
    finally:
        if process.poll() is None:
            # Of its own session alone: workers of a benchmark end with it.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu"), help="folder of everything (default: gpu)")
    parser.add_argument("--minutes", type=float, default=10.0, help="in which all of it has to fit (default: 10)")
    parser.add_argument("--data-dir", help="where prepared data sets are")
    parser.add_argument("--outliers", help="of every run (default: the recipe's)")
    parser.add_argument("--max-steps", type=int, help="of every training, to try the command out")
    parser.add_argument("--five-seeds", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.five_seeds:
        print("| " + " | ".join(five_seeds().cells()) + " |")
        return 0
    if not 0 < args.minutes < 1e6:
        parser.error("--minutes must be positive")
    out = args.out.absolute()
    given = {"--data-dir": args.data_dir and Path(args.data_dir).absolute()}
    given |= {"--outliers": args.outliers, "--max-steps": args.max_steps}
    common = [f"--root={out / 'runs'}", *(f"{name}={value}" for name, value in given.items() if value is not None)]
    return carry_out(plan(common), out, seconds=60 * args.minutes)


if __name__ == "__main__":
    sys.exit(main())
