"""Evaluates a trained network: `python -m experiments.evaluate --run=DIR` or `--weights=FILE`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from experiments import cli
from experiments.cli.cluster import ClusterInt, ClusterStr, DevicesStr
from experiments.cli.visible import visible

# Options of the made OOD test sets.
_OF_MADE = ("ood_images", "far_distance")


@dataclass(frozen=True)
class Args:
    """Evaluates a finished run again, or a network from a weights file.

    Prints the same table as `run` and writes nothing; what --json prints may be kept as a results.json, as of an
    ensemble. The results of a run do not change. Weights files are
    .safetensors (which --export writes) and the .pt files of the authors' PyTorch code, for which torch is not needed.
    """

    run: Annotated[Path | None, cli.option("DIR", "none")] = None
    """The folder of a finished run, such as runs/digits/preload/seed0."""
    weights: Annotated[Path | None, cli.option("FILE", "none")] = None
    """A .safetensors, .pt or .pth file."""
    ensemble: Annotated[str | None, cli.option("DIR,DIR,…", "none")] = None
    """The folders of finished runs of one method and several seeds: their mean probabilities are evaluated."""
    features: Annotated[str | None, cli.option("TRAIN.npz,TEST.npz", "none")] = None
    """In place of a network, its outputs on training and test data; --ood then are such files, too. Each holds some of
    the arrays features [n, d], logits [n, K], labels [n], and the last layer's kernel [d, K] and bias [K]. Where the
    last logit is of an OOD class, num_classes says K."""
    dataset: Annotated[str | None, cli.option("STR", "what the file or its name says")] = None
    """With --weights: the data set it was trained on."""
    method: Annotated[str | None, cli.option("STR", "what the file or its name says")] = None
    """With --weights: the method, which decides the score."""
    recipe: Annotated[str | None, cli.option("STR", "what the file says, else paper")] = None
    """With --weights: paper, released_code or tuned. released_code computes ECE in another way, and ddu with another
    jitter."""
    ood: Annotated[str | None, cli.option("A,B,…", "the data set's")] = None
    """OOD test sets, with commas between: names of prepared sets, made ones (uniform, smooth, faraway, faraway_rd), and
    images of yours (folder:PATH, FILE.npy, or list:FILE, an image list of OpenOOD)."""
    near: Annotated[str | None, cli.option("A,B,…", "none")] = None
    """Those of the OOD test sets that are near-OOD. Then the means of near-OOD and far-OOD sets are shown, too."""
    validation: Annotated[str | None, cli.option("STR", "the run's")] = None
    """Where validation images are taken from: test, none, which tests all test images, or train, which only a run that
    was trained with --validation=train has left out."""
    ood_images: Annotated[int | None, cli.option("INT", "the run's")] = None
    """How many images each made OOD test set has."""
    far_distance: Annotated[float | None, cli.option("FLOAT", "the run's")] = None
    """By how much the images of the FarAway test sets are multiplied."""
    ood_positive: bool = False
    """Also FPR-95 and AUPR with OOD as the positive class, as OpenOOD and pytorch-ood report them."""
    detectors: Annotated[str | None, cli.option("all|A,B,…|list", "none")] = None
    """Also fits these detectors to the network's outputs on the training images, and tests them on the same OOD sets.
    --detectors=list alone shows which there are."""
    recalibrate: Annotated[str | None, cli.option("all|A,B,…", "none")] = None
    """Also recalibrates the probabilities of the classes: temperature, vector, dirichlet, spline. They are fitted to
    one half of the validation images. The rule of false alarms is then made of the other half."""
    figure: Annotated[Path | None, cli.option("FILE.png", "none")] = None
    """Draws the scores of each detector into this file, or with --recalibrate the reliability diagrams."""
    export: Annotated[Path | None, cli.option("FILE", "none")] = None
    """Writes the network to this .safetensors file instead of evaluating it."""
    data_dir: cli.DataDir = None
    strict: bool = False
    """An unreadable image in a folder is an error; else it is skipped and counted."""
    devices: DevicesStr = ""
    """How many devices share each batch, or all. If there are several processes: how many of each."""
    distributed: bool = False
    """Evaluates with the other processes of a TPU slice or a cluster's job, one a machine. All read the network."""
    coordinator: ClusterStr = None
    """HOST:PORT of the first process, where no cluster tells it."""
    num_processes: ClusterInt = None
    """How many processes there are."""
    process_id: ClusterInt = None
    """Which of them this one is, from 0."""
    quiet: cli.Quiet = False
    json: cli.Json = False


# Of an evaluation by a network.
_TOGETHER = ("devices", "distributed", "coordinator", "num_processes", "process_id")


def main(args: Args) -> int:
    """Reads the network, and evaluates or exports it; returns the exit status."""
    from experiments.cli import cluster, compile_cache, detector_list, filters
    from experiments.cli.display import Display
    from experiments.evaluate import detectors as by_detector
    from experiments.evaluate import recalibration, report
    from experiments.runs import averages, configuration, ensembles, shared_images, trained
    from experiments.runs.data import load_splits
    from preload_jax import digests
    from preload_jax.data import datasets, ood
    from preload_jax.devices import processes, sharing
    from preload_jax.errors import UserError
    from preload_jax.formats.files import check_place

    if args.detectors == detector_list.WORD:
        return detector_list.show(args)
    _check_figure(args.figure)
    if args.export is not None:
        check_place(args.export)
    if args.features is not None:
        return _of_features(args)
    if args.figure is not None and (args.detectors is None) == (args.recalibrate is None):
        raise UserError("--figure draws detectors or recalibrations; give one of --detectors=all and --recalibrate=all")
    of_evaluation = (
        *_TOGETHER,
        "ood",
        "validation",
        *_OF_MADE,
        "ood_positive",
        "detectors",
        "recalibrate",
        "near",
        "figure",
    )
    for option in of_evaluation:
        if args.export is not None and getattr(args, option) != getattr(Args, option):
            raise UserError(f"--{option.replace('_', '-')} is of an evaluation, and --export makes none; leave one out")
    if args.run is None and args.weights is None and args.ensemble is None:
        raise UserError("give one of --run=DIR, a finished run, --weights=FILE, and --features=TRAIN.npz,TEST.npz")
    # What is misspelt is said before anything is read.
    measured = () if args.detectors is None else filters.detectors(args.detectors)
    chosen = () if args.recalibrate is None else filters.recalibrations(args.recalibrate)
    near, asked = filters.some(args.near, option="--near"), filters.some(args.ood, option="--ood")
    ood.require_known(asked)
    for name in asked:
        filters.require_there(name, option="--ood")
    cluster.join(args)
    mesh = cluster.mesh(args.devices)
    display = Display(quiet=args.quiet or not processes.is_first(), json=args.json)
    compile_cache.use()
    if args.ensemble is not None:
        ensembles.check_alone(args)
        read = partial(ensembles.read, filters.some(args.ensemble, option="--ensemble"), display=display)
    else:
        read = partial(
            trained.read,
            args.run,
            args.weights,
            dataset=args.dataset,
            method=args.method,
            recipe=args.recipe,
            display=display,
        )
    network = processes.together(read)
    sharing.require_same(network.variables, mesh)
    if args.export is not None:
        trained.export(network, args.export)
        display.result({"exported": str(args.export)}, text=visible(f"exported  {args.export}"))
        return 0
    if args.validation == "train" != network.config.validation:
        raise UserError(
            f"--validation=train: {network.source} was trained with --validation={network.config.validation}, on these"
            " images, too, of which a rule would promise too much; leave it out, or train with --validation=train"
        )
    config = configuration.check(cli.overrides(args, replace(network.config, start=None)))
    splits = processes.together(
        lambda: load_splits(config, data_dir=args.data_dir, strict=args.strict, report=display.warn)
    )
    sets = datasets.available_ood(config.data, data_dir=args.data_dir)[0] if args.ood is None else asked
    if near:
        averages.groups(sets, near)
    fitting, splits = recalibration.halves(splits) if chosen else (None, splits)
    shared_images.report_in_domain(config, splits, sets, data_dir=args.data_dir, warn=display.warn)
    if network.run_dir is not None:
        shared_images.report(config, splits, sets, data_dir=args.data_dir, warn=display.warn)
    display.say(f"evaluating {network.source} on {len(splits.test):,} test images of {config.dataset}")
    results, _ = report.measure(
        config,
        network.model,
        network.variables,
        splits=splits,
        data_dir=args.data_dir,
        display=display,
        ood_sets=None if args.ood is None else asked,
        ood_positive=args.ood_positive,
        fitted=network.gaussians,
        mesh=mesh,
    )
    if args.weights is not None:
        results["weights"] = str(args.weights)
    if args.ensemble is not None:
        results["ensemble"] = str(network.source).split(",")
    if near:
        results["averages"] = averages.of(results["ood"], near)
    scores: Mapping[str, Mapping[str, Any]] = {}
    probabilities: Mapping[str, Any] = {}
    if args.detectors is not None:
        results["detectors"], scores = by_detector.of_network(
            measured,
            network.model,
            network.variables,
            splits,
            report.ood_loaders(config, list(results["ood"]), splits=splits, data_dir=args.data_dir, display=display),
            has_ood_class=network.method.has_ood_class,
            near=near,
            display=display,
            mesh=mesh,
        )
        by_detector.require_some(results["detectors"])
    if fitting is not None:
        results["recalibration"], probabilities = recalibration.of_network(
            chosen, network, fitting, splits.test, display=display
        )

    def show() -> None:
        text = report.table(results)
        if args.detectors is not None:
            text += by_detector.table(results["detectors"], ood_positive=args.ood_positive)
        if fitting is not None:
            text += recalibration.table(results["recalibration"])
        try:
            if args.detectors is not None and args.recalibrate is None:
                text += _draw(args.figure, scores)
            if fitting is not None and args.figure is not None:
                recalibration.draw(args.figure, results["recalibration"], probabilities, splits.test.labels, network)
                text += _drawn(args.figure)
        finally:
            # Without a picture there are results.  What --json prints is a results.json, digest and all.
            display.result(digests.sealed(results), text=text)

    # The others stay until the first is done: it would end with them.
    processes.from_first(show)
    return 0


def _of_features(args: Args) -> int:
    """`main` for files of features."""
    from experiments.cli import compile_cache, filters
    from experiments.cli.display import Display
    from experiments.evaluate import features
    from preload_jax.errors import UserError

    of_networks = ("run", "weights", "ensemble", "dataset", "method", "recipe", "validation", *_OF_MADE, "export")
    for option in (*of_networks, *_TOGETHER, "data_dir", "recalibrate", "strict"):
        if getattr(args, option) != getattr(Args, option):
            raise UserError(f"--{option.replace('_', '-')} is of a network, and --features has none; leave one out")
    assert args.features is not None
    files = filters.parts(args.features)
    if len(files) != 2:
        raise UserError(f"--features={args.features}: expected two files, TRAIN.npz,TEST.npz")
    chosen = features.default_detectors() if args.detectors is None else filters.detectors(args.detectors)
    display = Display(quiet=args.quiet, json=args.json)
    compile_cache.use()
    results, scores = features.measure(
        chosen,
        Path(files[0]),
        Path(files[1]),
        filters.some(args.ood, option="--ood"),
        near=filters.some(args.near, option="--near"),
        display=display,
    )
    text = features.table(results, ood_positive=args.ood_positive)
    try:
        text += _draw(args.figure, scores)
    finally:
        display.result(results, text=text)
    return 0


def _check_figure(path: Path | None) -> None:
    """Raises a UserError unless a figure can be written there."""
    from preload_jax.errors import UserError
    from preload_jax.formats.files import check_place

    if path is not None and path.is_dir():
        raise UserError(f"{path}: a folder, not a file; expected a file for the figure, such as scores.png")
    if path is not None and path.suffix.lower() != ".png":
        raise UserError(f"--figure={path}: figures are PNG files; expected a name such as scores.png")
    if path is not None:
        check_place(path)


def _draw(path: Path | None, scores: Mapping[str, Mapping[str, Any]]) -> str:
    """Draws, and says where."""
    if path is None:
        return ""
    from experiments.drawing import style
    from experiments.drawing.scores import detector_histograms
    from preload_jax import detectors

    style.save(detector_histograms({detectors.get(name).title: values for name, values in scores.items()}), path)
    return _drawn(path)


def _drawn(path: Path) -> str:
    return f"figure  {visible(str(path))}\n"
