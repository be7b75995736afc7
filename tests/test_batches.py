"""Batches that something yields, in place of arrays: training, asking, going on, and what is refused."""

import itertools
import threading

import chex
import numpy as np
import pytest

from preload_jax import Classifier, attach, detectors, evaluate, fit, make_classifier, models, predict
from preload_jax.errors import UserError
from tests import toy

DATA = toy.data()
IMAGES, LABELS, OUTLIERS = (np.asarray(x) for x in (DATA.images, DATA.labels, DATA.outliers))
MODEL, PLAIN = toy.model(), toy.model("linear")
NUMBERS = {"epochs": 3, "batch_size": 32, "learning_rate": 1e-2}
LONGER = {**NUMBERS, "epochs": 15}


def cut(size, *arrays):
    """Batches of arrays, as a list of pairs, or of arrays where there is one."""
    starts = range(0, len(arrays[0]), size)
    return [tuple(x[i : i + size] for x in arrays) if len(arrays) > 1 else arrays[0][i : i + size] for i in starts]


class Loader:
    """As a torch DataLoader: a length, and batches anew in each iteration."""

    def __init__(self, batches):
        self.batches, self.times = batches, 0

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        self.times += 1
        return iter(self.batches)


class Stop(Exception):
    pass


PAIRS = cut(32, IMAGES, LABELS)


@pytest.fixture(scope="module")
def trained():
    return fit(MODEL, PAIRS, outliers=cut(32, OUTLIERS), **NUMBERS)


def test_batches_of_any_size_train_alike(trained):
    for pairs, others in (
        (cut(7, IMAGES, LABELS), cut(100, OUTLIERS)),
        (Loader(PAIRS), Loader(cut(32, OUTLIERS))),
        (lambda: (pair for pair in PAIRS), lambda: iter(cut(5, OUTLIERS))),
        ([{"image": x, "label": y} for x, y in PAIRS], [{"image": x} for x in cut(32, OUTLIERS)]),
        (PAIRS, [(x, np.zeros(len(x), int)) for x in cut(32, OUTLIERS)]),
    ):
        chex.assert_trees_all_equal(fit(MODEL, pairs, outliers=others, **NUMBERS), trained)


def test_it_learns_what_arrays_teach():
    variables = fit(MODEL, PAIRS, outliers=cut(32, OUTLIERS), **LONGER)
    assert np.mean(predict(MODEL, variables, IMAGES).label == LABELS) > 0.9


def test_outliers_may_be_fewer_than_an_epoch_needs():
    variables = fit(MODEL, PAIRS, outliers=cut(10, OUTLIERS[:40]), **NUMBERS)
    assert np.isfinite(predict(MODEL, variables, IMAGES).score).all()


@pytest.mark.parametrize("which", ["outliers", "images"])
def test_an_array_goes_with_batches(which):
    given = (PAIRS, None, OUTLIERS) if which == "outliers" else (IMAGES, LABELS, lambda: iter(cut(32, OUTLIERS)))
    variables = [fit(MODEL, *given, **LONGER) for _ in range(2)]
    chex.assert_trees_all_equal(*variables)
    assert np.mean(predict(MODEL, variables[0], IMAGES).label == LABELS) > 0.9


def test_a_trained_network_gets_an_ood_class_from_batches():
    variables = fit(PLAIN, PAIRS, **NUMBERS)
    attached = attach(PLAIN, variables, PAIRS, outliers=cut(32, OUTLIERS), epochs=2, batch_size=32)
    for name in ("kernel", "bias"):
        np.testing.assert_array_equal(
            attached.variables["params"]["head"]["linear"][name], variables["params"]["head"]["linear"][name]
        )


def test_the_distance_is_measured_on_the_first_images():
    model = Classifier(models.WithDistance(models.MLP(widths=(16,))), models.SquareLogitHead(3, min_weight=0.1))
    stats = fit(model, PAIRS, outliers=cut(32, OUTLIERS), **NUMBERS)["batch_stats"]["backbone"]
    expected = models.typical_distance(IMAGES)
    np.testing.assert_allclose(stats["distance_center"], expected["center"], rtol=1e-6)
    np.testing.assert_allclose(stats["distance_scale"], expected["scale"], rtol=1e-6)


@pytest.mark.parametrize("steps", [1, 11])
def test_a_stopped_training_goes_on_where_it_stopped(tmp_path, trained, steps):
    reports = []

    def stop(report):
        reports.append(report.step)
        if len(reports) == 1:
            raise Stop

    given = {"outliers": cut(32, OUTLIERS), "checkpoint_dir": tmp_path, **NUMBERS}
    with pytest.raises(Stop):
        fit(MODEL, PAIRS, on_report=stop, **given)
    chex.assert_trees_all_equal(fit(MODEL, PAIRS, **given), trained)
    with pytest.raises(UserError, match="the stored training is another: images was"):
        fit(MODEL, PAIRS[: 2 + steps // 11], **given)


def test_several_devices_share_the_batches(trained):
    shared = fit(MODEL, PAIRS, outliers=cut(32, OUTLIERS), devices=4, **NUMBERS)
    chex.assert_trees_all_close(shared, trained, rtol=1e-4, atol=1e-5)


def test_no_thread_stays_behind():
    def broken():
        yield PAIRS[0]
        raise OSError("the disk is gone")

    before = threading.active_count()
    with pytest.raises(OSError, match="the disk is gone"):
        fit(PLAIN, Counted(broken), **NUMBERS)
    assert threading.active_count() == before


class Counted:
    """A loader that says how many batches of which size it has, so that none are counted beforehand."""

    batch_size = 32

    def __init__(self, begin):
        self.begin = begin

    def __len__(self):
        return 8

    def __iter__(self):
        return self.begin()


def test_asking_batch_by_batch_gives_what_asking_at_once_does(trained):
    whole = predict(MODEL, trained, IMAGES)
    for given in (lambda: iter(cut(100, IMAGES)), Loader(cut(64, IMAGES)), (x for x in PAIRS)):
        np.testing.assert_allclose(predict(MODEL, trained, given).score, whole.score, rtol=1e-5)
    expected = evaluate(MODEL, trained, (IMAGES, LABELS), {"others": OUTLIERS})
    got = evaluate(MODEL, trained, Loader(PAIRS), {"others": Loader(cut(50, OUTLIERS))})
    once = evaluate(MODEL, trained, iter(PAIRS), {"others": lambda: iter(cut(50, OUTLIERS))})
    for found in (got, once):
        for part in ("in_domain", "ood"):
            chex.assert_trees_all_close(found[part], expected[part], rtol=1e-5)


def steps(given, **numbers):
    """How many steps one epoch of one image each has."""
    seen = []
    fit(
        PLAIN,
        given,
        **NUMBERS | {"epochs": 1, "batch_size": 16} | numbers,
        on_report=lambda report: seen.append(report.step),
    )
    return seen[-1]


class OfLength(Loader):
    def __init__(self, batches, length, batch_size=None):
        super().__init__(batches)
        self.length, self.batch_size = length, batch_size

    def __len__(self):
        return self.length


@pytest.mark.parametrize("first", [250, 32, 1])
def test_batches_of_unequal_sizes_are_counted_one_by_one(first):
    pairs = [(IMAGES[:first], LABELS[:first]), (IMAGES[first:], LABELS[first:])]
    assert steps(pairs) == steps(lambda: iter(pairs)) == steps(OfLength(pairs, 256)) == 16


def test_a_loader_that_says_its_batch_size_is_not_counted():
    counted, says = OfLength(PAIRS, 8), OfLength(PAIRS, 8, batch_size=32)
    assert steps(counted) == steps(says) == 16
    assert counted.times == says.times + 1
    with pytest.raises(UserError, match="says that it has 9 batches of 32, and yields 256 of them in all; give lambda"):
        steps(OfLength(PAIRS, 9, batch_size=32), epochs=2)
    # A last batch that is smaller is as it should be.
    assert steps(OfLength(cut(32, IMAGES[:250], LABELS[:250]), 8, batch_size=32), epochs=3) == 3 * 16


def test_classes_without_images_are_told_of_batches_too():
    with pytest.warns(UserWarning, match="2 of 3 classes have no training image: 1, 2"):
        steps([(x, 0 * y) for x, y in PAIRS])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit(PLAIN, iter(PAIRS)), "training images are an iterator, which can be read once"),
        (lambda: fit(PLAIN, (pair for pair in PAIRS)), "training images are an iterator"),
        (lambda: fit(PLAIN, Once(PAIRS), **NUMBERS), "the training images yield nothing when they are read again"),
        (lambda: fit(PLAIN, []), "no training images: there are no batches"),
        (lambda: fit(PLAIN, IMAGES), "labels are missing"),
        (lambda: fit(PLAIN, 7), "training images: expected an array, or batches of arrays, not a int"),
        (lambda: fit(PLAIN, lambda: 7), "training images: expected an array, or batches of arrays, not a int"),
        (lambda: fit(PLAIN, "images"), "training images: expected an array, or batches of arrays, not a str"),
        (lambda: fit(PLAIN, [IMAGES]), "a batch is a ndarray; expected"),
        (lambda: fit(PLAIN, [{"pixels": IMAGES}]), r"a dictionary with \['pixels'\]; expected image and label"),
        (lambda: fit(PLAIN, [PAIRS[0], {"image": IMAGES}] * 9, **NUMBERS), r"with \['image'\]; expected image"),
        (lambda: fit(PLAIN, [PAIRS[0], (IMAGES[:, :3], LABELS)] * 9, **NUMBERS), r"of batch 1 are uint8 \[3, 4, 1\]"),
        (lambda: fit(PLAIN, [PAIRS[0], (np.float32(IMAGES), LABELS)], **NUMBERS), r"of batch 1 are float32"),
        (lambda: fit(PLAIN, [PAIRS[0], (IMAGES, LABELS[:3])], **NUMBERS), "256 images but 3 labels"),
        (lambda: fit(PLAIN, [(IMAGES, LABELS + 1)], **NUMBERS), "labels run from 1 to 3; expected 0 to 2"),
        (lambda: fit(PLAIN, [PAIRS[0]], batch_size=64), "batch_size 64 is larger than the data"),
        (lambda: fit(PLAIN, PAIRS, data_placement="device"), "batches are read from the host"),
        (lambda: fit(MODEL, PAIRS), "preload trains with auxiliary OOD images"),
        (lambda: fit(MODEL, PAIRS, outliers=iter(cut(9, OUTLIERS))), "training outliers are an iterator"),
        (lambda: fit(MODEL, PAIRS, outliers=np.float32(OUTLIERS)), "images are uint8 .* and outliers float32"),
        (lambda: predict(PLAIN, {"params": {}}, 3), "images: expected an array, or batches of arrays, not a int"),
    ],
)  # fmt: skip
def test_what_is_no_batch_is_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()


class Once:
    """Yields its batches to the first two who ask: the look at the first, and one pass."""

    def __init__(self, batches):
        self.left = [iter(batches[:1]), iter(batches)]

    def __len__(self):
        return 8

    def __iter__(self):
        return self.left.pop(0) if self.left else iter(())


def test_a_network_of_tables_reads_batches_too():
    rng = np.random.default_rng(0)
    table, labels = rng.normal(size=(90, 5)), np.arange(90) % 3
    variables = fit(make_classifier("mlp", "linear", num_classes=3, widths=(8,)), cut(32, table, labels), batch_size=30)
    assert variables["params"]["head"]["linear"]["kernel"].shape == (8, 3)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([None], "a batch is a NoneType; expected an array of inputs"),
        (["a.png"], "a batch is a str; expected an array of inputs"),
        ([3], "a batch is a int; expected an array of inputs"),
        ([iter([IMAGES])], "a batch is a list_iterator; expected an array of inputs"),
        ([(None, None)], "images|expected an array of inputs"),
    ],
)
def test_batches_that_are_no_arrays_are_one_line(trained, batches, message):
    for ask in (
        lambda: predict(MODEL, trained, iter(batches)),
        lambda: evaluate(MODEL, trained, (IMAGES, LABELS), {"o": iter(batches)}),
        lambda: list(detectors.outputs(MODEL, trained, lambda: iter(batches))),
    ):
        with pytest.raises(UserError, match=message):
            ask()


def test_a_label_is_no_batch_of_labels(trained):
    for batches in (
        [(IMAGES[i : i + 1], LABELS[i]) for i in range(9)],
        [{"image": IMAGES[:1], "label": np.int32(1)}],
    ):
        with pytest.raises(
            UserError, match=r"labels of a batch are of shape \[\]; expected \[n\], one integer an image"
        ):
            evaluate(MODEL, trained, batches)


@pytest.mark.parametrize("images", [Loader(PAIRS), PAIRS, lambda: iter(PAIRS)])
def test_labels_beside_batches_are_refused(images):
    with pytest.raises(UserError, match="training images are batches, and labels are given beside them; leave out"):
        fit(MODEL, images, LABELS, OUTLIERS, **NUMBERS)


@pytest.mark.parametrize("name", ["ddu", "openmax"])
def test_detectors_are_fitted_to_the_same_batches_in_each_pass(trained, name):
    lengths = itertools.cycle([8, 8, 3])
    changing = detectors.outputs(MODEL, trained, lambda: iter(PAIRS[: next(lengths)]))
    with pytest.raises(UserError, match=r"the batches had 256 inputs when they were first read, and 96 now"):
        detectors.fit(name, changing)


def test_a_flag_is_no_text(trained, unannotated):
    with pytest.raises(UserError, match="ood_positive must be True or False, got 'no'"):
        evaluate(MODEL, trained, (IMAGES, LABELS), ood_positive="no")


def test_checkpoints_are_kept_in_a_folder_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="checkpoint_dir is an empty text; expected a folder"):
        fit(MODEL, PAIRS, outliers=cut(32, OUTLIERS), checkpoint_dir="", **NUMBERS)
    assert not list(tmp_path.iterdir())
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="holds 1, which no training wrote"):
        fit(MODEL, PAIRS, outliers=cut(32, OUTLIERS), checkpoint_dir=tmp_path, **NUMBERS)
    assert (tmp_path / "1" / "notes.txt").read_text() == "mine"
