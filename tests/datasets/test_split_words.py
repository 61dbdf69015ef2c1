"""Words for splits: in names of folders, with what is ambiguous refused, and in tables."""

import numpy as np
import pytest
from PIL import Image

from datasets import case_folder, split_words
from datasets.errors import DatasetError
from datasets.listing import Layout


@pytest.mark.parametrize(
    ("split", "names"),
    [
        ("train", "train training Train TRAINING train_set images_train train2017 my-Train "
                  "TrainSet trainset train_01 2019_training_images"),
        ("validation", "val valid validation dev VALID val2017 images-dev ValidationImages devset"),
        ("test", "test testing eval evaluation Test_Set my-test test1 testData isic_2019_test"),
    ],
)  # fmt: skip
def test_words_with_prefixes_and_suffixes(split, names):
    for name in names.split():
        assert split_words.meanings(name) == {split}, name


def test_other_names_mean_no_split():
    names = [
        "cat",
        "contest",
        "station",
        "devices",
        "trained",
        "latest",
        "valley",
        "evalue",
        "2017",
    ]
    for name in [*names, "images", "Käfer"]:
        assert not split_words.meanings(name), name
    assert split_words.meanings("trainval") == split_words.meanings("train_val")
    assert split_words.meanings("trainval") == {"train", "validation"}


def write(root, *names):
    """An image for each name, all of them different."""
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((16, 16, 3), number + np.arange(3), np.uint8)).save(path)


def both(*splits):
    return [
        f"{split}/{label}/{i}.png" for split in splits for label in ("cat", "dog") for i in "ab"
    ]


@pytest.mark.parametrize(
    ("train", "validation", "test"),
    [
        ("train", "valid", "test"),
        ("Training", "Dev", "Testing"),
        ("images_train", "my-validation", "eval"),
        ("train2017", "val2017", "test2017"),
    ],
)
def test_folders_of_splits(tmp_path, train, validation, test):
    write(tmp_path, *both(train, validation, test), "docs.png")
    (tmp_path / "empty" / "er").mkdir(parents=True)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "notes.txt").write_text("A folder without images is left out.")
    data = case_folder.load(tmp_path)
    assert data.class_names == ("cat", "dog")
    names = {0: train, 1: validation, 2: test}
    for number, split in enumerate((data.train, data.validation, data.test)):
        files = [data.file_names[i] for i in split.example_ids]
        assert files == both(names[number])
        assert split.labels.tolist() == [0, 0, 1, 1]
    assert "1 images are left out: they are in no class folder" in data.notes


def test_folders_of_splits_without_classes(tmp_path):
    write(tmp_path, "train/a.png", "train/b.png", "test/c.png", "d.png")
    data = case_folder.load(tmp_path)
    assert [data.file_names[i] for i in data.train.example_ids] == ["train/a.png", "train/b.png"]
    assert [data.file_names[i] for i in data.test.example_ids] == ["test/c.png"]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([*both("train", "test"), "docs/logo.png"], ["has test/ and train/,", "docs/ with images"]),
        (["bird/a.png", "cat/a.png", "test/a.png"], ["has test/,", "bird/ and cat/ with images",
                                                     "move all folders of classes into one"]),
        ([*both("train", "training")], ["train/ and training/, all named after the split train"]),
        (both("train2014", "train2017", "val2014"), ["train2014/ and train2017/"]),
        (both("trainval", "test"), ["trainval is named after several splits, train and valid"]),
        (both("valid", "test"), ["test/ and valid/, but no folder train/"]),
        (["cat/train/a.png", "cat/test/b.png", "dog/train/c.png"], ["cat has folders of splits",
                                                                    "test/ and train/"]),
        (both("flowers/train", "flowers/test"), ["give --data_dir=", "flowers, or put"]),
        (both("train/train", "train/test"), ["give --data_dir=", "/train, or put"]),
        (both("images/train", "images/val", "labels/train"), ["images has folders of splits"]),
    ],
)  # fmt: skip
def test_what_is_ambiguous_is_refused(tmp_path, names, words):
    write(tmp_path, *names)
    with pytest.raises(DatasetError) as caught:
        case_folder.load(tmp_path)
    message = str(caught.value)
    assert message.startswith(f"data_dir: {tmp_path}")
    assert "\n" not in message
    assert [word for word in words if word not in message] == [], message


def test_the_remedy_for_classes_that_are_called_as_splits(tmp_path):
    write(tmp_path, *(f"train/{label}/{i}.png" for label in ("car", "test", "train") for i in "ab"))
    data = case_folder.load(tmp_path)
    assert data.class_names == ("car", "test", "train")
    assert case_folder.layout(tmp_path) is Layout.CLASSES


def test_the_words_in_a_table(tmp_path):
    write(tmp_path, *(f"{i}.png" for i in range(8)))
    splits = ["Train", "TRAINING", "training", "train", "Testing", "eval", "VALID", "dev"]
    rows = [f"{i}.png,c{i},{'ab'[i % 2]},{split}" for i, split in enumerate(splits)]
    (tmp_path / "metadata.csv").write_text("\n".join(["file_name,case_id,label,split", *rows]))
    data = case_folder.load(tmp_path)
    found = [split.example_ids.tolist() for split in (data.train, data.test, data.validation)]
    assert found == [[0, 1, 2, 3], [4, 5], [6, 7]]
