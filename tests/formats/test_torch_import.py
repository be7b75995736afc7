"""Parity with the released PyTorch code: logits, loss, gradient norms and BN statistics from the same weights."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from preload_jax.errors import UserError
from preload_jax.formats import torch_import
from preload_jax.models import SquareLogitHead
from tests import torch_files
from tests.golden import rebuild

MODELS = ["preload_lenet", "preload_wrn16_4_eval", "preload_wrn16_4_train"]


def run(name):
    """Loss, logits, gradients as torch names them, and the BN statistics after, in the reference's mode."""
    reference = rebuild.REFERENCE["models"][name]
    model, variables = torch_import.load(rebuild.state_dict(name))
    train = reference["mode"].startswith("train")
    if train:
        model = model.clone(backbone=model.backbone.clone(dropout=0.0))
    images, labels = jnp.asarray(rebuild.images(name)), jnp.asarray(reference["labels"])

    def loss_fn(params):
        logits, updates = model.apply(
            {**variables, "params": params}, images, train=train, mutable=["batch_stats"] if train else []
        )
        losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
        return losses.mean(), (logits, updates)

    (loss, (logits, updates)), gradients = jax.jit(jax.value_and_grad(loss_fn, has_aux=True))(variables["params"])
    return reference, loss, logits, gradients, updates


def leaves(tree):
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def places(name):
    """The name of each tensor → where it goes: to the leaf that has the number which the tensor is filled with."""
    filled = {tensor: np.full_like(value, i) for i, (tensor, value) in enumerate(rebuild.state_dict(name).items())}
    found = {float(leaf.ravel()[0]): place for place, leaf in leaves(torch_import.load(filled)[1]).items()}
    return {tensor: found[i] for i, tensor in enumerate(filled) if i in found}


@pytest.mark.parametrize("name", MODELS)
def test_logits_loss_and_gradient_norms(name):
    reference, loss, logits, gradients, _ = run(name)
    np.testing.assert_allclose(logits, np.array(reference["logits"]), rtol=1e-4, atol=2e-4)
    np.testing.assert_allclose(loss, reference["loss"], rtol=1e-4)
    place, gradients = places(name), leaves({"params": gradients})
    for torch_name, norm in reference["grad_norms"].items():
        got = jnp.linalg.norm(gradients[place[torch_name]].reshape(-1))
        np.testing.assert_allclose(got, norm, rtol=2e-3, err_msg=torch_name)


def test_batch_norm_statistics_after_one_training_step():
    reference, *_, updates = run("preload_wrn16_4_train")
    before = leaves(torch_import.load(rebuild.state_dict("preload_wrn16_4_train"))[1])
    place, updates = places("preload_wrn16_4_train"), leaves(updates)
    # Batch variance over n values: torch keeps the unbiased one, n/(n-1) times ours.
    values = {1: 4 * 32 * 32, 2: 4 * 16 * 16, 3: 4 * 8 * 8}
    for torch_name, (mean, norm) in reference["running_after"].items():
        got = np.asarray(updates[place[torch_name]], np.float64)
        if torch_name.endswith("running_var"):
            n = values[_resolution(torch_name)]
            old = np.asarray(before[place[torch_name]], np.float64)
            got = 0.9 * old + (got - 0.9 * old) * n / (n - 1)
        np.testing.assert_allclose([got.mean(), np.linalg.norm(got)], [mean, norm], rtol=1e-4, atol=1e-5)


def _resolution(torch_name):
    """Which of the three image sizes a BN layer sees: a group's first bn1 still sees the previous group's."""
    parts = torch_name.split(".")[1:]
    if parts[0] == "bn1":
        return 3
    group, block = int(parts[0].removeprefix("block")), int(parts[2])
    return max(group - 1, 1) if (block == 0 and parts[3] == "bn1") else group


def test_none_class_head_is_named_by_the_caller():
    plain = {k: v for k, v in rebuild.state_dict("preload_lenet").items() if "part2" not in k}
    model, _ = torch_import.load(plain)
    assert model.head.num_outputs == 10
    model, _ = torch_import.load(plain, head="none_class")
    assert model.head.num_outputs == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: {"a.weight": d["network_part1.fc1.weight"]}, "of no network that is known"),
        (lambda d: {k: v for k, v in d.items() if k != "network_part1.fc1.bias"}, "lacks the tensor for .*dense/bias"),
        (lambda d: d | {"network_part1.fc3.bias": np.zeros(3)}, "unexpected tensor of 'fc3'"),
        (
            lambda d: d | {"network_part1.conv2.bias": np.zeros(3)},
            r"conv2.bias, for params/backbone/conv2/bias, has shape \(3,\), expected \(64,\)",
        ),
        (lambda d: d | {"network_part1.fc1.weight": np.zeros((1024, 100))}, "square map"),
    ],
)
def test_wrong_state_dicts(change, message):
    with pytest.raises(UserError, match=message):
        torch_import.load(change(rebuild.state_dict("preload_lenet")))


@pytest.mark.parametrize(
    ("num_outputs", "square_logit", "prefix", "outputs"),
    [(10, False, "", 10), (11, False, "module.", 11), (10, True, "", 11), (10, True, "_orig_mod.module.", 11)],
    ids=["seven of the methods", "NC", "PreLoad", "PreLoad, compiled"],
)
def test_what_the_released_code_saves(tmp_path, num_outputs, square_logit, prefix, outputs):
    arrays = torch_files.lenet(num_outputs, prefix=prefix, square_logit=square_logit)
    arrays |= {f"{prefix}bn1.num_batches_tracked": np.array(7)}
    path = torch_files.save(tmp_path / "a.pt", torch_files.tensors(arrays))
    model, variables = torch_import.load(path, num_classes=10)
    assert jax.eval_shape(model.apply, variables, jnp.zeros((1, 8, 8, 1))).shape == (1, outputs)
    assert torch_import.image_shape(variables) == (8, 8, 1)
    assert isinstance(model.head, SquareLogitHead) == square_logit
    same = torch_import.load(arrays)[1]
    jax.tree.map(np.testing.assert_array_equal, variables, same)


def test_image_shapes_by_the_first_convolution_and_what_follows_the_last():
    def shape(**layers):
        backbone = {name: {"kernel": np.zeros(size)} for name, size in layers.items()}
        return torch_import.image_shape({"params": {"backbone": backbone}})

    assert shape(conv=(3, 3, 1, 16)) == (32, 32, 1)
    assert shape(conv1=(5, 5, 3, 8), dense=(64 * 3 * 3, 5)) == (12, 12, 3)


def test_narrow_numbers_become_float32(tmp_path):
    arrays = torch_files.lenet()
    for kind, tolerance in ((np.float16, 1e-3), (ml_dtypes.bfloat16, 1e-2), (np.float64, 0.0)):
        given = torch_files.tensors({name: value.astype(kind) for name, value in arrays.items()})
        _, variables = torch_import.load(torch_files.save(tmp_path / "a.pt", given))
        kernel = variables["params"]["head"]["linear"]["kernel"]
        assert kernel.dtype == np.float32
        np.testing.assert_allclose(kernel, arrays["fc2.weight"].T, rtol=tolerance)


def test_numbers_of_classes_that_do_not_fit():
    with pytest.raises(UserError, match=r"12 outputs, expected 10 classes \(or 11 outputs with NC's extra class\)"):
        torch_import.load(torch_files.lenet(12), num_classes=10)
    with pytest.raises(UserError, match="9 outputs, expected 10 classes"):
        torch_import.load(torch_files.lenet(9), num_classes=10)
    with pytest.raises(UserError, match=r"11 outputs, expected 10 classes$"):
        torch_import.load(torch_files.lenet(11, square_logit=True), num_classes=10)


def test_other_state_dicts():
    whole = torch_files.lenet()
    with pytest.raises(UserError, match="OOD class's layer alone"):
        torch_import.load({"fc.weight": np.ones((1, 16)), "fc.bias": np.ones(1)})
    with pytest.raises(UserError, match=r"two tensors for fc2\.bias"):
        torch_import.load(whole | {"module.fc2.bias": np.zeros(10)})
    # The last is infinite as float32.
    for value in (np.nan, np.inf, -np.inf, 1e300):
        with pytest.raises(UserError, match="holds NaN or infinity"):
            torch_import.load(whole | {"fc2.bias": np.full(10, value)})


@pytest.mark.parametrize("name", ["lenet", "preload_wrn16_4_eval"])
def test_a_tensor_that_is_missing_or_of_another_shape_is_a_user_error(name):
    whole = torch_files.lenet() if name == "lenet" else rebuild.state_dict(name)
    for tensor, value in list(whole.items())[:: 1 if name == "lenet" else 17]:
        if "network_part2" in tensor:  # One row or one number, however it is laid out.
            continue
        changes = [value[..., None], value[None], value.reshape(-1)[:-1], value.reshape(-1)[:0], np.float32(1)]
        for changed in (whole | {tensor: change} for change in changes if change.shape != value.shape):
            with pytest.raises(UserError):
                torch_import.load(changed)
        with pytest.raises(UserError):
            torch_import.load({key: item for key, item in whole.items() if key != tensor})


def test_complex_numbers_are_refused():
    arrays = torch_files.lenet()
    arrays["fc1.bias"] = arrays["fc1.bias"] * 1j
    with pytest.raises(UserError, match=r"fc1\.bias holds complex64 numbers; expected real ones"):
        torch_import.load(arrays)
