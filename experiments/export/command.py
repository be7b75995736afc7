"""Writes a trained network as one file that answers: `python -m experiments.export --run=DIR --out=FILE`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from experiments import cli
from experiments.cli.visible import visible


@dataclass(frozen=True)
class Args:
    """Writes a trained network as one file that answers by itself.

    The file holds the program (any number of images; CPU, CUDA, TPU), the weights, the class names, the run's rule,
    what is proved about the network, versions and a digest. preload_jax.formats.load_program reads it where Flax,
    Optax, Orbax and TFDS are not installed.
    """

    run: Annotated[Path | None, cli.option("DIR", "none")] = None
    """The folder of a finished run, such as runs/digits/preload/seed0."""
    weights: Annotated[Path | None, cli.option("FILE", "none")] = None
    """A .safetensors, .pt or .pth file; it has no rule."""
    out: Annotated[Path | None, cli.option("FILE", "none")] = None
    """Where the program goes."""
    onnx: Annotated[Path | None, cli.option("FILE", "none")] = None
    """Also, or only, an ONNX file of the logits (packages jax2onnx and onnxruntime), checked with onnxruntime."""
    dataset: Annotated[str | None, cli.option("STR", "what the file or its name says")] = None
    """With --weights: the data set it was trained on."""
    method: Annotated[str | None, cli.option("STR", "what the file or its name says")] = None
    """With --weights: the method, which decides the score."""
    quiet: cli.Quiet = False
    json: cli.Json = False


def main(args: Args) -> int:
    """Reads the network, writes the files, and prints what is in them; returns the exit status."""
    from experiments.cli.display import Display
    from experiments.export import certificate, onnx
    from experiments.runs import rules, trained
    from preload_jax.errors import UserError
    from preload_jax.formats import save_program
    from preload_jax.formats.files import check_place

    if args.out is None and args.onnx is None:
        raise UserError("nothing to write; give --out=FILE, or --onnx=FILE")
    for path in (args.out, args.onnx):
        if path is not None and path.is_dir():
            raise UserError(f"{path} is a folder; expected a file's name")
        if path is not None:
            check_place(path)
    display = Display(quiet=args.quiet, json=args.json)
    if args.onnx is not None:
        onnx.require()
    network = trained.read(
        args.run, args.weights, dataset=args.dataset, method=args.method, recipe=None, display=display
    )
    method, spec = network.method, network.spec
    values: dict[str, Any] = {"source": str(network.source), "dataset": spec.name, "method": method.name}
    no_rule = "none; the OOD class decides" if method.has_ood_class else "none; nothing is called OOD"
    if args.out is not None:
        if method.scores_features:
            raise UserError(
                f"{method.name} scores by Gaussians of the features, and a program by its logits alone;"
                " evaluate --export keeps them in a .safetensors file"
            )
        rule = network.rule()
        proved = certificate.of_network(network)
        digest = save_program(
            args.out,
            network.model,
            network.variables,
            image_shape=spec.image_shape,
            class_names=spec.class_names,
            score=method.score,
            ood_class=method.has_ood_class,
            rule=rule,
            certificate=proved,
            notes={"dataset": spec.name, "method": method.name, "seed": str(network.config.seed)},
        )
        values |= {
            "program": str(args.out),
            "digest": digest,
            "bytes": args.out.stat().st_size,
            "classes": list(spec.class_names),
            "score": method.score,
            "rule": None if rule is None else rules.in_short(rule),
            "certificate": proved,
        }
    if args.onnx is not None:
        values["onnx"] = onnx.write(args.onnx, network.model, network.variables, spec.image_shape)
    display.result(values, text=visible(_text(values, no_rule=no_rule), keep="\n"))
    asked = {"watch with it": ["python", "-m", "experiments.watch", f"--program={args.out}", "FOLDER"]}
    # Where the files are, the result says.
    display.end({}, next=asked if args.out is not None else None)
    return 0


def _text(values: dict[str, Any], *, no_rule: str) -> str:
    lines = []
    if "program" in values:
        rule, proved = values["rule"], values["certificate"]
        top = max(row["largest_confidence"] for row in proved["largest_confidence"]["classes"])
        proved_in_words = "the confidence has no bound below 1"
        if top < 1.0:
            proved_in_words = f"no class is ever more confident than 1 - {(1.0 - top) / 1.01:.2g}"
        if (apart := proved["input_radius"]) is not None and apart["radius"] is not None:
            proved_in_words += (
                f"; beyond {apart['typical_distances']:.4g} typical distances of the training images' mean none is"
                f" above {apart['confidence']:g}"
            )
        lines += [
            f"program      {values['program']}, {values['bytes']:,} bytes, for any number of images, CPU, CUDA and TPU",
            f"classes      {', '.join(values['classes'])}",
            f"score        {values['score']}",
            f"rule         {rule or no_rule}",
            f"certificate  {proved_in_words}",
            f"digest       {values['digest']}",
        ]
    if "onnx" in values:
        found = values["onnx"]
        lines.append(
            f"onnx         {found['file']}, logits of float32 images; onnxruntime {found['onnxruntime']} differs by at"
            f" most {found['largest_difference']:.2g}"
        )
    return "\n".join(lines)
