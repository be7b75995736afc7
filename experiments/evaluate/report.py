"""Evaluates a trained run: results.json, scores.npz, the histograms, and the table that is printed."""

import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh
from rich.table import Table

import preload_jax
from experiments.cli.display import Display
from experiments.cli.terminal import rendered
from experiments.cli.visible import named
from experiments.drawing import style
from experiments.drawing.scores import score_histograms
from experiments.runs import averages, configuration, gaussians, provenance, recipes, records, rules, titles
from experiments.runs import folder as runs
from experiments.runs.collected import RESULTS_FORMAT
from experiments.runs.configuration import Config
from experiments.runs.data import OOD_SEED
from experiments.runs.run_dir import RunDir
from preload_jax import detectors, evaluation, methods
from preload_jax.data import datasets, names
from preload_jax.data.specs import NOISE_SETS
from preload_jax.data.splits import Arrays, Splits
from preload_jax.devices import environment, forward, processes
from preload_jax.evaluation import Scorer


def evaluate(
    config: Config,
    run_dir: RunDir,
    variables: dict[str, Any],
    *,
    splits: Splits,
    data_dir: Path | None,
    display: Display,
    mesh: Mesh | None = None,
) -> dict[str, Any]:
    """Computes every metric, writes results.json, scores.npz and the histograms, and returns the results.

    Several processes compute together, and the first one writes.
    """
    model = runs.build_model(config)
    results, scores = measure(
        config, model, variables, splits=splits, data_dir=data_dir, display=display, mesh=mesh, keep=run_dir
    )
    titles = {"method_title": methods.get(config.method).title, "dataset_title": config.data.title}
    processes.from_first(lambda: _write(run_dir, results, scores, display=display, **titles))
    return results


def measure(
    config: Config,
    model: Any,
    variables: dict[str, Any],
    *,
    splits: Splits,
    data_dir: Path | None,
    display: Display,
    ood_sets: Sequence[str] | None = None,
    ood_positive: bool = False,
    mesh: Mesh | None = None,
    fitted: detectors.Detector | None = None,
    keep: RunDir | None = None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The results of a trained network, and every test image's score by set.

    Args:
        config: the data set, the method, and the numbers that evaluation depends on.
        model, variables: the network.
        splits: of the data set.
        data_dir: where prepared data sets are.
        display: is told what takes a while.
        ood_sets: names of OOD test sets; None for those of the data set that are prepared.
        ood_positive: also the metrics that have OOD as the positive class.
        mesh: the devices that share a batch; those of several processes share the batches, and all call this.
        fitted: DDU's Gaussians, where there are some already.
        keep: where DDU's Gaussians and the rule are kept; None keeps neither.

    Raises:
        DataError: for an unknown OOD set, or one of `ood_sets` that is not prepared.
    """
    import jax

    spec = config.data
    for name in ood_sets or ():
        processes.together(partial(datasets.check_ood, name, data_dir=data_dir))
    scorer, extra = scorer_of(config, model, variables, train=splits.train, display=display, mesh=mesh, fitted=fitted)
    if keep is not None and isinstance(scorer.rule, detectors.Detector):
        processes.from_first(partial(gaussians.write, keep.ddu, scorer.rule))
    available: Sequence[str] = ood_sets or ()
    missing: Sequence[str] = ()
    if ood_sets is None:
        available, missing = processes.from_first(lambda: datasets.available_ood(spec, data_dir=data_dir))

    validation, rule = None, None
    split = "own" if splits.own_validation else config.validation
    if len(splits.validation):
        held_out = scorer(splits.validation.images)
        validation = evaluation.accuracy(held_out.logits, splits.validation.labels)
        rule = rules.calibrated(held_out.scores, score=scorer.name)
    with display.progress("evaluating", total=1 + len(available), unit="test sets") as update:
        measured, scores = evaluation.evaluate(
            scorer,
            splits.test.images,
            splits.test.labels,
            ood_loaders(config, available, splits=splits, data_dir=data_dir, display=display),
            released_code_ece=config.released_code_ece,
            ood_positive=ood_positive,
            on_set=lambda name, done: update(done),
        )
    results = {
        "format": RESULTS_FORMAT,
        "version": preload_jax.__version__,
        "dataset": config.dataset,
        "method": config.method,
        "seed": config.seed,
        "recipe": config.recipe,
        "num_parameters": sum(leaf.size for leaf in jax.tree.leaves(variables["params"])),
        "train_size": len(splits.train),
        "validation": {"accuracy": validation, "size": len(splits.validation), "split": split},
        "positive_class": "in_domain",
        "in_domain": measured["in_domain"],
        "ood": measured["ood"],
        "ood_not_prepared": list(missing),
        "rule": None if rule is None else rules.summary(rule, scores),
        "environment": environment.current(),
        "commit": provenance.commit(),
        "machine": provenance.machine(),
        "config_digest": records.digest(configuration.as_dict(config)),
        **recipes.origin(config),
        **extra,
    }
    if keep is not None and rule is not None:
        processes.from_first(partial(rules.write, keep.rule, rule, scorer=scorer))
    return results, scores


def ood_loaders(
    config: Config, names: Sequence[str], *, splits: Splits, data_dir: Path | None, display: Display
) -> dict[str, Callable[[], Any]]:
    """OOD test sets by name, each loaded or made when it is asked for, by all processes at once.

    One may be an iterator that makes it in blocks.
    """

    def load(name: str) -> Any:
        return processes.together(lambda: read(name))

    def read(name: str) -> Any:
        return datasets.load_ood(
            name,
            in_domain=config.data,
            test_images=splits.test.images,
            data_dir=data_dir,
            seed=OOD_SEED,
            far_distance=config.far_distance,
            num_images=config.ood_images,
            in_blocks=True,
            protocol=config.ood_protocol,  # type: ignore[arg-type]
            report=display.warn,
        )

    return {name: partial(load, name) for name in names}


def scorer_of(
    config: Config,
    model: Any,
    variables: dict[str, Any],
    *,
    train: Arrays,
    display: Display,
    mesh: Mesh | None = None,
    fitted: detectors.Detector | None = None,
) -> tuple[Scorer, dict[str, Any]]:
    """The network with its method's score, and what the results say of it.

    DDU's Gaussians are `fitted`, or else fitted to `train` here; other methods look at neither.
    """
    method = methods.get(config.method)
    if not method.scores_features:
        return Scorer(model, variables, method.has_ood_class, method.score, mesh), {}
    if fitted is None:
        display.say("fitting one Gaussian a class to the features of the training images")
        _, features = forward.predict(model, variables, train.images, features=True, mesh=mesh)
        assert features is not None
        num_classes = config.data.num_classes
        fitted = detectors.fit(
            "ddu", detectors.Outputs(features), train.labels, num_classes=num_classes, jitter=config.ddu_jitter
        )
    return Scorer(model, variables, False, fitted, mesh), {"ddu_jitter": float(fitted.fitted["jitter"])}


def _write(
    run_dir: RunDir,
    results: dict[str, Any],
    scores: dict[str, np.ndarray],
    *,
    display: Display,
    method_title: str,
    dataset_title: str,
) -> None:
    """The pictures and scores first and results.json last: a run with results has all that there can be."""
    buffer = io.BytesIO()
    np.savez(buffer, **scores)  # type: ignore[arg-type]
    runs.write_bytes(run_dir.scores, buffer.getvalue())
    title = f"{method_title} trained on {dataset_title}"
    style.save_or_warn(
        lambda: score_histograms(scores, results["ood"], title=title), run_dir.histograms, warn=display.warn
    )
    records.write(run_dir.results, results)


def table(results: dict[str, Any], *, width: int | None = None) -> str:
    """The results as text for a terminal; percent, and which direction is better."""
    n = results["in_domain"]
    source = results.get("weights", f"seed {results['seed']}")
    if "ensemble" in results:
        source = f"ensemble of {len(results['ensemble'])} runs"
    view = Table(title=named(f"{results['dataset']}, {results['method']}, {source}"), title_justify="left")
    view.add_column("OOD test set", overflow="fold")
    view.add_column("images", justify="right")
    columns = {"fpr95": "FPR-95 ↓", "auroc": "AUROC ↑", "aupr": "AUPR ↑", "mmc": "MMC ↓"}
    both_ways = any("fpr95_ood_positive" in row for row in results["ood"].values())
    if both_ways:
        columns |= {"fpr95": "FPR-95 (in) ↓", "aupr": "AUPR (in) ↑"}
        columns |= {"fpr95_ood_positive": "FPR-95 (OOD) ↓", "aupr_ood_positive": "AUPR (OOD) ↑"}
    for title in columns.values():
        view.add_column(title, justify="right")
    called = (results.get("rule") or {}).get("called_ood")
    if called is not None:
        view.add_column("called OOD", justify="right")
    for name in titles.ordered(results["dataset"], results["ood"]):
        row = results["ood"][name]
        numbers = [f"{100 * row[key]:.1f}" for key in columns]
        numbers += [] if called is None else [f"{100 * called[name]:.1f}"]
        view.add_row(named(_title(name)), f"{row['size']:,}", *numbers)
    if "averages" in results:
        view.add_section()
        for group, row in results["averages"].items():
            number = f"{len(row['sets'])} sets" if len(row["sets"]) > 1 else "1 set"
            view.add_row(averages.TITLES[group], number, *(f"{100 * row[key]:.1f}" for key in columns))
    about = (
        f"in-domain test images: {n['size']:,}   accuracy {100 * n['accuracy']:.1f} %   ECE {100 * n['ece']:.1f} %   "
        f"MMC {100 * n['mmc']:.1f} %   Brier {n['brier']:.3f}   log-likelihood {n['log_likelihood']:.3f}"
    )
    direction = "In-domain is the positive class and has the higher score."
    if both_ways:
        direction = "The positive class is in brackets (AUROC is the same for both); in-domain has the higher score."
    lines = [about, f"Set by set in percent.  {direction}"]
    if called is not None:
        lines.append(rules.in_words(results["rule"]))
    elif "rule" in results:  # Results of the first versions know nothing of rules.
        lines.append(rules.why_none(results["validation"]["size"], dataset=results["dataset"]))
    # To photos of the user's the paper's sets are nothing that is missing.
    if results["ood_not_prepared"] and not names.is_own(results["dataset"]):
        lines.append(f"not prepared, so not tested: {', '.join(results['ood_not_prepared'])}")
    return rendered(view, *lines, width=width)


def _title(name: str) -> str:
    """Sets that are made have the paper's titles; a set that was loaded has the name it was prepared under."""
    return titles.ood(name) if name in NOISE_SETS else name
