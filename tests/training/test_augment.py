"""Augmentation: values, shapes and places, against NumPy and Pillow."""

from dataclasses import replace
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import PIL.Image
import pytest

from preload_jax.data.specs import DATASETS, Augmentation
from preload_jax.errors import UserError
from preload_jax.training import augment, batches
from preload_jax.training.augment import Augmentations, Rays
from preload_jax.training.data import TrainingData
from tests import toy
from tests.platforms import as_on

KEY = jax.random.key(7)


def images(n=6, shape=(8, 8, 3)):
    return jnp.asarray(np.random.default_rng(0).integers(0, 256, (n, *shape), dtype=np.uint8))


def test_luma_is_pillows():
    x = images(4, (16, 16, 3))
    expected = [np.asarray(PIL.Image.fromarray(np.asarray(image)).convert("L")) for image in x]
    np.testing.assert_array_equal(augment.luma(x)[..., 0], expected)


class Crops(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True)
    def test_a_crop_is_a_window_of_the_padded_image(self):
        for mode in ("constant", "edge", "reflect"):
            x = images(5)
            crop = self.variant(lambda k, im, mode=mode: augment.random_crop(k, im, size=(8, 8), pad=3, mode=mode))
            padded = np.pad(np.asarray(x), ((0, 0), (3, 3), (3, 3), (0, 0)), mode=mode)
            for image, window in zip(padded, np.asarray(crop(KEY, x)), strict=True):
                places = [(i, j) for i in range(7) for j in range(7) if (image[i : i + 8, j : j + 8] == window).all()]
                assert places

    @chex.variants(with_jit=True, without_jit=True)
    def test_flips_about_half_and_nothing_else(self):
        x = images(400, (2, 3, 3))
        out = np.asarray(self.variant(augment.random_flip)(KEY, x))
        same = (out == np.asarray(x)).all(axis=(1, 2, 3))
        mirrored = (out == np.asarray(x)[:, :, ::-1]).all(axis=(1, 2, 3))
        assert (same | mirrored).all()
        assert 0.4 < same.mean() < 0.6


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_tpu_crops_as_a_cpu_does(dtype):
    x = jnp.asarray(np.random.default_rng(0).integers(0, 256, (40, 9, 12, 3)).astype(dtype))
    found = []
    for platform in ("tpu", "cpu"):
        with as_on(platform):
            found.append(jax.jit(lambda x: augment.random_crop(KEY, x, size=(6, 4), pad=1, mode="edge"))(x))
    np.testing.assert_array_equal(*found)
    assert found[0].dtype == dtype


def test_every_corner_is_reached_equally_often():
    x = jnp.arange(8, dtype=jnp.uint8).reshape(1, 2, 4, 1).repeat(3000, axis=0)
    out = augment.random_crop(KEY, x, size=(1, 1), pad=0, mode="edge")
    counts = np.bincount(np.asarray(out).reshape(-1), minlength=8)
    assert counts.min() > 300
    assert counts.max() < 450


def test_in_domain_images_are_changed_with_the_policys_probability():
    x = images(600)
    policy = Augmentation(probability=0.5, flip=False, pad=4, mode="reflect")
    out = augment.augment_in_domain(KEY, x, policy=policy)
    same = np.asarray(out == x).all(axis=(1, 2, 3)).mean()
    assert 0.45 < same < 0.57  # a half, and 1 in 81 crops of the others
    seldom = augment.augment_in_domain(KEY, x, policy=replace(policy, probability=0.1))
    assert 0.85 < np.asarray(seldom == x).all(axis=(1, 2, 3)).mean() < 0.95
    assert augment.augment_in_domain(KEY, x, policy=None) is x


@pytest.mark.parametrize("flip", [False, True])
def test_a_policy_flips_pads_and_crops_as_it_says(flip):
    x = images(60, (6, 8, 3))
    policy = Augmentation(probability=1.0, flip=flip, pad=2, mode="edge")
    change = jax.jit(partial(augment.augment_in_domain, policy=policy))
    out = np.asarray(change(KEY, x))
    assert not np.array_equal(change(jax.random.key(8), x), out)
    seen, found = set(), 0
    for image, window in zip(np.asarray(x), out, strict=True):
        for mirrored in (False, True):
            padded = np.pad(image[:, ::-1] if mirrored else image, ((2, 2), (2, 2), (0, 0)), mode="edge")
            places = [(i, j) for i in range(5) for j in range(5) if (padded[i : i + 6, j : j + 8] == window).all()]
            seen |= {(mirrored, *place) for place in places}
            found += len(places)
    assert found == len(x)
    assert {mirrored for mirrored, _, _ in seen} == ({False, True} if flip else {False})
    assert {i for _, i, _ in seen} == {j for _, _, j in seen} == set(range(5))


def test_outliers_are_changed_by_the_policy_and_take_the_channels():
    x, policy = images(20), Augmentation(probability=0.0, flip=True, pad=2, mode="reflect")
    fit = jax.jit(augment.augment_outliers, static_argnames=("policy", "image_shape"))
    first, second = (fit(jax.random.key(i), x, policy=policy, image_shape=(8, 8, 3)) for i in (0, 1))
    assert np.asarray(first != x).any(axis=(1, 2, 3)).mean() > 0.8
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(fit(KEY, x, policy=None, image_shape=(8, 8, 1)), augment.luma(x))
    # Colour that turns grey is cropped where its size is right, too.
    assert not np.array_equal(fit(KEY, x, policy=policy, image_shape=(8, 8, 1)), augment.luma(x))
    grey = fit(KEY, x[..., :1], policy=None, image_shape=(8, 8, 3))
    np.testing.assert_array_equal(grey, np.repeat(x[..., :1], 3, axis=-1))


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "svhn", "cifar10", "cifar100"])
def test_published_outliers_take_the_in_domain_shape(name):
    spec = DATASETS[name]
    out = augment.augment_outliers(
        KEY, images(4, (32, 32, 3)), policy=spec.outlier_augmentation, image_shape=spec.image_shape
    )
    chex.assert_shape(out, (4, *spec.image_shape))
    assert out.dtype == jnp.uint8


def test_grey_outliers_of_the_right_size_are_left_alone():
    spec = DATASETS["mnist"]
    x = images(3, (28, 28, 1))
    assert augment.augment_outliers(KEY, x, policy=spec.outlier_augmentation, image_shape=(28, 28, 1)) is x


def test_outliers_that_cannot_be_made_to_fit():
    with pytest.raises(UserError, match=r"cannot be made \[28, 28, 1\]; give images of that height and width"):
        augment.augment_outliers(KEY, images(2, (20, 20, 3)), policy=None, image_shape=(28, 28, 1))
    with pytest.raises(UserError, match="a crop of 28×28 does not fit into images of 20×30 with 2 pixels added"):
        augment.augment_outliers(
            KEY, images(2, (20, 30, 3)), policy=DATASETS["mnist"].outlier_augmentation, image_shape=(28, 28, 1)
        )


def test_rays_replace_their_share_of_the_outliers():
    images, outliers = jnp.full((3, 4, 4, 1), 0.5), jnp.zeros((4000, 4, 4, 1))
    found = augment.with_rays(jax.random.key(0), outliers, images, rays=Rays(0.25, low=3.0, high=100.0))
    away = np.linalg.norm(np.asarray(found - 0.5).reshape(4000, -1), axis=1)
    rays = np.asarray((found != 0).any(axis=(1, 2, 3)))
    assert abs(rays.mean() - 0.25) < 0.03
    assert (away[rays] >= 3.0 * (1 - 1e-5)).all()
    assert (away[rays] <= 100.0 * (1 + 1e-5)).all()
    # Log-uniform: half of them below the geometric mean.
    assert abs(np.mean(away[rays] < np.sqrt(300.0)) - 0.5) < 0.06
    # In no direction more than in another.
    mean = np.asarray((found - 0.5)[rays] / away[rays].reshape(-1, 1, 1, 1)).mean(axis=0)
    assert np.abs(mean).max() < 0.05


def test_without_rays_a_batch_is_what_it_was():
    raw = toy.data()
    raw = TrainingData(raw.images[:8], raw.labels[:8], raw.outliers[:8])
    plain = batches.make_batch(jax.random.key(0), raw, Augmentations())
    none = batches.make_batch(jax.random.key(0), raw, Augmentations(rays=Rays(0.0)))
    chex.assert_trees_all_equal(plain, none)
    some = batches.make_batch(jax.random.key(0), raw, Augmentations(rays=Rays(1.0)))
    chex.assert_trees_all_equal(plain._replace(outliers=None), some._replace(outliers=None))
    assert not np.allclose(plain.outliers, some.outliers)


@pytest.mark.parametrize("options", [{"share": 1.5}, {"share": -0.1}, {"low": 0.0}, {"low": 5.0, "high": 4.0}])
def test_rays_that_make_no_sense_are_refused(options):
    with pytest.raises(UserError, match=r"(share of rays among outliers|distances of rays) must be"):
        Rays(**options)
