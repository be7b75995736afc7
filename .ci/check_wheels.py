"""Builds the sdist and the wheel, installs the wheel in clean environments, and runs the quickstarts there.

    python3 .ci/check_wheels.py                  every CPython from 3.11 on that is found: on PATH, and pyenv's
    python3 .ci/check_wheels.py --newest         only the newest of them
    python3 .ci/check_wheels.py --python=PATH    this one; may be repeated
    python3 .ci/check_wheels.py --list           nothing: says which there are, the newest last

Needs nothing but the standard library.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
# The locked versions: another project's release is not what is tested here.
CONSTRAINTS = str(ROOT / "constraints.txt")
# Runs README.md's Python example, and asks its network about images that are further away still.
QUICKSTART = """
import sys
from importlib import resources
import numpy as np
import preload_jax

assert resources.files("preload_jax").joinpath("py.typed").is_file()
assert resources.files("experiments.runs").joinpath("data", "ood_detection.csv").is_file()
exec(sys.argv[1])
far = 1e6 * np.random.default_rng(1).uniform(size=test.images.shape).astype(np.float32)
assert predict(model, variables, far).is_ood.all()
print(preload_jax.__file__)
"""
# Runs a notebook's cell; pip takes constraints from its environment.
FIRST_CELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell

InteractiveShell.instance().run_cell(sys.argv[1]).raise_error()
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", type=Path, default=[], metavar="PATH")
    parser.add_argument("--newest", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    found = interpreters(options.python)
    if options.list:
        print(*found.values(), sep="\n")
        return 0
    if not found:
        print("skipped: no CPython from 3.11 on that can make environments")
        return 0
    if options.newest:
        found = {max(found): found[max(found)]}
    with tempfile.TemporaryDirectory(prefix="check_wheels_") as folder:
        work = Path(folder)
        wheel, sdist = build(found[max(found)], work)
        check_contents(wheel, sdist)
        for version, python in found.items():
            check_install(version, python, wheel, work)
    return 0


def interpreters(named: list[Path]) -> dict[tuple[int, int], Path]:
    """One interpreter a version, those that are named or else found; says why one is left out."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = named or [
        *(Path(path) for minor in range(OLDEST[1], 30) if (path := shutil.which(f"python3.{minor}"))),
        *sorted(pyenv.glob("versions/3.*/bin/python")),
        Path(sys.executable),
    ]
    found: dict[tuple[int, int], Path] = {}
    for path in candidates:
        # ensurepip: Debian has interpreters without it, which cannot make environments.
        code = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
        done = subprocess.run([path, "-c", code], capture_output=True, text=True)
        if done.returncode:
            problem = (done.stderr.strip().splitlines() or ["it does not start"])[0]
            print(f"left out {path}: {problem}", file=sys.stderr)
            continue
        major, minor = (int(part) for part in done.stdout.split())
        if (major, minor) >= OLDEST:
            found.setdefault((major, minor), path)
        elif named:
            print(f"left out {path}: it is Python {major}.{minor}, older than 3.11", file=sys.stderr)
    return dict(sorted(found.items()))


def build(python: Path, work: Path) -> tuple[Path, Path]:
    """The wheel, made from the sdist, and the sdist, made from the files that git knows."""
    source = work / "source"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    builder = environment(python, work / "builder")
    run(builder, "-m", "pip", "install", "-q", "build", "setuptools")
    run(builder, "-m", "build", "--no-isolation", str(source), "--outdir", str(work / "dist"))
    (wheel,), (sdist,) = (list((work / "dist").glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """Every file of the packages is inside, and nothing beside them."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    tops = [pattern.removesuffix("*") for pattern in setuptools["packages"]["find"]["include"]]
    listed = subprocess.run(["git", "ls-files", *tops], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    expected = set(listed.split())
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    for what, names in (("wheel", in_wheel), ("sdist", in_sdist)):
        if missing := expected - names:
            raise SystemExit(
                f"error: the {what} lacks {', '.join(sorted(missing))}; see [tool.setuptools] in pyproject.toml"
            )
    if more := {name for name in in_wheel - expected if ".dist-info/" not in name}:
        raise SystemExit(f"error: the wheel has files of no package: {', '.join(sorted(more))}")
    for name in ("README.md", "LICENSE", "pyproject.toml"):
        if name not in in_sdist:
            raise SystemExit(f"error: the sdist lacks {name}")
    if not any(name.endswith("LICENSE") for name in in_wheel):
        raise SystemExit("error: the wheel lacks LICENSE")
    print(f"{wheel.name} and {sdist.name}: all {len(expected)} files of {' and '.join(tops)} are inside")


def check_install(version: tuple[int, int], python: Path, wheel: Path, work: Path) -> None:
    """Installs the wheel as the Colab notebook does, and runs both quickstarts, away from the checkout."""
    name = f"Python {version[0]}.{version[1]}"
    installed = environment(python, work / f"venv{version[0]}{version[1]}")
    away = work / f"away{version[0]}{version[1]}"
    away.mkdir()
    # What a bare machine in Colab has, and the notebook's first cell, with the wheel beside it.
    run(installed, "-m", "pip", "install", "-q", "ipython")
    shutil.copy(wheel, away)
    notebook = json.loads((ROOT / "notebooks" / "colab_train_evaluate_certify.ipynb").read_text())
    first = next("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    run(installed, "-c", FIRST_CELL, first, cwd=away)
    run(installed, "-m", "pip", "check")
    options = ("--max-steps=40", "--outliers=uniform", "--quiet", "--json")
    results = json.loads(run(installed, "-m", "experiments.run", *options, cwd=away))
    assert results["ood"]["faraway"]["size"] > 0, results
    run(installed, "-m", "experiments.certify", "--run=runs/digits/preload/seed0", "--quiet", cwd=away)
    run(installed, "-m", "experiments.tables", cwd=away)
    # In a project that has a folder of this name the script finds ours all the same.
    (away / "experiments").mkdir()
    (away / "experiments" / "__init__.py").touch()
    run(installed.with_name("preload-jax"), "tables", cwd=away)
    shutil.rmtree(away / "experiments")
    (example,) = re.findall(
        r"```python\n(from preload_jax import evaluate.*?)```", (ROOT / "README.md").read_text(), re.S
    )
    where = run(installed, "-c", QUICKSTART, example, cwd=away).split()[-1]
    assert str(work) in where, f"{where} was imported, not the installed wheel"
    print(f"{name}: installed, and both quickstarts pass ({python})", flush=True)


def environment(python: Path, folder: Path) -> Path:
    """The interpreter of a new virtual environment."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    return folder / "bin" / "python"


def run(python: Path, *arguments: str, cwd: Path | None = None) -> str:
    """Standard output of a command in an environment; what it said, if it fails."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    clean["PIP_CONSTRAINT"] = CONSTRAINTS
    done = subprocess.run([python, *arguments], cwd=cwd, env=clean, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"error: {python} {' '.join(arguments[:4])} failed\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
