"""Batches from outside: cut anew, and gone on with where they were, by their own position or by reading again."""

import itertools

import chex
import grain
import numpy as np
import pytest

from preload_jax import fit
from preload_jax.training import data as training_data
from preload_jax.training import iterables, passes, run
from preload_jax.training.iterables import Source
from preload_jax.training.passes import Pass
from preload_jax.training.store import open_store
from tests import toy

ROWS = np.arange(23, dtype=np.float32)[:, None]


class Told:
    """An iterator with a position, in a form of its own, and a list of all that was read by any of its kind."""

    def __init__(self, parts, form, read):
        self.parts, self.form, self.read, self.at = parts, form, read, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == len(self.parts):
            raise StopIteration
        self.at += 1
        self.read.append(self.at - 1)
        return self.parts[self.at - 1]

    def get_state(self):
        return {"number": {"at": self.at}, "bytes": str(self.at).encode(), "another": {1, self.at}}[self.form]

    def set_state(self, state):
        self.at = {"number": lambda: state["at"], "bytes": lambda: int(state)}[self.form]()


def source(sizes, *, form="number", read=None):
    """Of `ROWS` in batches of these sizes, each pass in another order of the batches."""
    parts = np.split(ROWS, np.cumsum(sizes)[:-1])
    read = [] if read is None else read

    def passes(epoch, repeat):
        begun = parts[repeat % len(parts) :] + parts[: repeat % len(parts)]
        told = iter(begun) if form is None else Told(begun, form, read)
        return Pass(told, lambda number, part: (part, part[:, 0].astype(np.int32)))

    return Source(passes, (1,), ROWS.dtype, "rows")


def some(found, count):
    return [(x[:, 0].tolist(), y.tolist(), place) for ((x, y), place) in itertools.islice(found, count)]


@pytest.mark.parametrize("form", ["number", "bytes", None, "another"])
@pytest.mark.parametrize("sizes", [(23,), (1,) * 23, (5, 6, 6, 6), (2, 19, 2)])
@pytest.mark.parametrize("size", [4, 8, 30])
def test_what_goes_on_gives_what_would_have_come(form, sizes, size):
    """Across the ends of passes, and from places within batches; of several that have no place, too."""
    whole = some(source(sizes, form=form).batches(0, size), 14)
    assert [y for _, y, _ in whole] == [[int(v) for v in x] for x, _, _ in whole]
    for step in (1, 5, 6, 13):
        read = []
        place = whole[step - 1][2]
        assert (place is None) == (form in (None, "another"))
        again = source(sizes, form=form, read=read)
        assert some(again.batches(0, size, passed=step, place=place), 14 - step) == whole[step:]
    if form == "number":
        # For the last batch: its rows, and those that stand before and after them in their own batches.
        lengths = [len(part) for part in np.split(ROWS, np.cumsum(sizes)[:-1])]
        assert len(read) <= size // min(lengths) + 2


def test_an_array_beside_batches_goes_on_without_being_gathered_again(monkeypatch):
    monkeypatch.setattr(passes, "_ROWS", 3)
    images = np.arange(40, dtype=np.uint8)[:, None]

    def cut():
        return iterables.shuffled("rows", images, None, seed=4)

    whole = [(x.tolist(), place) for ((x, _), place) in itertools.islice(cut().batches(2, 7), 20)]
    found = cut().batches(2, 7, passed=9, place=whole[8][1])
    assert [x.tolist() for ((x, _), _) in itertools.islice(found, 11)] == [x for x, _ in whole[9:]]


class Stop(Exception):
    pass


class Seen:
    """A source of images for grain, which notes what is read and can fail."""

    def __init__(self, images, labels=None, *, fails_after=None):
        self.images, self.labels, self.read, self.fails_after = images, labels, [], fails_after

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        self.read.append(i)
        if len(self.read) == self.fails_after:
            raise Stop
        return self.images[i] if self.labels is None else (self.images[i], self.labels[i])


def loader(seen, seed):
    found = grain.MapDataset.source(seen).seed(seed).shuffle()
    return found.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)).batch(10)


def test_a_training_with_grain_goes_on_at_its_position(tmp_path, monkeypatch):
    """To the bit, and without reading what the epoch has taken."""
    data = toy.data()
    images, labels, outliers = (np.asarray(x) for x in (data.images, data.labels, data.outliers))
    # A state after each step.
    monkeypatch.setattr(run, "SECONDS_BETWEEN_SAVES", 0.0)
    monkeypatch.setattr(training_data, "_CHUNK_BYTES", 1)
    numbers = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-2}

    def trained(fails_after=None, **options):
        ours, others = Seen(images, labels, fails_after=fails_after), Seen(outliers)
        model = toy.model()
        found = fit(
            model, lambda: iter(loader(ours, 1)), outliers=lambda: iter(loader(others, 2)), **numbers, **options
        )
        return found, ours

    whole, everything = trained()
    per_epoch = len(images) // 8
    # After the counting pass and the first look, and near the end of the first epoch.
    with pytest.raises(Stop):
        trained(2 * len(images), checkpoint_dir=tmp_path)
    with open_store(tmp_path) as store:
        saved = store.newest()
    assert per_epoch / 3 < saved.position < per_epoch
    assert saved.notes["place"][0]["position"]["state"]
    found, ours = trained(checkpoint_dir=tmp_path)
    chex.assert_trees_all_equal(found, whole)
    # Passed over, they would be read as often as by a training from the start; some are read ahead.
    assert len(everything.read) - len(ours.read) >= 8 * saved.position - 40 > 0
