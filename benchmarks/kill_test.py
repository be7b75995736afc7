"""Kills runs with SIGKILL at random moments, goes on with each, and compares the outcome with an undisturbed run.

    python -m benchmarks.kill_test --kills 21

A run is killed while it trains, while it writes a checkpoint, where a stage or the run before ends, and while it
evaluates; the command is then given again and killed again, in the same folder, until the kills are used up.  What is
left when it ends must equal, byte for byte, what the undisturbed run left: the parameters (by the digest of the last
checkpoint, moments and all), results.json, scores.npz, metrics.jsonl and the histograms.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from preload_jax import digests
from preload_jax.formats import checkpoints

ROOT = Path(__file__).resolve().parents[1]
# Few epochs, and few of the network that fine-tuning starts from as well: most of a run's seconds are Python's start.
METHODS = {
    "preload": ("--epochs=30",),
    "preload_ft": ("--epochs=6", "--init.epochs=4"),
    "doe_ft": ("--epochs=8",),
}
COMPARED = ("results.json", "scores.npz", "metrics.jsonl", "config.json", "figures/score_histograms.png")
POLL = 0.001


@dataclass
class Run:
    """A run of one method under a root folder of its own, and the process that works on it."""

    method: str
    root: Path
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def log(self) -> Path:
        return self.root / "log.txt"

    @property
    def folders(self) -> list[Path]:
        """Of the run, and of the run that it starts from."""
        return sorted(self.root.glob("digits/*/seed0"))

    @property
    def alive(self) -> bool:
        assert self.process is not None
        return self.process.poll() is None

    def start(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "experiments.run", f"--method={self.method}", *METHODS[self.method]]
        environment = os.environ | {
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(ROOT),
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(self.root.parent / "compiled"),
        }
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*command, f"--root={self.root}"], stdout=log, stderr=log, cwd=ROOT, env=environment
            )

    def finish(self) -> None:
        """Waits for the process to end, which must be without an error."""
        assert self.process is not None
        if self.process.wait() != 0:
            raise RuntimeError(f"{self.method} failed:\n{self.log.read_text()}")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def lines(self) -> int:
        """Epochs done, of this run and the one that it starts from."""
        return sum(path.read_text().count("\n") for path in self.root.glob("digits/*/seed0/metrics.jsonl"))

    def writes_checkpoint(self) -> bool:
        return any(self.root.glob("digits/*/seed0/checkpoints/*tmp*"))

    def evaluates(self) -> bool:
        return "evaluating" in self.log.read_text()

    def changes(self) -> int:
        """Results written, and stages begun."""
        texts = [path.read_text() for path in self.root.glob("digits/*/seed0/metrics.jsonl")]
        results = list(self.root.glob("digits/*/seed0/results.json"))
        return sum(len({line.split(",")[0] for line in text.splitlines()}) for text in texts) + len(results)


def wait(run: Run, condition: Callable[[], bool]) -> bool:
    """Whether the condition came true before the process ended."""
    while run.alive:
        if condition():
            return True
        time.sleep(POLL)
    return False


def at_some_time(run: Run, rng: random.Random) -> bool:
    time.sleep(rng.uniform(0.2, 6.0))
    return run.alive


def in_training(run: Run, rng: random.Random) -> bool:
    target = run.lines() + rng.randint(1, 12)
    reached = wait(run, lambda: run.lines() >= target)
    time.sleep(rng.uniform(0.0, 0.05))
    return reached and run.alive


def in_writing(run: Run, rng: random.Random) -> bool:
    for _ in range(rng.randint(1, 8)):
        if not wait(run, run.writes_checkpoint):
            return False
        time.sleep(rng.uniform(0.0, 0.02))
    return run.alive


def at_a_change(run: Run, rng: random.Random) -> bool:
    before = run.changes()
    reached = wait(run, lambda: run.changes() > before)
    time.sleep(rng.uniform(0.0, 0.3))
    return reached and run.alive


def in_evaluation(run: Run, rng: random.Random) -> bool:
    reached = wait(run, run.evaluates)
    time.sleep(rng.uniform(0.0, 2.0))
    return reached and run.alive


# In this order, over and over.  Fine-tuning first trains and evaluates the network that it starts from.
FROM_SCRATCH = (in_training, in_writing, at_some_time, in_writing, in_training, in_evaluation, in_evaluation)
FINE_TUNING = (in_training, in_writing, in_evaluation, at_a_change, at_some_time, in_writing, in_evaluation)


def check_whole(run: Run) -> None:
    """No file with the name of a result is half-written, whenever the process was killed."""
    for folder in run.folders:
        for name in ("results.json", "config.json"):
            if (folder / name).exists():
                json.loads((folder / name).read_text())
        if (folder / "scores.npz").exists():
            with np.load(folder / "scores.npz") as scores:
                assert all(np.isfinite(scores[name]).all() for name in scores.files)
        if (folder / "results.json").exists():
            assert all((folder / name).exists() for name in COMPARED), f"{folder} has results but not everything"


def outcome(run: Run) -> dict[str, object]:
    """Everything that a finished run left, by name."""
    found: dict[str, object] = {}
    for folder in run.folders:
        saved = checkpoints.load(folder / "checkpoints")
        found[f"{folder.parent.name}: parameters"] = digests.of_tree(saved.tree, notes=saved.notes)
        for name in COMPARED:
            found[f"{folder.parent.name}: {name}"] = (folder / name).read_bytes()
    return found


def undisturbed(method: str, root: Path) -> dict[str, object]:
    """What a run leaves that is not killed; two of them must be equal: one compiles, one finds compiled programs."""
    results = []
    for number in (1, 2):
        run = Run(method, root / f"{method}-undisturbed{number}")
        start = time.monotonic()
        run.start()
        run.finish()
        print(f"{method}: undisturbed run {number} took {time.monotonic() - start:.1f} s", flush=True)
        results.append(outcome(run))
    different = differences(*results)
    if different:
        raise RuntimeError(f"two undisturbed runs differ in {different}")
    return results[0]


def differences(a: dict[str, object], b: dict[str, object]) -> list[str]:
    return [name for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]


def killed(method: str, root: Path, *, kills: int, rng: random.Random) -> Iterator[dict[str, object]]:
    """Outcomes of runs that were killed `kills` times altogether: one, unless a run ends before its moment comes."""
    done, number = 0, 0
    moments = FROM_SCRATCH if method == "preload" else FINE_TUNING
    while done < kills:
        number += 1
        run = Run(method, root / f"{method}-killed{number}")
        while done < kills:
            moment = moments[done % len(moments)]
            run.start()
            if not moment(run, rng):
                break
            run.kill()
            check_whole(run)
            done += 1
            print(f"{method}: kill {done} {moment.__name__.replace('_', ' ')}, epochs done {run.lines()}", flush=True)
        else:
            run.start()
        run.finish()
        yield outcome(run)


def kill_and_compare(methods: list[str], *, kills: int, seed: int, root: Path) -> bool:
    """Kills, compares and prints; returns whether everything was identical."""
    rng = random.Random(seed)
    identical = total = 0
    for i, method in enumerate(methods):
        expected = undisturbed(method, root)
        share = kills // len(methods) + (i < kills % len(methods))
        for found in killed(method, root, kills=share, rng=rng):
            different = differences(expected, found)
            total += 1
            identical += not different
            print(f"{method}: {'differs in ' + ', '.join(different) if different else 'identical'}", flush=True)
    counts = f"{kills} kills over {len(methods)} methods"
    print(f"{counts}: parameters and results.json identical in {identical} of {total} runs")
    return identical == total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=21)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--methods", nargs="+", choices=sorted(METHODS), default=list(METHODS))
    parser.add_argument("--keep", type=Path, help="folder to keep the runs in")
    args = parser.parse_args()
    root = args.keep or Path(tempfile.mkdtemp(prefix="kill_test_"))
    try:
        return 0 if kill_and_compare(args.methods, kills=args.kills, seed=args.seed, root=root) else 1
    finally:
        if args.keep is None:
            shutil.rmtree(root)


if __name__ == "__main__":
    sys.exit(main())
