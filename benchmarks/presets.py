"""What a certificate costs and gives on the digits: PreLoad beside PreLoad certified, from scratch and fine-tuned.

    for seed in 0 1 2; do for method in preload preload_certified preload_ft preload_certified_ft; do
      python -m experiments.run --method=$method --seed=$seed --root=runs
      python -m experiments.certify --run=runs/digits/$method/seed$seed
    done; done
    python -m benchmarks.presets --root=runs

One row a method: mean over its seeds of what `results.json` and `certificate.json` say; of radii and rays the worst.
The second ECE is that of logits divided by one temperature, which maximises the likelihood of the validation images.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit

from experiments.runs import folder as folders
from experiments.runs.data import load_splits
from preload_jax import methods, metrics
from preload_jax.devices import forward

METHODS = ("preload", "preload_certified", "preload_ft", "preload_certified_ft")
HEADER = (
    "| | accuracy | ECE | ECE at the best temperature | FPR-95: photo, smooth | largest log-odds |"
    " input radius for 0.5 | largest confidence on 1,000 whole rays | last crossing of 0.5: median, largest |"
)


@dataclass(frozen=True)
class Measured:
    """What the files of one seed say, and its ECE at the best temperature."""

    results: dict[str, Any]
    certificate: dict[str, Any]
    scaled_ece: float


def scaled_ece(folder: Path) -> float:
    """The test images' ECE with logits divided by the temperature that suits the validation images best."""
    run = folders.load_run(folder)
    splits = load_splits(run.config, data_dir=None)

    def logits_of(images: np.ndarray) -> np.ndarray:
        return np.asarray(forward.predict(run.model, run.variables, images)[0], np.float64)

    def of(logits: np.ndarray, labels: np.ndarray, name: str, temperature: float) -> float:
        found = metrics.classification(logits / temperature, labels, has_ood_class=run.method.has_ood_class)
        return found[name]

    held_out = logits_of(splits.validation.images)
    best = minimize_scalar(
        lambda log: -of(held_out, splits.validation.labels, "log_likelihood", float(np.exp(log))),
        bounds=(-3.0, 3.0),
        method="bounded",
    )
    return of(logits_of(splits.test.images), splits.test.labels, "ece", float(np.exp(best.x)))


def read(root: Path, method: str) -> list[Measured]:
    """Each seed that is there."""
    found = []
    for folder in sorted(root.glob(f"digits/{method}/seed*")):
        results, certificate = (
            json.loads((folder / f"{name}.json").read_text()) for name in ("results", "certificate")
        )
        found.append(Measured(results, certificate, scaled_ece(folder)))
    return found


def row(method: str, runs: list[Measured]) -> str:
    """The Markdown row of a method."""
    accuracy, ece = (100 * np.mean([run.results["in_domain"][name] for run in runs]) for name in ("accuracy", "ece"))
    scaled = 100 * np.mean([run.scaled_ece for run in runs])
    fpr = [100 * np.mean([run.results["ood"][name]["fpr95"] for run in runs]) for name in ("photo", "smooth")]
    certificates = [run.certificate for run in runs]
    odds = max(c["largest_log_odds"] for found in certificates for c in found["largest_confidence"]["classes"])
    radii = [found["input_radius"] for found in certificates]
    radius = "none" if None in radii else f"{max(found['typical_distances'] for found in radii):.1f}"
    rays = [found["whole_rays"] for found in certificates]
    steepest = max(found["largest_log_odds"] for found in rays)
    crossings = [float(np.median([found["last_crossing_median"] for found in rays]))]
    crossings.append(max(found["last_crossing_max"] for found in rays))
    # 1 − P = exp(−log-odds) where P is close to 1.
    shown = f"{expit(steepest):.2f}" if steepest < 5 else f"1 − 1e{-steepest / np.log(10):.0f}"
    return (
        f"| {methods.get(method).title} | {accuracy:.1f} | {ece:.1f} | {scaled:.1f} | {fpr[0]:.1f}, {fpr[1]:.1f} |"
        f" {odds:.1f} | {radius} | {shown} | {crossings[0]:.1f}, {crossings[1]:.1f} |"
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path("runs"))
    root = parser.parse_args().root
    print(HEADER)
    print("|---" * HEADER.count("| ") + "|")
    for method in METHODS:
        if runs := read(root, method):
            print(row(method, runs), flush=True)


if __name__ == "__main__":
    main()
