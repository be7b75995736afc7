"""The sides that `benchmarks.speed` compares, each a process of its own: `python -m benchmarks.sides SIDE NETWORK`.

A process reads (method, arguments) as JSON line by line, and answers with seconds.  SIDE is "ours", or one of PyTorch's
configurations.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.cli import allocator

ROOT = Path(__file__).resolve().parents[1]
BATCH_SIZE = 128
# By network: images an epoch has, and their shape.
NETWORKS: dict[str, tuple[int, tuple[int, ...]]] = {
    "lenet": (60_000, (28, 28, 1)),
    "wide_resnet": (50_000, (32, 32, 3)),
}
TITLES = {"lenet": "LeNet", "wide_resnet": "WideResNet-16-4"}


def stage_of(network: str, dtype: Any, *, steps_per_call: int = 10_000) -> Any:
    """What is trained, as a `Stage` of more epochs than any measurement takes; each is one call by default."""
    from preload_jax import make_classifier, methods
    from preload_jax.training import stage
    from preload_jax.training.stage import Numbers, Settings

    method = methods.get("preload")
    numbers = Numbers(10_000, "adam" if network == "lenet" else "sgd", learning_rate=1e-4)
    model = make_classifier(network, method.head, num_classes=10, dtype=dtype)
    (only,) = stage.stages(
        model,
        Settings(method, numbers, batch_size=BATCH_SIZE),
        num_images=NETWORKS[network][0],
        steps_per_call=steps_per_call,
    )
    return only


class Ours:
    """This project's training and inference of one network, on random images."""

    def __init__(self, network: str) -> None:
        import jax

        from experiments.cli import compile_cache
        from preload_jax.training import data as training_data
        from preload_jax.training import loop as training

        compile_cache.use()
        self.jax, self.on_cpu = jax, jax.default_backend() == "cpu"
        self.num_images, shape = NETWORKS[network]
        rng, key = np.random.default_rng(0), jax.random.key(0)
        images, self.outliers = (rng.integers(0, 256, (self.num_images, *shape), dtype=np.uint8) for _ in range(2))
        # As `fit` cuts it, see `training.fit.plan_stages`.
        cut = {"steps_per_call": 1} if self.on_cpu else {}
        stage = stage_of(network, np.float32 if self.on_cpu else jax.numpy.bfloat16, **cut)
        self.model = stage.model
        self.variables = training.init_variables(self.model, shape, key=key)
        self.data = training_data.place(
            training_data.TrainingData(images, rng.integers(0, 10, self.num_images, np.int32), self.outliers)
        )

        def run(seed: int) -> Any:
            return training.fit_stage(
                stage.init_state(self.variables),
                self.data,
                key=jax.random.key(seed),
                task=stage.task,
                step=stage.step,
                hyper=stage.hyper,
                plan=stage.plan,
            )

        self.run, self.reports = run, run(0)
        self.flops = self._flops(shape)

    def _flops(self, shape: tuple[int, ...]) -> float:
        """Of a training step: of the forward pass by XLA's count, and twice that for the backward pass."""
        image = self.jax.numpy.zeros((1, *shape))
        lowered = self.jax.jit(self.model.apply).lower(self.variables, image)
        return 3.0 * 2 * BATCH_SIZE * (lowered.cost_analysis() or {}).get("flops", float("nan"))

    def steps(self, count: int) -> int:
        """At least so many steps, and how many: a compiled call each on a CPU; an epoch a call on an accelerator."""
        done = 0
        while done < count:
            done += len(next(self.reports).losses)
        return done

    def epoch_of_seeds(self, count: int) -> None:
        """An epoch of each of so many networks, in turn, all of them dispatched from one thread."""
        for reports in [self.run(seed) for seed in range(count)]:
            next(reports)

    def infer(self, count: int) -> None:
        from preload_jax.devices import forward

        forward.predict(self.model, self.variables, self.outliers[:count], batch_size=count)

    def peak_bytes(self) -> int | None:
        return (self.jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")

    def device(self) -> str:
        return self.jax.devices()[0].device_kind


def _work(side: str, network: str) -> None:
    """What the process does, to the end of its input."""
    started = time.perf_counter()
    allocator.keep_freed_memory()  # as the commands do
    if side != "ours":
        from benchmarks.torch_baseline import Training

        worker: Any = Training(network, num_images=NETWORKS[network][0], batch_size=BATCH_SIZE, configuration=side)
    else:
        worker = Ours(network)
    print(json.dumps(time.perf_counter() - started), flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        if name in ("flops", "on_cpu"):
            answer: Any = getattr(worker, name)
        elif name == "memory":
            answer = worker.peak_bytes() or 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        elif name == "device":
            answer = worker.device()
        else:
            start = time.perf_counter()
            getattr(worker, name)(*arguments)
            answer = time.perf_counter() - start
        print(json.dumps(answer), flush=True)


class Worker:
    """A process that holds one side."""

    def __init__(self, side: str, network: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.sides", side, network],
            cwd=ROOT,
            # Several processes share a GPU; by default the first would take three quarters of its memory.
            env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.answer()

    def ask(self, name: str, *arguments: Any) -> Any:
        self.send(name, *arguments)
        return self.answer()

    def send(self, name: str, *arguments: Any) -> None:
        """Begins what `answer` waits for."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, arguments]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"error: a worker ended with status {self.process.wait()}; its message is above")
        return json.loads(line)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


if __name__ == "__main__":
    _work(*sys.argv[1:])
