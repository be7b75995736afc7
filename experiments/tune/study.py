"""A search with Optuna that can be stopped at any moment and goes on as if it had not been.

Trials are kept in a SQLite file.  Each trial's sampler is seeded with the trial's number, so that a search that was
stopped draws what it would have drawn; a trial that was killed is made again with the same values.
"""

import contextlib
import fcntl
import os
import sqlite3
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments.tune import search_spaces
from experiments.tune.search_spaces import Space
from preload_jax.data import own_digest
from preload_jax.errors import UserError, require_plain_file
from preload_jax.formats.files import open_lock

_SETTINGS, _DATA = "settings", "data_digest"


def optuna() -> Any:
    """The package.

    Raises:
        UserError: when it is not installed.
    """
    try:
        import optuna as package
    except ImportError as error:
        raise UserError("tuning needs the package optuna; run `pip install 'preload-jax[tune]'`") from error
    package.logging.set_verbosity(package.logging.ERROR)
    return package


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a study for this process.

    Raises:
        UserError: when another process has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(open_lock(path.with_suffix(".lock"))) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is tuning in {path}; wait for it, or give another --root") from None
        yield


def open_study(
    path: Path, *, name: str, settings: dict[str, Any], usual: Mapping[str, Any] = types.MappingProxyType({})
) -> Any:
    """The study in a file, made if it is missing; what was running when its process ended is put back in the queue.

    Args:
        path: of the file.
        name: of the study.
        settings: what has to be the same whenever it is opened.
        usual: of settings that a study of an earlier version does not have, what they were then.

    Raises:
        UserError: when the file is no study, or one of other settings.
    """
    package = optuna()
    with _explained(path):
        storage = _storage(path)
        study = package.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
    there = study.user_attrs.get(_SETTINGS)
    if there is None:
        study.set_user_attr(_SETTINGS, settings)
    elif (there := {**{key: usual[key] for key in settings if key in usual}, **there}) != settings:
        differing = [
            f"{key} {there.get(key)!r} there, {settings.get(key)!r} asked for"
            for key in {**settings, **there}
            if there.get(key) != settings.get(key)
        ]
        raise UserError(f"{path} holds a search with other settings: {'; '.join(differing)}; give another --root")
    for trial in study.get_trials(states=(package.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=package.trial.TrialState.FAIL)
        study.set_user_attr(f"killed {trial.number}", True)
        study.enqueue_trial(trial.params or trial.system_attrs.get("fixed_params", {}))
    return study


def require_same_data(study: Any, digest: str | None, *, dataset: str, path: Path) -> None:
    """Raises a UserError where a study's trials were scored on other images of the user's own data set."""
    there = study.user_attrs.get(_DATA)
    if not own_digest.may_be_one(there, digest):
        raise UserError(
            f"{path} holds a search on other images of {dataset}, of which some were added, removed or changed since;"
            " put them back, or give another --root"
        )
    if digest is not None:
        study.set_user_attr(_DATA, digest)


def read_study(path: Path, *, name: str) -> Any:
    """The study in a file that is there.

    Raises:
        UserError: when the file holds no such study.
    """
    with _explained(path):
        return optuna().load_study(storage=_storage(path), study_name=name)


def _storage(path: Path) -> Any:
    """Optuna's view of a file of any name: in an address ?, %, # and { would mean something else."""

    def connect() -> sqlite3.Connection:
        # An absolute path: one that begins with "file:" would be an address, too.
        return sqlite3.connect(os.path.abspath(path), check_same_thread=False)

    return optuna().storages.RDBStorage("sqlite:///study.db", engine_kwargs={"creator": connect})


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turns what cannot be opened into a UserError."""
    require_plain_file(path)
    try:
        yield
    except Exception as error:  # SQLAlchemy's and Optuna's own, of no common class
        if _is_in_use(error):
            raise _in_use(path) from error
        raise UserError(f"{path} cannot be opened as a study ({type(error).__name__}); move it away") from error


@contextlib.contextmanager
def named_if_in_use(path: Path) -> Iterator[None]:
    """Turns what another program that holds the file makes Optuna raise into a UserError; trials so far are kept."""
    try:
        yield
    except Exception as error:
        if _is_in_use(error):
            raise _in_use(path) from error
        raise


def _in_use(path: Path) -> UserError:
    return UserError(f"{path} is in use by another program; close that or wait, and give the same command again")


def _is_in_use(error: BaseException | None) -> bool:
    """Whether SQLite said so, perhaps within other exceptions."""
    while error is not None:
        # SQLite's message, which is part of SQLAlchemy's.
        if "database is locked" in str(error) or "database table is locked" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def finished(study: Any) -> list[Any]:
    """The trials that came to an end by themselves: complete, pruned, or diverged."""
    return [
        trial
        for trial in study.trials
        if trial.state.is_finished() and f"killed {trial.number}" not in study.user_attrs
    ]


def search(
    study: Any,
    space: Space,
    *,
    num_trials: int,
    seed: int,
    prune: bool,
    evaluate: Callable[[dict[str, float], Callable[[int, float], bool]], float],
    told: Callable[[Any], None],
) -> None:
    """Goes on until the study has `num_trials` finished trials.

    Args:
        study: of `open_study`.
        space: what is searched, and how.
        num_trials: altogether.
        seed: of the search.
        prune: stops a trial whose score is below the median of earlier ones at the same epoch.
        evaluate: values and a function that takes epochs and scores and says when to stop → score.
        told: is shown each finished trial.
    """
    package = optuna()
    from preload_jax.training.loop import NonFiniteLossError

    complete = package.trial.TrialState.COMPLETE
    study.pruner = (
        package.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=1) if prune else (package.pruners.NopPruner())
    )
    while len(finished(study)) < num_trials:
        # Killed trials are left out of the count, so that they do not change what later ones draw.
        draw = seed * 1_000_003 + len(finished(study))
        sampler = (
            package.samplers.TPESampler(seed=draw)
            if space.strategy == "bayesian"
            else (package.samplers.RandomSampler(seed=draw))
        )
        study.sampler = sampler
        trial = study.ask()
        values = search_spaces.suggest(space, trial)
        stopped = False

        def report(epoch: int, score: float, trial: Any = trial) -> bool:
            nonlocal stopped
            trial.report(score, epoch)
            stopped = trial.should_prune()
            return stopped

        try:
            score = evaluate(values, report)
        except NonFiniteLossError:
            study.tell(trial, state=package.trial.TrialState.FAIL)
        else:
            if stopped:
                study.tell(trial, state=package.trial.TrialState.PRUNED)
            else:
                study.tell(trial, score, state=complete)
        told(study.trials[trial.number])
