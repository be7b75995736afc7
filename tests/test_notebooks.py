"""The notebooks run from top to bottom, hold the outputs that they then have, and hold no logic of their own."""

import ast
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell):
    """What a cell shows: the types of its outputs, messages and their number left aside."""
    return sorted(
        {kind for output in cell.outputs for kind in output.get("data", {output.get("name", output.output_type): None})}
    )


def test_all_install_the_library_in_the_same_way():
    """As `.ci/check_wheels.py` tries on a machine that has nothing."""
    assert len(NOTEBOOKS) >= 3
    assert len({code_cells(read(path))[0].source for path in NOTEBOOKS}) == 1


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
class TestNotebook:
    def test_has_been_executed_in_order(self, path):
        notebook = read(path)
        nbformat.validate(notebook)
        counts = [cell.execution_count for cell in code_cells(notebook)]
        assert counts == list(range(1, len(counts) + 1))
        assert any(kinds(cell) for cell in code_cells(notebook))

    def test_shows_no_error_and_no_path_of_the_machine_that_made_it(self, path):
        text = path.read_text()
        assert '"output_type": "error"' not in text
        home = re.search(r"(?<![\w.])/(home|root|tmp|Users|work)/\w+", text)
        assert home is None, home

    def test_holds_no_logic_but_a_module(self, path):
        """Cells call the library: no functions of their own, no classes but the model that is the reader's."""
        for cell in code_cells(read(path)):
            python = "\n".join(re.sub(r"%.*", "pass", line) for line in cell.source.split("\n"))
            for node in ast.parse(python).body:
                assert not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.While)
                if isinstance(node, ast.ClassDef):
                    assert [ast.unparse(base) for base in node.bases] == ["nn.Module"]

    @pytest.mark.slow
    def test_runs_and_shows_what_it_holds(self, path, tmp_path, monkeypatch):
        executed = execute(path, tmp_path, monkeypatch, devices=1)
        for held, now in zip(code_cells(read(path)), code_cells(executed), strict=True):
            assert kinds(held) == kinds(now), f"execute the notebook anew:\n{held.source}"


def execute(path, folder, monkeypatch, *, devices):
    """The notebook after all its cells ran in a folder, on a CPU that is so many devices."""
    for name in ("PYTHONPATH", "PATH"):
        first = ROOT if name == "PYTHONPATH" else Path(sys.executable).parent
        monkeypatch.setenv(name, f"{first}{os.pathsep}{os.environ.get(name, '')}")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", f"--xla_force_host_platform_device_count={devices}")
    shutil.copy(path, folder)
    executed = read(path)
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(executed, timeout=300, kernel_name="python3", resources=resources).execute()
    return executed


@pytest.mark.slow
def test_the_colab_notebook_runs_on_eight_devices(tmp_path, monkeypatch):
    """As many as the cores of a TPU in Colab; every training shares its batches among them."""
    executed = execute(ROOT / "notebooks" / "colab_train_evaluate_certify.ipynb", tmp_path, monkeypatch, devices=8)
    cells = {cell.source: str(cell.outputs) for cell in code_cells(executed)}
    assert cells["import jax\n\njax.devices()"].count("CpuDevice") == 8
    results = json.loads((tmp_path / "runs/digits/preload/seed0/results.json").read_text())
    assert results["in_domain"]["accuracy"] > 0.9
