"""Searches for hyper-parameters as the paper did: `python -m experiments.tune`."""
