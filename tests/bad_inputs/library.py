"""Calls of the library.

`outputs` are six rows of three features.  `model` is a small network for images [n, 8, 8, 1] of 4 classes with an OOD
class, `variables` its variables, `linear` one without, `images` and `labels` six fitting images and labels, `logits`
its logits of them, `params` the parameters of a wider network, `network` a plain function.
"""

from preload_jax.methods import METHODS
from tests.bad_inputs import call

ROWS = [
    call(
        "forward.predict(model, variables, images[0])",
        "images of shape [8, 8, 1]; expected [n, 8, 8, 1]: for one image give images[None]",
    ),
    call(
        "forward.predict(model, variables, np.ones(8))",
        "images of shape [8]; expected [n, h, w, channels], or [n, …] of another rank",
    ),
    call(
        "forward.predict(model, variables, np.repeat(images, 3, axis=-1))",
        "images of shape [n, 8, 8, 3] do not fit the network; expected the height, width and channels that it was"
        " trained on (…)",
    ),
    call(
        "forward.predict(model, variables, images.astype(np.int64))",
        "images of type int64; expected uint8 in [0, 255] or floating point in [0, 1]: the network takes"
        " floating point",
    ),
    call(
        "forward.predict(model, variables, np.float32(nan) * images)",
        "images hold NaN or infinity in 6 of 6 examples, first in example 0; expected finite numbers: repair or drop"
        " those examples",
    ),
    call("forward.predict(model, variables, images[:0])", "no images; give at least one"),
    call("forward.predict(model, variables, images, batch_size=0)", "batch_size must be at least 1, got 0"),
    call(
        "model.apply(variables, images)",
        "images of type uint8; expected floating point in [0, 1]: divide uint8 by 255",
        "TypeError",
    ),
    call(
        "predict(model, jax.tree.map(lambda x: nan * x, variables), images)",
        "the network answers NaN for 6 of 6 images: are its variables finite, and tokens within its vocabulary?",
    ),
    call("predict(model, variables, images, batch_size=2.5)", "batch_size must be an integer, got 2.5"),
    call(
        "predict(model, None, images)",
        'the variables are a NoneType; expected {"params": …}, as model.init and fit return',
    ),
    call(
        "predict(variables, model, images)",
        "the model is a dict; expected a Classifier, such as make_classifier makes; model and variables have changed"
        " places",
    ),
    call(
        "evaluate(model, variables, images, labels)",
        "ood is a ndarray; expected a dictionary of name → images, and (images, labels) as one pair before it",
    ),
    call(
        "fit(model, images, labels, images, batch_size=2, validation=images)",
        "validation is a ndarray; expected (images, labels), or batches of them",
    ),
    call(
        "evaluate(model, variables, (images, labels.astype(str)))",
        "labels are <U21 [6]; expected integers 0 … K - 1, one an image",
    ),
    call(
        "evaluate(model, variables, (images, np.eye(4, dtype=int)[labels]))",
        "labels of shape [6, 4]; expected [n], one integer an image: of one-hot labels, and of probabilities, give"
        " labels.argmax(axis=1)",
    ),
    call("fit(model, images, labels, images, epochs=1.5)", "epochs must be an integer, got 1.5"),
    call(
        "fit(model, images, labels, images, batch_size=2, seed=2**32)",
        "seed must be below 2**32, got 4294967296: JAX reads 32 bits of it",
    ),
    call("models.make_classifier('mlp', 'linear', num_classes=2.5)", "num_classes must be an integer, got 2.5"),
    call(
        "models.make_classifier('lenet', 'linear', num_classes=3, channels=(32,))",
        "channels must be two integers, of the two convolutions, got (32,)",
    ),
    call(
        "fit(model, images, labels, images, learning_rate=np.float64('1e400'))",
        "learning_rate must be finite and at least 0, got np.float64(inf)",
    ),
    call(
        "models.make_classifier('mlp', 'square_logit', num_classes=3, min_weight=np.inf)",
        "min_weight must be finite and at least 0, got inf",
    ),
    call(
        "models.ViT(patch=4).init(key, jnp.ones((1, 30, 32, 3)))",
        "a ViT of 4×4 patches needs images whose height and width are multiples of 4, got 30×32",
    ),
    call(
        "models.ConvNet().init(key, jnp.ones((1, 7, 7, 1)))",
        "a ConvNet of 3 blocks needs images of at least 8×8 pixels, got 7×7",
    ),
    call("models.ViT(width=100)", "heads must divide the width 100, got 3"),
    call("models.ResNet18(stem='large')", "unknown stem 'large'; expected one of auto, cifar, imagenet"),
    call(
        "models.ResNet18(mean=(0.5,))", "mean and std must both be given, a number a channel each, got (0.5,) and None"
    ),
    call(
        "models.MCDropout(models.MLP(), models.LinearHead(3))",
        "MC dropout with a dropout of 0 draws the same network each time; give a rate above 0",
    ),
    call(
        "fit(models.ensemble([linear] * 2, [linear_variables] * 2)[0], images, labels)",
        "the network is an ensemble; train each of its networks, and then join them (models.ensemble)",
    ),
    call(
        "fit(linear, images, labels, method='focal', own=['focal_gamma'])",
        "own is ['focal_gamma']; expected numbers by name, such as {'focal_gamma': 2.0}",
    ),
    call(
        "models.ensemble([linear] * 2, [linear_variables, None])",
        "the variables of network 1 of the ensemble are a NoneType; expected a dictionary with 'params'",
    ),
    call("models.ensemble([linear], [linear_variables])", "an ensemble of 1 networks; give two at least"),
    call(
        "models.ensemble([linear, model], [linear_variables, variables])",
        "network 1 of the ensemble has a SquareLogitHead for 4 classes and the OOD class, the first has a LinearHead"
        " for 4 classes; an ensemble is of networks with the same classes and head",
    ),
    call(
        "bayes.fit_laplace(model, variables, images)",
        "the head is a SquareLogitHead with an OOD class; a last-layer Laplace approximation is of a LinearHead without"
        " an OOD class",
    ),
    call(
        "bayes.fit_laplace(linear, linear_variables, images, prior_precision=-1.0)",
        "prior_precision must be finite and above 0 and at least 1e-08 and at most 1e+08, got -1.0",
    ),
    call(
        "bayes.fit_laplace(linear, linear_variables, images, outliers=images, ood_weight=-1)",
        "ood_weight must be finite and at least 0 and at most 1e+08, got -1",
    ),
    call("bayes.fit_laplace(linear, linear_variables, images, outliers=images[:0])", "no images; give at least one"),
    call(
        "bayes.fit_rgpr(linear, linear_variables, images, variance=0.0)",
        "variance must be finite and at least 1e-20 and below 1e+20, got 0.0",
    ),
    call(
        "bayes.fit_rgpr(linear, linear_variables, images.astype(np.int32))",
        "images of type int32: a distance between integers, such as tokens, says nothing",
    ),
    *(
        call(f"fit(models.make_classifier('mlp', 'ccu', num_classes=4, components={m}), {given}, method='ccu')", sees)
        for m, given, sees in (
            (9, "images, labels, images", "6 images for 9 components; give more, or fewer components"),
            (3, "images, labels, images[:2]", "2 outliers for 3 components; give more, or fewer components"),
            (
                2,
                "0 * images, labels, images",
                "the images' largest variance is 0; expected images that differ, in [0, 1] or normalised",
            ),
            (
                2,
                "images, labels, images, ood_weight=0",
                "ood_weight is 0; ccu takes it as p(o) / p(i), which must be above 0",
            ),
        )
    ),
    call(
        "fit(models.make_classifier('mlp', 'ccu', num_classes=4, components=2), images / 255, labels, nan * images,"
        " method='ccu')",
        "training outliers hold NaN or infinity in 6 of 6 examples, first in example 0; expected finite numbers: repair"
        " or drop those examples",
    ),
    call(
        "guarantees.density_radius(model, variables, 0.5)",
        "expected a classifier with a CCUHead, got SquareLogitHead: no other has densities",
    ),
    call(
        "bayes.posterior(nan * outputs.features, head=(np.eye(3), np.zeros(3)))",
        "features hold NaN or infinity in 6 of 6 examples, first in example 0; expected finite numbers: repair or drop"
        " those examples",
    ),
    call("models.MLP(widths=(8, 0))", "widths must be at least 1, got 0"),
    call("models.WideResNet(depth=17)", "depth must be 6·n + 4 with n >= 1, got 17"),
    call("models.WithDistance(models.MLP(), scale=1j)", "the distance's scale must be a number, got 1j"),
    call(
        "detectors.fit('knn', outputs, k=1.5)",
        "k must be an integer, got 1.5",
    ),
    call(
        "detectors.fit('energy', outputs, head=(np.eye(3), np.zeros(3)), temperature=-1)",
        "temperature must be finite and above 0, got -1",
    ),
    call("decisions.calibrate([])", "no calibration scores; give those of held-out in-domain inputs"),
    call(
        "decisions.calibrate(np.arange(58.0))",
        "58 calibration scores, one for each held-out input (validation image); a false-alarm rate of 0.05 with"
        " confidence 0.95 takes at least 59: hold out more, or promise less: a higher rate, or a lower confidence",
    ),
    call(
        "decisions.calibrate(np.arange(99.0), false_alarm_rate=5)",
        "false_alarm_rate must lie between 0 and 1, both excluded, got 5",
    ),
    call("decisions.calibrate(nan * np.arange(99.0))", "99 of 99 calibration scores are NaN; expected numbers"),
    call(
        "predict(model, variables, images, rule=decisions.calibrate(np.arange(99.0), score='vim'))",
        "the rule was calibrated for the score 'vim', this one is 'in_domain_probability'; give its own",
    ),
    call(
        "recalibration.fit('temperature', logits[:0], labels[:0], has_ood_class=True)",
        "no examples; give logits and labels of held-out in-domain inputs",
    ),
    call(
        "recalibration.fit('spline', nan * logits, labels, has_ood_class=True)",
        "logits hold NaN or infinity in 6 of 6 examples, first in example 0; expected finite numbers: repair or drop"
        " those examples",
    ),
    call(
        "recalibration.fit('temperature', logits, labels + 1, has_ood_class=True)",
        "labels run from 1 to 4; expected 0 to 3",
    ),
    call(
        "recalibration.fit('vector', logits, 0 * labels, has_ood_class=True)",
        "class 1 of 4 has no example, and vector has numbers for each class; give examples of all classes, or fit"
        " temperature or spline",
    ),
    call(
        "recalibration.fit('temperature', np.eye(3), np.arange(3))",
        "no temperature in 0.0001 … 10000 minimises the cross-entropy; give labelled examples of which the network gets"
        " some wrong",
    ),
    call(
        "recalibration.fit('temperature', np.ones((6, 1)), 0 * labels)",
        "logits are float64 [6, 1]; expected floating point [n, k] of two classes at least",
    ),
    call(
        "recalibration.fit('vector', logits, labels, has_ood_class=True).logits(logits[:, :3])",
        "logits are float32 [6, 3]; the recalibration was fitted to 5 columns, 4 classes and the OOD class: expected"
        " floating point [n, 5]",
    ),
    call(
        "recalibration.guarantee(recalibration.fit('vector', logits, labels, has_ood_class=True), linear,"
        " linear_variables)",
        "the recalibration is of 4 classes with an OOD class; the network has 4 without: give its own",
    ),
    call("predict(linear, linear_variables, images, threshold=nan)", "threshold is nan; expected a number"),
    call("predict(linear, linear_variables, images, threshold=True)", "threshold is True; expected a number"),
    call("predict(linear, linear_variables, images, ood_class='no')", "ood_class must be True or False, got 'no'"),
    call(
        "recalibration.fit('temperature', logits, labels, has_ood_class='no')",
        "has_ood_class must be True or False, got 'no'",
    ),
    call("metrics.aupr(jnp.ones(3), jnp.ones(3), ood_positive='no')", "ood_positive must be True or False, got 'no'"),
    call(
        "predict(linear, variables, images)",
        "the variables are of another network: params/head/ood/bias is an array [], the model has nothing there;"
        " give the model's own",
    ),
    call(
        "evaluate(model, linear_variables, (images, labels))",
        "the variables are of another network: params/head/ood/bias is missing, the model has an array [] there;"
        " give the model's own",
    ),
    call(
        "predict(model, variables, np.ma.masked_array(images))",
        "a masked array was given; its hidden values would count: fill them, or drop those examples",
    ),
    call(
        "fit(model, images, labels + 2**32, images)",
        "labels run from 4294967296 to 4294967299; expected integers 0 … K - 1",
    ),
    call(
        "fit(model, images, labels.astype('m8[s]'), images)",
        "labels are timedelta64[s] [6]; expected integers 0 … K - 1, one an image",
    ),
    call(
        "metrics.auroc(np.ma.masked_greater(np.array([1.0, 99.0]), 50), np.array([2.0]))",
        "in-domain scores are a masked array; its hidden values would count: fill or drop them",
    ),
    call(
        "models.Classifier(network, models.LinearHead(4))",
        "the backbone is a function; expected a Flax Linen module: of a network in NNX, Equinox or plain JAX,"
        " adapters.from_nnx, from_equinox or from_function makes one",
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
        "24 of 24 logits are NaN: no metric of them means anything",
    ),
    call(
        "evaluation.Scorer(model, variables, True, 'entropy')",
        "unknown score 'entropy'; expected one of max_probability, in_domain_probability, negative_energy, or a"
        " fitted detector",
    ),
    call(
        "evaluation.Scorer(model, variables, False, 'in_domain_probability')",
        "the score in_domain_probability is of the OOD class, and the network has none",
    ),
    call("fit('lenet', images, labels)", "the model is a str; expected a Classifier, such as make_classifier makes"),
    call(
        "evaluate(model, variables, (images, labels), [images])",
        "ood is a list; expected a dictionary of name → images",
    ),
    call(
        "fit(linear, images, labels, images, method='preload')",
        "preload trains a square-logit head, the network has a linear head; make it with make_classifier(...,"
        " 'square_logit'), or choose a method for its head",
        did="Training a linear head by PreLoad",
    ),
    call(
        "fit(model, images, labels, images, learning_rate=-1.0)",
        "learning_rate must be finite and at least 0, got -1.0",
    ),
    call(
        "fit(model, images, labels, images, learning_rate=nan)",
        "learning_rate must be finite and at least 0, got nan",
    ),
    call(
        "fit(model, images, labels, images, margin_in=-3.0)",
        "margin_in is for energy_ft, the method is preload; leave it out",
    ),
    call(
        "fit(linear, images, labels, method='ddu')",
        "ddu trains nothing: fit(..., method=\"standard\"), and score with detectors.fit('ddu', …)",
    ),
    call(
        "fit(model, images, labels, images, method='preload_ft', batch_size=2)",
        "preload_ft starts from a trained network; give variables, such as those of fit(..., method='standard') with a"
        " linear head",
    ),
    call(
        "metrics.expected_calibration_error(4 * jnp.eye(3), jnp.arange(3))",
        "probabilities run from 0 to 4; expected numbers from 0 to 1: take the softmax of logits",
    ),
    call(
        "metrics.log_likelihood(jnp.eye(3), jnp.arange(3))",
        "the exponentials of a row of log-probabilities add up to more than 1; expected 1 at most: take the log-softmax"
        " of logits, or the logarithm of probabilities",
    ),
    call(
        "decisions.calibrate(2**60 + np.arange(500))",
        "calibration scores are integers from 1152921504606846976 to 1152921504606847475, which float32 does not tell"
        " apart; expected at most 16,777,216 in size: subtract the same integer from all, or give their logarithms",
    ),
    call(
        "metrics.auroc(jnp.array([1.0, nan]), jnp.array([0.0]))",
        "1 of 2 in-domain scores are NaN: no metric of them means anything",
    ),
    call(
        "metrics.aupr(jnp.array([1.0]), jnp.array([]))",
        "no OOD scores: a metric needs at least one value",
    ),
    call("metrics.fpr_at_tpr(jnp.ones(3), jnp.ones(3), tpr=95)", "tpr must lie between 0 and 1, both excluded, got 95"),
    call(
        "metrics.auroc(jnp.ones((3, 1)), jnp.ones(3))",
        "in-domain scores have shape [3, 1]; expected one score an input, [n]",
    ),
    call("metrics.threshold_at_tpr(jnp.ones(3), tpr=0)", "tpr must lie between 0 and 1, both excluded, got 0"),
    call(
        "metrics.from_ood_scores(np.ones(3), np.array([0, 1, 1]))",
        "scores [3] with is_ood int64 [3]; expected [n] and booleans [n]",
    ),
    call(
        "metrics.accuracy(jnp.ones((3, 4)), jnp.array([0, 1]))",
        "logits [3, 4] with labels int32 [2]; expected [n, k] and integers [n]",
    ),
    call(
        "metrics.log_likelihood(jnp.zeros((2, 3)), jnp.array([0, 3]))",
        "labels run from 0 to 3; expected 0 to 2",
    ),
    call(
        "metrics.brier_score(jnp.full((2, 3), 1 / 3), jnp.array([0, -1]))",
        "labels run from -1 to 0; expected 0 to 2",
    ),
    call(
        "metrics.expected_calibration_error(jnp.ones((2, 3)), jnp.array([0.0, 1.0]))",
        "probabilities [2, 3] with labels float32 [2]; expected [n, k] and integers [n]",
    ),
    call(
        "metrics.expected_calibration_error(jnp.ones((2, 3)), jnp.array([0, 1]), num_bins=0)",
        "num_bins must be at least 1, got 0",
        "UserError",
    ),
    call(
        "Plan(num_images=100, batch_size=128, epochs=1)",
        "batch_size 128 is larger than the data (100 training images); give a smaller batch_size",
    ),
    call("Plan(num_images=100, batch_size=10, epochs=0)", "epochs must be at least 1, got 0"),
    call(
        "loop.check_data(data(images, labels + 1), num_logits=4)",
        "labels run from 1 to 4; expected 0 to 3, for a head of 4 logits",
        did="Training with a label that the head has no logit for",
    ),
    call(
        "loop.check_data(data(images / np.float32(255), labels, images), num_logits=4)",
        "training images are float32 and outliers uint8; expected one type: uint8 is divided by 255, other numbers are"
        " taken as they are",
        did="Training on float images with uint8 outliers",
    ),
    call(
        "loop.check_data(data(images, labels[:3]), num_logits=4)",
        "labels are int32 [3]; expected integers, one for each of 6 images",
        did="Training with fewer labels than images",
    ),
    call(
        "loop.check_data(data(images, labels, images[0]), num_logits=4)",
        "training images are [6, 8, 8, 1] and outliers [8, 8, 1]; expected the same number of axes",
        did="Training with outliers of another rank",
    ),
    call(
        "models.make_classifier('resnet', 'linear', num_classes=10)",
        "unknown backbone 'resnet' (did you mean 'resnet50'?); expected one of conv_net, lenet, mlp, resnet18,"
        " resnet34, resnet50, vit, wide_resnet",
    ),
    call(
        "models.make_classifier('mlp', 'softmax', num_classes=10)",
        "unknown head 'softmax'; expected one of linear, none_class, square_logit, laplace, rgpr, ccu",
    ),
    call(
        "models.make_classifier('mlp', 'linear', num_classes=4, width=(3,))",
        "unknown option of mlp 'width' (did you mean 'widths'?); expected one of widths, dropout",
    ),
    call("models.make_classifier('mlp', 'linear', num_classes=1)", "num_classes must be at least 2, got 1"),
    call(
        "models.square_logit(jnp.ones((2, 3)), jnp.ones(3), jnp.ones(()), exponent=3)",
        "exponent must be an even integer >= 2, got 3",
    ),
    call(
        "models.LeNet().init(key, jnp.ones((1, 30, 30, 1)))",
        "LeNet needs images whose height and width are divisible by 4, got 30×30",
    ),
    call(
        "models.WideResNet(depth=12).init(key, jnp.ones((1, 32, 32, 3)))",
        "depth must be 6·n + 4 with n >= 1, got 12",
    ),
    call(
        "methods.get('mahalanobis')",
        f"unknown method 'mahalanobis'; expected one of {', '.join(METHODS)}",
    ),
    call(
        "fit(linear, images, labels, method='focal', own={'focal_gamma': -1})",
        "focal_gamma must be finite and at least 0, got -1",
    ),
    call(
        "fit(linear, images, labels, method='mixup', own={'focal_gamma': 2.0})",
        "focal_gamma is for focal, the method is mixup; leave it out",
    ),
    call(
        "fit(linear, images.reshape(6, 64).astype(np.float32), labels, method='ceda', batch_size=2)",
        "noise is made of images [n, h, w, channels], got float32 [2, 64]; choose a method with outliers of your own",
    ),
    call(
        "guarantees.ball_certificate(model, variables, images, epsilon=-0.01)",
        "epsilon must be finite and at least 0, got -0.01",
    ),
    call(
        "guarantees.ball_certificate(*models.ensemble([model] * 2, [variables] * 2), images)",
        "expected a Classifier with a LinearHead or a SquareLogitHead, got EnsembleHead",
    ),
    call(
        "optimizers.Optimizer('adamw')", "unknown optimizer 'adamw' (did you mean 'adam'?); expected one of sgd, adam"
    ),
    call(
        "detectors.fit('energy', detectors.Outputs(logits=np.ones((6, 4))), np.arange(6) % 3)",
        "class 3 has no examples; if the last of the 4 logits is of an OOD class, give num_classes=3, and else"
        " num_classes=4",
    ),
    call(
        "detectors.fit('ddu', outputs, np.array([0, 0, 1]))",
        "labels are int64 [3] and the outputs have 6 rows; expected integers [6], one a row (features are [n, d] and"
        " logits [n, K])",
    ),
    call(
        "detectors.fit('ddu', outputs, np.array([0, 0, 1, 1, 2, 2]), num_classes=2)",
        "labels run from 0 to 2; expected 0 to 1",
    ),
    call(
        "detectors.fit('ddu', outputs, np.array([0, 0, 0, 0, 0, 1]), num_classes=2)",
        "class 1 has 1 examples; a covariance needs at least 2",
    ),
    call(
        "detectors.fit('mahalanobis', outputs, np.array([0, 0, 0, 2, 2, 2]))",
        "class 1 has 0 examples; give at least one of each class",
    ),
    call(
        "detectors.fit('ddu', detectors.Outputs(np.full((4, 2), nan)), np.array([0, 0, 1, 1]))",
        "features hold NaN or infinity in 4 of 4 examples, first in example 0; expected finite numbers: repair or drop"
        " those examples",
    ),
    call(
        "detectors.fit('ddu', detectors.Outputs(np.ones((4, 2))), np.array([0, 0, 1, 1]), jitter=0.0)",
        "no class covariance is positive definite with jitter 0; give a larger one",
    ),
    call(
        "detectors.fit('mahala', outputs, np.arange(6) % 2)",
        "unknown detector 'mahala' (did you mean 'mahalanobis'?); expected one of …",
    ),
    call(
        "detectors.fit('knn', outputs, K=5)",
        "unknown option of knn 'K' (did you mean 'k'?); expected one of k, normalize",
    ),
    call("detectors.fit('knn', outputs)", "k = 50; expected 1 to 6, the number of training examples"),
    call(
        "detectors.fit('mahalanobis', outputs)",
        "labels are missing; this detector needs labels of the training data",
    ),
    call(
        "detectors.fit('vim', outputs)",
        "head is missing; this detector needs head=(kernel [d, K], bias [K])",
    ),
    call(
        "detectors.fit('residual', detectors.Outputs(np.ones((9, 1))), head=(np.ones((1, 2)), np.zeros(2)))",
        "features have 1 column; it needs two at least, of which some directions are left out",
    ),
    call(
        "detectors.fit('vim', outputs, head=(np.ones((3, 2)), np.zeros(2)), dims=3)",
        "dims = 3; expected 1 to 2, fewer than the features",
    ),
    call(
        "detectors.fit('dice', outputs, head=(np.ones((2, 3)), np.zeros(3)))",
        "features have 3 columns and the head's kernel 2 rows; expected the same number (torch's weight is [K, d]:"
        " transpose it; logits are given as Outputs(logits=…))",
    ),
    call(
        "detectors.score(detectors.fit('energy', outputs, head=None), outputs)",
        "logits are missing; this detector needs logits [n, K]: give Outputs(logits=…)",
    ),
    call(
        "detectors.fit('gram', outputs, np.arange(6) % 2, num_classes=2)",
        "logits are missing; this detector needs logits [n, K]: give Outputs(logits=…)",
    ),
    call(
        "detectors.fit('ddu', iter([(outputs, np.arange(6) % 2)]), num_classes=2)",
        "ddu reads the training data 2 times or more, and an iterator can be read once; give a list, or a function that"
        " returns the batches anew",
    ),
    call(
        "detectors.score(detectors.fit('cosine', outputs, np.arange(6) % 2), detectors.Outputs(np.ones((1, 2))))",
        "features have 2 columns; cosine was fitted to 3",
    ),
    call("datasets.load('digits', validation='half')", "unknown validation 'half'; expected…", "DataError"),
    call(
        "datasets.load_ood('imagenet', in_domain=datasets.get('digits'), test_images=images)",
        "unknown OOD set 'imagenet'; expected one of …",
        "DataError",
    ),
    call(
        "datasets.load_ood('faraway', in_domain=datasets.get('digits'), test_images=images, far_distance=nan)",
        "far_distance must be above 0 and at most 1e+30, got nan",
    ),
    call(
        "datasets.load_ood('uniform', in_domain=datasets.get('digits'), test_images=images, num_images=0)",
        "num_images must be at least 1, got 0",
    ),
    call(
        "datasets.get(None)",
        "a data set must be given by name, such as 'digits' or 'folder:PATH', got None",
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
        "the state dict is of no network that is known (the released LeNet and WideResNet; ResNets and ViTs of"
        " torchvision, timm and OpenOOD); its names begin with fc.weight",
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
        "weights.load('none.h5')",
        "none.h5: no such file; expected a .safetensors file, or what torch.save writes",
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
    call(
        "fit(model, images, labels, images, class_weights=[1.0, 2.0])",
        "2 class_weights for 4 classes; expected one for each class",
    ),
    call(
        "fit(model, images, labels, images, class_weights='rare')",
        "class_weights are 'rare'; expected \"balanced\", or a number above 0 for each class",
    ),
    call(
        "fit(model, images, labels, images, class_weights=[1, 1, 1, 0])",
        "a class weight must be finite and at least 1e-12 and at most 1e+12, got 0",
    ),
    call(
        "fit(model, [(images, labels)], None, images, class_weights='balanced')",
        'class_weights="balanced" counts the labels before training, and those of batches are not known then; give a'
        " number for each class",
    ),
    call(
        "fit(model, images, 0 * labels, images, batch_size=2, class_weights='balanced')",
        'class 1 has no training images; class_weights="balanced" needs some of each class',
    ),
    call(
        "fit(model, images, labels, images, validation=(images, labels + 9))",
        "validation labels run from … to …; expected 0 to 3",
    ),
    call(
        "fit(model, images, labels, images, validation=(images[:0], labels[:0]))",
        "no validation images; give at least one, or leave validation out",
    ),
    call(
        "fit(model, images, labels, images, validation=(images[:, :4], labels))",
        "validation images of shape [n, 4, 8, 1] do not fit the network; the training images are [n, 8, 8, 1]",
    ),
    call(
        "fit(model, images, labels, images, validation=(images / np.float32(255), labels))",
        "validation images are float32 and the training images uint8; expected one type: uint8 is divided by 255, other"
        " numbers are taken as they are",
    ),
    call(
        "fit(model, images / np.float32(255), labels, images / np.float32(255), validation=(images / 1.0, labels))",
        "the largest entry of a training image is … in the median, and that of the validation images …; scale them"
        " alike",
    ),
    call("fit(model, images, labels, images, progress=3)", "progress must be True or False, got 3"),
    call(
        "attach(linear, linear_variables, images, labels)",
        "attach trains with auxiliary OOD images; give outliers, such as uint8 images [m, h, w, channels]",
    ),
    call(
        "detectors.outputs(model, variables, iter([images]))",
        "the images are an iterator, which can be read once, and they are read in each pass; give a list, a data"
        " loader, or a function that returns the batches anew",
    ),
    call(
        "detectors.fit('knn', detectors.outputs(model, variables, lambda: iter([images, (images, labels)])))",
        "some batches have labels and others have none; give labels in all of them, or in none",
    ),
    call(
        "predict(model, variables, images, devices=4096)",
        "4096 devices asked for, there …",
    ),
]
