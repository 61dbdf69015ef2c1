"""Fits settings to a folder of images: cohorts, batches, numbers of labels, and scores by case.

Only flags that are not given are set, and each change is printed with the flag that sets another
value. The result is a function of the flags and the folder, so that a resumed run gets the same.
"""

from collections.abc import Sequence

import numpy as np
from absl import flags

from datasets.image_dataset import ImageDataset
from tff_ssl.evaluation import cases

ROUND_IMAGES = 128  # Number of images in a round: fewer give noisy correlations.
_LEAST_CLIENTS = 4  # Fewer clients make a round of few classes.


def fit_evaluation(dataset: ImageDataset, args: flags.FlagValues) -> None:
    """Sets `--per_case` and `--labels_per_class`, if the data set is a folder of images.

    Args:
      dataset: The images.
      args: The flags, which are changed.
    """
    if dataset.name != "case_folder":
        return
    if args.per_case is None:
        args.per_case = _choose_per_case(dataset)
    labels = dataset.train.labels
    if args.per_case and dataset.train.case_ids is not None:
        counted = cases.counted_images(dataset.train.case_ids, labels)
        if len(counted) < len(labels):
            _print("of the cases that are labelled in part, the labelled images alone are scored")
        if _is_ambiguous(dataset):
            return  # The evaluation ends with an error that names the case.
        labels = cases.group(dataset.train.case_ids[counted], labels[counted]).labels
    if args["labels"].present or args["labels_per_class"].present or not len(labels):
        return
    sizes = np.bincount(labels[labels >= 0], minlength=len(dataset.class_names))
    if not len(sizes) or min(sizes) < 1:
        return
    wanted = [int(text) for text in args.labels_per_class]
    fitting = sorted({min(count, int(min(sizes))) for count in wanted})
    if fitting != wanted:
        rarest = dataset.class_names[int(np.argmin(sizes))]
        what = "cases" if args.per_case else "images"
        args.labels_per_class = [str(count) for count in fitting]
        _print(
            f"--labels_per_class={','.join(args.labels_per_class)}, because {rarest} has "
            f"{min(sizes)} labelled {what} for training"
        )


def _choose_per_case(dataset: ImageDataset) -> bool:
    """Whether cases are scored as a whole: they are, unless one has images of several classes."""
    if dataset.train.case_ids is None:
        return False
    if _is_ambiguous(dataset):
        _print(
            "each image is scored by itself, because some cases have images of several classes "
            "(--per_case asks for a score for each case)"
        )
        return False
    return True


def _is_ambiguous(dataset: ImageDataset) -> bool:
    """Whether a case has images with different labels."""
    return any(
        cases.several_labels(split.case_ids, split.labels) is not None
        for split in (dataset.train, dataset.test)
        if split.case_ids is not None
    )


def fit_cohort(sizes: Sequence[int], args: flags.FlagValues) -> None:
    """Sets `--clients_per_round` for about 128 images a round, for a folder of images.

    Args:
      sizes: Number of images of each client.
      args: The flags, which are changed.
    """
    if args.dataset != "case_folder" or args["clients_per_round"].present or not sizes:
        return
    wanted = max(int(np.ceil(ROUND_IMAGES / np.mean(sizes))), _LEAST_CLIENTS)
    args.clients_per_round = min(wanted, len(sizes))
    images = round(args.clients_per_round * float(np.mean(sizes)))
    _print(
        f"--clients_per_round={args.clients_per_round}: about {images:,} of {sum(sizes):,} "
        "training images in a round"
    )


def fit_batch(num_images: int, args: flags.FlagValues) -> None:
    """Sets `--batch_size` to the number of images of a folder that has fewer.

    Args:
      num_images: Number of training images.
      args: The flags, which are changed.
    """
    is_smaller = 2 <= num_images < args.batch_size
    if args.dataset == "case_folder" and is_smaller and not args["batch_size"].present:
        args.batch_size = num_images
        _print(f"--batch_size={num_images}, because there are no more training images")


def _print(note: str) -> None:
    print(f"note: {note}", flush=True)
