"""ResNets and ViTs as torchvision, timm and OpenOOD name them: logits against NumPy's, what is told or refused."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from preload_jax import torch_import, weights
from preload_jax.errors import UserError
from preload_jax.models import ResNet18, ResNet34, ResNet50, SquareLogitHead, ViT
from tests import torch_files
from tests.torch_networks import TIMM, TORCHVISION, resnet, resnet_logits, vit, vit_logits

# State dict, what it computes of images [n, 3, h, w], and the images' side.
CASES = {
    "torchvision, basic": (resnet(), resnet_logits, 8),
    "torchvision, basic, large stem": (resnet(stem=7), resnet_logits, 12),
    "torchvision, bottleneck": (resnet((1, 1), bottleneck=True, width=2), resnet_logits, 7),
    "OpenOOD": (
        resnet(shortcut="shortcut", final="linear"),
        lambda state, images: resnet_logits(state, images, shortcut="shortcut", final="linear"),
        8,
    ),
    "timm, ViT": (vit(), lambda state, images: vit_logits(state, images, heads=2), 8),
    "torchvision, ViT": (
        vit(TORCHVISION),
        lambda state, images: vit_logits(state, images, heads=2, names=TORCHVISION),
        8,
    ),
}


def options(name):
    return {"heads": 2} if "ViT" in name else {}


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_the_equations(name):
    state, logits, side = CASES[name]
    images = np.random.default_rng(1).uniform(size=(2, side, side, 3))
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    model, variables = torch_import.load(state, mean=mean, std=std, **options(name))
    found = jax.jit(model.apply)(variables, jnp.asarray(images, jnp.float32))
    expected = logits(state, ((images - mean) / std).transpose(0, 3, 1, 2))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_files_of_torch_and_of_safetensors_and_wrapped_names_are_the_same(name, tmp_path):
    state, _, _ = CASES[name]
    expected = torch_import.load(state, **options(name))
    wrapped = {f"module.{tensor}": value for tensor, value in state.items()}
    lightning = {f"model.net.{tensor}": value for tensor, value in state.items()}
    lightning["model.net.bn1.num_batches_tracked"] = np.array(3)
    safetensors.numpy.save_file(state, tmp_path / "a.safetensors")
    torch_files.save(tmp_path / "a.pth", {"epoch": 3, "state_dict": torch_files.tensors(wrapped)})
    for found in (
        torch_import.load(wrapped, **options(name)),
        torch_import.load(lightning, **options(name)),
        torch_import.load(tmp_path / "a.pth", **options(name)),
    ):
        assert found[0] == expected[0]
        jax.tree.map(np.testing.assert_array_equal, found[1], expected[1])
    loaded = weights.load(tmp_path / "a.safetensors", **options(name))
    jax.tree.map(np.testing.assert_array_equal, loaded.variables, expected[1])
    assert (loaded.head, loaded.num_classes) == ("linear", 3)
    assert loaded.image_shape == torch_import.image_shape(expected[1])


def test_what_the_tensors_tell():
    def backbone(state, **given):
        return torch_import.load(state, **given)[0].backbone

    assert backbone(resnet((1, 2), width=2)) == ResNet18(blocks=(1, 2), width=2, stem="cifar")
    assert backbone(resnet((3, 4, 6, 3), width=1)) == ResNet34(width=1, stem="cifar")
    assert backbone(resnet((1, 2), width=2, bottleneck=True, stem=7)) == ResNet50(
        blocks=(1, 2), width=2, stem="imagenet"
    )
    assert backbone(vit(depth=1, width=64, hidden=6)) == ViT(patch=4, depth=1, width=64, heads=1, hidden=6)
    assert backbone(vit(depth=1, width=1280)).heads == 16
    for state, given, shape in (
        (resnet(), {}, (32, 32, 3)),
        (resnet(stem=7), {}, (224, 224, 3)),
        (vit(patches=9), {"heads": 4}, (12, 12, 3)),
    ):
        assert torch_import.image_shape(torch_import.load(state, **given)[1]) == shape


def test_an_ood_class_of_preload_is_read():
    state = {f"network_part1.{name}": value for name, value in resnet().items()}
    state |= {"network_part2.fc.weight": np.ones((1, 8), np.float32), "network_part2.fc.bias": np.ones(1, np.float32)}
    model, variables = torch_import.load(state, num_classes=3)
    assert isinstance(model.head, SquareLogitHead)
    assert variables["params"]["head"]["ood"]["raw_weights"].shape == (8,)
    assert torch_import.load(resnet(classes=4), num_classes=3)[0].head.none_class


def test_narrow_numbers_and_old_names():
    state = vit(TORCHVISION)
    old = {name.replace("mlp.0", "mlp.linear_1").replace("mlp.3", "mlp.linear_2"): state[name] for name in state}
    expected = torch_import.load(state, heads=2)[1]
    jax.tree.map(np.testing.assert_array_equal, torch_import.load(old, heads=2)[1], expected)
    half = {name: value.astype(ml_dtypes.bfloat16) for name, value in state.items()}
    found = torch_import.load(half, heads=2)[1]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2), found, expected)


def without(state, *names):
    return {name: value for name, value in state.items() if name not in names}


_RESNET = "not that of a ResNet of basic or bottleneck blocks"
_VIT = "not that of a ViT with a class token"


@pytest.mark.parametrize(
    ("state", "given", "message"),
    [
        (without(resnet(), "bn1.bias"), {}, f"{_RESNET}: it lacks bn1.bias"),
        (without(resnet(), "fc.weight", "fc.bias"), {}, f"{_RESNET}: it lacks fc.bias, fc.weight"),
        (
            without(resnet(), "conv1.weight") | {"conv1.0.weight": np.ones(1)},
            {},
            "lacks conv1.weight, and it also has c",
        ),
        (
            resnet() | {f"layer1.0.se.fc{i}.bias": np.ones(2) for i in range(6)},
            {},
            "it also has layer1.0.se.fc0.bias, layer1.0.se.fc1.bias, .*fc3.bias and 2 more$",
        ),
        (without(resnet((2, 1)), "layer1.1.bn2.running_var"), {}, "it lacks layer1.1.bn2.running_var$"),
        (resnet(stem=5), {}, "the first convolution is 5×5; expected 3×3 or 7×7"),
        (
            resnet() | {"layer2.0.conv1.weight": np.ones((8, 2, 3, 3))},
            {},
            r"layer2.0.conv1.weight, for .*block0/conv1/kernel, has shape \(3, 3, 2, 8\), expected \(3, 3, 4, 8\)",
        ),
        (without(vit(), "norm.bias"), {"heads": 2}, f"{_VIT}: it lacks norm.bias$"),
        (vit() | {"blocks.1.ls1.gamma": np.ones(8)}, {"heads": 2}, f"{_VIT}: it also has blocks.1.ls1.gamma$"),
        (without(vit(TORCHVISION), "class_token"), {"heads": 2}, f"{_VIT}: it lacks class_token$"),
        (vit(depth=0), {"heads": 2}, f"{_VIT}: it has no blocks"),
        (vit(), {}, "no tensor says how many heads a ViT of width 8 has; give heads, as in heads=4"),
        (vit(), {"heads": 3}, "heads must divide the width 8, got 3"),
        (vit(patches=5), {"heads": 2}, "patches of 4×4 and 6 positions; expected square patches"),
        (resnet(), {"heads": 2}, "heads are of a ViT, the state dict is of a resnet18"),
        (resnet(), {"mean": (0.5,), "std": (0.2,)}, "normalises 1 channels, the images have 3"),
        (resnet(), {"mean": (0.5,) * 3}, "mean and std must both be given"),
        (resnet(), {"mean": "half", "std": 2}, "mean and std must hold a number a channel"),
        (torch_files.lenet(), {"mean": (0.5,), "std": (0.2,)}, "mean and std are for ResNets and ViTs"),
    ],
)
def test_what_is_refused(state, given, message, unannotated):
    with pytest.raises(UserError, match=message):
        torch_import.load(state, **given)


@pytest.mark.parametrize("name", ["torchvision, bottleneck", "timm, ViT"])
def test_a_tensor_of_another_shape_is_a_user_error(name):
    state, _, _ = CASES[name]
    for tensor, value in list(state.items())[::3]:
        for changed in (value[..., None], value.reshape(-1)[:-1], np.float32(1)):
            with pytest.raises(UserError):
                torch_import.load(state | {tensor: changed}, **options(name))


def test_options_of_torch_s_files_are_not_for_our_own(tmp_path):
    model, variables = torch_import.load(vit(TIMM), heads=2, mean=(0.4, 0.5, 0.6), std=(0.2, 0.2, 0.2))
    weights.save(tmp_path / "a.safetensors", model, variables, image_shape=(8, 8, 3))
    assert weights.load(tmp_path / "a.safetensors").model.backbone.mean == (0.4, 0.5, 0.6)
    with pytest.raises(UserError, match="heads, mean and std are for torch's state dicts"):
        weights.load(tmp_path / "a.safetensors", heads=2)
