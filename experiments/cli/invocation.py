"""How the user starts a command: `python -m experiments.NAME`, or by the script `preload-jax NAME`."""

import re

SCRIPT = "preload-jax"
# Every command, and what it does in a line, in the order of the work.
COMMANDS = {
    "run": "trains and evaluates one method on one data set",
    "evaluate": "evaluates a trained network again, also on other OOD sets and with detectors",
    "predict": "asks a trained network about image files",
    "export": "writes a trained network as one file that answers",
    "watch": "watches a stream of images with a trained network",
    "certify": "proves how confident a trained network can get",
    "paper": "runs the paper's experiments, all or some",
    "tables": "makes tables and a leaderboard of finished runs",
    "figures": "draws the paper's figures and a run's",
    "tune": "searches for hyper-parameters",
    "prepare_data": "lists and prepares data sets",
}
# Not a part of a path.
_AS_MODULE = re.compile(rf"(?<![\w./=\-])(?:python -m )?experiments\.({'|'.join(COMMANDS)})(?![\w/\-]|\.\w)")
_by_script = False


def by_script() -> None:
    """Tells that this process was started by the script."""
    global _by_script
    _by_script = True


def spelled(text: str) -> str:
    """A text for the user, in which commands are spelled as this one was started."""
    return _AS_MODULE.sub(rf"{SCRIPT} \1", text) if _by_script else text
