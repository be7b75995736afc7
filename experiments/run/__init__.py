"""Trains and evaluates one method on one data set: `python -m experiments.run`."""
