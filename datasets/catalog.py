"""Data sets by name: scikit-learn's digits, CIFAR, any TFDS image set, and your own images."""

import functools
import os
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from datasets import array_files, arrow_files, case_folder, folder_images, listing
from datasets.errors import DatasetError
from datasets.image_dataset import ImageDataset, Split, check_image_size, hold_out, resize_split
from datasets.listing import Layout, Listing

_NAMES = {
    "digits": "1,797 handwritten digits of 8x8 pixels, embedded in scikit-learn",
    "cifar10": "60,000 photographs of 32x32 pixels in 10 classes, prepared by TFDS in --data_dir",
    "cifar100": "60,000 photographs of 32x32 pixels in 100 classes, prepared by TFDS in --data_dir",
    "case_folder": "your own images in --data_dir, with a metadata.csv of cases or a folder for "
    "each class",
    "npz": "arrays of images, labels and clients in a file of NumPy, --data_dir=FILE.npz",
    "parquet": "encoded images in a Parquet file or a folder of them, as Hugging Face writes them",
    "hf_disk": "encoded images in a folder that Hugging Face's Dataset has saved",
    "leaf": "FEMNIST in JSON in --data_dir, as LEAF writes it, with a client for each writer",
}


class _Own(NamedTuple):
    """Your own images: functions of their folder or file."""

    layout: Callable[..., Layout]
    check: Callable[..., Listing]
    # Those of `follow_links` and `skip_broken` that the functions take; `layout` only the first.
    choices: tuple[str, ...] = ()


_OWN = {
    "case_folder": _Own(case_folder.layout, case_folder.check, ("follow_links", "skip_broken")),
    "npz": _Own(array_files.npz_layout, array_files.check_npz),
    **{
        name: _Own(
            functools.partial(arrow_files.layout, name),
            functools.partial(arrow_files.check, name),
            ("skip_broken",),
        )
        for name in ("parquet", "hf_disk")
    },
    "leaf": _Own(lambda root: Layout.CASES, array_files.check_leaf),
}
OWN = tuple(_OWN)
_CHARACTERS = ("digits", "leaf", "mnist", "emnist", "kmnist")
ARRAYS = "arrays"  # Name of the images of a program, which cannot be read again.


def has_characters(name: str) -> bool:
    """Whether the images are written characters, of which a mirror image may be another one."""
    return name.partition("/")[0] in _CHARACTERS


def names() -> dict[str, str]:
    """The catalog's names, each with a line of description.

    Besides these, `load` takes the name of any prepared TFDS image-classification set.
    """
    return dict(_NAMES)


def is_own(name: str) -> bool:
    """Whether a data set is one of your own images, to which settings are adapted."""
    return name in OWN


def is_there(name: str, data_dir: str | os.PathLike[str] | None) -> bool:
    """Whether a TFDS set is prepared in `data_dir`, or in TFDS's own folder if that is None.

    Other data sets count as being there; `check` looks at them.
    """
    if name == "digits" or is_own(name):
        return True
    from datasets import tfds_images

    return tfds_images.is_prepared(name, data_dir)


def reading(choice: str) -> tuple[str, ...]:
    """Names of the data sets that have a choice, `follow_links` or `skip_broken`."""
    return tuple(name for name, own in _OWN.items() if choice in own.choices)


def layout(
    name: str, data_dir: str | os.PathLike[str] | None, follow_links: bool = False
) -> Layout:
    """How your own images are sorted; by cases if they cannot be read."""
    if not data_dir:
        return Layout.CASES
    choices = {"follow_links": follow_links} if name in reading("follow_links") else {}
    try:
        return _OWN[name].layout(pathlib.Path(data_dir), **choices)
    except DatasetError:
        return Layout.CASES


def check(
    name: str,
    data_dir: str | os.PathLike[str] | None,
    follow_links: bool = False,
    skip_broken: bool = False,
) -> Listing:
    """Lists and checks your own images.

    Args:
      name: Name of the data set.
      data_dir: Its folder or file.
      follow_links: Whether links to folders and links that lead out of the folder are followed.
      skip_broken: Whether missing and broken images are left out; all are decoded to find them.

    Raises:
      DatasetError: Data missing in `data_dir` or broken; with the file and the row.
    """
    if not data_dir:
        raise DatasetError(f"--data_dir is needed for --dataset={name}: {_NAMES[name]}")
    choices = {"follow_links": follow_links, "skip_broken": skip_broken}
    for choice, is_chosen in choices.items():
        if is_chosen and choice not in _OWN[name].choices:
            raise DatasetError(f"--{choice} is for --dataset={' or '.join(reading(choice))}")
    own = {choice: choices[choice] for choice in _OWN[name].choices}
    return _OWN[name].check(pathlib.Path(data_dir), **own)


def load(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    image_size: int | None = None,
    follow_links: bool = False,
    skip_broken: bool = False,
    largest: int = folder_images.LARGEST,
) -> ImageDataset:
    """Loads a data set, always in the same order; many pixels into a file (`pixel_store`).

    The name is one of `names()`, or a TFDS name such as `mnist`, `name/config` or `name:1.2.3` of a
    set that has been prepared in `data_dir` (default: TFDS's own folder): nothing is downloaded.
    Images are resized (bilinear) to squares of `image_size` pixels; None keeps their size, and for
    your own images chooses it, at most `largest` (`folder_images.choose_size`). `follow_links` and
    `skip_broken` are those of `check`.

    Raises:
      DatasetError: Unknown name, data missing in `data_dir` or broken, images of several sizes
        without `image_size`, or `ARRAYS`.
    """
    check_image_size(image_size)
    if name == ARRAYS:
        raise DatasetError(
            "the images of this run were arrays of a program, which cannot be read again: name "
            "images with --dataset and --data_dir"
        )
    if name == "digits":
        return _load_digits(image_size)
    if is_own(name):
        return listing.load(check(name, data_dir, follow_links, skip_broken), image_size, largest)
    from datasets import tfds_images

    return tfds_images.load(name, data_dir, image_size, catalog_names=tuple(_NAMES))


def _load_digits(image_size: int | None) -> ImageDataset:
    """Loads scikit-learn's digits, with 0..16 scaled to 0..255 and a held-out test split."""
    import sklearn.datasets

    digits = sklearn.datasets.load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., np.newaxis]
    example_ids = np.arange(len(images), dtype=np.int64)
    examples = Split(images, digits.target.astype(np.int32), example_ids)
    train, test = hold_out(resize_split(examples, image_size))
    return ImageDataset("digits", train, test, tuple(str(d) for d in digits.target_names))
