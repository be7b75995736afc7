"""Scores that pytorch-ood 0.4 gives the shared problem, in float64: the oracle of the parity tests.

`python -m tests.detectors.pytorch_ood_scores` writes them to `tests/golden/detectors.json`.  It needs torch and
pytorch-ood, which the library does not.
"""

import contextlib
import json
from pathlib import Path

from tests.detectors import problem

GOLDEN = Path(__file__).parent.parent / "golden" / "detectors.json"
OPENMAX = {"tail": 20, "largest": 5}
NOISE = 0.002


@contextlib.contextmanager
def float64():
    """Torch in float64, even where a detector asks for `.float()`."""
    import torch

    before, as_float = torch.get_default_dtype(), torch.Tensor.float
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    try:
        yield torch
    finally:
        torch.set_default_dtype(before)
        torch.Tensor.float = as_float


def compute():
    """name → scores of the test part, higher = more OOD, in float64."""
    with float64() as torch:
        from pytorch_ood import detector as theirs

        given = {name: torch.tensor(x) for name, x in problem.arrays().items()}
        labels = torch.tensor(problem.LABELS)
        found = {
            **_of_logits(theirs, given, labels),
            **_of_features(theirs, given, labels, torch),
            **_of_maps(theirs, given, labels),
            **_of_inputs(theirs, given, labels, torch),
        }
        return {name: scores.detach().numpy().tolist() for name, scores in found.items()}


def _of_logits(theirs, given, labels):
    train, test = given["train_logits"], given["test_logits"]
    openmax = theirs.OpenMax(None, tailsize=OPENMAX["tail"], alpha=OPENMAX["largest"])
    right = train.argmax(dim=1) == labels
    return {
        "msp": theirs.MaxSoftmax.score(test),
        "max_logit": theirs.MaxLogit.score(test),
        "energy": theirs.EnergyBased.score(test),
        "entropy": theirs.Entropy.score(test),
        "gen": theirs.GEN.score(test),
        "kl_matching": theirs.KLMatching(None).fit_logits(train, labels).predict_logits(test),
        "openmax": openmax.fit_logits(train[right], labels[right]).predict_logits(test),
    }


def _head(given, torch):
    layer = torch.nn.Linear(problem.D, problem.K)
    layer.weight.data, layer.bias.data = given["kernel"].T.contiguous(), given["bias"]
    return layer


def _of_features(theirs, given, labels, torch):
    train, test, head = given["train"], given["test"], _head(given, torch)
    w, b = given["kernel"].T, given["bias"]

    def after(detector):
        return detector.fit_features(train, labels).predict_features(test)

    def shaped(detector, fit=True):
        maps = [x[:, :, None, None] for x in (train, test)]
        if fit:
            detector.fit_feature_maps(maps[0], labels)
        return detector.predict_feature_maps(maps[1])

    def flat(x):
        return head(x.flatten(1))

    return {
        "mahalanobis": after(theirs.Mahalanobis(None)),
        "relative_mahalanobis": after(theirs.RMD(None)),
        "ddu": after(theirs.GMM(None)),
        "knn": after(theirs.KNN(None, k=50)),
        "she": after(theirs.SHE(None, head)),
        "vim": after(theirs.ViM(None, 10, w, b)),
        "nnguide": after(theirs.NNGuide(None, head, k=10)),
        "fdbd": after(theirs.fDBD(None, head)),
        "nci": after(theirs.NCI(None, head, alpha=1e-4)),
        "dice": after(theirs.DICE(None, w, b, p=0.9)),
        "react": shaped(theirs.ReAct(None, flat, percentile=0.9)),
        **{f"ash_{k}": shaped(theirs.ASH(None, flat, f"ash-{k}", percentile=0.65), fit=False) for k in "pbs"},
        "scale": shaped(theirs.SCALE(None, flat, percentile=0.85), fit=False),
        "gradnorm": theirs.GradNorm(head, lambda name: name == "weight").predict(test),
    }


def _of_maps(theirs, given, labels):
    train, test = ([given[f"{part}_{m}"].permute(0, 3, 1, 2) for m in ("maps", "final")] for part in ("train", "test"))
    w, b = given["kernel"], given["bias"]

    def pooled(x):
        return x.mean(dim=(2, 3))

    gram = theirs.Gram(
        lambda x: given["train_logits"], [lambda x: train[0], lambda x: train[1]], problem.K, range(1, 6)
    )
    gram.validation_fraction = 0.0
    gram.fit([(train[0], labels)])
    layers = theirs.MultiMahalanobis([pooled, pooled]).fit_structured([pooled(x) for x in train], labels)
    return {
        "gram": gram.predict_structured(given["test_logits"], test),
        "mahalanobis_ensemble": layers.predict_structured([pooled(x) for x in test]),
        "rankfeat": theirs.RankFeat(None, lambda x: pooled(x) @ w + b).predict_feature_maps(test[1]),
    }


def _of_inputs(theirs, given, labels, torch):
    def encoder(x):
        return torch.relu(x @ given["weights"])

    class Model(torch.nn.Module):
        def forward(self, x):
            return encoder(x) @ given["kernel"] + given["bias"]

    model = Model()
    mahalanobis = theirs.MahalanobisODIN(encoder, eps=NOISE)
    mahalanobis.fit_features(given["train"], labels)
    return {
        "odin": theirs.ODIN(model).predict(given["images"]),
        "mahalanobis_noise": mahalanobis.predict(given["images"]),
    }


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(compute(), indent=0) + "\n")
