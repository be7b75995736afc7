"""Latency of an exported program against the network in the process that made it, in turns, in the same run.

`python -m benchmarks.serving` prints a table: milliseconds of one `predict` at the batch sizes 1 and 64, the median
(p50) and the 99th percentile (p99), here and there, and their ratios.  Both sides decide by a rule, and are asked about
the same uint8 images; which is asked first changes from turn to turn.  Answers are compared to the bit before.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.cli import allocator
from preload_jax import decisions, make_classifier, predict
from preload_jax.formats import load_program, save_program

NETWORKS = {
    "mlp": ("MLP on 8×8", (8, 8, 1)),
    "lenet": ("LeNet on 28×28", (28, 28, 1)),
    "wide_resnet": ("WideResNet-16-4 on 32×32", (32, 32, 3)),
}
SIZES = (1, 64)
# At most this many times as long as in the process.
GOAL = 1.1


def measure(name: str, turns: dict[int, int]) -> dict[str, dict[str, float]]:
    """Batch size → {"p50", "p99", "in_process_p50", "in_process_p99", "load"}: milliseconds; seconds of loading."""
    shape = NETWORKS[name][1]
    model = make_classifier(name, "square_logit", num_classes=10)
    variables = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, *shape)))
    images = np.random.default_rng(0).integers(0, 256, (max(SIZES), *shape), np.uint8)
    rule = decisions.calibrate(predict(model, variables, images, batch_size=64).score)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program"
        save_program(file, model, variables, image_shape=shape, rule=rule)
        start = time.perf_counter()
        program = load_program(file)
        load = time.perf_counter() - start
    found = {}
    for size in SIZES:
        batch = images[:size]

        def here(batch=batch, size=size):
            return predict(model, variables, batch, rule=rule, batch_size=size)

        def there(batch=batch, size=size):
            return program.predict(batch, batch_size=size)

        one, other = here(), there()
        assert all(np.array_equal(value, getattr(other, field)) for field, value in vars(one).items())
        seconds: dict = {here: [], there: []}
        for turn in range(turns[size] + 5):
            for side in (here, there) if turn % 2 else (there, here):
                start = time.perf_counter()
                side()
                seconds[side].append(time.perf_counter() - start)
        # The first turns warm caches.
        (p50, p99), (here50, here99) = (
            np.quantile(1e3 * np.array(seconds[side][5:]), (0.5, 0.99)) for side in (there, here)
        )
        found[str(size)] = {"p50": p50, "p99": p99, "in_process_p50": here50, "in_process_p99": here99, "load": load}
    return found


def table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """The results in Markdown."""
    lines = [
        "| network | batch | program p50, p99 (ms) | in process p50, p99 (ms) | ratio of p50, p99 | goal |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, sizes in results.items():
        for size, t in sizes.items():
            ratios = f"{t['p50'] / t['in_process_p50']:.2f}, {t['p99'] / t['in_process_p99']:.2f}"
            lines.append(
                f"| {NETWORKS[name][0]} | {size} | {t['p50']:.3g}, {t['p99']:.3g} |"
                f" {t['in_process_p50']:.3g}, {t['in_process_p99']:.3g} | {ratios} | ≤ {GOAL} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS), help="names, separated by commas")
    parser.add_argument("--turns", type=int, default=3000, help="of batch 1; a quarter as many of batch 64")
    parser.add_argument("--json", action="store_true", help="prints JSON in place of the table")
    args = parser.parse_args()
    allocator.keep_freed_memory()
    names = args.networks.split(",")
    turns = {1: args.turns, 64: max(1, args.turns // 4)}
    results = {name: measure(name, turns) for name in names}
    print(json.dumps(results, indent=2) if args.json else table(results))


if __name__ == "__main__":
    main()
