"""How time and memory grow with the number of inputs n, of classes K and of features d: `python -m benchmarks.growth`.

Of what the library computes beside training: metrics, rules, detectors, heads and certificates.  For each of them it
prints the seconds and the peak of memory above the given arrays, size by size, and the exponent between the last two
sizes: 1 where ten times as much takes ten times as long.  `--figure` draws both.

Each size runs once before it is measured, so that compilation is in none, and then for a quarter of a second at least;
the best run counts.  A line ends where its next size would take longer than `--seconds`.
"""

import argparse
import ctypes
import gc
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax import SquareLogitHead, decisions, detectors, guarantees, make_classifier, metrics
from preload_jax.devices import forward
from preload_jax.training import loop

# n: scores, logits or images.  K: classes.  d: features.
SIZES = {"n": (10**3, 10**4, 10**5, 10**6), "K": (10, 100, 1000, 10_000), "d": (64, 256, 1024, 4096)}
AXES = {"n": "inputs n", "K": "classes K", "d": "features d"}
# Where larger exponents than that of n log n come from.
_CACHE = "the largest size no longer fits in the processor's cache; the arithmetic is proportional to the size"
KNOWN = {
    (
        "Monitor",
        "n",
    ): "up to 32 gamblers bet at once, all of them from 16,000 inputs on; beyond, it is proportional to n",
    ("Rule and p-values", "n"): f"sorting takes n log n, and {_CACHE}",
    ("Square logit, forward", "K"): _CACHE,
    ("Square logit, forward", "d"): _CACHE,
    ("SHE", "d"): _CACHE,
    ("KNN, 1,000 asked", "d"): _CACHE,
    ("Mahalanobis", "d"): "a covariance of d × d numbers takes n d² products, its inverse d³",
    ("Residual", "d"): "a covariance of d × d numbers takes n d² products, its eigenvectors d³",
    ("KL matching", "K"): "each input's K probabilities are compared with K templates of K",
}
_LEAST_SECONDS = 0.25


@dataclass
class Line:
    """One computation, along one axis: its sizes as far as they went, seconds, and bytes (None where unknown)."""

    title: str
    axis: str
    sizes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    bytes: list[float | None] = field(default_factory=list)

    def exponent(self) -> float:
        """log(t₂ / t₁) / log(s₂ / s₁) of the last two sizes; NaN for fewer."""
        if len(self.sizes) < 2:
            return math.nan
        (s1, s2), (t1, t2) = self.sizes[-2:], self.seconds[-2:]
        return math.log(t2 / t1) / math.log(s2 / s1)


def _scores(n: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(n, np.float32)


def _problem(n: int = 1000, classes: int = 10, width: int = 64) -> tuple[Any, np.ndarray, Any]:
    """(features and logits, labels, head) of n inputs: clusters of ReLU features."""
    rng = np.random.default_rng(0)
    kernel = rng.standard_normal((width, classes), np.float32) / np.float32(width**0.5)
    labels = np.arange(n) % classes
    features = np.maximum(rng.standard_normal((n, width), np.float32) + 3 * kernel.T[labels], 0)
    return detectors.Outputs(features, features @ kernel), labels, (kernel, np.zeros(classes, np.float32))


def _ood_metrics(n: int) -> Callable[[], Any]:
    of_in, of_ood = _scores(n) + 1, _scores(n)
    return lambda: [f(of_in, of_ood) for f in (metrics.auroc, metrics.fpr_at_tpr, metrics.aupr)]


def _classification(n: int = 1000, classes: int = 10) -> Callable[[], Any]:
    logits = np.random.default_rng(0).standard_normal((n, classes + 1), np.float32)
    labels = np.arange(n) % classes
    return lambda: metrics.classification(logits, labels, has_ood_class=True, released_code_ece=False)


def _rule(n: int) -> Callable[[], Any]:
    scores = _scores(n)

    def run() -> Any:
        rule = decisions.calibrate(scores)
        return rule.is_ood(scores), rule.p_values(scores)

    return run


def _monitor(n: int) -> Callable[[], Any]:
    rule, scores = decisions.calibrate(_scores(1000)), _scores(n)
    return lambda: decisions.Monitor(rule).update(scores)


def _network(n: int) -> Callable[[], Any]:
    model = make_classifier("mlp", "square_logit", num_classes=10)
    variables = loop.init_variables(model, (8, 8, 1), key=jax.random.key(0))
    images = np.random.default_rng(0).integers(0, 256, (n, 8, 8, 1), dtype=np.uint8)
    return lambda: forward.predict(model, variables, images)


def _detector(name: str, n: int = 1000, classes: int = 10, width: int = 64) -> Callable[[], Any]:
    """Fitting to n examples, and scoring as many, but 1,000 where each is compared with all of them."""
    outputs, labels, head = _problem(n, classes, width)
    asked = detectors.Outputs(outputs.features[:1000], outputs.logits[:1000]) if name == "knn" else outputs
    return lambda: detectors.score(detectors.fit(name, outputs, labels, head=head), asked)


def _head(classes: int = 10, width: int = 64) -> tuple[Any, Any]:
    head = SquareLogitHead(classes)
    return head, jax.jit(head.init)(jax.random.key(0), jnp.zeros((1, width)))


def _logits(classes: int = 10, width: int = 64) -> Callable[[], Any]:
    head, variables = _head(classes, width)
    apply, features = jax.jit(head.apply), np.random.default_rng(0).random((1000, width), np.float32)
    return lambda: jax.block_until_ready(apply(variables, features))


def _radius(classes: int = 10, width: int = 64) -> Callable[[], Any]:
    params = _head(classes, width)[1]["params"]
    return lambda: guarantees.safe_radius(params, 0.5, nonnegative=True)


# (title, axis, size → a function without arguments that computes it).
CASES: tuple[tuple[str, str, Callable[[int], Callable[[], Any]]], ...] = (
    ("AUROC, FPR-95, AUPR", "n", _ood_metrics),
    ("Accuracy, ECE, Brier", "n", _classification),
    ("Rule and p-values", "n", _rule),
    ("Monitor", "n", _monitor),
    ("MLP, forward", "n", _network),
    ("Energy", "n", lambda n: _detector("energy", n)),
    ("Mahalanobis", "n", lambda n: _detector("mahalanobis", n)),
    ("KNN, 1,000 asked", "n", lambda n: _detector("knn", n)),
    ("Accuracy, ECE, Brier", "K", lambda k: _classification(classes=k)),
    ("Energy", "K", lambda k: _detector("energy", classes=k)),
    ("KL matching", "K", lambda k: _detector("kl_matching", classes=k)),
    ("Mahalanobis", "K", lambda k: _detector("mahalanobis", n=20_000, classes=k)),
    ("Square logit, forward", "K", lambda k: _logits(classes=k)),
    ("Safe radius", "K", lambda k: _radius(classes=k)),
    ("SHE", "d", lambda d: _detector("she", width=d)),
    ("Mahalanobis", "d", lambda d: _detector("mahalanobis", width=d)),
    ("Residual", "d", lambda d: _detector("residual", width=d)),
    ("KNN, 1,000 asked", "d", lambda d: _detector("knn", width=d)),
    ("Square logit, forward", "d", lambda d: _logits(width=d)),
    ("Safe radius", "d", lambda d: _radius(width=d)),
)


def measured(run: Callable[[], Any]) -> tuple[float, float | None]:
    """(seconds of the best run, peak of memory in bytes above what the process has before it)."""
    run()
    gc.collect()
    before = _reset_peak()
    run()
    after = _status("VmHWM")
    best, started = math.inf, time.perf_counter()
    while time.perf_counter() - started < _LEAST_SECONDS:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best, None if before is None or after is None else max(after - before, 0.0)


def _reset_peak() -> float | None:
    """Bytes of the process now, from which its peak is counted anew; None where the system is no Linux."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)  # what is free goes back: else it would be used again, and not be counted
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _status("VmRSS")


def _status(name: str) -> float | None:
    path = Path("/proc/self/status")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)


def grow(
    title: str, axis: str, make: Callable[[int], Callable[[], Any]], sizes: Sequence[int], *, seconds: float
) -> Line:
    """A line, as far as a size is not expected to take longer than so many seconds, by the exponent so far."""
    line = Line(title, axis)
    for size in sizes:
        if line.sizes:
            exponent = line.exponent() if len(line.sizes) > 1 else 1.0
            if line.seconds[-1] * (size / line.sizes[-1]) ** max(exponent, 1.0) > seconds:
                break
        time_, memory = measured(make(size))
        line.sizes.append(size)
        line.seconds.append(time_)
        line.bytes.append(memory)
    return line


def table(lines: Sequence[Line]) -> str:
    """Markdown: size by size seconds and MiB, and the last exponent."""
    rows = ["| | along | from – to | seconds | peak MiB | exponent |", "| --- | --- | --- | --- | --- | ---: |"]
    for line in lines:
        seconds = ", ".join(f"{x:.2g}" for x in line.seconds)
        memory = ", ".join("–" if x is None else f"{x / 2**20:.0f}" for x in line.bytes)
        ends = f"{line.sizes[0]:,} – {line.sizes[-1]:,}"
        rows.append(f"| {line.title} | {line.axis} | {ends} | {seconds} | {memory} | {line.exponent():.2f} |")
    return "\n".join(rows)


def draw(lines: Sequence[Line]) -> Any:
    """Seconds above, memory below, one column an axis; the dotted lines grow as the size does."""
    from matplotlib.figure import Figure

    shown = [axis for axis in AXES if any(line.axis == axis for line in lines)]
    figure = Figure(figsize=(11, 8.5), layout="constrained")
    axes = figure.subplots(2, len(shown), sharex="col", squeeze=False)
    for (top, bottom), axis in zip(axes.T, shown, strict=True):
        for index, line in enumerate(line for line in lines if line.axis == axis):
            style: dict[str, Any] = {"marker": "osD^vP*X"[index % 8], "color": f"C{index}"}
            top.plot(line.sizes, line.seconds, label=f"{line.title} ({line.exponent():.1f})", **style)
            # A megabyte at least: less is what the allocator keeps at hand.
            bottom.plot(line.sizes, [math.nan if x is None else max(x, 2**20) / 2**20 for x in line.bytes], **style)
        for panel in (top, bottom):
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.grid(alpha=0.3)
            low, high = panel.get_ylim()
            ends = np.array(SIZES[axis], float)[[0, -1]]
            for start in np.geomspace(low / 1e4, high, 9):
                panel.plot(ends, start * ends / ends[0], color="black", linestyle=":", linewidth=0.6, alpha=0.5)
            panel.set_ylim(low, high)
        bottom.set_xlabel(AXES[axis])
        above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.02)}
        top.legend(fontsize=8, title="in brackets: the last exponent", title_fontsize=8, **above)
    axes[0, 0].set_ylabel("seconds")
    axes[1, 0].set_ylabel("peak memory above the arrays (MiB)")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(SIZES), help="one axis")
    parser.add_argument("--seconds", type=float, default=20.0, help="the longest a size may take (default: 20)")
    parser.add_argument("--figure", type=Path, help="draws a PNG")
    parser.add_argument("--json", type=Path, help="keeps the numbers")
    args = parser.parse_args()
    if not 0 < args.seconds < math.inf:
        parser.error("--seconds must be positive")
    lines = [
        grow(title, axis, make, SIZES[axis], seconds=args.seconds)
        for title, axis, make in CASES
        if args.only in (None, axis)
    ]
    print(table(lines))
    for line in lines:
        if line.exponent() > 1.2:
            reason = KNOWN.get((line.title, line.axis), "why is not known")
            print(f"\n{line.title} grows with {line.axis} to the power of {line.exponent():.2f}: {reason}.")
    if args.json:
        args.json.write_text(json.dumps([vars(line) for line in lines], indent=1) + "\n")
    if args.figure:
        from experiments.drawing.style import save

        save(draw(lines), args.figure)


if __name__ == "__main__":
    main()
