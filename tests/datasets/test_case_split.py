"""Test splits that are drawn by case, and training examples in the place of test images."""

import dataclasses

import numpy as np

from datasets.case_split import complete, without_test
from datasets.case_table import Row
from datasets.image_dataset import ImageDataset, Split


def split_of(labels, cases=None, start=0):
    images = np.zeros((len(labels), 1, 1, 1), np.uint8)
    ids = np.arange(start, start + len(labels))
    return Split(images, np.array(labels, np.int32), ids, cases)


def rows_of(cases):
    """Rows without a split, from the labels of the images of each case."""
    images = [(case, label) for case, labels in cases.items() for label in labels]
    return [Row(i, f"{i}.png", case, label, "") for i, (case, label) in enumerate(images)]


def test_whole_cases_that_each_have_all_labels_are_drawn():
    """Each case is the only one of its most frequent label."""
    for count in (2, 5, 10):
        letters = "abcdefghij"[:count]
        rows = rows_of({f"case {letter}": letters + letter for letter in letters})
        completed, (note,) = complete(rows, "s")
        test = {row.case_id for row in completed if row.split == "test"}
        assert len(test) == max(1, count // 5)
        assert {row.case_id for row in completed if row.split == "train"}.isdisjoint(test)
        assert note.startswith("there is no test split: 20 % of the labelled ones are drawn")
        assert complete(rows, "s")[0] == completed


def test_of_cases_with_several_labels_training_keeps_all_labels():
    """Only the cases 3 and 4 have no label that the others lack."""
    rows = rows_of({"0": "aax", "1": "bby", "2": "ccz", "3": "dde", "4": "eed"})
    completed, _ = complete(rows, "s")
    assert {row.case_id for row in completed if row.split == "test"} in ({"3"}, {"4"})
    assert {row.label for row in completed if row.split == "train"} == set("abcdexyz")


def test_there_is_no_test_if_each_case_has_a_label_of_its_own():
    for case in ("c", ""):
        what = "case" if case else "image"
        rows = [Row(i, f"{i}.png", case and f"c{i}", "ab"[i], "") for i in range(2)]
        completed, (note,) = complete(rows, "s")
        assert {row.split for row in completed} == {"train"}
        assert note.startswith(f"each labelled {what} has a label that no other {what} has: no")


def test_test_images_of_other_labels_do_not_evaluate_a_single_one():
    for label, found in (("a", "a"), ("", "unknown")):
        rows = [Row(i, f"{i}.png", "", label, "train") for i in range(3)]
        tested = [Row(i, f"{i}.png", "", other, "test") for i, other in enumerate("ab", 3)]
        completed, (note,) = complete([*rows, *tested], "s")
        assert {row.label for row in completed} == {""}
        assert note == (
            f"all labels of training images are {found}: the encoder is trained, and nothing "
            "evaluates it, which needs two labels"
        )


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
