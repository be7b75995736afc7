"""The same networks and the same loop in plain PyTorch, to measure against: PreLoad from random weights.

Float32, images at rest as uint8 on the device, one shuffle an epoch, no augmentation.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)


class LeNet(nn.Sequential):
    width = 1024

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 7 * 7, self.width),
            nn.ReLU(),
        )


class _Block(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(channels_in), nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        changes = channels_in != channels
        self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(y)
        y = F.dropout(F.relu(self.norm2(self.conv1(y))), 0.3, self.training)
        return shortcut + self.conv2(y)


class WideResNet(nn.Module):
    """WideResNet-16-4."""

    width = 256

    def __init__(self) -> None:
        super().__init__()
        blocks, before = [], 16
        for channels, stride in ((64, 1), (128, 2), (256, 2)):
            blocks += [_Block(before, channels, stride), _Block(channels, channels, 1)]
            before = channels
        self.conv, self.blocks = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(self.width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.blocks(self.conv(x)))).mean((2, 3))


class PreLoad(nn.Module):
    """A backbone, K linear logits and the square logit exp(w')ᵀ G(x)² + b."""

    def __init__(self, backbone: nn.Module, num_classes: int) -> None:
        super().__init__()
        self.backbone, self.linear = backbone, nn.Linear(backbone.width, num_classes)  # type: ignore[arg-type]
        self.raw_weights, self.bias = nn.Parameter(torch.zeros(backbone.width)), nn.Parameter(torch.zeros(1))  # type: ignore[arg-type]

    def forward(self, images: Tensor) -> Tensor:
        features = self.backbone(images)
        ood = features.square() @ self.raw_weights.exp() + self.bias
        return torch.cat([self.linear(features), ood[:, None]], 1)


# What one may set without another network.
CONFIGURATIONS = ("default", "channels_last", "compiled")


class Training:
    """Steps and inference of one network on random images.

    `configuration`: "default"; "channels_last", the memory layout of weights and images; or "compiled", by
    `torch.compile`, which needs a C++ compiler on a CPU and raises an error without one.
    """

    def __init__(
        self, network: str, *, num_images: int, batch_size: int, num_classes: int = 10, configuration: str = "default"
    ) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        shape = (1, 28, 28) if network == "lenet" else (3, 32, 32)
        backbone = LeNet() if network == "lenet" else WideResNet()
        self.layout = torch.channels_last if configuration == "channels_last" else torch.contiguous_format
        self.model = PreLoad(backbone, num_classes).to(self.device, memory_format=self.layout)
        self.forward: Callable[[Tensor], Tensor] = self.model
        if configuration == "compiled":
            torch.compile(torch.neg)(torch.ones(2))  # an error here, if it cannot compile
            self.forward = torch.compile(self.model)
        if network == "lenet":
            self.optimizer: torch.optim.Optimizer = torch.optim.Adam(self.model.parameters(), 1e-3, weight_decay=5e-4)
        else:
            self.optimizer = torch.optim.SGD(
                self.model.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4
            )
        self.images, self.outliers = (
            torch.randint(0, 256, (num_images, *shape), dtype=torch.uint8, device=self.device) for _ in range(2)
        )
        self.labels = torch.randint(0, num_classes, (num_images,), device=self.device)
        self.ood_labels = torch.full((batch_size,), num_classes, device=self.device)
        self.batch_size, self.num_images = batch_size, num_images

    def steps(self, count: int) -> None:
        """So many steps of an epoch; returns when they are done."""
        self.model.train()
        orders = [torch.randperm(self.num_images, device=self.device) for _ in range(2)]
        for i in range(count):
            rows, ood_rows = (order[i * self.batch_size : (i + 1) * self.batch_size] for order in orders)
            images = self._floats(torch.cat([self.images[rows], self.outliers[ood_rows]]))
            self.optimizer.zero_grad()
            logits = self.forward(images)
            loss = F.cross_entropy(logits[: self.batch_size], self.labels[rows])
            loss = loss + F.cross_entropy(logits[self.batch_size :], self.ood_labels)
            loss.backward()
            self.optimizer.step()
        self._wait()

    def infer(self, count: int) -> None:
        """Logits of so many images."""
        self.model.eval()
        with torch.inference_mode():
            self.forward(self._floats(self.images[:count]))
        self._wait()

    def _floats(self, images: Tensor) -> Tensor:
        return (images.float() / 255).contiguous(memory_format=self.layout)

    def peak_bytes(self) -> int | None:
        """On the device; None on a CPU."""
        return torch.cuda.max_memory_allocated() if self.device.type == "cuda" else None

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
