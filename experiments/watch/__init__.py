"""Watches a stream of images with a trained network: `python -m experiments.watch --program=FILE FOLDER`."""
