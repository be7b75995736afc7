"""Asks a trained network about image files: `python -m experiments.predict --run=DIR IMAGE…`."""
