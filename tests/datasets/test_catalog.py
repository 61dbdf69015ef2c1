"""Loaders: digits, prepared TFDS sets, and the errors for missing data."""

import json
import pathlib
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest
import sklearn.datasets

from datasets import catalog
from datasets.errors import DatasetError
from datasets.image_dataset import Split, hold_out, resize

SHARED = pathlib.Path(__file__).parents[3] / "shared" / "data"


def assert_ids_are_disjoint(data):
    parts = [data.train, data.test] + ([data.validation] if data.validation else [])
    ids = np.concatenate([part.example_ids for part in parts])
    assert len(np.unique(ids)) == len(ids)


def test_digits_are_scikit_learns():
    data = catalog.load("digits")
    source = sklearn.datasets.load_digits()
    assert data.train.images.shape == (1438, 8, 8, 1)
    assert data.class_names == tuple("0123456789")
    assert_ids_are_disjoint(data)
    for part in (data.train, data.test):
        assert np.array_equal(part.labels, source.target[part.example_ids])
        expected = source.images[part.example_ids, ..., np.newaxis] * 255 / 16
        assert np.abs(part.images - expected).max() <= 0.5
        # The split is stratified: it holds a fifth of each class, rounded.
        share = np.bincount(part.labels) / np.bincount(source.target)
        np.testing.assert_allclose(share, len(part) / 1797, atol=0.005)
    again = catalog.load("digits")
    assert np.array_equal(data.test.example_ids, again.test.example_ids)


def test_digits_resized():
    data = catalog.load("digits", image_size=16)
    assert data.train.images.shape == (1438, 16, 16, 1)
    small = catalog.load("digits").train.images.mean()
    assert abs(data.train.images.mean() - small) < 2


def test_resize_is_bilinear():
    ramp = np.array([[0, 100], [0, 100]], np.uint8)[..., np.newaxis]
    # The result has pixel centres at 0.25, 0.75, 1.25, 1.75; the two pixels are at 0.5 and 1.5.
    assert resize(ramp, 4)[0, :, 0].tolist() == [0, 25, 75, 100]
    assert resize(np.repeat(ramp, 3, axis=2), 1).tolist() == [[[50, 50, 50]]]


def test_hold_out_keeps_order_and_everything():
    labels = np.array([0, 1] * 10 + [-1] * 5, np.int32)
    split = Split(np.zeros((25, 1, 1, 1), np.uint8), labels, np.arange(25))
    rest, held = hold_out(split, 0.2, seed=3)
    assert np.bincount(held.labels + 1).tolist() == [1, 2, 2]
    assert sorted([*rest.example_ids, *held.example_ids]) == list(range(25))
    assert np.all(np.diff(rest.example_ids) > 0)


def test_split_refuses_other_shapes_and_types():
    images, ids = np.zeros((2, 3, 3, 1), np.uint8), np.arange(2)
    with pytest.raises(DatasetError, match="uint8"):
        Split(images / 255, np.zeros(2, np.int32), ids)
    with pytest.raises(DatasetError, match="labels"):
        Split(images, np.zeros(3, np.int32), ids)


def test_names_import_nothing_heavy():
    program = (
        "import sys; from datasets import catalog; print(*catalog.names());"
        "heavy = {'tensorflow', 'tensorflow_datasets', 'sklearn', 'tensorflow_federated'};"
        "imported = heavy & set(sys.modules); sys.exit(str(imported) if imported else 0)"
    )
    root = pathlib.Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [
        "digits", "cifar10", "cifar100", "case_folder", "npz", "parquet", "hf_disk", "leaf",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nosuch",), ["dataset", "digits", "case_folder"]),
        (("cifar11",), ["dataset", "cifar10"]),
        (("../cifar10",), ["dataset"]),
        (("cifar10", "/nonexistent/folder"), ["data_dir", "/nonexistent/folder"]),
        (("case_folder", "/nonexistent/folder"), ["data_dir", "/nonexistent/folder"]),
        (("case_folder",), ["data_dir"]),
        (("digits", None, 0), ["image_size"]),
    ],
)
def test_errors_are_one_line_that_names_the_flag(arguments, words):
    with pytest.raises(DatasetError) as caught:
        catalog.load(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words)


def test_missing_set_is_neither_downloaded_nor_made(tmp_path, monkeypatch):
    with pytest.raises(DatasetError, match=r"data_dir.*--data_dir"):
        catalog.load("cifar10", tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "default"))
    with pytest.raises(DatasetError, match=r"pass --data_dir.*tensorflow_datasets.*build cifar10"):
        catalog.load("cifar10")
    assert list(tmp_path.iterdir()) == []


def write_prepared(root, name, splits, shape=(6, 5, 3), label="label"):
    """Writes the files of `tfds build`, with images as PNG, without this project's code."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    folder = root / name / "1.0.0"
    folder.mkdir(parents=True)
    classes = tfds.features.ClassLabel(names=["x", "y", "z"])
    features = {"image": tfds.features.Image(shape=shape), label: classes}
    tfds.features.FeaturesDict(features).save_config(folder)
    info = {"fileFormat": "tfrecord", "name": name, "version": "1.0.0", "splits": []}
    for split, (images, labels) in splits.items():
        path = folder / f"{name}-{split}.tfrecord-00000-of-00001"
        with tf.io.TFRecordWriter(str(path)) as writer:
            for image, value in zip(images, labels, strict=True):
                example = tf.train.Example()
                png = tf.io.encode_png(image).numpy()
                example.features.feature["image"].bytes_list.value.append(png)
                example.features.feature[label].int64_list.value.append(value)
                writer.write(example.SerializeToString())
        info["splits"].append(
            {
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "name": split,
                "numBytes": str(path.stat().st_size),
                "shardLengths": [str(len(images))],
            }
        )
    (folder / "dataset_info.json").write_text(json.dumps(info))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder of small prepared image sets, with their images and labels."""
    root = tmp_path_factory.mktemp("tfds")
    images = np.random.default_rng(0).integers(0, 256, (25, 6, 5, 3), dtype=np.uint8)
    labels = np.arange(25) % 3
    parts = {"train": slice(15), "test": slice(15, 20), "validation": slice(20, 25)}
    write_prepared(
        root, "three_splits", {name: (images[i], labels[i]) for name, i in parts.items()}
    )
    write_prepared(root, "only_train", {"train": (images, labels)})
    write_prepared(root, "no_label", {"train": (images, labels)}, label="attribute")
    parts = {"train": labels[:9], "validation": labels[:4], "test": [-1] * 5}
    for name, splits in (("challenge", parts), ("no_test", {**parts, "validation": [-1] * 4})):
        write_prepared(
            root, name, {key: (images[: len(part)], part) for key, part in splits.items()}
        )
    write_prepared(root, "few", {"train": (images[:6], labels[:6]), "test": (images[:2], [-1] * 2)})
    two_sizes = [image[: 6 - i % 2] for i, image in enumerate(images)]
    write_prepared(root, "mixed_sizes", {"train": (two_sizes, labels)}, shape=(None, None, 3))
    return root, images, labels


def test_tfds_set_is_read_in_order(prepared, capfd):
    folder, images, labels = prepared
    capfd.readouterr()
    data = catalog.load("three_splits", folder)
    for part, start, stop in ((data.train, 0, 15), (data.test, 15, 20), (data.validation, 20, 25)):
        assert np.array_equal(part.images, images[start:stop])
        assert np.array_equal(part.labels, labels[start:stop])
    assert data.class_names == ("x", "y", "z")
    assert_ids_are_disjoint(data)
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""


def test_tfds_set_without_test_split_holds_some_out(prepared):
    folder, images, _ = prepared
    data = catalog.load("only_train", folder)
    assert (len(data.train), len(data.test)) == (19, 6)  # two of each class's 9, 8 and 8
    assert np.array_equal(data.test.images, images[data.test.example_ids])
    assert_ids_are_disjoint(data)


def test_tfds_set_resized(prepared):
    folder, images, _ = prepared
    data = catalog.load("three_splits", folder, image_size=8)
    assert data.test.images.shape == (5, 8, 8, 3)
    assert np.array_equal(data.test.images[0], resize(images[15], 8))


def test_tfds_set_of_several_sizes_needs_image_size(prepared):
    folder, *_ = prepared
    with pytest.raises(DatasetError, match="image_size"):
        catalog.load("mixed_sizes", folder)
    data = catalog.load("mixed_sizes", folder, image_size=4)
    assert data.train.images.shape[1:] == (4, 4, 3)


def test_tfds_set_without_label(prepared):
    with pytest.raises(
        DatasetError, match="no_label has no feature `label`, only attribute, image"
    ):
        catalog.load("no_label", prepared[0])


def test_test_splits_without_labels_do_not_count(prepared):
    """As those of imagenet2012 and of challenges."""
    root, images, labels = prepared
    data = catalog.load("challenge", root)
    assert (len(data.train), data.validation) == (9, None)
    assert data.test.labels.tolist() == list(labels[:4])
    assert np.array_equal(data.test.images, images[:4])
    assert data.notes == (
        "the split test of challenge has no labels, and is left out",
        "the test images are those of the split validation",
    )
    data = catalog.load("no_test", root)
    assert (len(data.train) + len(data.test), data.validation) == (9, None)
    assert data.notes[-1] == "the test images are those of a fifth of the split train"
    data = catalog.load("few", root)  # A fifth of two images of a class is none.
    assert (len(data.train), len(data.test)) == (6, 0)
    assert data.notes[1:] == (
        "there are no test images: no class has three images, of which one is held out",
    )


def test_labels_of_another_kind(prepared, tmp_path):
    import tensorflow_datasets as tfds

    shutil.copytree(prepared[0] / "only_train", tmp_path / "only_train")
    image = tfds.features.Image(shape=(6, 5, 3))
    for label, kind in ((tfds.features.Scalar(np.int64), "int64"), (tfds.features.Text(), "Text")):
        features = tfds.features.FeaturesDict({"image": image, "label": label})
        features.save_config(tmp_path / "only_train" / "1.0.0")
        with pytest.raises(DatasetError, match=f"`label` is no ClassLabel but {kind}"):
            catalog.load("only_train", tmp_path)


def test_version_that_is_not_there(prepared):
    assert len(catalog.load("only_train:1.0.0", prepared[0]).train) == 19
    with pytest.raises(DatasetError, match=r"only_train:2\.0\.0"):
        catalog.load("only_train:2.0.0", prepared[0])


def test_broken_tfds_file(prepared, tmp_path):
    shutil.copytree(prepared[0] / "only_train", tmp_path / "only_train")
    shard = next((tmp_path / "only_train").rglob("*tfrecord*"))
    shard.write_bytes(shard.read_bytes()[:-40])
    with pytest.raises(DatasetError, match=r"data_dir.*train.*cannot be read") as caught:
        catalog.load("only_train", tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.long
@pytest.mark.slow
def test_flipped_bits_of_tfds_records_are_noticed(prepared, tmp_path):
    shutil.copytree(prepared[0] / "only_train", tmp_path / "only_train")
    shard = next((tmp_path / "only_train").rglob("*tfrecord*"))
    whole, chance = shard.read_bytes(), random.Random(24)
    for _ in range(30):
        changed = bytearray(whole)
        changed[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        shard.write_bytes(changed)
        with pytest.raises(DatasetError, match=r"data_dir.*train.*cannot be read") as caught:
            catalog.load("only_train", tmp_path)
        assert "\n" not in str(caught.value)
    shard.unlink()
    with pytest.raises(DatasetError, match=r"data_dir.*train.*cannot be read"):
        catalog.load("only_train", tmp_path)
    info = next((tmp_path / "only_train").rglob("dataset_info.json"))
    info.write_bytes(info.read_bytes()[:-20])
    with pytest.raises(DatasetError, match=r"data_dir.*cannot be read"):
        catalog.load("only_train", tmp_path)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")
@pytest.mark.parametrize(("name", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_cifar(name, classes):
    data = catalog.load(name, SHARED / "tfds")
    assert data.train.images.shape == (50_000, 32, 32, 3)
    assert data.test.images.shape == (10_000, 32, 32, 3)
    assert np.bincount(data.train.labels).tolist() == [50_000 // classes] * classes
    assert len(data.class_names) == classes
    assert_ids_are_disjoint(data)
