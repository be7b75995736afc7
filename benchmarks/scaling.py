"""What large trainings would take, by arithmetic from one measured rate: `python -m benchmarks.scaling`.

Measured is a step of WideResNet-16-4 on one H100, see docs/performance.md: the share of the chip's peak that it
reaches.  Everything else is arithmetic: another network, another chip and many of them are supposed to reach the same
share, and what chips exchange is added as docs/scaling.md has it.
"""

from dataclasses import dataclass
from typing import Any

# Of docs/performance.md ("One GPU"), and the makers' peak in bfloat16, FLOP/s.
MEASURED_STEP, MEASURED_NETWORK, MEASURED_IMAGES = 3.31e-3, ("wide_resnet", (32, 32, 3), 10), 256
H100 = 989e12
# A step is a forward pass, and a backward pass of twice its arithmetic.
PASSES = 3
# Bytes of a float32, and seconds that each sum over the devices takes beside its bytes, an assumption.
FLOAT, LATENCY = 4, 15e-6


@dataclass(frozen=True)
class Network:
    """What is counted in a network: parameters, sums over the devices in a step, FLOP of one image's forward pass."""

    parameters: int
    sums: int
    forward: float


@dataclass(frozen=True)
class Job:
    """A training.

    Attributes:
        title: what the table calls it.
        images, image_bytes, epochs, batch: in-domain; the outliers are as many in each step.
        devices, peak, link: how many, FLOP/s of one in bfloat16, and bytes/s of its links in one direction.
        hosts: that feed the devices.
        classes, test_images: of the evaluation.
    """

    title: str
    images: int
    image_bytes: int
    epochs: int
    batch: int
    devices: int
    peak: float
    link: float
    hosts: int
    classes: int = 1000
    test_images: int = 50_000


JOBS = (
    Job("ImageNet-1k, eight H100", 1_281_167, 224 * 224 * 3, 90, 1024, 8, H100, 450e9, 1),
    Job("10⁸ images, 256 TPU v5e", 10**8, 224 * 224 * 3, 10, 8192, 256, 197e12, 100e9, 32, test_images=10**8),
)


def count(backbone: str, shape: tuple[int, ...], num_classes: int) -> Network:
    """Counts a network with PreLoad's head; FLOP as XLA counts them, a multiply-add as two."""
    import jax
    import jax.numpy as jnp

    from preload_jax import make_classifier

    model = make_classifier(backbone, "square_logit", num_classes=num_classes)
    images = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
    variables: Any = jax.eval_shape(model.init, jax.random.key(0), images)
    lowered = jax.jit(model.apply).lower(variables, images)
    cost: Any = lowered.cost_analysis() or {}
    norms = sum("mean" in jax.tree_util.keystr(path) for path, _ in leaves(variables.get("batch_stats", {})))
    # Each batch normalisation sums forward and backward; the gradients are one sum more.
    return Network(sum(leaf.size for _, leaf in leaves(variables["params"])), 2 * norms + 1, float(cost["flops"]))


def leaves(tree: Any) -> Any:
    import jax

    return jax.tree_util.tree_leaves_with_path(tree)


def share_of_peak(network: Network) -> float:
    """Of the H100's peak, that the measured step reaches."""
    return PASSES * MEASURED_IMAGES * network.forward / MEASURED_STEP / H100


def arithmetic(job: Job, network: Network, share: float) -> dict[str, float]:
    """Everything that the table says of a job, in seconds, bytes and FLOP."""
    computing = PASSES * 2 * job.batch * network.forward / (job.devices * job.peak * share)
    ring = 2 * (job.devices - 1) / job.devices * FLOAT * network.parameters / job.link
    exchanging = ring + network.sums * LATENCY
    steps = job.epochs * (job.images // job.batch)
    return {
        "flop": PASSES * 2 * job.batch * network.forward * steps,
        "steps": steps,
        "computing": computing,
        "exchanging": exchanging,
        "training": steps * (computing + exchanging),
        "read": 2 * job.batch * job.image_bytes / (computing + exchanging) / job.hosts,
        "data": job.images * job.image_bytes,
        "evaluating": job.test_images * network.forward / (job.devices * job.peak * share),
        "logits": job.test_images * (job.classes + 1) * FLOAT,
        "features": job.test_images * 2048 * FLOAT,
    }


def lines(network: Network, share: float) -> list[str]:
    """The table of docs/scaling.md."""
    found = [arithmetic(job, network, share) for job in JOBS]
    rows = {
        "images as uint8": [f"{x['data'] / 1e12:.2g} TB" for x in found],
        "epochs, in-domain images a step": [f"{job.epochs}, {job.batch:,}" for job in JOBS],
        "training FLOP": [f"{x['flop']:.2g}" for x in found],
        "a step: computing + exchanging": [
            f"{1e3 * x['computing']:.0f} + {1e3 * x['exchanging']:.1f} ms" for x in found
        ],
        "training": [f"{x['training'] / 3600:.1f} h" for x in found],
        "each host reads": [f"{x['read'] / 1e9:.1f} GB/s" for x in found],
        "evaluation: test images": [f"{job.test_images:,}" for job in JOBS],
        "evaluation: forward passes": [f"{x['evaluating']:.2g} s" for x in found],
        "logits, in each process": [f"{x['logits'] / 1e9:,.1f} GB" for x in found],
        "features, in each process": [f"{x['features'] / 1e9:,.1f} GB" for x in found],
    }
    titles = " | ".join(job.title for job in JOBS)
    return [f"| | {titles} |", "| --- |" + " --: |" * len(JOBS)] + [
        f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()
    ]


def main() -> None:
    measured = count(*MEASURED_NETWORK)
    network, share = count("resnet50", (224, 224, 3), 1000), share_of_peak(measured)
    print(f"WideResNet-16-4: {100 * share:.1f} % of an H100's peak")
    print(
        f"ResNet-50: {network.parameters / 1e6:.1f} M parameters, {network.forward / 1e9:.2f} GFLOP forward,"
        f" {network.sums} sums a step\n"
    )
    print("\n".join(lines(network, share)))


if __name__ == "__main__":
    main()
