"""Draws a test split by case for images that have none, or for choices without test images."""

import collections
import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from datasets.case_table import NO_SPLIT, Row
from datasets.image_dataset import NO_LABEL, ImageDataset, hold_out

TEST_FRACTION = 0.2  # Share of the cases of each label that is drawn for the test.
SEED = 0  # Fixed, so that the test cases do not depend on --seed.


def complete(rows: Sequence[Row], source: str) -> tuple[list[Row], list[str]]:
    """Draws the test cases from the training cases if no test image has a label.

    Rows without a case are a case each, and those without a split training rows. The result is the
    rows in their order, each with a split, but without unlabelled test images that were replaced,
    and without labels if training images have fewer than two; and notes for the user, which name
    the `source` of the user's own split.
    """
    rows = [dataclasses.replace(r, split="train") if r.split == NO_SPLIT else r for r in rows]
    if not any(row.label for row in rows):
        return rows, ["no image has a label: the encoder is trained, and nothing evaluates it"]
    known = {row.label for row in rows if row.split == "train"} - {""}
    if len(known) < 2:
        rows = [dataclasses.replace(row, label="") for row in rows]
        return rows, [
            f"all labels of training images are {min(known, default='unknown')}: the "
            "encoder is trained, and nothing evaluates it, which needs two labels"
        ]
    if any(row.label for row in rows if row.split == "test"):
        return rows, []
    unlabelled = sum(row.split == "test" for row in rows)
    rows = [row for row in rows if row.split != "test"]
    test = _draw((_case(row), row.label) for row in rows if row.split == "train")
    if not test:
        what = "case" if rows[0].case_id else "image"
        return rows, [
            f"each labelled {what} has a label that no other {what} has: no test can be drawn, and "
            "there is no probe"
        ]
    rows = [dataclasses.replace(r, split="test") if _case(r) in test else r for r in rows]
    why = f"the {unlabelled} test images have no labels" if unlabelled else "there is no test split"
    return rows, [
        f"{why}: {100 * TEST_FRACTION:.0f} % of the labelled ones are drawn for the test, with "
        f"seed {SEED}: {_count(rows, 'train')} for training, {_count(rows, 'test')} for the test "
        f"({source} sets your own split)"
    ]


def without_test(dataset: ImageDataset) -> ImageDataset:
    """The data set with training examples in the place of its test split, for choices.

    They are those of the validation split if it has labels, or else a drawn part, in whole cases if
    there are cases; it is empty if each case has a label that no other has.
    """
    train, test = dataset.train, dataset.validation
    if test is None or not np.any(test.labels != NO_LABEL):
        if train.case_ids is None:
            train, test = hold_out(train)
        else:
            names = ("" if label == NO_LABEL else str(label) for label in train.labels)
            drawn = _draw(zip(train.case_ids, names, strict=True))
            is_test = np.array([case in drawn for case in train.case_ids])
            train, test = (train.take(np.flatnonzero(kept)) for kept in (~is_test, is_test))
    return dataclasses.replace(dataset, train=train, test=test, validation=None)


def _case(row: Row) -> str:
    return row.case_id or row.file_name


def _draw(examples: Iterable[tuple[str, str]]) -> set[str]:
    """Draws test cases: of each label with several cases at least one, and never all.

    A case counts for its most frequent label. If this draws none, a fifth of all labelled cases is
    drawn, or fewer, so that training keeps every label. Examples are their case and label, empty if
    it is unknown.
    """
    labels_of_case: dict[str, collections.Counter[str]] = collections.defaultdict(
        collections.Counter
    )
    for case, label in examples:
        if label:
            labels_of_case[case][label] += 1
    cases_of_label: dict[str, list[str]] = collections.defaultdict(list)
    for case, labels in labels_of_case.items():
        cases_of_label[min(labels, key=lambda x: (-labels[x], x))].append(case)
    rng = np.random.default_rng(SEED)
    test: set[str] = set()
    for _, cases in sorted(cases_of_label.items()):
        number = max(1, round(TEST_FRACTION * len(cases))) if len(cases) > 1 else 0
        test.update(cases[i] for i in rng.permutation(len(cases))[:number])
    # A case may have several labels. Cases of a label that only test cases have go back to train.
    left = {label for case, ls in labels_of_case.items() if case not in test for label in ls}
    test = {case for case in test if set(labels_of_case[case]) <= left}
    if test:
        return test
    # Each case may be the only one of its most frequent label, and have all other labels as well.
    train = collections.Counter(label for labels in labels_of_case.values() for label in labels)
    names = list(labels_of_case)
    number = max(1, round(TEST_FRACTION * len(names)))
    for case in (names[i] for i in rng.permutation(len(names))):
        if len(test) < number and all(train[label] > 1 for label in labels_of_case[case]):
            test.add(case)
            train.subtract(labels_of_case[case].keys())
    return test


def _count(rows: Sequence[Row], split: str) -> str:
    """The images of a split, and its cases if there are any, in words."""
    chosen = [row for row in rows if row.split == split]
    if not chosen or not chosen[0].case_id:
        return f"{len(chosen):,} images"
    return f"{len({row.case_id for row in chosen}):,} cases ({len(chosen):,} images)"
