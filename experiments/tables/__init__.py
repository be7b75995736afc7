"""The paper's tables from finished runs, the paper's numbers beside ours: `python -m experiments.tables`."""
