"""Calls of the library.

`model` is a small network for images [n, 8, 8, 1] of 4 classes with an OOD class, `variables` its variables, `images`
and `labels` six fitting images and labels, `logits` its logits of them, `params` the parameters of a wider network.
"""

from tests.bad_inputs import call

ROWS = [
    call("evaluation.predict(model, variables, images[0])", "images of shape [8, 8, 1]; expected [n, h, w, channels]"),
    call(
        "evaluation.predict(model, variables, np.repeat(images, 3, axis=-1))",
        "images of shape [6, 8, 8, 3] do not fit the network; expected the height, width and channels that it was"
        " trained on (…)",
    ),
    call(
        "evaluation.predict(model, variables, images.astype(np.int64))",
        "images of type int64; expected uint8 in [0, 255] or floating point in [0, 1]",
    ),
    call(
        "evaluation.predict(model, variables, np.float32(nan) * images)",
        "images hold NaN or infinity in 6 of 6 examples, first in example 0; expected finite numbers: repair or drop"
        " those examples",
    ),
    call("evaluation.predict(model, variables, images[:0])", "no images; give at least one"),
    call("evaluation.predict(model, variables, images, batch_size=0)", "batch_size must be at least 1, got 0"),
    call(
        "model.apply(variables, images)",
        "images of type uint8; expected floating point in [0, 1]: divide uint8 by 255",
        "TypeError",
    ),
    call(
        "evaluation.in_domain_metrics(logits, labels[:3], has_ood_class=True)",
        "6 logits but 3 labels; expected one label an image",
    ),
    call(
        "evaluation.in_domain_metrics(logits, labels + 1, has_ood_class=True)",
        "labels run from 1 to 4; expected 0 to 3",
    ),
    call(
        "evaluation.in_domain_metrics(nan * logits, labels, has_ood_class=True)",
        "30 of 30 logits are NaN: no metric of them means anything",
        "ValueError",
    ),
    call(
        "evaluation.score(methods.get('ddu'), logits)",
        "the score of ddu is a density: it needs features and fitted Gaussians",
        "ValueError",
    ),
    call(
        "metrics.auroc(jnp.array([1.0, nan]), jnp.array([0.0]))",
        "1 of 2 in-domain scores are NaN: no metric of them means anything",
        "ValueError",
    ),
    call(
        "metrics.aupr(jnp.array([1.0]), jnp.array([]))",
        "no OOD scores: a metric needs at least one value",
        "ValueError",
    ),
    call("metrics.fpr_at_tpr(jnp.ones(3), jnp.ones(3), tpr=95)", "tpr must be between 0 and 1, got 95", "ValueError"),
    call(
        "metrics.auroc(jnp.ones((3, 1)), jnp.ones(3))",
        "in-domain scores have shape [3, 1]; expected one score an input, [n]",
        "ValueError",
    ),
    call("metrics.threshold_at_tpr(jnp.ones(3), tpr=0)", "tpr must be between 0 and 1, got 0", "ValueError"),
    call(
        "metrics.from_ood_scores(np.ones(3), np.array([0, 1, 1]))",
        "scores [3] with is_ood int64 [3]; expected [n] and booleans [n]",
        "ValueError",
    ),
    call(
        "metrics.accuracy(jnp.ones((3, 4)), jnp.array([0, 1]))",
        "logits [3, 4] with labels int32 [2]; expected [n, k] and integers [n]",
        "ValueError",
    ),
    call(
        "metrics.log_likelihood(jnp.zeros((2, 3)), jnp.array([0, 3]))",
        "labels run from 0 to 3; expected 0 to 2",
        "ValueError",
    ),
    call(
        "metrics.brier_score(jnp.full((2, 3), 1 / 3), jnp.array([0, -1]))",
        "labels run from -1 to 0; expected 0 to 2",
        "ValueError",
    ),
    call(
        "metrics.expected_calibration_error(jnp.ones((2, 3)), jnp.array([0.0, 1.0]))",
        "probabilities [2, 3] with labels float32 [2]; expected [n, k] and integers [n]",
        "ValueError",
    ),
    call(
        "metrics.expected_calibration_error(jnp.ones((2, 3)), jnp.array([0, 1]), num_bins=0)",
        "num_bins must be at least 1, got 0",
        "ValueError",
    ),
    call(
        "training.Plan(num_images=100, batch_size=128, epochs=1)",
        "batch_size 128 is larger than the data (100 training images); give a smaller --batch-size",
    ),
    call("training.Plan(num_images=100, batch_size=10, epochs=0)", "epochs must be at least 1, got 0"),
    call(
        "training.check_data(data(images, labels + 1), num_logits=4)",
        "labels run from 1 to 4; expected 0 to 3, for a head of 4 logits",
        did="Training with a label that the head has no logit for",
    ),
    call(
        "training.check_data(data(images / np.float32(255), labels), num_logits=4)",
        "training images are float32 [6, 8, 8, 1]; expected uint8 [n, h, w, channels]",
        did="Training on float images",
    ),
    call(
        "training.check_data(data(images, labels[:3]), num_logits=4)",
        "labels are int32 [3]; expected integers, one for each of 6 images",
        did="Training with fewer labels than images",
    ),
    call(
        "training.check_data(data(images, labels, images[0]), num_logits=4)",
        "training outliers are uint8 [8, 8, 1]; expected uint8 [n, h, w, channels]",
        did="Training with outliers of another rank",
    ),
    call(
        "models.make_classifier('resnet', 'linear', num_classes=10)",
        "unknown backbone 'resnet'; expected one of ['lenet', 'mlp', 'wide_resnet']",
        "ValueError",
    ),
    call(
        "models.make_classifier('mlp', 'softmax', num_classes=10)",
        "unknown head 'softmax'; expected one of ['linear', 'none_class', 'square_logit']",
        "ValueError",
    ),
    call(
        "models.make_classifier('mlp', 'linear', num_classes=1)", "num_classes must be at least 2, got 1", "ValueError"
    ),
    call(
        "models.square_logit(jnp.ones((2, 3)), jnp.ones(3), jnp.ones(()), exponent=3)",
        "exponent must be an even integer >= 2, got 3",
        "ValueError",
    ),
    call(
        "models.LeNet().init(key, jnp.ones((1, 30, 30, 1)))",
        "LeNet needs images whose height and width are divisible by 4, got (30, 30, 1)",
        "ValueError",
    ),
    call(
        "models.WideResNet(depth=12).init(key, jnp.ones((1, 32, 32, 3)))",
        "depth must be 6·n + 4 with n >= 1, got 12",
        "ValueError",
    ),
    call(
        "methods.get('mahalanobis')",
        "unknown method 'mahalanobis'; expected one of ['standard', 'ddu', 'nc', 'oe', 'preload', 'oe_ft', 'doe_ft',"
        " 'energy_ft', 'preload_ft']",
    ),
    call("optimizers.Optimizer('adamw')", "unknown optimizer 'adamw'; expected one of ['sgd', 'adam']", "ValueError"),
    call(
        "density.fit(np.ones((3, 2)), np.array([0, 0, 1]), num_classes=2)",
        "class 1 has 1 images; a covariance needs at least 2",
    ),
    call(
        "density.fit(np.full((4, 2), nan), np.array([0, 0, 1, 1]), num_classes=2)",
        "8 of 8 features are not finite",
        "ValueError",
    ),
    call(
        "density.fit(np.ones((4, 2)), np.array([0, 0, 1, 1]), num_classes=2, jitter=0.0)",
        "no class covariance is positive definite with jitter 0; give a larger one",
    ),
    call("datasets.load('digits', validation='half')", "unknown validation 'half'; expected…", "DataError"),
    call(
        "datasets.load_ood('imagenet', in_domain=datasets.get('digits'), test_images=images)",
        "unknown OOD set 'imagenet'; expected one of […",
        "DataError",
    ),
    call("checkpoints.load('none')", "no checkpoints in none; train the run first"),
    call(
        "trees.restore_like(variables['params'], params)",
        "the checkpoint does not fit the model: backbone/dense1/bias is an array [16], expected an array [8]",
        did="Reading the checkpoint of a wider network",
    ),
    call(
        "torch_import.load({'fc.weight': np.ones((10, 4))})",
        "the state dict is neither the released LeNet nor WideResNet; its names begin with fc.weight",
    ),
    call(
        "torch_import.load({'fc.weight': np.ones((1, 4)), 'fc.bias': np.ones(1)})",
        "the state dict is the OOD class's layer alone (the released code's first stage of PreLoad-FT); join it to its"
        " standard network's: {**standard, 'network_part2.fc.weight': …, 'network_part2.fc.bias': …}",
    ),
    call(
        "torch_import.load('none.pt')",
        "none.pt: no such file; expected a state dict that torch.save wrote",
        "DataError",
    ),
    call(
        "weights.load('none.ckpt')",
        "none.ckpt: unknown kind of weights; expected a file that ends in .safetensors, .pt, .pth",
        "DataError",
    ),
    call(
        "weights.save('a.safetensors', model, {'params': params}, image_shape=(8, 8, 1))",
        "the checkpoint does not fit the model: …",
        did="Saving the variables of a wider network",
    ),
    call(
        "guarantees.safe_radius(variables['params']['head'], confidence=1.5)",
        "confidence must lie between 0 and 1, both excluded, got 1.5",
    ),
]
