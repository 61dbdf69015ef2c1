"""Shifts of the input distribution: each client sees its images rotated or in another style.

Dec-SSL (appendix B.4, Figures 10 and 11) rotates the images of client k of K by 2 pi k / K, or
gives each client a style of its own. The paper makes the styles with a style-transfer network
(Geirhos et al. 2019); here, five fixed transforms of colour, contrast and texture replace it. They
also change local texture and keep global shape, but less than style transfer would.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy import ndimage

from datasets.errors import DatasetError

Images = npt.NDArray[np.uint8]
Pixels = npt.NDArray[np.float32]
Partition = Sequence[npt.NDArray[np.int64]]  # indices of each client's examples

DEFAULT_SHIFTS = 5
_BATCH = 2048  # number of images that are in floating point at a time
_LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601


def rotation(images: Images, client: int, num_clients: int) -> Images:
    """Rotates images, uint8 [n, h, w, c], by 2 pi client / num_clients counter-clockwise.

    Quarter turns of square images and all half turns are exact. Other angles are interpolated
    bilinearly; pixels from outside the image are black.
    """
    quarters = 4 * Fraction(client, num_clients) % 4
    square = images.shape[1] == images.shape[2]
    if quarters.denominator == 1 and (square or quarters % 2 == 0):
        return np.rot90(images, int(quarters), axes=(1, 2)).copy()
    degrees = float(90 * quarters)
    return np.stack([_rotate(image, degrees) for image in images]) if len(images) else images


def _rotate(image: Images, degrees: float) -> Images:
    """Rotates one image, uint8 [h, w, c], counter-clockwise."""
    if image.shape[-1] == 3:
        return np.asarray(Image.fromarray(image).rotate(degrees, Image.Resampling.BILINEAR))
    # Channels are rotated one by one, because Pillow would weight colours by an alpha channel.
    planes = (Image.fromarray(plane) for plane in np.moveaxis(image, -1, 0))
    return np.stack(
        [np.asarray(plane.rotate(degrees, Image.Resampling.BILINEAR)) for plane in planes], axis=-1
    )


def style(images: Images, client: int, num_clients: int) -> Images:
    """Gives the images the style of a client: ink, poster, sharp, warm, grain, in this order.

    Images are uint8 [n, h, w, c] with 1 or 3 colours; a fourth channel (alpha) is kept.

    Raises:
      DatasetError: More clients than styles.
    """
    if num_clients > len(STYLES):
        raise DatasetError(
            f"shifts must be at most {len(STYLES)}, the number of styles, not {num_clients}"
        )
    transform = list(STYLES.values())[client]
    styled = images.copy()
    colours = images.shape[-1] if images.shape[-1] < 4 else 3
    for start in range(0, len(images), _BATCH):
        batch = slice(start, start + _BATCH)
        x = images[batch, ..., :colours].astype(np.float32) / np.float32(255)
        styled[batch, ..., :colours] = np.rint(255 * np.clip(transform(x), 0, 1))
    return styled


def _ink(x: Pixels) -> Pixels:
    """Black lines and shades on white paper, from differences of Gaussians."""
    grey = x @ _LUMINANCE[:, np.newaxis] if x.shape[-1] == 3 else x
    lines = _blur(grey, 0.5) - _blur(grey, 1.5)
    ink = 1 / (1 + np.exp(-(8 * (grey - 0.4) + 30 * lines)))
    return np.broadcast_to(ink, x.shape)


def _poster(x: Pixels) -> Pixels:
    """Flat areas with four levels of each colour, and more contrast."""
    return np.rint(3 * np.clip(0.5 + 1.3 * (_blur(x, 0.7) - 0.5), 0, 1)) / 3


def _sharp(x: Pixels) -> Pixels:
    """Exaggerated edges, as from a bad camera, in pale colours."""
    grey = x.mean(axis=-1, keepdims=True)
    return 0.5 * (x + grey) + 2.5 * (x - _blur(x, 1.0))


def _warm(x: Pixels) -> Pixels:
    """Evening light, with more red and less blue; images of one colour become brighter."""
    curves = np.array([0.55, 1.0, 2.2] if x.shape[-1] == 3 else [0.5], np.float32)
    return x**curves


def _grain(x: Pixels) -> Pixels:
    """An image out of focus and dim, with a sensor's grain, which is the same on each image."""
    grain = np.random.default_rng(0).normal(0, 0.05, (*x.shape[1:3], 1)).astype(np.float32)
    return 0.7 * _blur(x, 1.0) + 0.03 + grain


def _blur(x: Pixels, sigma: float) -> Pixels:
    """Blurs each image and channel; sigma is in 32nds of the height, borders are mirrored."""
    pixels = max(0.5, sigma * x.shape[1] / 32)  # less than half a pixel would have no effect
    return ndimage.gaussian_filter(x, (0, pixels, pixels, 0), mode="mirror")


STYLES: dict[str, Callable[[Pixels], Pixels]] = {
    "ink": _ink,
    "poster": _poster,
    "sharp": _sharp,
    "warm": _warm,
    "grain": _grain,
}
# Functions of (images, client, number of clients) that return the shifted images, by name.
SHIFTS: dict[str, Callable[[Images, int, int], Images]] = {"rotation": rotation, "style": style}


def shift_number(client: int, num_clients: int, shifts: int = DEFAULT_SHIFTS) -> int:
    """Number of the shift of client k of K: k mod S, with S = min(K, shifts)."""
    return client % min(num_clients, shifts)


def shift_as_client(
    name: str, images: Images, client: int, num_clients: int, shifts: int = DEFAULT_SHIFTS
) -> Images:
    """The images, uint8 [n, h, w, c], as client k of K sees them, with at most `shifts` shifts.

    Raises:
      DatasetError: Unknown name; shifts below 1 or above the number of styles.
    """
    if name not in SHIFTS:
        raise DatasetError(f"unknown shift {name!r}: give one of {', '.join(SHIFTS)}")
    if shifts < 1:
        raise DatasetError(f"shifts must be at least 1, not {shifts}")
    number = shift_number(client, num_clients, shifts)
    return SHIFTS[name](images, number, min(num_clients, shifts))


def shift_clients(
    name: str, images: Images, partition: Partition, shifts: int = DEFAULT_SHIFTS
) -> Images:
    """A copy of the images, uint8 [n, h, w, c], with those of each client as `shift_as_client`."""
    shifted = images.copy()
    different = max(1, min(len(partition), shifts))
    for k in range(different):
        indices = np.concatenate(partition[k::different])
        shifted[indices] = shift_as_client(name, images[indices], k, len(partition), shifts)
    return shifted
