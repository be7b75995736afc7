"""metrics.jsonl: whatever happens to its bytes, every good line stays, and the rest is said and kept beside it."""

import json
import random

import pytest

from experiments.runs import epochs
from preload_jax.formats import records
from tests.formats.test_records import flips

LINES = [
    {"stage": 0, "epoch": i, "step": 10 * i, "loss": 1 / i, "accuracy": 0.1 * i, "learning_rate": 1e-3}
    for i in range(1, 7)
]


def content(lines=LINES):
    return b"".join(records.line(line) + b"\n" for line in lines)


def kept(path, *, up_to=100):
    said = []
    epochs.keep(path, up_to=up_to, warn=said.append)
    return [records.loads(line, {}) for line in path.read_bytes().splitlines()], said


def test_lines_of_steps_that_were_not_saved_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content())
    assert kept(path, up_to=30) == (LINES[:3], [])
    assert path.read_bytes() == content(LINES[:3])
    epochs.keep(tmp_path / "none", up_to=3)
    assert not (tmp_path / "none").exists()


def test_lines_of_older_versions_stay(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": i, "loss": 0.5}) + "\n" for i in (1, 2, 3)))
    lines, said = kept(path, up_to=2)
    assert ([line["step"] for line in lines], said) == ([1, 2], [])


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_truncated_file(tmp_path, cut):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content()[:-cut])
    lines, said = kept(path)
    whole = 6 if cut == 1 else len(LINES) - 1 - (cut > len(records.line(LINES[-1])))
    assert lines == LINES[:whole]
    assert len(said) == (cut > 1)


def test_200_flipped_bits_lose_at_most_their_own_line(tmp_path):
    path, noticed = tmp_path / "metrics.jsonl", 0
    for changed in flips(content(), count=200, seed=3):
        path.write_bytes(changed)
        lines, said = kept(path)
        assert len(lines) >= len(LINES) - 1
        assert all(line in LINES for line in lines)
        assert len(lines) == len(LINES) or len(said) == 1
        noticed += len(said)
    assert noticed > 150


def test_lines_that_ran_together_are_told_apart(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content().replace(b"\n", b"\x0b", 3))
    lines, said = kept(path)
    assert (lines, len(said)) == (LINES, 0)  # a vertical tab is blank


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_in_between(tmp_path, seed):
    draw, path = random.Random(seed), tmp_path / "metrics.jsonl"
    parts, junk = content().splitlines(keepends=True), []
    for _ in range(3):
        junk.append(bytes(draw.choices([b for b in range(256) if b not in b"\n{}"], k=draw.randint(1, 50))) + b"x\n")
        parts.insert(draw.randint(0, len(parts)), junk[-1])
    path.write_bytes(b"".join(parts))
    lines, (said,) = kept(path)
    assert lines == LINES
    assert said.startswith(f"{path} has 3 damaged lines; moved to damaged_metrics.jsonl")
    aside = (tmp_path / "damaged_metrics.jsonl").read_bytes()
    assert all(each in aside for each in junk)


def test_damage_is_said_and_kept_each_time(tmp_path, capsys):
    path = tmp_path / "metrics.jsonl"
    for i in range(2):
        path.write_bytes(content() + b"half %d" % i)
        epochs.keep(path, up_to=100)
        assert capsys.readouterr().err.startswith(f"warning: {path} has 1 damaged line; moved to")
    assert (tmp_path / "damaged_metrics.jsonl").read_bytes() == b"half 0\nhalf 1\n"
