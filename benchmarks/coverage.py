"""How often a rule keeps its promise: `python -m benchmarks.coverage`.

First 1,000 calibration sets from populations that are known, so that each rule's false-alarm rate is known, too.  Then
the digits: a network is trained on 60 % of them, and the scores of the others are split 1,000 times into a calibration
set and a test set.  Of continuous scores the number of false alarms then follows a beta-binomial distribution, whatever
the score, which the last columns compare.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import stats
from sklearn.datasets import load_digits

from preload_jax import decisions, detectors, fit, make_classifier
from preload_jax.detectors.network import linear_head

_RATE, _CONFIDENCE = 0.05, 0.95
# Name → (n scores, the probability of a score below t).
POPULATIONS: dict[str, tuple[Callable[[Any, int], np.ndarray], Callable[[float], float]]] = {
    "normal": (lambda rng, n: rng.normal(size=n), lambda t: float(stats.norm.cdf(t))),
    "heavy tails (Cauchy)": (lambda rng, n: rng.standard_cauchy(size=n), lambda t: float(stats.cauchy.cdf(t))),
    "ties (20 values)": (lambda rng, n: np.floor(20 * rng.random(n)), lambda t: float(np.clip(np.ceil(t) / 20, 0, 1))),
    "3 % at −∞": (
        lambda rng, n: np.where(rng.random(n) < 0.03, -np.inf, rng.normal(size=n)),
        lambda t: 0.0 if t == -np.inf else 0.03 + 0.97 * float(stats.norm.cdf(t)),
    ),
}
_DETECTORS = ("preload", "msp", "energy", "mahalanobis", "knn", "vim")


def known(repeats: int) -> Iterator[tuple[str, int, float, float, float]]:
    """(population, n, share of rules that keep the rate, mean rate, largest rate) of many calibrations."""
    for name, (draw, below) in POPULATIONS.items():
        for n in (59, 200, 1000):
            rng = np.random.default_rng(n)
            rates = np.array([below(decisions.calibrate(draw(rng, n)).threshold()) for _ in range(repeats)])
            yield name, n, float(np.mean(rates <= _RATE)), float(rates.mean()), float(rates.max())


def of_digits(repeats: int, n: int) -> Iterator[tuple[str, float, float, float, float]]:
    """(detector, mean rate, the beta-binomial's, share of splits within its lower 95 %, KS distance) by detector."""
    data = load_digits()
    images, labels = (data.images[..., None] / 16 * 255).astype(np.uint8), data.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))
    seen, held_out = order[: int(0.6 * len(order))], order[int(0.6 * len(order)) :]
    noise = np.random.default_rng(1).integers(0, 256, images[seen].shape, np.uint8)
    model = make_classifier("mlp", "square_logit", num_classes=10)
    variables = fit(model, images[seen], labels[seen], noise, epochs=20, learning_rate=1e-2)
    train, rest = (detectors.outputs(model, variables, images[rows]) for rows in (seen, held_out))
    for name in _DETECTORS:
        detector = detectors.fit(name, train, labels[seen], head=linear_head(variables), num_classes=10)
        scores, rng = detectors.score(detector, rest), np.random.default_rng(2)
        alarms = []
        for _ in range(repeats):
            mixed = rng.permutation(scores)
            rule = decisions.calibrate(mixed[:n], false_alarm_rate=_RATE, confidence=_CONFIDENCE)
            alarms.append(int(rule.is_ood(mixed[n:]).sum()))
        others, k = len(scores) - n, rule.rank()
        law = stats.betabinom(others, k, n + 1 - k)
        counts = np.bincount(alarms, minlength=others + 1).cumsum() / repeats
        distance = float(np.abs(counts - law.cdf(np.arange(others + 1))).max())
        within = float(np.mean(np.array(alarms) <= law.ppf(0.95)))
        yield detectors.TABLE[name].title, float(np.mean(alarms)) / others, law.mean() / others, within, distance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=1000)
    options = parser.parse_args()
    print("| scores | n | rules that keep 5 % | mean rate | largest rate |\n|---|---|---|---|---|")
    for name, n, kept, mean, largest in known(options.repeats):
        print(f"| {name} | {n:,} | {100 * kept:.1f} % | {100 * mean:.2f} % | {100 * largest:.1f} % |", flush=True)
    print("\n| digits, n = 200 | mean rate | by theory | splits within its 95 % | KS distance |\n|---|---|---|---|---|")
    for name, mean, expected, within, distance in of_digits(options.repeats, 200):
        print(f"| {name} | {100 * mean:.2f} % | {100 * expected:.2f} % | {100 * within:.1f} % | {distance:.3f} |")


if __name__ == "__main__":
    main()
