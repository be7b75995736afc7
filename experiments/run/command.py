"""Trains and evaluates one method on one data set: `python -m experiments.run`."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from experiments import cli
from experiments.cli import RecipeBool, RecipeFloat, RecipeInt, RecipeStr
from experiments.cli.cluster import ClusterInt, ClusterStr, DevicesStr
from experiments.runs import configuration, networks, recipes
from preload_jax import backbones, methods
from preload_jax.data.specs import DatasetSpec
from preload_jax.errors import DataError, UserError


@dataclass(frozen=True)
class OptimizerArgs:
    """The optimiser; what is not given is the recipe's."""

    name: RecipeStr = None
    """sgd (Nesterov) or adam, both with coupled weight decay and a per-step cosine schedule to 0."""
    learning_rate: RecipeFloat = None
    """The learning rate at the first step."""
    weight_decay: RecipeFloat = None
    """Added to the gradient as weight-decay * w."""
    momentum: RecipeFloat = None
    """The momentum of sgd."""


@dataclass(frozen=True)
class InitArgs:
    """First stage of preload_ft, in which the OOD class alone is trained."""

    epochs: RecipeInt = None
    """Passes over the training images."""
    ood_weight: RecipeFloat = None
    """λ, the weight of the OOD term in this stage."""
    optimizer: OptimizerArgs = field(default_factory=OptimizerArgs)


@dataclass(frozen=True)
class AugmentationArgs:
    """How training images are changed at random; what is not given is the data set's."""

    probability: Annotated[float | None, cli.option("FLOAT", "the data set's")] = None
    """The share of images that are changed, 0 for none. Outliers are changed as the data set says."""
    flip: Annotated[bool | None, cli.option("True|False", "the data set's")] = None
    """Whether half of those are mirrored left to right: wrong for letters, signs and organs."""


@dataclass(frozen=True)
class Args:
    """Trains and evaluates one method on one data set.

    With no option at all it trains PreLoad on scikit-learn's digits, which needs no download. The same command
    continues a run that was stopped, and only reports one that is finished.
    """

    dataset: str = "digits"
    """digits, mnist, fashion_mnist, svhn, cifar10, cifar100, folder:PATH (a folder of class folders) or FILE.npz."""
    method: cli.Method = "preload"
    backbone: Annotated[str | None, cli.option("STR", "the data set's")] = None
    """The network: mlp, conv_net, lenet, wide_resnet, resnet18, resnet34, resnet50 or vit. --backbone.NAME=VALUE sets
    its options, such as --backbone=wide_resnet --backbone.depth=28."""
    backbone_options: cli.BackboneOptions = None
    image_size: Annotated[int | None, cli.option("INT", "theirs if all have one of at most 96, else 32")] = None
    """Pixels of a side to which the images of a folder are resized."""
    seed: int = 0
    """Fixes initial weights, order, augmentation and dropout."""
    recipe: str = "paper"
    """Where hyper-parameters come from: paper, released_code (what the authors' code does), or tuned (the paper's, and
    ours where we found better)."""
    outliers: RecipeStr = None
    """Auxiliary OOD images: random_images_300k, imagenet32, folder:PATH, smooth, uniform, photo, or a prepared set."""
    epochs: RecipeInt = None
    """Passes over the training images."""
    max_steps: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: no limit)")] = None
    """Ends training, schedule included, after so many steps."""
    batch_size: RecipeInt = None
    """In-domain images a step, and as many OOD images."""
    ood_weight: RecipeFloat = None
    """λ, the weight of the OOD term (of preload_ft's second stage; --init.ood-weight is the first's)."""
    margin_in: RecipeFloat = None
    """m_in of energy_ft."""
    margin_ood: RecipeFloat = None
    """m_ood of energy_ft."""
    warmup_epochs: RecipeInt = None
    """Epochs of doe_ft before its perturbation begins."""
    perturbation_decay: RecipeFloat = None
    """β of doe_ft's averaged perturbation."""
    class_weights: RecipeStr = None
    """Weights of the classes in the cross entropy: none, balanced (rare ones weigh more), or K numbers with commas."""
    objective_half: RecipeBool = None
    """½ (CE_in + λ CE_ood) of preload, preload_ft and nc, as the released code has it; False: without the ½."""
    exponent: RecipeInt = None
    """The even power of the features in the OOD class's logit, of preload's kind (2)."""
    distance: RecipeFloat = None
    """κ of the distance feature of preload_certified and preload_certified_ft, in typical distances (1)."""
    min_weight: RecipeFloat = None
    """Floor under the OOD class's weights, of the same methods (0.2, and 0.01)."""
    min_distance_weight: RecipeFloat = None
    """Floor under the distance's own weight, of the same methods (1)."""
    label_smoothing: RecipeFloat = None
    """α of label_smoothing (0.1)."""
    mixup_alpha: RecipeFloat = None
    """α of mixup's Beta(α, α) (0.3)."""
    focal_gamma: RecipeFloat = None
    """γ of focal (3)."""
    mmce_weight: RecipeFloat = None
    """λ of mmce's penalty (2)."""
    adversarial_epsilon: RecipeFloat = None
    """Radius of the L∞ balls in which acet and preload_adv look for worse OOD images (0.3, and 0.01)."""
    adversarial_steps: RecipeInt = None
    """Steps of that search (40, and 5)."""
    spline_variance: RecipeFloat = None
    """σ² of rgpr's spline kernel (1e-3)."""
    density_learning_rate: RecipeFloat = None
    """Of ccu's mixtures, at the first step (1e-5)."""
    head_scale: RecipeStr = None
    """Initial exp(w') of the OOD class: one (about 1, as released) or inverse_width (about 1/d)."""
    dropout: RecipeFloat = None
    """The dropout rate of WideResNet, and of mc_dropout's network (0.3)."""
    samples: RecipeInt = None
    """How often mc_dropout draws the network (32)."""
    components: RecipeInt = None
    """Gaussians of each of ccu's two mixtures (100)."""
    covariance: RecipeStr = None
    """Of laplace's and rgpr's last layer: kron (Kronecker factors) or full."""
    prior_precision: RecipeFloat = None
    """Of laplace's and rgpr's prior; the recipe's is that of the largest marginal likelihood."""
    ddu_jitter: RecipeFloat = None
    """Added to the variances of ddu's Gaussians; the recipe's is the smallest that works."""
    oe_class_mean: RecipeBool = None
    """Divides the OOD term of oe and oe_ft by K once more, as the released code does."""
    released_code_ece: RecipeBool = None
    """Leaves out the highest bin of the ECE, as the released code does."""
    precision: RecipeStr = None
    """The precision of training: auto (bfloat16 on accelerators, float32 on the CPU), float32 or bfloat16."""
    validation: RecipeStr = None
    """Where validation images are taken from: test (the paper's protocol), train, or none."""
    ood_images: Annotated[int | None, cli.option("INT", "as many as test images, at most 10,000")] = None
    """How many images each made OOD test set has (uniform, smooth, faraway, faraway_rd, photo)."""
    far_distance: RecipeFloat = None
    """t of the FarAway test sets."""
    augmentation: AugmentationArgs = field(default_factory=AugmentationArgs)
    optimizer: OptimizerArgs = field(default_factory=OptimizerArgs)
    init: InitArgs = field(default_factory=InitArgs)
    root: Path = Path("runs")
    """Runs are kept in ROOT/DATASET/METHOD/seedN."""
    run_dir: Annotated[
        Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: ROOT/DATASET/METHOD/seedN)")
    ] = None
    """Where to keep this run instead."""
    start: Annotated[
        Path | None, tyro.conf.arg(metavar="DIR|FILE", help_behavior_hint="(default: ROOT/DATASET/standard/seedN)")
    ] = None
    """The run that fine-tuning (and ddu, laplace, rgpr) starts from, trained first if it is the default and missing; or
    a file of weights, .safetensors, .pt or .pth."""
    data_dir: cli.DataDir = None
    shift: Annotated[str | None, tyro.conf.arg(metavar="STR", help_behavior_hint="(default: none)")] = None
    """Also evaluates under shift: rotation, cifar10_c (published files) or corruptions (made here)."""
    shift_images: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: all)")] = None
    """How many test images the shift uses."""
    detectors: Annotated[str | None, tyro.conf.arg(metavar="all|A,B,…|list", help_behavior_hint="(default: none)")] = (
        None
    )
    """Also fits these detectors to the network's outputs, and keeps what they do in detectors.json.
    --detectors=list alone shows which there are."""
    strict: bool = False
    """An unreadable image in a folder is an error; else it is skipped and counted."""
    devices: DevicesStr = ""
    """How many devices share each batch, or all. If there are several processes: how many of each."""
    data_placement: str = "auto"
    """Where training images are: device, host (streamed), or auto (host on CPUs, or if they are too large)."""
    distributed: bool = False
    """Trains with the other processes of a TPU slice or a cluster's job, one a machine; the first one writes."""
    coordinator: ClusterStr = None
    """HOST:PORT of the first process, where no cluster tells it."""
    num_processes: ClusterInt = None
    """How many processes there are."""
    process_id: ClusterInt = None
    """Which of them this one is, from 0."""
    overwrite: bool = False
    """Replaces whatever run the folder holds."""
    tensorboard: cli.TensorBoard = False
    quiet: cli.Quiet = False
    json: cli.Json = False


def resolve(args: Args) -> configuration.Config:
    """The configuration: the recipe's numbers, and what the command line overrides.

    Raises:
        UserError: for an unknown data set, method or recipe, a number that makes no sense, or another method's option.
    """
    data, largest_batch = _data(args)
    if args.backbone is not None:
        data = replace(data, backbone=backbones.get(args.backbone).name)
    if args.backbone_options is not None:
        args = replace(args, backbone_options=networks.read(data.backbone, args.backbone_options))
    data = _augmented(data, args.augmentation)
    config = recipes.get(data, args.method, seed=args.seed, recipe=args.recipe)
    changed = replace(cli.overrides(args, config), start=None if args.start is None else str(args.start))
    if args.warmup_epochs is None:
        # A shorter run keeps the recipe's proportion of warm-up.
        changed = configuration.scale_warmup(changed, recipe_epochs=config.epochs)
    configuration.check(changed)
    if args.batch_size is None and largest_batch is not None:
        changed = replace(changed, batch_size=min(changed.batch_size, largest_batch(changed.validation)))
    for name in (each.name for each in fields(args)):
        of = methods.with_option(name)
        if args.method not in of and getattr(args, name) not in (None, InitArgs()):
            option = f"--{name.replace('_', '-')}" + (".*" if name == "init" else "")
            raise UserError(f"{option} is for {' and '.join(of)}, the method is {args.method}; leave it out")
    return changed


def _data(args: Args) -> tuple[DatasetSpec, Callable[[str], int] | None]:
    """The data set, looked up; and, of the user's own, the largest batch that it has images for with a --validation.

    A finished run has both, where the user's own images are gone.
    """
    from experiments.runs import folder
    from preload_jax.data import datasets

    try:
        found = datasets.resolve(args.dataset, image_size=args.image_size)
        return found.spec, None if found.own is None else partial(_largest_batch, found.own)
    except DataError:
        path = args.run_dir or folder.place(args.dataset, args.method, args.seed, root=args.root)
        there = folder.RunDir(path)
        if not there.is_finished() or (config := there.read_config()).dataset != args.dataset:
            raise
        if args.image_size is not None and {args.image_size} != set(config.data.image_shape[:2]):
            raise
        return config.data, lambda validation: config.batch_size


def _largest_batch(own: Any, validation: Any) -> int:
    """The largest power of two of images that there are to train on."""
    from preload_jax.data import own_data

    return 2 ** (own_data.num_training(own, validation).bit_length() - 1)


def _augmented(data: DatasetSpec, asked: AugmentationArgs) -> DatasetSpec:
    """The data set with the augmentation of training images that was asked for."""
    changed = {name: value for name, value in vars(asked).items() if value is not None}
    if not changed:
        return data
    if data.augmentation is None:
        raise UserError(f"--augmentation.{next(iter(changed))}: {data.name} is trained without; leave it out")
    return replace(data, augmentation=replace(data.augmentation, **changed))


def main(args: Args) -> int:
    """Resolves, trains, evaluates and reports; returns the exit status."""
    from experiments.cli import detector_list, filters

    if args.detectors == detector_list.WORD:
        return detector_list.show(args)
    config = resolve(args)
    from experiments.run import workflow
    from experiments.run.options import Options

    given = {field.name: getattr(args, field.name) for field in fields(Options)}
    given["detectors"] = filters.detectors(args.detectors) if args.detectors is not None else ()
    return workflow.run(config, Options(**given))
