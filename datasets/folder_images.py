"""Reads images in a few threads: their sizes first, then their pixels."""

import concurrent.futures
import errno
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import tqdm
from PIL import Image

from datasets import deep_pixels, image_file, pixel_store
from datasets.case_table import Problems, Row
from datasets.deep_pixels import Deep
from datasets.errors import DatasetError

# Sizes of images without --image_size: at less, the stages of a ResNet would see 2x2 pixels; more
# takes long on a CPU.
SMALLEST, LARGEST = 16, 32
_THREADS = 4  # Useful, because reading and decoding images release the GIL.
_BLOCK = 2048  # Number of images that wait for a thread; all at once would take memory.
_PROGRESS_DELAY = 1.0  # Seconds before a progress bar is shown.
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # Pillow's names, by the number of channels.
# Errors of the system on the path of a file that is not there.
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_Result = TypeVar("_Result")
Open = Callable[[Row], Image.Image]  # Opens the image of a row; a DatasetError if it is refused.


class Header(NamedTuple):
    """What is known of an image before its pixels are used."""

    size: tuple[int, int]  #: Width and height in pixels.
    largest: int | None = None  #: Largest value of an image of more than 8 bits.
    has_pages: bool = False  #: Whether the file has several pages or frames.


def read_headers(open_row: Open, rows: Sequence[Row], problems: Problems) -> list[Header | None]:
    """Reads the header of each row's image; None for rows with a problem."""

    def read_header(row: Row) -> Header:
        with open_row(row) as image:
            has_pages = bool(getattr(image, "is_animated", False))
            deep = deep_pixels.read(image)
            largest = None if deep is None else deep.largest()
            return Header(image_file.size(image), largest, has_pages)

    return _for_each_image(read_header, rows, problems, "checking images")


def choose_size(
    headers: Sequence[Header], image_size: int | None, largest: int = LARGEST
) -> tuple[tuple[int, int], str]:
    """Chooses width and height of the images of the data set, and a note for the user.

    `image_size` is the side of the square to which images are resized. If it is None, images of one
    size with sides from 16 to 32 pixels keep it, and others become squares, whose side is the
    median of the images' shorter sides, at least 16 and at most `largest`; the note says so.
    """
    if image_size is not None:
        return (image_size, image_size), ""
    sizes = sorted({header.size for header in headers})
    if len(sizes) == 1 and min(sizes[0]) >= SMALLEST and max(sizes[0]) <= LARGEST:
        return sizes[0], ""
    shorter = int(np.median([min(header.size) for header in headers]))
    side = min(max(shorter, SMALLEST), largest)
    if sizes == [(side, side)]:
        return sizes[0], ""
    width, height = sizes[0]
    are = f"{width}x{height} pixels" if len(sizes) == 1 else f"{len(sizes):,} different sizes"
    note = f"images of {are} are resized to {side}x{side}"
    if shorter > side:
        note += " (--image_size=N keeps more detail, and training takes longer with its square)"
    else:
        note += " (--image_size=N sets another size)"
    return (side, side), note


def bits_of(headers: Sequence[Header]) -> int | None:
    """The number of bits that the images of more than 8 bits use; None if there are none."""
    largest = [header.largest for header in headers if header.largest is not None]
    return max(8, max(largest).bit_length()) if largest else None


def decode(
    open_row: Open,
    rows: Sequence[Row],
    size: tuple[int, int],
    channels: int,
    bits: int | None,
    problems: Problems,
    title: str,
) -> npt.NDArray[np.uint8]:
    """Decodes every row's image, uint8 [n, height, width, channels], in the order of the rows.

    Images are resized to `size`, width and height in pixels (bilinear, antialiased), and those of
    more than 8 bits scaled from `bits_of` to 8. Broken images are added to `problems`. `title` is
    that of the progress bar; empty for none.
    """
    images = pixel_store.empty((len(rows), size[1], size[0], channels))
    index = {row.number: i for i, row in enumerate(rows)}

    def decode_one(row: Row) -> None:
        with open_row(row) as image:
            deep = deep_pixels.read(image) if bits is not None else None
            if deep is not None:
                assert bits is not None
                images[index[row.number]] = _resized(deep, bits, size)
                return
            seen = image_file.rgb(image) if channels == 3 else image.convert(_MODES[channels])
        if seen.size != size:
            seen = seen.resize(size, Image.Resampling.BILINEAR)
        images[index[row.number]] = np.asarray(seen).reshape(images.shape[1:])

    _for_each_image(decode_one, rows, problems, title)
    return images


def find_broken(open_row: Open, rows: Sequence[Row], problems: Problems) -> None:
    """Decodes every row's image, and adds broken ones to `problems`."""

    def decode(row: Row) -> None:
        with open_row(row) as image:
            image.load()

    _for_each_image(decode, rows, problems, "looking for broken images")


def _resized(deep: Deep, bits: int, size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """An image of `bits` bits with 8 bits, resized, uint8 [height, width, 1 or 3]."""
    planes = map(Image.fromarray, deep.planes(bits))
    resized = [
        plane if plane.size == size else plane.resize(size, Image.Resampling.BILINEAR)
        for plane in planes
    ]
    values = np.stack([np.asarray(plane) for plane in resized], axis=-1)
    return np.rint(values).clip(0, 255).astype(np.uint8)


def _for_each_image(
    function: Callable[[Row], _Result], rows: Sequence[Row], problems: Problems, title: str
) -> list[_Result | None]:
    """Runs `function` on every row in threads; None where it raised, a problem of the row."""

    def result_or_problem(row: Row) -> _Result | str:
        try:
            return function(row)
        except DatasetError as error:
            return str(error)
        except Exception as error:  # Pillow's decoders raise whatever they like on broken files.
            if isinstance(error, OSError) and error.errno in _NO_FILE:
                return "no such file: correct its name, or remove the row"
            return f"broken image ({' '.join(str(error).split())}): replace or remove it"

    results: list[_Result | None] = []
    progress = tqdm.tqdm(
        total=len(rows), desc=title, unit="image", delay=_PROGRESS_DELAY, leave=False,
        disable=None if title else True,
    )  # fmt: skip
    with progress, concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            for row, result in zip(block, pool.map(result_or_problem, block), strict=True):
                if isinstance(result, str):
                    problems.add(row, result)
                results.append(None if isinstance(result, str) else result)
            progress.update(len(block))
    return results
