"""pyproject.toml: its bounds are those that are tested, oldest and locked, and its packages hold every module."""

import pathlib
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_oldest_versions_are_the_lower_bounds():
    extras = PROJECT["project"]["optional-dependencies"]
    # The site and the notebooks are made with the newest versions alone; other implementations and ONNX are not locked.
    tested = extras.keys() - {"docs", "notebooks", "parity", "onnx"}
    listed = PROJECT["project"]["dependencies"] + [r for name in tested for r in extras[name] if ">=" in r]
    bounds = {}
    for requirement in map(Requirement, listed):
        (bound,) = requirement.specifier
        assert bound.operator == ">="
        assert bounds.setdefault(requirement.name, Version(bound.version)) == Version(bound.version)
    lines = [line for line in (ROOT / "requirements-oldest.txt").read_text().splitlines() if not line.startswith("#")]
    assert {line.split("==")[0]: Version(line.split("==")[1]) for line in lines} == bounds


def pins(name, python):
    """Package → version, of a file that `.ci/lock` writes, for a Python on Linux; and its lines of hashes."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.7",
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }
    found, hashes = {}, {}
    for line in (ROOT / name).read_text().replace("\\\n", "").splitlines():
        if line.startswith("#"):
            continue
        pin, *hashed = line.split(" --hash=")
        requirement = Requirement(pin)
        if requirement.marker is None or requirement.marker.evaluate(environment):
            (version,) = requirement.specifier
            assert version.operator == "=="
            assert requirement.name not in found
            found[requirement.name] = Version(version.version)
            hashes[requirement.name] = [hash.strip() for hash in hashed]
    return found, hashes


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
class TestLockedVersions:
    def test_hold_what_pyproject_asks_for(self, python):
        extras = PROJECT["project"]["optional-dependencies"]
        cuda = [*PROJECT["project"]["dependencies"], *extras["test"]]
        every = [*cuda, *(r for name in extras.keys() - {"cuda12", "tpu", "parity", "onnx"} for r in extras[name])]
        for name, asked in (("requirements.txt", every), ("requirements-cuda.txt", [*cuda, *extras["cuda12"]])):
            found, _ = pins(name, python)
            for requirement in map(Requirement, asked):
                package = canonicalize_name(requirement.name)
                assert package in found, f"{name} lacks {package}: run .ci/lock"
                assert requirement.specifier.contains(found[package]), f"{name}: {package}; run .ci/lock"

    def test_are_the_same_everywhere(self, python):
        (locked, hashes), (bounds, _), (cuda, _) = (
            pins(name, python) for name in ("requirements.txt", "constraints.txt", "requirements-cuda.txt")
        )
        assert bounds == locked
        # The rest of it are the accelerator's packages.
        assert {name for name in cuda if locked.get(name) != cuda[name]} == {
            name for name in cuda if name.startswith(("nvidia-", "jax-cuda12-"))
        }
        assert all(digests for digests in hashes.values())
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", digest) for digests in hashes.values() for digest in digests)


def test_every_module_is_in_a_package():
    """A folder without `__init__.py` would be left out of the wheel, and all that is below it."""
    for pattern in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]:
        folders = {folder for module in (ROOT / pattern.removesuffix("*")).rglob("*.py") for folder in module.parents}
        inside = {folder for folder in folders if folder != ROOT and folder.is_relative_to(ROOT)}
        assert inside
        assert not [folder for folder in inside if not (folder / "__init__.py").is_file()]
