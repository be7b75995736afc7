"""Reading prepared sets: the cache, and damage."""

import numpy as np
import pytest

from preload_jax.data.cache import CACHE_FOLDER
from preload_jax.data.preparing import tfds_source
from preload_jax.data.preparing.prepare import prepare
from preload_jax.errors import DataError, NotPreparedError


@pytest.fixture
def prepared(make, tmp_path, data_dir):
    make.mnist(tmp_path / "source")
    prepare("mnist", data_dir=data_dir, source=tmp_path / "source", check_sizes=False)
    return data_dir


def shard(data_dir):
    (path,) = (data_dir / "mnist").glob("*/*-test.array_record-*")
    return path


def test_the_second_read_takes_what_the_first_kept(prepared):
    first = tfds_source.read("mnist", "test", data_dir=prepared)
    second = tfds_source.read("mnist", "test", data_dir=prepared)
    np.testing.assert_array_equal(first.images, second.images)
    np.testing.assert_array_equal(first.labels, second.labels)
    assert second.images.dtype == np.uint8
    assert second.labels.dtype == np.int32
    (cache,) = (prepared / CACHE_FOLDER).iterdir()
    np.savez(cache, images=255 - first.images, labels=first.labels)
    third = tfds_source.read("mnist", "test", data_dir=prepared)
    np.testing.assert_array_equal(third.images, 255 - first.images)


def test_other_content_is_decoded_anew(make, prepared, tmp_path):
    before = tfds_source.read("mnist", "test", data_dir=prepared)
    make.mnist(tmp_path / "other", sizes=(20, 11))
    prepare("mnist", data_dir=prepared, source=tmp_path / "other", check_sizes=False, force=True)
    assert len(tfds_source.read("mnist", "test", data_dir=prepared)) == 11 != len(before)


@pytest.mark.parametrize("damage", [b"", b"no zip file", None])
def test_a_damaged_cache_is_made_again(prepared, damage):
    first = tfds_source.read("mnist", "test", data_dir=prepared)
    (cache,) = (prepared / CACHE_FOLDER).iterdir()
    cache.write_bytes(cache.read_bytes()[:-200] if damage is None else damage)
    np.testing.assert_array_equal(tfds_source.read("mnist", "test", data_dir=prepared).images, first.images)


def test_without_room_for_the_cache_it_still_reads(prepared):
    (prepared / CACHE_FOLDER).write_text("a file where the folder should be")
    assert len(tfds_source.read("mnist", "test", data_dir=prepared)) == 10


@pytest.mark.parametrize("length", [0, 100, -30])
def test_a_damaged_shard_is_one_error(prepared, length):
    path = shard(prepared)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DataError, match=r"damaged .*--force"):
        tfds_source.read("mnist", "test", data_dir=prepared)


def test_a_missing_shard_is_one_error(prepared):
    shard(prepared).unlink()
    with pytest.raises(DataError, match="damaged"):
        tfds_source.read("mnist", "test", data_dir=prepared)


def test_any_tfds_set_by_its_own_name(make, prepared):
    images = tfds_source.read_any("mnist", data_dir=prepared, image_shape=(32, 32, 3))
    assert images.shape == (20, 32, 32, 3)
    assert (images[..., 0] == images[..., 2]).all()
    with pytest.raises(NotPreparedError, match="stl10 is not prepared"):
        tfds_source.read_any("stl10", data_dir=prepared, image_shape=(32, 32, 3))
