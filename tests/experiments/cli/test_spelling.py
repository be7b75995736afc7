"""Settings in the library's messages become options."""

import pytest

from experiments.cli.spelling import spelled
from experiments.predict.command import Args as PredictArgs
from experiments.run.command import Args


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("batch_size must be at least 1, got 0", "--batch-size must be at least 1, got 0"),
        ("lower the learning_rate", "lower the --optimizer.learning-rate"),
        ("--batch-size of runs/batch_size/x", "--batch-size of runs/batch_size/x"),
        ("unknown option 'max_steps'", "unknown option 'max_steps'"),
        ("fit(..., ood_weight=1)", "fit(..., ood_weight=1)"),
        ("mixup_alpha is for mixup, not label_smoothing", "--mixup-alpha is for mixup, not label_smoothing"),
        ("the method and the seed stay words", "the method and the seed stay words"),
    ],
)
def test_names_of_settings_become_options(message, shown):
    assert spelled(message, Args) == shown


def test_only_options_that_the_command_has():
    assert spelled("batch_size and data_dir", PredictArgs) == "batch_size and --data-dir"
