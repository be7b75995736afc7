"""Writes a trained network as one file that answers: `python -m experiments.export --run=DIR --out=FILE`."""
