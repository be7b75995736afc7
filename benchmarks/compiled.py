"""What an accelerator's own compiler makes of an epoch of training, on a machine that has no such accelerator.

    pip install '.[tpu]'        # or '.[cuda12]', for --target=h100
    python -m benchmarks.compiled --network=lenet --target=v5e

PreLoad with 128 + 128 images of MNIST or CIFAR-10 and 32×32 colour outliers, augmented as `experiments.run` does, in
bfloat16, an epoch as one call.  Of a TPU the table has the cycles that its compiler expects, operation by operation,
which leave out what the compiler gives no estimate for (gathers, exchanges between devices, XLA's pooling gradient); of
a GPU the bytes that kernels read and write, stored images apart, of which a step reads few.  Neither is a measurement:
they show where a step's time can go, and how two forms of it compare.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.sides import BATCH_SIZE, NETWORKS, TITLES, stage_of


@dataclass(frozen=True)
class Target:
    """A device: JAX's name of its platform, what describes it to the compiler, and cycles a second (TPUs)."""

    title: str
    platform: str
    clock: float | None = None


TARGETS = {
    # The makers' peaks of bfloat16 products over those of a cycle: 197e12 / (4 units · 2 · 128²), and so on.
    "v4": Target("TPU v4", "tpu", 1.05e9),
    "v5e": Target("TPU v5e", "tpu", 1.5e9),
    "h100": Target("H100", "cuda"),
}
DATA_SETS = {"lenet": "mnist", "wide_resnet": "cifar10"}
# How a slice of so many chips is wired; the compiler knows no single chips.
_SLICES = {1: "2x2", 2: "2x2", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8"}
_H100 = """
gpu_device_info {
  cuda_compute_capability { major: 9 } core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  threads_per_warp: 32 threads_per_block_limit: 1024 threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_block_limit: 65536 registers_per_core_limit: 65536
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448 shared_memory_per_core: 233472
  device_memory_size: 84929347584 l2_cache_size: 52428800 memory_bandwidth: 3352320000000
}
platform_name: "CUDA"
device_description_str: "NVIDIA H100 80GB HBM3"
dnn_version_info { major: 9 minor: 8 }
runtime_version { major: 12 minor: 9 }
"""
_BYTES = {"pred": 1, "u8": 1, "s8": 1, "u16": 2, "bf16": 2, "f16": 2, "u32": 4, "s32": 4, "f32": 4, "u64": 8, "s64": 8}
# Operations that do nothing when they run.
_FREE = ("parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "partition-id")
_EXCHANGES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")


@dataclass(frozen=True)
class Operation:
    """One line of a compiled program: name, result, kind, operands' results, estimated cycles, where it comes from."""

    name: str
    result: str
    kind: str
    operands: tuple[str, ...]
    cycles: int
    source: str

    @property
    def bytes(self) -> int:
        """That it reads and writes, of images at rest (uint8) apart."""
        return size(self.result) + sum(size(operand) for operand in self.operands if not operand.startswith("u8["))


def size(shape: str) -> int:
    """Bytes of a shape or of a tuple of shapes, as XLA writes them; padding apart."""
    total = 0
    for name, dimensions in re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", shape):
        count = 1
        for dimension in filter(None, dimensions.split(",")):
            count *= int(dimension)
        total += count * _BYTES.get(name, 0)
    return total


def computations(program: str) -> dict[str, list[Operation]]:
    """The operations of each computation of a program; a loop's cycles are those of all its rounds."""
    found: dict[str, list[Operation]] = {}
    limits: dict[str, int] = {}
    for line in program.splitlines():
        if header := re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*\{$", line):
            current = header[1]
            operations, shapes = found.setdefault(current, []), dict[str, str]()
        elif limit := re.match(r"\s+%?[\w.\-]+ = s32\[\]\S* constant\((\d+)\)", line):
            # In the condition of a loop, the number of its rounds.
            limits[current] = int(limit[1])
        elif parts := re.match(r"\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z\-]+)\((.*?)\)(?:, |$)", line):
            name, result, kind, operands = parts.groups()
            shapes[name] = result
            known = tuple(shapes[name] for name in re.findall(r"%([\w.\-]+)", operands) if name in shapes)
            source = re.search(r'op_name="([^"]*)"', line)
            operations.append(
                Operation(name, result, kind, known, _cycles(line, found, limits), source[1] if source else "")
            )
    return found


def _cycles(line: str, found: dict[str, list[Operation]], limits: dict[str, int]) -> int:
    if own := re.search(r'"estimated_cycles":"(\d+)"', line):
        return int(own[1])
    loop = re.search(r"condition=%?([\w.\-]+), body=%?([\w.\-]+)", line)
    # Computations stand before their uses.
    return limits.get(loop[1], 1) * sum(operation.cycles for operation in found[loop[2]]) if loop else 0


def step_of(program: str) -> list[Operation]:
    """What a training step does: the body of the longest loop."""
    found = computations(program)
    bodies = [found[name] for name in re.findall(r"\bwhile\(.*\bbody=%?([\w.\-]+)", program)]
    return [operation for operation in max(bodies, key=len) if operation.kind not in _FREE]


def exchanges(step: list[Operation]) -> list[Operation]:
    """What devices send each other; the end of an exchange that takes its time is not another one."""
    return [
        operation
        for operation in step
        if operation.kind.startswith(_EXCHANGES) and not operation.kind.endswith("-done")
    ]


def compile_epoch(network: str, target: str, devices: int) -> Any:
    """The compiled program of an epoch."""
    # Before JAX is imported: no device is looked for, neither here nor in a cloud.
    os.environ.setdefault("JAX_PLATFORMS", "cpu" if TARGETS[target].platform == "tpu" else "cuda,cpu")
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    for name, value in (
        ("SKIP_MDS_QUERY", "1"),
        ("ACCELERATOR_TYPE", "v5litepod-4"),
        ("WORKER_HOSTNAMES", "localhost"),
    ):
        os.environ.setdefault(f"TPU_{name}", value)
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    from preload_jax.data import specs
    from preload_jax.devices import sharding
    from preload_jax.training import loop as training
    from preload_jax.training.augment import Augmentations
    from preload_jax.training.data import TrainingData

    if TARGETS[target].platform == "tpu":
        topology = topologies.get_topology_desc(platform="tpu", topology_name=f"{target}:{_SLICES[devices]}")
    else:
        topology = topologies.get_topology_desc(platform="cuda", target_config=_H100, topology=f"1x{devices}x1")
    mesh = Mesh(np.array(topology.devices[:devices]), (sharding.AXIS,), axis_types=(AxisType.Auto,))
    whole = NamedSharding(mesh, PartitionSpec())
    num_images, shape = NETWORKS[network]
    spec = specs.DATASETS[DATA_SETS[network]]
    stage = stage_of(network, jnp.bfloat16)

    def arguments() -> Any:
        key = jax.random.key(0)
        variables = training.init_variables(stage.model, shape, key=key)
        images, outliers = (jnp.zeros((num_images, *each), jnp.uint8) for each in (shape, (32, 32, 3)))
        data = TrainingData(images, jnp.zeros(num_images, jnp.int32), outliers)
        return stage.init_state(variables), data, key, jax.tree.map(jnp.float32, stage.hyper)

    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), jax.eval_shape(arguments))
    # Without the compiler options, which are those of this machine's CPU.
    epoch = jax.jit(training.run_steps.__wrapped__, **training.run_steps.options)
    return epoch.lower(
        *shapes,
        task=stage.task,
        step=stage.step,
        num_steps=stage.plan.steps_per_epoch,
        batch_size=stage.plan.batch_size,
        augmentations=Augmentations(spec.augmentation, spec.outlier_augmentation),
        mesh=None if devices == 1 else mesh,
    ).compile()


def report(program: str, memory: Any, *, network: str, target: str, devices: int, most: int) -> Iterator[str]:
    """The table's lines."""
    step, about = step_of(program), TARGETS[target]
    sent = exchanges(step)
    yield f"{TITLES[network]} on {devices} {about.title}"
    if about.clock is None:
        moved = sum(operation.bytes for operation in step)
        yield f"a step: {len(step)} kernels, which read and write {moved / 1e6:,.0f} MB"
    else:
        cycles = sum(operation.cycles for operation in step)
        seconds = cycles / about.clock
        epoch = seconds * (NETWORKS[network][0] // BATCH_SIZE)
        yield (
            f"a step: {cycles:,} cycles estimated, {1e3 * seconds:.3f} ms at {about.clock / 1e9:g} GHz;"
            f" an epoch {epoch:.3f} s"
        )
    if memory is not None:
        yield (
            f"memory of a device: {memory.argument_size_in_bytes / 2**20:,.0f} MiB of images and state,"
            f" {memory.temp_size_in_bytes / 2**20:,.0f} MiB beside them"
        )
    kinds = ", ".join(sorted({operation.kind.removesuffix("-start") for operation in sent})) or "none"
    volume = sum(size(operand) for operation in sent for operand in operation.operands)
    yield f"exchanges a step: {len(sent)} ({kinds}), {volume / 1e6:.1f} MB of each device"
    weights = {operation: operation.bytes if about.clock is None else operation.cycles for operation in step}
    yield f"{'bytes' if about.clock is None else 'cycles':>12}  operation"
    for operation in sorted(step, key=lambda x: -weights[x])[:most]:
        shape = re.search(r"\w+\[[\d,]*\]", operation.result)
        source = operation.source.rpartition("closed_call/")[2].replace("transpose(jvp(Classifier))", "gradient")
        yield f"{weights[operation]:12,}  {operation.kind} {shape[0] if shape else ''}  {source[:80]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=sorted(NETWORKS), default="lenet")
    parser.add_argument("--target", choices=sorted(TARGETS), default="v5e")
    parser.add_argument("--devices", type=int, choices=sorted(_SLICES), default=1)
    parser.add_argument("--most", type=int, default=15, help="how many operations (default: 15)")
    args = parser.parse_args()
    if args.most < 1:
        parser.error("--most must be at least 1")
    start = time.perf_counter()
    try:
        compiled = compile_epoch(args.network, args.target, args.devices)
    except Exception as error:
        if not any(words in str(error) for words in ("not implemented for", "Unknown backend", "TPU support not")):
            raise
        extra = "tpu" if TARGETS[args.target].platform == "tpu" else "cuda12"
        raise SystemExit(f"error: the compiler for {args.target} is not installed; pip install '.[{extra}]'") from error
    print(f"compiled in {time.perf_counter() - start:.0f} s", file=sys.stderr)
    lines = report(
        compiled.as_text(),
        compiled.memory_analysis(),
        network=args.network,
        target=args.target,
        devices=args.devices,
        most=args.most,
    )
    for line in lines:
        print(line)


if __name__ == "__main__":
    main()
