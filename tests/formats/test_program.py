"""A network as one file: it answers as the network does, to the bit, alone; damaged ones say so in one line."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import Classifier, LinearHead, SquareLogitHead, decisions, detectors, digests, make_classifier, predict
from preload_jax.errors import DataError, UserError
from preload_jax.formats import load_program, program_writer, safetensors_file, save_program, weights
from tests import toy
from tests.adapters import networks

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "mlp": ("mlp", (8, 8, 1), {"widths": (16,)}),
    "distance": ("mlp", (8, 8, 1), {"widths": (16,), "distance": 1.0, "min_weight": 0.2}),
    "lenet": ("lenet", (28, 28, 1), {}),
    "wide_resnet": ("wide_resnet", (16, 16, 3), {"depth": 10, "widen_factor": 1}),
}
CASES = [
    ("mlp", "linear"),
    ("mlp", "none_class"),
    ("mlp", "square_logit"),
    ("distance", "square_logit"),
    *(pytest.param(name, "square_logit", marks=pytest.mark.slow) for name in ("lenet", "wide_resnet")),
]


def network(name="mlp", head="square_logit", classes=4):
    backbone, shape, options = SMALL[name]
    model = make_classifier(backbone, head, num_classes=classes, **options)
    variables = model.init(jax.random.key(0), jnp.zeros((1, *shape)))
    if name == "distance":
        variables["batch_stats"]["backbone"]["distance_center"] = jnp.full(shape, 0.5)
        variables["batch_stats"]["backbone"]["distance_scale"] = jnp.float32(3.0)
    return model, variables, shape


def some_images(shape, count=70):
    return np.random.default_rng(0).integers(0, 256, (count, *shape), np.uint8)


def same(said, expected):
    for name, value in vars(expected).items():
        found = getattr(said, name)
        assert (found is None) == (value is None), name
        if value is not None:
            assert np.asarray(found).dtype == np.asarray(value).dtype
            np.testing.assert_array_equal(found, value, err_msg=name)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A small program with a rule, and what it was made of."""
    model, variables, shape = network()
    rule = decisions.calibrate(predict(model, variables, some_images(shape)).score, score="in_domain_probability")
    path = tmp_path_factory.mktemp("program") / "toy.program"
    save_program(
        path,
        model,
        variables,
        image_shape=shape,
        class_names=("a", "b", "c", "d"),
        rule=rule,
        certificate={"holds_for": {"parameters": "float32"}},
        notes={"dataset": "toy"},
    )
    return path, model, variables, rule


@pytest.mark.parametrize(("name", "head"), CASES)
def test_it_answers_as_the_network_does_to_the_bit(name, head, tmp_path):
    model, variables, shape = network(name, head)
    images = some_images(shape, 30)
    found = save_program(tmp_path / "a", model, variables, image_shape=shape)
    loaded = load_program(tmp_path / "a", digest=found)
    floats = (images / 255.0).astype(np.float32)
    # Tests have eight virtual devices, on which LeNet has another form for many images: one device is below.
    for size in (1, 7, 30) if name != "lenet" else (1, 7):
        for given in (images, floats, floats.astype(np.float64)):
            same(loaded.predict(given, batch_size=size), predict(model, variables, given, batch_size=size))
    with pytest.warns(UserWarning, match="images run from") as said:
        same(loaded.predict(1e4 * floats, batch_size=7), predict(model, variables, 1e4 * floats, batch_size=7))
    assert {each.filename for each in said} == {__file__}


def test_rules_thresholds_and_scores_are_kept(file, tmp_path):
    _, model, variables, rule = file
    loaded, images = load_program(file[0]), some_images((8, 8, 1), 9)
    same(loaded.predict(images), predict(model, variables, images, rule=rule))
    assert loaded.rule.record() == rule.record()
    without = loaded.predict(images, use_rule=False)
    same(without, predict(model, variables, images))
    assert not any("the score is below" in reason for each in loaded.reasons(images, without) for reason in each)
    linear, of_linear, shape = network(head="linear")
    for options in ({"threshold": 1.25}, {"score": "negative_energy", "threshold": 1.5}, {}):
        save_program(tmp_path / "b", linear, of_linear, image_shape=shape, **options)
        same(load_program(tmp_path / "b").predict(images), predict(linear, of_linear, images, **options))
    scores = predict(linear, of_linear, some_images(shape)).score
    by_class = decisions.calibrate(scores, classes=np.arange(70) % 4, score="max_probability", false_alarm_rate=0.5)
    save_program(tmp_path / "c", linear, of_linear, image_shape=shape, rule=by_class)
    loaded = load_program(tmp_path / "c")
    found = loaded.predict(images)
    same(found, predict(linear, of_linear, images, rule=by_class))
    for reasons, ood, label in zip(loaded.reasons(images, found), found.is_ood, found.label, strict=True):
        assert reasons == ([f"the score is below {by_class.threshold(int(label)):.4g}"] if ood else [])


def test_what_the_file_says_of_itself(file):
    loaded = load_program(file[0])
    assert (loaded.class_names, loaded.image_shape, loaded.has_ood_class) == (("a", "b", "c", "d"), (8, 8, 1), True)
    assert (loaded.notes, loaded.certificate) == ({"dataset": "toy"}, {"holds_for": {"parameters": "float32"}})
    assert (loaded.jax_version, loaded.platforms) == (jax.__version__, ("cpu", "cuda", "tpu"))
    assert loaded.score == "in_domain_probability"
    metadata, arrays = safetensors_file.read(file[0])
    assert loaded.digest == metadata["digest"]
    # Once, whatever number of programs there is.
    held = sum(x.nbytes for name, x in arrays.items() if name.startswith("variables/"))
    assert held == sum(x.nbytes for x in jax.tree.leaves(file[2]))


ALONE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("flax", "optax", "orbax", "tensorflow_datasets", "chex", "sklearn", "experiments"):
            raise ImportError(f"{name} is not here")

if BLOCK:
    sys.meta_path.insert(0, Blocked())
import numpy as np
from preload_jax.formats import load_program

folder = sys.argv[1]
for name in ("mlp", "distance", "lenet", "wide_resnet"):
    images = np.load(f"{folder}/{name}.npy")
    if BLOCK:
        answer = load_program(f"{folder}/{name}.program").predict
    else:
        import functools
        from preload_jax import predict
        from tests.formats.test_program import network
        answer = functools.partial(predict, *network(name)[:2])
    for size in (1, 64):
        for kind in ("uint8", "float32"):
            given = images if kind == "uint8" else (images / 255).astype(np.float32)
            said = answer(given[:size], batch_size=size)
            fields = {k: v for k, v in vars(said).items() if v is not None}
            place = f"{folder}/{name}_{size}_{kind}.npz"
            if not BLOCK:
                np.savez(place, **fields)
                continue
            with np.load(place) as expected:
                assert set(expected) == set(fields)
                for k in expected:
                    assert np.array_equal(expected[k], fields[k]), (name, size, kind, k)
assert not BLOCK or not {"flax", "optax", "orbax", "preload_jax.training"} & set(sys.modules)
"""


def alone(folder, *, block):
    environment = {**os.environ, "XLA_FLAGS": "", "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    code = ALONE.replace("BLOCK", str(block))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(folder)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_fresh_process_without_flax_answers_to_the_bit(tmp_path):
    """On one device, batch 1 and 64, where LeNet's form depends on the number; the file was written beside eight."""
    for name in SMALL:
        model, variables, shape = network(name)
        np.save(tmp_path / f"{name}.npy", some_images(shape, 64))
        save_program(tmp_path / f"{name}.program", model, variables, image_shape=shape)
    alone(tmp_path, block=False)
    alone(tmp_path, block=True)


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((0, 8, 8, 1), np.uint8),
        np.zeros((2, 8, 8, 1), np.int64),
        np.full((2, 8, 8, 1), np.nan, np.float32),
        np.full((2, 8, 8, 1), 1e300),
        np.ma.masked_array(np.zeros((2, 8, 8, 1), np.uint8)),
    ],
    ids=["none", "integers", "NaN", "overflow", "masked"],
)
def test_images_are_checked_as_predict_does(file, images, unannotated):
    path, model, variables, _ = file
    with pytest.raises(UserError) as expected:
        predict(model, variables, images)
    with pytest.raises(UserError) as found:
        load_program(path).predict(images)
    assert str(found.value) == str(expected.value)


def test_other_images_are_refused(file):
    loaded = load_program(file[0])
    with pytest.raises(UserError, match=r"images of shape \[1, 9, 8, 1\] do not fit .* expected \[n, 8, 8, 1\]"):
        loaded.predict(np.zeros((1, 9, 8, 1), np.uint8))
    with pytest.raises(
        UserError, match=r"\[8, 8, 1\] do not .* expected \[n, 8, 8, 1\]: for one image give images\[None\]$"
    ):
        loaded.predict(np.zeros((8, 8, 1), np.uint8))
    with pytest.raises(UserError, match="images of type float16; the program takes uint8 or float32"):
        loaded.predict(np.zeros((1, 8, 8, 1), np.float16))
    with pytest.raises(UserError, match="batch_size must be at least 1"):
        loaded.predict(np.zeros((1, 8, 8, 1), np.uint8), batch_size=0)


def refused(path, words):
    with pytest.raises(DataError) as caught:
        load_program(path)
    message = str(caught.value)
    assert message.count("\n") == 0
    assert message.startswith(str(path))
    assert words in message, message


def test_files_that_are_none(tmp_path):
    refused(tmp_path / "none", "no such file")
    refused(tmp_path, "a folder, not a file")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "not a regular file")
    for name, content in {"empty": b"", "zeros": bytes(4096), "text": b"hello, I am no program" * 9}.items():
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, "not a readable safetensors file")
    model, variables, shape = network()
    weights.save(tmp_path / "a.safetensors", model, variables, image_shape=shape)
    refused(tmp_path / "a.safetensors", "it holds a network's weights, not a program")
    save_program(tmp_path / "b.safetensors", model, variables, image_shape=shape)
    with pytest.raises(DataError, match="it is a program, which load_program reads"):
        weights.load(tmp_path / "b.safetensors")


def test_absurd_sizes_are_refused_before_anything_is_read(tmp_path, file):
    header = {"a": {"dtype": "U8", "shape": [10**15], "data_offsets": [0, 10**15]}}
    text = json.dumps(header).encode()
    for content in (len(text).to_bytes(8, "little") + text, (2**63).to_bytes(8, "little") + text, b"\xff" * 64):
        (tmp_path / "huge").write_bytes(content)
        refused(tmp_path / "huge", "not a readable safetensors file")
    # A hole of a terabyte takes no room on the disk, and must take none in memory.
    with open(tmp_path / "hole", "wb") as hole:
        hole.write(file[0].read_bytes())
        hole.truncate(2**40)
    refused(tmp_path / "hole", "where the header tells of")


def test_cut_short_anywhere(file, tmp_path):
    content = file[0].read_bytes()
    for size in [*range(0, 64, 7), *range(64, len(content), len(content) // 25), len(content) - 1]:
        (tmp_path / "cut").write_bytes(content[:size])
        refused(tmp_path / "cut", "")
    (tmp_path / "cut").write_bytes(content + b"x")
    refused(tmp_path / "cut", "where the header tells of")


def test_any_flipped_bit_is_noticed(file, tmp_path):
    content, rng = file[0].read_bytes(), np.random.default_rng(0)
    length = int.from_bytes(content[:8], "little")
    places = [*range(16), *rng.integers(8, 8 + length, 150), *rng.integers(8 + length, len(content), 150)]
    noticed = 0
    for place in map(int, places):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "flipped").write_bytes(damaged)
        try:
            refused(tmp_path / "flipped", "")
            noticed += 1
        except pytest.fail.Exception:
            # A blank of the header's end that became another blank.
            assert safetensors_file.read(tmp_path / "flipped")[0] == safetensors_file.read(file[0])[0]
    assert noticed >= len(places) - 3


def rewritten(source, target, *, metadata=None, about=None, arrays=None, sign=True):
    """The file with other content, and the digest that belongs to it."""
    said, held = safetensors_file.read(source)
    said |= metadata or {}
    if about is not None:
        said["about"] = json.dumps({**json.loads(said["about"]), **about})
    held |= arrays or {}
    held = {name: array for name, array in held.items() if array is not None}
    if sign:
        said["digest"] = digests.of_tree(held, notes={name: x for name, x in said.items() if name != "digest"})
    target.write_bytes(safetensors_file.dumps(held, said))
    return target


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"metadata": {"format_version": "2", "preload_jax": "9.1"}, "sign": False},
            "it is a program of format 2, of preload_jax 9.1; this version, 0.1.0, reads formats up to 1: update",
        ),
        ({"metadata": {"format_version": "-1"}}, "its format's version is '-1'"),
        ({"metadata": {"format": "pt"}}, "it is not a program; expected a file that save_program wrote"),
        ({"metadata": {"note": "x"}, "sign": False}, "does not have the digest that was written with it"),
        ({"metadata": {"about": "{"}}, "its description is not what this version writes"),
        ({"metadata": {"about": "[NaN]"}}, "its description is not what this version writes"),
        ({"about": {"image_shape": [8, 8]}}, "images of shape (8, 8)"),
        ({"about": {"image_shape": [2**20, 2**20, 1]}}, "its description is not what this version writes"),
        ({"about": {"class_names": ["a", 2, "c", "d"]}}, "class_names are not two or more names"),
        ({"about": {"class_names": ["a", "b"]}}, "does not take the weights that it holds"),
        ({"about": {"has_ood_class": "yes"}}, "has_ood_class and score are a truth value and a name"),
        ({"about": {"score": "mine"}}, "unknown score 'mine'"),
        ({"about": {"threshold": 1.0}}, "threshold"),
        ({"about": {"rule": {"format": 2}}}, "the rule is of format 2, this version reads 1: update preload_jax"),
        ({"about": {"rule": 7}}, "its description is not what this version writes"),
        ({"about": {"certificate": [1]}}, "certificate is a list"),
        ({"arrays": {"program/uint8": None}}, "it holds no program for uint8 images"),
        ({"arrays": {"program/uint8": np.zeros(99, np.uint8)}}, "cannot be read by JAX"),
        ({"arrays": {"variables/params/head/linear/bias": np.zeros(5, np.float32)}}, "does not take the weights"),
        ({"arrays": {"variables/params/more": np.zeros(5, np.float32)}}, "does not take the weights"),
        ({"arrays": {"center": np.zeros(5, np.float32)}}, "its center has the shape [5]"),
    ],
)
def test_forged_and_newer_files(file, tmp_path, change, words):
    refused(rewritten(file[0], tmp_path / "forged", **change), words)


def test_a_program_for_other_images_is_noticed(file, tmp_path):
    _, arrays = safetensors_file.read(file[0])
    swapped = {"program/uint8": arrays["program/float32"]}
    refused(rewritten(file[0], tmp_path / "swapped", arrays=swapped), "does not take the weights that it holds")


def test_another_digest_than_expected_is_refused(file):
    with pytest.raises(DataError, match="it is another file than was expected"):
        load_program(file[0], digest="0" * 64)


class Solves(nn.Module):
    """A network that calls LAPACK, which is code outside of the program."""

    @nn.compact
    def __call__(self, images, *, train=False):
        x = nn.Dense(3)(images.reshape(images.shape[0], -1))
        return x @ jnp.linalg.cholesky(jnp.eye(3) + 0.1)


class Counts(nn.Module):
    """A network that wants to know how many images there are."""

    @nn.compact
    def __call__(self, images, *, train=False):
        return nn.relu(nn.Dense(3)(images.reshape(len(images), -1)))


@pytest.mark.parametrize(
    ("backbone", "words"),
    [
        (Solves(), "its program calls code outside of it"),
        (Counts(), r"no program for any number of images \(TypeError: .*\); it may take images.shape\[0\]"),
    ],
)
def test_networks_that_cannot_be_a_program(backbone, words, tmp_path):
    model = Classifier(backbone, LinearHead(3))
    variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
    (tmp_path / "a").write_text("what was there")
    with pytest.raises(UserError, match=words):
        save_program(tmp_path / "a", model, variables, image_shape=(4, 4, 1))
    assert (tmp_path / "a").read_text() == "what was there"
    assert os.listdir(tmp_path) == ["a"]


class Own(nn.Module):
    @nn.compact
    def __call__(self, images, *, train=False):
        return nn.relu(nn.Dense(5)(images.reshape(images.shape[0], -1)))


def test_a_network_of_ones_own(tmp_path):
    model = Classifier(Own(), SquareLogitHead(3))
    variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
    save_program(tmp_path / "a", model, variables, image_shape=(4, 4, 1))
    images = some_images((4, 4, 1), 5)
    same(load_program(tmp_path / "a").predict(images), predict(model, variables, images))


@pytest.mark.parametrize("framework", ["function", "nnx", "equinox"])
def test_a_network_of_another_framework(framework, tmp_path):
    model = Classifier(networks.adapted()[framework], SquareLogitHead(3))
    variables = model.init(jax.random.key(0), jnp.zeros((1, *toy.SHAPE)))
    save_program(tmp_path / "a", model, variables, image_shape=toy.SHAPE)
    images = some_images(toy.SHAPE, 5)
    same(load_program(tmp_path / "a").predict(images), predict(model, variables, images))


def test_what_cannot_be_written(tmp_path, unannotated):
    model, variables, shape = network()
    linear, of_linear, _ = network(head="linear")
    outputs = detectors.Outputs(np.random.default_rng(0).normal(size=(40, 16)).astype(np.float32))
    fitted = detectors.fit("mahalanobis", outputs, np.arange(40) % 4)
    rule = decisions.calibrate(np.random.default_rng(0).normal(size=100), score="energy")
    path = tmp_path / "a"
    for words, arguments, options in [
        ("a program scores by its logits alone", (model, variables), {"score": fitted}),
        ("unknown score", (model, variables), {"score": "mine"}),
        ("the rule was calibrated for the score 'energy'", (model, variables), {"rule": rule}),
        ("threshold is for networks without an OOD class", (model, variables), {"threshold": 1.0}),
        ("threshold must be finite", (linear, of_linear), {"threshold": float("inf")}),
        ("expected 4 names, one for each class", (model, variables), {"class_names": ("a", "b")}),
        ("the variables are of another network", (model, of_linear), {}),
    ]:
        with pytest.raises(UserError, match=words):
            save_program(path, *arguments, image_shape=shape, **options)
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        save_program(path, model, variables, image_shape=shape, certificate={"x": float("nan")})
    assert os.listdir(tmp_path) == []


def test_a_program_that_answers_otherwise_is_not_written(tmp_path, monkeypatch):
    model, variables, shape = network()
    monkeypatch.setattr(program_writer, "to_float", lambda images: images.astype(jnp.float32))
    with pytest.raises(UserError, match="the program's logits differ from the network's by up to"):
        save_program(tmp_path / "a", model, variables, image_shape=shape)
    assert os.listdir(tmp_path) == []


def test_a_link_is_replaced_not_followed(tmp_path):
    model, variables, shape = network()
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "a").symlink_to(tmp_path / "theirs")
    save_program(tmp_path / "a", model, variables, image_shape=shape)
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert not (tmp_path / "a").is_symlink()
    load_program(tmp_path / "a")


def test_without_flatbuffers_the_error_says_what_to_install(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.raises(UserError, match="programs need the package flatbuffers: pip install flatbuffers"):
        load_program(file[0])


def test_the_distance_is_among_the_reasons(tmp_path):
    model, variables, shape = network("distance")
    radius = {"confidence": 0.5, "radius": 6.0, "typical_distances": 2.0, "typical_distance": 3.0}
    save_program(tmp_path / "a", model, variables, image_shape=shape, certificate={"input_radius": radius})
    loaded = load_program(tmp_path / "a")
    images = np.stack([np.full(shape, 0.5, np.float32), np.full(shape, 1e6, np.float32)])
    with pytest.warns(UserWarning, match="images run from"):
        said = loaded.predict(images)
    near, far = loaded.reasons(images, said)
    assert not any("typical distances" in reason for reason in near)
    away = 8.0 * (1e6 - 0.5) / 3.0
    expected = (
        f"it is {away:.3g} typical distances from the training data, beyond the certified 2: no class can be more"
    )
    assert f"{expected} confident than 50 %" in far
    # A distance from a centre that nobody has measured says nothing.
    begun = model.init(jax.random.key(0), jnp.zeros((1, *shape)))
    save_program(tmp_path / "b", model, begun, image_shape=shape, certificate={"input_radius": radius})
    with pytest.warns(UserWarning, match="images run from"):
        said = load_program(tmp_path / "b").predict(images)
    assert not any("typical distances" in reason for reason in load_program(tmp_path / "b").reasons(images, said)[1])


def test_a_program_of_another_platform_is_refused(file, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "METAL")
    with pytest.raises(DataError, match="its program is for cpu, cuda, tpu; here is METAL"):
        load_program(file[0])


@pytest.mark.usefixtures("unannotated")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_shape": (4, 4)}, "image_shape is .*; expected .height, width, channels."),
        ({"image_shape": (4, 4, 1, 1)}, "image_shape is .*; expected .height, width, channels."),
        ({"image_shape": None}, "image_shape is None; expected"),
        ({"image_shape": (4, 4, 0.5)}, "image_shape must be an integer"),
        ({"certificate": {"a": object()}}, "certificate is .*; expected a dictionary for JSON"),
        ({"certificate": {"a": float("nan")}}, "certificate is .*; expected a dictionary for JSON"),
        ({"notes": "x"}, "notes is x; expected a dictionary for JSON"),
    ],
)
def test_wrong_arguments_of_save_program(tmp_path, options, message):
    model = make_classifier("mlp", "linear", num_classes=3, widths=(4,))
    variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
    with pytest.raises(UserError, match=message):
        save_program(tmp_path / "a", model, variables, **{"image_shape": (4, 4, 1), **options})
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("unannotated")
def test_places_that_are_no_files(tmp_path):
    model = make_classifier("mlp", "linear", num_classes=3, widths=(4,))
    variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
    os.mkfifo(tmp_path / "fifo")
    for path, message in ((tmp_path, "no name of a file"), ("", "no name of a file"), (tmp_path / "fifo", "plain")):
        with pytest.raises(UserError, match=message):
            save_program(path, model, variables, image_shape=(4, 4, 1))
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)
    with pytest.raises(UserError, match="the path is a NoneType"):
        load_program(None)


@pytest.mark.usefixtures("unannotated")
def test_numbers_of_numpy_are_numbers(tmp_path):
    model = make_classifier("mlp", "linear", num_classes=3, widths=(4,))
    variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
    options = {"image_shape": np.array([4, 4, 1]), "certificate": {"a": np.float32(1.0), "b": np.arange(2)}}
    digest = save_program(tmp_path / "a", model, variables, **options)
    program = load_program(tmp_path / "a", digest=digest.upper())
    assert (program.image_shape, program.certificate) == ((4, 4, 1), {"a": 1.0, "b": [0, 1]})
    images = np.zeros((3, 4, 4, 1), np.uint8)
    with pytest.raises(UserError, match="3 images and answers for 2"):
        program.reasons(images, program.predict(images[:2]))
