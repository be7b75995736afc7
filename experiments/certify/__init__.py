"""Proves how confident a trained run can get: `python -m experiments.certify --run=DIR`."""
