"""Networks in one file: what comes back is what went in; other readers; damaged files; networks of one's own."""

import json

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from preload_jax import Classifier, LinearHead, SquareLogitHead, adapters, digests, make_classifier, models
from preload_jax.errors import DataError, UserError
from preload_jax.formats import fixed_inputs, safetensors_file, weights
from tests import torch_files

SHAPE = (8, 8, 1)


def network(backbone="mlp", head="square_logit", **options):
    options = {"widths": (8, 6)} if backbone == "mlp" else options
    model = make_classifier(backbone, head, num_classes=3, **options)
    shape = SHAPE if backbone != "wide_resnet" else (16, 16, 3)
    # Nothing here is about the numbers, and shapes alone are quick.
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, *shape)))
    rng = np.random.default_rng(0)
    return model, jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype), shapes), shape


@pytest.mark.parametrize(
    ("backbone", "options"),
    [("mlp", {}), ("lenet", {"channels": (4, 8), "width": 5}), ("wide_resnet", {"depth": 10, "widen_factor": 1})],
)
@pytest.mark.parametrize("head", ["linear", "none_class", "square_logit"])
def test_what_comes_back_is_what_went_in(tmp_path, backbone, options, head):
    model, variables, shape = network(backbone, head, **options)
    if head == "square_logit":
        model = model.clone(head=model.head.clone(exponent=4))
    path = tmp_path / "a.safetensors"
    noted = {"dataset": "toys", "method": "mine"}
    weights.save(path, model, variables, image_shape=shape, ood_class=head != "linear", metadata=noted)
    found = weights.load(path)
    assert (found.model, found.head, found.num_classes, found.image_shape) == (model, head, 3, shape)
    assert found.metadata == noted
    assert jax.tree.structure(found.variables) == jax.tree.structure(dict(variables))
    jax.tree.map(np.testing.assert_array_equal, found.variables, dict(variables))


@jax.numpy_rank_promotion("allow")  # the distance subtracts one image from all
def test_floors_and_the_distance_come_back(tmp_path):
    images = np.random.default_rng(1).integers(0, 256, (20, *SHAPE), np.uint8)
    backbone = models.WithDistance(models.MLP(widths=(8, 6)), **models.typical_distance(images), weight=2.0)
    model = Classifier(backbone, SquareLogitHead(3, min_weight=0.25, min_distance_weight=0.5))
    variables, batch = model.init(jax.random.key(0), jnp.zeros((1, *SHAPE))), jnp.asarray(images[:5] / 255, jnp.float32)
    weights.save(tmp_path / "a.safetensors", model, variables, image_shape=SHAPE)
    found = weights.load(tmp_path / "a.safetensors")
    assert (found.model.head.min_weight, found.model.head.min_distance_weight) == (0.25, 0.5)
    np.testing.assert_array_equal(found.model.apply(found.variables, batch), model.apply(variables, batch))


def test_the_same_network_is_the_same_bytes(tmp_path):
    model, variables, shape = network()
    noted = {name: name for name in ("dataset", "method", "seed", "class_names", "config", "é")}
    contents = set()
    for order in (sorted(noted), sorted(noted, reverse=True)):
        for _ in range(4):
            given = {name: noted[name] for name in order}
            weights.save(tmp_path / "a.safetensors", model, variables, image_shape=shape, metadata=given)
            contents.add((tmp_path / "a.safetensors").read_bytes())
    assert len(contents) == 1
    assert weights.load(tmp_path / "a.safetensors").metadata == noted


def test_any_reader_reads_it(tmp_path):
    model, variables, shape = network()
    # However an array lies in memory.
    variables = jax.tree.map(lambda leaf: np.array(leaf, order="F"), variables)
    path = tmp_path / "a.safetensors"
    weights.save(path, model, variables, image_shape=shape)
    arrays = safetensors.numpy.load_file(path)
    np.testing.assert_array_equal(arrays["params/head/linear/kernel"], variables["params"]["head"]["linear"]["kernel"])
    assert arrays["params/head/ood/bias"].shape == ()
    with safetensors.safe_open(path, framework="np") as file:
        metadata = file.metadata()
    assert metadata["format"] == "preload_jax"
    assert json.loads(metadata["backbone"]) == {"name": "mlp", "widths": [8, 6]}


class OwnBackbone(nn.Module):
    @nn.compact
    def __call__(self, images, *, train=False):
        return nn.relu(
            nn.Dense(5, name="mine", dtype=jnp.float32, param_dtype=jnp.bfloat16)(images.reshape(len(images), -1))
        )


def test_a_backbone_of_ones_own_and_bfloat16(tmp_path):
    model = Classifier(OwnBackbone(), SquareLogitHead(3, exponent=4))
    variables = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    path = tmp_path / "own.safetensors"
    weights.save(path, model, variables, image_shape=SHAPE)
    found = weights.load(path, model=model)
    assert found.variables["params"]["backbone"]["mine"]["kernel"].dtype == jnp.bfloat16
    jax.tree.map(np.testing.assert_array_equal, found.variables, dict(variables))
    with pytest.raises(
        UserError, match=r"backbone 'OwnBackbone' is none of ours; give the model: load\(path, model=…\)"
    ):
        weights.load(path)
    for head in (LinearHead(3), SquareLogitHead(3), SquareLogitHead(3, exponent=4, min_weight=0.1)):
        with pytest.raises(UserError, match=r"the file's head options: \{\"exponent\": 4\}; the given model's: \{"):
            weights.load(path, model=Classifier(OwnBackbone(), head))


def with_relu(params, images):
    return jax.nn.relu(images.reshape(images.shape[0], -1) @ params)


def with_sine(params, images):
    return jnp.sin(images.reshape(images.shape[0], -1) @ params)


def of_function(function):
    kernel = np.random.default_rng(0).normal(size=(64, 16)).astype(np.float32)
    return Classifier(adapters.from_function(function, kernel), SquareLogitHead(3))


def test_another_function_of_the_same_shapes_is_refused(tmp_path):
    model, (first, second) = of_function(with_relu), (tmp_path / f"{name}.safetensors" for name in "ab")
    variables = model.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    for path in (first, second):
        weights.save(path, model, variables, image_shape=SHAPE)
    assert first.read_bytes() == second.read_bytes()
    assert weights.load(first, model=model).metadata == {}
    with pytest.raises(UserError, match="the model gives other logits or features with these variables than the"):
        weights.load(first, model=of_function(with_sine))


def rewritten(path, change):
    """The same file with other metadata; what is None is left out."""
    metadata, arrays = safetensors_file.read(path)
    kept = {name: text for name, text in {**metadata, **change}.items() if name != "digest" and text is not None}
    kept["digest"] = digests.of_tree(arrays, notes=kept)
    path.write_bytes(safetensors_file.dumps(arrays, kept))


def test_files_of_earlier_versions_are_read(tmp_path):
    model, path = of_function(with_relu), tmp_path / "a.safetensors"
    variables = model.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    weights.save(path, model, variables, image_shape=SHAPE)
    # Such a file has the logits of one input, or none, and does not say which code is one's own.
    said = json.dumps(json.loads(safetensors_file.read(path)[0][fixed_inputs.KEY])["logits"][0])
    rewritten(path, {fixed_inputs.KEY: None, "own_code": None, fixed_inputs.EARLIER: said})
    weights.load(path, model=model)
    with pytest.raises(UserError, match="is none of ours; give the model"):
        weights.load(path)
    with pytest.raises(UserError, match="the model gives other logits or features"):
        weights.load(path, model=of_function(with_sine))
    for damaged in ("[", "{}", '["a"]'):
        rewritten(path, {fixed_inputs.EARLIER: damaged})
        with pytest.raises(DataError, match="its answer_to_a_fixed_input are no logits and features"):
            weights.load(path, model=model)
    rewritten(path, {fixed_inputs.EARLIER: None})
    weights.load(path, model=of_function(with_sine))


class Reversed(LinearHead):
    def __call__(self, features):
        return super().__call__(features)[:, ::-1]


class Shifted(SquareLogitHead):
    def __call__(self, features):
        return super().__call__(features).at[:, 0].add(-5.0)


class Scaled(Classifier):
    def __call__(self, images, *, train=False, features=False):
        logits, embedding = super().__call__(images, train=train, features=True)
        logits = logits * jnp.array([[5.0, 1.0, -5.0]])
        return (logits, embedding) if features else logits


class Negative(models.MLP):
    def __call__(self, images, train=False):
        return super().__call__(1 - images, train=train)


class Farther(models.WithDistance):
    def __call__(self, images, *, train=False):
        return super().__call__(images, train=train).at[:, -1].multiply(10.0)


def body():
    return models.MLP(widths=(8,))


@pytest.mark.parametrize(
    ("own", "library", "part"),
    [
        (Classifier(body(), Reversed(3)), Classifier(body(), LinearHead(3)), "head 'Reversed'"),
        (Classifier(body(), Shifted(3)), Classifier(body(), SquareLogitHead(3)), "head 'Shifted'"),
        (Scaled(body(), LinearHead(3)), Classifier(body(), LinearHead(3)), "classifier 'Scaled'"),
        (Classifier(Negative((8,)), LinearHead(3)), Classifier(body(), LinearHead(3)), "backbone 'Negative'"),
        (
            Classifier(Farther(body()), SquareLogitHead(3)),
            Classifier(models.WithDistance(body()), SquareLogitHead(3)),
            "backbone 'Farther'",
        ),
    ],
)
def test_a_subclass_is_ones_own_network(tmp_path, own, library, part):
    variables = jax.jit(own.init)(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    path = tmp_path / "own.safetensors"
    weights.save(path, own, variables, image_shape=SHAPE)
    assert weights.load(path, model=own).model == own
    with pytest.raises(UserError, match=rf"its {part} is none of ours; give the model: load\(path, model=…\)"):
        weights.load(path)
    with pytest.raises(UserError, match=r"the file's (own code|backbone): "):
        weights.load(path, model=library)
    weights.save(path, library, variables, image_shape=SHAPE)
    assert weights.load(path, model=library).model == weights.load(path).model
    with pytest.raises(UserError, match=r"the file's (own code|backbone): "):
        weights.load(path, model=own)


@pytest.mark.parametrize("shape", [(7,), (5, 3), (2, 4, 4, 1)])
def test_inputs_of_any_rank(tmp_path, shape):
    model, path = make_classifier("mlp", "linear", num_classes=3, widths=(4,)), tmp_path / "a.safetensors"
    variables = model.init(jax.random.key(0), jnp.zeros((1, *shape)))
    weights.save(path, model, variables, image_shape=shape)
    assert weights.load(path).image_shape == shape


def test_another_distance_weight_is_another_network(tmp_path):
    model = Classifier(models.WithDistance(OwnBackbone(), weight=2.0), SquareLogitHead(3))
    variables = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    path = tmp_path / "own.safetensors"
    weights.save(path, model, variables, image_shape=SHAPE)
    jax.tree.map(np.testing.assert_array_equal, weights.load(path, model=model).variables, dict(variables))
    other = Classifier(models.WithDistance(OwnBackbone(), weight=3.0), SquareLogitHead(3))
    with pytest.raises(UserError, match=r"\"distance_weight\": 2.0\}; the given model's: .*\"distance_weight\": 3.0"):
        weights.load(path, model=other)


def test_state_dicts_of_torch_in_both_kinds_of_file(tmp_path):
    arrays = torch_files.lenet(11)
    pt = torch_files.save(tmp_path / "a.pth", torch_files.tensors(arrays))
    narrow = {name: value.astype(ml_dtypes.bfloat16) for name, value in arrays.items()}
    # As safetensors writes what torch gives it.
    safetensors.numpy.save_file(narrow, tmp_path / "a.safetensors", metadata={"format": "pt"})
    first, second = weights.load(pt, num_classes=10), weights.load(tmp_path / "a.safetensors", num_classes=10)
    for found in (first, second):
        assert (found.head, found.num_classes, found.image_shape) == ("none_class", 10, SHAPE)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2), first.variables, second.variables)
    assert weights.load(pt).head == weights.load(pt, num_classes=11).head == "linear"


@pytest.mark.parametrize("name", ["a.pth.tar", "a.ckpt", "a.PT", "a.Pth", "a.bin", "a", "a.safetensors", "a b.v2"])
def test_what_is_in_a_file_counts_and_not_its_name(tmp_path, name):
    for legacy in (False, True):
        path = torch_files.save(tmp_path / name, torch_files.tensors(torch_files.lenet()), legacy=legacy)
        assert weights.load(path).num_classes == 10
    model, variables, shape = network()
    weights.save(tmp_path / "ours.safetensors", model, variables, image_shape=shape)
    (tmp_path / "ours.safetensors").rename(tmp_path / name)
    assert weights.load(tmp_path / name).head == "square_logit"


def test_damaged_files(tmp_path):
    model, variables, shape = network()
    path = tmp_path / "a.safetensors"
    weights.save(path, model, variables, image_shape=shape)
    whole = path.read_bytes()
    for cut in range(0, len(whole), 97):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match=str(path)):
            weights.load(path)
    for at in range(0, len(whole), 23):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        # Whatever was hit, it is noticed: offsets by the reader, all else by the digest.
        with pytest.raises(UserError, match=str(path)):
            weights.load(path)


def forged(path, change):
    """A file with other metadata and a digest that fits."""
    model, variables, shape = network()
    weights.save(path, model, variables, image_shape=shape)
    with safetensors.safe_open(path, framework="np") as file:
        metadata = file.metadata()
    arrays = safetensors.numpy.load_file(path)
    metadata = {name: text for name, text in {**metadata, **change}.items() if name != "digest" and text}
    metadata["digest"] = digests.of_tree(arrays, notes=metadata)
    safetensors.numpy.save_file(arrays, path, metadata=metadata)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": "2"}, "of format 2, this version reads format 1"),
        ({"head": '{"name": "softmax"}'}, "describe no network"),
        ({"head": "[]"}, "describe no network"),
        ({"backbone": ""}, "describe no network"),
        ({"backbone": '{"name": "mlp", "widths": -3}'}, "describe no network"),
        ({"num_classes": "many"}, "describe no network"),
        ({"image_shape": "[8, 7]"}, "does not fit"),
        ({"image_shape": "8"}, "describe no network"),
        ({"image_shape": "[]"}, "describe no network"),
        ({"own_code": "[1]"}, "describe no network"),
        ({"own_code": '{"head": "Mine"}'}, r"its head 'Mine' is none of ours; give the model: load\(path, model=…\)"),
        ({"image_shape": "[-8, 8, 1]"}, "describe no network"),
        ({"num_classes": "4"}, "does not fit"),
        # What would take memory or time if it were made.
        ({"image_shape": "[16000, 16000, 3]"}, "at most 16,777,216 numbers"),
        ({"image_shape": "[4096, 4096, 1]"}, "does not fit"),
        ({"image_shape": "[8, 8, true]"}, "describe no network"),
        ({"image_shape": "[8, 8, 1e9]"}, "describe no network"),
        ({"image_shape": "[0, 8, 1]"}, "describe no network"),
        ({"num_classes": "1000000000"}, "describe no network"),
        ({"backbone": '{"name": "wide_resnet", "depth": 1200004}'}, "1200004 as depth, of which there are 8 arrays"),
        ({"backbone": '{"name": "wide_resnet", "depth": 4, "widen_factor": 1000000000000}'}, "describe no network"),
        ({"backbone": json.dumps({"name": "mlp", "widths": [8] * 100_000})}, "as widths, of which there are 8 arrays"),
        ({"backbone": '{"name": "mlp", "widths": [1000000000000, 6]}'}, "describe no network"),
        ({"backbone": '{"name": "mlp", "widths": ' + "[" * 5_000 + "]" * 5_000 + "}"}, "describe no network"),
        ({"num_classes": "1" + "0" * 30}, "describe no network"),
        ({"head": '{"name": "square_logit", "exponent": 3}'}, "describe no network"),
    ],
)
def test_metadata_that_make_no_sense(tmp_path, change, message):
    path = tmp_path / "a.safetensors"
    forged(path, change)
    with pytest.raises(UserError, match=message):
        weights.load(path)


def test_wrong_use(tmp_path, unannotated):
    model, variables, shape = network()
    with pytest.raises(UserError, match=r"does not end in \.safetensors"):
        weights.save(tmp_path / "a.npz", model, variables, image_shape=shape)
    with pytest.raises(UserError, match="'head' is written by itself"):
        weights.save(tmp_path / "a.safetensors", model, variables, image_shape=shape, metadata={"head": "x"})
    with pytest.raises(UserError, match="does not fit the model"):
        weights.save(tmp_path / "a.safetensors", model, network(head="linear")[1], image_shape=shape)
    other = model.clone(head=nn.Dense(3))
    shapes = jax.eval_shape(other.init, jax.random.key(0), jnp.zeros((1, *shape)))
    with pytest.raises(UserError, match="expected a LinearHead or a SquareLogitHead, got Dense"):
        weights.save(tmp_path / "a.safetensors", other, shapes, image_shape=shape)
    for change, message in (
        ({"image_shape": 6}, "image_shape is 6; expected that of one input"),
        ({"image_shape": (8, 0, 1)}, "image_shape must be at least 1, got 0"),
        ({"image_shape": (2**13, 2**13, 3)}, "expected at most 16,777,216 numbers"),
        ({"variables": None}, "the variables are a NoneType"),
        ({"model": None}, "the model is a NoneType"),
        ({"metadata": {"a": 1}}, "metadata are {'a': 1}; expected text by name"),
        ({"metadata": "a"}, "metadata are 'a'; expected text by name"),
        ({"arrays": {"a": "x"}}, "array 'a' is <U1; expected one of float64"),
        ({"arrays": {"a": np.ones(2, complex)}}, "array 'a' is complex128; expected one of float64"),
        ({"arrays": [1]}, "arrays are a list; expected arrays by name"),
        ({"path": None}, "the path is a NoneType"),
    ):
        good = {"path": tmp_path / "a.safetensors", "model": model, "variables": variables, "image_shape": shape}
        with pytest.raises(UserError, match=message):
            weights.save(**{**good, **change})
    with pytest.raises(UserError, match="the path is a NoneType"):
        weights.load(None)
    with pytest.raises(UserError, match="the model is a Dense"):
        weights.load(tmp_path / "a.safetensors", model=nn.Dense(3))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a.h5").write_bytes(b"\x89HDF and so on")
    with pytest.raises(DataError, match="unknown kind of weights"):
        weights.load(tmp_path / "a.h5")
    with pytest.raises(DataError, match="no such file"):
        weights.load(tmp_path / "a.safetensors")
    safetensors.numpy.save_file({"a": np.zeros(2, np.uint16)}, tmp_path / "a.safetensors")
    with pytest.raises(DataError, match="holds numbers of type 'U16'"):
        weights.load(tmp_path / "a.safetensors")


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.module."])
@pytest.mark.parametrize("name", ["a.pt", "a.PT", "a.pth.tar", "a.ckpt"])
def test_wrapped_networks_and_other_suffixes(tmp_path, prefix, name):
    arrays = torch_files.lenet()
    wrapped = {prefix + key: value for key, value in arrays.items()}
    path = torch_files.save(tmp_path / name, torch_files.tensors(wrapped))
    plain = torch_files.save(tmp_path / "plain.pt", torch_files.tensors(arrays))
    jax.tree.map(np.testing.assert_array_equal, weights.load(path).variables, weights.load(plain).variables)
