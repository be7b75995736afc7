"""Logits of torchvision's and timm's own networks, with random weights and statistics, saved by torch itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import torch_import
from tests.torchvision_for_cpus import timm, torchvision

torch = pytest.importorskip("torch", reason="needs torch, of the extra parity")


class BasicBlock(torch.nn.Module):
    """As in OpenOOD's ResNet18_32x32, which follows kuangliu's: names and order of the tensors."""

    def __init__(self, before, channels, stride):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(channels)
        self.conv2 = torch.nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(channels)
        self.shortcut = torch.nn.Sequential()
        if stride != 1 or before != channels:
            convolution = torch.nn.Conv2d(before, channels, 1, stride, bias=False)
            self.shortcut = torch.nn.Sequential(convolution, torch.nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.shortcut(x))


class SmallImages(torch.nn.Module):
    """A ResNet-18 for images of 32 pixels."""

    def __init__(self, width=8, classes=5):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(width)
        before = width
        for group in range(4):
            channels = width * 2**group
            first = BasicBlock(before, channels, 1 if group == 0 else 2)
            setattr(self, f"layer{group + 1}", torch.nn.Sequential(first, BasicBlock(channels, channels, 1)))
            before = channels
        self.fc = torch.nn.Linear(before, classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean(dim=(2, 3)))


def torchvision_resnet(name):
    return torchvision().models.get_model(name, num_classes=5)


def torchvision_vit():
    options = {"image_size": 16, "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 32, "mlp_dim": 48}
    return torchvision().models.VisionTransformer(**options, num_classes=5)


def timm_vit():
    options = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 4, "num_classes": 5}
    return timm().models.vision_transformer.VisionTransformer(**options)


# What makes the network, the images' side, what no tensor tells.
NETWORKS = {
    "torchvision resnet18": (lambda: torchvision_resnet("resnet18"), 40, {}),
    "torchvision resnet34": (lambda: torchvision_resnet("resnet34"), 33, {}),
    "torchvision resnet50": (lambda: torchvision_resnet("resnet50"), 40, {}),
    "torchvision vit": (torchvision_vit, 16, {"heads": 2}),
    "timm resnet18": (lambda: timm().create_model("resnet18", num_classes=5), 40, {}),
    "timm resnet50": (lambda: timm().create_model("resnet50", num_classes=5), 40, {}),
    "timm vit": (timm_vit, 16, {"heads": 4}),
    "OpenOOD resnet18_32x32": (lambda: torch.nn.DataParallel(SmallImages()), 16, {}),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_are_torch_s(name, tmp_path):
    make, side, options = NETWORKS[name]
    torch.manual_seed(0)
    network = make()
    # What torch begins with is too plain: no offsets, statistics of 0 and 1, a last layer of zeros.
    generator = torch.Generator().manual_seed(1)
    for tensor_name, tensor in network.state_dict().items():
        if tensor_name.endswith("running_var"):
            tensor.uniform_(0.5, 2.0, generator=generator)
        elif tensor.dtype == torch.float32 and tensor.ndim == 1:
            offset = 0.0 if tensor_name.endswith(("bias", "running_mean")) else 1.0
            tensor.normal_(offset, 0.2, generator=generator)
        elif tensor_name.endswith(("fc.weight", "head.weight")):
            tensor.normal_(0.0, tensor.shape[1] ** -0.5, generator=generator)
    images = torch.rand((2, 3, side, side), generator=generator)
    with torch.no_grad():
        expected = network.eval()(images).numpy()
    torch.save(network.state_dict(), tmp_path / "a.pt")
    model, variables = torch_import.load(tmp_path / "a.pt", **options)
    found = jax.jit(model.apply)(variables, jnp.asarray(images.permute(0, 2, 3, 1).numpy()))
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max(), rtol=1e-4)
