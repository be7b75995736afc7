"""pyproject.toml: its lower bounds are those that are tested, and its packages are those that there are."""

import pathlib
import tomllib

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_oldest_versions_are_the_lower_bounds():
    extras = PROJECT["project"]["optional-dependencies"]
    # The site and the notebooks are made with the newest versions alone.
    tested = extras.keys() - {"docs", "notebooks"}
    listed = PROJECT["project"]["dependencies"] + [r for name in tested for r in extras[name] if ">=" in r]
    bounds = {}
    for requirement in map(Requirement, listed):
        (bound,) = requirement.specifier
        assert bound.operator == ">="
        assert bounds.setdefault(requirement.name, Version(bound.version)) == Version(bound.version)
    lines = [line for line in (ROOT / "requirements-oldest.txt").read_text().splitlines() if not line.startswith("#")]
    assert {line.split("==")[0]: Version(line.split("==")[1]) for line in lines} == bounds


def test_every_package_is_listed():
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for top in ("preload_jax", "experiments")
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == found
