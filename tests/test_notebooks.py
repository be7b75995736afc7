"""The notebooks run from top to bottom, hold the outputs that they then have, and hold no logic of their own."""

import ast
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


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 3


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
        for name in ("PYTHONPATH", "PATH"):
            first = ROOT if name == "PYTHONPATH" else Path(sys.executable).parent
            monkeypatch.setenv(name, f"{first}{os.pathsep}{os.environ.get(name, '')}")
        monkeypatch.setenv("JAX_PLATFORMS", "cpu")
        monkeypatch.delenv("XLA_FLAGS", raising=False)  # eight virtual devices are for the other tests
        shutil.copy(path, tmp_path)
        executed = read(path)
        nbclient.NotebookClient(
            executed, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
        for held, now in zip(code_cells(read(path)), code_cells(executed), strict=True):
            assert kinds(held) == kinds(now), f"execute the notebook anew:\n{held.source}"
