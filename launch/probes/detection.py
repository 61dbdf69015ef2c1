"""Fine-tunes Mask R-CNN from each start, and measures average precision."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import tqdm

from datasets.coco_folder import CocoImages
from launch.options.script_configs import DetectConfig
from launch.outputs import detection_plots, run_folder
from tff_ssl.evaluation.detection import average_precision as ap
from tff_ssl.evaluation.detection.fine_tuning import FineTuning
from tff_ssl.evaluation.detection.hyperparameters import DetectionHyperparameters
from tff_ssl.evaluation.detection.mask_rcnn import MaskRCNN
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.simulation import centralized
from tff_ssl.simulation.training_loop import TrainingLoop

_BATCH = 4  # Images in which objects are detected at a time.
_SHOWN = 4  # Images in the picture of detections.

Detections = dict[int, list[dict[str, Any]]]  # Id of an image -> its detections.


class DetectionData(NamedTuple):
    """The images to train and to measure on."""

    train: CocoImages
    validation: CocoImages
    monitored: int  # Number of training images on which the monitor measures.


def build_training(
    network: MaskRCNN,
    start: Weights,
    data: DetectionData,
    values: DetectionHyperparameters,
    config: DetectConfig,
) -> FineTuning:
    """The training from an encoder's weights, on shuffled epochs."""
    rounds, seed = config.rounds, config.seed
    batches = centralized.shuffled_batches(len(data.train), values.batch_size, seed)
    return FineTuning(network, start, data.train.example, batches, rounds, values, seed)


def fine_tune(
    name: str,
    training: FineTuning,
    network: MaskRCNN,
    data: DetectionData,
    folder: pathlib.Path,
    config: DetectConfig,
) -> dict[str, Any]:
    """Fine-tunes from a start, or continues that, and measures average precision.

    Returns:
      The average precisions on the validation images (`box_ap`, `mask_ap` and those at single
      thresholds) and, with the prefix `train_`, on the monitored training images; `rounds`; and
      `first_loss` and `last_loss`, the mean losses of the first and the last tenth of the steps.
    """
    own, rounds, output = folder / name, config.rounds, config.output
    own.mkdir(exist_ok=True)
    finished = own / "result.json"
    if finished.exists():
        result = json.loads(finished.read_text())
        if result["rounds"] == rounds:
            print(f"{name}: finished before", flush=True)
            return result
    print(f"{name}: {rounds} steps", flush=True)

    def monitor(state) -> dict[str, float]:
        network.assign(state.weights)
        _, precision = measure(network, data.train, data.monitored, "training")
        return {f"train_{kind}": precision[kind] for kind in ("box_ap", "mask_ap")}

    loop = TrainingLoop(
        own, rounds, output.checkpoint_every, config.eval_every, monitor,
        run_folder.training_digest(folder),
    )  # fmt: skip
    state = loop.run(training, output.seed)
    network.assign(state.weights)
    detections, precision = measure(network, data.validation, len(data.validation), "validation")
    _, on_train = measure(network, data.train, data.monitored, "training")
    detection_plots.draw_detections(data.validation, detections, own / "detections.png", _SHOWN)
    first, last = detection_plots.ends_of_loss(own / "metrics.csv")
    result = precision | {f"train_{kind}": value for kind, value in on_train.items()}
    result |= {"rounds": rounds, "first_loss": first, "last_loss": last}
    run_folder.write_json(finished, result)
    return result


def measure(
    network: MaskRCNN, images: CocoImages, count: int, kind: str
) -> tuple[Detections, dict[str, float]]:
    """Detections in the first `count` images by id, and average precision on them."""
    found: Detections = {}
    text = f"detecting in {kind} images"
    with tqdm.tqdm(total=count, desc=text, leave=False, disable=None) as bar:
        for first in range(0, count, _BATCH):
            indices = range(first, min(first + _BATCH, count))
            found |= _detect(network, images, indices)
            bar.update(len(indices))
    everything = [detection for of_image in found.values() for detection in of_image]
    return found, ap.average_precision(images.truth, everything, list(found))


def _detect(network: MaskRCNN, images: CocoImages, indices: Sequence[int]) -> Detections:
    pixels = [images.image(index) for index in indices]
    # A smaller batch would be traced again: the last image fills it up.
    outputs = network.detect(pixels + pixels[-1:] * (_BATCH - len(pixels)))
    found, categories = {}, images.category_ids
    for index, image, output in zip(indices, pixels, outputs, strict=False):
        image_id, (height, width, _) = images.image_ids[index], image.shape
        found[image_id] = ap.detections_of_image(output, image_id, (height, width), categories)
    return found
