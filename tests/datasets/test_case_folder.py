"""Folders of cases: contents of the data set, and errors that name the file and the row."""

import pathlib
import time

import numpy as np
import pytest
from PIL import Image

from datasets import case_folder, partition
from datasets.errors import DatasetError

SHARED = pathlib.Path(__file__).parents[3] / "shared" / "data"
HEADER = "file_name,case_id,label,split\n"
GOOD = "a.png,c1,cat,train\nb.png,c1,cat,train\nc.png,c2,dog,train\nd.png,c3,dog,test\n"


def pixels(seed, shape=(6, 5, 3)):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture
def folder(tmp_path):
    for seed, name in enumerate("abcd"):
        Image.fromarray(pixels(seed)).save(tmp_path / f"{name}.png")
    write(tmp_path, HEADER + GOOD)
    return tmp_path


def write(folder, text, encoding="utf-8"):
    (folder / "metadata.csv").write_text(text, encoding=encoding)


def error_message(folder, image_size=None):
    with pytest.raises(DatasetError) as caught:
        case_folder.load(folder, image_size)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_reads_images_labels_and_cases(folder):
    data = case_folder.load(folder)
    assert np.array_equal(data.train.images, np.stack([pixels(0), pixels(1), pixels(2)]))
    assert np.array_equal(data.test.images, pixels(3)[np.newaxis])
    assert data.class_names == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 0, 1]
    assert data.train.example_ids.tolist() == [0, 1, 2]
    assert data.test.example_ids.tolist() == [3]
    assert data.train.case_ids.tolist() == ["c1", "c1", "c2"]
    assert data.validation is None
    clients = partition.make("per_case", data.train, 0)
    assert [indices.tolist() for indices in clients] == [[0, 1], [2]]


def test_validation_quotes_and_a_byte_order_mark(folder):
    rows = '"a.png",c1,"cat, large",train\n\nb.png,c2,,train\nd.png,c3,"cat, large",val\n'
    write(folder, HEADER + rows, encoding="utf-8-sig")
    data = case_folder.load(folder)
    assert data.class_names == ("cat, large",)
    assert data.train.labels.tolist() == [0, -1]
    assert data.validation is not None
    assert data.validation.labels.tolist() == [0]
    assert len(data.test) == 0
    assert data.test.images.shape == (0, 6, 5, 3)


def test_label_and_split_may_be_missing(folder):
    write(folder, "case_id,file_name\nc1,a.png\nc2,b.png\n")
    data = case_folder.load(folder)
    assert data.train.labels.tolist() == [-1, -1]
    assert data.class_names == ()
    assert (len(data.train), len(data.test)) == (2, 0)


def test_gray_palette_and_transparent_images_become_rgb(folder):
    gray = pixels(7, (6, 5))
    Image.fromarray(gray).save(folder / "a.png")
    Image.fromarray(pixels(8, (6, 5, 4))).save(folder / "b.png")
    Image.fromarray(pixels(9)).quantize(8).save(folder / "c.png")
    images = case_folder.load(folder).train.images
    assert np.array_equal(images[0], np.repeat(gray[..., np.newaxis], 3, axis=2))
    assert np.array_equal(images[1], pixels(8, (6, 5, 4))[..., :3])
    assert images.shape == (3, 6, 5, 3)


def test_several_sizes_need_image_size(folder):
    Image.fromarray(pixels(1, (4, 9, 3))).save(folder / "b.png")
    message = error_message(folder)
    assert "row 3" in message
    assert "b.png" in message
    assert "--image_size" in message
    data = case_folder.load(folder, image_size=8)
    assert data.train.images.shape == (3, 8, 8, 3)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("missing.jpg,c9,cat,train\n", ["row 6", "missing.jpg", "no such file"]),
        ("../a.png,c9,cat,train\n", ["row 6", "../a.png", "inside the folder"]),
        ("x/../../a.png,c9,cat,train\n", ["row 6", "inside the folder"]),
        ("/etc/passwd,c9,cat,train\n", ["row 6", "inside the folder"]),
        (",c9,cat,train\n", ["row 6", "inside the folder"]),
        ("./a.png,c1,cat,train\n", ["row 6", "a.png", "row 2"]),
        ("e.png,c1,cat,test\n", ["row 6", "c1", "test", "train in row 2"]),
        ("e.png,c9,bird,test\n", ["row 6", "bird", "label"]),
        ("e.png,c9,bird,validation\n", ["row 6", "bird", "label"]),
        ("e.png,c9,cat,dev\n", ["row 6", "dev", "split"]),
        ("e.png,,cat,train\n", ["row 6", "case_id"]),
        ("e.png,c9,cat\n", ["row 6", "3 fields", "4"]),
        ("e.png,c9,cat,train,x\n", ["row 6", "5 fields", "4"]),
        ('e.png,c9,"cat,train\n', ["row 6", "CSV"]),
        ("broken.png,c9,cat,train\n", ["row 6", "broken.png", "broken image"]),
        ("cut.png,c9,cat,train\n", ["row 6", "cut.png", "broken image"]),
        ("text.png,c9,cat,train\n", ["row 6", "text.png", "broken image"]),
        ("deep.png,c9,cat,train\n", ["row 6", "deep.png", "8-bit"]),
        (
            "m1.png,c8,cat,train\nm2.png,c9,cat,train\ne.png,c7,cat,dev\n",
            ["row 6", "m1.png", "2 more bad rows"],
        ),
    ],
)
def test_errors_name_bad_rows(folder, rows, words):
    Image.fromarray(pixels(4)).save(folder / "e.png")
    whole = (folder / "e.png").read_bytes()
    (folder / "broken.png").write_bytes(whole[:20])
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "text.png").write_text("no image")
    Image.fromarray(np.zeros((6, 5), np.uint16)).save(folder / "deep.png")
    write(folder, HEADER + GOOD + rows)
    message = error_message(folder)
    assert "metadata.csv" in message
    assert [word for word in words if word not in message] == [], message


def test_truncated_jpeg(folder):
    Image.fromarray(pixels(4)).save(folder / "e.jpg")
    (folder / "e.jpg").write_bytes((folder / "e.jpg").read_bytes()[:-30])
    write(folder, HEADER + GOOD + "e.jpg,c9,cat,train\n")
    assert "row 6: e.jpg: broken image" in error_message(folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["file_name"]),
        (HEADER, ["no rows"]),
        ("file_name,label\na.png,cat\n", ["case_id"]),
        ("file_name,case_id,case_id\na.png,c1,c1\n", ["case_id", "twice"]),
        (HEADER + "a.png,c1,cat,test\n", ["label"]),
        (HEADER + "a.png,c1,,test\n", ["train"]),
    ],
)
def test_bad_tables(folder, text, words):
    write(folder, text)
    message = error_message(folder)
    assert [word for word in [*words, "metadata.csv"] if word not in message] == [], message


def test_csv_that_is_not_text_or_not_there(folder):
    (folder / "metadata.csv").write_bytes(HEADER.encode() + b"\xff\xfe\x00.png,c1,cat,train\n")
    assert "UTF-8" in error_message(folder)
    (folder / "metadata.csv").unlink()
    assert "metadata.csv does not exist" in error_message(folder)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")
def test_ham10000():
    started = time.perf_counter()
    data = case_folder.load(SHARED / "ham10000")
    print(f"10,015 images: {time.perf_counter() - started:.1f} s")
    assert len(data.train) + len(data.test) == 10_015
    assert data.train.images.shape[1:] == (64, 64, 3)
    assert len(data.class_names) == 7
    cases = set(data.train.case_ids) | set(data.test.case_ids)
    assert len(cases) == 7470
    sizes = [len(indices) for indices in partition.per_case(data.train.case_ids)]
    assert (min(sizes), max(sizes)) == (1, 6)
