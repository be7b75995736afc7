"""Passes that several processes share: two on this machine give the bits of one, and none waits for one that fails."""

import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from tests.devices import two_processes


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each of two processes has computed."""
    folder = tmp_path_factory.mktemp("sharing")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    files = [folder / f"{number}.npz" for number in range(2)]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.devices.two_processes", str(port), str(number), str(file)],
            env={**os.environ, "XLA_FLAGS": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, file in enumerate(files)
    ]
    try:
        errors = [process.communicate(timeout=400)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert all(file.is_file() for file in files), "\n".join(errors)
    return [dict(np.load(file)) for file in files]


def test_two_processes_have_the_numbers_of_one(found):
    for name, expected in two_processes.numbers(None).items():
        for of_process in found:
            np.testing.assert_array_equal(of_process[name], expected, err_msg=name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("images", ("process 1 was given other inputs than process 0",) * 2),
        ("variables", ("process 1 was given other variables than process 0",) * 2),
        ("bad", ("process 1: images of type int64", "images of type int64")),
        ("fewer", ("process 1 was given other numbers of batches than process 0",) * 2),
        ("broken", ("process 1: no such file", "no such file")),
        ("failed", ("process 1: UserError: no memory here", "no memory here")),
    ],
)
def test_what_is_wrong_in_one_process_ends_all(found, name, expected):
    for wanted, part in zip(expected, found, strict=True):
        assert wanted in str(part[f"refused_{name}"])
        assert str(part[f"refused_{name}"]) != "nothing"
