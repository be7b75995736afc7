"""Asks a trained network about image files: `python -m experiments.predict --run=DIR IMAGE…`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from experiments import cli


@dataclass(frozen=True)
class Args:
    """Says what a trained network sees in image files: the class, how sure it is, and whether it is OOD.

    Images of another shape than the network's are prepared as in training: squashed to its size and turned grey or
    coloured, which the output says. One that cannot be read has a row "unreadable", and the exit status is then 1.
    """

    images: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE …", help_behavior_hint="")]
    """Files that Pillow reads (.png, .jpg, …), folders of them, and .npy files of one image or several."""
    run: Annotated[Path | None, cli.option("DIR", "none")] = None
    """The folder of a finished run, such as runs/digits/preload/seed0."""
    weights: Annotated[Path | None, cli.option("FILE", "none")] = None
    """A .safetensors, .pt or .pth file."""
    ensemble: Annotated[str | None, cli.option("DIR,DIR,…", "none")] = None
    """The folders of finished runs of one method and several seeds: their mean probabilities answer."""
    dataset: Annotated[str | None, cli.option("STR", "what the file or its name says")] = None
    """With --weights: the data set it was trained on."""
    method: Annotated[str | None, cli.option("STR", "what the file or its name says")] = None
    """With --weights: the method, which decides the score."""
    tpr: Annotated[float | None, cli.option("FLOAT", "0.95")] = None
    """Without an OOD class: this share of in-domain images passes the threshold. Not with --false-alarm-rate."""
    false_alarm_rate: Annotated[float | None, cli.option("FLOAT", "none")] = None
    """Decides by a rule that calls at most this share of in-domain images OOD, with 95 % confidence; gives p-values.
    The rule is made of the validation images, for networks with an OOD class, too."""
    data_dir: cli.DataDir = None
    quiet: cli.Quiet = False
    json: cli.Json = False


def main(args: Args) -> int:
    """Reads the images and the network, asks, and prints; returns the exit status."""
    from experiments.cli import compile_cache, filters
    from experiments.cli.display import Display
    from experiments.predict import prediction, reading
    from experiments.runs import ensembles, trained
    from preload_jax.checks import require_share
    from preload_jax.data.readers import image_folder
    from preload_jax.data.readers.single_images import SingleImage

    display = Display(quiet=args.quiet, json=args.json)
    if args.tpr is not None:
        require_share("--tpr", args.tpr)
    compile_cache.use()
    if args.ensemble is not None:
        ensembles.check_alone(args)
        network = ensembles.read(filters.some(args.ensemble, option="--ensemble"), display=display)
    else:
        network = trained.read(
            args.run, args.weights, dataset=args.dataset, method=args.method, recipe=None, display=display
        )
    files = [
        file
        for path in args.images
        for file in (image_folder.find_images(path, report=display.warn) if path.is_dir() else [path])
    ]
    found = reading.read(files, network.spec.image_shape)
    images = [each for each in found if isinstance(each, SingleImage)]
    values = prediction.predict(
        network,
        images,
        tpr=args.tpr,
        false_alarm_rate=args.false_alarm_rate,
        data_dir=args.data_dir,
        display=display,
    )
    values["images"] = reading.in_order(found, values["images"])
    display.result(values, text=prediction.table(values))
    return 1 if len(images) < len(found) else 0
