"""Damaged .npy files and images: only DataErrors of one line.  (idx, pickles and .mat are fuzzed in test_published.py,
test_matlab.py and test_lmdb_images.py, .npz in test_own_data.py.)
"""

import io

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from preload_jax.data import datasets
from preload_jax.data.readers import image_files
from preload_jax.data.readers.pickles import load_pickle

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
PIXELS = np.random.default_rng(0).integers(0, 256, (9, 11, 3), np.uint8)


def encoded(form):
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, form)
    return buffer.getvalue()


def npy():
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((5, 8, 8, 1), np.uint8))
    return buffer.getvalue()


GOOD = {form: encoded(form) for form in FORMATS} | {"npy": npy()}


@st.composite
def damaged(draw, content):
    """The content with a few bytes changed, most of them in the header, and perhaps the rest cut off."""
    changed = bytearray(content)
    places = st.integers(0, min(130, len(changed) - 1)) | st.integers(0, len(changed) - 1)
    for place, value in draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=5)):
        changed[place] = value
    return bytes(changed[: draw(st.just(len(changed)) | st.integers(0, len(changed)))])


@settings(max_examples=150, deadline=None)
@given(content=damaged(GOOD["npy"]) | st.binary(max_size=200))
@example(content=GOOD["npy"].replace(b"(5, 8, 8, 1)", b"(5, 8, 8, 9)"))
@example(content=GOOD["npy"].replace(b"(5, 8, 8, 1)", b"(-5,8, 8, 1)"))
@example(content=GOOD["npy"].replace(b"|u1", b"|O1"))
def test_npy(make, tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "ood.npy"
    path.write_bytes(content)

    def read():
        images = datasets.load_outliers(str(path), in_domain=datasets.get("digits"), train_images=PIXELS[None])
        assert np.asarray(images).shape[1:] == (8, 8, 1)

    assert "\n" not in make.error_of(read)


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
@pytest.mark.filterwarnings("ignore")  # Pillow's, about what it could still read
def test_images(make, tmp_path_factory, form, data):
    path = tmp_path_factory.getbasetemp() / "image.png"
    path.write_bytes(data.draw(damaged(GOOD[form])))
    assert "\n" not in make.error_of(lambda: image_files.read(path).image.load())


@settings(max_examples=25, deadline=None)
@given(contents=st.lists(st.sampled_from(FORMATS).flatmap(lambda form: damaged(GOOD[form])), min_size=12, max_size=12))
@pytest.mark.filterwarnings("ignore")
def test_folders_of_damaged_images(make, tmp_path_factory, contents):
    folder = tmp_path_factory.mktemp("folder")
    for i, content in enumerate(contents):
        (folder / "photos" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        (folder / "photos" / "ab"[i % 2] / f"{i}.png").write_bytes(content)
    said = []

    def read():
        splits = datasets.load(f"folder:{folder / 'photos'}", data_dir=folder / "data", report=said.append)
        count = len(splits.train) + len(splits.validation) + len(splits.test)
        assert count == 12 or said[0].startswith(f"skipped {12 - count} of 12 images; the first: ")

    assert "\n" not in make.error_of(read)


@settings(max_examples=150, deadline=None)
@given(content=st.binary(max_size=300))
def test_pickles_of_noise(make, tmp_path_factory, content):
    assert "\n" not in make.error_of(lambda: load_pickle(content, tmp_path_factory.getbasetemp() / "batch"))
