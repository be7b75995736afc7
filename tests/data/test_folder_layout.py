"""Which sub-folders of a user's folder are classes, and which are rather something else."""

import unicodedata

import numpy as np
import pytest
from PIL import Image

from preload_jax.data.own_folder import list_folder
from preload_jax.errors import DataError

PARTS = "images in sub-folders belong to the class above them; the first such folder: "


def image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(path)


def images(root, *folders):
    """Three images in each folder, or a single one where a file is named."""
    for folder in folders:
        for name in [folder] if folder.endswith(".png") else [f"{folder}/{number}.png" for number in range(3)]:
            image(root / name)


def refused(root, *folders):
    images(root, *folders)
    with pytest.raises(DataError) as caught:
        list_folder(root)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(root), "HERE")


@pytest.mark.parametrize(
    ("folders", "place", "below"),
    [
        # Unpacked archives whose folder is there twice, as they are distributed; the training one is what to give.
        (["seg_train/seg_train/sea", "seg_train/seg_train/ice", "seg_test/seg_test/sea"], "seg_train/seg_train", 0),
        (
            [f"seg_{split}/seg_{split}/{name}" for split in ("test", "train") for name in ("sea", "ice")],
            "seg_train/seg_train",
            0,
        ),
        (["seg_train/1.png", "seg_train/seg_train/sea", "seg_train/seg_train/ice", "b"], "seg_train/seg_train", 0),
        (["seg_train/seg_train/1.png", "seg_train/seg_train/sea", "seg_train/seg_train/ice"], "seg_train/seg_train", 2),
        (["twice/twice/1.png", "twice/twice/sea", "twice/twice/ice", "b"], "twice/twice", 0),
        (["x/y/z/sea", "x/y/z/ice", "b"], "x/y/z", 0),
        (["x/y/sea", "x/y/ice/deep", "b"], "x/y", 0),
        (["Plants/Plants/train/a", "Plants/Plants/valid/a", "test/test"], "Plants/Plants", 1),
        # One folder alone.
        (["photos/sea", "photos/ice"], "photos", 2),
        (["photos/sea", "photos/ice", "photos/1.png"], "photos", 2),
    ],
)
def test_wrappers_of_classes_are_refused(tmp_path, folders, place, below):
    message = refused(tmp_path, *folders)
    names = "train, valid" if below == 1 else "ice, sea"
    assert message == (
        f"HERE/{place}: has sub-folders ({names}) where images of the class '{place.split('/')[0]}' are expected; give "
        "that folder as the data set if they are its classes, or lay splits out as HERE/train/CLASS/IMAGE and "
        "HERE/test/CLASS/IMAGE" + "; if it is a class, move its images up" * (below != 2)
    )


@pytest.mark.parametrize(("train", "inner"), [("training_set", "training_set"), ("train", "images")])
def test_a_split_around_one_folder_says_where_the_classes_belong(tmp_path, train, inner):
    test = "test_set/test_set" if inner == "training_set" else "test/images"
    folders = [f"{place}/{name}" for place in (f"{train}/{inner}", test) for name in ("cats", "dogs")]
    assert refused(tmp_path, *folders) == (
        f"HERE/{train}/{inner}: has sub-folders (cats, dogs) where images of the class '{inner}' are expected; move "
        f"them up if they are classes, to HERE/{train}/CLASS/IMAGE, or give that folder as the data set"
    )


def test_the_only_class_of_a_test_split_may_have_parts(tmp_path):
    images(tmp_path, "train/cat", "train/dog", "test/cat/s1", "test/cat/s2")
    listing = list_folder(tmp_path)
    assert listing.class_names == ("cat", "dog")
    assert listing.left_out == (f"{tmp_path}/test: {PARTS}cat/s1",)


COPIES = [
    (["copy/cat", "copy/dog"], "copy", "cat, dog", "copy"),
    # A stray image does not make a class of a copy, and neither do many.
    (["copy/cat", "copy/dog", "copy/Thumb.png"], "copy", "cat, dog", "copy"),
    (["copy/cat", "copy/dog", "copy"], "copy", "cat, dog", "copy"),
    (["test/cat", "test/dog", "test/a.png"], "test", "cat, dog", "test"),
    (["copy/cat"], "copy", "cat", "copy"),
    # In a class, and at any depth.
    (["cat/dog"], "cat", "dog", "cat"),
    (["dog/old/cat", "dog/old/dog"], "dog/old", "cat", "dog"),
    (["dog/old/2020/cat/deep"], "dog/old/2020", "cat", "dog"),
    (["copy/all/cat", "copy/all/dog"], "copy/all", "cat, dog", "copy"),
    # Names that look alike.
    (["copy/Cat", "copy/Dog"], "copy", "Cat, Dog", "copy"),
    (["copy/CAT ", "copy/dog"], "copy", "CAT , dog", "copy"),
]


@pytest.mark.parametrize("split", ["", "train", "test"])
@pytest.mark.parametrize(("folders", "place", "names", "name"), COPIES)
def test_folders_with_the_names_of_other_classes_are_refused(tmp_path, folders, place, names, name, split):
    above = f"{split}/" if split else ""
    for other in {above, "train/" if split else "", "test/" if split == "train" else above}:
        images(tmp_path, f"{other}cat", f"{other}dog")
    assert refused(tmp_path, *[above + folder for folder in folders]) == (
        f"HERE/{above}{place}: its sub-folders have the names of other classes ({names}), but their images would be "
        f"of the class '{name}'; remove or rename them, or move their images to those classes"
    )


def test_a_test_split_in_which_a_class_stands_in_another(tmp_path):
    """The other one has no folder of its own there."""
    message = refused(tmp_path, "train/cat", "train/dog", "test/cat", "test/cat/dog")
    assert message.startswith("HERE/test/cat: its sub-folders have the names of other classes (dog), but")


def test_copies_in_the_other_form_of_unicode(tmp_path):
    names = ["caf\xe9", "na\xefve"]
    copies = [f"copy/{unicodedata.normalize('NFD', name)}" for name in names]
    assert "HERE/copy: its sub-folders have the names of other classes" in refused(tmp_path, *names, *copies)


@pytest.mark.parametrize(
    ("folders", "first"),
    [
        (["dogs/poodle", "dogs/beagle", "cats"], "dogs/beagle"),
        (["animal/cat", "animal/dog", "animal/x.png", "vehicle/car", "vehicle/bus", "vehicle/y.png"], "animal/cat"),
        (["photos/cat", "photos/dog", "photos/readme.png", "bird", "fish"], "photos/cat"),
        (["cat", "cat/thumbs", "dog"], "cat/thumbs"),
        (["cat/images", "dog/images"], "cat/images"),
        (["cat/cat", "dog/dog"], "cat/cat"),
        (["cat/deep/er", "dog"], "cat/deep"),
        (["cat", "cat/s1", "cat/s2", "dog", "dog/s1", "dog/s2"], "cat/s1"),
    ],
)
@pytest.mark.parametrize("split", ["", "train"])
def test_classes_in_parts_are_said(tmp_path, folders, first, split):
    root = tmp_path / split
    images(root, *folders)
    listing = list_folder(tmp_path)
    assert listing.class_names == tuple(sorted({folder.split("/")[0] for folder in folders}))
    assert listing.left_out == (f"{root}: {PARTS}{first}",)


SPLIT_BESIDE = [
    (["train/cat", "train/dog", "extra"], "train", "cat, dog", "extra"),
    (["train/cat", "train/dog", "train/x.png", "ood/1.png"], "train", "cat, dog", "ood"),
    (["Train/cat", "Train/dog", "bird", "fish"], "Train", "cat, dog", "bird, fish"),
    (["train/cat", "train/dog", "unlabeled/part1", "unlabeled/part2"], "train", "cat, dog", "unlabeled"),
    (["val/cat", "val/dog", "bird"], "val", "cat, dog", "bird"),
    (["test_set/a", "test_set/b", "test_set/c", "test_set/d", "bird"], "test_set", "a, b, c, …", "bird"),
]


@pytest.mark.parametrize(("folders", "name", "below", "others"), SPLIT_BESIDE)
def test_a_split_beside_what_is_none_is_refused(tmp_path, folders, name, below, others):
    assert refused(tmp_path, *folders) == (
        f"HERE: '{name}' has the name of a split, and sub-folders ({below}), but others stand beside it ({others}); "
        f"give HERE/{name} as the data set if those are its classes, or move its images straight into it if it is a "
        "class"
    )


def test_few_images_beside_many_are_strays(tmp_path):
    """Three beside 28 are fewer than a tenth of all, four are more."""
    images(tmp_path, *[f"train/{name}" for name in "ab"], "bus")
    for number in range(3, 14):
        images(tmp_path, *[f"train/{name}/{number}.png" for name in "ab"])
    images(tmp_path, *[f"train/own{number}.png" for number in range(3)])
    assert "'train' has the name of a split, and sub-folders (a, b), but" in refused(tmp_path)
    images(tmp_path, "train/own3.png")
    assert list_folder(tmp_path).class_names == ("bus", "train")


@pytest.mark.parametrize("folders", [["train", "bus"], ["train/images", "bus"], ["train", "train/old", "bus"]])
def test_a_class_may_have_the_name_of_a_split(tmp_path, folders):
    images(tmp_path, *folders)
    assert list_folder(tmp_path).class_names == ("bus", "train")


@pytest.mark.parametrize("strays", [[], ["cat/1.png"], ["cat/1.png", "dog/1.png"]])
@pytest.mark.parametrize(("below", "said"), [(("s1", "s2"), "s1, s2"), (("S1", "s3"), "s1")])
def test_equal_sub_folders_may_be_classes_or_parts_of_classes(tmp_path, strays, below, said):
    folders = [*strays, "cat/s1", "cat/s2", *[f"dog/{name}" for name in below]]
    assert refused(tmp_path, *folders) == (
        f"HERE: are 'cat' and 'dog' splits? Both have the same sub-folders ({said}); if they are splits, name them "
        "train, validation and test; if they are classes, give their sub-folders other names, or move the images up"
    )


COMPOSED, DECOMPOSED = "caf\xe9", "cafe\u0301"
ALIKE = {
    "case": ("Cat", "cat", "'Cat' and 'cat'"),
    "blank": ("cat", "cat ", "'cat' and 'cat '"),
    "form": (DECOMPOSED, COMPOSED, r"'cafe\u0301' and 'caf\xe9'"),
    "unseen": ("cat", "cat\u200b", r"'cat' and 'cat\u200b'"),
    "width": ("cat", "\uff43at", r"'cat' and '\uff43at'"),
}


@pytest.mark.parametrize("split", ["", "train", "test"])
@pytest.mark.parametrize("case", ALIKE)
def test_classes_that_look_alike_are_refused(tmp_path, case, split):
    one, other, shown = ALIKE[case]
    if split == "test":
        images(tmp_path, f"train/{one}", "train/dog")
    root = f"HERE/{split}" if split else "HERE"
    above = f"{split}/" if split else ""
    assert refused(tmp_path, *[above + name for name in (one, other, "dog")]) == (
        f"{root}: the classes {shown} differ only in case, blanks, unseen characters or Unicode form; "
        "put their images into one folder, "
        "or give them names that differ in more"
    )


@pytest.mark.parametrize("case", ALIKE)
def test_classes_of_two_splits_that_look_alike_are_shown(tmp_path, case):
    one, other, shown = ALIKE[case]
    assert refused(tmp_path, f"train/{other}", "train/dog", f"test/{one}", "test/dog") == (
        f"HERE/test: class '{one}' has no images in HERE/train; {shown} there differ only in case, blanks, unseen "
        "characters or Unicode form, so rename one of them"
    )


def test_letters_of_two_cases_are_two_classes(tmp_path):
    images(tmp_path, "A", "a", "b")
    listing = list_folder(tmp_path)
    assert (listing.class_names, listing.left_out) == (("A", "a", "b"), ())


@pytest.mark.parametrize("hidden", [".bird", ".bird/deep/er", ".val/cat"])
@pytest.mark.parametrize(
    ("folders", "split"),
    [(["cat", "dog"], ""), (["train/cat", "train/dog"], ""), (["train/cat", "train/dog"], "train")],
)
def test_hidden_folders_with_images_are_named(tmp_path, folders, split, hidden):
    root = tmp_path / split
    images(tmp_path, *folders)
    images(root, hidden)
    (root / ".git").mkdir()
    (root / ".git" / "index").write_bytes(b"")
    (root / ".gone").symlink_to("nowhere")
    listing = list_folder(tmp_path)
    name = hidden.split("/")[0]
    assert listing.class_names == ("cat", "dog")
    assert listing.left_out == (
        f"{root}: left out 1 hidden folders with images: {name}; a class must not begin with a dot",
    )


@pytest.mark.parametrize("files", [["a.mp4"], ["img0001"], ["a.jpg_large", "b.jpg_large"]])
@pytest.mark.parametrize("split", ["", "train"])
def test_how_many_classes_are_left_is_said(tmp_path, split, files):
    root = tmp_path / split
    images(root, "cat", "dog")
    (root / "bird").mkdir()
    for file in files:
        (root / "bird" / file).write_bytes(b"")
    line = f"{root}: left out 1 sub-folders without images: bird; that leaves K = 2 classes"
    assert list_folder(tmp_path).left_out[-1] == line


def run_folder(folder, *, begun=False):
    """What `run` keeps, or what is there while it begins."""
    folder.mkdir(parents=True)
    (folder / ".lock").touch()
    if not begun:
        images(folder, "figures")
        for name in ("config.json", "results.json", "checkpoints/000012/tree.npz"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("{}")


@pytest.mark.parametrize("split", ["", "train/"])
@pytest.mark.parametrize("place", ["runs/standard/seed0", "runs", "cat/runs/seed0", "../x/runs/digits/oe/seed1"])
@pytest.mark.parametrize("begun", [False, True])
def test_runs_inside_are_left_out_and_said(tmp_path, split, place, begun):
    root = tmp_path / "x"
    images(root, f"{split}cat", f"{split}dog")
    if split:
        images(root, "test/cat", "test/dog")
    run_folder(root / place, begun=begun)
    found = list_folder(root)
    assert found.class_names == ("cat", "dog")
    assert len(found.paths) == (12 if split else 6)
    said = [line for line in found.left_out if "that hold a trained run" in line]
    assert len(said) == 1
    assert said[0].startswith("left out 1 folders that hold a trained run; the first: ")


@pytest.mark.parametrize("names", [("config.json",), ("notes.json", ".lock"), ("config.json", ".lock", "7.png")])
def test_a_class_with_files_of_such_names_stays_a_class(tmp_path, names):
    images(tmp_path, "cat", "dog/close", "dog/far", "dog")
    for name in names:
        (tmp_path / "dog" / name).touch()
    assert list_folder(tmp_path).class_names == ("cat", "dog")
