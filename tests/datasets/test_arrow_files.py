"""Parquet and `save_to_disk`: files that Hugging Face wrote, files of others, and mistakes."""

import io
import json
import pathlib
import shutil

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from datasets import catalog
from datasets.errors import DatasetError
from datasets.listing import Layout

WRITTEN = pathlib.Path(__file__).parent / "huggingface"
FOLDERS = {"hf_disk": WRITTEN / "saved", "parquet": WRITTEN / "parquet"}


def png(value, size=(18, 18)):
    buffer = io.BytesIO()
    Image.fromarray(np.full((*size, 3), value, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def write(path, images, **columns):
    parquet.write_table(pa.table({"img": images, **columns}), path, row_group_size=2)
    return path


def error_message(name, path):
    with pytest.raises(DatasetError) as caught:
        catalog.load(name, path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", FOLDERS)
def test_what_hugging_face_writes(name):
    data = catalog.load(name, FOLDERS[name])
    assert data.name == name
    for split, count, first in ((data.train, 6, 0), (data.test, 3, 5)):
        assert split.images.shape == (count, 18, 18, 3)
        for i, image in enumerate(split.images):
            assert (image == 20 * i + first).all()
        assert split.labels.tolist() == [0, 1, 0, 1, 0, 1][:count]
        assert split.case_ids.tolist() == [f"w{i // 2}" for i in range(count)]
    assert data.class_names == ("zebra", "ant")
    assert data.notes[0] == "images are in the column image, labels in label, clients in writer_id"
    assert catalog.layout(name, FOLDERS[name]) is Layout.CASES


@pytest.mark.parametrize(
    "metadata",
    [
        "{",
        "[]",
        '{"info": 3}',
        9999 * "[",
        '{"info": {"features": {"label": {"names": 3, "_type": "ClassLabel"}}}}',
    ],
    ids=range(5),
)
def test_metadata_that_hugging_face_did_not_write(tmp_path, metadata):
    table = pa.table({"image": [png(0)] * 4, "label": [0, 1, 0, 1]})
    path = tmp_path / "a.parquet"
    parquet.write_table(table.replace_schema_metadata({"huggingface": metadata}), path)
    assert "its metadata, huggingface, cannot be read" in error_message("parquet", path)
    parquet.write_table(table.replace_schema_metadata({"huggingface": '{"info": null}'}), path)
    assert catalog.load("parquet", path).class_names == ("0", "1")


def test_fields_and_lists_may_be_called_names(tmp_path):
    """Only columns of the type `ClassLabel` have names of classes."""
    text = {"dtype": "string", "_type": "Value"}
    classes = {"names": ["x", "y"], "_type": "ClassLabel"}
    features = {
        "objects": {"names": text}, "lists": [{"names": text}],
        "several": {"feature": classes, "_type": "Sequence"}, "kind": classes,
    }  # fmt: skip
    columns = {"objects": [{"names": "a"}] * 4, "lists": [[{"names": "a"}]] * 4,
               "several": [[1]] * 4, "kind": [1, 1, 0, 0]}  # fmt: skip
    table = pa.table({"image": [png(0)] * 4, **columns})
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    parquet.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    data = catalog.load("parquet", tmp_path)
    assert data.notes[0] == "images are in the column image, labels in kind"
    assert data.class_names == ("x", "y")


def test_hidden_files_and_folders_are_no_tables(tmp_path):
    """Spark writes a folder of parts, and others write hidden files beside the tables."""
    for name in ("train.parquet", "test.parquet", ".cache", "train.parquet/_temporary.parquet"):
        (tmp_path / name).mkdir()
    (tmp_path / ".cache" / "train.parquet").write_bytes(b"no table")
    (tmp_path / "train.parquet" / "._part-0.parquet").write_bytes(b"no table")
    for name, value in (
        ("train.parquet/part-0", 1),
        ("train.parquet/part-1", 3),
        ("test.parquet/part-0", 5),
    ):
        write(tmp_path / f"{name}.parquet", [png(value), png(value + 1)], label=[0, 1])
    data = catalog.load("parquet", tmp_path)
    assert data.train.images[:, 0, 0, 0].tolist() == [1, 2, 3, 4]
    assert data.test.images[:, 0, 0, 0].tolist() == [5, 6]


def test_negative_labels(tmp_path):
    """They are unknown if there are two others, and classes if not."""
    path = write(tmp_path / "a.parquet", [png(i) for i in range(8)], label=[-1, 1] * 4)
    data = catalog.load("parquet", path)
    assert data.class_names == ("-1", "1")
    assert data.notes[1].startswith("-1 is a class of 4 images")
    write(path, [png(i) for i in range(8)], label=[-1, 1, -2, 3] * 2)
    data = catalog.load("parquet", path)
    assert data.class_names == ("1", "3")
    assert data.notes[1].startswith("4 images have the label -1 or -2, which is read as no label")


def test_a_saved_data_set_without_splits(tmp_path):
    (tmp_path / "dataset_dict.json").write_text('{"splits": []}')
    assert "lists no files of images" in error_message("hf_disk", tmp_path)


def test_other_tables_without_splits(tmp_path):
    """Columns are found by their types, and a test split is drawn."""
    values = [10 * i for i in range(20)]
    path = write(
        tmp_path / "photos.parquet", [png(v) for v in values], label=[v % 3 for v in values]
    )
    data = catalog.load("parquet", path)
    assert catalog.layout("parquet", path) is Layout.CLASSES
    for split in (data.train, data.test):
        assert split.images[:, 0, 0, 0].tolist() == [10 * i for i in split.example_ids]
        assert [data.class_names[k] for k in split.labels] == [
            str(10 * i % 3) for i in split.example_ids
        ]
    assert len(data.test) == 3
    assert data.file_names[3] == "photos.parquet row 3"
    write(path, [png(v) for v in values])
    assert catalog.layout("parquet", path) is Layout.IMAGES
    assert catalog.load("parquet", path).class_names == ()


def test_labels_are_sorted_by_value_and_unseen_ones_are_not_scored(tmp_path):
    write(tmp_path / "train.parquet", [png(0)] * 3, label=[10, 9, None])
    write(tmp_path / "validation-0.parquet", [png(1)] * 3, label=[9, 11, -1])
    write(tmp_path / "extra-0.parquet", [png(2)], label=[9])
    data = catalog.load("parquet", tmp_path)
    assert data.class_names == ("9", "10")
    assert data.train.labels.tolist() == [1, 0, -1]
    assert data.test.labels.tolist() == [0, -1, -1]
    text = " ".join(data.notes)
    assert "such as extra-0.parquet" in text
    assert "the validation split is the test split" in text
    assert "1 images are not scored, because no training image has their label: 11" in text


@pytest.mark.parametrize(
    ("train", "validation", "test"),
    [("training.parquet", "valid-0.parquet", "testing.parquet"),
     ("data/Train/0.parquet", "data/dev/0.parquet", "data/eval/0.parquet")],
)  # fmt: skip
def test_words_for_splits(tmp_path, train, validation, test):
    for value, name in enumerate((train, validation, test)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / name, [png(10 * value + i) for i in range(2)], label=[0, 1])
    data = catalog.load("parquet", tmp_path)
    for value, split in enumerate((data.train, data.validation, data.test)):
        assert split.images[:, 0, 0, 0].tolist() == [10 * value, 10 * value + 1]
    write(tmp_path / "trainval.parquet", [png(0)], label=[0])
    assert "trainval.parquet is named after several splits" in error_message("parquet", tmp_path)


def test_broken_images_are_skipped_on_request(tmp_path):
    path = write(tmp_path / "a.parquet", [png(5), b"broken", None, png(7), png(5)[:60]])
    data = catalog.load("parquet", path, skip_broken=True)
    assert data.train.images[:, 0, 0, 0].tolist() == [5, 7]
    note = "3 missing or broken images are left out: a.parquet row 1, a.parquet row 2, a.parquet"
    assert any(found.startswith(note) for found in data.notes)


@pytest.mark.parametrize(
    ("images", "columns", "words"),
    [
        (["a", "b"], {"label": [0, 1]}, "no column of images"),
        (["a", "b"], {"label": [0, 1]}, "img (string), label (int64)"),
        ([png(0), None], {}, "a.parquet row 1: no image in the column img"),
        ([png(0), b"broken"], {}, "a.parquet row 1: broken image"),
        ([png(0), png(1)], {"label": [0.5, 1.5]}, "row 0: label is 0.5"),
    ],
)
def test_mistakes_name_the_file_and_the_row(tmp_path, images, columns, words):
    write(tmp_path / "a.parquet", images, **columns)
    assert words in error_message("parquet", tmp_path)


def test_missing_and_broken_files(tmp_path):
    assert "--data_dir is needed for --dataset=parquet" in error_message("parquet", None)
    assert "no files .parquet" in error_message("parquet", tmp_path)
    assert "is not a folder that save_to_disk wrote" in error_message("hf_disk", tmp_path)
    assert catalog.layout("parquet", tmp_path) is Layout.CASES
    (tmp_path / "a.parquet").write_bytes(b"no table")
    assert "a.parquet cannot be read" in error_message("parquet", tmp_path)
    write(tmp_path / "a.parquet", [png(0)], label=[0])
    write(tmp_path / "b.parquet", [png(0)], classes=[0])
    assert "b.parquet has other columns or classes than" in error_message("parquet", tmp_path)
    saved = tmp_path / "saved"
    shutil.copytree(FOLDERS["hf_disk"], saved)
    file = saved / "train/data-00000-of-00001.arrow"
    file.write_bytes(file.read_bytes()[:1000])
    assert "data-00000-of-00001.arrow cannot be read" in error_message("hf_disk", saved)
    (saved / "train/state.json").write_text(json.dumps({"_data_files": [{}]}))
    assert "is not a folder that save_to_disk wrote" in error_message("hf_disk", saved)
