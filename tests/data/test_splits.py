import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preload_jax.data.splits import Arrays, hold_out, stratified_split, torch_permutation
from preload_jax.errors import DataError


def numbered(n, start=0):
    """Images that say which they are."""
    numbers = np.arange(start, start + n)
    return Arrays(images=numbers.astype(np.uint8).reshape(n, 1, 1, 1), labels=numbers.astype(np.int32))


@pytest.mark.parametrize(("validation", "sizes"), [("test", (60, 10, 40)), ("train", (50, 10, 50))])
def test_hold_out_partitions(validation, sizes):
    splits = hold_out(numbered(60), numbered(50, start=100), size=10, validation=validation)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == sizes
    everything = np.concatenate([part.labels for part in (splits.train, splits.validation, splits.test)])
    assert sorted(everything) == [*range(60), *range(100, 150)]
    for part in (splits.train, splits.validation, splits.test):
        np.testing.assert_array_equal(part.images.reshape(-1), part.labels)
        assert (np.diff(part.labels) > 0).all()


def test_hold_out_is_always_the_same():
    first, second = (hold_out(numbered(10), numbered(50), size=10) for _ in range(2))
    np.testing.assert_array_equal(first.validation.labels, second.validation.labels)
    # The order of these numbers is part of every published result.
    assert first.validation.labels.tolist() == [3, 5, 11, 12, 16, 17, 23, 29, 33, 37]


def test_a_small_set_gives_a_fifth():
    assert len(hold_out(numbered(10), numbered(50), size=1_000).validation) == 10


def test_too_few_to_hold_out():
    with pytest.raises(DataError, match="out of 4 test images"):
        hold_out(numbered(10), numbered(4), size=1)


def test_unknown_validation():
    with pytest.raises(DataError, match="unknown validation 'dev'"):
        getattr(hold_out, "__wrapped__", hold_out)(  # The type checker of the tests would refuse it first.
            numbered(10), numbered(10), size=1, validation="dev"
        )


@given(labels=st.lists(st.integers(0, 4), min_size=10, max_size=200), share=st.floats(0.1, 0.9))
def test_stratified_split_keeps_the_proportions(labels, share):
    labels = np.array(labels)
    test_size = round(share * len(labels))
    train, test = stratified_split(labels, test_size=test_size)
    assert sorted([*train, *test]) == list(range(len(labels)))
    assert len(test) == test_size
    for label in np.unique(labels):
        assert abs((labels[test] == label).sum() - test_size / len(labels) * (labels == label).sum()) <= 1.5


def test_the_stratified_split_is_random_and_always_the_same():
    train, test = stratified_split(np.repeat([0, 1], 10), test_size=6)
    assert test.tolist() == [2, 5, 7, 14, 16, 17]
    assert (np.diff(train) > 0).all()


def test_none_held_out():
    arrays = [Arrays(np.zeros((n, 2, 2, 1), np.uint8), np.zeros(n, np.int32)) for n in (30, 20)]
    splits = hold_out(*arrays, size=5, validation="none")
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (30, 0, 20)


def test_the_released_codes_rows():
    """Facts of the authors' code: of 10,000 rows the first eight of the 1,000, and the sum of all."""
    order = torch_permutation(10_000, seed=42)
    assert order[:8].tolist() == [7542, 8214, 3698, 2841, 8086, 2550, 2282, 7599]
    assert order[:1_000].sum() == 4_999_413
    splits = hold_out(numbered(10), numbered(200), size=20, rows="released_code")
    assert splits.validation.labels.tolist() == sorted(torch_permutation(200, seed=42)[:20])
    assert sorted([*splits.validation.labels, *splits.test.labels]) == list(range(200))


def test_what_torch_gives():
    # torch.randperm(n, generator=torch.Generator().manual_seed(seed)), PyTorch 2.13 on a CPU.
    assert torch_permutation(20, seed=42).tolist() == [
        2, 14, 18, 15, 1, 10, 0, 4, 6, 11, 8, 3, 7, 17, 13, 12, 19, 5, 16, 9,
    ]  # fmt: skip
    svhn = torch_permutation(26_032, seed=42)
    assert svhn[:8].tolist() == [16134, 1893, 12838, 645, 19966, 9412, 5982, 15456]
    assert svhn[:1_000].sum() == 12_748_146


@given(n=st.integers(0, 60), seed=st.integers(0, 2**32 - 1))
def test_a_permutation_has_every_row_once(n, seed):
    assert sorted(torch_permutation(n, seed=seed)) == list(range(n))


def test_unknown_rows():
    with pytest.raises(DataError, match="unknown rows 'theirs'; expected 'ours' or 'released_code'"):
        getattr(hold_out, "__wrapped__", hold_out)(numbered(10), numbered(50), size=5, rows="theirs")


@pytest.mark.parametrize(
    ("sizes", "validation", "expected"),
    [
        ((10, 4), "test", "give more test images, or choose validation 'train' (out of the training images) or 'none'"),
        ((4, 4), "test", "give more test images, or choose validation 'none'"),
        ((4, 10), "train", "give more train images, or choose validation 'none'"),
    ],
)
def test_too_few_images_to_hold_any_out_name_ways_out(sizes, validation, expected):
    arrays = [numbered(size) for size in sizes]
    with pytest.raises(DataError) as refused:
        hold_out(*arrays, size=5, validation=validation)
    assert str(refused.value) == (
        f"cannot hold validation images out of 4 {validation} images; expected at least 5: {expected}"
    )
    for named in re.findall(r"'(\w+)'", expected):
        assert len(hold_out(*arrays, size=5, validation=named).test)
