"""Average precision of detections whose value is known."""

import json

import numpy as np
import pytest

from datasets import coco_folder
from tests import coco_folders

pytest.importorskip("pycocotools", reason="uv run --extra detection installs it")
pytest.importorskip("official", reason="uv run --extra detection installs it")

from tff_ssl.evaluation.detection import average_precision as ap

ALL = ("box_ap", "box_ap50", "box_ap75", "mask_ap", "mask_ap50", "mask_ap75")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = coco_folders.write(tmp_path_factory.mktemp("coco") / "coco", 4, 1)
    return coco_folder.CocoImages(folder, "train2017")


def as_outputs(boxes, labels, scores):
    """What `MaskRCNN.detect` gives for an image: full masks in boxes, and rows without meaning."""
    count = len(boxes)
    rows = count + 3
    outputs = {
        "boxes": np.full([rows, 4], 5.0, np.float32),
        "labels": np.ones([rows], np.int32),
        "scores": np.full([rows], 0.9, np.float32),
        "masks": np.ones([rows, 28, 28], np.float32),
        "count": np.int32(count),
    }
    for name, values in (("boxes", boxes), ("labels", labels), ("scores", scores)):
        outputs[name][:count] = np.reshape(values, outputs[name][:count].shape)
    return outputs


def found(images, index, keep, score=0.8, shift=0.0):
    """Detections of an image: its own instances with labels in `keep`, moved right by `shift`."""
    example = images.example(index)
    height, width, _ = example.image.shape
    chosen = [i for i, label in enumerate(example.labels) if label in keep]
    boxes = example.boxes[chosen] * [height, width, height, width] + [0, shift, 0, shift]
    outputs = as_outputs(boxes, example.labels[chosen], [score] * len(chosen))
    size = (height, width)
    return ap.detections_of_image(outputs, example.image_id, size, images.category_ids)


def test_perfect_detections_have_an_average_precision_of_one(images):
    detections = [d for index in range(4) for d in found(images, index, (1, 2))]
    result = ap.average_precision(images.truth, detections, images.image_ids)
    assert list(result) == list(ALL)
    for name in ("box_ap", "box_ap50", "box_ap75"):
        assert result[name] == pytest.approx(1)
    # Full masks fit rectangles, and cover pi / 4 of a circle's box.
    assert result["mask_ap50"] == pytest.approx(1)
    rectangles = [d for index in range(4) for d in found(images, index, (2,))]
    only = ap.average_precision(images.truth, rectangles, images.image_ids)
    assert only["box_ap"] == pytest.approx(0.5)  # Of two classes, one is found.
    assert 0.35 < only["mask_ap"] <= 0.5


def test_results_are_in_cocos_format(images):
    (detection,) = found(images, 0, (2,), score=0.25)
    (annotation,) = (
        a for a in images.truth.imgToAnns[1] if a["category_id"] == detection["category_id"]
    )
    assert detection["image_id"] == 1
    assert detection["category_id"] == 90
    assert detection["score"] == 0.25
    np.testing.assert_allclose(detection["bbox"], annotation["bbox"], atol=1e-4)
    mask = images.truth.annToMask(detection)
    expected = images.truth.annToMask(annotation)
    assert mask.shape == expected.shape
    # The Model Garden's pasting may add a row and a column of pixels.
    assert (mask & expected).sum() / (mask | expected).sum() > 0.85
    json.dumps({k: v for k, v in detection.items() if k != "segmentation"})


def test_images_without_a_detection_count(images):
    detections = found(images, 0, (1, 2)) + found(images, 1, (1, 2))
    two = ap.average_precision(images.truth, detections, images.image_ids[:2])
    four = ap.average_precision(images.truth, detections, images.image_ids)
    assert two["box_ap"] == pytest.approx(1)
    # Precision is 1 up to a recall of a half, and then 0: 51 of the 101 points.
    assert four["box_ap"] == pytest.approx(51 / 101)


def test_a_surer_false_detection_lowers_the_precision(images):
    right = [d for index in range(4) for d in found(images, index, (2,), score=0.5)]
    wrong = found(images, 0, (2,), score=0.9, shift=40.0)
    result = ap.average_precision(images.truth, right + wrong, images.image_ids)
    # Sorted by score: false, true, true, true, true. The best precision from any recall on is 4/5,
    # and the other class has none.
    assert result["box_ap"] == pytest.approx(0.5 * 4 / 5)


def test_no_detection_has_an_average_precision_of_zero(images):
    assert ap.average_precision(images.truth, [], images.image_ids) == dict.fromkeys(ALL, 0.0)
    nothing = as_outputs(np.zeros([0, 4]), [], [])
    assert ap.detections_of_image(nothing, 1, (64, 80), images.category_ids) == []


def test_the_prefix_of_the_images_is_judged_without_the_others(images):
    detections = [d for index in range(4) for d in found(images, index, (1, 2))]
    result = ap.average_precision(images.truth, detections, images.image_ids[1:2])
    assert result["box_ap"] == pytest.approx(1)
