"""Mutation testing: which small changes of the code do the tests let live?  A seed draws them, not a person.

    python -m tests.mutants --count=100 --seed=0 --out=mutants.jsonl

copies what git tracks, changes one expression at a time, and runs the tests that mirror the changed file until one
fails.  One JSON line a mutant: file, line, what was there, what is there now, and whether it was killed.  Mutants that
the file of results holds already are left out.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What is changed, and the tests that must notice.
FILES = {
    "experiments/run/workflow.py": ("tests/experiments/run/test_run.py", "tests/experiments/run"),
    "experiments/evaluate/report.py": ("tests/experiments/evaluate",),
    "experiments/predict/prediction.py": ("tests/experiments/predict",),
    "experiments/tune/study.py": ("tests/experiments/tune",),
    "experiments/tune/objective.py": ("tests/experiments/tune",),
    "experiments/runs/trained.py": ("tests/experiments/runs", "tests/experiments/evaluate"),
    "preload_jax/guarantees/dual.py": ("tests/guarantees/test_bounds.py",),
    "preload_jax/guarantees/ray_certificate.py": ("tests/guarantees/test_ray_certificate.py",),
    "preload_jax/models/wide_resnet.py": ("tests/models/test_backbones.py",),
    "preload_jax/training/frozen.py": ("tests/training/test_frozen.py",),
    "preload_jax/training/fit.py": ("tests/training/test_fit.py", "tests/training/test_distance.py"),
    "preload_jax/methods.py": ("tests/test_methods.py",),
}
_COMPARED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "is not": "is"}
_COMPARED |= {"in": "not in", "not in": "in"}
_ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Pow: "*"}


@dataclass(frozen=True)
class Mutant:
    """One change: the expression from `begin` to `end` in the file's text is replaced."""

    file: str
    line: int
    was: str
    now: str
    begin: int
    end: int


def changes(node: ast.AST, text: str) -> Iterator[str]:
    """What an expression may become."""

    def source(part: ast.AST) -> str:
        return ast.get_source_segment(text, part) or ""

    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = source(node.left), source(node.comparators[0])
        op = ast.unparse(ast.Compare(ast.Name("a"), node.ops, [ast.Name("b")]))[2:-2]
        yield f"{left} {_COMPARED[op]} {right}"
    elif isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield "(" + word.join(f"({source(value)})" for value in node.values) + ")"
        yield from (source(value) for value in node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield source(node.operand)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield f"({source(node.left)}) {_ARITHMETIC[type(node.op)]} ({source(node.right)})"
    elif isinstance(node, ast.IfExp):
        yield source(node.body)
        yield source(node.orelse)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield repr(node.value + 1)


def candidates(file: str) -> list[Mutant]:
    """All changes of a file, in its order; annotations and what makes texts are left alone."""
    text = (ROOT / file).read_text()
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(text)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        notes = [getattr(node, name, None) for name in ("annotation", "returns")]
        notes += [node] if isinstance(node, ast.JoinedStr) else []
        skipped |= {id(inner) for note in notes if note is not None for inner in ast.walk(note)}
    found = []
    for node in ast.walk(tree):
        if id(node) in skipped or not isinstance(node, ast.expr):
            continue
        for now in changes(node, text):
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            was = ast.get_source_segment(text, node) or ""
            found.append(Mutant(file, node.lineno, was, now, begin, end))
    return found


def copy_of_the_repository(folder: Path) -> Path:
    """What git tracks, as it is in the working tree."""
    copy = folder / "copy"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    return copy


def passes(file: str, copy: Path, *, timeout: float | None = None) -> bool:
    """Whether the tests that mirror a file pass.

    Raises:
        subprocess.TimeoutExpired: when they do not end in so many seconds.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run(
        [*command, *FILES[file]], cwd=copy, env=environment, capture_output=True, timeout=timeout, check=False
    )
    return done.returncode == 0


def run(mutant: Mutant, copy: Path, *, timeout: float) -> str:
    """ "killed", "lived", or "slow" where the tests did not end in time."""
    path = copy / mutant.file
    original = path.read_bytes()
    path.write_bytes(original[: mutant.begin] + mutant.now.encode() + original[mutant.end :])
    try:
        return "lived" if passes(mutant.file, copy, timeout=timeout) else "killed"
    except subprocess.TimeoutExpired:
        return "slow"
    finally:
        path.write_bytes(original)


def main() -> None:
    """Draws, runs and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    options = parser.parse_args()
    everything = [mutant for file in FILES for mutant in candidates(file)]
    drawn = random.Random(options.seed).sample(everything, options.count)
    found = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = [{name: value for name, value in row.items() if name != "outcome"} for row in found]
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of_the_repository(Path(folder))
        seconds: dict[str, float] = {}
        # File by file, so that each one's tests run once unchanged: where those fail, every mutant would be "killed".
        for i, mutant in enumerate(sorted(drawn, key=lambda mutant: mutant.file)):
            if asdict(mutant) in done:
                continue
            if mutant.file not in seconds:
                start = time.monotonic()
                if not passes(mutant.file, copy):
                    sys.exit(f"error: the tests of {mutant.file} fail without a mutant: {' '.join(FILES[mutant.file])}")
                seconds[mutant.file] = time.monotonic() - start
            outcome = run(mutant, copy, timeout=60 + 4 * seconds[mutant.file])
            with options.out.open("a") as file:
                file.write(json.dumps({**asdict(mutant), "outcome": outcome}) + "\n")
            where = f"{mutant.file}:{mutant.line}"
            print(f"{i + 1}/{len(drawn)} {outcome}: {where} {mutant.was!r} -> {mutant.now!r}", flush=True)


if __name__ == "__main__":
    main()
