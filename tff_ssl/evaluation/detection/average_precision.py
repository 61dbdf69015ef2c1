"""COCO's average precision of boxes and masks, by pycocotools."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from official.vision.ops import mask_ops
from pycocotools import mask as mask_api
from pycocotools.cocoeval import COCOeval

# Name of each result -> its place in pycocotools' summary.
_SUMMARY = {"": 0, "50": 1, "75": 2}
_KINDS = {"box_ap": "bbox", "mask_ap": "segm"}


def detections_of_image(
    outputs: Mapping[str, npt.NDArray[Any]],
    image_id: int,
    size: tuple[int, int],
    category_ids: Sequence[int],
) -> list[dict[str, Any]]:
    """The result of `MaskRCNN.detect` for an image in COCO's format of results.

    The size is the image's height and width in pixels. `category_ids` has the id of each class in
    the annotations; that of label i + 1 has index i.
    """
    count = int(outputs["count"])
    if not count:
        return []
    height, width = size
    top, left, bottom, right = np.asarray(outputs["boxes"][:count], np.float64).T
    boxes = np.stack([left, top, right - left, bottom - top], 1)
    masks = mask_ops.paste_instance_masks(outputs["masks"][:count], boxes, height, width)
    return [
        {
            "image_id": image_id,
            "category_id": category_ids[int(label) - 1],
            "score": float(score),
            "bbox": box.tolist(),
            "segmentation": mask_api.encode(np.asfortranarray(mask)),
        }
        for label, score, box, mask in zip(
            outputs["labels"][:count], outputs["scores"][:count], boxes, masks, strict=True
        )
    ]


def average_precision(
    truth: Any, detections: Sequence[Mapping[str, Any]], image_ids: Sequence[int]
) -> dict[str, float]:
    """COCO's average precision on images, also those without a detection.

    Returns:
      `box_ap` and `mask_ap`, the mean over the IoU thresholds 0.50 to 0.95 and the classes that
      occur in the images, and the same at single thresholds: `box_ap50`, `box_ap75`, `mask_ap50`,
      `mask_ap75`. All are from 0 to 1.
    """
    results: dict[str, float] = {}
    for name, kind in _KINDS.items():
        with contextlib.redirect_stdout(io.StringIO()):
            summary = _summary(truth, detections, image_ids, kind)
        # pycocotools gives -1 where no class occurs in the images.
        results |= {
            f"{name}{threshold}": max(float(summary[place]), 0.0)
            for threshold, place in _SUMMARY.items()
        }
    return results


def _summary(
    truth: Any, detections: Sequence[Mapping[str, Any]], image_ids: Sequence[int], kind: str
) -> Sequence[float]:
    """pycocotools' twelve numbers for boxes or masks."""
    if not detections:  # pycocotools loads no empty list.
        return [0.0] * len(_SUMMARY)
    # Of detections with a box, pycocotools takes the box's area also for masks.
    left_out = {"bbox": "segmentation", "segm": "bbox"}[kind]
    found = truth.loadRes([{k: v for k, v in d.items() if k != left_out} for d in detections])
    evaluation = COCOeval(truth, found, kind)
    evaluation.params.imgIds = sorted(image_ids)
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return evaluation.stats
