"""Every row of the table of bad inputs, carried out; and the table in the documentation is these rows."""

import importlib
import itertools
import re
import shutil
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from flax import nnx

from experiments import cli
from preload_jax import (
    adapters,
    attach,
    bayes,
    decisions,
    detectors,
    errors,
    evaluate,
    evaluation,
    fit,
    guarantees,
    methods,
    metrics,
    models,
    predict,
    recalibration,
)
from preload_jax.data import datasets
from preload_jax.devices import forward
from preload_jax.formats import checkpoints, torch_import, trees, weights
from preload_jax.training import loop, optimizers
from preload_jax.training.data import TrainingData
from preload_jax.training.plan import Plan
from tests.bad_inputs import document
from tests.experiments.runs_for_tests import command


def pattern(sees, folder):
    """A row's message as a regular expression."""
    return re.escape(sees).replace(re.escape("…"), ".*").replace("HERE", re.escape(str(folder)))


@pytest.fixture(scope="module")
def standard(tmp_path_factory):
    """A finished run."""
    folder = tmp_path_factory.mktemp("standard") / "standard"
    assert command(folder, "--method=standard", "--epochs=3", "--quiet") == 0
    return folder


def identity(row):
    return re.sub(r"\W+", "-", row.did).strip("-")


@pytest.mark.parametrize("row", document.COMMANDS, ids=identity)
def test_commands(row, tmp_path, request, monkeypatch, capsys):
    if "standard" in row.arguments + row.sees:
        shutil.copytree(request.getfixturevalue("standard"), tmp_path / "standard")
    capsys.readouterr()
    row.prepare(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "data"))
    module, *options = row.arguments.replace("HERE", str(tmp_path)).split()
    root = [f"--root={tmp_path / 'runs'}"] if module == "run" else []
    monkeypatch.setattr(sys, "argv", [module, *root, *options])
    chosen = importlib.import_module(f"experiments.{module}.command")
    with pytest.raises(SystemExit) as exit_:
        cli.run_command(chosen.main, chosen.Args, prog=f"python -m experiments.{module}")
    *before, last = capsys.readouterr().err.splitlines()
    assert re.fullmatch(f"error: {pattern(row.sees, tmp_path)}", last)
    assert not [line for line in before if line.startswith(("error", "Traceback"))]
    assert f"exit {exit_.value.code}" == row.outcome


def data(images, labels, outliers=None):
    put = jnp.asarray
    return TrainingData(put(images), put(labels), None if outliers is None else put(outliers))


def layer(params, images):
    return images.reshape(len(images), -1) @ (params["kernel"] if isinstance(params, dict) else params)


def asked(function, params):
    """A network of a function, asked about images."""
    return adapters.from_function(function, params).init(jax.random.key(0), jnp.ones((6, 8, 8, 1)))


def cached():
    """An NNX module that keeps what it has seen."""
    network = nnx.MultiHeadAttention(2, 4, decode=True, rngs=nnx.Rngs(0))
    network.init_cache((1, 3, 4))
    return network


@pytest.fixture(scope="module")
def names():
    """What the expressions of the library's rows refer to."""
    key, shape = jax.random.key(0), (8, 8, 1)
    model, wider = (models.make_classifier("mlp", "square_logit", num_classes=4, widths=(n,)) for n in (8, 16))
    variables = loop.init_variables(model, shape, key=key)
    images = np.random.default_rng(0).integers(0, 256, (6, *shape), np.uint8)
    modules = (
        adapters,
        bayes,
        checkpoints,
        decisions,
        detectors,
        evaluation,
        forward,
        guarantees,
        loop,
        methods,
        metrics,
        models,
        optimizers,
        recalibration,
        torch_import,
        trees,
        weights,
    )
    return {module.__name__.split(".")[-1]: module for module in modules} | {
        "datasets": datasets,
        "np": np,
        "nnx": nnx,
        "eqx": eqx,
        "counter": itertools.count(),
        "layer": layer,
        "asked": asked,
        "cached": cached(),
        "dense": np.ones((64, 4), np.float32),
        "jnp": jnp,
        "nan": float("nan"),
        "key": key,
        "evaluate": evaluate,
        "attach": attach,
        "fit": fit,
        "Plan": Plan,
        "model": model,
        "network": lambda x: x,
        "linear_variables": loop.init_variables(
            models.make_classifier("mlp", "linear", num_classes=4, widths=(8,)), shape, key=key
        ),
        "jax": jax,
        "predict": predict,
        "linear": models.make_classifier("mlp", "linear", num_classes=4, widths=(8,)),
        "variables": variables,
        "params": loop.init_variables(wider, shape, key=key)["params"],
        "images": images,
        "labels": np.arange(6) % 4,
        "outputs": detectors.Outputs(np.random.default_rng(0).normal(size=(6, 3))),
        "logits": forward.predict(model, variables, images)[0],
        "data": data,
    }


@pytest.mark.parametrize("row", document.CALLS, ids=identity)
def test_calls(row, names):
    # As users have it: without the checks of annotated shapes, which only tests switch on.
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises((ValueError, TypeError)) as caught:
            eval(row.arguments, dict(names))
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    assert re.fullmatch(pattern(row.sees, ""), str(caught.value))
    assert type(caught.value) is {**vars(errors), "ValueError": ValueError, "TypeError": TypeError}[row.outcome]


def test_the_document_has_these_rows():
    text = document.DOCUMENT.read_text()
    assert document.with_table(text) == text, "run `python -m tests.bad_inputs`"
    assert sum(len(rows) for rows in document.SECTIONS.values()) >= 40


def test_no_row_is_there_twice():
    lines = [row.line for rows in document.SECTIONS.values() for row in rows]
    assert len(lines) == len(set(lines))
