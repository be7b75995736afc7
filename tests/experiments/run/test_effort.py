"""What a run says of its memory and time, before it begins and after its first steps."""

import jax
import numpy as np
import pytest

from experiments.run import effort
from experiments.run.command import Args, resolve
from experiments.run.train import stages


@pytest.fixture(scope="module")
def expected():
    config = resolve(Args(backbone="conv_net", epochs=2, outliers="uniform"))
    return effort.expected(stages(config, num_images=320), config.data.image_shape)


def test_what_is_expected_grows_with_what_is_asked(expected):
    assert (expected.images, expected.steps) == (64, 20)
    config = resolve(Args(backbone="conv_net", epochs=6, batch_size=64, outliers="uniform"))
    more = effort.expected(stages(config, num_images=320), config.data.image_shape)
    assert (more.images, more.steps) == (128, 30)
    assert more.step_bytes == pytest.approx(2 * expected.step_bytes)
    # The network's three convolutions alone, forward: a multiplication and an addition for each weight and position.
    by_hand = 64 * 2 * 9 * (8 * 8 * 32 + 4 * 4 * 32 * 64 + 2 * 2 * 64 * 128)
    seconds = 3 * by_hand / (0.5 * effort._flops_per_second())
    if jax.default_backend() == "cpu":
        assert expected.step_seconds == pytest.approx(seconds, rel=3.0)


def test_lines_and_warnings():
    few = effort.Effort(64, 540, 0.5, 2e9, 3.5e8, 8e9, None)
    memory, time, less = few.lines(30_000_000)
    assert memory == (
        "memory: about 2 GB to 7.6 GB (350 MB this process has already, the rest for steps of 64 images), and the"
        " outliers; 8 GB are free"
    )
    assert time == "time: 540 steps; how long one takes is measured in the first ones"
    assert "--image-size" in less
    assert few.warnings() == []
    many = effort.Effort(64, 540_000, 0.5, 2.5e9, 4e8, 1e9, "a step does not fit")
    assert [line.split(":")[0] for line in many.warnings()] == [
        "a step does not fit",
        "on this machine a step takes about 0.5 s, so the 540,000 steps take about 3.1 days",
    ]
    elsewhere = effort.Effort(64, 540, None, 2e9, None, None, None)
    assert elsewhere.lines(30_000_000)[0] == (
        "memory: about 1.4 GB to 7 GB (30 MB the data set, the rest for steps of 64 images), and the outliers"
    )


@pytest.mark.parametrize(
    ("reports", "said"),
    [
        ([(1, 20.0), (2, 20.5), (3, 21.0), (4, 21.5), (5, 30.0)], "a step takes 0.5 s here, measured on 3, so the 96"),
        ([(10, 20.0), (20, 25.0), (30, 40.0)], "a step takes 0.5 s here, measured on 10, so the 80"),
        ([(1, 20.0), (2, 20.5)], None),
    ],
    ids=["a step a call", "an epoch a call", "too few"],
)
def test_the_measured_pace_leaves_out_compiling_and_is_said_once(reports, said):
    lines: list[str] = []
    times = iter([when for _, when in reports])
    measured = effort.Measured("photos", 100, lines.append, clock=lambda: next(times))
    for done, _ in reports:
        measured(done)
    assert len(lines) == (said is not None)
    assert said is None or lines[0].startswith(f"photos: {said} that are left take about ")
    assert all("for less" not in line and "GB of memory so far" in line.replace("MB", "GB") for line in lines)


def test_the_process_itself_is_counted(expected):
    """A tiny network's step is nothing beside the libraries."""
    if jax.default_backend() == "cpu":
        assert 1e8 < expected.process <= effort.peak()


def test_the_peak_is_that_of_the_process():
    before = effort.peak()
    if jax.default_backend() == "cpu":
        held = np.ones(40_000_000)  # 320 MB beyond whatever is free
        assert effort.peak() >= max(before, held.nbytes)


def test_a_slow_pace_says_what_takes_less():
    lines: list[str] = []
    times = iter([0.0, 60.0])
    measured = effort.Measured("photos", 1000, lines.append, clock=lambda: next(times))
    measured(1)
    measured(4)
    assert lines[0].startswith(
        "photos: a step takes 20 s here, measured on 3, so the 996 that are left take about 5.5 h"
    )
    assert "for less: fewer --epochs, a smaller --image-size" in lines[0]
