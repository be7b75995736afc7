"""Following a training: reports, validation, early stopping, a progress bar, and a word where it would take days."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from preload_jax import evaluation
from preload_jax.api import inputs
from preload_jax.checks import check_labels
from preload_jax.devices import reading, sharding
from preload_jax.errors import UserError, warn_user
from preload_jax.integers import require_flag, require_integer
from preload_jax.models import Classifier, classifier
from preload_jax.training.data import TrainingData
from preload_jax.training.iterables import Batches
from preload_jax.training.loop import Report
from preload_jax.training.run import Progress
from preload_jax.training.stage import Stage

# Seconds after which the rate is believed, and those that are too many.
_MEASURED, _DAY = 5.0, 86_400.0


class Enough(Exception):
    """Ends a training whose validation has not become better for long enough."""


class Watch:
    """What `fit` does after each compiled call.

    Attributes:
        best: variables of the epoch with the largest log-likelihood on the validation images, as NumPy arrays.
    """

    def __init__(
        self,
        model: Classifier,
        *,
        on_report: Callable[[Report], None] | None,
        validation: Any,
        patience: int | None,
        progress: Any,
        mesh: Mesh | None,
    ):
        if patience is not None:
            if validation is None:
                raise UserError("patience needs validation images: give validation=(images, labels)")
            patience = require_integer("patience", patience, at_least=1)
        self.model, self.on_report, self.patience, self.mesh = model, on_report, patience, mesh
        self.validation = None if validation is None else _read(validation)
        self.best: Any = None
        self._highest, self._since = -np.inf, 0
        self._progress = progress is not None and require_flag("progress", progress)
        self._began: tuple[float, int] | None = None
        self._warned = False

    def require_fits(self, data: TrainingData | Batches) -> None:
        """Raises a UserError unless the validation images, or the first batch of them, fit network and training."""
        if self.validation is None:
            return
        begin, labels = self.validation
        given = begin()
        images = given if isinstance(given, np.ndarray) else next(iter(given), None)
        if images is None or not len(images):
            raise UserError("no validation images; give at least one, or leave validation out")
        inputs.require_like(data, images, name="validation images")
        num_classes = getattr(self.model.head, "num_classes", None)
        of_images = check_labels(labels[-1])
        if num_classes is not None and (of_images.min() < 0 or of_images.max() >= num_classes):
            raise UserError(
                f"validation labels run from {of_images.min()} to {of_images.max()}; expected 0 to {num_classes - 1}"
            )

    @contextlib.contextmanager
    def watch(self, stage: Stage, done: int) -> Iterator[Callable[[Progress], None]]:
        """See `run.Callbacks`."""
        # Only the last stage trains what is validated and returned; each begins its own count.
        self.best, self._highest, self._since, self._began = None, -np.inf, 0, None
        with _bar(stage, done) if self._progress else contextlib.nullcontext() as show:

            def tell(progress: Progress) -> None:
                self._warn_of_days(stage, progress.report.step)
                report = progress.report
                if report.ends_epoch:
                    report = replace(report, validation=self._validate(report))
                    if self.on_report is not None:
                        self.on_report(report)
                if show is not None:
                    show(progress, report)

            yield tell

    def stop(self) -> BaseException | None:
        """See `run.Callbacks`."""
        return Enough() if self.patience is not None and self._since >= self.patience else None

    def _validate(self, report: Report) -> dict[str, float] | None:
        if self.validation is None:
            return None
        batches, labels = self.validation
        variables = sharding.to_one_device(report.state.variables, self.mesh)
        has_ood_class = classifier.has_ood_class(self.model)
        outputs = evaluation.Scorer(self.model, variables, has_ood_class).of(batches())
        found = evaluation.in_domain_metrics(outputs.logits, np.concatenate(labels), has_ood_class=has_ood_class)
        if self.patience is not None:
            self._since += 1
            if self.best is None or found["log_likelihood"] > self._highest:
                # The state is consumed by the next step.
                self.best, self._highest, self._since = jax.tree.map(np.array, variables), found["log_likelihood"], 0
        return found

    def _warn_of_days(self, stage: Stage, step: int) -> None:
        now = time.monotonic()
        if self._began is None:
            # The first call compiles.
            self._began = now, step
            return
        took, steps = now - self._began[0], step - self._began[1]
        left = took / max(steps, 1) * (stage.plan.total_steps - step)
        if not self._warned and took >= _MEASURED and left > _DAY:
            self._warned = True
            warn_user(
                f"a step takes {took / steps:.2g} s, so what is left takes about {left / _DAY:.1f} days: a smaller"
                " network, smaller images, fewer epochs or an accelerator make it shorter"
            )


def _read(validation: Any) -> tuple[Callable[[], Any], list[np.ndarray]]:
    """A function that gives the images, one batch after the other, and a list that then has their labels.

    Raises:
        UserError: for anything but (images, labels), or batches of them that can be read again.
    """
    labels: list[np.ndarray] = []
    if reading.is_pair(validation):
        images, given = reading.pair(validation)
        labels.append(check_labels(given))
        return lambda: images, labels
    if hasattr(validation, "ndim"):
        raise UserError(f"validation is a {type(validation).__name__}; expected (images, labels), or batches of them")
    begin = reading.passes(validation, name="validation images")

    def batches() -> Iterator[np.ndarray]:
        labels.clear()
        yield from reading.images_of(begin(), labels)

    return batches, labels


@contextlib.contextmanager
def _bar(stage: Stage, done: int) -> Iterator[Callable[[Progress, Report], None] | None]:
    """A bar on the standard error of a terminal or a notebook; None elsewhere."""
    # Of those who ask for it alone: the library shows nothing else.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, TextColumn("{task.fields[figures]}"), console=console) as bars:
        task = bars.add_task(f"{stage.method.name}, steps", total=stage.plan.total_steps, completed=done, figures="")

        def show(progress: Progress, report: Report) -> None:
            figures = f"loss {progress.loss:.3f}, accuracy {100 * progress.accuracy:.1f} %"
            if report.validation is not None:
                figures += f", validation {100 * report.validation['accuracy']:.1f} %"
            bars.update(task, completed=report.step, figures=figures)

        yield show
