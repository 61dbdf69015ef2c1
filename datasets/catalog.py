"""Data sets by name: scikit-learn's digits, CIFAR, any TFDS image set, a folder of cases."""

import os

import numpy as np

from datasets.image_dataset import ImageDataset, Split, check_image_size, hold_out, resize_split

_NAMES = {
    "digits": "1,797 handwritten digits of 8x8 pixels, embedded in scikit-learn",
    "cifar10": "60,000 photographs of 32x32 pixels in 10 classes, prepared by TFDS in --data_dir",
    "cifar100": "60,000 photographs of 32x32 pixels in 100 classes, prepared by TFDS in --data_dir",
    "case_folder": "your own images in --data_dir, with a metadata.csv of cases or a folder for "
    "each class",
}


def names() -> dict[str, str]:
    """The catalog's names, each with a line of description.

    Besides these, `load` takes the name of any prepared TFDS image-classification set.
    """
    return dict(_NAMES)


def load(
    name: str, data_dir: str | os.PathLike[str] | None = None, image_size: int | None = None
) -> ImageDataset:
    """Loads a data set into memory, always in the same order.

    The name is one of `names()`, or a TFDS name such as `mnist`, `name/config` or `name:1.2.3` of a
    set that has been prepared in `data_dir` (default: TFDS's own folder): nothing is downloaded.
    Images are resized (bilinear) to squares of `image_size` pixels; None keeps their size, and for
    `case_folder` chooses it (`folder_images.choose_size`).

    Raises:
      DatasetError: Unknown name, data missing in `data_dir` or broken, images of several sizes
        without `image_size`.
    """
    check_image_size(image_size)
    if name == "digits":
        return _load_digits(image_size)
    if name == "case_folder":
        from datasets import case_folder

        return case_folder.load(data_dir, image_size)
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
