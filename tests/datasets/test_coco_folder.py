"""Reading folders in COCO's layout."""

import json

import numpy as np
import pytest
from PIL import Image

from datasets import coco_folder
from datasets.errors import DatasetError
from tests import coco_folders

pytest.importorskip("pycocotools", reason="uv run --extra detection installs it")


@pytest.fixture
def folder(tmp_path):
    return coco_folders.write(tmp_path / "coco", 3, 2)


def change(folder, edit, split="train2017"):
    """Applies `edit` to the annotations of a split."""
    path = folder / "annotations" / f"instances_{split}.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def test_instances_are_those_that_were_drawn(folder):
    train, validation = coco_folder.load(folder)
    assert (len(train), len(validation)) == (3, 2)
    assert train.class_names == ["circle", "rectangle"]
    content = json.loads((folder / "annotations" / "instances_train2017.json").read_text())
    for index in range(3):
        example = train.example(index)
        height, width, _ = example.image.shape
        assert example.image_id == index + 1
        assert example.labels.tolist() == [1, 2]
        assert not example.crowds.any()
        written = [a for a in content["annotations"] if a["image_id"] == example.image_id]
        for box, mask, annotation in zip(example.boxes, example.masks, written, strict=True):
            left, top, w, h = annotation["bbox"]
            expected = [top / height, left / width, (top + h) / height, (left + w) / width]
            np.testing.assert_allclose(box, expected, rtol=1e-6)
            assert mask.shape == (height, width)
        # The blue rectangle's mask has exactly its pixels, also where the circle is not below it.
        rectangle = example.masks[1].astype(bool)
        assert (example.image[rectangle] == (60, 90, 230)).all()
        assert not (example.image[~rectangle] == (60, 90, 230)).all(-1).any()
        circle = example.masks[0].astype(bool) & ~rectangle
        assert ((example.image[circle] == (230, 60, 60)).all(-1)).mean() > 0.85


def test_images_without_instances_are_not_trained_on(folder):
    def edit(content):
        content["annotations"] = [a for a in content["annotations"] if a["image_id"] != 2]
        for annotation in content["annotations"]:
            annotation["iscrowd"] = int(annotation["image_id"] == 3)
            if annotation["iscrowd"]:
                annotation["segmentation"] = {"size": [64, 80], "counts": [64 * 80]}

    change(folder, edit)
    train, _ = coco_folder.load(folder)
    assert train.image_ids == [1]
    assert coco_folder.CocoImages(folder, "train2017").image_ids == [1, 2, 3]


def test_the_first_training_images_are_kept(folder):
    train, validation = coco_folder.load(folder, train_images=2)
    assert train.image_ids == [1, 2]
    assert len(validation) == 2


def _swap_categories(content):
    content["categories"][0]["name"] = "disc"


def _unknown_category(content):
    content["annotations"][0]["category_id"] = 8


def _no_box(content):
    del content["annotations"][0]["bbox"]


def _text_as_id(content):
    content["categories"][0]["id"] = "7"


def _no_instance(content):
    content["annotations"] = []


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (_swap_categories, "differ in classes"),
        (_unknown_category, "annotation 1 is of an unknown image or category"),
        (_no_box, "instances_train2017.json has no COCO annotations of instances"),
        (_text_as_id, "instances_train2017.json has no COCO annotations of instances"),
        (_no_instance, "no image has an instance"),
        (dict.clear, "instances_train2017.json has no COCO annotations of instances"),
    ],
)
def test_wrong_annotations_are_named(folder, edit, named):
    change(folder, edit)
    with pytest.raises(DatasetError, match=named) as caught:
        coco_folder.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "[1, 2]", "no json", '{"images": 3}'])
def test_a_file_that_is_no_annotations_is_named(folder, content):
    (folder / "annotations" / "instances_val2017.json").write_text(content)
    with pytest.raises(DatasetError, match=r"instances_val2017\.json") as caught:
        coco_folder.load(folder)
    assert "\n" not in str(caught.value)


def test_missing_parts_of_the_folder_are_named(folder, tmp_path):
    with pytest.raises(DatasetError, match="is no folder"):
        coco_folder.load(tmp_path / "nosuch")
    with pytest.raises(DatasetError, match=r"annotations: .*instances_train2017\.json is missing"):
        coco_folder.load(tmp_path)
    (folder / "val2017").rename(folder / "validation")
    with pytest.raises(DatasetError, match=r"no images: .*val2017/ is missing"):
        coco_folder.load(folder)


def test_broken_images_and_masks_are_named(folder):
    names = [f"{number:012}.png" for number in (1, 2, 3)]
    (folder / "train2017" / names[0]).unlink()
    (folder / "train2017" / names[1]).write_bytes(b"no image")
    Image.new("RGB", (10, 10)).save(folder / "train2017" / names[2])
    train, validation = coco_folder.load(folder)
    for index, named in enumerate(("is missing", "broken image", "has 10x10 pixels")):
        with pytest.raises(DatasetError, match=named) as caught:
            train.example(index)
        assert names[index] in str(caught.value)

    Image.fromarray(np.full((8, 12), 4095, np.uint16)).save(folder / "train2017" / names[0])
    with pytest.raises(DatasetError, match=f"{names[0]}: images of more than 8 bits are not read"):
        train.example(0)

    def edit(content):
        content["annotations"][0]["segmentation"] = 7
        content["annotations"][2]["segmentation"] = {"size": [2, 2], "counts": [4]}

    change(folder, edit, "val2017")
    _, validation = coco_folder.load(folder)
    for index, named in enumerate(("annotation 1 of image 1 is broken", "another size than")):
        with pytest.raises(DatasetError, match=named):
            validation.example(index)


def test_only_names_inside_the_folder_are_read(folder):
    (folder / "secret.png").write_bytes((folder / "train2017" / f"{1:012}.png").read_bytes())

    def edit(content):
        content["images"][0]["file_name"] = "../secret.png"

    change(folder, edit)
    train, _ = coco_folder.load(folder)
    with pytest.raises(DatasetError, match="is missing"):
        train.image(0)


def test_the_digest_is_of_annotations_and_sizes_of_images(folder):
    first = coco_folder.load(folder)[0].digest()
    assert coco_folder.load(folder)[0].digest() == first
    change(folder, lambda content: content["annotations"][0].update(category_id=2))
    second = coco_folder.load(folder)[0].digest()
    image = next(iter(sorted((folder / "train2017").iterdir())))
    image.write_bytes(image.read_bytes() + b"more")
    third = coco_folder.load(folder)[0].digest()
    image.unlink()
    assert len({first, second, third, coco_folder.load(folder)[0].digest()}) == 4
