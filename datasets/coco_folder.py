"""Images with boxes and instance masks, in a folder with the layout of COCO 2017.

    FOLDER/annotations/instances_train2017.json   FOLDER/train2017/*.jpg
    FOLDER/annotations/instances_val2017.json     FOLDER/val2017/*.jpg

Annotations are read by pycocotools, which comes with the extra `detection`; images are read on
request.
"""

import contextlib
import hashlib
import io
import os
import pathlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from datasets import deep_pixels, image_file
from datasets.errors import DatasetError

SPLITS = ("train2017", "val2017")
_LARGEST_ID = 2**31 - 1


class AnnotatedImage(NamedTuple):
    """An image and its n instances."""

    image_id: int  #: Id of the image in the annotations.
    image: npt.NDArray[np.uint8]  #: Pixels, uint8 [height, width, 3].
    #: Top, left, bottom and right of each instance as fractions of the image's height and width,
    #: float32 [n, 4].
    boxes: npt.NDArray[np.float32]
    #: Number of each instance's class from 1, int64 [n]; 0 is the background.
    labels: npt.NDArray[np.int64]
    #: Whether each pixel belongs to the instance, uint8 [n, height, width].
    masks: npt.NDArray[np.uint8]
    #: Whether an annotation marks a crowd instead of one instance, bool [n].
    crowds: npt.NDArray[np.bool_]


class CocoImages:
    """The images of one split, in the order of their ids.

    Attributes:
      truth: The split's annotations, a `pycocotools.coco.COCO`.
      image_ids: Ids of the images.
      category_ids: Id of each class in the annotations; class number i is that of label i + 1.
      class_names: Name of each class.
    """

    def __init__(self, folder: str | os.PathLike[str], split: str):
        """Reads the annotations of a split, such as `train2017`.

        Raises:
          DatasetError: If the folder, its annotations or its images are missing, or the annotations
            are not COCO's of instances.
        """
        self._folder = pathlib.Path(folder)
        if not self._folder.is_dir():
            raise DatasetError(f"--data_dir={folder} is no folder")
        self._path = self._folder / "annotations" / f"instances_{split}.json"
        self._images = self._folder / split
        if not self._path.is_file():
            raise DatasetError(
                f"--data_dir={folder} has no annotations: {self._path} is missing (COCO's layout "
                f"has annotations/instances_{split}.json beside the images in {split}/)"
            )
        if not self._images.is_dir():
            raise DatasetError(f"--data_dir={folder} has no images: {self._images}/ is missing")
        self.truth = _read(self._path)
        self.image_ids = sorted(self.truth.imgs)
        self.category_ids = sorted(self.truth.cats)
        self.class_names = [str(self.truth.cats[i].get("name", i)) for i in self.category_ids]
        self._labels = {category: i + 1 for i, category in enumerate(self.category_ids)}

    def __len__(self) -> int:
        return len(self.image_ids)

    def keep_annotated(self) -> None:
        """Drops images without an instance that is not a crowd: there is nothing to train on."""
        self.image_ids = [
            image_id
            for image_id in self.image_ids
            if any(not a.get("iscrowd", 0) for a in self.truth.imgToAnns.get(image_id, []))
        ]
        if not self.image_ids:
            raise DatasetError(f"{self._path}: no image has an instance")

    def digest(self) -> str:
        """A hash of the annotations, and of names and sizes of the images' files."""
        content = hashlib.blake2b(self._path.read_bytes(), digest_size=16)
        for path in map(self._file, self.image_ids):
            size = path.stat().st_size if path.exists() else None
            content.update(f"{path.name} {size}\n".encode(errors="surrogateescape"))
        return content.hexdigest()

    def _file(self, image_id: int) -> pathlib.Path:
        # The name is untrusted: only names inside the folder are read.
        name = str(self.truth.imgs[image_id]["file_name"])
        return self._images / pathlib.PurePosixPath(name).name

    def image(self, index: int) -> npt.NDArray[np.uint8]:
        """The pixels of an image, uint8 [height, width, 3].

        Raises:
          DatasetError: If the file is missing or broken, or has another size than is annotated.
        """
        entry = self.truth.imgs[self.image_ids[index]]
        path = self._file(self.image_ids[index])
        try:
            with image_file.open_image(path) as opened:
                if deep_pixels.read(opened) is not None:
                    raise DatasetError("images of more than 8 bits are not read: save it with 8")
                pixels = np.asarray(opened.convert("RGB"))
        except FileNotFoundError as error:
            raise DatasetError(
                f"{self._path} names {entry['file_name']}, and {path} is missing"
            ) from error
        except (DatasetError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as e:
            raise DatasetError(f"{path}: {e}") from e
        if pixels.shape[:2] != (entry["height"], entry["width"]):
            raise DatasetError(
                f"{path} has {pixels.shape[1]}x{pixels.shape[0]} pixels, and {self._path} says "
                f"{entry['width']}x{entry['height']}"
            )
        return pixels

    def example(self, index: int) -> AnnotatedImage:
        """An image with its instances.

        Raises:
          DatasetError: As `image`; or if an annotation of the image is broken.
        """
        image_id, pixels = self.image_ids[index], self.image(index)
        height, width = pixels.shape[:2]
        boxes, labels, masks, crowds = [], [], [], []
        for annotation in self.truth.imgToAnns.get(image_id, []):
            try:
                left, top, box_width, box_height = map(float, annotation["bbox"])
                masks.append(self.truth.annToMask(annotation))
                labels.append(self._labels[annotation["category_id"]])
            except Exception as error:  # pycocotools raises this class itself.
                raise DatasetError(
                    f"{self._path}: annotation {annotation.get('id')} of image {image_id} is "
                    f"broken ({type(error).__name__}: {error})"
                ) from error
            if masks[-1].shape != (height, width):
                raise DatasetError(
                    f"{self._path}: the mask of annotation {annotation.get('id')} has another size "
                    f"than image {image_id}"
                )
            boxes.append((top, left, top + box_height, left + box_width))
            crowds.append(bool(annotation.get("iscrowd", 0)))
        scale = np.array([height, width, height, width], np.float32)
        return AnnotatedImage(
            image_id,
            pixels,
            np.reshape(np.array(boxes, np.float32), [-1, 4]) / scale,
            np.array(labels, np.int64),
            np.reshape(np.array(masks, np.uint8), [-1, height, width]),
            np.array(crowds, bool),
        )


def load(
    folder: str | os.PathLike[str], train_images: int | None = None
) -> tuple[CocoImages, CocoImages]:
    """The (first `train_images`) training images that have instances, and those for validation.

    Raises:
      DatasetError: As `CocoImages`; or if the two splits have different classes.
    """
    train, validation = (CocoImages(folder, split) for split in SPLITS)
    if (train.category_ids, train.class_names) != (validation.category_ids, validation.class_names):
        raise DatasetError(f"--data_dir={folder}: the two files of annotations differ in classes")
    train.keep_annotated()
    train.image_ids = train.image_ids[: train_images or None]
    return train, validation


def _read(path: pathlib.Path) -> Any:
    """The annotations in a file, a `pycocotools.coco.COCO`."""
    from pycocotools.coco import COCO

    try:
        with contextlib.redirect_stdout(io.StringIO()):  # It prints how long it has taken.
            truth = COCO(str(path))
        _check(truth)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise DatasetError(
            f"{path} has no COCO annotations of instances ({type(error).__name__}: {reason})"
        ) from error
    return truth


def _check(truth: Any) -> None:
    """Raises a ValueError or KeyError unless images, classes and annotations are complete."""
    if not truth.imgs or not truth.cats:
        raise ValueError("it lists no images or no categories")
    for image in truth.imgs.values():
        if not (isinstance(image["file_name"], str) and image["height"] > 0 < image["width"]):
            raise ValueError(f"image {image['id']} lacks a name or a size")
    for number in (*truth.imgs, *truth.cats):
        if type(number) is not int or not 0 <= number <= _LARGEST_ID:
            raise ValueError(f"the id {number!r} is no whole number from 0 to {_LARGEST_ID}")
    for annotation in truth.anns.values():
        if annotation["image_id"] not in truth.imgs or annotation["category_id"] not in truth.cats:
            raise ValueError(f"annotation {annotation['id']} is of an unknown image or category")
        if len(annotation["bbox"]) != 4 or "segmentation" not in annotation:
            raise ValueError(f"annotation {annotation['id']} lacks a box or a mask")
