"""Image files of strangers: formats by name, and a bounded number of pixels."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, ImageOps

from datasets import case_folder, image_file
from datasets.errors import DatasetError

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


def png(width, height):
    """A PNG of zeros with one bit a pixel."""

    def chunk(kind, content):
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    pixels = zlib.compress(bytes((1 + -(-width // 8)) * height), 9)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


@pytest.fixture
def folder(tmp_path):
    """(name, content) -> a folder with that image in the second row, after a good one."""

    def write(name, content):
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "good.png")
        (tmp_path / name).write_bytes(content)
        (tmp_path / "metadata.csv").write_text(
            f"file_name,case_id,label\ngood.png,a,x\n{name},b,y\n"
        )
        return tmp_path

    return write


@pytest.mark.parametrize("name", ["image.eps", "image.png"])
def test_eps_is_not_passed_on_to_ghostscript(folder, monkeypatch, name):
    path, opened = folder(name, EPS), []
    monkeypatch.setattr(EpsImagePlugin.EpsImageFile, "_open", opened.append)
    with pytest.raises(DatasetError, match=f"row 3: {name}: .*none of the formats JPEG, PNG"):
        case_folder.load(path, image_size=8)
    assert not opened


@pytest.mark.parametrize("format_name", image_file.FORMATS)
def test_the_named_formats_are_read(tmp_path, format_name):
    Image.fromarray(np.full((8, 9, 3), 77, np.uint8)).save(tmp_path / "image", format_name)
    with image_file.open_image(tmp_path / "image") as image:
        assert image.size == (9, 8)
        assert abs(int(np.asarray(image.convert("RGB")).mean()) - 77) <= 1


@pytest.mark.parametrize("side", [13_000, 20_000])  # Pillow itself refuses the larger one.
def test_a_small_file_of_many_pixels_is_refused_before_it_is_decoded(folder, monkeypatch, side):
    content = png(side, side) if side == 13_000 else png(side, 8).replace(
        struct.pack(">II", side, 8), struct.pack(">II", side, side)
    )  # fmt: skip
    if side == 13_000:
        assert len(content) < 30_000
    else:  # The header's checksum.
        start = content.index(b"IHDR")
        checksum = struct.pack(">I", zlib.crc32(content[start : start + 17]))
        content = content[: start + 17] + checksum + content[start + 21 :]
    path, loaded = folder("large.png", content), []
    monkeypatch.setattr(Image.Image, "load", lambda image: loaded.append(image.size))
    with pytest.raises(DatasetError, match=r"row 3: large.png: .*at most 40,000,000 are read"):
        case_folder.load(path, image_size=8)
    assert set(loaded) <= {(8, 8)}


def test_as_many_pixels_as_allowed_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(image_file, "MAX_PIXELS", 72)
    (tmp_path / "image.png").write_bytes(png(9, 8))
    image_file.open_image(tmp_path / "image.png").close()
    (tmp_path / "image.png").write_bytes(png(73, 1))
    with pytest.raises(DatasetError, match="73x1 pixels; at most 72"):
        image_file.open_image(tmp_path / "image.png")


def turned(orientation, *tags):
    """A JPEG with that orientation and other tags of EXIF, each a number, a type and bytes."""
    tags = [(0x112, 3, struct.pack("<H", orientation)), *tags]
    entries, later = struct.pack("<H", len(tags)), b""
    for number, kind, value in tags:
        entries += struct.pack("<HHI", number, kind, len(value) // {2: 1, 3: 2, 7: 1}[kind])
        if len(value) > 4:
            entries += struct.pack("<I", 8 + 2 + 12 * len(tags) + 4 + len(later))
            later += value
        else:
            entries += value.ljust(4, b"\0")
    exif = b"Exif\0\0II*\0" + struct.pack("<I", 8) + entries + bytes(4) + later
    pixels = np.random.default_rng(0).integers(0, 256, (20, 24, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", exif=exif)
    return buffer.getvalue()


@pytest.mark.parametrize("orientation", range(9))  # 0 is none.
def test_images_are_turned_as_pillow_turns_them(orientation):
    content = turned(orientation)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    with image_file.open_image(io.BytesIO(content)) as image:
        assert np.array_equal(image_file.rgb(image), expected)


@pytest.mark.parametrize(
    "tag",
    [(0x11A, 2, b"72/1\0\0"), (0x11A, 7, b"72.0"), (0x128, 2, b"2\0"), (0x213, 2, b"1\0")],
    ids=["resolution as text", "resolution as bytes", "unit as text", "positioning as text"],
)
def test_tags_of_an_odd_type_do_not_matter(folder, tag):
    """Pillow reads them, and does not write them again."""
    path = folder("turned.jpg", turned(6, tag))
    with image_file.open_image(io.BytesIO(turned(6))) as image:
        expected = np.asarray(image_file.rgb(image))
    data = case_folder.load(path, image_size=20)
    assert np.array_equal(
        data.train.images[1], np.asarray(Image.fromarray(expected).resize((20, 20), 2))
    )
