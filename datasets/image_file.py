"""Opens untrusted image files: named formats only, and a bounded number of pixels."""

import os
from typing import IO

from PIL import Image, UnidentifiedImageError

from datasets.errors import DatasetError

# Pillow would also try formats that it passes on to other programs, such as EPS to Ghostscript.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
# A file of 20 kB can ask for hundreds of megapixels. This is 120 MB of RGB, for each thread.
MAX_PIXELS = 40_000_000


def open_image(path: str | os.PathLike[str] | IO[bytes]) -> Image.Image:
    """Opens an image, a path or an open file, and reads its header without decoding pixels.

    Raises:
      DatasetError: If the file has none of `FORMATS`, or more than `MAX_PIXELS` pixels.
      OSError: If it cannot be read; and Pillow's other errors, if its header is broken.
    """
    try:
        image = Image.open(path, formats=FORMATS)
    except UnidentifiedImageError as error:
        raise DatasetError(f"broken image, or none of the formats {', '.join(FORMATS)}") from error
    except Image.DecompressionBombError as error:
        raise DatasetError(_too_large("more")) from error
    width, height = image.size
    if width * height > MAX_PIXELS:
        image.close()
        raise DatasetError(_too_large(f"{width}x{height}"))
    return image


def _too_large(size: str) -> str:
    return f"{size} pixels; at most {MAX_PIXELS:,} are read: make the image smaller"
