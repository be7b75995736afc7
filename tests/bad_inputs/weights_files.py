"""Weights files and images that `evaluate` and `predict` cannot take.

HERE/standard is a finished run of three epochs.
"""

import numpy as np

from tests import torch_files, torch_networks
from tests.bad_inputs import command
from tests.torch_files import Call, Name


def pt(value):
    """Writes HERE/a.pt as torch would."""
    return lambda folder: torch_files.save(folder / "a.pt", value)


def linear(num_outputs=10):
    return pt(torch_files.tensors(torch_files.lenet(num_outputs)))


def resnet(*, lacks=None, more=None):
    state = {name: value for name, value in torch_networks.resnet().items() if name != lacks}
    return pt(torch_files.tensors(state | ({more: np.ones(2, np.float32)} if more else {})))


def text(name):
    return lambda folder: (folder / name).write_text("hello, I am no such file")


def unfinished(folder):
    (folder / "standard" / "results.json").unlink()


_EVALUATE = "evaluate --weights=HERE/a.pt --dataset=digits"
_EXPECTED = "expected what torch.save(model.state_dict(), FILE) writes"
_METHODS = "--method=standard, ddu, oe, oe_ft, doe_ft or energy_ft"
_PREDICT = "predict --run=HERE/standard"
_EITHER = "give either --run=DIR, a finished run, or --weights=FILE (.safetensors, .pt or .pth)"

ROWS = [
    command("export --out=HERE/a", _EITHER),
    command("export --run=HERE/standard", "nothing to write; give --out=FILE, or --onnx=FILE"),
    command("export --run=HERE/standard --out=HERE", "HERE is a folder; expected a file's name"),
    command(
        "export --run=HERE/standard --out=HERE/a",
        "no results.json in HERE/standard: the run is not finished; run it again to go on with it",
        did="`export` of a run that is not finished",
        prepare=unfinished,
    ),
    command("watch", "give either --program=FILE, of experiments.export, or --run=DIR, a finished run"),
    command(
        "watch --program=HERE/none",
        "HERE/none: no such file; expected a program, as save_program writes it",
    ),
    command(
        "watch --program=HERE/a.program",
        "HERE/a.program: not a readable safetensors file (…); copy or export it again",
        prepare=text("a.program"),
    ),
    command("watch --run=HERE/standard --error=1 HERE", "error must lie between 0 and 1, both excluded, got 1.0"),
    command("evaluate", "give one of --run=DIR, a finished run, --weights=FILE, and --features=TRAIN.npz,TEST.npz"),
    command("evaluate --run=HERE/standard --weights=HERE/a.pt", _EITHER),
    command("evaluate --run=HERE/none", "HERE/none: no such folder; HERE holds …; expected the folder of a run"),
    command(
        "evaluate --run=HERE/standard",
        "no results.json in HERE/standard: the run is not finished; run it again to go on with it",
        did="`evaluate` of a run that is not finished",
        prepare=unfinished,
    ),
    command(
        "evaluate --run=HERE/standard --method=oe",
        "--method=oe is for --weights; a run says itself what it is",
    ),
    command(
        "evaluate --run=HERE/standard --ood=photos",
        "unknown OOD set 'photos' (did you mean 'photo'?); expected one of …",
    ),
    command(
        "evaluate --run=HERE/standard --ood=uniform,folder:HERE/none",
        "--ood folder:HERE/none: no such folder; expected a folder of images",
    ),
    command(
        "evaluate --run=HERE/standard --ood=HERE/none.npy",
        "--ood HERE/none.npy: no such file; expected a file of images",
    ),
    command(
        "evaluate --run=HERE/standard --ood=svhn",
        "svhn is not prepared in HERE/data; run `python -m experiments.prepare_data --dataset=svhn` (add --source=DIR"
        " if you already have the files)",
    ),
    command(
        "evaluate --run=HERE/standard --export=HERE/a.npz",
        "HERE/a.npz does not end in .safetensors, the format that is written",
    ),
    command(
        "evaluate --run=HERE/standard --export=HERE/a.safetensors --ood=uniform",
        "--ood is of an evaluation, and --export makes none; leave one out",
    ),
    command(
        "evaluate --weights=HERE/none.pt",
        "HERE/none.pt: no such file; expected a .safetensors file, or what torch.save writes",
    ),
    command(
        "evaluate --weights=HERE/a.h5",
        "HERE/a.h5: unknown kind of weights; expected a .safetensors file, or what torch.save writes",
        did="A text file as .h5",
        prepare=text("a.h5"),
    ),
    command(
        _EVALUATE,
        f"HERE/a.pt: not a readable state dict (UnpicklingError: it asks for 'os.system', …); {_EXPECTED}",
        did="A .pt file with code in it, which is not run",
        prepare=pt({"a.weight": Call(Name("os", "system"), ("touch ran",))}),
    ),
    command(
        _EVALUATE,
        f"HERE/a.pt: not a readable state dict (UnpicklingError: it asks for 'models.LeNetMadry', …); {_EXPECTED}",
        did="A .pt file of a whole Python object",
        prepare=pt(Name("models", "LeNetMadry")),
    ),
    command(
        _EVALUATE,
        f"HERE/a.pt: not a readable state dict (…); {_EXPECTED}",
        did="A text file as .pt",
        prepare=text("a.pt"),
    ),
    command(
        _EVALUATE,
        f"HERE/a.pt does not say its method, which decides the score; give {_METHODS}",
        did="A linear network without `--method`",
        prepare=linear(),
    ),
    command(
        "evaluate --weights=HERE/a.pt",
        "HERE/a.pt does not say what it was trained on; give --dataset",
        did="A .pt file without `--dataset`",
        prepare=linear(),
    ),
    command(
        f"{_EVALUATE} --method=preload",
        "HERE/a.pt holds a network with a linear head (10 classes); preload needs a square_logit head: give another"
        " --method",
        did="A linear network with `--method=preload`",
        prepare=linear(),
    ),
    command(
        _EVALUATE,
        "HERE/a.pt: the state dict is of a network of 7 outputs, expected 10 classes (or 11 outputs with NC's extra"
        " class)",
        did="A network of other classes",
        prepare=linear(7),
    ),
    command(
        _EVALUATE,
        "HERE/a.pt: the state dict is not that of a ResNet of basic or bottleneck blocks: it lacks bn1.bias",
        did="A ResNet's checkpoint that lacks a tensor",
        prepare=resnet(lacks="bn1.bias"),
    ),
    command(
        _EVALUATE,
        "HERE/a.pt: the state dict is not that of a ResNet of basic or bottleneck blocks: it also has"
        " layer1.0.se.weight",
        did="A ResNet's checkpoint with a tensor more",
        prepare=resnet(more="layer1.0.se.weight"),
    ),
    command(
        "evaluate --weights=HERE/a.safetensors",
        "HERE/a.safetensors: not a readable safetensors file (…); copy or export it again",
        did="A text file as .safetensors",
        prepare=text("a.safetensors"),
    ),
    command(_PREDICT, "no images; give at least one file"),
    command(f"{_PREDICT} HERE/none.png", "HERE/none.png: no such file; expected an image"),
    command(
        f"{_PREDICT} HERE/a.png",
        "HERE/a.png: not a readable image (…)",
        did="A text file as image",
        prepare=text("a.png"),
    ),
    command(
        f"{_PREDICT} HERE/a.txt",
        "HERE/a.txt: not an image by its name; expected one of …",
        did="An image that is called .txt",
        prepare=text("a.txt"),
    ),
    command(
        f"{_PREDICT} HERE/a.npy",
        "HERE/a.npy: floating point [9, 8, 1]; expected [8, 8, 1], or uint8",
        did="A .npy image of floats and another shape",
        prepare=lambda folder: np.save(folder / "a.npy", np.zeros((9, 8))),
    ),
    command(f"{_PREDICT} HERE/a.png --tpr=1", "--tpr must lie between 0 and 1, both excluded, got 1.0"),
]
