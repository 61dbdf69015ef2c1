"""Grouping images by case, against NumPy."""

import numpy as np
import pytest

from tff_ssl.evaluation import cases


def test_average_is_the_mean_over_a_cases_images():
    rng = np.random.default_rng(0)
    names = np.array(["b", "a", "b", "c", "a", "b"], object)
    labels = np.array([1, 0, 1, -1, 0, 1])
    grouped = cases.group(names, labels)
    np.testing.assert_array_equal(grouped.labels, [0, 1, -1])
    features = rng.normal(size=(6, 4)).astype(np.float32)
    means = cases.average(features, grouped)
    for k, name in enumerate("abc"):
        np.testing.assert_allclose(means[k], features[names == name].mean(0), rtol=1e-6)
        assert set(grouped.image_indices(np.array([k]))[0]) == set(np.flatnonzero(names == name))


def test_images_that_are_their_own_cases_keep_their_features():
    features = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    found = cases.average(features, cases.group(np.arange(3), np.array([1, 0, 1])))
    assert found is features or found.dtype == np.float32
    np.testing.assert_array_equal(found, features)


def test_take_selects_cases_and_their_images():
    grouped = cases.group(np.array(["b", "a", "b", "c", "a"]), np.array([1, 0, 1, -1, 0]))
    images, part = grouped.take(np.array([2, 0]))
    np.testing.assert_array_equal(images, [3, 1, 4])
    np.testing.assert_array_equal(part.case_of_image, [0, 1, 1])
    np.testing.assert_array_equal(part.labels, [-1, 0])


def test_an_image_may_be_a_case():
    labels = np.array([2, 0, 1])
    single = cases.each_image(labels)
    features = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(cases.average(features, single), features)
    assert [list(i) for i in single.image_indices(np.array([2, 0]))] == [[2], [0]]


def test_a_case_with_two_labels_is_named():
    with pytest.raises(ValueError, match="case x7"):
        cases.group(np.array(["x7", "y", "x7"]), np.array([0, 1, 1]))


def test_of_cases_that_are_labelled_in_part_the_labelled_images_count():
    names = np.array(["b", "a", "b", "c", "a", "c"])
    labels = np.array([1, -1, -1, -1, 0, -1])
    np.testing.assert_array_equal(cases.group(names, labels).labels, [0, 1, -1])
    # Without the second image of b and the first of a; the images of c have no labels at all.
    np.testing.assert_array_equal(cases.counted_images(names, labels), [0, 3, 4, 5])
    np.testing.assert_array_equal(cases.counted_images(names, np.full(6, -1)), np.arange(6))


def test_unlabelled_images_are_no_other_label():
    assert cases.several_labels(np.array(["x", "x", "y"]), np.array([2, -1, 1])) is None
    assert cases.several_labels(np.array(["x", "x", "y"]), np.array([-1, -1, -1])) is None
    assert cases.several_labels(np.array(["x", "y", "x"]), np.array([2, 1, 0])) == "x"
