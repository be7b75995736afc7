"""Pictures of results; `python -m experiments.figures` draws them all."""
