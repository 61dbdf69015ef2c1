"""Training examples in the place of test images, for choices."""

import dataclasses

import numpy as np

from datasets.case_split import without_test
from datasets.image_dataset import ImageDataset, Split


def split_of(labels, cases=None, start=0):
    images = np.zeros((len(labels), 1, 1, 1), np.uint8)
    ids = np.arange(start, start + len(labels))
    return Split(images, np.array(labels, np.int32), ids, cases)


def test_whole_labelled_cases_of_each_label_take_the_place_of_the_test():
    # Cases of three images: ten of class 0, three of class 1, one of class 2, four without a label.
    # The first image of a labelled case has no label.
    cases = np.repeat([f"case {i}" for i in range(18)], 3).astype(object)
    labels = np.repeat([0] * 10 + [1] * 3 + [2] + [-1] * 4, 3)
    labels[::3] = -1
    dataset = ImageDataset(
        "d", split_of(labels, cases), split_of([0, 1], start=54), ("a", "b", "c")
    )
    chosen_on = without_test(dataset)
    train, held = chosen_on.train, chosen_on.test
    assert {*train.case_ids}.isdisjoint(held.case_ids)
    assert sorted([*train.example_ids, *held.example_ids]) == list(range(54))
    # A fifth of ten cases and of three, rounded; a class's only case is never held out.
    assert np.bincount(held.labels + 1).tolist() == [3, 4, 2]
    again = without_test(dataset).test
    assert np.array_equal(again.example_ids, held.example_ids)


def test_without_cases_a_fifth_is_held_out():
    labels = [0] * 10 + [1] * 5
    chosen_on = without_test(
        ImageDataset("d", split_of(labels), split_of([0], start=15), ("a", "b"))
    )
    assert np.bincount(chosen_on.test.labels).tolist() == [2, 1]
    assert sorted([*chosen_on.train.example_ids, *chosen_on.test.example_ids]) == list(range(15))


def test_a_validation_split_with_labels_is_used():
    train, validation = split_of([0] * 10), split_of([0, -1], start=10)
    dataset = ImageDataset("d", train, split_of([0], start=12), ("a",), validation)
    assert without_test(dataset) == dataclasses.replace(dataset, test=validation, validation=None)
    unlabelled = dataclasses.replace(dataset, validation=split_of([-1], start=10))
    assert len(without_test(unlabelled).test) == 2
