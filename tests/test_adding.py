"""The four recipes of docs/architecture.md, carried out: each diff is applied to a copy of the packages, and used."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
# Where a row or function that a diff adds belongs: before this line of the file.
BEFORE = {
    "preload_jax/losses/objectives.py": "def extra_class(\n",
    "preload_jax/methods.py": '        Method(\n            "ddu",\n',
    "preload_jax/backbones.py": '        Backbone("lenet"',
    "preload_jax/detectors/rows_logits.py": '    "max_logit": Row(\n',
    "preload_jax/data/specs.py": '        DatasetSpec(\n            name="fashion_mnist",\n',
}


def diff(title):
    """File → the lines that a recipe adds to it."""
    (text,) = re.findall(rf"^## {title}\n.*?```diff\n(.*?)```", PAGE, re.S | re.M)
    added = {}
    for line in text.splitlines():
        if line.startswith("+++ b/"):
            name = line.removeprefix("+++ b/")
        elif line.startswith("+"):
            added.setdefault(name, []).append(line[1:])
    return {name: "\n".join(lines) + "\n" for name, lines in added.items()}


@pytest.fixture
def copy(tmp_path):
    """A copy of the packages, and a way to run Python with it."""
    for package in ("preload_jax", "experiments"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))

    def run(title, *arguments):
        for name, lines in diff(title).items():
            path = tmp_path / name
            if not path.exists():
                path.write_text(lines)
                continue
            text = path.read_text()
            assert text.count(BEFORE[name]) == 1, name
            gap = "\n\n" if lines.startswith("def ") else ""
            path.write_text(text.replace(BEFORE[name], lines + gap + BEFORE[name]))
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NO_COLOR": "1", "COLUMNS": "120"}
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_a_method(copy):
    options = ("--method=brier", "--max-steps=2", "--root=runs", "--quiet")
    assert "digits, brier, seed 0" in copy("Add a method", "-m", "experiments.run", *options)


def test_a_network(copy):
    options = ("--backbone=tiny", "--max-steps=2", "--outliers=uniform", "--root=runs", "--quiet", "--json")
    # 64 pixels × 8 + 8, the head's 8 × 10 + 10, and w' and b.
    assert '"num_parameters": 619' in copy("Add a network", "-m", "experiments.run", *options)


def test_a_detector(copy):
    code = (
        "import numpy as np; from preload_jax import detectors; logits = np.array([[3.0, 1.0, 0.5], [2.0, 2.0, 2.0]]);"
        " outputs = detectors.Outputs(logits=logits); detector = detectors.fit('margin', outputs);"
        " print(detectors.score(detector, outputs).tolist())"
    )
    assert copy("Add a detector", "-c", code).strip() == "[2.0, 0.0]"


def test_a_data_set(copy):
    code = (
        "from preload_jax.data import datasets; kmnist = datasets.resolve('kmnist', data_dir='nowhere');"
        " print(kmnist.num_classes, kmnist.image_shape, kmnist.available_ood()[0]);"
        " from experiments.runs import recipes; print(recipes.get(kmnist.spec, 'preload').epochs)"
    )
    said = copy("Add a data set", "-c", code)
    assert said.splitlines() == ["10 (28, 28, 1) ['uniform', 'smooth', 'faraway', 'faraway_rd']", "100"]


def test_help_names_what_was_added(copy):
    said = copy("Add a method", "-m", "experiments.run", "--help")
    assert "standard, brier, ddu" in " ".join(said.split())
