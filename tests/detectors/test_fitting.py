"""Any detector: batches and whole arrays agree, float32 is near float64, arrays of any framework, far inputs."""

import subprocess
import sys
import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import detectors
from preload_jax.errors import UserError
from tests import toy
from tests.detectors import problem

NAMES = [name for name in detectors.TABLE if name not in ("preload", "nc")]


def batches(size, dtype=np.float32):
    """Pairs of outputs and labels."""
    whole = problem.outputs("train", dtype)
    for start in range(0, problem.N, size):
        rows = slice(start, start + size)
        maps = tuple(x[rows] for x in whole.maps)
        yield (
            detectors.Outputs(whole.features[rows], whole.logits[rows], maps, whole.images[rows], whole.network),
            problem.LABELS[rows],
        )


def fit(name, outputs, labels=None, **options):
    return detectors.fit(name, outputs, labels, head=problem.head(), **{**problem.OPTIONS.get(name, {}), **options})


@pytest.mark.parametrize("name", NAMES)
def test_batches_give_what_the_whole_gives(name):
    test = problem.outputs("test", np.float32)
    expected = problem.scores(name, np.float32)
    from_list = detectors.score(fit(name, list(batches(100))), test)
    from_function = detectors.score(fit(name, lambda: batches(64)), test)
    for found in (from_list, from_function):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_scoring_in_blocks_and_pieces_changes_nothing(name, monkeypatch):
    detector, test = problem.fitted(name, np.float32), problem.outputs("test", np.float32)
    expected = detectors.score(detector, test)
    monkeypatch.setattr("preload_jax.detectors.data.BLOCK", 4000)
    np.testing.assert_allclose(detectors.score(detector, test), expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_float32_is_near_float64(name):
    with toy.enable_x64(True):
        exact = problem.scores(name)
    found = problem.scores(name, np.float32)
    assert found.dtype == np.float32
    # ODIN's and the noise's gradients have signs, which rounding may turn.
    np.testing.assert_allclose(found, exact, rtol=2e-3, atol=2e-3 * np.abs(exact).max() if name == "gram" else 2e-4)


@pytest.mark.parametrize("name", ["ddu", "knn", "vim", "msp", "react", "she"])
def test_arrays_of_jax_and_half_precision(name):
    expected = problem.scores(name, np.float32)
    train, test = (problem.outputs(part, np.float32) for part in ("train", "test"))

    def of_jax(x, dtype=jnp.float32):
        return detectors.Outputs(jnp.asarray(x.features, dtype), jnp.asarray(x.logits, dtype))

    found = detectors.score(fit(name, of_jax(train), jnp.asarray(problem.LABELS)), of_jax(test))
    np.testing.assert_array_equal(found, expected)
    half = detectors.score(fit(name, of_jax(train, jnp.bfloat16), problem.LABELS), of_jax(test, jnp.bfloat16))
    assert half.dtype == np.float32
    assert np.corrcoef(half, expected)[0, 1] > 0.98


def test_arrays_of_torch():
    torch = pytest.importorskip("torch", reason="needs torch, of the extra 'parity'")
    train, test = (problem.outputs(part, np.float32) for part in ("train", "test"))

    def of_torch(x):
        return detectors.Outputs(torch.tensor(x.features, requires_grad=True), torch.tensor(x.logits))

    head = tuple(torch.tensor(x) for x in problem.head())
    detector = detectors.fit("vim", of_torch(train), torch.tensor(problem.LABELS), head=head, dims=10)
    np.testing.assert_array_equal(detectors.score(detector, of_torch(test)), problem.scores("vim", np.float32))


def test_logits_are_computed_where_a_head_is_given():
    train, test = (detectors.Outputs(problem.arrays()[part].astype(np.float32)) for part in ("train", "test"))
    for name in ("energy", "she", "nnguide"):
        found = detectors.score(fit(name, train, problem.LABELS), test)
        np.testing.assert_allclose(found, problem.scores(name, np.float32), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("distance", [1e4, 1e12, 1e18])
def test_far_away_scores_are_finite(name, distance):
    far = {name: np.asarray(x, np.float32) for name, x in problem.arrays().items()}
    far = {
        "features": distance * far["test"],
        "logits": distance * far["test_logits"],
        "images": distance * far["images"],
    }
    # Their fifth powers overflow float32: a Gram detector says so.
    if name == "odin" and distance > 1e12:
        return  # Its gradient is no number there, and it says so.
    maps = tuple(min(distance, 1e4) * x.astype(np.float32) for x in (problem.outputs("test").maps or ()))
    found = detectors.score(
        problem.fitted(name, np.float32), detectors.Outputs(**far, maps=maps, network=problem.network)
    )
    assert np.isfinite(found).all()


OF_ARRAYS = [name for name in NAMES if not {"maps", "images"} & set(detectors.TABLE[name].needs)]


@pytest.mark.parametrize("name", OF_ARRAYS)
@pytest.mark.parametrize(
    ("kind", "same"), [(">f4", "<f4"), (">f8", "<f8"), (np.longdouble, "<f8"), (">f2", "<f2")], ids=str
)
def test_bytes_in_any_order_and_any_width(name, kind, same):
    def scores(dtype):
        train, test = ({key: x.astype(same).astype(dtype) for key, x in of(part).items()} for part in ("train", "test"))
        return detectors.score(fit(name, detectors.Outputs(**train), problem.LABELS), detectors.Outputs(**test))

    def of(part):
        x = problem.outputs(part)
        return {"features": np.asarray(x.features), "logits": np.asarray(x.logits)}

    np.testing.assert_array_equal(scores(kind), scores(same))


@pytest.mark.parametrize("name", OF_ARRAYS)
@pytest.mark.parametrize("size", [1e12, 1e30])
def test_scores_of_large_features_are_those_of_float64(name, size):
    """A compiler that multiplies and subtracts with one rounding once made the wrong sign of GEN's score here."""
    far = {key: (size * problem.arrays()[key]).astype(np.float32) for key in ("test", "test_logits")}
    found = detectors.score(problem.fitted(name, np.float32), detectors.Outputs(*far.values()))
    with toy.enable_x64(True):
        wide = (x.astype(np.float64) for x in far.values())
        exact = detectors.score(problem.fitted(name, np.float32), detectors.Outputs(*wide))
    largest = float(np.finfo(np.float32).max)
    np.testing.assert_allclose(found, np.clip(exact, -largest, largest), rtol=2e-3)


@pytest.mark.parametrize("name", ["cosine", "fdbd", "knn", "mahalanobis_pp"])
def test_directions_alone_decide_up_to_the_largest_features(name):
    a = problem.arrays()
    near, far = (
        detectors.score(
            problem.fitted(name, np.float32),
            detectors.Outputs(*(np.float32(t) * a[key].astype(np.float32) for key in ("test", "test_logits"))),
        )
        for t in (1e8, 3e38 / max(np.abs(a[key]).max() for key in ("test", "test_logits")))
    )
    np.testing.assert_allclose(far, near, rtol=1e-4)


def test_she_has_the_right_sign_where_products_overflow():
    train = np.array([[1.0, 2.0]] * 2 + [[2.0, -1.0]] * 2)
    test = np.array([[-1.0, 2.0], [1.0, -1.0], [-3.0, 1.0], [1e-30, 1e-12]])
    logits, labels = np.eye(2)[[0, 0, 1, 1]], np.array([0, 0, 1, 1])
    signs = np.sign(test @ train[0])
    for size in (1.0, 1e15, 1e20, 1e25, 1e37):
        detector = detectors.fit("she", of_float32(size * train, logits), labels)
        found = detectors.score(detector, of_float32(size * test, np.tile(logits[:1], (4, 1))))
        assert np.sign(found).tolist() == signs.tolist()
        exact = np.minimum(np.abs(test @ train[0]) * size**2, np.finfo(np.float32).max)
        np.testing.assert_allclose(np.abs(found), exact, rtol=1e-5)


@pytest.mark.parametrize(
    ("g", "pattern"),
    [
        ([1e10, 1.0], [1e-28, 0.0]),
        ([5e9, 0.0], [1e-27, 0.0]),
        ([1e10, 1e-20], [0.0, 1.0]),
        ([1e-30, 1e-30], [1e12, -1e11]),
        ([1e37, 1e-3], [1e-37, 1.0]),
    ],
)
def test_she_of_sizes_that_are_far_apart_loses_nothing(g, pattern):
    logits, labels = np.eye(2), np.array([0, 1])
    detector = detectors.fit("she", of_float32(np.array([pattern, pattern]), logits), labels)
    found = detectors.score(detector, of_float32(np.array([g, g]), logits))
    np.testing.assert_allclose(found, [np.dot(g, pattern)] * 2, rtol=1e-6)


def of_float32(*arrays):
    return detectors.Outputs(*(x.astype(np.float32) for x in arrays))


def test_an_ood_class_is_left_out_where_the_number_of_classes_is_given():
    logits = problem.arrays()["test_logits"].astype(np.float32)
    with_ood = np.concatenate([logits, np.full((len(logits), 1), 50.0, np.float32)], axis=1)
    plain = detectors.fit("msp", detectors.Outputs(logits=logits))
    grown = detectors.fit("msp", detectors.Outputs(logits=with_ood), num_classes=problem.K)
    np.testing.assert_array_equal(
        detectors.score(grown, detectors.Outputs(logits=with_ood)),
        detectors.score(plain, detectors.Outputs(logits=logits)),
    )


def test_an_iterator_is_enough_for_one_pass():
    outputs = problem.outputs("test", np.float32)
    found = detectors.score(fit("knn", batches(64)), outputs)
    np.testing.assert_allclose(found, problem.scores("knn", np.float32), rtol=1e-5)


def test_images_come_with_a_model():
    model = toy.model("linear")
    images = np.random.default_rng(0).integers(0, 256, (70, *toy.SHAPE), np.uint8)
    variables = model.init(toy.jax.random.key(0), jnp.zeros((1, *toy.SHAPE)))
    found = detectors.outputs(model, variables, images, maps=True, keep_images=True, batch_size=32)
    logits, features = model.apply(variables, jnp.asarray(images / 255, jnp.float32), features=True)
    np.testing.assert_allclose(found.logits, logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.features, features, rtol=1e-5, atol=1e-6)
    assert [x.shape for x in found.maps] == [(70, 16), (70, 16)]
    labels = np.arange(70) % 3
    for name in ("odin", "gram", "mahalanobis_ensemble"):
        detector = (
            detectors.fit(name, found, labels, jitter=1e-3)
            if "jitter" in detectors.TABLE[name].options
            else (detectors.fit(name, found, labels))
        )
        assert np.isfinite(detectors.score(detector, found)).all()


def test_the_table_needs_no_jax():
    code = (
        "import sys; from preload_jax import detectors; detectors.TABLE['vim'].needs;"
        "assert not {'jax', 'numpy', 'scipy'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", detectors.TABLE)
def test_rows_say_what_is_needed(name):
    """Without one of its needs a detector refuses; with them alone, it works."""
    row = detectors.TABLE[name]
    assert set(row.needs) <= set(detectors.NEEDS)
    assert row.far_away in detectors.FAR_AWAY
    assert row.url.startswith("https://")
    assert str(row.year) in row.reference
    if "ood_logit" in row.needs:
        return
    whole = {part: problem.outputs(part, np.float32) for part in ("train", "test")}
    fields = ("features", "logits", "maps", "images", "network")

    def attempt(needs):
        given = {
            part: detectors.Outputs(**{f: getattr(x, f) for f in fields if f in needs}) for part, x in whole.items()
        }
        detector = detectors.fit(
            name,
            given["train"],
            problem.LABELS if "labels" in needs else None,
            head=problem.head() if "head" in needs else None,
            **problem.OPTIONS.get(name, {}),
        )
        return detectors.score(detector, given["test"])

    assert np.isfinite(attempt(row.needs)).all()
    for missing in row.needs:
        if missing == "logits" and {"features", "head"} <= set(row.needs):
            continue  # The head computes them.
        with pytest.raises(ValueError, match=f"{missing} (is|are) missing"):
            attempt([need for need in row.needs if need != missing])


def test_nothing_but_what_is_stored_grows_with_n(tmp_path):
    """Features that lie in a file are read a block at a time: peak memory stays far below them."""
    rows = 60_000
    features = np.lib.format.open_memmap(tmp_path / "features.npy", "w+", np.float32, (rows, 256))
    rng = np.random.default_rng(0)
    for start in range(0, rows, 6000):
        features[start : start + 6000] = rng.normal(size=(6000, 256))
    features.flush()
    code = (
        "import resource, sys, numpy as np\n"
        "from preload_jax import detectors\n"
        "features = np.load(sys.argv[1], mmap_mode='r')\n"
        "labels = np.arange(len(features)) % 4\n"
        "small = detectors.Outputs(np.array(features[:4096]))\n"
        "detectors.fit('ddu', small, labels[:4096])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for name in ('ddu', 'mahalanobis', 'relative_mahalanobis'):\n"
        "    detectors.fit(name, detectors.Outputs(features), labels)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "features.npy"], check=True, capture_output=True)
    # Pages of the file count, too: once the features.  A float64 copy would be twice that.
    assert int(done.stdout) * 1024 < 1.3 * features.nbytes


def test_labels_without_the_last_class_cost_no_logit():
    rng = np.random.default_rng(0)
    features, logits = rng.normal(size=(60, 4)), rng.normal(size=(60, 5))
    detector = detectors.fit("energy", detectors.Outputs(features), np.arange(60) % 4)
    found = detectors.score(detector, detectors.Outputs(features, logits))
    expected = detectors.score(
        detectors.fit("energy", detectors.Outputs(features, logits)), detectors.Outputs(features, logits)
    )
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(UserError, match="num_classes is missing"):
        detectors.fit("preload", detectors.Outputs(features), np.arange(60) % 4)


def test_rankfeat_says_that_the_map_does_not_fit_the_head():
    rng = np.random.default_rng(0)
    maps, logits = (rng.random((6, 3, 3, 5)).astype(np.float32),), rng.random((6, 4)).astype(np.float32)
    outputs = detectors.Outputs(logits=logits, maps=maps)
    detector = detectors.fit("rankfeat", outputs, head=(rng.random((7, 4)), np.zeros(4)))
    with pytest.raises(UserError, match="the last map has 5 channels and the head's kernel 7 rows; expected the same"):
        detectors.score(detector, outputs)
    fitting = detectors.fit("rankfeat", outputs, head=(rng.random((5, 4)), np.zeros(4)))
    assert np.isfinite(detectors.score(fitting, outputs)).all()


OF_CLASSES = [
    name for name in NAMES if "labels" in detectors.TABLE[name].needs or name in ("energy", "msp", "max_logit")
]


@pytest.mark.parametrize("name", OF_CLASSES)
def test_logits_of_an_ood_class_without_num_classes_are_told(name):
    whole = problem.outputs("train", np.float32)
    logits = np.concatenate([whole.logits, np.full((problem.N, 1), -50.0, np.float32)], axis=1)
    outputs = detectors.Outputs(whole.features, logits, whole.maps)
    hint = f"class {problem.K} has no examples; if the last of the 6 logits is of an OOD class, give num_classes=5, and"
    with pytest.raises(UserError, match=hint):
        detectors.fit(name, outputs, problem.LABELS, **problem.OPTIONS.get(name, {}))


@pytest.mark.parametrize("form", ["array", "batches"])
@pytest.mark.parametrize("head", ["square_logit", "none_class", "linear"])
def test_outputs_of_a_network_say_how_many_classes_it_has(head, form):
    model, labels = toy.model(head), np.arange(70) % 3
    images = np.random.default_rng(0).integers(0, 256, (70, *toy.SHAPE), np.uint8)
    variables = model.init(toy.jax.random.key(0), jnp.zeros((1, *toy.SHAPE)))
    whole = detectors.outputs(model, variables, images)
    given = whole if form == "array" else detectors.outputs(model, variables, [(images[:40], labels[:40])])
    detector = detectors.fit("energy", given, labels if form == "array" else None)
    assert detector.num_classes == 3
    expected = detectors.score(detectors.fit("energy", whole, num_classes=3), whole)
    np.testing.assert_array_equal(detectors.score(detector, whole), expected)
    if head != "linear":
        by_all = detectors.fit("energy", given, num_classes=4)
        assert (detectors.score(by_all, whole) != expected).all()
        assert detectors.fit("preload", given).num_classes == 3
    else:
        with pytest.raises(UserError, match="and the network has none"):
            detectors.score(detectors.fit("preload", given), whole)


def test_a_last_class_without_labels_is_taken_as_one_where_it_is_said_so():
    logits = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    detector = detectors.fit("energy", detectors.Outputs(logits=logits), np.arange(6) % 3, num_classes=4)
    assert detector.num_classes == 4
    # Labels that lack another class, too, say nothing of the last one.
    assert detectors.fit("energy", detectors.Outputs(logits=logits), np.array([0, 1, 0, 1, 0, 1])).num_classes == 4


def test_lists_of_rows_are_taken_as_arrays_are():
    whole = problem.outputs("train", np.float32)
    kernel, bias = problem.head()
    of_lists = detectors.Outputs(whole.features.tolist(), whole.logits.tolist())
    head = (kernel.tolist(), bias.tolist())
    for name in ("vim", "mahalanobis", "msp"):
        detector = detectors.fit(name, of_lists, problem.LABELS.tolist(), head=head, **problem.OPTIONS.get(name, {}))
        found = detectors.score(detector, detectors.Outputs(whole.features, whole.logits))
        assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("name", "outputs", "head", "message"),
    [
        (
            "vim",
            lambda x: detectors.Outputs(x.features.T, x.logits),
            True,
            r"features have 640 columns and the head's kernel 24 rows; .*the features seem to be transposed",
        ),
        (
            "she",
            lambda x: detectors.Outputs(x.features.T, x.logits),
            False,
            r"features \[24, 640\], logits \[640, 5\]; expected as many rows in each, .* transposed: give features.T",
        ),
        (
            "mahalanobis",
            lambda x: detectors.Outputs(x.features.T),
            False,
            r"labels are int64 \[640\] and the outputs have 24 rows; expected integers \[24\], one a row",
        ),
        (
            "knn",
            lambda x: detectors.Outputs(x.features[0]),
            False,
            r"features of shape \[24\]; expected \[n, d\], a row an input; of one input give features\[None\]",
        ),
        ("vim", lambda x: detectors.Outputs(x.logits), True, r"transpose it; logits are given as Outputs\(logits=…\)"),
        ("msp", lambda x: detectors.Outputs(x.features), False, r"needs logits \[n, K\]: give Outputs\(logits=…\)"),
        ("knn", lambda x: detectors.Outputs([[1.0, 2.0], [3.0]]), False, "features are no array .*expected rows alike"),
        (
            "knn",
            lambda x: detectors.Outputs([[1, 2], [3, 4]]),
            False,
            "int64; expected floating point, such as float32",
        ),
    ],
)
def test_arrays_of_a_wrong_form_are_told_with_what_to_do(name, outputs, head, message):
    given = outputs(problem.outputs("train", np.float32))

    def attempt():
        detector = detectors.fit(name, given, problem.LABELS, head=problem.head() if head else None)
        return detectors.score(detector, given)

    with pytest.raises(UserError, match=message):
        attempt()


@pytest.mark.parametrize(("name", "options"), [("odin", {}), ("mahalanobis", {"noise": 0.01})])
@pytest.mark.parametrize("as_partial", [False, True])
def test_a_network_that_changed_is_asked_anew(name, options, as_partial):
    held = {"kernel": np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)}
    images = np.random.default_rng(1).normal(size=(60, 5)).astype(np.float32)

    def network(x):
        return detectors.Outputs(x @ held["kernel"], x @ held["kernel"])

    def scores(function):
        outputs = replace(network(images), images=images, network=function)
        return detectors.score(detectors.fit(name, outputs, np.arange(60) % 3, **options), outputs)

    function = jax.tree_util.Partial(network) if as_partial else network
    first = scores(function)
    held["kernel"] = 2.0 * held["kernel"][:, ::-1]
    second = scores(function)
    np.testing.assert_array_equal(second, scores(lambda x: network(x)))
    assert not np.allclose(first, second) or name == "mahalanobis"


def test_the_tail_of_a_network_that_changed_is_asked_anew():
    held = {"kernel": np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)}
    maps = (np.random.default_rng(1).normal(size=(6, 3, 3, 4)).astype(np.float32),)
    outputs = detectors.Outputs(maps=maps, tail=lambda x: x.mean((1, 2)) @ held["kernel"])
    detector = detectors.fit("rankfeat", outputs, head=(held["kernel"], np.zeros(3)))
    first = detectors.score(detector, outputs)
    held["kernel"] = -held["kernel"]
    second = detectors.score(detector, outputs)
    np.testing.assert_allclose(
        second, detectors.score(detector, replace(outputs, tail=lambda x: x.mean((1, 2)) @ held["kernel"])), rtol=1e-6
    )
    assert not np.allclose(first, second)


def of_a_head(seed, *, d=6, k=3, n=80):
    rng = np.random.default_rng(seed)
    features, kernel, bias = rng.normal(size=(n, d)), rng.normal(size=(d, k)), rng.normal(size=k)
    return features, kernel, bias, features @ kernel + bias


@pytest.mark.parametrize("name", ["vim", "fdbd", "react", "gradnorm", "energy", "knn"])
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_the_head_of_another_network_is_refused(name, dtype):
    for seed, (d, k) in enumerate([(6, 3), (40, 2), (5, 5), (64, 10)]):
        features, kernel, bias, logits = of_a_head(seed, d=d, k=k, n=200)
        outputs = detectors.Outputs(features.astype(dtype), logits.astype(dtype))
        labels, options = logits.argmax(axis=1), {"dims": 2} if name == "vim" else {}
        other = np.random.default_rng(100 + seed).normal(size=(d, k))
        for wrong in (other, -kernel, np.roll(kernel, 1, axis=1), *([kernel.T] if d == k else [])):
            with pytest.raises(UserError, match="the head makes other logits of the features"):
                detectors.fit(name, outputs, labels, head=(wrong, bias), **options)
        # The network's own, also of logits that were tempered, and beside an OOD class's logit.
        with_ood = np.concatenate([logits, 9.0 + np.square(features).sum(axis=1, keepdims=True)], axis=1)
        for right, classes in ((logits, None), (logits / 7.0, None), (with_ood, k)):
            given = detectors.Outputs(features.astype(dtype), right.astype(dtype))
            detectors.fit(name, given, labels, head=(kernel, bias), num_classes=classes, **options)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_a_head_that_makes_other_logits_by_an_offset_or_a_factor_is_told(dtype):
    for seed, (d, k) in enumerate([(6, 3), (40, 2), (64, 10)]):
        features, kernel, bias, logits = of_a_head(seed, d=d, k=k, n=200)

        def said(name, given, head=(kernel, bias), features=features, k=k):
            outputs = detectors.Outputs(features.astype(dtype), given.astype(dtype))
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                options = {"dims": 2} if name == "vim" else {}
                detectors.fit(name, outputs, np.arange(200) % k, head=head, num_classes=k, **options)
            return [str(each.message) for each in found]

        with_ood = np.concatenate([logits, 9.0 + np.square(features).sum(axis=1, keepdims=True)], axis=1)
        for name in ("vim", "react", "fdbd"):
            assert said(name, logits) == said(name, with_ood) == []
            for other in (logits + 1.0, logits / 1.5):
                (words,) = said(name, other)
                assert "features @ kernel + bias are not the logits that are given: they differ by " in words
            assert len(said(name, logits, head=(kernel, bias + 2.0))) == 1
        # The head is not read there.
        assert said("energy", logits + 1.0) == []


@pytest.mark.parametrize(
    "given",
    [
        lambda features: features,
        lambda features: jax.numpy.asarray(features),
        lambda features: [features],
        lambda features: lambda: iter([features]),
        lambda features: None,
        lambda features: 3,
    ],
)
def test_arrays_in_the_place_of_outputs_are_told_what_to_give(given):
    features, _, _, _ = of_a_head(0)
    detector = detectors.fit("knn", detectors.Outputs(features), k=3)
    wrong = given(features)
    for call in (lambda: detectors.fit("knn", wrong, k=3), lambda: detectors.score(detector, wrong)):
        with pytest.raises(UserError, match=r"expected .*detectors.Outputs\(features, logits\)"):
            call()


def test_a_transposed_head_is_told():
    features, kernel, bias, logits = of_a_head(0, d=4, k=4)
    with pytest.raises(UserError, match="transpose the kernel"):
        detectors.fit("energy", detectors.Outputs(features, logits), head=(kernel.T, bias))


@pytest.mark.parametrize("name", ["msp", "energy", "kl_matching", "knn"])
def test_outputs_that_say_another_number_of_classes_are_refused(name):
    features, _, _, logits = of_a_head(0)
    labels, more = np.arange(80) % 3, np.concatenate([logits, np.full((80, 1), 9.0)], axis=1)
    detector = detectors.fit(name, detectors.Outputs(features, logits, num_classes=3), labels)
    with pytest.raises(UserError, match="the outputs say num_classes=4, and the detector was fitted to 3 classes"):
        detectors.score(detector, detectors.Outputs(features, more, num_classes=4))
    for said in (2, 7):
        with pytest.raises(UserError, match="the outputs say num_classes="):
            detectors.score(detector, detectors.Outputs(features, logits, num_classes=said))
    expected = detectors.score(detector, detectors.Outputs(features, logits))
    for right in (detectors.Outputs(features, logits, num_classes=3), detectors.Outputs(features, more, num_classes=3)):
        np.testing.assert_array_equal(detectors.score(detector, right), expected)


def test_an_ood_class_may_be_counted_as_a_class():
    features, _, _, logits = of_a_head(0, k=4)
    with_ood = detectors.Outputs(features, logits, num_classes=3)
    detector = detectors.fit("msp", with_ood, num_classes=4)
    np.testing.assert_array_equal(
        detectors.score(detector, with_ood),
        detectors.score(detectors.fit("msp", detectors.Outputs(features, logits)), with_ood),
    )
