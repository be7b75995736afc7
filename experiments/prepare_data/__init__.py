"""Lists and prepares data sets: `python -m experiments.prepare_data [--dataset=NAME|all] [--source=DIR]`."""
