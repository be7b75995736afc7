"""Whoever answers for a watched image: a program in a file, or a run's network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.cli.display import Display
from experiments.predict import why
from experiments.runs import rules, trained
from preload_jax import api
from preload_jax.decisions import Rule
from preload_jax.decisions.answers import Predictions
from preload_jax.errors import UserError
from preload_jax.formats import Program, load_program


@dataclass(frozen=True)
class Asker:
    """What watching takes.

    Attributes:
        image_shape: (height, width, channels).
        class_names: of the K classes.
        rule: that decides; None for none.
        ask: one image [h, w, c] → the answer, and the reasons that speak for its being OOD.
        why_no_rule: where there is none, as the end of a sentence.
    """

    image_shape: tuple[int, int, int]
    class_names: Sequence[str]
    rule: Rule | None
    ask: Callable[[np.ndarray], tuple[Predictions, list[str]]]
    why_no_rule: str = ""


def read(program: Path | None, run: Path | None, *, display: Display) -> Asker:
    """The one that is given.

    Raises:
        UserError: unless exactly one is given, and for what cannot be read.
    """
    if (program is None) == (run is None):
        raise UserError("give either --program=FILE, of experiments.export, or --run=DIR, a finished run")
    return _of_program(load_program(program)) if program is not None else _of_run(run, display=display)


def _of_program(program: Program) -> Asker:
    def ask(image: np.ndarray) -> tuple[Predictions, list[str]]:
        said = program.predict(image[None], batch_size=1)
        return said, program.reasons(image[None], said)[0]

    return Asker(program.image_shape, program.class_names, program.rule, ask)


def _of_run(run: Path | None, *, display: Display) -> Asker:
    network = trained.read(run, None, dataset=None, method=None, recipe=None, display=display)
    method = network.method
    score = network.score
    if score is None:
        raise UserError(f"{run} has lost its Gaussians, ddu.npz; run it again with --overwrite")
    rule = network.rule()

    def ask(image: np.ndarray) -> tuple[Predictions, list[str]]:
        said = api.predict(
            network.model,
            network.variables,
            image[None],
            score=score,
            ood_class=method.has_ood_class,
            rule=rule,
            batch_size=1,
        )
        threshold = None if rule is None else rule.threshold()
        return said, why.reasons(network.model, network.variables, [image], said, threshold)[0]

    why_none = "" if rule is not None else _why_no_rule(network)
    return Asker(network.spec.image_shape, network.spec.class_names, rule, ask, why_none)


def _why_no_rule(network: trained.Trained) -> str:
    """Too few validation images, or a file that is gone."""
    assert network.run_dir is not None
    there, needed = network.run_dir.read_results()["validation"]["size"], rules.images_needed()
    if there < needed:
        return f" ({there:,} validation images, and a rule takes at least {needed}); leave --state out"
    return f" ({network.run_dir.rule.name} is gone; run it again with --overwrite)"
