"""Run folders and checkpoints that are damaged, of something else or in use.

HERE/standard is a finished run of three epochs.
"""

import json
import shutil
from pathlib import Path

from experiments.runs import records
from tests.bad_inputs import command


def config(folder: Path) -> Path:
    return folder / "standard" / "config.json"


def damaged_checkpoints(folder: Path) -> None:
    (folder / "standard" / "results.json").unlink()
    for path in (folder / "standard" / "checkpoints").glob("*/state/manifest.ocdbt"):
        path.write_bytes(b"")


def other_checkpoints(folder: Path) -> None:
    """A configuration with a square-logit head beside the checkpoints of a linear one."""
    values = records.read(config(folder), advice="")
    values.pop("format")
    config(folder).write_text(json.dumps({**values, "method": "preload"}))


def other_version(folder: Path) -> None:
    values = records.read(config(folder), advice="")
    values.pop("format")
    config(folder).write_text(json.dumps({**values, "colour": "blue"}))


def no_checkpoints(folder: Path) -> None:
    (folder / "standard" / "checkpoints").rename(folder / "elsewhere")


_RUN = "--method=standard --epochs=3 --run-dir=HERE/standard"
_AGAIN = "give --overwrite to replace it, or another --run-dir"


def of_another(**changes):
    """HERE/other, a copy of HERE/standard whose configuration says something else."""

    def prepare(folder: Path) -> None:
        shutil.copytree(folder / "standard", folder / "other")
        path = folder / "other" / "config.json"
        values = records.read(path, advice="")
        values.pop("format")
        path.write_text(json.dumps({**values, **changes}))
        # Its results say it, too: that they are of another run than the configuration is another row.
        results = folder / "other" / "results.json"
        found = {**records.read(results, advice=""), **changes}
        found.pop("config_digest")
        records.write(results, found)

    return prepare


ROWS = [
    command(
        "--epochs=1 --run-dir=HERE/a[1]",
        "checkpoints cannot be written in HERE/a[1]/checkpoints: '[' is in its path; choose another folder for the run",
    ),
    command(
        f"{_RUN} --batch-size=64",
        "HERE/standard holds a run of another configuration: --batch-size 128 there, 64 asked for; " + _AGAIN,
        did="`--batch-size=64` in the folder of a run with 128",
    ),
    command(
        f"{_RUN} --precision=bfloat16",
        "HERE/standard holds a run of another configuration: --precision 'auto' there, 'bfloat16' asked for; " + _AGAIN,
        did="`--precision=bfloat16` in the folder of a run without",
    ),
    command(
        _RUN,
        "HERE/standard holds a run without its config.json, so it may be another's; " + _AGAIN,
        did="A run whose config.json was deleted",
        prepare=lambda folder: config(folder).unlink(),
    ),
    command(
        _RUN,
        "HERE/standard/config.json is not valid JSON (…); restore it, or give --overwrite to train again",
        did="A damaged config.json",
        prepare=lambda folder: config(folder).write_text('{"dataset": "dig'),
    ),
    command(
        _RUN,
        "HERE/standard/config.json is damaged (the configuration was written by another version…",
        did="A config.json of another version",
        prepare=other_version,
    ),
    command(
        _RUN,
        "HERE/standard/results.json is not valid JSON (…); delete it and run again",
        did="A damaged results.json",
        prepare=lambda folder: (folder / "standard" / "results.json").write_text('{"in_dom'),
    ),
    command(
        _RUN,
        "HERE/standard/results.json is damaged: expected an object, got a list; delete it and run again",
        did="A results.json of something else",
        prepare=lambda folder: (folder / "standard" / "results.json").write_text("[]"),
    ),
    command(
        _RUN,
        "every checkpoint in HERE/standard/checkpoints is damaged (the newest: …); restore a copy of the folder, or"
        " remove it and train again from the start (run folder HERE/standard)",
        did="A run whose checkpoints are all damaged",
        outcome="exit 1",
        prepare=damaged_checkpoints,
    ),
    command(
        "certify --run=HERE/standard",
        "every checkpoint in HERE/standard/checkpoints is damaged (the newest: …); restore a copy of the folder, or"
        " remove it and train again from the start",
        did="`certify` of such a run",
        outcome="exit 1",
        prepare=damaged_checkpoints,
    ),
    command(
        "figures --root=HERE/standard --figure=roc --output=HERE",
        "HERE/standard/scores.npz is damaged (…); delete it and results.json, and run again",
        did="`figures --figure=roc` of a run with a damaged scores.npz",
        prepare=lambda folder: (folder / "standard" / "scores.npz").write_bytes(b"PK"),
    ),
    command(
        "certify --run=HERE/standard",
        "the checkpoint does not fit the model: params/head/ood/bias is missing, expected an array []",
        did="`certify` of a run with the checkpoints of another method",
        prepare=other_checkpoints,
    ),
    command(
        "certify --run=HERE/standard",
        "no checkpoints in HERE/standard/checkpoints; train the run first",
        did="`certify` of a run without checkpoints",
        prepare=no_checkpoints,
    ),
    command("evaluate --ensemble=HERE/standard", "--ensemble names 1 runs; give two at least, DIR,DIR,…"),
    command(
        "evaluate --ensemble=HERE/standard,HERE/standard/",
        "--ensemble names a run twice; a network that is counted twice makes no ensemble",
    ),
    command(
        "evaluate --ensemble=HERE/standard,HERE/other --run=HERE/standard",
        "--run is for one network, and --ensemble names several runs; leave one out",
    ),
    command(
        "evaluate --ensemble=HERE/standard,HERE/other",
        "HERE/other differs in data set: mnist, and HERE/standard has digits; an ensemble is of runs that differ in the"
        " seed",
        did="An ensemble of runs of two data sets",
        prepare=of_another(dataset="mnist"),
    ),
    command(
        "evaluate --ensemble=HERE/standard,HERE/other",
        "HERE/other differs in method: oe, and HERE/standard has standard; an ensemble is of runs that differ in the"
        " seed",
        did="An ensemble of runs of two methods",
        prepare=of_another(method="oe"),
    ),
    command(
        "evaluate --run=HERE/standard --recalibrate=platt",
        "unknown recalibration 'platt'; expected some of temperature, vector, dirichlet, spline, joined by commas",
    ),
    command(
        "evaluate --run=HERE/standard --recalibrate=all --validation=none",
        "--recalibrate needs validation images, and the run holds none out",
    ),
    command("certify --run=HERE/standard --num-directions=0", "--num-directions must be at least 1, got 0"),
    command(
        "certify --run=HERE/standard --confidence=2", "confidence must lie between 0 and 1, both excluded, got 2.0"
    ),
    command(
        "--method=oe_ft --start=HERE/standard",
        "HERE/standard holds preload on digits; oe_ft needs the run of standard on digits",
        did="`--method=oe_ft --start=HERE/standard`, which is another method's",
        prepare=other_checkpoints,
    ),
    command(
        "--run-dir=HERE/notes.txt",
        "HERE/notes.txt is a file; expected a folder: give another --run-dir",
        did="A file as `--run-dir`",
        prepare=lambda folder: (folder / "notes.txt").write_text("mine"),
    ),
    *(
        command(
            f"{options}=HERE/file{name}",
            f"Not a directory: HERE/file{name or '/figure.png'} (a part of it is a file, expected folders); choose"
            " another",
            did=f"`{options}=HERE/file{name}`, where HERE/file is a file",
            prepare=lambda folder: (folder / "file").write_text("mine"),
        )
        for options, name in (
            ("evaluate --run=HERE/standard --export", "/x.safetensors"),
            ("evaluate --run=HERE/standard --detectors=knn --figure", "/x.png"),
            ("export --run=HERE/standard --out", "/x"),
            ("figures --root=HERE/standard --figure=roc --output", ""),
            ("run --run-dir", "/run"),
        )
    ),
    *(
        command(
            f"{options}=HERE/loop{name}",
            f"Too many levels of symbolic links: HERE/loop{name or '/figure.png'} (links that lead to each other); mend"
            " them, or choose another",
            did=f"`{options}=HERE/loop{name}`, where HERE/loop is a link to itself",
            prepare=lambda folder: (folder / "loop").symlink_to(folder / "loop"),
        )
        for options, name in (
            ("export --run=HERE/standard --out", "/x"),
            ("figures --root=HERE/standard --figure=roc --output", ""),
            ("run --run-dir", "/run"),
        )
    ),
    command(
        f"predict --run=HERE/standard {'x' * 300}",
        f"File name too long: {'x' * 300}; choose a shorter one",
        did="`predict --run=HERE/standard` with a name of 300 letters",
    ),
    command(
        f"{_RUN} --optimizer.learning-rate=1e30 --overwrite",
        "the loss is not finite at step 1; the last finite loss was …, the learning rate 9.…e+29. Lower"
        " the learning rate, or look at the images for values that are not finite (run folder HERE/standard)",
        did="A learning rate of 1e30",
        outcome="exit 1",
    ),
]
