"""The grid: order, filters, shards, skipping, failures, several processes, going on after a kill."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from experiments.paper import command as paper
from experiments.paper import grid
from experiments.paper import listing as grid_list
from experiments.paper import worker as grid_worker
from experiments.paper.command import Args
from experiments.paper.display import GridDisplay
from experiments.paper.grid import Job
from experiments.run import command as run_command
from experiments.run import workflow
from experiments.runs import configuration, recipes
from experiments.runs import folder as runs
from experiments.runs.run_dir import RunDir
from preload_jax.data import datasets
from preload_jax.errors import UserError
from preload_jax.training.loop import NonFiniteLossError
from tests.experiments.results_for_tests import results, write


def test_the_whole_paper_is_the_default():
    cells = paper.plan(Args())
    runs = [cell for cell in cells if cell.shift is None]
    assert len(runs) == 5 * 9 * 5
    assert len(set(cells)) == len(cells) == 225 + 2 * 9 * 5
    assert {(cell.dataset, cell.shift) for cell in cells[225:]} == {("mnist", "rotation"), ("cifar10", "cifar10_c")}


def test_everything_comes_after_what_it_needs():
    cells = paper.plan(Args())
    place = {cell: i for i, cell in enumerate(cells)}
    for cell in cells:
        assert cell.needs is None or place[cell.needs] < place[cell]
    assert Job("mnist", "oe_ft", 3).needs == Job("mnist", "standard", 3)
    assert Job("mnist", "oe_ft", 3, "rotation").needs == Job("mnist", "oe_ft", 3)
    assert Job("mnist", "oe", 3).needs is None


@pytest.mark.parametrize("name", ["paper", "tables", "figures", "tune"])
def test_help_is_quick_and_complete(name):
    started = time.monotonic()
    command = [sys.executable, "-m", f"experiments.{name}", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "--dataset" in shown
    assert "None" not in shown
    # Two seconds on an idle machine; the tests may share it.
    assert time.monotonic() - started < 6


def test_filters():
    cells = paper.plan(Args(dataset="digits", method="oe,oe_ft", seeds="1,3-4", shift="none"))
    assert [cell.title for cell in cells[:3]] == [
        "digits standard seed 1",  # oe_ft starts from it
        "digits oe seed 1",
        "digits oe_ft seed 1",
    ]
    assert [cell.seed for cell in cells[::3]] == [1, 3, 4]
    shifted = paper.plan(Args(dataset="digits", method="nc", seeds="0", shift="rotation"))
    assert shifted == [Job("digits", "nc", 0), Job("digits", "nc", 0, "rotation")]
    # What is only started from is not shifted.
    tuned = paper.plan(Args(dataset="digits", method="oe_ft", seeds="0", shift="rotation"))
    assert [cell.title for cell in tuned[1:]] == ["digits oe_ft seed 0", "digits oe_ft seed 0, rotation"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"dataset": "minst"}, "unknown --dataset 'minst'"),
        ({"method": "ours"}, "unknown --method 'ours'"),
        ({"seeds": "zero"}, "'zero' is no number or range"),
        ({"seeds": ","}, "names none"),
        ({"seeds": "0-9,9-0"}, "'9-0' runs backwards"),
        ({"seeds": "0-9999,10000"}, "names more than 10,000 numbers"),
        ({"seeds": "4294967296"}, "--seeds must be below 2**32"),
        ({"seeds": "0-" + 9000 * "9"}, "--seeds must be below 2**32"),
        ({"shift": "blur"}, "unknown --shift 'blur'"),
        ({"shift": "rotation,none"}, "--shift=rotation,none: none stands alone"),
        ({"shard": "0/3"}, "--shard=0/3: expected i/n"),
        ({"shard": "4/3"}, "--shard=4/3: expected i/n"),
        ({"shard": "1/10001"}, "expected at most 10,000 parts"),
        ({"shard": "1/" + 9000 * "9"}, "expected i/n"),
        ({"shard": "one"}, "--shard=one: expected i/n"),
        ({"dataset": "digits", "method": "nc", "seeds": "0", "shard": "2/2"}, "has nothing to do"),
    ],
)
def test_wrong_use(options, expected):
    with pytest.raises(UserError) as error:
        paper.plan(Args(**options))
    assert expected in str(error.value)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 25, 40, 400])
def test_shards_are_disjoint_and_complete(count):
    everything = paper.plan(Args())
    shards = [grid.shard(everything, i + 1, count) for i in range(count)]
    assert sorted(itertools.chain(*shards), key=everything.index) == everything
    if count <= 25:
        # What shares a standard run stays together.
        for shard, other in itertools.combinations(shards, 2):
            assert not {(c.dataset, c.seed) for c in shard} & {(c.dataset, c.seed) for c in other}


@pytest.mark.parametrize("count", [2, 3, 5])
def test_shards_cost_alike(count):
    everything = paper.plan(Args(shift="none"))
    costs = [grid.seconds(grid.shard(everything, i + 1, count), accelerator=True) for i in range(count)]
    assert max(costs) < 1.1 * min(costs)


def test_what_makes_a_run_dear():
    def cost(method, shift=None, *, accelerator=False, epochs=None):
        return grid.seconds([Job("cifar10", method, 0, shift)], accelerator=accelerator, epochs=epochs)

    # Half the images of a step are outliers, which the standard network does without; DOE goes through it thrice.
    assert cost("standard") < 0.6 * cost("nc") < cost("nc") < cost("doe_ft", epochs=100) / 2
    assert 1.9 * cost("nc") < cost("nc", epochs=200) < 2 * cost("nc")
    assert cost("ddu", epochs=200) == cost("ddu")  # which trains nothing
    # Minutes on an accelerator, many hours on a CPU.
    assert 60 < cost("nc", accelerator=True) < 1_000
    assert cost("nc") > 24 * 3600
    for shift in ("rotation", "cifar10_c", "corruptions"):
        assert cost("nc", shift, accelerator=True) < cost("nc", shift) / 10


def test_the_list_counts_what_is_finished_and_begun(tmp_path):
    write(tmp_path, results(method="nc", seed=0))
    (tmp_path / "digits" / "nc" / "seed1" / "checkpoints" / "10").mkdir(parents=True)
    cells = paper.plan(Args(dataset="digits", method="nc", seeds="0-2"))
    shown = grid_list.table(cells, root=tmp_path, cost=lambda cells: 60.0 * len(cells), machine="a snail")
    row = next(line for line in shown.splitlines() if "NC" in line)
    assert [part.strip() for part in row.split("│")[4:8]] == ["0, 1, 2", "1", "1", "2"]
    assert "2 of 3 to do, about 2 min on a snail" in shown


class FakeRuns:
    """In place of training, which takes seconds a run: writes results at once, or fails as it is told to."""

    def __init__(self):
        self.fails = {}

    def __call__(self, config, run_dir, *, options, display):
        with run_dir.locked():
            if run_dir.is_finished():
                display.already(run_dir.path)
                return run_dir.read_results()
            if config.method in self.fails:
                raise self.fails[config.method]
            write(options.root, results(config.dataset, config.method, config.seed))
            return {}


@pytest.fixture
def fake(monkeypatch):
    made = FakeRuns()
    monkeypatch.setattr(workflow, "obtain", made)
    return made


@pytest.fixture(autouse=True)
def _no_compiled_programs_in_the_users_folder(monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1")


def finished(root):
    """Method → accuracy, of the runs of the digits that have results."""
    paths = (root / "digits").glob("*/seed0/results.json")
    return {path.parts[-3]: json.loads(path.read_text())["in_domain"]["accuracy"] for path in paths}


def run(root, **options):
    return paper.main(Args(dataset="digits", seeds="0", root=root, **options))


@pytest.mark.usefixtures("plain_pictures")
def test_options_reach_every_run_and_wrong_ones_are_said_at_once(tmp_path):
    numbers = {"recipe": "released_code", "outliers": "smooth", "epochs": 2, "max_steps": 1}
    assert paper.main(Args(dataset="digits", method="nc", seeds="0,3", root=tmp_path, **numbers)) == 0
    for seed in (0, 3):
        config = json.loads((tmp_path / "digits" / "nc" / f"seed{seed}" / "config.json").read_text())
        assert {name: config[name] for name in ("seed", *numbers)} == {"seed": seed, **numbers}
    with pytest.raises(UserError, match="--epochs must be at least 1, got 0"):
        run(tmp_path, method="oe", epochs=0)


def test_finished_runs_are_skipped(tmp_path, fake, capsys):
    write(tmp_path, results(method="nc", accuracy=0.5))
    assert run(tmp_path, method="nc,oe") == 0
    assert finished(tmp_path) == {"nc": 0.5, "oe": 0.9}
    assert "1 done, 1 were finished, 0 failed" in capsys.readouterr().out
    assert run(tmp_path, method="nc,oe") == 0
    assert "0 done, 2 were finished" in capsys.readouterr().out
    assert run(tmp_path, method="nc,oe,preload", json=True) == 0
    document = json.loads(capsys.readouterr().out)
    found = {name: [cell["method"] for cell in document[name]] for name in ("done", "were_finished", "elsewhere")}
    assert found == {"done": ["preload"], "were_finished": ["nc", "oe"], "elsewhere": []}


def test_it_goes_on_after_failures_and_lists_them(tmp_path, fake, capsys):
    fake.fails = {
        "nc": NonFiniteLossError(7, None, 0.1),
        "oe": ZeroDivisionError("a defect"),
        "preload": UserError("u"),
    }
    assert run(tmp_path) == 1
    out, err = capsys.readouterr()
    assert "6 done, 0 were finished, 3 failed" in out
    failed = [line for line in err.splitlines() if line.startswith("failed: ")]
    assert len(failed) == 3
    assert "not finite at step 7" in failed[0]
    assert "ZeroDivisionError: a defect (traceback in" in failed[1]
    traceback = tmp_path / "digits" / "oe" / "seed0" / "failure.txt"
    assert "a defect" in traceback.read_text()
    fake.fails = {}
    assert run(tmp_path, method="oe") == 0
    assert not traceback.exists()


def test_what_starts_from_a_failed_run_is_not_tried(tmp_path, fake, capsys):
    fake.fails = {"standard": UserError("no data")}
    assert run(tmp_path, method="oe_ft,nc") == 1
    assert finished(tmp_path).keys() == {"nc"}
    assert "it starts from digits standard seed 0, which failed" in capsys.readouterr().err


def test_a_shard_makes_a_standard_run_that_belongs_to_another(tmp_path, fake):
    cells = paper.plan(Args(dataset="digits", seeds="0", method="standard,oe_ft,doe_ft"))
    mine = next(s for s in (grid.shard(cells, i, 3) for i in (1, 2, 3)) if s[0].method == "oe_ft")
    part = next(f"{i}/3" for i in (1, 2, 3) if grid.shard(cells, i, 3) == mine)
    assert run(tmp_path, method="standard,oe_ft,doe_ft", shard=part) == 0
    assert finished(tmp_path).keys() == {"standard", "oe_ft"}


def worker(root, sleep):
    def configure(cell):
        return replace(config_of("digits"), method=cell.method, seed=cell.seed)

    display = GridDisplay(total=3, cost=1.0, quiet=True)
    return grid_worker.Worker(configure, workflow.Options(root=root, quiet=True), display, sleep=sleep)


def config_of(dataset):
    return recipes.get(datasets.get(dataset), "standard")


def test_a_start_that_another_cell_needed_was_done_here(tmp_path, fake):
    start, tuned = Job("digits", "standard", 0), Job("digits", "oe_ft", 0)
    outcome = worker(tmp_path, sleep=pytest.fail).work([tuned, start])
    assert (outcome.done, outcome.skipped) == ([tuned, start], [])


def test_what_a_finished_run_started_from_is_not_made(tmp_path, fake):
    write(tmp_path, results(method="oe_ft"))
    outcome = worker(tmp_path, sleep=pytest.fail).work([Job("digits", "oe_ft", 0)])
    assert (len(outcome.skipped), finished(tmp_path).keys()) == (1, {"oe_ft"})


def test_a_run_of_another_process_is_left_to_it(tmp_path, fake):
    cells = [Job("digits", "nc", 0), Job("digits", "oe", 0)]
    with cells[0].run_dir(tmp_path).locked():
        outcome = worker(tmp_path, sleep=pytest.fail).work(cells)
    assert (outcome.elsewhere, outcome.done) == ([cells[0]], [cells[1]])


def test_it_waits_for_a_standard_run_that_another_process_trains(tmp_path, fake):
    start, tuned, other = Job("digits", "standard", 0), Job("digits", "oe_ft", 0), Job("digits", "nc", 0)
    lock = start.run_dir(tmp_path).locked()
    lock.__enter__()
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        assert finished(tmp_path) == {"nc": 0.9}  # what needs nothing was done meanwhile
        if len(waits) == 2:
            write(tmp_path, results(method="standard", accuracy=0.5))
            lock.__exit__(None, None, None)

    outcome = worker(tmp_path, sleep).work([tuned, other])
    assert len(waits) == 2
    assert outcome.done == [other, tuned]
    assert finished(tmp_path) == {"nc": 0.9, "standard": 0.5, "oe_ft": 0.9}


def test_another_configuration_is_a_failure_of_that_run_alone(tmp_path, capsys):
    for method, epochs in (("nc", 3), ("oe", 2)):
        folder = write(tmp_path, results(method=method))
        asked = {"dataset": "digits", "method": method, "epochs": epochs}
        config = run_command.resolve(run_command.Args(**asked))
        runs.write_json(folder / "config.json", configuration.as_dict(config))
    assert run(tmp_path, method="nc,oe", epochs=2) == 1
    out, err = capsys.readouterr()
    assert "0 done, 1 were finished, 1 failed" in out
    assert "seed0 holds a run of another configuration: --epochs 3 there, 2 asked for" in err


def test_the_list_does_not_call_another_configuration_finished(tmp_path, capsys):
    for method, options in (("nc", {"epochs": 2}), ("oe", {}), ("standard", {"max_steps": 3})):
        folder = write(tmp_path, results(method=method))
        config = run_command.resolve(run_command.Args(dataset="digits", method=method, **options))
        RunDir(folder).write_config(config)
    assert run(tmp_path, method="standard,nc,oe", list=True, json=True) == 0
    out, err = capsys.readouterr()
    assert {cell["method"]: cell["state"] for cell in json.loads(out)["cells"]} == {
        "standard": "of another configuration",
        "nc": "of another configuration",
        "oe": "finished",
    }
    assert "digits nc seed 0 does not count as done" in err
    assert "epochs 2 there, 60 asked for" in err
    assert run(tmp_path, method="nc,oe", list=True) == 0
    assert "1 of 2 to do" in capsys.readouterr().out


def test_nothing_starts_from_a_run_of_another_configuration(tmp_path, capsys):
    folder = write(tmp_path, results(method="standard"))
    config = run_command.resolve(run_command.Args(dataset="digits", method="standard", max_steps=3))
    RunDir(folder).write_config(config)
    assert run(tmp_path, method="oe_ft") == 1
    assert "it starts from digits standard seed 0" in capsys.readouterr().err


def test_killed_and_gone_on(tmp_path):
    command = [sys.executable, "-m", "experiments.paper", "--dataset=digits", "--seeds=0", "--method=standard"]
    command += ["--epochs=50", f"--root={tmp_path}"]
    environment = {**os.environ, "XLA_FLAGS": ""}
    run_dir = RunDir(tmp_path / "digits" / "standard" / "seed0")
    killed = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    while not (run_dir.metrics.is_file() and run_dir.metrics.stat().st_size) and killed.poll() is None:
        time.sleep(0.02)
    killed.terminate()
    _, said = killed.communicate()
    assert killed.returncode == 128 + signal.SIGTERM
    assert "this goes on: python -m experiments.paper --dataset=digits" in said
    (cell,) = paper.plan(Args(dataset="digits", method="standard", seeds="0"))
    assert cell.is_begun(tmp_path)
    assert not cell.is_finished(tmp_path)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("1 done, 0 were finished, 0 failed")
    epochs = [json.loads(line)["epoch"] for line in run_dir.metrics.read_text().splitlines()]
    assert epochs == list(range(50))
