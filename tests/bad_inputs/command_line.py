"""Options that make no sense."""

from preload_jax.methods import METHODS
from tests.bad_inputs import command

_DATASETS = "FILE.npz, cifar10, cifar100, digits, fashion_mnist, folder:PATH, mnist, svhn"
_METHODS = ", ".join(METHODS)
_DEVICES = "there …; choose 1…, or all"
_HELP = "; see python -m experiments.run --help"

ROWS = [
    command("--epochs=0", "--epochs must be at least 1, got 0"),
    command("--epochs=ten", "…'ten'…" + _HELP),
    command("--epochs=1.5", "…'1.5'…" + _HELP),
    command("--epochs", "Missing value for argument '--epochs'…" + _HELP),
    command("--epoch=3", "Unrecognized options: --epoch=3; did you mean --epochs?" + _HELP),
    command("run digits", "Unrecognized options: digits" + _HELP),
    command("--method=prelod", f"unknown method 'prelod' (did you mean 'preload'?); expected one of {_METHODS}"),
    command("--dataset=minst", f"unknown dataset 'minst' (did you mean 'mnist'?); expected one of {_DATASETS}"),
    command("--recipe=mine", "unknown recipe 'mine'; expected one of paper, released_code, tuned"),
    command("--dataset=Folder:x", f"unknown dataset 'Folder:x' (did you mean folder:x?); expected one of {_DATASETS}"),
    command("--run-dir=", "--run-dir= names no file or folder; expected a path (is a variable of the shell not set?)"),
    command("--dataset=folder:", "folder: names no folder; expected folder:PATH (is a variable of the shell not set?)"),
    command("--seed=-1", "seed must be at least 0, got -1"),
    command("--seed=4294967296", "seed must be below 2**32, got 4294967296: JAX reads 32 bits of it"),
    command("figures --figure=toy_1d --seed=-1", "--seed must be at least 0, got -1"),
    command(
        "certify --run=HERE/standard --seed=4294967296",
        "--seed must be below 2**32, got 4294967296: JAX reads 32 bits of it",
    ),
    command("--max-steps=0", "--max-steps must be at least 1, got 0"),
    command("--batch-size=0", "--batch-size must be at least 1, got 0"),
    command(
        "--batch-size=5000",
        "--batch-size 5000 is larger than the data (1297 training images); give a smaller --batch-size",
    ),
    command("--image-size=32", "the images of digits have one size; leave out --image-size, which is for folder:PATH"),
    command("--ood-images=0", "--ood-images must be at least 1, got 0"),
    command("--ood-images=99999999999", "--ood-images must be at most 10,000,000, got 99,999,999,999"),
    command("evaluate --run=HERE/standard --ood-images=-3", "--ood-images must be at least 1, got -3"),
    command(
        "--backbone=vit --backbone.blocks=3",
        "unknown option --backbone.blocks of vit; expected one of depth, dropout, heads, hidden, mean, patch, std,"
        " width",
    ),
    command("--backbone=vit --backbone.depth=six", "--backbone.depth must be an integer, got 'six'"),
    command(
        "--backbone=resnet18 --backbone.blocks=2,,2",
        "--backbone.blocks must be integers with commas between, got '2,,2'",
    ),
    command("--backbone.widths", "Missing value for argument '--backbone.widths'" + _HELP),
    command("--backbone=vit --backbone.heads=5", "--backbone.heads=5: heads must divide the width 192, got 5"),
    command(
        "--backbone=wide_resnet --backbone.dropout=0.1",
        "--backbone.dropout is an option of its own: give --dropout=0.1",
    ),
    command(
        "--backbone=vit --backbone.patch=3",
        "a ViT of 3×3 patches needs images whose height and width are multiples of 3, got 8×8: give another"
        " --image-size or --backbone",
    ),
    command("--ood-weight=-1", "--ood-weight must be finite and at least 0, got -1.0"),
    command("--ood-weight=nan", "--ood-weight must be finite and at least 0, got nan"),
    command("--method=energy_ft --margin-in=inf", "--margin-in must be finite, got inf"),
    command("--method=energy_ft --margin-ood=nan", "--margin-ood must be finite, got nan"),
    command(
        "--optimizer.name=adamw", "unknown --optimizer.name 'adamw' (did you mean 'adam'?); expected one of sgd, adam"
    ),
    command("--optimizer.learning-rate=-0.1", "--optimizer.learning-rate must be finite and at least 0, got -0.1"),
    command("--optimizer.weight-decay=inf", "--optimizer.weight-decay must be finite and at least 0, got inf"),
    command("--optimizer.momentum=2", "--optimizer.momentum must be finite and at least 0 and at most 1, got 2.0"),
    command(
        "--method=preload_certified --min-weight=-1",
        "--min-weight must be finite and at least 0 and at most 1e+06, got -1.0",
    ),
    command(
        "--method=preload_certified --min-distance-weight=nan",
        "--min-distance-weight must be finite and at least 0 and at most 1e+06, got nan",
    ),
    command(
        "--method=preload_certified --distance=0",
        "--distance must be finite and at least 1e-06 and at most 1e+06, got 0.0",
    ),
    command(
        "--distance=1",
        "--distance is for preload_certified and preload_certified_ft, the method is preload; leave it out",
    ),
    command(
        "--method=label_smoothing --label-smoothing=1",
        "--label-smoothing must be finite and at least 0 and below 1, got 1.0",
    ),
    command("--label-smoothing=0.1", "--label-smoothing is for label_smoothing, the method is preload; leave it out"),
    command("--method=mixup --mixup-alpha=0", "--mixup-alpha must be finite and above 0, got 0.0"),
    command("--method=focal --focal-gamma=-1", "--focal-gamma must be finite and at least 0, got -1.0"),
    command("--method=mmce --mmce-weight=nan", "--mmce-weight must be finite and at least 0, got nan"),
    command(
        "--method=acet --adversarial-epsilon=-0.3", "--adversarial-epsilon must be finite and at least 0, got -0.3"
    ),
    command(
        "--method=preload_adv --adversarial-steps=0", "--adversarial-steps must be an integer and at least 1, got 0"
    ),
    command(
        "--method=ceda --adversarial-steps=40",
        "--adversarial-steps is for acet and preload_adv, the method is ceda; leave it out",
    ),
    command("--dropout=1", "--dropout must be finite and at least 0 and at most 0.99, got 1.0"),
    command(
        "--method=mc_dropout --dropout=0",
        "MC dropout with a dropout of 0 draws the same network each time; give a rate above 0",
    ),
    command(
        "--method=mc_dropout --backbone=conv_net --backbone.dropout=0.2",
        "--backbone.dropout is an option of its own with mc_dropout: give --dropout=0.2",
    ),
    command("--method=mc_dropout --samples=0", "--samples must be at least 1, got 0"),
    command("--samples=5", "--samples is for mc_dropout, the method is preload; leave it out"),
    command(
        "--method=laplace --prior-precision=0",
        "--prior-precision must be finite and at least 1e-08 and at most 1e+08, got 0.0",
    ),
    command(
        "--method=laplace --prior-precision=1e300",
        "--prior-precision must be finite and at least 1e-08 and at most 1e+08, got 1e+300",
    ),
    command("--method=laplace --covariance=diagonal", "unknown --covariance 'diagonal'; expected one of kron, full"),
    command(
        "--method=rgpr --spline-variance=0",
        "--spline-variance must be finite and at least 1e-20 and below 1e+20, got 0.0",
    ),
    command(
        "--method=laplace --spline-variance=1", "--spline-variance is for rgpr, the method is laplace; leave it out"
    ),
    command("--method=ccu --components=0", "--components must be at least 1, got 0"),
    command("--components=5", "--components is for ccu, the method is preload; leave it out"),
    command(
        "--method=ccu --density-learning-rate=-1",
        "--density-learning-rate must be finite and at least 0, got -1.0",
    ),
    command("--far-distance=inf", "--far-distance must be finite and at least 0 and at most 1e+15, got inf"),
    command(
        "--precision=float16",
        "unknown --precision 'float16' (did you mean 'bfloat16'?); expected one of auto, float32, bfloat16",
    ),
    command(
        "--class-weights=rare",
        "unknown --class-weights 'rare'; expected none, balanced, or 10 numbers with commas between",
    ),
    command(
        "--class-weights=1,2",
        "--class-weights are 1,2; expected none, balanced, or 10 numbers with commas between, each above 0",
    ),
    command("--validation=half", "unknown --validation 'half'; expected one of test, train, none"),
    command("--head-scale=two", "unknown --head-scale 'two'; expected one of one, inverse_width"),
    command("--method=ddu --ddu-jitter=-1", "--ddu-jitter must be finite and at least 0, got -1.0"),
    command("--method=preload_ft --init.epochs=0", "--init.epochs must be at least 1, got 0"),
    command("--method=doe_ft --warmup-epochs=-1", "--warmup-epochs must be at least 0, got -1"),
    command("--oe-class-mean=True", "--oe-class-mean is for oe and oe_ft, the method is preload; leave it out"),
    command("--method=oe --margin-in=-3", "--margin-in is for energy_ft, the method is oe; leave it out"),
    command(
        "--init.optimizer.name=sgd",
        "--init.* is for preload_ft and preload_certified_ft, the method is preload; leave it out",
    ),
    command("--start=HERE/run", "--start HERE/run: preload starts from random weights; leave --start out"),
    command(
        "--method=doe_ft --start=HERE/none",
        "--start HERE/none: no such file or folder; give the folder of a finished standard run, or a file of its"
        " weights",
    ),
    command("--outliers=digits", "outliers 'digits' are the in-domain images themselves; choose others"),
    command("--outliers=photos", "unknown outliers 'photos' (did you mean 'photo'?); expected one of …"),
    command(
        "--outliers=random_images_300k",
        "outliers random_images_300k (uint8 [300000, 32, 32, 3], 300K_random_images.npy from …) are not prepared in"
        " HERE/data; run `python -m experiments.prepare_data --dataset=random_images_300k` (--source=DIR if you have"
        " the file), or choose --outliers=folder:PATH (any photos), smooth or uniform",
    ),
    command(
        "--dataset=mnist",
        "mnist is not prepared in HERE/data; run `python -m experiments.prepare_data --dataset=mnist`"
        " (add --source=DIR if you already have the files)",
    ),
    command("--devices=0", f"0 devices asked for, {_DEVICES}"),
    command("--devices=4096", f"4096 devices asked for, {_DEVICES}"),
    command("--devices=two", "unknown --devices 'two'; expected a number or all"),
    command(
        "--devices=all --batch-size=7",
        "a batch of 7 cannot be divided among … devices; choose a multiple of their number",
    ),
    command("--data-placement=disk", "unknown data placement 'disk'; expected one of device, host, auto"),
    command("tune --ood-reward=nan", "--ood-reward must be finite and at least 0, got nan"),
    command("tune --ood-set=photo --ood-reward=-1", "--ood-reward must be finite and at least 0, got -1.0"),
    command("tables --seeds=0-99999999999", "--seeds must be below 2**32, got 99999999999: JAX reads 32 bits of it"),
    command(
        "paper --dataset=digits --seeds=0-4294967295",
        "--seeds '0-4294967295' names more than 10,000 numbers; expected fewer, such as 0-4",
    ),
    command("paper --dataset=digits --seeds=4-0", "--seeds '4-0': '4-0' runs backwards; expected for example 0-4"),
    command("paper --dataset=digits --shard=1/99999999999", "--shard=1/99999999999: expected at most 10,000 parts"),
    command(
        "certify --run=HERE/standard --num-directions=99999999999",
        "--num-directions must be at most …,… for such inputs, got 99,999,999,999",
    ),
    command("tune --devices=4096", f"4096 devices asked for, {_DEVICES}"),
    command("paper --dataset=digits --devices=two", "unknown --devices 'two'; expected a number or all"),
    command("--coordinator=head", "coordinator must be HOST:PORT of the first process, got 'head'"),
    command(
        "--coordinator=head:1234 --num-processes=2 --process-id=2",
        "--process-id must be from 0 to 1, since --num-processes is 2, got 2",
    ),
    command("--num-processes=0", "--num-processes must be at least 1, got 0"),
    command("--distributed --process-id=-1", "--process-id must be at least 0, got -1"),
    command(
        "--process-id=0",
        "give coordinator (HOST:PORT), --num-processes and --process-id, all three; or none of them on a cluster that"
        " tells them",
    ),
    command("evaluate --run=HERE/none --devices=two", "unknown --devices 'two'; expected a number or all"),
    command(
        "evaluate --run=HERE/none --coordinator=head",
        "coordinator must be HOST:PORT of the first process, got 'head'",
    ),
    command(
        "evaluate --features=a.npz,b.npz --devices=2",
        "--devices is of a network, and --features has none; leave one out",
    ),
    command("certify --run=HERE/none --ball=-1", "--ball must be finite and at least 0, got -1.0"),
    command("certify --run=HERE/none", "HERE/none: no such folder; HERE holds …; expected the folder of a run"),
    command("certify", "Missing from python -m experiments.certify: --run…; see python -m experiments.certify --help"),
    command("prepare_data --dataset=imagenet", "unknown dataset 'imagenet' (did you mean 'imagenet32'?); expected…"),
    command("prepare_data --source=HERE", "--source without --dataset; name the set to prepare, or --dataset=all"),
]
