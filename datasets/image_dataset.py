"""Labelled images, which loaders return and partitions take."""

import dataclasses

import numpy as np
import numpy.typing as npt
from PIL import Image

from datasets import pixel_store
from datasets.errors import DatasetError

NO_LABEL = -1
_TEST_FRACTION = 0.2  # share of the examples that becomes the test split of a set without one
_TEST_SEED = 0  # fixed, so that the test examples do not depend on --seed


@dataclasses.dataclass(frozen=True)
class Split:
    """One split of a data set, n examples."""

    images: npt.NDArray[np.uint8]  #: Pixels, uint8 [n, height, width, channels].
    #: Indices into `ImageDataset.class_names`, or -1 for no label, int32 [n].
    labels: npt.NDArray[np.int32]
    #: Ids that are unique over all splits of the data set, int64 [n].
    example_ids: npt.NDArray[np.int64]
    #: Cases of the examples, object [n] of str; None for data without cases.
    case_ids: npt.NDArray[np.object_] | None = None

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != np.uint8:
            raise DatasetError(
                f"images must be uint8 [n, height, width, channels], not {self.images.dtype} "
                f"{list(self.images.shape)}"
            )
        for name in ("labels", "example_ids", "case_ids"):
            values = getattr(self, name)
            if values is not None and values.shape != (len(self.images),):
                raise DatasetError(
                    f"{name} must have shape [{len(self.images)}], not {list(values.shape)}"
                )

    def __len__(self) -> int:
        return len(self.images)

    def take(self, indices: npt.NDArray[np.int64] | slice) -> "Split":
        """The examples at `indices`, int64 [m], in that order; or those of a slice, not copied."""
        cases = None if self.case_ids is None else self.case_ids[indices]
        images = pixel_store.take(self.images, indices)
        return Split(images, self.labels[indices], self.example_ids[indices], cases)


@dataclasses.dataclass(frozen=True)
class ImageDataset:
    """A data set of images of one size."""

    name: str  #: Name in the catalog.
    train: Split  #: Examples that clients hold and that probes are trained on.
    test: Split  #: Examples for the final evaluation only; empty if the source has none.
    class_names: tuple[str, ...]  #: Name of each label.
    #: Examples for choosing hyperparameters; None if the source has none.
    validation: Split | None = None
    #: Decisions of the loader, such as a test split; sentences for the user.
    notes: tuple[str, ...] = ()
    #: Paths of the images inside their folder, by example id; empty if the source has no files of
    #: images.
    file_names: tuple[str, ...] = ()


def hold_out(
    split: Split, fraction: float = _TEST_FRACTION, seed: int = _TEST_SEED
) -> tuple[Split, Split]:
    """Splits off a stratified random part; the defaults are for sources without a test split.

    `fraction` of each class is held out, rounded to whole examples; unlabelled examples count as
    one class. The remaining and the held-out examples keep their order.
    """
    rng = np.random.default_rng(seed)
    held = np.zeros(len(split), dtype=bool)
    for label in np.unique(split.labels):
        members = np.flatnonzero(split.labels == label)
        held[rng.permutation(members)[: round(fraction * len(members))]] = True
    return split.take(np.flatnonzero(~held)), split.take(np.flatnonzero(held))


def check_image_size(image_size: int | None) -> None:
    """Raises DatasetError unless `image_size` is None or a side of at least 1 pixel."""
    if image_size is not None and image_size < 1:
        raise DatasetError(f"image_size must be at least 1 pixel, not {image_size}")


def resize(image: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    """Resizes an image, uint8 [h, w, 1, 3 or 4], to a square: bilinear, antialiased."""
    if image.shape[:2] == (size, size):
        return image
    pixels = image[..., 0] if image.shape[-1] == 1 else image
    resized = Image.fromarray(pixels).resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(resized, dtype=np.uint8).reshape(size, size, image.shape[-1])


def resize_split(split: Split, size: int | None) -> Split:
    """`split` with its images resized to `size` x `size` pixels, or as it is for None."""
    if size is None or split.images.shape[1:3] == (size, size):
        return split
    images = pixel_store.empty((len(split), size, size, split.images.shape[-1]))
    for i, image in enumerate(split.images):
        images[i] = resize(image, size)
    return dataclasses.replace(split, images=images)
