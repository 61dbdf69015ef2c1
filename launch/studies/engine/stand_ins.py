"""Random images in place of an experiment's data, for a trial of few rounds of a cell."""

import math
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from PIL import Image

from launch.options.adapting import ROUND_IMAGES
from tff_ssl.algorithms.hetero_ssfl import HeteroSSFLHyperparameters
from tff_ssl.errors import ConfigurationError

# Data set -> training images, classes, side in pixels. Mini-ImageNet has 600 images of each class,
# of which a fifth is held out.
DATA = {
    "cifar10": (50_000, 10, 32),
    "cifar100": (50_000, 100, 32),
    "mini_imagenet": (48_000, 100, 84),
    "case_folder": (0, 7, 32),
}
# An image costs the papers' networks much more than a client's start, and most with a ResNet-50
# (0.7 s for one of 32 pixels, where a ResNet-18 takes 0.06 s) or a side of 224 pixels.
_IMAGES_PER_CLIENT, _LARGE_IMAGES_PER_CLIENT = 16, 8
IMAGES_PER_CASE = 3  # Of the experiment's data.
_IMAGES_PER_CASE = 2  # Of the trial: local losses need two.
_FEWEST_CLASSES = 10
_FILES_PER_CLASS = 4  # The other images of a class are links to these.


class StandIn(NamedTuple):
    """Random images in place of a cell's data."""

    images: int  # Number of training images.
    classes: int
    size: int  # Side in pixels.
    cases: bool  # Whether images belong to cases, which are clients.


def is_large(own: Mapping[str, str]) -> bool:
    """Whether an image costs much with the cell's network."""
    return own.get("encoder") == "resnet50" or int(own.get("image_size", 0)) >= 224


def images_per_client(own: Mapping[str, str], most: int | None = None) -> int:
    """Images of a client of a trial: those of the cell's clients, and `most` at most.

    By default, these are sixteen; of 224 pixels or with a ResNet-50, eight.
    """
    most = most or (_LARGE_IMAGES_PER_CLIENT if is_large(own) else _IMAGES_PER_CLIENT)
    return min(most, int(own.get("samples_per_client", most)))


def rad_images(own: Mapping[str, str], most: int | None = None) -> int:
    """Images of a trial's RAD, and of its batches; 0 without a RAD.

    A local step has as many of them for each image of the client as the cell's steps have.
    """
    if own.get("algorithm") != "hetero_ssfl":
        return 0
    defaults = HeteroSSFLHyperparameters()
    batch = int(own.get("hparam.batch_size", defaults.batch_size))
    rad_batch = int(own.get("hparam.rad_batch_size", defaults.rad_batch_size))
    return max(2, round(rad_batch * min(images_per_client(own, most) / batch, 1)))


def of_cell(script: str, own: Mapping[str, str], most: int | None = None) -> StandIn:
    """The stand-in for the data of a cell with some flags: as few images as its rounds need.

    Raises:
      ConfigurationError: If nothing is known of its data set.
    """
    if own["dataset"] not in DATA:
        raise ConfigurationError(
            f"--dataset={own['dataset']}: --estimate knows digits, {', '.join(DATA)} alone"
        )
    _, classes, side = DATA[own["dataset"]]
    side = int(own.get("image_size", side))
    cases = own.get("partition") == "per_case" or own["dataset"] == "case_folder"
    if script == "centralized":
        images = 2 * int(own.get("train_labels", own.get("batch_size", 256)))
    elif "num_clients" in own:
        images = int(own["num_clients"]) * images_per_client(own, most)
        if "samples_per_client" in own:
            images *= 2  # Classes run out before all clients have theirs.
    else:
        per_client = _IMAGES_PER_CASE if cases else int(own["samples_per_client"])
        clients = int(own.get("clients_per_round", math.ceil(ROUND_IMAGES / per_client)))
        # Poisson sampling and clients that are too small to take part need some more.
        images = 2 * clients * per_client
    images += rad_images(own, most)
    # All images are divided among the clients: many classes would make clients large.
    classes = min(classes, max(_FEWEST_CLASSES, images // 4))
    images = max(images, 4 * classes)
    return StandIn(images, classes, side, cases)


def write(root: pathlib.Path, stand_in: StandIn) -> None:
    """Writes the images of a stand-in as a `case_folder`, with two test images of each class."""
    rng = np.random.default_rng(0)
    lines = ["file_name,case_id,label,split"]
    files = {}
    (root / "files").mkdir(parents=True)
    for label in range(stand_in.classes):
        for k in range(_FILES_PER_CLASS):
            coarse = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
            files[label, k] = root / "files" / f"{label}_{k}.png"
            Image.fromarray(coarse).resize([stand_in.size] * 2).save(files[label, k])
    for split, number in (("train", stand_in.images), ("test", 2 * stand_in.classes)):
        for i in range(number):
            # The images of a case have one label.
            case = i // _IMAGES_PER_CASE if stand_in.cases and split == "train" else i
            label = case % stand_in.classes
            name = f"{split}/class_{label}/{i}.png"
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(files[label, i % _FILES_PER_CLASS], root / name)
            lines.append(f"{name},{split}{case},{label},{split}")
    shutil.rmtree(root / "files")
    if stand_in.cases:
        (root / "metadata.csv").write_text("\n".join(lines) + "\n")
