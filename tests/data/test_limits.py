"""Damaged and hostile files, read in 2 GB and 20 s each: a DataError of one line, or what is in them."""

import json
import subprocess
import sys

import pytest

from tests.data import bombs, fuzzing

SLOW = {
    "gzip_of_many_members",
    "idx_that_declares_much",
    "tar_with_a_large_header",
    "tar_with_a_large_stranger",
    "matlab_of_small_numbers",
    "pickle_of_marks",
    "two_large_images_a_class",
    "npz_of_zeros",
}


def lines(module, *arguments, timeout):
    command = [sys.executable, "-m", f"tests.data.{module}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[-2_000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_fuzzing(count, seed, timeout):
    pytest.importorskip("lmdb", reason="writes the files that are damaged here")
    found = lines("fuzzing", count, seed, timeout=timeout)
    assert [line["name"] for line in found] == list(fuzzing.READERS)
    for line in found:
        assert line["problems"] == [], line
        assert line["tried"] == count
        # A reader that refused everything, or nothing, would show nothing.
        assert 0 < line["refused"] < count, line
        assert line["peak_mb"] < 1_000, line


def check_bombs(names, timeout):
    found = {line["name"]: line for line in lines("bombs", *names, timeout=timeout)}
    assert found.keys() == set(names)
    for name, line in found.items():
        assert line["said"].count("\n") == 0
        assert (line["said"] == "") == (name == "two_large_images_a_class"), line
        assert "HERE" in line["said"] or name in ("sparse_npy", "two_large_images_a_class"), line
        assert line["disk_mb"] < 300, line


def test_damaged_files():
    check_fuzzing(60, 0, timeout=300)


@pytest.mark.slow
def test_many_damaged_files():
    check_fuzzing(2_000, 1, timeout=1_800)


def test_files_that_say_they_are_large():
    check_bombs([name for name in bombs.BOMBS if name not in SLOW], timeout=200)


@pytest.mark.slow
def test_more_files_that_say_they_are_large():
    check_bombs([name for name in bombs.BOMBS if name in SLOW], timeout=500)
