"""Arrays in an `.npz` and LEAF's JSON: contents of the data set, and mistakes."""

import json

import numpy as np
import pytest

from datasets import catalog, listing
from datasets.errors import DatasetError
from datasets.listing import Layout


def pixels(count, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8)


def save(folder, **arrays):
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz"


def error_message(name, path):
    with pytest.raises(DatasetError) as caught:
        catalog.load(name, path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "names",
    [
        ("x_train", "y_train", "x_test", "y_test"),
        ("X_train", "Y_train", "X_test", "Y_test"),
        ("train_images", "train_labels", "test_images", "test_labels"),
        ("images", "labels", "test_x", "test_y"),
    ],
)
@pytest.mark.parametrize("kind", ["grey", "rgb", "fraction"])
def test_names_of_arrays(tmp_path, names, kind):
    shape = (18, 17) if kind == "grey" else (18, 17, 3)
    train, test = pixels(5, *shape), pixels(2, *shape, seed=1)
    labels = np.array([3, 10, -1, 3, 10])
    stored = [np.float32(x / 255) if kind == "fraction" else x for x in (train, test)]
    arrays = (stored[0], labels[:, np.newaxis], stored[1], np.array([10, 3], np.uint8))
    path = save(tmp_path, **dict(zip(names, arrays, strict=True)))
    data = catalog.load("npz", path)
    assert np.array_equal(data.train.images, train.reshape(5, 18, 17, -1))
    assert np.array_equal(data.test.images, test.reshape(2, 18, 17, -1))
    assert data.class_names == ("3", "10")
    assert data.train.labels.tolist() == [0, 1, -1, 0, 1]
    assert data.test.labels.tolist() == [1, 0]
    assert data.train.case_ids is None
    assert data.notes == (
        "1 images have the label -1, which is read as no label: give it a name if it is a class",
    )
    assert catalog.layout("npz", path) is Layout.CLASSES
    assert data.file_names[1] == f"{names[0]}[1]"


def test_clients_and_text_labels(tmp_path):
    images = pixels(10, 20, 20, 4)
    labels = np.array(["b", "a", "", "b", "a"] * 2)
    path = save(tmp_path, images=images, labels=labels, clients=np.arange(10) // 2 - 1)
    data = catalog.load("npz", path)
    assert catalog.layout("npz", path) is Layout.CASES
    assert data.class_names == ("a", "b")
    owners = ["images[0]", "images[1]", *(str(k // 2 - 1) for k in range(2, 10))]
    for split in (data.train, data.test):
        assert np.array_equal(split.images, images[split.example_ids])
        assert split.case_ids.tolist() == [owners[i] for i in split.example_ids]
    assert not set(data.train.case_ids) & set(data.test.case_ids)
    assert len(data.test) > 0
    path = save(tmp_path, x=images)
    assert catalog.layout("npz", path) is Layout.IMAGES
    assert catalog.load("npz", path).class_names == ()


@pytest.mark.parametrize(
    ("images", "labels", "clients"),
    [
        ("x_train", "y_train", "clients"),
        ("x_train", "y_train", "train_clients"),
        ("train_images", "labels_train", "clients_train"),
        ("x_train", "labels_train", "Training_Clients"),
        ("images", "y", "clients"),
        ("x", "labels", "clients"),
    ],
)
def test_names_of_arrays_may_be_mixed(tmp_path, images, labels, clients):
    arrays = {images: pixels(8, 18, 18), labels: np.arange(8) % 2, clients: np.arange(8) // 2}
    path = save(tmp_path, **arrays, x_test=pixels(2, 18, 18, seed=1), labels_test=np.arange(2))
    data = catalog.load("npz", path)
    assert np.array_equal(data.train.images[..., 0], arrays[images])
    assert data.train.labels.tolist() == [0, 1] * 4
    assert data.train.case_ids.tolist() == list("00112233")
    assert data.test.labels.tolist() == [0, 1]
    assert data.notes == ()
    assert catalog.layout("npz", path) is Layout.CASES


def test_arrays_that_are_not_read_are_named(tmp_path):
    more = {f"meta{i:02}": np.arange(2) for i in range(20)}
    data = catalog.load("npz", save(tmp_path, x=pixels(2, 18, 18), Y_train=np.arange(2), **more))
    names = ", ".join(["Y_train", *list(more)[:11]])
    assert data.notes[0] == f"arrays that are not read: {names} and 9 more"
    # The labels of the same style come first, and those of other images are not read.
    arrays = {
        "x_train": pixels(2, 18, 18),
        "y_train": np.arange(2),
        "labels_train": np.zeros(2, int),
    }
    path = save(tmp_path, **arrays, images=pixels(9, 18, 18), clients=np.arange(9))
    data = catalog.load("npz", path)
    assert data.class_names == ("0", "1")
    assert data.train.case_ids is None
    assert data.notes[0] == "arrays that are not read: labels_train, images, clients"


@pytest.mark.parametrize(
    ("labels", "names", "note"),
    [
        ([-1, 1], ("-1", "1"), "-1 is a class of 4 images"),
        ([-2, -1, 3, 4], ("3", "4"), "4 images have the label -1 or -2, which is read as no label"),
        (["nan", "a", "b", ""], ("a", "b"), "2 images have the label nan, which is read as no"),
    ],
)
def test_negative_and_missing_labels(tmp_path, labels, names, note):
    labels = np.array((labels * 4)[:8])
    data = catalog.load("npz", save(tmp_path, images=pixels(8, 18, 18), labels=labels))
    assert data.class_names == names
    assert data.notes[0].startswith(note)
    for split in (data.train, data.test):
        found = [names[i] if i >= 0 else "" for i in split.labels]
        given = [str(labels[i]) for i in split.example_ids]
        assert found == [label if label in names else "" for label in given]


def test_labels_of_digits_are_sorted_by_value_and_then_as_text():
    names = ["10", "1", "01", "001", "9", "7" * 5000, "0"]
    expected = ("0", "001", "01", "1", "9", "10", "7" * 5000)
    assert listing.sorted_classes([*names, ""]) == expected
    assert listing.sorted_classes([]) == ()
    assert listing.sorted_classes(["10", "9", "a"]) == ("10", "9", "a")


def test_images_are_resized_as_those_of_a_folder(tmp_path):
    data = catalog.load("npz", save(tmp_path, images=pixels(6, 40, 50)))
    assert data.train.images.shape == (6, 32, 32, 1)
    assert "resized to 32x32" in data.notes[-1]
    assert catalog.load("npz", tmp_path / "a.npz", 8).train.images.shape == (6, 8, 8, 1)


def test_an_array_is_read_in_blocks(tmp_path, monkeypatch):
    from datasets import array_files

    images = pixels(7, 16, 16)
    path = save(tmp_path, images=images)
    monkeypatch.setattr(array_files, "_BLOCK", 3 * 256 + 1)
    assert np.array_equal(catalog.load("npz", path).train.images[..., 0], images)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"a": np.ones(3)}, "no images to train on among its arrays a: name them images"),
        ({"x_test": pixels(2, 9, 9)}, "no images to train on among its arrays x_test"),
        ({"images": np.ones((3, 8))}, "images is float64 [3, 8]: images are numbers"),
        ({"images": pixels(3, 8, 8, 2)}, "with 1, 3 or 4 channels"),
        ({"images": np.array([None])}, "images is object [1]"),
        (
            {"images": np.full((2, 8, 8), [[[0]], [[1.5]]])},
            "images[1] has values outside of 0 to 1",
        ),
        ({"images": np.full((2, 8, 8), 256)}, "images[0] has values outside of 0 to 255"),
        ({"images": np.full((2, 8, 8), np.nan)}, "images[0] has values outside of 0 to 1"),
        (
            {"x_train": pixels(2, 9, 9), "x_test": pixels(2, 8, 8)},
            "of different shapes: [(2, 9, 9,",
        ),
        ({"x": pixels(2, 9, 9), "y": np.eye(2, dtype=int)}, "y is int64 [2, 2]: it must have"),
        ({"x": pixels(2, 9, 9), "y": np.array([0.5, 1])}, "y is float64 [2]: it must have"),
        ({"images": np.asfortranarray(pixels(2, 9, 9))}, "numpy.ascontiguousarray"),
    ],
)
def test_mistakes_name_the_array_and_the_image(tmp_path, arrays, words):
    message = error_message("npz", save(tmp_path, **arrays))
    assert str(tmp_path / "a.npz") in message
    assert words in message


def test_missing_and_broken_files(tmp_path):
    assert "--data_dir is needed for --dataset=npz" in error_message("npz", None)
    assert "a.npz does not exist" in error_message("npz", tmp_path / "a.npz")
    assert "is a folder: name the .npz file itself" in error_message("npz", tmp_path)
    path = save(tmp_path, images=pixels(20, 30, 30))
    path.write_bytes(path.read_bytes()[:5000])
    assert f"{path} cannot be read" in error_message("npz", path)
    np.save(tmp_path / "b.npy", pixels(2, 9, 9))
    message = error_message("npz", tmp_path / "b.npy")
    assert "b.npy cannot be read: it is a single array: write numpy.savez(FILE, images=" in message
    assert catalog.layout("npz", tmp_path / "b.npy") is Layout.CASES


def test_of_many_arrays_without_images_twelve_are_named(tmp_path):
    """As in an archive of image files."""
    path = save(tmp_path, **{f"images_{i:04}": np.zeros(1) for i in range(500)})
    message = error_message("npz", path)
    assert "among its arrays images_0000, " in message
    assert "images_0011 and 488 more: name them images and labels" in message


def write_leaf(folder, split, content):
    """Writes a file as LEAF's `preprocess.sh` does."""
    (folder / split).mkdir(exist_ok=True)
    name = "all_data_0_niid_0_keep_0_train_9.json"
    (folder / split / name).write_text(json.dumps(content))


def leaf(users):
    return {
        "users": list(users),
        "num_samples": [len(own["y"]) for own in users.values()],
        "user_data": users,
    }


def test_leaf(tmp_path):
    images = pixels(3, 28, 28)
    rows = (images.reshape(3, -1) / 255).tolist()
    write_leaf(tmp_path, "train", leaf({
        "f0_1": {"x": rows[:1], "y": [61.0]}, "f0_0": {"x": rows[1:], "y": [0, 35]},
    }))  # fmt: skip
    write_leaf(tmp_path, "test", leaf({"f0_1": {"x": rows[2:], "y": [35]}}))
    data = catalog.load("leaf", tmp_path)
    assert np.array_equal(data.train.images[..., 0], images)
    assert data.train.images.shape == (3, 28, 28, 1)
    assert data.class_names == ("0", "Z", "z")
    assert data.train.labels.tolist() == [2, 0, 1]
    assert data.train.case_ids.tolist() == ["f0_1", "f0_0", "f0_0"]
    assert np.array_equal(data.test.images[0, ..., 0], images[2])
    assert data.test.labels.tolist() == [1]
    assert catalog.layout("leaf", tmp_path) is Layout.CASES


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"users": []}, "has no images in train/*.json"),
        ({"users": ["a"]}, "has no user_data"),
        ([], "cannot be read"),
        (leaf({"a": {"x": [[0.0] * 783], "y": [0]}}), "row 0 of user a has 783 pixels"),
        (leaf({"a": {"x": [[0.0] * 784] * 2, "y": [0, 62]}}), "row 1 of user a has 784 pixels and"),
        (
            leaf({"a": {"x": [[0.0] * 784] * 2, "y": [0, 1.5]}}),
            "row 1 of user a has 784 pixels and the label 1.5",
        ),
        (leaf({"a": {"x": [[0.0] * 784] * 2, "y": [0]}}), "cannot be read"),
        (leaf({"a": {"x": [[2.0] * 784], "y": [0]}}), "user a row [0] has values outside"),
    ],
)
def test_mistakes_in_leaf_name_the_user_and_the_row(tmp_path, content, words):
    write_leaf(tmp_path, "train", content)
    assert words in error_message("leaf", tmp_path)


def test_a_file_of_leaf_may_be_nested_too_deeply(tmp_path):
    write_leaf(tmp_path, "train", {})
    (path,) = (tmp_path / "train").glob("*.json")
    path.write_text(99_999 * "[")
    assert "cannot be read" in error_message("leaf", tmp_path)
