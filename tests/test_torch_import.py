"""Parity with the released PyTorch code: logits, loss, gradient norms and BN statistics from the same weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import torch_import
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


def at(tree, path):
    for key in path:
        tree = tree[key]
    return tree


@pytest.mark.parametrize("name", MODELS)
def test_logits_loss_and_gradient_norms(name):
    reference, loss, logits, gradients, _ = run(name)
    np.testing.assert_allclose(logits, np.array(reference["logits"]), rtol=1e-4, atol=2e-4)
    np.testing.assert_allclose(loss, reference["loss"], rtol=1e-4)
    backbone = "lenet" if "lenet" in name else "wide_resnet"
    for torch_name, norm in reference["grad_norms"].items():
        path, _ = torch_import._target(torch_import._strip(torch_name), backbone)
        got = jnp.linalg.norm(at({"params": gradients}, path).reshape(-1))
        np.testing.assert_allclose(got, norm, rtol=2e-3, err_msg=torch_name)


def test_batch_norm_statistics_after_one_training_step():
    reference, *_, updates = run("preload_wrn16_4_train")
    before = torch_import.load(rebuild.state_dict("preload_wrn16_4_train"))[1]
    # Batch variance over n values: torch keeps the unbiased one, n/(n-1) times ours.
    values = {1: 4 * 32 * 32, 2: 4 * 16 * 16, 3: 4 * 8 * 8}
    for torch_name, (mean, norm) in reference["running_after"].items():
        path, _ = torch_import._target(torch_import._strip(torch_name), "wide_resnet")
        got = np.asarray(at(updates, path), np.float64)
        if torch_name.endswith("running_var"):
            n = values[_resolution(path[2:])]
            old = np.asarray(at(before, path), np.float64)
            got = 0.9 * old + (got - 0.9 * old) * n / (n - 1)
        np.testing.assert_allclose([got.mean(), np.linalg.norm(got)], [mean, norm], rtol=1e-4, atol=1e-5)


def _resolution(module):
    """Which of the three image sizes a BN layer sees: a group's first bn1 still sees the previous group's."""
    if module[0] == "bn":
        return 3
    group, block = int(module[0][5]), int(module[0][-1])
    return max(group - 1, 1) if (block == 0 and module[1] == "bn1") else group


def test_none_class_head_is_named_by_the_caller():
    plain = {k: v for k, v in rebuild.state_dict("preload_lenet").items() if "part2" not in k}
    model, _ = torch_import.load(plain)
    assert model.head.num_outputs == 10
    model, _ = torch_import.load(plain, head="none_class")
    assert model.head.num_outputs == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: {"a.weight": d["network_part1.fc1.weight"]}, "neither the released LeNet nor WideResNet"),
        (lambda d: {k: v for k, v in d.items() if k != "network_part1.fc1.bias"}, "lacks the tensor for .*dense/bias"),
        (lambda d: d | {"network_part1.fc3.bias": np.zeros(3)}, "unexpected tensor of 'fc3'"),
        (lambda d: d | {"network_part1.conv2.bias": np.zeros(3)}, r"conv2/bias has shape \(3,\), expected \(64,\)"),
        (lambda d: d | {"network_part1.fc1.weight": np.zeros((1024, 100))}, "square map"),
    ],
)
def test_wrong_state_dicts(change, message):
    with pytest.raises(ValueError, match=message):
        torch_import.load(change(rebuild.state_dict("preload_lenet")))
