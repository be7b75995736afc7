"""Do the weights that are kept beside results give the same numbers again?

python -m tests.results.kept --data-dir=DIR     evaluates each whose data are prepared in DIR, and compares
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from preload_jax.data.preparing.prepared import is_prepared
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
    data_dir, failed, compared = Path(parser.parse_args().data_dir), False, 0
    for weights, results in files().items():
        kept = json.loads(results.read_text())
        if not is_prepared(kept["dataset"], data_dir=data_dir, split="test"):
            print(f"{weights.relative_to(RESULTS)}: left out, {kept['dataset']} is not prepared in {data_dir}")
            continue
        command = ["experiments.evaluate", f"--weights={weights}", f"--data-dir={data_dir}", "--json", "--quiet"]
        done = subprocess.run([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(done.returncode)  # It has said why.
        pairs, wrong = differences(kept, json.loads(done.stdout))
        compared += 1
        failed = failed or bool(wrong)
        print(f"{weights.relative_to(RESULTS)}: {len(pairs)} numbers again, {len(wrong)} of them others")
        print("".join(f"    {line}\n" for line in wrong), end="")
    sys.exit(failed if compared else f"no data set of theirs is prepared in {data_dir}; nothing was compared")


if __name__ == "__main__":
    main()
