"""Runs the paper's experiments, all or some: `python -m experiments.paper`."""
