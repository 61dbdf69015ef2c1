"""Fits settings to a folder of images: cohorts, batches, numbers of labels, and scores by case.

Only flags that are not given change, and each change has a note with the flag that sets another
value. The result is a function of the configuration and the folder, so that a resumed run gets the
same.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Generic

import numpy as np

from datasets.image_dataset import ImageDataset
from launch.options import settings
from launch.options.run_config import RunConfig
from launch.options.settings import Config
from tff_ssl.evaluation import cases

ROUND_IMAGES = 128  # Number of images in a round: fewer give noisy correlations.
_LEAST_CLIENTS = 4  # Fewer clients make a round of few classes.


@dataclasses.dataclass(frozen=True)
class Adapted(Generic[Config]):
    """A configuration that fits the data.

    Attributes:
      config: The configuration.
      notes: A note on each value that differs from what the flags say.
    """

    config: Config
    notes: tuple[str, ...] = ()

    def announced(self) -> Config:
        """Prints the notes, and returns the configuration."""
        for note in self.notes:
            print(f"note: {note}", flush=True)
        return self.config


def fit_evaluation(dataset: ImageDataset, config: Config) -> Adapted[Config]:
    """Sets `--per_case` and `--labels_per_class`, if the data set is a folder of images.

    Args:
      dataset: The images.
      config: A configuration with a section `evaluation`.
    """
    if dataset.name != "case_folder":
        return Adapted(config)
    flags: Any = config
    per_case, notes = flags.evaluation.per_case, []
    if per_case is None:
        per_case = dataset.train.case_ids is not None and not _is_ambiguous(dataset)
        config = settings.replace(config, per_case=per_case)
        if dataset.train.case_ids is not None and not per_case:
            notes.append(
                "each image is scored by itself, because some cases have images of several classes "
                "(--per_case asks for a score for each case)"
            )
    labels = dataset.train.labels
    if per_case and dataset.train.case_ids is not None:
        counted = cases.counted_images(dataset.train.case_ids, labels)
        if len(counted) < len(labels):
            notes.append(
                "of the cases that are labelled in part, the labelled images alone are scored"
            )
        if _is_ambiguous(dataset):
            return Adapted(config, tuple(notes))  # The evaluation names the case in its error.
        labels = cases.group(dataset.train.case_ids[counted], labels[counted]).labels
    if {"labels", "labels_per_class"} & flags.given:
        return Adapted(config, tuple(notes))
    sizes = np.bincount(labels[labels >= 0], minlength=len(dataset.class_names))
    wanted = flags.evaluation.labels_per_class
    if len(sizes) and min(sizes) >= 1:
        fitting = tuple(sorted({min(count, int(min(sizes))) for count in wanted}))
        if fitting != wanted:
            config = settings.replace(config, labels_per_class=fitting)
            rarest = dataset.class_names[int(np.argmin(sizes))]
            notes.append(
                f"--labels_per_class={','.join(map(str, fitting))}, because {rarest} has "
                f"{min(sizes)} labelled {'cases' if per_case else 'images'} for training"
            )
    return Adapted(config, tuple(notes))


def _is_ambiguous(dataset: ImageDataset) -> bool:
    """Whether a case has images with different labels."""
    return any(
        cases.several_labels(split.case_ids, split.labels) is not None
        for split in (dataset.train, dataset.test)
        if split.case_ids is not None
    )


def fit_cohort(sizes: Sequence[int], config: RunConfig) -> Adapted[RunConfig]:
    """Sets `--clients_per_round` for about 128 images a round, for a folder of images.

    Args:
      sizes: Number of images of each client.
      config: The configuration.
    """
    is_folder = config.data.dataset == "case_folder"
    if not is_folder or "clients_per_round" in config.given or not sizes:
        return Adapted(config)
    wanted = max(int(np.ceil(ROUND_IMAGES / np.mean(sizes))), _LEAST_CLIENTS)
    clients = min(wanted, len(sizes))
    images = round(clients * float(np.mean(sizes)))
    note = (
        f"--clients_per_round={clients}: about {images:,} of {sum(sizes):,} training images in a "
        "round"
    )
    return Adapted(settings.replace(config, clients_per_round=clients), (note,))


def fit_batch(num_images: int, config: RunConfig) -> Adapted[RunConfig]:
    """Sets `--batch_size` to the number of images of a folder that has fewer.

    Args:
      num_images: Number of training images.
      config: The configuration.
    """
    is_smaller = 2 <= num_images < config.participation.batch_size
    if config.data.dataset != "case_folder" or not is_smaller or "batch_size" in config.given:
        return Adapted(config)
    note = f"--batch_size={num_images}, because there are no more training images"
    return Adapted(settings.replace(config, batch_size=num_images), (note,))
