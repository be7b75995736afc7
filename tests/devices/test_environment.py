"""The numerical environment: what is in it, that it survives JSON, and which differences change numbers."""

import json

import jax

from preload_jax.devices import environment
from tests import toy


def test_it_survives_json_and_does_not_differ_from_itself():
    found = environment.current()
    assert json.loads(json.dumps(found)) == found
    assert environment.differences(found, environment.current()) == ([], [])
    assert (found["platform"], found["versions"]["jax"]) == (jax.default_backend(), jax.__version__)


def test_settings_change_numbers():
    before = environment.current()
    with jax.default_prng_impl("rbg"), toy.enable_x64(True):
        numbers, rounding = environment.differences(before, environment.current())
    assert numbers == [
        "jax_default_prng_impl was 'threefry2x32', is 'rbg'",
        "jax_enable_x64 was False, is True",
    ]
    assert rounding == []


def test_flags_versions_and_the_platform_change_rounding_alone(monkeypatch):
    here = environment.current()
    there = {**here, "platform": "abacus", "versions": {**here["versions"], "jax": "0.1"}}
    monkeypatch.setenv("XLA_FLAGS", "--xla_other")
    numbers, rounding = environment.differences(there, environment.current())
    assert numbers == []
    assert [line.split(" was ")[0] for line in rounding] == ["XLA_FLAGS", "platform", "jax"]
    assert rounding[2] == f"jax was '0.1', is {jax.__version__!r}"


def test_what_an_environment_does_not_say_is_no_difference():
    here = environment.current()
    assert environment.differences({}, here) == ([], [])
    assert environment.differences({"jax_enable_x64": here["jax_enable_x64"]}, here) == ([], [])
