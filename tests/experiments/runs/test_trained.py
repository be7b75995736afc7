"""A file of weights asked about data: the labels must mean the classes that the network was trained on."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.cli.display import Display
from experiments.runs import configuration, recipes, trained
from experiments.runs.data import load_splits, with_digest
from preload_jax import models
from preload_jax.data import specs
from preload_jax.errors import DataError, UserError
from preload_jax.formats import weights
from tests import published_files

SHAPE = (8, 8, 3)
CLASSES = ("ant", "bee", "cow")


def saved(path, names, *, said="class_names"):
    """A network for three classes; the file says their names as `class_names`, in its configuration, or not at all."""
    model = models.make_classifier("mlp", "linear", num_classes=3)
    spec = specs.own_spec("folder:gone", image_shape=SHAPE, class_names=names)
    config = configuration.as_dict(recipes.get(spec, "standard", seed=0, recipe="paper"))
    metadata = {"class_names": json.dumps(names)} if said == "class_names" else {"config": json.dumps(config)}
    variables = model.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    weights.save(path, model, variables, image_shape=SHAPE, metadata={} if said == "nothing" else metadata)
    return path


def read(path, dataset):
    return trained.read(None, path, dataset=dataset, method="standard", recipe=None, display=Display(quiet=True))


def own(tmp_path, names, kind):
    if kind == "folder":
        return f"folder:{published_files.image_folder(tmp_path / 'photos', classes=names, size=SHAPE[:2])}"
    labels = np.repeat(np.arange(3), 6)
    np.savez(tmp_path / "own.npz", images=np.zeros((18, *SHAPE), np.uint8), labels=labels, class_names=list(names))
    return str(tmp_path / "own.npz")


@pytest.mark.parametrize("said", ["class_names", "config"])
@pytest.mark.parametrize(
    ("kind", "names", "message"),
    [
        ("folder", ("bee", "cow", "zebra"), "knows the classes ant, bee, cow, and folder:.* has bee, cow, zebra now"),
        ("folder", ("Ant", "bee", "cow"), "knows the classes ant, bee, cow, and folder:.* has Ant, bee, cow now"),
        ("file", ("bee", "cow", "zebra"), "and .*own.npz has bee, cow, zebra now; labels would mean other classes"),
        ("file", ("ant", "cow", "bee"), "in another order: its class 1 is bee, and here it is cow"),
    ],
)
def test_data_of_other_classes_are_refused(tmp_path, said, kind, names, message):
    file = saved(tmp_path / "a.safetensors", CLASSES, said=said)
    with pytest.raises(UserError, match=message):
        read(file, own(tmp_path, names, kind))


@pytest.mark.parametrize("said", ["class_names", "config", "nothing"])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_the_same_classes_may_be_elsewhere_and_a_file_may_say_nothing(tmp_path, said, kind):
    file = saved(tmp_path / "a.safetensors", CLASSES, said=said)
    found = read(file, own(tmp_path, CLASSES, kind))
    assert found.spec.class_names == found.config.data.class_names == CLASSES
    assert dataclasses.asdict(found.spec) == dataclasses.asdict(found.config.data)


def test_data_with_other_images_are_told_and_those_it_was_trained_on_must_be_whole(tmp_path, capsys):
    photos = published_files.image_folder(tmp_path / "photos", classes=CLASSES, size=SHAPE[:2], each=10)
    copy = published_files.image_folder(tmp_path / "copy", classes=CLASSES, size=SHAPE[:2], each=10)
    spec = specs.own_spec(f"folder:{photos}", image_shape=SHAPE, class_names=CLASSES)
    config = with_digest(recipes.get(spec, "standard", seed=0, recipe="paper"))
    model = models.make_classifier("mlp", "linear", num_classes=3)
    variables, file = model.init(jax.random.key(0), jnp.zeros((1, *SHAPE))), tmp_path / "a.safetensors"
    about = {"config": json.dumps(configuration.as_dict(config)), "dataset": config.dataset}
    weights.save(file, model, variables, image_shape=SHAPE, metadata=about)
    for dataset in (None, f"folder:{photos}", f"folder:{copy}", f"folder:{tmp_path}/photos/../copy"):
        load_splits(read(file, dataset).config, data_dir=tmp_path)
    assert capsys.readouterr().err == ""
    for folder in (photos, copy):
        (folder / "ant" / "zz.png").write_bytes((folder / "ant" / "00.png").read_bytes())
    for dataset in (None, f"folder:{photos}/"):
        with pytest.raises(DataError, match="has other images than the network was trained on"):
            load_splits(read(file, dataset).config, data_dir=tmp_path)
    load_splits(read(file, f"folder:{copy}").config, data_dir=tmp_path)
    assert "copy has other images than" in capsys.readouterr().err
