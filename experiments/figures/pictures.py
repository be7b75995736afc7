"""Which pictures there are, what each is drawn from, and where it goes."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.cli.terminal import for_errors
from experiments.drawing import calibration, scores
from experiments.drawing.style import METHOD_STYLES, save
from experiments.runs import collected, titles
from experiments.runs import folder as runs
from experiments.runs.data import load_splits
from experiments.runs.run_dir import RunDir
from preload_jax.errors import UserError

_NUM_RAYS = 200
# What is done for a figure before anything is seen of it.
_LONG = {
    "toy_2d": "training three networks on points of the plane, which takes a minute or two",
    "toy_1d": "training two networks on points of a line, which takes a minute or so",
    "reliability": "asking every run's network about its test images",
    "rays": f"following every run's network along {_NUM_RAYS} rays",
}


@dataclass(frozen=True)
class Request:
    """What to draw from, and where to put it."""

    root: Path
    output: Path
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    seed: int
    data_dir: Path | None

    def runs(self) -> dict[tuple[str, str], RunDir]:
        """The finished runs of the seed, by data set and method.

        Raises:
            UserError: when there is none.
        """
        collection = collected.select(
            collected.collect(self.root), datasets=self.datasets, methods=self.methods, seeds=[self.seed]
        )
        found = {key[:2]: RunDir(collection.folders[key]) for key in collection.results}
        order = list(METHOD_STYLES)
        return dict(sorted(found.items(), key=lambda item: (item[0][0], order.index(item[0][1]))))


def silent(_: str) -> None:
    """Says nothing of what takes long."""


def draw(request: Request, *, names: Sequence[str], asked: bool, say: Callable[[str], None] = silent) -> Iterator[Path]:
    """Draws the named figures, and yields where each is; `say` is told what takes long, before it does.

    One that cannot be drawn is an error when it was `asked` for by name, and a line when all were.
    """
    for name in names:
        if name in _LONG:
            say(f"{name}: {_LONG[name]}")
        try:
            for stem, figure in DRAWERS[name](request):
                path = request.output / f"{stem}.png"
                save(figure, path)
                yield path
        except UserError as error:
            if asked:
                raise
            print(for_errors(f"left out {name}: {error}"), file=sys.stderr)


Drawn = Iterator[tuple[str, Figure]]


def _toy_2d(request: Request) -> Drawn:
    from experiments.figures import toy, toy_problems

    problem = toy_problems.plane(seed=request.seed)
    trained = [toy_problems.train(problem, name, seed=request.seed) for name in ("standard", "oe", "preload")]
    yield "figure1_toy_2d", toy.confidence_maps(problem, trained)


def _toy_1d(request: Request) -> Drawn:
    from experiments.figures import toy, toy_problems

    problem = toy_problems.line(seed=request.seed)
    trained = [toy_problems.train(problem, name, seed=request.seed) for name in ("standard", "preload")]
    yield "figure2_toy_1d", toy.logits_on_the_line(problem, trained)


def _shift(request: Request) -> Drawn:
    found: dict[str, dict[str, dict[str, list[Any]]]] = {}
    for path in sorted(request.root.glob("**/shift_*.json")):
        config = RunDir(path.parent).read_config()
        wanted = (not request.datasets or config.dataset in request.datasets) and (
            not request.methods or config.method in request.methods
        )
        if wanted:
            report = collected.read_shift(path)
            by_dataset = found.setdefault(report["shift"], {}).setdefault(config.dataset, {})
            by_dataset.setdefault(config.method, []).append(report)
    if not found:
        raise UserError(
            f"no shift_*.json of the wanted runs under {request.root}; evaluate them with"
            " `python -m experiments.paper` or `experiments.run --shift` first"
        )
    for shift, reports in found.items():
        yield f"figure3_{shift}", calibration.shift_ece(reports, shift=shift)


def _title(dataset: str, method: str) -> str:
    return f"{titles.METHOD_TITLES[method]} trained on {titles.dataset(dataset)}"


def _of_scores(stem: str, draw: Callable[..., Figure]) -> Callable[[Request], Drawn]:
    def drawer(request: Request) -> Drawn:
        some = False
        for (dataset, method), run_dir in request.runs().items():
            if run_dir.scores.is_file():
                some = True
                figure = draw(run_dir.read_scores(), run_dir.read_results()["ood"], title=_title(dataset, method))
                yield f"{stem}_{_file_name(dataset)}_{method}", figure
        if not some:
            raise UserError(f"no scores.npz beside the results under {request.root}; evaluate the runs again")

    return drawer


def _trained(request: Request) -> Iterator[runs.Run]:
    some = False
    for run_dir in request.runs().values():
        if run_dir.config.is_file() and run_dir.checkpoints.is_dir():
            some = True
            yield runs.load_run(run_dir.path)
    if not some:
        raise UserError(f"no checkpoints beside the results under {request.root}; give the folder they were trained in")


def _reliability(request: Request) -> Drawn:
    import jax.numpy as jnp

    from preload_jax.decisions.answers import class_log_probabilities
    from preload_jax.devices import forward

    for run in _trained(request):
        config = run.config
        splits = load_splits(config, data_dir=request.data_dir)
        logits, _ = forward.predict(run.model, run.variables, splits.test.images)
        probabilities = np.exp(class_log_probabilities(jnp.asarray(logits), has_ood_class=run.method.has_ood_class))
        figure = calibration.reliability(
            np.asarray(probabilities),
            splits.test.labels,
            ece=run.dir.read_results()["in_domain"]["ece"],
            title=_title(config.dataset, config.method),
        )
        yield f"reliability_{_file_name(config.dataset)}_{config.method}", figure


def _rays(request: Request) -> Drawn:
    from experiments.drawing import rays
    from preload_jax import guarantees

    profiles: dict[str, dict[str, guarantees.ConfidenceProfile]] = {}
    classes = {}
    for run in _trained(request):
        shape = (_NUM_RAYS, *run.spec.image_shape)
        directions = np.random.default_rng(request.seed).normal(size=shape).astype(np.float32)
        profiles.setdefault(run.config.dataset, {})[run.config.method] = guarantees.confidence_profile(
            run.model,
            run.variables,
            directions,
            num_classes=run.spec.num_classes,
            distances=np.logspace(-1, 6, 43),
        )
        classes[run.config.dataset] = run.spec.num_classes
    for dataset, by_method in profiles.items():
        title = f"Random rays, trained on {titles.dataset(dataset)}"
        yield f"rays_{_file_name(dataset)}", rays.rays(by_method, num_classes=classes[dataset], title=title)


def _file_name(dataset: str) -> str:
    return Path(dataset.removeprefix("folder:").rstrip("/")).stem


DRAWERS: dict[str, Callable[[Request], Drawn]] = {
    "toy_2d": _toy_2d,
    "toy_1d": _toy_1d,
    "shift": _shift,
    "roc": _of_scores("roc", scores.roc),
    "histograms": _of_scores("histograms", scores.score_histograms),
    "reliability": _reliability,
    "rays": _rays,
}
# Those that show no run.
TOYS = ("toy_2d", "toy_1d")
