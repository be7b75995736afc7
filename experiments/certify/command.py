"""Proves how confident a trained run can get: `python -m experiments.certify --run=DIR`."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from experiments import cli


@dataclass(frozen=True)
class Args:
    """Proves, for a trained run of any method, how confident it can get.

    Prints where its confidence goes along random directions, the largest confidence of each class over every
    conceivable input, and the distance beyond which no class is confident. Writes certificate.json and
    figures/certificate.png into the run's folder.
    """

    run: Path
    """The folder of a trained run, such as runs/digits/preload/seed0."""
    num_directions: int = 10_000
    """Random directions whose limit is computed."""
    num_rays: Annotated[int | None, cli.option("INT", "1000; 0 of a network with convolutions")] = None
    """Directions that are followed exactly, from 0 to infinity."""
    confidence: float = 0.5
    """No class is more confident than this beyond the radii, and on a ray beyond its last crossing."""
    detectors: Annotated[str | None, cli.option("all|A,B,…|list", "none")] = None
    """Also what these detectors, fitted to the network's outputs, say along the directions in the limit."""
    ball: Annotated[float | None, cli.option("FLOAT", "none")] = None
    """Also what is guaranteed of OOD images that are moved by at most so much in each value, of images in [0, 1]."""
    seed: int = 0
    """Fixes the random directions, and the start of attacks."""
    data_dir: cli.DataDir = None
    quiet: cli.Quiet = False
    json: cli.Json = False


def main(args: Args) -> int:
    """Reads the run, computes, writes and prints its certificate; returns the exit status."""
    import jax

    from experiments.certify import ball, certificate, picture
    from experiments.certify import detectors as by_detector
    from experiments.certify import table as certificate_table
    from experiments.cli import compile_cache, detector_list, filters
    from experiments.cli.display import Display
    from experiments.drawing.style import save_or_warn
    from experiments.runs import folder as runs
    from experiments.runs.data import OOD_SEED, load_splits
    from preload_jax.checks import require_number
    from preload_jax.data import datasets, names
    from preload_jax.integers import require_seed

    if args.detectors == detector_list.WORD:
        return detector_list.show(args)
    display = Display(quiet=args.quiet, json=args.json)
    compile_cache.use()
    require_seed(args.seed, name="--seed")
    if args.ball is not None:
        require_number("--ball", args.ball, at_least=0.0)
    chosen = () if args.detectors is None else filters.detectors(args.detectors)
    run = runs.load_run(args.run, on_damaged=display.warn)
    spec, config = run.spec, run.config
    if args.ball is not None:
        ball.require(run.model, run.method, epsilon=args.ball, farthest=max(1.0, config.far_distance))
    splits = load_splits(config, data_dir=args.data_dir)
    test_images = splits.test.images
    available, missing = datasets.available_ood(spec, data_dir=args.data_dir)
    if missing and not names.is_own(config.dataset):
        display.say(f"not prepared, so left out: {', '.join(missing)}")
    ood_images = {
        name: partial(
            datasets.load_ood,
            name,
            in_domain=spec,
            test_images=test_images,
            data_dir=args.data_dir,
            seed=OOD_SEED,
            far_distance=config.far_distance,
            num_images=config.ood_images,
            in_blocks=True,
        )
        for name in available
    }
    # The directions take minutes where a set takes seconds.
    parts = 4 + len(ood_images)
    with display.progress(f"certifying {args.run}", total=parts, unit="parts", alike=False) as update:
        certified = certificate.certify(
            run.model,
            run.variables,
            num_classes=spec.num_classes,
            test_images=test_images,
            ood_images=ood_images,
            key=jax.random.key(args.seed),
            num_directions=args.num_directions,
            num_rays=args.num_rays,
            confidence=args.confidence,
            progress=update,
        )
    named = {"dataset": config.dataset, "method": config.method, "seed": config.seed, "directions_seed": args.seed}
    values = {**named, **certificate.as_dict(certified, class_names=spec.class_names)}
    title = f"{run.method.title} trained on {spec.title}"
    path, figure = run.dir.path / "certificate.json", run.dir.figures / "certificate.png"
    heading = f"{config.dataset}, {config.method}, seed {config.seed}"
    text = certificate_table.table(certified, class_names=spec.class_names, title=heading)
    places = {"certificate": path, "figure": figure}
    if chosen:
        values["detectors"] = by_detector.measure(
            chosen,
            run.model,
            run.variables,
            splits,
            has_ood_class=run.method.has_ood_class,
            key=jax.random.key(args.seed),
            num_directions=args.num_directions,
            display=display,
        )
        text += by_detector.table(values["detectors"], num_directions=args.num_directions)
        places["detectors"] = run.dir.figures / "detectors_far_away.png"
    if args.ball is not None:
        values["ball"] = ball.measure(
            run.model,
            run.variables,
            method=run.method,
            epsilon=args.ball,
            test_images=test_images,
            ood_images=ood_images,
            seed=args.seed,
            display=display,
        )
        text += ball.table(values["ball"])
    try:
        runs.write_json(path, values)
        pictures = {"figure": lambda: picture.draw(certified, class_names=spec.class_names, title=title)}
        if chosen:
            pictures["detectors"] = lambda: by_detector.draw(values["detectors"], title=title)
        for what, draw in pictures.items():
            if not save_or_warn(draw, places[what], warn=display.warn):
                del places[what]
    finally:
        # Shown even where the folder takes no files.
        display.result(values, text=text)
    rays = ["python", "-m", "experiments.figures", "--figure=rays", f"--root={args.run}", f"--seed={config.seed}"]
    rays += [] if args.data_dir is None else [f"--data-dir={args.data_dir}"]
    display.end(places, next={"draw its confidence along rays": rays})
    return 0
