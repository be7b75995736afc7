"""What two processes compute together, for `test_sharing`: `python -m tests.devices.two_processes PORT NUMBER FILE`."""

import sys

import jax
import numpy as np

from preload_jax import detectors, evaluate, predict
from preload_jax.devices import processes, sharding, sharing
from preload_jax.errors import UserError
from preload_jax.training import loop
from tests import toy

RNG = np.random.default_rng(0)
# Of 7 batches of 500 the last is not full, and one process has one more than the other.
IMAGES = RNG.integers(0, 256, (3_210, *toy.SHAPE), np.uint8)
LABELS = RNG.integers(0, 3, len(IMAGES))
FAR = 1e4 * IMAGES[:600].astype(np.float32)


def passes():
    """Labelled batches of sizes that fit nothing."""
    return ((IMAGES[start : start + 700], LABELS[start : start + 700]) for start in range(0, len(IMAGES), 700))


def numbers(devices):
    """Everything that processes share, as arrays by name."""
    model = toy.model()
    variables = loop.init_variables(model, toy.SHAPE, key=jax.random.key(0))
    found = {"score": predict(model, variables, IMAGES, devices=devices).score}
    found["of_batches"] = predict(model, variables, passes, devices=devices).probabilities
    results = evaluate(model, variables, (IMAGES, LABELS), {"far": FAR}, devices=devices)
    again = evaluate(model, variables, passes, {"far": lambda: iter([FAR])}, devices=devices)
    for name, of in (("evaluate", results), ("evaluate_batches", again)):
        found[name] = np.array([*of["in_domain"].values(), *of["ood"]["far"].values()])
    whole = detectors.outputs(model, variables, IMAGES, maps=True, devices=devices)
    found |= {"features": whole.features, "map": whole.maps[0]}
    batches = detectors.outputs(model, variables, passes, devices=devices)
    far = detectors.outputs(model, variables, FAR, devices=devices)
    for name in ("mahalanobis", "knn"):
        detector = detectors.fit(name, whole, LABELS, num_classes=3)
        found[name] = detectors.score(detector, far)
        found[f"{name}_of_batches"] = detectors.score(detectors.fit(name, batches, num_classes=3), far)
        found[f"evaluate_{name}"] = np.array(
            [
                *evaluate(model, variables, (IMAGES, LABELS), {"far": FAR}, score=detector, devices=devices)["ood"][
                    "far"
                ].values()
            ]
        )
    return found


def refusals():
    """What each process is told where they do not do the same."""
    model, own = toy.model(), jax.process_index()
    variables = loop.init_variables(model, toy.SHAPE, key=jax.random.key(0))
    others = loop.init_variables(model, toy.SHAPE, key=jax.random.key(own))
    mesh = sharding.make_mesh(1)

    def fail(batch):
        if own == 1:
            raise UserError("no memory here")
        return [batch]

    def broken():
        yield IMAGES[:600]
        if own == 1:
            raise UserError("no such file")
        yield IMAGES[600:1200]

    calls = {
        "images": lambda: predict(model, variables, IMAGES[: 10 + own], devices=1),
        "variables": lambda: predict(model, others, IMAGES, devices=1),
        "bad": lambda: predict(model, variables, IMAGES if own == 0 else IMAGES.astype(np.int64), devices=1),
        "fewer": lambda: predict(model, variables, lambda: iter([IMAGES[:1000]] * (2 - own)), devices=1),
        "broken": lambda: predict(model, variables, broken, batch_size=300, devices=1),
        "failed": lambda: list(sharing.outputs([np.ones(2), np.ones(2)], fail, mesh)),
    }
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = "nothing"
        except UserError as error:
            found[name] = str(error)
    return found


if __name__ == "__main__":
    port, number, file = sys.argv[1:]
    processes.join(cluster=False, coordinator=f"127.0.0.1:{port}", num_processes=2, process_id=int(number))
    np.savez(file, **numbers(1), **{f"refused_{name}": np.array(text) for name, text in refusals().items()})
