"""The benchmark of serving runs, compares answers, and makes its table."""

from benchmarks import serving


def test_a_small_measurement_and_its_table():
    results = {"mlp": serving.measure("mlp", {1: 3, 64: 3})}
    for times in results["mlp"].values():
        assert 0.0 < times["p50"] <= times["p99"]
        assert 0.0 < times["in_process_p50"] <= times["in_process_p99"]
    lines = serving.table(results).splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("| MLP on 8×8 | 1 | ")


def test_ratios():
    times = {"p50": 2.0, "p99": 6.0, "in_process_p50": 1.0, "in_process_p99": 4.0, "load": 1.0}
    assert serving.table({"lenet": {"1": times}}).splitlines()[-1] == (
        "| LeNet on 28×28 | 1 | 2, 6 | 1, 4 | 2.00, 1.50 | ≤ 1.1 |"
    )
