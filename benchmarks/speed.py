"""How fast training, inference, metrics and start-up are on this machine, against plain PyTorch in the same run.

    pip install torch
    python -m benchmarks.speed

Each side of a comparison is a process of its own, and they take turns, round by round, so that a machine whose speed
drifts slows both; the ratio is taken round by round.  Medians, with the lowest and highest round in brackets.  Without
PyTorch the table has this project's times alone.  The loops: PreLoad from random weights, batches of 128 + 128 images
at rest as uint8; `benchmarks/torch_baseline.py` is the other side (float32).  Of its configurations (default,
channels-last, compiled) the fastest one in this run is the baseline.  All processes keep freed memory, as this
project's commands do.  On an accelerator this side trains a whole epoch a call in bfloat16, as `experiments.run` does,
and the table says what share of the peak that is.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from benchmarks.sides import BATCH_SIZE, NETWORKS, ROOT, TITLES, Worker

# What the project aims at: at most this ratio to the baseline, or this many seconds.
GOALS = {
    "lenet step": 0.6,
    "wide_resnet step": 1.0,
    "lenet inference": 0.9,
    "wide_resnet inference": 1.0,
    "metrics": 0.3,
    "import": 1.0,
    "help": 2.0,
    "lenet epoch": 0.10,
    "wide_resnet epoch": 0.75,
    "warm first call": 3.0,
    "five seeds": 3.0,
}
# Peak of dense bfloat16 products in FLOP/s, by what a device calls itself; NVIDIA's and Google's data sheets.
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "V100": 125e12, "TPU v4": 275e12, "TPU v5 lite": 197e12}


@dataclass(frozen=True)
class Row:
    """One line of the table: seconds of both sides, round by round."""

    title: str
    ours: list[float]
    baseline: list[float]
    baseline_name: str = "PyTorch"
    goal: float | None = None
    goal_is_ratio: bool = True
    note: str = ""

    def cells(self) -> list[str]:
        ratio = ""
        if self.baseline:
            ratio = _spread([a / b for a, b in zip(self.ours, self.baseline, strict=True)], "{:.2f}")
        goal = "" if self.goal is None else f"≤ {self.goal:g}" + ("" if self.goal_is_ratio else " s")
        baseline = f"{_spread(self.baseline, '{:.3g}')} s, {self.baseline_name}" if self.baseline else ""
        return [self.title, f"{_spread(self.ours, '{:.3g}')} s", baseline, ratio, goal, self.note]


def _spread(values: list[float], form: str) -> str:
    if len(values) == 1:
        return form.format(values[0])
    low, middle, high = (form.format(f(values)) for f in (min, statistics.median, max))
    return f"{middle} [{low}, {high}]"


def in_turn(sides: list[Callable[[], float]], rounds: int, *, warm_up: int = 1) -> list[list[float]]:
    """Seconds of each side; they take turns, and the first rounds do not count."""
    for _ in range(warm_up):
        for side in sides:
            side()
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds):
        for seconds, side in zip(times, sides, strict=True):
            seconds.append(side())
    return times


@contextlib.contextmanager
def _sides(network: str, configurations: Sequence[str]) -> Iterator[dict[str, Worker]]:
    """A worker of this project, and one of each of PyTorch's configurations that starts."""
    with contextlib.ExitStack() as stack:
        sides = {"ours": stack.enter_context(Worker("ours", network))}
        for name in configurations:
            try:
                sides[name] = stack.enter_context(Worker(name, network))
            except SystemExit:
                print(f"PyTorch, {name}, did not start (its message is above): it is left out", file=sys.stderr)
        yield sides


def network_rows(network: str, rounds: int, *, configurations: Sequence[str]) -> list[Row]:
    """Training and inference of one network; processes of their own for each, so that each has its peak of memory."""
    title = TITLES[network]
    with _sides(network, configurations) as sides:
        if sides["ours"].ask("on_cpu"):
            count = 5 if network == "lenet" else 1

            def step(side: Worker) -> float:
                # The first pays for what the wait for a turn cost, such as memory that the machine took back.
                side.ask("steps", count)
                return side.ask("steps", count) / count

            rows = [_against_best(f"{title} step", sides, step, rounds, goal=GOALS[f"{network} step"])]
        else:
            rows = _accelerator_rows(network, sides, rounds)
    with _sides(network, configurations) as sides:
        goal = GOALS[f"{network} inference"]
        infer = _against_best(f"{title} inference, 500 images", sides, lambda s: s.ask("infer", 500), rounds, goal=goal)
    return [*rows, infer]


def _against_best(
    title: str,
    sides: dict[str, Worker],
    measure: Callable[[Worker], float],
    rounds: int,
    *,
    goal: float,
    goal_is_ratio: bool = True,
    note: Callable[[float], str] = lambda seconds: "",
) -> Row:
    """A row against the fastest of PyTorch's configurations; it says how fast the others were, and peaks of memory.

    `note`: the median of this project's seconds → what else the row says.
    """
    times = dict(zip(sides, in_turn([lambda s=s: measure(s) for s in sides.values()], rounds), strict=True))
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    ours = medians.pop("ours")
    best = min(medians, key=medians.__getitem__, default=None)
    shown = ["ours"] if best is None else ["ours", best]
    memory = " / ".join(f"{sides[name].ask('memory') / 2**20:,.0f}" for name in shown)
    others = [f"{_spoken(name)} {seconds:.3g} s" for name, seconds in medians.items() if name != best]
    notes = [note(ours), f"peak memory {memory} MiB", *others]
    return Row(
        title,
        times["ours"],
        [] if best is None else times[best],
        baseline_name="" if best is None else f"PyTorch, {_spoken(best)}",
        goal=goal,
        goal_is_ratio=goal_is_ratio,
        note="; ".join(filter(None, notes)),
    )


def _spoken(configuration: str) -> str:
    return configuration.replace("_", "-")


def _accelerator_rows(network: str, sides: dict[str, Worker], rounds: int) -> list[Row]:
    """An epoch, what share of the peak that is, five seeds, and the first call with and without compiled programs."""
    title, ours = TITLES[network], sides["ours"]
    count = NETWORKS[network][0] // BATCH_SIZE
    device = ours.ask("device")
    peak = next((value for name, value in PEAKS.items() if name in device), None)

    def share(seconds: float) -> str:
        rate = ours.ask("flops") * count / seconds
        return (
            f"{rate / 1e12:.0f} TFLOP/s" + ("" if peak is None else f", {rate / peak:.0%} of the peak") + f" ({device})"
        )

    goal = GOALS[f"{network} epoch"]
    rows = [
        _against_best(
            f"{title} epoch", sides, lambda s: s.ask("steps", count), rounds, goal=goal, goal_is_ratio=False, note=share
        )
    ]
    if network == "lenet":
        seeds = in_turn([lambda: ours.ask("epoch_of_seeds", 5), lambda: ours.ask("steps", count)], rounds)
        rows.append(Row(f"{title}, five seeds", *seeds, baseline_name="one seed", goal=GOALS["five seeds"]))
    with tempfile.TemporaryDirectory() as cache:
        firsts = []
        for _ in range(2):
            with Worker("ours", network, {"JAX_COMPILATION_CACHE_DIR": cache}) as fresh:
                firsts.append([fresh.ask("steps", count)])
    rows.append(
        Row(
            f"{title} first call, compiled before",
            firsts[1],
            firsts[0],
            baseline_name="not compiled before",
            goal=GOALS["warm first call"],
            goal_is_ratio=False,
        )
    )
    return rows


def metrics_row(rounds: int, size: int) -> Row:
    """AUROC, FPR-95 and AUPR of so many scores; scikit-learn is the baseline."""
    import jax
    from sklearn.metrics import auc, precision_recall_curve, roc_auc_score, roc_curve

    from preload_jax import metrics

    rng = np.random.default_rng(0)
    scores_in, scores_ood = (rng.normal(mean, 1, size // 2).astype(np.float32) for mean in (1, 0))
    scores, is_in = np.concatenate([scores_in, scores_ood]), np.repeat([1, 0], size // 2)

    def ours() -> float:
        start = time.perf_counter()
        both = jax.numpy.asarray(scores_in), jax.numpy.asarray(scores_ood)
        values = [f(*both) for f in (metrics.auroc, metrics.fpr_at_tpr, metrics.aupr)]
        jax.block_until_ready(values)
        return time.perf_counter() - start

    def scikit_learn() -> float:
        start = time.perf_counter()
        roc_auc_score(is_in, scores)
        false_positives, true_positives, _ = roc_curve(is_in, scores)
        np.interp(0.95, true_positives, false_positives)
        precision, recall, _ = precision_recall_curve(is_in, scores)
        auc(recall, precision)
        return time.perf_counter() - start

    times = in_turn([ours, scikit_learn], rounds)
    return Row(f"AUROC + FPR-95 + AUPR, {size:,} scores", *times, baseline_name="scikit-learn", goal=GOALS["metrics"])


def start_rows(rounds: int) -> list[Row]:
    """Importing the library, and the help of a command; importing JAX is the baseline."""

    def process(*arguments: str) -> Callable[[], float]:
        def run() -> float:
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            return time.perf_counter() - start

        return run

    jax, ours, usage = in_turn(
        [
            process("-c", "import jax"),
            process("-c", "import preload_jax"),
            process("-m", "experiments.run", "--help"),
        ],
        rounds,
    )
    return [
        Row("import preload_jax", ours, jax, baseline_name="import jax", goal=GOALS["import"], goal_is_ratio=False),
        Row("experiments.run --help", usage, jax, baseline_name="import jax", goal=GOALS["help"], goal_is_ratio=False),
    ]


def main() -> None:
    parts = ("lenet", "wide_resnet", "metrics", "start")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=parts, action="append", help="a part of the table; may be repeated")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each side (default: 5)")
    parser.add_argument("--scores", type=int, default=10_000_000, help="how many scores (default: 10,000,000)")
    args = parser.parse_args()
    if args.rounds < 1 or args.scores < 2:
        parser.error("--rounds must be at least 1 and --scores at least 2")
    configurations: Sequence[str] = ()
    if find_spec("torch") is None:
        print("PyTorch is not installed (pip install torch): this project's times alone", file=sys.stderr)
    else:
        from benchmarks.torch_baseline import CONFIGURATIONS

        configurations = CONFIGURATIONS
    print("| | this project | baseline | ratio | goal | |\n| --- | ---: | ---: | ---: | ---: | --- |", flush=True)
    for part in args.only or parts:
        if part in NETWORKS:
            rows = network_rows(part, args.rounds, configurations=configurations)
        else:
            rows = [metrics_row(args.rounds, args.scores)] if part == "metrics" else start_rows(args.rounds)
        for row in rows:
            print("| " + " | ".join(row.cells()) + " |", flush=True)


if __name__ == "__main__":
    main()
