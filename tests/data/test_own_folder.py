"""Splits of any usual name, links, and what is not silently taken for a class."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from preload_jax.data import datasets
from preload_jax.data.readers.image_folder import find_images
from preload_jax.data.split_names import split_meant
from preload_jax.errors import DataError


def sizes(splits):
    return len(splits.train), len(splits.validation), len(splits.test)


def load(folder, **options):
    return datasets.load(f"folder:{folder}", data_dir=folder.parent / "data", **options)


NAMES = {
    "train": (
        "train",
        "Train",
        "TRAINING",
        "trn",
        "train_set",
        "Training-Set",
        "train2017",
        "train_images",
        "training data",
    ),
    "validation": ("val", "Val", "VALID", "validation", "dev", "valid_set", "val2017", "Validation Images"),
    "test": ("test", "Test", "TESTING", "tst", "test_set", "testset", "eval", "evaluation", "Test1"),
}


def test_the_usual_names_of_splits():
    for split, names in NAMES.items():
        assert {name: split_meant(name) for name in names} == dict.fromkeys(names, split)
    for name in ("trainer", "retrain", "cat", "testament", "valley", "value", "evil", "train station", "", "settings"):
        assert split_meant(name) is None


@given(st.sampled_from([name for names in NAMES.values() for name in names]), st.randoms())
def test_in_any_case(name, random):
    mixed = "".join(random.choice((str.lower, str.upper))(letter) for letter in name)
    assert split_meant(mixed) == split_meant(name) is not None


@pytest.mark.parametrize(
    ("train", "test"), [("Training", "Testing"), ("TRAIN", "VAL"), ("train_set", "validation"), ("trn", "dev")]
)
def test_a_second_split_is_tested(make, tmp_path, train, test):
    root = tmp_path / "x"
    make.image_folder(root / train, each=10)
    make.image_folder(root / test, each=5, seed=1)
    said = []
    splits = load(root, validation="none", report=said.append)
    assert datasets.get(f"folder:{root}").class_names == ("a", "b")
    assert sizes(splits) == (20, 0, 10)
    expected = {np.asarray(Image.open(path)).tobytes() for path in (root / test).rglob("*.png")}
    assert {image.tobytes() for image in splits.test.images} == expected
    if split_meant(test) == "validation":
        assert said == [f"{root}: no test split; its validation images are tested"]


@pytest.mark.parametrize("validation", ["test", "train", "none"])
def test_three_splits_are_the_three(make, tmp_path, validation):
    root = tmp_path / "x"
    for name, each in (("Train", 10), ("valid", 4), ("Test", 5)):
        make.image_folder(root / name, each=each, seed=each)
    splits = load(root, validation=validation)
    assert sizes(splits) == (20, 8, 10)
    expected = {np.asarray(Image.open(path)).tobytes() for path in (root / "valid").rglob("*.png")}
    assert {image.tobytes() for image in splits.validation.images} == expected


def test_training_images_alone_are_divided(make, tmp_path):
    make.image_folder(tmp_path / "x" / "train", each=10)
    assert sizes(load(tmp_path / "x", validation="none")) == (16, 0, 4)


WRONG = {
    "none to train on": (("val", "test"), "has the splits test, val, but none to train on"),
    "one alone": (("Test",), "has the splits Test, but none to train on"),
    "twice": (("train", "Training", "test"), "'Training' and 'train' are both the train split"),
    "another beside": (("train", "test", "bus"), r"'bus' stands beside splits \(test, train\)"),
    "unusual name": (
        ("train", "holdout"),
        r"are 'train' and 'holdout' splits\? Both .* \(a, b\)",
    ),
    "unusual names": (("training", "fold1", "fold2"), "are 'training' and 'fold1' splits"),
}


@pytest.mark.parametrize("case", WRONG)
def test_splits_that_are_not_clear(make, tmp_path, case):
    names, message = WRONG[case]
    for name in names:
        make.image_folder(tmp_path / name)
    with pytest.raises(DataError, match=message):
        datasets.get(f"folder:{tmp_path}")


SPLITS_OF_OTHER_NAMES = [
    ("images_train", "images_test"),
    ("x_train", "x_test"),
    ("cifar10-train", "cifar10-test"),
    ("01_train", "02_test"),
    ("trainA", "testA"),
    ("train_final", "test_final"),
    ("train(1)", "test(1)"),
    ("imagesTr", "imagesTs"),
    ("fold1", "fold2", "fold3"),
    ("2019", "2020"),
]


@pytest.mark.parametrize("below", ["", "train"])
@pytest.mark.parametrize("names", SPLITS_OF_OTHER_NAMES, ids="-".join)
@pytest.mark.parametrize("others", [("a", "b"), ("b",)])
def test_splits_of_other_names_are_no_classes(make, tmp_path, names, below, others):
    make.image_folder(tmp_path / below / names[0])
    for name in names[1:]:
        make.image_folder(tmp_path / below / name, classes=others)
    with pytest.raises(DataError, match=r"splits\? Both have the same sub-folders \(.*b\); if they are splits"):
        datasets.get(f"folder:{tmp_path}")


@pytest.mark.parametrize("below", ["", "train"])
def test_nested_folders_that_are_classes(make, tmp_path, below):
    """One sub-folder in each, as Tiny ImageNet has them; others in each; and images beside sub-folders."""
    for case, sub_folders in {"same": ("images", "images"), "other": ("indoor", "zoo")}.items():
        for name, sub_folder in zip(("cat", "dog"), sub_folders, strict=True):
            make.image_folder(tmp_path / case / below / name, classes=(sub_folder,))
        assert datasets.get(f"folder:{tmp_path / case}").class_names == ("cat", "dog")
    make.image_folder(tmp_path / "beside" / below, classes=("cat", "dog"))
    for name in ("cat", "dog"):
        make.image_folder(tmp_path / "beside" / below / name, classes=("indoor", "outdoor"))
    assert datasets.get(f"folder:{tmp_path / 'beside'}").class_names == ("cat", "dog")


# Images may be missing, of another format, or packed.
WITHOUT_IMAGES = {
    "empty": (),
    "avif": ("a.avif", "b.avif", "notes.txt"),
    "packed": ("images.zip",),
    "hidden alone": (".a.png",),
}
OF_OTHER_THINGS = {"notes": ("notes.txt",), "deep": ("more/a.xml",)}


def with_files(folder, names):
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"")


@pytest.mark.parametrize("files", WITHOUT_IMAGES)
@pytest.mark.parametrize("where", ["cat", "test", "train/cat", "test/cat", "test/b"])
def test_a_class_or_split_without_images_is_refused_by_name(make, tmp_path, where, files):
    for split in {"train", where.split("/")[0]} if "/" in where else {""}:
        make.image_folder(tmp_path / split, classes=("a", "b") if split != "test" else ("a",))
    with_files(tmp_path / where, WITHOUT_IMAGES[files])
    remove = "remove it, so that the class has no images here" if where.startswith("test/") else "remove it"
    with pytest.raises(DataError, match=f"{tmp_path / where}: a folder without images; {remove}, or add files"):
        datasets.get(f"folder:{tmp_path}")


@pytest.mark.parametrize("files", OF_OTHER_THINGS)
@pytest.mark.parametrize("where", ["annotations", "train/annotations", "test/b", "val/annotations", "beside/."])
def test_a_folder_of_other_things_is_no_class_and_is_named(make, tmp_path, where, files):
    root, of = tmp_path / "x", where.split("/")[0]
    if "/" in where:
        make.image_folder(root / "train", each=10)
        make.image_folder(root / "test", classes=("a",) if of == "test" else ("a", "b"), each=5, seed=1)
    if "/" not in where or of == "val":
        make.image_folder(root / (of if of == "val" else ""), each=10, seed=2)
    with_files(root / where, OF_OTHER_THINGS[files])
    said = []
    splits = load(root, validation="none", report=said.append)
    assert datasets.get(f"folder:{root}").class_names == ("a", "b")
    above = root if of in ("annotations", "beside") else root / of
    leaves = "" if of in ("test", "val", "beside") else "; that leaves K = 2 classes"
    assert f"{above}: left out 1 sub-folders without images: {(root / where).name}{leaves}" in said
    untested = f"{root}: no test images of 1 of 2 classes ('b'); results on that split are about the others"
    assert (untested in said) == (of == "test")
    assert len(splits.test)


def test_other_things_alone_are_no_split(make, tmp_path):
    make.image_folder(tmp_path / "train")
    with_files(tmp_path / "test", ("notes.txt",))
    with pytest.raises(DataError, match=f"{tmp_path / 'test'}: a folder without images"):
        datasets.get(f"folder:{tmp_path}")


@pytest.mark.parametrize("split", ["validation", "Test"])
def test_a_split_without_images_beside_others_is_refused(make, tmp_path, split):
    make.image_folder(tmp_path / "train")
    with_files(tmp_path / split, ())
    with pytest.raises(DataError, match=f"{tmp_path / split}: a folder without images"):
        datasets.get(f"folder:{tmp_path}")


@pytest.mark.parametrize("below", ["", "train"])
@pytest.mark.parametrize("name", [".ipynb_checkpoints", ".git", "preload_jax_cache", "__MACOSX", "@eaDir"])
def test_what_programs_and_systems_leave_is_no_class(make, tmp_path, below, name):
    root = tmp_path / "x"
    make.image_folder(root / below, each=10)
    make.image_folder(root / below / name, classes=("small",))  # Such as thumbnails.
    with_files(root / below / "a" / name, ("._a.png", "b.npz"))
    said = []
    splits = load(root, validation="none", report=said.append)
    assert datasets.get(f"folder:{root}").class_names == ("a", "b")
    assert sizes(splits) == (16, 0, 4)
    first = root / below / name
    of_systems = f"left out 2 folders that systems make ({name}); the first: {first}"
    hidden = f"{root / below}: left out 1 hidden folders with images: {name}; a class must not begin with a dot"
    assert said == ([of_systems] if name.startswith(("_", "@")) else [hidden] if name.startswith(".") else [])


def test_what_systems_leave_in_other_folders_of_images_is_left_out(make, tmp_path):
    """Of outliers and OOD sets, which have no classes."""
    make.image_folder(tmp_path, classes=("a", "@eaDir"), each=3)
    with_files(tmp_path / "annotations", ("1.xml",))
    said = []
    assert [path.parent.name for path in find_images(tmp_path, report=said.append)] == ["a"] * 3
    assert [line.split(";")[0] for line in said] == [
        "left out 1 folders that systems make (@eaDir)",
        "left out 1 of 4 files, which are no images by their names (1 of .xml)",
    ]


@pytest.mark.parametrize("below", ["", "train"])
def test_one_image_does_not_make_classes_of_splits(make, tmp_path, below):
    root = tmp_path / "x"
    for seed, name in enumerate(("fold1", "fold2"), start=4):
        make.image_folder(root / below / name, each=10, seed=seed)
    make.image_folder(root / below, classes=("fold1",), each=1, seed=1)
    with pytest.raises(DataError, match="are 'fold1' and 'fold2' splits"):
        datasets.get(f"folder:{root}")
    make.image_folder(root / below, classes=("fold2",), each=1, seed=2)
    with pytest.raises(DataError, match="are 'fold1' and 'fold2' splits"):
        datasets.get(f"folder:{root}")
    make.image_folder(root / below, classes=("fold1", "fold2"), each=3, seed=3)
    said = []
    load(root, validation="none", report=said.append)
    assert said == [
        f"{root / below}: images in sub-folders belong to the class above them; the first such folder: fold1/a"
    ]


def test_files_of_other_endings_are_counted_once(make, tmp_path):
    root = tmp_path / "x"
    make.image_folder(root, each=10)
    for name in ("a/1.avif", "a/2.AVIF", "b/notes.txt", "b/none", "README.md", "b/.hidden"):
        (root / name).write_bytes(b"")
    for _ in range(2):  # The second time from the cache.
        said = []
        load(root, validation="none", report=said.append)
        counted = "2 of .avif, 1 of .md, 1 of no ending, 1 of .txt"
        expected = f"left out 5 of 25 files, which are no images by their names ({counted}); the first: "
        assert said == [f"{expected}{root}/README.md"]


@pytest.mark.parametrize("suffix", ["jfif", "jpe", "pnm", "dib", "tif"])
def test_a_class_of_an_ending_of_its_own(make, tmp_path, suffix):
    kind = {"jfif": "JPEG", "jpe": "JPEG"}.get(suffix)
    make.image_folder(tmp_path / "x", each=10)
    (tmp_path / "x" / "c").mkdir()
    for number in range(10):
        Image.new("RGB", (12, 10), (0, 0, 20 * number)).save(tmp_path / "x" / "c" / f"{number}.{suffix}", kind)
    said = []
    splits = load(tmp_path / "x", validation="none", report=said.append)
    assert np.bincount(np.concatenate([splits.train.labels, splits.test.labels])).tolist() == [10, 10, 10]
    assert said == []


def test_splits_inside_of_classes(make, tmp_path):
    for name in ("cat", "dog"):
        make.image_folder(tmp_path / name, classes=("train", "val"))
    with pytest.raises(DataError, match=r"cat: has splits in it; expected .*/SPLIT/CLASS/IMAGE"):
        datasets.get(f"folder:{tmp_path}")


@pytest.mark.parametrize("names", [("bus", "car", "train"), ("train", "plane"), ("pass", "test"), ("small", "valid")])
def test_a_class_may_have_the_name_of_a_split(make, tmp_path, names):
    make.image_folder(tmp_path, classes=names)
    assert datasets.get(f"folder:{tmp_path}").class_names == tuple(sorted(names))


def test_images_without_classes_in_a_split(make, tmp_path):
    make.image_folder(tmp_path, classes=("train", "test"))
    with pytest.raises(DataError, match=r"not in a class sub-folder; expected .*/CLASS/IMAGE"):
        datasets.get(f"folder:{tmp_path}")


def test_a_class_that_is_a_link(make, tmp_path):
    make.image_folder(tmp_path / "else", classes=("birds",), each=4)
    make.image_folder(tmp_path / "x", each=10)
    (tmp_path / "x" / "c").symlink_to(tmp_path / "else" / "birds")
    assert datasets.get(f"folder:{tmp_path / 'x'}").class_names == ("a", "b", "c")
    splits = load(tmp_path / "x", validation="none")
    assert np.bincount(np.concatenate([splits.train.labels, splits.test.labels])).tolist() == [10, 10, 4]


def test_trained_and_tested_on_one_folder(make, tmp_path):
    make.image_folder(tmp_path / "train")
    (tmp_path / "test").symlink_to("train")
    with pytest.raises(DataError, match="the same folder as"):
        datasets.get(f"folder:{tmp_path}")


def test_dangling_links_are_skipped_and_counted(make, tmp_path):
    make.image_folder(tmp_path / "x", each=10)
    (tmp_path / "x" / "a" / "gone.png").symlink_to("nowhere")
    (tmp_path / "x" / "b" / "self.png").symlink_to("self.png")
    said = []
    splits = load(tmp_path / "x", validation="none", report=said.append)
    assert sizes(splits) == (16, 0, 4)
    assert said[0].startswith("skipped 2 of 22 images; the first: ")
    with pytest.raises(DataError, match=r"gone\.png"):
        load(tmp_path / "x", strict=True)


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_class_of_which_no_image_is_readable(make, tmp_path, split):
    for name in ("train", "test"):
        make.image_folder(tmp_path / "x" / name, each=3)
    for path in (tmp_path / "x" / split / "b").iterdir():
        path.write_bytes(b"no image")
    with pytest.raises(DataError, match=rf"{split}: none of the images of class 'b' is readable"):
        load(tmp_path / "x")


@pytest.mark.parametrize(
    ("shapes", "note"),
    [
        ([(12, 10), (12, 10)], ""),
        ([(40, 30), (20, 10)], "images of 2 sizes, 20×10 to 40×30 pixels are resized to 32×32"),
        ([(200, 100)], "images of 200×100 pixels are resized to 32×32"),
    ],
)
def test_resizing_is_said(make, tmp_path, shapes, note):
    for number, size in enumerate(shapes):
        make.image_folder(tmp_path / "x", classes=(f"c{number}", f"d{number}"), size=size, seed=number)
    said = []
    assert datasets.get(f"folder:{tmp_path / 'x'}").note == note
    load(tmp_path / "x", validation="none", report=said.append)
    assert said == ([note] if note else [])


def test_photos_on_their_side_have_one_shape_with_upright_ones(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in "ab":
        (tmp_path / name).mkdir()
        for number in range(10):
            Image.new("L", (20, 12)).save(tmp_path / name / f"{number}.png")
        Image.new("L", (12, 20)).save(tmp_path / name / "turned.png", exif=exif)
    assert datasets.get(f"folder:{tmp_path}").image_shape == (12, 20, 1)


@pytest.mark.parametrize("content", ["other arrays", "nothing", "a link"])
def test_a_cache_that_is_something_else_is_made_anew(make, tmp_path, content):
    make.image_folder(tmp_path / "x", each=20)
    first = load(tmp_path / "x")
    (path,) = (tmp_path / "data").rglob("folder-*.npz")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    if content == "other arrays":
        np.savez(path, images=np.zeros(3))
    elif content == "nothing":
        path.write_bytes(b"")
    else:
        path.unlink()
        path.symlink_to(victim)
    np.testing.assert_array_equal(load(tmp_path / "x").train.images, first.train.images)
    assert victim.read_text() == "precious"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_made_test_sets_are_not_larger_than_ones_own(make, tmp_path):
    make.image_folder(tmp_path / "x", each=30, size=(8, 8))
    spec, splits = datasets.get(f"folder:{tmp_path / 'x'}"), load(tmp_path / "x")
    for name in ("uniform", "smooth", "faraway", "faraway_rd", "photo"):
        images = datasets.load_ood(name, in_domain=spec, test_images=splits.test.images)
        assert len(images) == len(splits.test) == 10
    assert len(datasets.load_ood("uniform", in_domain=spec, test_images=splits.test.images, num_images=33)) == 33


def test_a_folder_gets_the_size_that_is_asked_for(make, tmp_path):
    make.image_folder(tmp_path / "x", each=15, size=(40, 30))
    name = f"folder:{tmp_path / 'x'}"
    assert datasets.get(name).image_shape == (30, 40, 3)
    spec = datasets.get(name, image_size=24)
    assert (spec.image_shape, spec.backbone) == ((24, 24, 3), "conv_net")
    assert spec.note == "images of 40×30 pixels are resized to 24×24"
    splits = datasets.load(spec, data_dir=tmp_path / "data")
    assert splits.train.images.shape[1:] == splits.test.images.shape[1:] == (24, 24, 3)
    assert datasets.get(name, image_size=(30, 40)).note == ""
    assert datasets.get(name, image_size=8).backbone == "mlp"
    with pytest.raises(DataError, match="image_size must be at least 1, got 0"):
        datasets.get(name, image_size=0)
    with pytest.raises(DataError, match="the images of digits have one size; leave out image_size"):
        datasets.get("digits", image_size=8)


def test_how_many_are_resized_is_said(make, tmp_path):
    make.image_folder(tmp_path / "x", each=3, size=(32, 32))
    make.image_folder(tmp_path / "x" / "a" / "more", classes=("deep",), each=2, size=(64, 20))
    spec = datasets.get(f"folder:{tmp_path / 'x'}")
    assert spec.note == "2 of 8 images, of 2 sizes, 32×32 to 64×20 pixels are resized to 32×32"
