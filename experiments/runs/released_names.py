"""What the names of the released code's files say."""

import re
from pathlib import Path

# MNIST_preload_1.pt is one.
_RELEASED_DATASETS = {
    "MNIST": "mnist",
    "FMNIST": "fashion_mnist",
    "SVHN": "svhn",
    "CIFAR10": "cifar10",
    "CIFAR100": "cifar100",
}
_RELEASED_METHODS = {
    "plain": "standard",
    "noneclass": "nc",
    "oe": "oe",
    "preload": "preload",
    "oe_finetuning": "oe_ft",
    "doe_ft": "doe_ft",
    "energy_finetuning": "energy_ft",
    "preload_ft": "preload_ft",
}


def told(path: Path) -> dict[str, str]:
    """What a file's name says, where the released code gave it; else nothing."""
    match = re.fullmatch(rf"({'|'.join(_RELEASED_DATASETS)})_({'|'.join(_RELEASED_METHODS)})_(\d+)", path.stem)
    if match is None:
        return {}
    dataset, method, seed = match.groups()
    return {"dataset": _RELEASED_DATASETS[dataset], "method": _RELEASED_METHODS[method], "seed": seed}
