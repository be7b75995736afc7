"""Prepares data sets: `python -m experiments.prepare_data --dataset=fashion_mnist [--source=DIR]`."""

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Args:
    """Turn the files that a data set's publisher distributes into a TFDS data set.

    Attributes:
      dataset: Name of the set, for example mnist or fashion_mnist.
      source: Folder that already has the publisher's files. Without it they are downloaded.
      data_dir: Where prepared sets are kept; by default $TFDS_DATA_DIR, else ~/tensorflow_datasets.
      force: Prepare the set even if it is there already.
    """

    dataset: str
    source: str | None = None
    data_dir: str | None = None
    force: bool = False


def main(args: Args) -> None:
    from preload_jax.data.paths import default_data_dir
    from preload_jax.data.prepare import prepare

    data_dir = args.data_dir or default_data_dir()
    splits = prepare(
        args.dataset, data_dir=data_dir, source=args.source, force=args.force, show_progress=sys.stderr.isatty()
    )
    sizes = ", ".join(f"{size:,} {name}" for name, size in splits.items())
    print(f"{args.dataset}: {sizes} images in {data_dir}")


if __name__ == "__main__":
    import tyro

    main(tyro.cli(Args, prog="python -m experiments.prepare_data"))
