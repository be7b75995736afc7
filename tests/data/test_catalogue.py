"""The table of published sets against the installed TFDS, and the look at what is prepared."""

import json

import pytest

from preload_jax.data.catalogue import DERIVED, PUBLISHED
from preload_jax.data.prepared import is_prepared, prepared_splits, require
from preload_jax.data.specs import DATASETS, NOISE_SETS
from preload_jax.errors import NotPreparedError

# The version of TFDS's builder that has the checksums of sets which are kept as NumPy files.
TFDS_NAMES = {"cifar10_c": "cifar10_corrupted", "imagenet32": "imagenet_resized"}


@pytest.mark.parametrize("name", [name for name, item in PUBLISHED.items() if item.remote[0].sha256])
def test_checksums_are_those_of_tfds(name):
    import tensorflow_datasets as tfds

    item = PUBLISHED[name]
    known = tfds.builder_cls((item.tfds_name or TFDS_NAMES[name]).partition("/")[0]).url_infos
    for file in item.remote:
        assert (int(known[file.url].size), known[file.url].checksum) == (file.size, file.sha256)


def test_every_ood_set_can_be_had():
    for spec in DATASETS.values():
        assert spec.ood_sets[-4:] == NOISE_SETS
        assert set(spec.ood_sets) <= {*PUBLISHED, *DERIVED, *NOISE_SETS, "photo"}
        assert spec.name not in spec.ood_sets
        assert len(spec.class_names) == spec.num_classes


@pytest.mark.parametrize("name", ["mnist", "random_images_300k"])
def test_not_prepared(tmp_path, name):
    assert not is_prepared(name, data_dir=tmp_path)
    with pytest.raises(NotPreparedError, match=f"prepare_data --dataset={name}"):
        require(PUBLISHED[name], "test", data_dir=tmp_path)


def test_an_incomplete_folder_is_not_prepared(tmp_path):
    folder = tmp_path / "mnist" / "incomplete.ABCDEF_3.0.1"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text(json.dumps({"splits": [{"name": "test", "shardLengths": ["1"]}]}))
    assert prepared_splits(PUBLISHED["mnist"], data_dir=tmp_path) == {}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"splits": [{}]}', '{"splits": 3}'])
def test_a_damaged_description_is_not_prepared(tmp_path, content):
    folder = tmp_path / "mnist" / "3.0.1"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text(content)
    assert prepared_splits(PUBLISHED["mnist"], data_dir=tmp_path) == {}
