"""Images of 16 bits, whose files are written here byte by byte, and how images are to be seen."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

from datasets import case_folder, deep_pixels, image_file

SHAPE = (19, 17)
RNG = np.random.default_rng(0)
VALUES = RNG.integers(0, 4096, (*SHAPE, 3), dtype=np.uint16)
VALUES[0, 0] = 4095
OPACITY = RNG.integers(0, 65536, (*SHAPE, 1), dtype=np.uint16)
OPACITY[:2] = 65535


def png(pixels, more=b"", filters=(0,)):
    """A PNG of 16 bits with 1 to 4 channels; its rows are filtered as PNG's filters 0 to 2 are."""

    def chunk(kind, data):
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    height, width, channels = pixels.shape
    rows = pixels.astype(">u2").reshape(height, -1).view(np.uint8).astype(np.int64)
    above = np.vstack([0 * rows[:1], rows[:-1]])
    left = np.hstack([np.zeros((height, 2 * channels), np.int64), rows[:, : -2 * channels]])
    lines = [
        bytes([kind]) + (rows[y] - (0, left[y], above[y])[kind]).astype(np.uint8).tobytes()
        for y in range(height)
        for kind in [filters[y % len(filters)]]
    ]
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"".join(lines)))
    return b"\x89PNG\r\n\x1a\n" + header + more + body + chunk(b"IEND", b"")


def tiff(pixels, order, photometric=2, extra=(), deflate=False, strip=None):
    """A TIFF of 16 bits, without compression or with deflate, in strips."""
    height, width, channels = pixels.shape
    data = pixels.astype(f"{order}u2")
    strip = strip or height
    strips = [data[y : y + strip].tobytes() for y in range(0, height, strip)]
    strips = [zlib.compress(one) for one in strips] if deflate else strips
    tags = [
        (256, "I", [width]), (257, "I", [height]), (258, "H", [16] * channels),
        (259, "H", [8 if deflate else 1]), (262, "H", [photometric]), (273, "I", None),
        (277, "H", [channels]), (278, "I", [strip]), (279, "I", [len(one) for one in strips]),
    ]  # fmt: skip
    tags += [(338, "H", list(extra))] * bool(extra)
    end = 8 + 2 + 12 * len(tags) + 4
    entries, later = b"", b""
    sizes = [struct.calcsize(f"{len(v or strips)}{kind}") for _, kind, v in tags]
    start = end + sum(size for size in sizes if size > 4)
    offsets = np.cumsum([start, *map(len, strips[:-1])]).tolist()
    for tag, kind, numbers in tags:
        numbers = offsets if numbers is None else numbers
        packed = struct.pack(f"{order}{len(numbers)}{kind}", *numbers)
        if len(packed) > 4:
            place = struct.pack(f"{order}I", end + len(later))
            later, packed = later + packed, place
        entries += struct.pack(f"{order}HHI", tag, {"H": 3, "I": 4}[kind], len(numbers))
        entries += packed.ljust(4, b"\0")
    head = struct.pack(f"{order}2sHIH", {"<": b"II", ">": b"MM"}[order], 42, 8, len(tags))
    return head + entries + struct.pack(f"{order}I", 0) + later + b"".join(strips)


def seen(folder, content, name="a.png"):
    """The image in that file as the loader decodes it, beside one whose largest value is 4095."""
    (folder / name).write_bytes(content)
    (folder / "z.png").write_bytes(png(VALUES))
    return case_folder.load(folder).train.images[0]


def expected(values, opacity=None):
    """Values of 12 bits from 0 to 255, in front of white."""
    fractions = values / 4095
    if opacity is not None:
        fractions = 1 + opacity / 65535 * (fractions - 1)
    return np.broadcast_to(255 * fractions, (*SHAPE, 3))


def assert_seen(image, values):
    assert np.abs(image - values).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("filters", [(0,), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png(tmp_path, channels, filters):
    colours = VALUES if channels > 2 else VALUES[..., :1]
    has_opacity = channels in (2, 4)
    pixels = np.concatenate([colours, OPACITY], -1) if has_opacity else colours
    image = seen(tmp_path, png(pixels, filters=filters))
    assert_seen(image, expected(colours, OPACITY if has_opacity else None))


@pytest.mark.parametrize("deflate", [False, True])
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("strip", [None, 5])
def test_tiff(tmp_path, order, deflate, strip):
    def image(pixels, *more):
        return seen(tmp_path, tiff(pixels, order, *more, deflate=deflate, strip=strip), "a.tif")

    grey = VALUES[..., :1]
    assert_seen(image(VALUES), expected(VALUES))
    assert_seen(image(grey, 1), expected(grey))
    assert_seen(image(grey, 0), 255 - expected(grey))  # Zero is white.
    with_opacity = np.concatenate([VALUES, OPACITY], -1)
    assert_seen(image(with_opacity, 2, (2,)), expected(VALUES, OPACITY))
    assert_seen(image(with_opacity[..., 2:], 1, (2,)), expected(VALUES[..., 2:], OPACITY))
    # Colours that are multiplied by their opacity.
    shares = np.rint(VALUES * (OPACITY / 65535)).astype(np.uint16)
    multiplied = image(np.concatenate([shares, OPACITY], -1), 2, (1,))
    assert np.abs(multiplied - expected(VALUES, OPACITY)).max() <= 1


@pytest.mark.parametrize("channels", [1, 3])
def test_a_transparent_value(tmp_path, channels):
    values = VALUES[..., :channels].copy()
    values[4:8] = 1234
    data = struct.pack(f">{channels}H", *[1234] * channels)
    more = struct.pack(">I", len(data)) + b"tRNS" + data
    more += struct.pack(">I", zlib.crc32(b"tRNS" + data))
    shown = expected(values).copy()
    shown[(values == 1234).all(-1)] = 255
    assert_seen(seen(tmp_path, png(values, more)), shown)


def test_files_in_memory():
    """As in a table of encoded images."""
    for content in (png(VALUES), tiff(VALUES, ">"), tiff(VALUES[..., :1], "<", 1, deflate=True)):
        with image_file.open_image(io.BytesIO(content)) as image:
            deep = deep_pixels.read(image)
        assert np.array_equal(deep.values, VALUES[..., : deep.values.shape[-1]])
        assert deep.largest() == deep.values.max()


def test_values_that_cannot_be_seen_do_not_count(tmp_path):
    """A program hides 65535 under transparent pixels, and the others have 12 bits."""
    hidden, opacity = VALUES.copy(), np.full_like(OPACITY, 65535)
    hidden[:3], opacity[:3] = 65535, 0
    image = seen(tmp_path, png(np.concatenate([hidden, opacity], -1)))
    assert_seen(image, expected(VALUES, opacity))


def test_planes_of_16_bits_are_refused(tmp_path, monkeypatch):
    content = bytearray(tiff(VALUES, "<", extra=()))
    # The tag of rows per strip, whose value is all rows as by default, becomes that of planes.
    place = content.index(struct.pack("<HHI", 278, 4, 1))
    content[place : place + 12] = struct.pack("<HHIHH", 284, 3, 1, 2, 0)
    image = Image.open(io.BytesIO(bytes(content)))
    with pytest.raises(Exception, match="planes of 16 bits are not read: save it with inter"):
        deep_pixels.read(image)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
    "kind", ["jpeg", "png", "webp", "tiff", "grey tiff", "deep png", "deep tiff"]
)
def test_orientation(tmp_path, kind, orientation):
    """Each file is stored such that its orientation turns it back: EXIF 2.32, table 6."""
    upright = np.zeros((24, 32, 3), np.uint8)
    upright[:12, :16], upright[12:, 16:] = [250, 0, 0], [0, 0, 250]
    turned = {
        1: upright, 2: upright[:, ::-1], 3: upright[::-1, ::-1], 4: upright[::-1],
        5: upright.swapaxes(0, 1), 6: np.rot90(upright), 7: upright[::-1, ::-1].swapaxes(0, 1),
        8: np.rot90(upright, -1),
    }[orientation]  # fmt: skip
    exif = Image.Exif()
    exif[0x112] = orientation
    name, path = kind.split()[-1], tmp_path / f"a.{kind.split()[-1]}"
    if kind == "deep png":
        data = exif.tobytes()[6:]
        chunk = struct.pack(">I", len(data)) + b"eXIf" + data
        chunk += struct.pack(">I", zlib.crc32(b"eXIf" + data))
        path.write_bytes(png(turned.astype(np.uint16) * 257, chunk))
    elif name == "tiff" and kind != "tiff":
        tags, grey = TiffImagePlugin.ImageFileDirectory_v2(), turned.max(-1)
        tags[0x112] = orientation
        grey = grey.astype(np.uint16) * 257 if kind == "deep tiff" else grey
        Image.fromarray(np.ascontiguousarray(grey)).save(path, tiffinfo=tags)
        upright = np.repeat(upright.max(-1)[..., np.newaxis], 3, -1)
    else:
        more = {"quality": 100, "subsampling": 0} if name == "jpeg" else {"lossless": True}
        Image.fromarray(np.ascontiguousarray(turned)).save(path, exif=exif, **more)
    with image_file.open_image(path) as image:
        assert image_file.size(image) == (32, 24)
    (loaded,) = case_folder.load(tmp_path).train.images
    assert loaded.shape == upright.shape
    assert np.abs(loaded.astype(int) - upright).max() <= 6


def test_what_is_hidden_under_transparent_pixels_does_not_matter(tmp_path):
    for number, hidden in enumerate([(10, 200, 10), (0, 0, 0), (255, 255, 255)]):
        pixels = np.zeros((18, 18, 4), np.uint8)
        pixels[..., :3] = hidden
        pixels[3:9, 3:9] = [200, 0, 0, 255]
        image = Image.fromarray(pixels)
        image.save(tmp_path / f"{number}.png")
        image.save(tmp_path / f"{number}.webp", lossless=True, exact=True)
        image.quantize(8).save(tmp_path / f"palette{number}.png")
        image.save(tmp_path / f"{number}.tif")
    Image.fromarray(np.where(pixels[..., 3] > 0, 60, 0).astype(np.uint8)).save(
        tmp_path / "grey.png", transparency=0
    )
    *images, grey = case_folder.load(tmp_path).train.images[[*range(9), *range(10, 13), 9]]
    on_white = np.full((18, 18, 3), 255, np.uint8)
    on_white[3:9, 3:9] = [200, 0, 0]
    for image in images:
        assert np.array_equal(image, on_white)
    assert np.array_equal(grey[:3], on_white[:3])
    assert (grey[3:9, 3:9] == 60).all()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB"])
def test_images_of_eight_bits_in_all_modes_are_what_pillow_shows(tmp_path, mode):
    rgba = np.concatenate([VALUES >> 4, OPACITY >> 8], axis=2).astype(np.uint8)
    colours = "RGB" if mode == "LAB" else "RGBA"
    written = 0
    for ending in ("png", "tif", "jpg", "webp", "gif", "bmp"):
        path = tmp_path / f"image.{ending}"
        try:
            Image.fromarray(rgba).convert(colours).convert(mode).save(path)
        except (OSError, ValueError):
            continue  # The format has no such images.
        written += 1
        with Image.open(path) as image:
            expected = Image.new("RGBA", image.size, "white")
            expected.alpha_composite(image.convert(colours).convert("RGBA"))
        with image_file.open_image(path) as image:
            assert deep_pixels.read(image) is None
            seen = np.asarray(image_file.rgb(image)).astype(int)
        np.testing.assert_allclose(seen, np.asarray(expected)[..., :3], atol=1)
    assert written
