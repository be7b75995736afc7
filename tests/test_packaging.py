"""pyproject.toml: its lower bounds are those that are tested, and its packages hold every module."""

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


def test_every_module_is_in_a_package():
    """A folder without `__init__.py` would be left out of the wheel, and all that is below it."""
    for pattern in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]:
        folders = {folder for module in (ROOT / pattern.removesuffix("*")).rglob("*.py") for folder in module.parents}
        inside = {folder for folder in folders if folder != ROOT and folder.is_relative_to(ROOT)}
        assert inside
        assert not [folder for folder in inside if not (folder / "__init__.py").is_file()]
