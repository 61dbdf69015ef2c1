"""Folders as other programs and systems leave them: what is read, left out, noted and refused."""

import os
import pathlib
import unicodedata

import numpy as np
import pytest
from PIL import Image

from datasets import case_folder, catalog, copies, image_file
from datasets.case_table import Row
from datasets.errors import DatasetError
from datasets.listing import Layout

HEADER = "file_name,case_id,label,split\n"


def pixels(seed, side=16):
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def write(root, *names, **options):
    """An image for each name, all of them different."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        seed = list(unicodedata.normalize("NFC", name).encode())
        Image.fromarray(pixels(seed, options.pop("side", 16))).save(path, **options)


def names_of(data):
    """The files of a data set in the order of its examples."""
    ids = np.concatenate([data.train.example_ids, data.test.example_ids])
    return [data.file_names[i] for i in ids]


def all_names(root, **choices):
    return [row.file_name for row in case_folder.check(root, **choices).rows]


def error_message(root, **choices):
    with pytest.raises(DatasetError) as caught:
        case_folder.load(root, **choices)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def classes(tmp_path):
    """A folder of two classes, beside a folder `store` of others."""
    root = tmp_path / "data"
    write(root, *(f"{label}/{i}.png" for label in ("cat", "dog") for i in range(2)))
    write(tmp_path / "store", "bird/0.png", "bird/1.png", "loose.png")
    return root


CLASSES = ["cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png"]


def test_links_are_left_out_and_named(classes):
    store = classes.parent / "store"
    (classes / "bird").symlink_to(store / "bird")
    (classes / "cat" / "out.png").symlink_to(store / "loose.png")
    (classes / "cat" / "within.png").symlink_to(classes / "dog" / "0.png")
    (classes / "dog" / "nowhere.png").symlink_to(store / "gone.png")
    (classes / "dog" / "circle").symlink_to("circle")
    (classes / "again").symlink_to(classes / "dog")
    # A link to a file inside the folder is that file.
    listed = case_folder.check(classes)
    assert [row.file_name for row in listed.rows] == [*CLASSES[:2], "cat/within.png", *CLASSES[2:]]
    (note,) = [note for note in listed.notes if "link" in note]
    assert note.startswith("links left out: 5 (--follow_links also reads links to folders")
    assert note.endswith("again, bird, cat/out.png and 2 more")


def test_links_are_followed_once(classes):
    store = classes.parent / "store"
    (classes / "bird").symlink_to(store / "bird")
    (classes / "cat" / "out.png").symlink_to(store / "loose.png")
    (classes / "again").symlink_to(classes / "dog")  # It is inside.
    (classes / "bird_again").symlink_to(store / "bird")  # It is read already.
    (classes / "dog" / "up").symlink_to(classes.parent)  # It goes round.
    (store / "bird" / "up").symlink_to(store)  # As well, but once.
    listed = case_folder.check(classes, follow_links=True)
    expected = ["bird/0.png", "bird/1.png", "bird/up/loose.png", "cat/0.png", "cat/1.png"]
    assert [row.file_name for row in listed.rows] == [*expected, "cat/out.png", *CLASSES[2:]]
    (note,) = [note for note in listed.notes if "link" in note]
    assert note.startswith("links left out: 4 (they lead to folders that are read already")
    assert case_folder.load(classes, follow_links=True).class_names == ("bird", "cat", "dog")
    assert catalog.layout("case_folder", classes, follow_links=True) is Layout.CLASSES


def test_links_to_hidden_folders_inside(classes):
    """As tools that keep versions of data have them."""
    write(classes, ".cache/bird/0.png", ".cache/fish/0.png")
    (classes / "bird").symlink_to(classes / ".cache" / "bird")
    (classes / "fish").mkdir()
    (classes / "fish" / "0.png").symlink_to(classes / ".cache" / "fish" / "0.png")
    assert all_names(classes) == [*CLASSES, "fish/0.png"]
    assert all_names(classes, follow_links=True) == ["bird/0.png", *CLASSES, "fish/0.png"]


def test_nothing_but_links(classes):
    root = classes.parent / "links"
    root.mkdir()
    for name in ("cat", "dog"):
        (root / name).symlink_to(classes / name)
    message = error_message(root)
    assert "has no images" in message
    assert "links left out: 2 (--follow_links also reads" in message
    assert all_names(root, follow_links=True) == CLASSES
    # The folder itself may be a link.
    (root.parent / "to_data").symlink_to(classes)
    assert all_names(root.parent / "to_data") == CLASSES


def test_a_split_that_is_a_link(classes):
    for name in ("cat", "dog"):
        write(classes.parent, f"store/train/{name}/0.png")
        write(classes.parent, f"splits/test/{name}/1.png")
    root = classes.parent / "splits"
    (root / "train").symlink_to(classes.parent / "store" / "train")
    message = error_message(root)
    assert "has test/, but no folder train/" in message
    assert "links left out: 1 (--follow_links also reads links to folders" in message
    data = case_folder.load(root, follow_links=True)
    assert (len(data.train), len(data.test), data.class_names) == (2, 2, ("cat", "dog"))


def test_links_of_a_table(classes):
    store = classes.parent / "store"
    (classes / "out.png").symlink_to(store / "loose.png")
    (classes / "bird").symlink_to(store / "bird")
    rows = "cat/0.png,a,x,\nout.png,b,x,\nbird/0.png,c,x,\ndog/0.png,d,y,\n"
    (classes / "metadata.csv").write_text(HEADER + rows)
    message = error_message(classes, skip_broken=True)  # It is not broken.
    assert "row 3: out.png: it is a link" in message
    assert "--follow_links reads it" in message
    assert "1 more bad row: row 4 bird/0.png" in message
    listed = ["cat/0.png", "out.png", "bird/0.png", "dog/0.png"]
    assert all_names(classes, follow_links=True) == listed


def test_runs_and_folders_of_other_programs_are_no_classes(classes):
    write(classes, "run1/curves.png", "run1/tensorboard/projector/images.png", "report/bars.png")
    (classes / "run1" / "encoder").mkdir()
    (classes / "run1" / "config.json").write_text("{}")
    write(classes, "report/partition.png")
    (classes / "report" / "partition.json").write_text("{}")
    others = (
        "@eaDir", "cat/@eaDir/0.png", ".thumbnails", "Thumbs", "$RECYCLE.BIN", "#recycle",
        "System Volume Information", "lost+found", "__MACOSX", "dog/#snapshot", ".git",
    )  # fmt: skip
    write(classes, *(f"{name}/thumb.jpg" for name in others))
    os.mkfifo(classes / "cat" / "pipe.png")
    listed = case_folder.check(classes)
    assert [row.file_name for row in listed.rows] == CLASSES
    assert "folders of runs left out: 2 (their pictures are no data): report, run1" in listed.notes
    (note,) = [note for note in listed.notes if "other programs" in note]
    assert note.startswith("files and folders of other programs left out: 9")
    assert "is the folder of a run: name the folder of the images" in error_message(
        classes / "run1"
    )


@pytest.fixture
def no_heif(monkeypatch):
    """As if the extra `heif` is not installed."""
    monkeypatch.setattr(image_file, "_reads_heif", lambda: False)


def test_a_class_may_begin_with_underscores(classes):
    write(classes, "__unknown__/0.png", "__unknown__/1.png", "__pycache__/0.png")
    assert case_folder.load(classes).class_names == ("__unknown__", "cat", "dog")


def test_images_by_other_endings_and_by_content(classes, no_heif):
    for name in ("cat/a.jfif", "cat/b.jpe", "cat/ISIC_1", "cat/c.JPG"):
        write(classes, name, format="JPEG")
    write(classes, "dog/ISIC_2", format="WEBP")
    for name in ("dog/README", "dog/d.HEIC", "dog/e.heic", "dog/f.jp2", "dog/g.txt"):
        (classes / name).write_text("no image that is read")
    listed = case_folder.check(classes)
    more = ["cat/ISIC_1", "cat/a.jfif", "cat/b.jpe", "cat/c.JPG"]
    found = [row.file_name for row in listed.rows]
    assert found == [*CLASSES[:2], *more, *CLASSES[2:], "dog/ISIC_2"]
    assert (
        "5 files are left out, because they are no images by their endings: 2 .heic, 1 without, "
        "1 .jp2, 1 .txt (convert HEIC and JPEG 2000 to JPEG or PNG, or add the extra `heif` for "
        "HEIC)"
    ) in listed.notes


def test_images_of_other_kinds_with_the_ending_of_jpeg(classes, no_heif):
    (classes / "cat" / "a.jpg").write_bytes(b"\0\0\0\x18ftypheic" + bytes(100))
    message = error_message(classes)
    assert "cat/a.jpg: an image of the kind HEIC, which is not read: convert HEIC to" in message
    write(classes, "cat/a.jpg", format="JPEG2000")
    assert "cat/a.jpg: an image of the kind JPEG 2000, which is" in error_message(classes)


def test_heic_is_read_with_the_extra(classes):
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    image = np.full((16, 16, 3), 77, np.uint8)
    Image.fromarray(image).save(classes / "cat" / "a.HEIC", format="HEIF")
    (classes / "cat" / "a.HEIC").rename(classes / "cat" / "a.HIF")
    Image.fromarray(image).save(classes / "dog" / "b.jpg", format="HEIF")
    data = case_folder.load(classes)
    images = dict(zip(names_of(data), [*data.train.images, *data.test.images], strict=True))
    for name in ("cat/a.HIF", "dog/b.jpg"):
        assert np.abs(images[name].astype(int) - 77).max() < 3
    (classes / "dog" / "b.jpg").write_bytes(b"\0\0\0\x18ftypheic" + bytes(100))
    assert "dog/b.jpg: broken image" in error_message(classes)


def test_the_first_of_several_pages_is_used(classes):
    first, second = (Image.fromarray(pixels(seed)) for seed in (1, 2))
    for name in ("cat/a.tif", "dog/b.png", "dog/c.webp"):
        first.save(classes / name, save_all=True, append_images=[second], lossless=True)
    data = case_folder.load(classes)
    assert "3 files have several pages or frames: only the first one is used" in data.notes
    pictures = np.concatenate([data.train.images, data.test.images])
    images = dict(zip(names_of(data), pictures, strict=True))
    for name in ("cat/a.tif", "dog/b.png", "dog/c.webp"):
        assert np.array_equal(images[name], pixels(1)), name


def spoil(root):
    """Breaks five images, in headers and in pixels; returns their names."""
    for number, name in enumerate(
        ["cat/a.jpg", "cat/b.jpg", "dog/c.jpg", "dog/d.jpg", "dog/e.png"]
    ):
        write(root, name, side=99)
        whole = (root / name).read_bytes()
        cut = [
            b"",
            b"<html>404 Not Found</html>",
            whole[: len(whole) // 3],
            whole[:-9],
            whole[:700],
        ]
        (root / name).write_bytes(cut[number])
    return ["cat/a.jpg", "cat/b.jpg", "dog/c.jpg", "dog/d.jpg", "dog/e.png"]


def test_truncated_animations_are_broken(classes):
    first, second = (Image.fromarray(pixels(seed, 24)).quantize() for seed in (1, 2))
    path = classes / "cat" / "moving.gif"
    first.save(path, save_all=True, append_images=[second])
    whole = path.read_bytes()
    # Cut in the header of the second frame, where Pillow raises an IndexError.
    path.write_bytes(whole[: whole.rindex(b",\0\0\0\0\x18\0\x18\0") + 40])
    assert "cat/moving.gif: broken image (" in error_message(classes)
    assert sorted(names_of(case_folder.load(classes, skip_broken=True))) == CLASSES


def test_all_broken_images_are_named_at_once(classes):
    first, *others = spoil(classes)
    message = error_message(classes)
    assert message.startswith(f"{classes}: {first}: broken image: the file is empty")
    assert f"(and 4 more bad images: {', '.join(others)}); --skip_broken leaves" in message
    for name in (first, others[0]):  # Then no header is broken.
        (classes / name).unlink()
    message = error_message(classes)
    assert f"{classes}: dog/c.jpg: broken image (" in message
    assert "(and 2 more bad images: dog/d.jpg, dog/e.png); --skip_broken" in message


def test_of_many_broken_images_twenty_are_named(classes):
    for number in range(30):
        (classes / "cat" / f"x{number:02}.png").touch()
    message = error_message(classes)
    assert "(and 29 more bad images: cat/x01.png, " in message
    assert "cat/x20.png and 9 more); --skip_broken" in message


def test_broken_images_are_skipped_on_request(classes):
    spoiled = spoil(classes)
    data = case_folder.load(classes, skip_broken=True)
    assert sorted(names_of(data)) == CLASSES
    note = f"5 missing or broken images are left out: {', '.join(spoiled)}"
    assert note in data.notes
    lines = [f"{name},c{i},{'xy'[i % 2]},\n" for i, name in enumerate([*CLASSES, "gone.png"])]
    (classes / "metadata.csv").write_text(HEADER + "".join(lines))
    data = case_folder.load(classes, skip_broken=True)
    assert "1 missing or broken images are left out: row 6 gone.png" in data.notes
    for name in CLASSES:
        (classes / name).unlink()
    assert "all of its 5 images are missing or broken" in error_message(classes, skip_broken=True)


def test_choices_are_refused_where_they_do_nothing(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros((4, 16, 16), np.uint8))
    for choice in ("follow_links", "skip_broken"):
        with pytest.raises(DatasetError, match=f"--{choice} is for --dataset=case_folder"):
            catalog.load("npz", tmp_path / "a.npz", **{choice: True})


def test_copies_are_reported(classes):
    (classes / "train").mkdir()
    for name in ("cat", "dog"):
        (classes / name).rename(classes / "train" / name)
    for source, copy in (("cat/0", "train/cat/copy"), ("dog/1", "train/cat/dog"),
                         ("dog/0", "test/dog/dog")):  # fmt: skip
        path = classes / f"{copy}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((classes / "train" / f"{source}.png").read_bytes())
    notes = " | ".join(case_folder.load(classes).notes)
    assert "3 images are copies of others, such as " in notes
    assert (
        "1 images of the test or validation split are also in another split, which makes results "
        "too good: remove such copies as train/dog/0.png of test/dog/dog.png"
    ) in notes
    assert "1 images have copies with other labels, such as train/dog/1.png of train/cat/" in notes


def test_copies_are_files_of_the_same_content(tmp_path):
    contents = [b"a" * 9000, b"b" + b"a" * 8999, b"a" * 9000, b"c", b"c", b"d", b""]
    paths = {}
    for number, content in enumerate(contents):
        path = tmp_path / str(number)
        path.write_bytes(content)
        paths[Row(number, path.name, "", "", "")] = path
    assert sorted(copies.find(paths)) == [[0, 2], [3, 4]]


def test_a_drawn_test_with_copies_of_training_images(tmp_path):
    for label in ("cat", "dog"):
        write(tmp_path, f"{label}/0.png")
        for i in range(1, 6):
            path = tmp_path / label / f"{i}.png"
            path.write_bytes((tmp_path / label / "0.png").read_bytes())
    notes = " | ".join(case_folder.load(tmp_path).notes)
    assert "10 images are copies of others" in notes
    assert "2 images of the test or validation split are also in another split" in notes


def test_images_that_show_nothing(classes):
    for name in CLASSES:
        Image.new("RGB", (16, 16)).save(classes / name)
    assert "warning: all 4 images are equal, so nothing can" in case_folder.load(classes).notes[-1]
    write(classes, "cat/0.png", "dog/0.png")
    Image.new("RGB", (16, 16), (1, 2, 3)).save(classes / "dog" / "1.png")
    note = case_folder.load(classes).notes[-1]
    assert note.startswith("warning: 2 images have the same colour everywhere, such as ")
    write(classes, "cat/1.png", "dog/1.png")
    assert "warning" not in " ".join(case_folder.load(classes).notes)


@pytest.fixture
def table(tmp_path):
    """(Rows, header, name) -> a folder with a table, and with images/0.png to images/7.png."""
    write(tmp_path, *(f"images/{i}.png" for i in range(8)))

    def write_table(rows, header=HEADER, name="metadata.csv"):
        (tmp_path / name).write_text(header + "".join(f"{row}\n" for row in rows))
        return tmp_path

    return write_table


def rows(labels="abababab", name="images/{}.png"):
    return [
        f"{name.format(i)},c{i},{label},{'test' if i > 5 else 'train'}"
        for i, label in enumerate(labels)
    ]


def test_columns_and_rows_that_spreadsheets_leave_empty(table):
    header = "file_name,case_id,label,split,,\n"
    data = case_folder.load(table([*(f"{row},," for row in rows()), ",,,,,", ",,"], header))
    assert (len(data.train), len(data.test), data.notes) == (6, 2, ())
    data = case_folder.load(table([f"{row},," for row in rows()]))
    assert (len(data.train), len(data.test)) == (6, 2)
    assert "7 fields, but the header has 4" in error_message(table([f"{r},,,x" for r in rows()]))
    message = error_message(table([], "file_name,case_id,,label\n"))
    assert "row 1: column 3 has no name: name it or remove it" in message


def test_names_of_columns(table):
    """Capital letters do not matter, and if a column is missing, the others are named."""
    data = case_folder.load(table(rows(), "File_Name,CASE_ID,Label,Split\n"))
    assert (len(data.train), len(data.test), data.class_names) == (6, 2, ("a", "b"))
    notes = case_folder.load(table(rows(), "file_name,case_id,diagnosis,set\n")).notes
    assert notes[0] == (
        "metadata.csv has no column label and no column split; these columns are not read: "
        "diagnosis, set"
    )


def test_folders_of_splits_beside_a_table_without_splits(tmp_path):
    names = ["train/0.png", "train/1.png", "test/2.png", "test/3.png"]
    write(tmp_path, *names)
    lines = [f"{name},c{i},{'ab'[i % 2]}\n" for i, name in enumerate(names)]
    (tmp_path / "metadata.csv").write_text("file_name,case_id,label\n" + "".join(lines))
    message = error_message(tmp_path)
    assert "its images are in folders of splits, test/ and train/, and no row has a" in message


def test_folders_of_splits_are_seen_behind_a_dot(table):
    write(table([]), "train/0.png", "test/1.png")
    message = error_message(
        table(["./train/0.png,c0,a", "x/../test/1.png,c1,b"], "file_name,case_id,label\n")
    )
    assert "its images are in folders of splits, test/ and train/, and no row has a" in message


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"{'a' * 300}.png", f"row 10: {'a' * 300}.png: no such file: correct its name"),
        ("images/0.png/b.png", "row 10: images/0.png/b.png: no such file: correct its name"),
        (".", "row 10: .: no regular file: name a file of an image"),
        ("images/..", "row 10: images/..: no regular file: name a file of an image"),
    ],
    ids=["too long", "below a file", "the folder", "the folder again"],
)
def test_names_of_no_file(table, name, words):
    folder = table([*rows(), f"{name},c9,a,train"])
    assert words in error_message(folder)
    notes = case_folder.load(folder, skip_broken=True).notes
    assert f"1 missing or broken images are left out: row 10 {name}" in notes


def test_images_without_a_row_are_counted(table):
    data = case_folder.load(table(rows("ababab")))
    assert "2 images have no row in metadata.csv, and are left out: images/6.png, images/7.png" in (
        data.notes
    )


@pytest.mark.parametrize(("of_file", "of_table"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_forms_of_unicode(table, of_file, of_table):
    folder = table([])
    write(folder, f"{unicodedata.normalize(of_file, 'Fälle')}/ü.png")
    name = unicodedata.normalize(of_table, "Fälle/ü.png")
    label = [unicodedata.normalize(form, "Käfer") for form in ("NFC", "NFD")]
    more = [f"{name},c8,{label[0]},train", f"images/0.png,c0,{label[1]},test", *rows()[1:]]
    data = case_folder.load(table(more))
    assert data.class_names == ("Käfer", "a", "b")
    assert np.array_equal(data.train.images[0], pixels(list("Fälle/ü.png".encode())))
    assert "no row" not in " ".join(data.notes)


def test_forms_of_unicode_in_names_of_classes(tmp_path):
    for form, split in (("NFC", "train"), ("NFD", "test")):
        write(tmp_path, f"{split}/{unicodedata.normalize(form, 'Käfer')}/{form}.png")
        write(tmp_path, f"{split}/cat/{form}.png")
    assert case_folder.load(tmp_path).class_names == ("Käfer", "cat")


def test_backslashes(table):
    message = error_message(table(rows(name="images\\{}.png")))
    assert "row 2: images\\0.png: no such file: write / instead of \\ between folders" in message


def test_names_in_other_letters(table):
    message = error_message(table(rows(name="Images/{}.PNG")))
    assert "row 2: Images/0.PNG: no such file: its name in the folder is images/0.png" in message


def test_folders_of_images_without_a_label(tmp_path):
    write(tmp_path, *(f"{label}/{i}.png" for label in ("cat", "dog", "-1", "none") for i in "ab"))
    data = case_folder.load(tmp_path)
    assert data.class_names == ("cat", "dog", "none")
    assert [n for n in names_of(data) if n.startswith("-1")] == ["-1/a.png", "-1/b.png"]
    notes = " | ".join(data.notes)
    assert "2 images have the label -1, which is read as no label" in notes
    assert "none is a class of 2 images: leave the label empty" in notes


def test_the_name_of_the_table_in_other_letters(table):
    folder = table(rows(), name="Metadata.CSV")
    assert case_folder.layout(folder) is Layout.CASES
    assert case_folder.load(folder).train.case_ids.tolist() == [f"c{i}" for i in range(6)]
    table(["images/gone.png,c0,a,train"], name="Metadata.CSV")
    assert f"{folder / 'Metadata.CSV'} row 2: images/gone.png" in error_message(folder)
    table(rows("cdcdcdcd"))  # The right name counts.
    assert case_folder.load(folder).class_names == ("c", "d")


def test_a_table_in_a_folder_below_is_named(tmp_path):
    write(tmp_path, "train/0.png", "train/1.png")
    (tmp_path / "train" / "metadata.csv").write_text("file_name,label\n0.png,a\n")
    notes = case_folder.load(tmp_path).notes
    assert f"train/metadata.csv is not read: a table of all images lies in {tmp_path} itself" in (
        " | ".join(notes)
    )


@pytest.mark.parametrize(
    ("labels", "names", "note"),
    [
        (["-1", "-1", "a", "b"], ("a", "b"), "4 images have the label -1, which is read as no"),
        (["nan", "NaN", "a", "b"], ("a", "b"), "4 images have the label NaN or nan, which is"),
        (["-1", "1"], ("-1", "1"), "-1 is a class of 4 images: leave the label empty if it means"),
        (["None", "a"], ("None", "a"), "None is a class of 4 images: leave the label empty if"),
        (["Nevus", "nevus"], ("Nevus", "nevus"), "the labels Nevus and nevus are different"),
    ],
)
def test_labels_that_may_mean_none_or_the_same(table, labels, names, note):
    data = case_folder.load(table(rows([*labels * 4][:8])))
    assert data.class_names == names
    assert any(found.startswith(note) for found in data.notes), data.notes
    known = [label if label in names else "" for label in [*labels * 4][:8]]
    found = [data.class_names[i] if i >= 0 else "" for i in data.train.labels]
    assert found == known[:6]


def test_pipes_and_folders_are_no_images(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    for path in (tmp_path / "a.png", pathlib.Path("/dev/null"), tmp_path):
        with pytest.raises(DatasetError, match="no regular file"):
            image_file.open_image(path)


def test_a_class_whose_name_is_not_utf_8_is_escaped(tmp_path):
    for name in (b"K\xe4fer", b"cat"):
        folder = os.path.join(os.fsencode(tmp_path), name)
        os.mkdir(folder)
        for i in range(3):
            Image.new("RGB", (16, 16), (i, 0, len(name))).save(
                os.path.join(os.fsdecode(folder), f"{i}.png")
            )
    found = case_folder.load(tmp_path)
    assert found.class_names == (r"K\xe4fer", "cat")
    assert len(found.train) + len(found.test) == 6
