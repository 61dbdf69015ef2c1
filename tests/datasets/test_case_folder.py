"""Folders of cases: contents of the data set, and errors that name the file and the row."""

import pathlib
import shutil
import time

import numpy as np
import pytest
from PIL import Image

from datasets import case_folder, folder_images, listing, partition, partitioners
from datasets.errors import DatasetError

SHARED = pathlib.Path(__file__).parents[3] / "shared" / "data"
HEADER = "file_name,case_id,label,split\n"
GOOD = "a.png,c1,cat,train\nb.png,c1,cat,train\nc.png,c2,dog,train\nd.png,c3,dog,test\n"


def pixels(seed, shape=(18, 17, 3)):
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
    assert data.notes == ()
    clients = partition.make("per_case", data.train, 0)
    assert [indices.tolist() for indices in clients] == [[0, 1], [2]]


def test_validation_quotes_and_a_byte_order_mark(folder):
    rows = (
        '"a.png",c1,"cat, large",train\n\nb.png,c2,,train\n'
        'c.png,c4,"cat, large",test\nd.png,c3,"cat, large",val\ne.png,c5,dog,train\n'
    )
    Image.fromarray(pixels(4)).save(folder / "e.png")
    write(folder, HEADER + rows, encoding="utf-8-sig")
    data = case_folder.load(folder)
    assert data.class_names == ("cat, large", "dog")
    assert data.train.labels.tolist() == [0, -1, 1]
    assert data.validation is not None
    assert data.validation.labels.tolist() == [0]
    assert np.array_equal(data.validation.images, pixels(3)[np.newaxis])
    assert np.array_equal(data.test.images, pixels(2)[np.newaxis])
    assert (data.validation.example_ids.tolist(), data.test.example_ids.tolist()) == ([3], [2])


def test_label_and_split_may_be_missing(folder):
    for name in ("c.png", "d.png"):
        (folder / name).unlink()
    write(folder, "case_id,file_name\nc1,a.png\nc2,b.png\n")
    data = case_folder.load(folder)
    assert data.train.labels.tolist() == [-1, -1]
    assert data.class_names == ()
    assert (len(data.train), len(data.test)) == (2, 0)
    assert data.test.images.shape == (0, 18, 17, 3)
    assert data.notes == ("no image has a label: the encoder is trained, and nothing evaluates it",)


def test_gray_palette_and_transparent_images_become_rgb(folder):
    gray, transparent = pixels(7, (18, 17)), pixels(8, (18, 17, 4))
    Image.fromarray(gray).save(folder / "a.png")
    Image.fromarray(transparent).save(folder / "b.png")
    Image.fromarray(pixels(9)).quantize(8).save(folder / "c.png")
    images = case_folder.load(folder).train.images
    assert np.array_equal(images[0], np.repeat(gray[..., np.newaxis], 3, axis=2))
    opacity = transparent[..., 3:] / 255  # In front of white.
    on_white = opacity * transparent[..., :3] + (1 - opacity) * 255
    assert np.abs(images[1] - on_white).max() < 1
    assert images.shape == (3, 18, 17, 3)


@pytest.mark.parametrize(
    ("shapes", "side", "note"),
    [
        ([(4, 9, 3)], 17, "2 different sizes are resized to 17x17 (--image_size=N sets another"),
        ([(8, 8)] * 4, 16, "8x8 pixels are resized to 16x16 (--image_size=N sets another"),
        ([(40, 90, 3)] * 4, 32, "90x40 pixels are resized to 32x32 (--image_size=N keeps more"),
    ],
)
def test_images_of_other_sizes_are_resized_and_the_run_says_so(folder, shapes, side, note):
    for name, shape in zip("abcd", shapes, strict=False):
        Image.fromarray(pixels(ord(name), shape)).save(folder / f"{name}.png")
    data = case_folder.load(folder)
    assert data.train.images.shape == (3, side, side, 3)
    assert len(data.notes) == 1
    assert data.notes[0].startswith(f"images of {note}")
    given = case_folder.load(folder, image_size=8)
    assert (given.train.images.shape, given.notes) == ((3, 8, 8, 3), ())


def test_deep_images_are_scaled_by_the_bits_that_they_use(folder):
    """Values of 12 bits are divided by 4095 / 255, whatever the largest of each image is."""
    values = np.random.default_rng(0).integers(0, 4096, (18, 17), dtype=np.uint16)
    values[0, 0] = 4000
    Image.fromarray(values).save(folder / "a.png")
    Image.fromarray(values // 4).save(folder / "b.tif")
    (folder / "b.png").unlink()
    write(folder, HEADER + GOOD.replace("b.png", "b.tif"))
    data = case_folder.load(folder)
    assert np.array_equal(data.train.images[0, ..., 1], np.rint(values * (255 / 4095)))
    assert np.array_equal(data.train.images[1, ..., 1], np.rint(values // 4 * (255 / 4095)))
    assert np.array_equal(data.train.images[2], pixels(2))
    assert data.notes[0].startswith(
        "2 images have more than 8 bits a pixel: values from 0 to 4,095"
    )


def cases_folder(folder, cases):
    """Writes cases {name: (labels of its images, split)}, with a random image for each label."""
    lines = []
    for case, (labels, split) in cases.items():
        for i, label in enumerate(labels):
            Image.fromarray(pixels(len(lines))).save(folder / f"{case}_{i}.png")
            lines.append(f"{case}_{i}.png,{case},{label},{split}\n")
    write(folder, HEADER + "".join(lines))
    return case_folder.load(folder)


def test_a_split_by_case_is_drawn_if_there_is_none(tmp_path):
    cases = {f"c{i}": ([["cat"], ["dog", "dog"]][i % 2], "") for i in range(20)}
    cases |= {"lone": (["fish"], ""), "unknown": (["", ""], "")}
    data = cases_folder(tmp_path, cases)
    train, test = set(data.train.case_ids), set(data.test.case_ids)
    assert (len(train & test), len(train), len(test)) == (0, 18, 4)
    tested = [data.class_names[label] for label in data.test.labels]
    assert sorted(tested) == ["cat"] * 2 + ["dog"] * 4
    assert {"lone", "unknown"} <= train
    # Images keep their pixels and ids, whatever the split is.
    for split in (data.train, data.test):
        for image, example_id in zip(split.images, split.example_ids, strict=True):
            assert np.array_equal(image, pixels(example_id))
    assert data.notes == (
        "there is no test split: 20 % of the labelled ones are drawn for the test, with seed 0: "
        "18 cases (27 images) for training, 4 cases (6 images) for the test (the column split of "
        "metadata.csv sets your own split)",
    )
    assert set(case_folder.load(tmp_path).test.case_ids) == test


def test_test_images_without_labels_are_replaced_by_drawn_ones(tmp_path):
    cases = {f"c{i}": (["cat", "cat"], "train") for i in range(5)} | {"t": (["", ""], "test")}
    data = cases_folder(tmp_path, cases | {"lone": (["dog"], "train")})
    assert (len(data.train), len(data.test)) == (9, 2)
    assert "t" not in {*data.train.case_ids, *data.test.case_ids}
    assert data.notes[0].startswith("the 2 test images have no labels: 20 % of the labelled ones")


def test_a_label_of_test_cases_alone_is_not_possible(tmp_path):
    """A case has its most frequent label, and its other labels must stay in train as well."""
    cases = {f"c{i}": (["cat", "cat", f"extra{i}"], "") for i in range(5)}
    data = cases_folder(tmp_path, cases)
    assert (len(data.train), len(data.test)) == (15, 0)
    assert data.notes[0] == (
        "each labelled case has a label that no other case has: no test can be drawn, and there is "
        "no probe"
    )


def class_folder(root, names, shape=(18, 17, 3)):
    for seed, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels(seed, shape)).save(path)


def test_folders_of_classes(tmp_path):
    names = [f"{label}/{i}.png" for label in ("cat", "dog") for i in range(5)]
    class_folder(tmp_path, [*names, "dog/deep/x.png", "outside.png", ".hidden/a.png"])
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    data = case_folder.load(tmp_path)
    assert data.class_names == ("cat", "dog")
    assert data.train.case_ids is None
    assert np.bincount(data.train.labels).tolist() == [4, 5]
    assert np.bincount(data.test.labels).tolist() == [1, 1]
    listed = [*names, "dog/deep/x.png"]  # In the order of their paths.
    for image, example_id in zip(data.train.images, data.train.example_ids, strict=True):
        assert np.array_equal(image, pixels(listed.index(listed[example_id])))
    assert data.notes[:3] == (
        "no metadata.csv: 11 images in 2 folders, one a class",
        "1 files are left out, because they are no images by their endings: 1 .txt",
        "1 images are left out: they are in no class folder",
    )
    assert case_folder.layout(tmp_path) is listing.Layout.CLASSES


def test_folders_of_splits_with_folders_of_classes(tmp_path):
    class_folder(
        tmp_path, ["train/cat/a.png", "train/dog/b.png", "test/dog/c.png", "val/cat/d.png"]
    )
    data = case_folder.load(tmp_path)
    assert (data.train.labels.tolist(), data.test.labels.tolist()) == ([0, 1], [1])
    assert data.validation.labels.tolist() == [0]
    assert len(data.notes) == 1
    class_folder(tmp_path, ["test/bird/e.png"])
    message = error_message(tmp_path)
    assert "test/bird/e.png: the class 'bird' has no images in" in message
    assert "move some of them there" in message


def test_names_of_split_folders_may_be_capitalized(tmp_path):
    class_folder(tmp_path, ["Train/cat/a.png", "Train/dog/b.png", "TEST/dog/c.png"])
    data = case_folder.load(tmp_path)
    assert data.class_names == ("cat", "dog")
    assert (data.train.labels.tolist(), data.test.labels.tolist()) == ([0, 1], [1])


@pytest.mark.parametrize("names", [["photos/a.png", "photos/b.png"], ["x/cat/a.png", "x/dog/b.png"],
                                   ["train/cat/a.png", "train/cat/b.png"],
                                   ["train/a.png", "train/b.png"]])  # fmt: skip
def test_one_folder_of_images_is_no_class(tmp_path, names):
    class_folder(tmp_path, names)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("A folder without images is no class either.")
    if names[0].startswith("train"):
        shutil.rmtree(tmp_path / "notes")
    data = case_folder.load(tmp_path)
    assert case_folder.layout(tmp_path) is listing.Layout.IMAGES
    assert data.class_names == ()
    assert data.train.labels.tolist() == [-1, -1]
    assert "2 images without labels, because" in data.notes[0]


def test_classes_below_another_folder_of_a_split_are_none(tmp_path):
    class_folder(tmp_path, ["train/images/cat/a.png", "train/images/dog/b.png"])
    assert case_folder.load(tmp_path).notes[0] == (
        f"no metadata.csv: 2 images without labels, because {tmp_path}/train does not have two "
        "folders of classes with images"
    )


def test_a_single_label_is_none(folder):
    write(folder, HEADER + GOOD.replace("dog", "cat"))
    data = case_folder.load(folder)
    assert data.class_names == ()
    assert data.train.labels.tolist() == [-1, -1, -1]
    note = "all labels of training images are cat: the encoder is trained, and nothing evaluates it"
    assert note in str(data.notes)


def test_a_folder_of_images_without_classes(tmp_path):
    class_folder(tmp_path, ["b.png", "a.png"])
    data = case_folder.load(tmp_path)
    assert case_folder.layout(tmp_path) is listing.Layout.IMAGES
    assert data.train.labels.tolist() == [-1, -1]
    assert np.array_equal(data.train.images, np.stack([pixels(1), pixels(0)]))


@pytest.mark.parametrize("names", [[], ["cat/x.txt"]])
def test_a_folder_without_images(tmp_path, names):
    for name in names:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("")
    assert "has no images: put them in a folder for each class" in error_message(tmp_path)


def test_a_broken_image_of_a_class_is_named(tmp_path):
    class_folder(tmp_path, ["cat/a.png", "cat/b.png"])
    (tmp_path / "cat" / "b.png").write_text("no image")
    message = error_message(tmp_path)
    assert message.startswith(f"{tmp_path}: cat/b.png: broken image")


def test_the_progress_bar_and_blocks_reach_every_image(folder, monkeypatch):
    monkeypatch.setattr(folder_images, "_BLOCK", 3)
    data = case_folder.load(folder)
    assert np.array_equal(data.train.images, np.stack([pixels(0), pixels(1), pixels(2)]))
    assert np.array_equal(data.test.images, pixels(3)[np.newaxis])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("missing.jpg,c9,cat,train\n", ["row 6", "missing.jpg", "no such file"]),
        ("../a.png,c9,cat,train\n", ["row 6", "../a.png", "inside the folder"]),
        ("x/../../a.png,c9,cat,train\n", ["row 6", "inside the folder"]),
        ("/etc/passwd,c9,cat,train\n", ["row 6", "inside the folder"]),
        (",c9,cat,train\n", ["row 6", "inside the folder"]),
        ("x\0/a.png,c9,cat,train\n", ["row 6", "inside the folder"]),
        ("./a.png,c1,cat,train\n", ["row 6", "a.png", "row 2"]),
        ("e.png,c1,cat,test\n", ["row 6", "c1", "test", "train in row 2"]),
        ("e.png,c9,bird,test\n", ["row 6", "'bird'", "train has cat, dog"]),
        ("e.png,c9,bird,validation\n", ["row 6", "bird", "label"]),
        ("e.png,c9,cat,new\n", ["row 6", "new", "split"]),
        ("e.png,,cat,train\n", ["row 6", "case_id"]),
        ("e.png,c9,cat\n", ["row 6", "3 fields", "4", "fields are missing"]),
        ("e.png,c9,cat,train,x\n", ["row 6", "5 fields", "4", "in quotes"]),
        ('e.png,c9,"cat,train\n', ["row 6", "CSV"]),
        ("broken.png,c9,cat,train\n", ["row 6", "broken.png", "broken image"]),
        ("cut.png,c9,cat,train\n", ["row 6", "cut.png", "broken image"]),
        ("text.png,c9,cat,train\n", ["row 6", "text.png", "broken image"]),
        ("float.tif,c9,cat,train\n", ["row 6", "float.tif", "save it with 8 or 16 bits"]),
        (
            "m1.png,c8,cat,train\nm2.png,c9,cat,train\ne.png,c7,cat,new\n",
            ["row 6", "m1.png", "(and 2 more bad rows: row 7 m2.png, row 8 e.png)"],
        ),
    ],
)
def test_errors_name_bad_rows(folder, rows, words):
    Image.fromarray(pixels(4)).save(folder / "e.png")
    whole = (folder / "e.png").read_bytes()
    (folder / "broken.png").write_bytes(whole[:20])
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "text.png").write_text("no image")
    Image.fromarray(np.zeros((18, 17), np.float32)).save(folder / "float.tif")
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
        ("file_name;case_id\na.png;c1\n", ["file_name", "commas"]),
        ("file_name,case_id,case_id\na.png,c1,c1\n", ["case_id", "twice"]),
        (HEADER + "a.png,c1,cat,test\n", ["label"]),
    ],
)
def test_bad_tables(folder, text, words):
    write(folder, text)
    message = error_message(folder)
    assert [word for word in [*words, "metadata.csv"] if word not in message] == [], message


def test_csv_that_is_not_text_or_not_there(folder):
    (folder / "metadata.csv").write_bytes(HEADER.encode() + b"\xff\xfe\x00.png,c1,cat,train\n")
    assert "UTF-8" in error_message(folder)
    assert "is not a folder" in error_message(folder / "missing")


def test_no_row_to_train_on(folder):
    write(folder, HEADER + "a.png,c1,,test\n")
    assert "give it to the cases to train on" in error_message(folder)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")
def test_ham10000():
    started = time.perf_counter()
    data = case_folder.load(SHARED / "ham10000", image_size=64)
    print(f"10,015 images: {time.perf_counter() - started:.1f} s")
    assert len(data.train) + len(data.test) == 10_015
    assert data.train.images.shape[1:] == (64, 64, 3)
    assert len(data.class_names) == 7
    cases = set(data.train.case_ids) | set(data.test.case_ids)
    assert len(cases) == 7470
    sizes = [len(indices) for indices in partitioners.per_case(data.train.case_ids)]
    assert (min(sizes), max(sizes)) == (1, 6)
