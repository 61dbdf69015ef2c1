"""Fits settings to images of your own: cohorts, batches, numbers of labels, and scores by case.

Only flags that are not given change, and a printed note on each change names the flag that
overrides it. The result depends only on the configuration and the folder, so that a resumed run
gets the same.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from datasets import catalog, folder_images
from datasets.image_dataset import ImageDataset
from launch.options import data, settings
from launch.options.run_config import RunConfig
from launch.options.settings import Config
from tff_ssl.evaluation import cases

ROUND_IMAGES = 128  # Number of images in a round: fewer give noisy correlations.
_LEAST_CLIENTS = 4  # Fewer clients make a round of few classes.


def fit_evaluation(dataset: ImageDataset, config: Config) -> Config:
    """Sets `--per_case` and `--labels_per_class`.

    Also sets `--image_size` to that of larger images than without pretrained weights, so that
    commands that read the run's configuration evaluate the encoder on images of this size.
    """
    if not catalog.is_own(dataset.name):
        return config
    flags: Any = config
    notes, changes = list[str](), dict[str, Any]()
    side = dataset.train.images.shape[1]
    if flags.data.image_size is None and side > folder_images.LARGEST:
        changes["image_size"] = side
    labels, case_ids = dataset.train.labels, dataset.train.case_ids
    per_case, has_cases = flags.evaluation.per_case, case_ids is not None
    is_ambiguous = any(
        cases.several_labels(split.case_ids, split.labels) is not None
        for split in (dataset.train, dataset.test)
        if split.case_ids is not None
    )
    if per_case is None:
        per_case = changes["per_case"] = has_cases and not is_ambiguous
        if has_cases and is_ambiguous:
            notes.append(
                "each image is scored by itself, because some cases have images of several classes "
                "(--per_case asks for a score for each case)"
            )
    if per_case and case_ids is not None:
        counted = cases.counted_images(case_ids, labels)
        if len(counted) < len(labels):
            notes.append("of partly labelled cases, only the labelled images are scored")
        if not is_ambiguous:  # Otherwise the evaluation fails and names the case.
            labels = cases.group(case_ids[counted], labels[counted]).labels
    sizes = np.bincount(labels[labels >= 0], minlength=len(dataset.class_names))
    least = int(min(sizes)) if len(sizes) else 0
    wanted = flags.evaluation.labels_per_class
    fitting = tuple(sorted({min(count, least) for count in wanted}))
    is_given = {"labels", "labels_per_class"} & flags.given
    if least and fitting != wanted and not is_given and not (per_case and is_ambiguous):
        changes["labels_per_class"] = fitting
        rarest = dataset.class_names[int(np.argmin(sizes))]
        notes.append(
            f"--labels_per_class={','.join(map(str, fitting))}, because {rarest} has {least} "
            f"labelled {'cases' if per_case else 'images'} for training"
        )
    data.print_notes(notes)
    return settings.replace(config, **changes)


def fit_cohort(sizes: Sequence[int], config: RunConfig) -> RunConfig:
    """Sets `--clients_per_round` for about 128 images a round, from the clients' sizes."""
    is_own = catalog.is_own(config.data.dataset) or config.data.dataset == catalog.ARRAYS
    if not is_own or "clients_per_round" in config.given or not sizes:
        return config
    wanted = max(int(np.ceil(ROUND_IMAGES / np.mean(sizes))), _LEAST_CLIENTS)
    clients = min(wanted, len(sizes))
    images = f"{round(clients * float(np.mean(sizes))):,} of {sum(sizes):,} training images"
    data.print_notes([f"--clients_per_round={clients}: about {images} in a round"])
    return settings.replace(config, clients_per_round=clients)


def fit_batch(num_images: int, config: RunConfig) -> RunConfig:
    """Sets `--batch_size` to the number of training images of a folder that has fewer."""
    is_smaller = 2 <= num_images < config.participation.batch_size
    is_own = catalog.is_own(config.data.dataset)
    if not is_own or not is_smaller or "batch_size" in config.given:
        return config
    data.print_notes([f"--batch_size={num_images}, because there are no more training images"])
    return settings.replace(config, batch_size=num_images)
