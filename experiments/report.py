"""Evaluates a trained run: results.json, scores.npz, the histograms, and the table that is printed."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import preload_jax
from experiments import figures, runs, titles
from experiments.collected import RESULTS_FORMAT
from experiments.display import Display
from experiments.recipes import Config
from experiments.runs import RunDir
from preload_jax import density, evaluation, methods
from preload_jax.data import datasets
from preload_jax.data.specs import NOISE_SETS
from preload_jax.data.splits import Splits

# OOD test sets are the same for every method and training seed, so that rows of a table can be compared.
OOD_SEED = 0


def evaluate(
    config: Config,
    run_dir: RunDir,
    variables: dict[str, Any],
    *,
    splits: Splits,
    data_dir: Path | None,
    display: Display,
) -> dict[str, Any]:
    """Computes every metric, writes results.json, scores.npz and the histograms, and returns the results."""
    import jax

    method, spec = methods.get(config.method), datasets.get(config.dataset)
    model = runs.build_model(config)
    gaussians = None
    if method.score is None:
        display.say("fitting one Gaussian a class to the features of the training images")
        gaussians = _fit_density(config, model, variables, splits)
    needs_features = gaussians is not None

    def logits_and_scores(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logits, features = evaluation.predict(model, variables, images, features=needs_features)
        return logits, evaluation.score(method, logits, features=features, density=gaussians)

    available, missing = datasets.available_ood(spec, data_dir=data_dir)
    with display.progress("evaluating", total=1 + len(available), unit="test sets") as update:
        logits, scores_in = logits_and_scores(splits.test.images)
        validation = _validation_accuracy(model, variables, splits)
        update(1)
        ood, scores = {}, {"in_domain": scores_in}
        for done, name in enumerate(available, start=2):
            images = datasets.load_ood(
                name,
                in_domain=spec,
                test_images=splits.test.images,
                data_dir=data_dir,
                seed=OOD_SEED,
                far_distance=config.far_distance,
            )
            logits_ood, scores[name] = logits_and_scores(images)
            ood[name] = evaluation.ood_metrics(
                scores_in, scores[name], logits_ood=logits_ood, has_ood_class=method.has_ood_class
            )
            update(done)
    in_domain = evaluation.in_domain_metrics(
        logits, splits.test.labels, has_ood_class=method.has_ood_class, released_code_ece=config.released_code_ece
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
        "validation": {"accuracy": validation, "size": len(splits.validation), "split": config.validation},
        "in_domain": in_domain,
        "ood": ood,
        "ood_not_prepared": missing,
    }
    if gaussians is not None:
        results["ddu_jitter"] = gaussians.jitter
    _write(run_dir, results, scores, method_title=method.title, dataset_title=spec.title)
    return results


def _validation_accuracy(model: Any, variables: dict[str, Any], splits: Splits) -> float | None:
    if not len(splits.validation):
        return None
    logits, _ = evaluation.predict(model, variables, splits.validation.images)
    return float(np.mean(logits.argmax(axis=1) == splits.validation.labels))


def _fit_density(config: Config, model: Any, variables: dict[str, Any], splits: Splits) -> density.ClassGaussians:
    _, features = evaluation.predict(model, variables, splits.train.images, features=True)
    assert features is not None
    return density.fit(
        features, splits.train.labels, num_classes=datasets.get(config.dataset).num_classes, jitter=config.ddu_jitter
    )


def _write(
    run_dir: RunDir, results: dict[str, Any], scores: dict[str, np.ndarray], *, method_title: str, dataset_title: str
) -> None:
    """The pictures and scores first and results.json last: a run with results has everything."""
    buffer = io.BytesIO()
    np.savez(buffer, **scores)  # type: ignore[arg-type]
    runs.write_bytes(run_dir.scores, buffer.getvalue())
    figure = figures.score_histograms(scores, results["ood"], title=f"{method_title} trained on {dataset_title}")
    figures.save(figure, run_dir.figures / "score_histograms.png")
    runs.write_json(run_dir.results, results)


def table(results: dict[str, Any], *, width: int | None = None) -> str:
    """The results as text for a terminal; percent, and which direction is better."""
    n = results["in_domain"]
    view = Table(title=f"{results['dataset']}, {results['method']}, seed {results['seed']}", title_justify="left")
    view.add_column("OOD test set")
    view.add_column("images", justify="right")
    for name, arrow in (("FPR-95", "↓"), ("AUROC", "↑"), ("AUPR", "↑"), ("MMC", "↓")):
        view.add_column(f"{name} {arrow}", justify="right")
    for name, row in results["ood"].items():
        values = [f"{100 * row[key]:.1f}" for key in ("fpr95", "auroc", "aupr", "mmc")]
        view.add_row(_title(name), f"{row['size']:,}", *values)
    console = Console(width=width, file=io.StringIO(), highlight=False, soft_wrap=True)
    console.print(view)
    console.print(
        f"in-domain test images: {n['size']:,}   accuracy {100 * n['accuracy']:.1f} %   ECE {100 * n['ece']:.1f} %   "
        f"MMC {100 * n['mmc']:.1f} %   Brier {n['brier']:.3f}   log-likelihood {n['log_likelihood']:.3f}"
    )
    console.print("Set by set in percent.  In-domain is the positive class and has the higher score.")
    if results["ood_not_prepared"]:
        console.print(f"not prepared, so not tested: {', '.join(results['ood_not_prepared'])}")
    return console.file.getvalue()  # type: ignore[attr-defined]


def _title(name: str) -> str:
    """Sets that are made have the paper's titles; a set that was loaded has the name it was prepared under."""
    return titles.ood(name) if name in NOISE_SETS else name
