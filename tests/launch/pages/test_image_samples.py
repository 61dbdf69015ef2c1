"""Draws, neighbours and thumbnails of a run's page, against independent calculations."""

import io
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from datasets.image_dataset import ImageDataset, Split
from launch.pages import image_samples
from launch.pages.image_samples import Encodings, Sample
from tff_ssl.views import augmentation


def split(count, labels=None, shape=(4, 4, 1), first_id=0):
    rng = np.random.default_rng(count)
    images = rng.integers(0, 256, (count, *shape)).astype(np.uint8)
    labels = np.full(count, -1) if labels is None else np.asarray(labels)
    return Split(images, labels.astype(np.int32), np.arange(count) + first_id)


def dataset(train, test):
    return ImageDataset("d", train, test, ("a", "b", "c"))


def test_mapped_images_are_test_images_evenly_over_the_classes():
    test = split(600, [0] * 400 + [1] * 150 + [2] * 50, first_id=9000)
    sample = image_samples.draw_sample(dataset(split(3000, [0] * 3000), test), 0)
    assert sample.split == "test"
    assert np.bincount(sample.mapped.labels).tolist() == [125, 125, 50]
    assert np.isin(sample.mapped.example_ids, test.example_ids).all()
    assert np.bincount(sample.mapped.labels[sample.queries]).tolist() == [4, 4, 4]
    assert len(sample.bank) == len(np.unique(sample.bank.example_ids)) == 1000
    again = image_samples.draw_sample(dataset(split(3000, [0] * 3000), test), 0)
    np.testing.assert_array_equal(sample.queries, again.queries)
    np.testing.assert_array_equal(sample.bank.example_ids, again.bank.example_ids)


def test_without_test_images_training_images_are_mapped_and_not_searched():
    sample = image_samples.draw_sample(dataset(split(30), split(0)), 3)
    assert sample.split == "training"
    assert (len(sample.mapped), len(sample.bank), len(sample.queries)) == (15, 15, 12)
    assert not set(sample.mapped.example_ids) & set(sample.bank.example_ids)


def test_samples_of_large_images_are_bounded():
    # All images are the same memory.
    images = np.broadcast_to(np.zeros((1200, 1200, 3), np.uint8), (90, 1200, 1200, 3))
    large = Split(images, np.full(90, -1, np.int32), np.arange(90))
    sample = image_samples.draw_sample(dataset(large, split(3)), 0)
    assert len(sample.bank) == 64_000_000 // (1200 * 1200 * 3)


def test_memory_does_not_grow_with_the_data_set():
    count, shape = 100_000, (64, 64, 3)
    # All images are the same memory, 12 kB; copies of all would be 1.2 GB.
    images = np.broadcast_to(np.zeros(shape, np.uint8), (count, *shape))
    labels = (np.arange(count) % 3).astype(np.int32)
    train = Split(images, labels, np.arange(count))
    tracemalloc.start()
    sample = image_samples.draw_sample(dataset(train, train), 0)
    encodings = image_samples.encode(sample, lambda x: tf.cast(x[:, 0, 0], tf.float32))
    image_samples.draw_views(train, lambda x, ids, r: (tf.zeros([8, 4, 4, 3]),) * 2, 0)
    image_samples.neighbour_photos(sample, encodings)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6


def test_views_are_those_of_the_first_round():
    train = split(20, shape=(8, 8, 3))

    def make_views(images, ids, round_number):
        return augmentation.two_views("crop_flip", images, ids, seed=5, round_number=round_number)

    views = image_samples.draw_views(train, make_views, 5)
    assert len(views.images) == image_samples.VIEWED
    (position,) = np.flatnonzero((train.images == views.images[2]).all((1, 2, 3)))
    for number, view in ((0, views.first[2]), (1, views.second[2])):
        expected = augmentation.view(
            "crop_flip", tf.constant(train.images[position : position + 1]),
            tf.constant(train.example_ids[position : position + 1]), seed=5, round_number=0,
            view_number=number,
        )  # fmt: skip
        np.testing.assert_allclose(view / 127.5 - 1, expected[0], atol=1 / 255)


def test_neighbours_are_the_nearest_by_cosine():
    rng = np.random.default_rng(0)
    mapped = rng.normal(size=(6, 5)).astype(np.float32)
    bank = rng.normal(size=(9, 5)).astype(np.float32) * rng.uniform(0.1, 9, (9, 1))
    found = image_samples.nearest(Encodings(mapped, bank.astype(np.float32)))
    for query, neighbours in zip(mapped, found, strict=True):
        cosines = [np.dot(query, b) / np.linalg.norm(query) / np.linalg.norm(b) for b in bank]
        assert neighbours.tolist() == sorted(range(9), key=lambda k: -cosines[k])[:5]


def test_agreement_counts_labelled_neighbours_alone():
    mapped, bank = split(2, [0, -1]), split(6, [0, 1, 0, -1, 1, 1])
    sample = Sample(mapped, "test", bank, np.array([0, 1]), ("zero", "one"))
    angles = np.arange(6) / 10
    places = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    encodings = Encodings(places[:2] * 3, places)
    # Nearest to the first image are 0, 1, 2, 3, 4, of which the labelled ones are 0, 1, 0, 1.
    assert image_samples.agreement(sample, encodings) == pytest.approx(0.5)
    unlabelled = sample._replace(mapped=split(2))
    assert image_samples.agreement(unlabelled, encodings) is None
    rows = image_samples.neighbour_photos(sample, encodings)
    assert [photo.text for photo in rows[0]] == [
        "zero", "zero", "one", "zero", "no label", "one",
    ]  # fmt: skip
    assert [photo.kind for photo in rows[0]] == ["first", "near", "far", "near", "", "far"]
    assert {photo.kind for photo in rows[1]} == {"first", ""}


@pytest.mark.parametrize(
    ("shape", "size", "kind"),
    [
        ((8, 8, 1), (48, 48), "PNG"),
        ((32, 20, 3), (40, 64), "PNG"),
        ((64, 64, 3), (64, 64), "JPEG"),
        ((300, 200, 1), (64, 96), "JPEG"),
        ((300, 200, 4), (64, 96), "PNG"),
        ((5, 5, 2), (50, 50), "PNG"),
    ],
)
def test_thumbnails_are_small_and_keep_their_shape(shape, size, kind):
    image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    picture = Image.open(io.BytesIO(image_samples.thumbnail(image)))
    assert (picture.size, picture.format) == (size, kind)


def test_enlarged_pixels_are_those_of_the_image():
    image = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    picture = np.asarray(Image.open(io.BytesIO(image_samples.thumbnail(image))))
    np.testing.assert_array_equal(picture[::6, ::6], image)
