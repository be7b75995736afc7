"""Seconds and memory of every detector, against pytorch-ood on the same features in the same run.

`python -m benchmarks.detectors` prints a table: milliseconds of fitting and scoring here, those of pytorch-ood (where
it is installed and has the detector), their ratio, and the peak of memory above the features.
Each detector runs in a process of its own; both libraries are given the same number of threads and run in turn, until
`--seconds` are over and at least `--least` times each.  The best run of each counts: compilation is in none.
Each is given what it reads and no more.  Where pytorch-ood takes features, it computes logits by the head; here logits
are given, as a network's forward pass gives them, and every number is looked at for NaN.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

from preload_jax import detectors

# Those that need no more than features, logits, labels and a head.
NAMES = [n for n, row in detectors.TABLE.items() if not {"maps", "images", "ood_logit"} & set(row.needs)]
# Seconds of rest before a turn, and of the turn.
_PAUSE, _TURN = 0.05, 0.1


def problem(train: int, test: int, width: int, classes: int = 10):
    """Clusters of ReLU features, labels, and a head."""
    rng = np.random.default_rng(0)
    kernel, bias = rng.normal(size=(width, classes)).astype(np.float32) / width**0.5, np.zeros(classes, np.float32)
    labels = np.arange(train) % classes

    def features(labels):
        x = rng.standard_normal((len(labels), width), np.float32)
        # A piece at a time: what is allocated here would hide what detectors allocate.
        for start in range(0, len(x), 1000):
            part = x[start : start + 1000]
            part += 3.0 * kernel.T[labels[start : start + 1000]]
            np.maximum(part, 0.0, out=part)
        return x

    return features(labels), labels, features(np.arange(test) % classes), (kernel, bias)


def ours(name, features, labels, test, head):
    """A function that fits and scores, given what the detector reads and no more."""
    needs = detectors.TABLE[name].needs

    def outputs(x):
        logits = x @ head[0] + head[1] if "logits" in needs else None
        return detectors.Outputs(x if "features" in needs else None, logits)

    given, tested = outputs(features), outputs(test)
    labels = labels if "labels" in needs else None
    head = head if "head" in needs else None

    def run():
        return detectors.score(detectors.fit(name, given, labels, head=head), tested)

    return run


def theirs(name, features, labels, test, head):
    """The same with pytorch-ood, or None where it lacks the detector."""
    import torch
    from pytorch_ood import detector as other

    x, y, t = torch.tensor(features), torch.tensor(labels), torch.tensor(test)
    layer = torch.nn.Linear(*head[0].shape)
    layer.weight.data, layer.bias.data = torch.tensor(head[0]).T.contiguous(), torch.tensor(head[1])
    logits, test_logits = (layer(z).detach() for z in (x, t))
    w, b = layer.weight.detach(), layer.bias.detach()

    def flat(z):
        return layer(z.flatten(1))

    of_features = {
        "mahalanobis": lambda: other.Mahalanobis(None),
        "relative_mahalanobis": lambda: other.RMD(None),
        "ddu": lambda: other.GMM(None),
        "knn": lambda: other.KNN(None, k=50),
        "she": lambda: other.SHE(None, layer),
        "vim": lambda: other.ViM(None, x.shape[1] // 2, w, b),
        "nnguide": lambda: other.NNGuide(None, layer, k=10),
        "fdbd": lambda: other.fDBD(None, layer),
        "nci": lambda: other.NCI(None, layer, alpha=1e-4),
        "dice": lambda: other.DICE(None, w, b, p=0.9),
    }
    of_maps = {
        "react": lambda: other.ReAct(None, flat),
        "vra": lambda: other.VRA(None, flat),
        "ash_p": lambda: other.ASH(None, flat, "ash-p"),
        "ash_b": lambda: other.ASH(None, flat, "ash-b"),
        "ash_s": lambda: other.ASH(None, flat, "ash-s"),
        "scale": lambda: other.SCALE(None, flat),
    }
    of_logits = {
        "msp": lambda: other.MaxSoftmax.score(test_logits),
        "max_logit": lambda: other.MaxLogit.score(test_logits),
        "energy": lambda: other.EnergyBased.score(test_logits),
        "entropy": lambda: other.Entropy.score(test_logits),
        "gen": lambda: other.GEN.score(test_logits),
        "temperature": lambda: other.TemperatureScaling(None).fit_logits(logits, y).predict_logits(test_logits),
        "kl_matching": lambda: other.KLMatching(None).fit_logits(logits, y).predict_logits(test_logits),
        "openmax": lambda: other.OpenMax(None).fit_logits(logits, y).predict_logits(test_logits),
    }
    if name in of_features:
        return lambda: of_features[name]().fit_features(x, y).predict_features(t)
    if name in of_maps:

        def run():
            detector = of_maps[name]()
            if hasattr(detector, "fit_feature_maps"):
                detector.fit_feature_maps(x[:, :, None, None], y)
            return detector.predict_feature_maps(t[:, :, None, None])

        return run
    if name == "gradnorm":
        return lambda: other.GradNorm(layer, lambda parameter: parameter == "weight").predict(t)
    return of_logits.get(name)


def measure(name, size, with_theirs, clock, enough):
    """{"ours", "theirs": seconds or None, "memory": bytes over those of the features}; the best runs of each."""
    given = problem(*size)
    # What the libraries themselves take is no detector's.
    ours(name, given[0][:600], given[1][:600], given[2][:600], given[3])()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = ours(name, *given)
    run(), run()
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    other = theirs(name, *given) if with_theirs else None
    seconds, least = enough
    end, found = time.perf_counter() + seconds, {"ours": [], "theirs": []}
    # In turn: a busy machine is busy for both.
    while len(found["ours"]) < least or time.perf_counter() < end:
        found["ours"].append(turn(run, clock))
        found["theirs"] += [turn(other, clock)] if other is not None else []
    best = {key: min(times, default=None) for key, times in found.items()}
    return {**best, "memory": memory, "features": given[0].nbytes + given[2].nbytes}


def turn(run, clock):
    """The best of some runs in a row, one where it is long."""
    # A library's idle threads keep a core busy for a while (OpenBLAS's for some 20 ms), which the other one lacks.
    time.sleep(_PAUSE)
    end, best = time.perf_counter() + _TURN, float("inf")
    while best == float("inf") or time.perf_counter() < end:
        start = clock()
        run()
        best = min(best, clock() - start)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train", type=int, default=50_000)
    parser.add_argument("--test", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--detectors", default=",".join(NAMES))
    parser.add_argument("--without-torch", action="store_true")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each detector's runs are repeated")
    parser.add_argument("--least", type=int, default=3, help="how often at least")
    parser.add_argument("--cpu-time", action="store_true", help="seconds of all cores, for a machine that others use")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    size = options.train, options.test, options.width
    enough = options.seconds, options.least
    clock = time.process_time if options.cpu_time else time.perf_counter
    if options.one:
        print(json.dumps(measure(options.one, size, not options.without_torch, clock, enough)))
        return
    print("| detector | ms | pytorch-ood | ratio | memory / features |\n|---|---|---|---|---|")
    for name in options.detectors.split(","):
        command = [sys.executable, "-m", "benchmarks.detectors", "--one", name]
        command += [f"--{key}={value}" for key, value in zip(("train", "test", "width"), size, strict=True)]
        command += [f"--seconds={options.seconds}", f"--least={options.least}"]
        command += ["--without-torch"] * options.without_torch + ["--cpu-time"] * options.cpu_time
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        other = found["theirs"]
        right = f"{1e3 * other:.2f} | {found['ours'] / other:.2f}" if other else "– | –"
        print(
            f"| {name} | {1e3 * found['ours']:.2f} | {right} | {found['memory'] / found['features']:.2f} |", flush=True
        )


if __name__ == "__main__":
    main()
