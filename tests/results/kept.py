"""Do the weights that are kept beside results give the same numbers again?

python -m tests.results.kept --data-dir=DIR     evaluates each on what is prepared in DIR, and compares
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from tests.results.made import RESULTS

# Another processor's programs round otherwise, which moves a few of some 10,000 images over a threshold.
TOLERANCE = 2e-3
# Of the results, by part, what depends on no file that may be missing.
MEASURED = {"in_domain": ("accuracy", "ece", "brier", "mmc"), "ood": ("fpr95", "auroc", "mmc")}


def files(root=RESULTS):
    """By file of weights its results: of weights.safetensors results.json beside it, of NAME.safetensors NAME.json."""
    names = {"weights": "results.json"}
    found = sorted(Path(root).rglob("*.safetensors"))
    return {path: path.with_name(names.get(path.stem, f"{path.stem}.json")) for path in found}


def differences(kept, again, tolerance=TOLERANCE):
    """(the numbers that both have, a line for each that is not the same)."""
    pairs = {name: (kept["in_domain"][name], again["in_domain"][name]) for name in MEASURED["in_domain"]}
    for ood in sorted(kept["ood"].keys() & again["ood"].keys()):
        pairs |= {f"{ood} {name}": (kept["ood"][ood][name], again["ood"][ood][name]) for name in MEASURED["ood"]}
    wrong = [f"{name}: {b}, kept is {a}" for name, (a, b) in pairs.items() if not abs(a - b) <= tolerance]
    return pairs, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", required=True, help="where `experiments.prepare_data` put the data sets")
    data_dir, failed = parser.parse_args().data_dir, False
    for weights, results in files().items():
        command = ["experiments.evaluate", f"--weights={weights}", f"--data-dir={data_dir}", "--json", "--quiet"]
        done = subprocess.run([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(done.returncode)  # It has said why.
        pairs, wrong = differences(json.loads(results.read_text()), json.loads(done.stdout))
        failed = failed or bool(wrong)
        print(f"{weights.relative_to(RESULTS)}: {len(pairs)} numbers again, {len(wrong)} of them others")
        print("".join(f"    {line}\n" for line in wrong), end="")
    sys.exit(failed)


if __name__ == "__main__":
    main()
