"""Evaluates a trained network: `python -m experiments.evaluate --run=DIR` or `--weights=FILE`."""
