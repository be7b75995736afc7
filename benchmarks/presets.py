"""What a certificate costs and gives on the digits: PreLoad beside PreLoad certified, from scratch and fine-tuned.

    for seed in 0 1 2; do for method in preload preload_certified preload_ft preload_certified_ft; do
      python -m experiments.run --method=$method --seed=$seed --root=runs
      python -m experiments.certify --run=runs/digits/$method/seed$seed
    done; done
    python -m benchmarks.presets --root=runs

One row a method: mean over its seeds of what `results.json` and `certificate.json` say; of radii and rays the worst.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from preload_jax import methods

METHODS = ("preload", "preload_certified", "preload_ft", "preload_certified_ft")
HEADER = (
    "| | accuracy | ECE | FPR-95: photo, smooth | largest log-odds | input radius for 0.5 |"
    " largest confidence on 1,000 whole rays | last crossing of 0.5: median, largest |"
)


def read(root: Path, method: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(results, certificate) of each seed that is there."""
    folders = sorted(root.glob(f"digits/{method}/seed*"))
    return [tuple(json.loads((f / f"{name}.json").read_text()) for name in ("results", "certificate")) for f in folders]  # type: ignore[misc]


def row(method: str, runs: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """The Markdown row of a method."""
    results, certificates = zip(*runs, strict=True)
    accuracy, ece = (100 * np.mean([r["in_domain"][name] for r in results]) for name in ("accuracy", "ece"))
    fpr = [100 * np.mean([r["ood"][name]["fpr95"] for r in results]) for name in ("photo", "smooth")]
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
        f"| {methods.get(method).title} | {accuracy:.1f} | {ece:.1f} | {fpr[0]:.1f}, {fpr[1]:.1f} | {odds:.1f} |"
        f" {radius} | {shown} | {crossings[0]:.1f}, {crossings[1]:.1f} |"
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
            print(row(method, runs))


if __name__ == "__main__":
    main()
