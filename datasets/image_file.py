"""Opens untrusted image files: named formats only, and a bounded number of pixels."""

import functools
import os
import stat
from collections.abc import Sequence
from typing import IO

from PIL import Image, UnidentifiedImageError

from datasets.errors import DatasetError

# Pillow would also try formats that it passes on to other programs, such as EPS to Ghostscript.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
SUFFIXES = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".webp", ".bmp", ".dib", ".gif", ".tif",
    ".tiff",
)  # fmt: skip
_HEIF = (".heic", ".heif", ".hif")  # Read with the extra `heif`.
# Images of other kinds, by the endings of their files.
UNREAD = {
    **dict.fromkeys(_HEIF, "HEIC"), ".avif": "AVIF", ".jp2": "JPEG 2000",
    ".j2k": "JPEG 2000", ".jpx": "JPEG 2000", ".jxl": "JPEG XL", ".dcm": "DICOM", ".dng": "DNG",
    ".cr2": "CR2", ".cr3": "CR3", ".nef": "NEF", ".arw": "ARW", ".psd": "PSD", ".svg": "SVG",
    ".tga": "TGA", ".ppm": "PPM", ".pgm": "PGM", ".nii": "NIfTI", ".ico": "ICO",
}  # fmt: skip
# First bytes of images: those of `FORMATS`, and of others that carry a wrong ending.
_STARTS = (
    b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*", b"II+\0",
    b"MM\0+",
)  # fmt: skip
_OTHER_CONTENT = {
    b"ftyphe": "HEIC", b"ftypmi": "HEIC", b"ftypms": "HEIC", b"ftypav": "AVIF",
    b"jP  \r\n": "JPEG 2000", b"JXL \r\n": "JPEG XL",
}  # fmt: skip
# A file of 20 kB can ask for hundreds of megapixels. This is 120 MB of RGB, for each thread.
MAX_PIXELS = 40_000_000
_GROUND = "white"  # What is seen through transparent pixels.
_ORIENTATION = 0x0112  # The EXIF tag of how a photograph is to be turned.
_TURNED = (5, 6, 7, 8)  # Its values that exchange width and height.
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM, 5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_90,
}  # fmt: skip


def is_image(path: str | os.PathLike[str]) -> bool:
    """Whether a file has the ending of an image or, without an ending, the content of one."""
    ending = os.path.splitext(path)[1].lower()
    if ending:
        return ending in SUFFIXES or (ending in _HEIF and _reads_heif())
    try:
        with open(path, "rb") as file:
            start = file.read(12)
            return start.startswith(_STARTS) or (start[:4], start[8:]) == (b"RIFF", b"WEBP")
    except OSError:
        return False


@functools.cache
def _reads_heif() -> bool:
    """Whether the extra `heif` is installed, with which Pillow then opens HEIC."""
    try:
        import pillow_heif
    except ImportError:
        return False
    pillow_heif.register_heif_opener()
    return True


def how_to_convert(kinds: Sequence[str]) -> str:
    """What to do about images of these kinds, which are not read; such as `HEIC` and `AVIF`."""
    extra = ", or add the extra `heif` for HEIC" if "HEIC" in kinds else ""
    return f"convert {' and '.join(kinds)} to JPEG or PNG{extra}"


def open_image(path: str | os.PathLike[str] | IO[bytes]) -> Image.Image:
    """Opens an image, a path or an open file, and reads its header without decoding pixels.

    Raises:
      DatasetError: If the file has none of `FORMATS`, or more than `MAX_PIXELS` pixels.
      OSError: If it cannot be read; and Pillow's other errors, if its header is broken.
    """
    if isinstance(path, str | os.PathLike) and not stat.S_ISREG(os.stat(path).st_mode):
        raise DatasetError("no regular file: name a file of an image")
    try:
        image = Image.open(path, formats=(*FORMATS, *["HEIF"] * _reads_heif()))
    except UnidentifiedImageError as error:
        raise DatasetError(_unidentified(path)) from error
    except Image.DecompressionBombError as error:
        raise DatasetError(_too_large("more")) from error
    if image.format == "TIFF" and image.getexif().get(_ORIENTATION, 1) in _TURNED:
        image.filename = ""  # type: ignore[attr-defined]  # Pillow would map it with the wrong size.
    width, height = image.size
    if width * height > MAX_PIXELS:
        image.close()
        raise DatasetError(_too_large(f"{width}x{height}"))
    return image


def size(image: Image.Image) -> tuple[int, int]:
    """Width and height of an opened image as it is to be seen, without decoding its pixels."""
    # Pillow decodes a PNG to look for an orientation behind the pixels; a TIFF's size is right.
    if image.format == "TIFF" or (image.format == "PNG" and "exif" not in image.info):
        return image.size
    is_turned = image.getexif().get(_ORIENTATION, 1) in _TURNED
    return (image.height, image.width) if is_turned else image.size


def upright(image: Image.Image) -> Image.Image:
    """The image as its EXIF orientation turns it; the same object if there is nothing to turn."""
    image.load()  # A PNG may have its EXIF data behind the pixels.
    # Pillow's exif_transpose also writes all EXIF data anew, and fails if a tag has an odd type.
    method = _UPRIGHT.get(image.getexif().get(_ORIENTATION, 1))
    return image if method is None else image.transpose(method)


def rgb(image: Image.Image) -> Image.Image:
    """The first page of an image as it is to be seen: upright, RGB, in front of white."""
    image = upright(image)
    if not image.has_transparency_data:
        return image.convert("RGB")
    seen = Image.new("RGBA", image.size, _GROUND)
    seen.alpha_composite(image.convert("RGBA"))
    return seen.convert("RGB")


def _unidentified(path: str | os.PathLike[str] | IO[bytes]) -> str:
    """What is wrong with a file that has none of the formats."""
    if isinstance(path, str | os.PathLike):
        with open(path, "rb") as file:
            start = file.read(16)
    else:
        path.seek(0)
        start = path.read(16)
    if not start:
        return "broken image: the file is empty"
    if (content := _OTHER_CONTENT.get(start[4:10])) and not (content == "HEIC" and _reads_heif()):
        return f"an image of the kind {content}, which is not read: {how_to_convert([content])}"
    return f"broken image, or none of the formats {', '.join(FORMATS)}"


def _too_large(size: str) -> str:
    return f"{size} pixels; at most {MAX_PIXELS:,} are read: make the image smaller"
