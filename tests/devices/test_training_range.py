"""Whoever asks a network is warned of inputs of another scale than its training's, wherever its weights come from."""

import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import attach, detectors, evaluate, fit, make_classifier, predict, weights
from preload_jax.devices import training_range
from preload_jax.errors import DataError, UserError
from preload_jax.formats import load_program, safetensors_file, save_program

SHAPE = (4, 4, 1)
RNG = np.random.default_rng(0)
LABELS = np.arange(64) % 2
NORMALISED = (RNG.normal(size=(64, *SHAPE)) + LABELS[:, None, None, None]).astype(np.float32)
UNIT = RNG.random((64, *SHAPE)).astype(np.float32)
BYTES = RNG.integers(0, 256, (64, *SHAPE)).astype(np.uint8)
TABLE = NORMALISED.reshape(64, -1)
NUMBERS = {"epochs": 1, "batch_size": 32}
MODEL = make_classifier("mlp", "square_logit", num_classes=2, widths=(8,))


def said(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = call()
    return [str(each.message) for each in caught if " run from " in str(each.message)], found


def trained(inputs):
    told, variables = said(lambda: fit(MODEL, inputs, LABELS, 3 * inputs, **NUMBERS))
    return told, variables


@pytest.mark.parametrize(
    ("of", "given", "words"),
    [
        (NORMALISED, NORMALISED, None),
        (NORMALISED, NORMALISED[:1], None),
        (NORMALISED, 2 * NORMALISED, None),
        (NORMALISED, UNIT, "images run from .* the network was trained on numbers from -"),
        (NORMALISED, BYTES, "it sees uint8 divided by 255"),
        (NORMALISED, NORMALISED * 1e3, "far away on purpose"),
        (NORMALISED, NORMALISED / 1e3, "the network was trained on"),
        (UNIT, UNIT, None),
        (UNIT, BYTES, None),
        (UNIT, NORMALISED, "the network was trained on numbers from 0.* to 0.99"),
        (UNIT, BYTES.astype(np.float32), "images run from 0 to 255; the network was trained on numbers from 0"),
        (BYTES, UNIT, None),
        (BYTES, UNIT / 255.0, "images run"),
        (255 * UNIT, BYTES, "it sees uint8 divided by 255"),
        (255 * UNIT, UNIT, "the network was trained on"),
        (255 * UNIT, 255 * UNIT, None),
        (16 * UNIT, 16 * NORMALISED, "images run from -"),
        (TABLE, TABLE, None),
        (TABLE, 100 + 20 * TABLE, "inputs run from .* Scale them as the training inputs were"),
    ],
)
def test_inputs_of_another_scale_are_told(of, given, words):
    _, variables = trained(of)
    for ask in (
        lambda: predict(MODEL, variables, given),
        lambda: predict(MODEL, variables, lambda: iter([given])),
        lambda: evaluate(MODEL, variables, (given, LABELS[: len(given)])),
        lambda: detectors.outputs(MODEL, variables, given),
        lambda: list(detectors.outputs(MODEL, variables, [given, given])),
    ):
        told, _ = said(ask)
        assert len(told) == (words is not None)
    if words is not None:
        with pytest.warns(UserWarning, match=words):
            predict(MODEL, variables, given)


def test_normalised_images_are_no_fault_of_training():
    assert trained(NORMALISED)[0] == []
    assert len(trained(255 * UNIT)[0]) == 2


def test_of_weights_from_elsewhere_images_are_expected_in_0_to_1():
    _, variables = trained(NORMALISED)
    copied = jax.tree.map(lambda x: x + 0, variables)
    assert training_range.recall(copied) is None
    assert said(lambda: predict(MODEL, copied, UNIT))[0] == []
    assert "networks here are made for [0, 1]" in said(lambda: predict(MODEL, copied, NORMALISED))[0][0]


def test_an_ood_set_that_was_not_divided_by_255_is_told_by_name():
    _, variables = trained(BYTES)
    for given in (BYTES.astype(np.float32), lambda: iter([BYTES.astype(np.float32)])):
        (told,), found = said(lambda given=given: evaluate(MODEL, variables, (BYTES, LABELS), {"o": given}))
        assert told.startswith("OOD set 'o': images run from 0 to 255; the network was trained on numbers from 0 to 1")
        assert "o" in found["ood"]
    # What is larger is far away on purpose.
    assert said(lambda: evaluate(MODEL, variables, (BYTES, LABELS), {"o": 1e4 * UNIT}))[0] == []


def test_what_attach_returns_knows_its_images():
    linear = make_classifier("mlp", "linear", num_classes=2, widths=(8,))
    start = fit(linear, NORMALISED, LABELS, **NUMBERS)
    found = attach(linear, start, NORMALISED, LABELS, 3 * NORMALISED, **NUMBERS)
    assert said(lambda: predict(found.model, found.variables, NORMALISED))[0] == []
    assert said(lambda: predict(found.model, found.variables, UNIT))[0]


def test_files_keep_it(tmp_path):
    _, variables = trained(NORMALISED)
    expected = float(NORMALISED.min()), float(NORMALISED.max())
    weights.save(tmp_path / "a.safetensors", MODEL, variables, image_shape=SHAPE)
    loaded = weights.load(tmp_path / "a.safetensors")
    assert loaded.input_range == expected
    assert loaded.metadata == {}
    assert said(lambda: predict(loaded.model, loaded.variables, UNIT))[0]
    assert said(lambda: predict(loaded.model, loaded.variables, NORMALISED))[0] == []
    save_program(tmp_path / "a.program", loaded.model, loaded.variables, image_shape=SHAPE)
    program = load_program(tmp_path / "a.program")
    assert program.input_range == expected
    assert said(lambda: program.predict(UNIT))[0]
    assert said(lambda: program.predict(NORMALISED))[0] == []


def test_files_can_be_told_it(tmp_path):
    variables = MODEL.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    weights.save(tmp_path / "a.safetensors", MODEL, variables, image_shape=SHAPE, input_range=(-2, 3))
    assert weights.load(tmp_path / "a.safetensors").input_range == (-2.0, 3.0)
    save_program(tmp_path / "a.program", MODEL, variables, image_shape=SHAPE, input_range=(-2, 3))
    assert load_program(tmp_path / "a.program").input_range == (-2.0, 3.0)
    weights.save(tmp_path / "b.safetensors", MODEL, variables, image_shape=SHAPE)
    assert weights.load(tmp_path / "b.safetensors").input_range is None


@pytest.mark.parametrize("given", [(1,), 3, (1, 0), (0, np.nan), (0, np.inf), ("a", "b"), (0, 1, 2), "abc"])
def test_what_is_no_range_is_refused(given, tmp_path, unannotated):
    variables = MODEL.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    for write in (weights.save, save_program):
        with pytest.raises(UserError, match=r"expected .least, largest. of the training inputs"):
            write(tmp_path / "a.safetensors", MODEL, variables, image_shape=SHAPE, input_range=given)
    assert not list(tmp_path.iterdir())


def test_a_file_with_another_range_than_it_may_have_is_damaged(tmp_path):
    path = tmp_path / "a.safetensors"
    variables = MODEL.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    weights.save(path, MODEL, variables, image_shape=SHAPE, input_range=(0, 1))
    metadata, arrays = safetensors_file.read(path)
    described = {name: text for name, text in metadata.items() if name != "digest"} | {"input_range": json.dumps([2])}
    described["digest"] = weights.digests.of_tree(arrays, notes=described)
    path.write_bytes(safetensors_file.dumps(arrays, described))
    with pytest.raises(DataError, match="its input_range is not two numbers"):
        weights.load(path)


def test_integers_have_no_range():
    assert training_range.of(np.arange(12).reshape(3, 4)) is None
    assert training_range.of(np.zeros((0, 4), np.float32)) is None
    assert training_range.of(BYTES) == (float(BYTES.min()) / 255, float(BYTES.max()) / 255)
