"""Reads the pixels of images of more than 8 bits, of which Pillow decodes 8 if they have colours.

Pillow has a decoder for the upper byte of each value, and the one for the other order of bytes
gives the lower one. So such an image is decoded twice.
"""

import io
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, TiffImagePlugin

from datasets import image_file
from datasets.errors import DatasetError

_BITS, _PHOTOMETRIC, _PLANES = 258, 262, 284  # Tags of TIFF.
_WHITE_IS_ZERO = 0
# Kinds of TIFF that Pillow does not know: grey with 0 for white, and grey with transparency. The
# two values of a pixel of the latter are read as the four bytes of a pixel of RGBA.
for _order, _mode in ((b"II", "I;16"), (b"MM", "I;16B")):
    TiffImagePlugin.OPEN_INFO.setdefault((_order, 0, (1,), 1, (16,), ()), (_mode, _mode))
    for _alpha in (1, 2):
        TiffImagePlugin.OPEN_INFO.setdefault(
            (_order, 1, (1,), 1, (16, 16), (_alpha,)), ("RGBA", "RGBA")
        )


class Deep(NamedTuple):
    """The pixels of an image of more than 8 bits."""

    values: npt.NDArray[np.integer]  #: Whole numbers from 0 on, [height, width, 1 or 3].
    #: From 0 to 1, float32 [height, width, 1]; None if all pixels are opaque.
    opacity: npt.NDArray[np.float32] | None
    is_inverted: bool  #: Whether 0 is white.

    def largest(self) -> int:
        """The largest value that can be seen."""
        seen = self.values if self.opacity is None else self.values[self.opacity[..., 0] > 0]
        return int(seen.max(initial=0))

    def planes(self, bits: int) -> Iterator[npt.NDArray[np.float32]]:
        """Each channel with values from 0 to 255 instead of 0 to 2^bits - 1, in front of white."""
        for channel in range(self.values.shape[-1]):
            plane = self.values[..., channel].astype(np.float32) / (2**bits - 1)
            if self.is_inverted:
                plane = 1 - plane
            if self.opacity is not None:
                plane = 1 + self.opacity[..., 0] * (plane - 1)
            yield 255 * plane


def read(image: Image.Image) -> Deep | None:
    """Decodes an opened image of more than 8 bits, upright; None for images of 8 bits or fewer.

    Raises:
      DatasetError: Its values are negative, fractions, or in separate planes.
    """
    if image.mode == "F":
        raise DatasetError("pixels are floating point numbers: save it with 8 or 16 bits")
    tags: Any = getattr(image, "tag_v2", {}) if image.format == "TIFF" else {}
    if image.mode.startswith("I"):
        values = np.asarray(image_file.upright(image))[..., np.newaxis]
        if values.min(initial=0) < 0:
            raise DatasetError("pixels are negative: save it with 8 or 16 bits from 0 on")
        return Deep(values, _opacity(image, values), tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO)
    if tags.get(_PLANES) == 2 and 16 in tags.get(_BITS, ()):
        raise DatasetError("planes of 16 bits are not read: save it with interleaved channels")
    kind, _, order = _raw_mode(image).partition(";16")
    if (kind == "LA" and order) or (kind == "RGBA" and tags.get(_BITS) == (16, 16)):
        is_big = image.format == "PNG" or tags.prefix == b"MM"
        if image.tile[0].codec_name == "libtiff":  # type: ignore[attr-defined]
            is_big = sys.byteorder == "big"
        pairs = _decode(image, "RGBA").view(">u2" if is_big else "<u2")
        return Deep(pairs[..., :1], _fraction(pairs[..., 1:]), False)
    if not order or kind not in ("RGB", "RGBA", "RGBX", "RGBa"):
        return None
    if order == "N":
        order = "B" if sys.byteorder == "big" else "L"
    upper, lower = (
        _decode(image, f"{kind.upper()};16{end}") for end in (order, "L" if order == "B" else "B")
    )
    both = upper.astype(np.uint16) << 8 | lower
    values = both[..., :3]
    if both.shape[-1] == 3:
        return Deep(values, _opacity(image, values), False)
    opacity = _fraction(both[..., 3:])
    if kind == "RGBa":  # Colours are multiplied by their opacity.
        values = np.rint(values / np.maximum(opacity, 1 / 65535)).clip(0, 65535).astype(np.uint16)
    return Deep(values, opacity, False)


def _raw_mode(image: Image.Image) -> str:
    """Pillow's name for the layout of the bytes in the file; empty for images of no file."""
    tiles = getattr(image, "tile", [])
    if not tiles:
        return ""
    arguments = tiles[0].args
    return str(arguments if isinstance(arguments, str) else arguments[0]) if arguments else ""


def _decode(image: Image.Image, raw_mode: str) -> npt.NDArray[np.uint8]:
    """Decodes an opened image anew, as if its file had another layout, uint8 [h, w, 3 or 4]."""
    file: Any = image.filename  # type: ignore[attr-defined]
    if not file:
        image.fp.seek(0)  # type: ignore[attr-defined]
        file = io.BytesIO(image.fp.read())  # type: ignore[attr-defined]
    with Image.open(file, formats=[str(image.format)]) as again:
        again.tile = [  # type: ignore[attr-defined]
            tile._replace(
                args=raw_mode if isinstance(tile.args, str) else (raw_mode, *tile.args[1:])
            )
            for tile in again.tile  # type: ignore[attr-defined]
        ]
        return np.ascontiguousarray(image_file.upright(again))


def _opacity(image: Image.Image, values: npt.NDArray[np.integer]) -> npt.NDArray[np.float32] | None:
    """The opacity of an image in which one value or colour is transparent."""
    transparent = image.info.get("transparency")
    if image.format != "PNG" or transparent is None:
        return None
    return (values != np.array(transparent)).any(axis=-1, keepdims=True).astype(np.float32)


def _fraction(values: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
    return values.astype(np.float32) / 65535
