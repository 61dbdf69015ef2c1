"""Fine-tunes an encoder for detection and instance segmentation: Mask R-CNN on a COCO folder.

    python -m launch.detect --run=RUN --data_dir=COCO_FOLDER

The ResNet of a pretraining run becomes the backbone of the TensorFlow Model Garden's Mask R-CNN,
and the whole network is trained (Dec-SSL, section 3.1 and Table 1); likewise an untrained encoder
and, with --supervised_run, one that was trained with labels. Measures COCO's average precision (AP)
of boxes and masks. COCO_FOLDER has COCO's layout: train2017/, val2017/, and annotations/ with
instances_train2017.json and instances_val2017.json. Needs the extra `detection`; without it, the
error message has the command that adds it.
"""

import importlib
import pathlib
from typing import Any

from launch.options import app, hyperparameters, settings
from launch.options.script_configs import DetectConfig
from launch.outputs import output_folder, run_folder, tables
from tff_ssl.errors import ConfigurationError, MissingExtraError

_STARTS = ("pretrained", "untrained", "supervised")


def main(config: DetectConfig) -> None:
    """Fine-tunes from all starts, and writes and prints the results."""
    from tff_ssl.evaluation.detection.hyperparameters import DetectionHyperparameters

    values = hyperparameters.parse(DetectionHyperparameters, config.hparam)
    if config.output.list:
        for line in hyperparameters.listed(values):
            print(f"hparam {line}")
        return
    starts = _check_flags(config)
    try:
        for module in ("pycocotools.coco", "official.vision.tasks.maskrcnn"):
            importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError("launch.detect", "detection", error) from error
    from datasets import coco_folder
    from launch.outputs import detection_plots
    from launch.probes import detection
    from tff_ssl.evaluation.detection.mask_rcnn import MaskRCNN

    encoder, weights = _start_weights(starts, config)
    train, validation = coco_folder.load(config.data_dir or "", config.train_images)
    if values.batch_size > len(train):
        raise ConfigurationError(
            f"--hparam=batch_size={values.batch_size} is more than the {len(train)} training "
            "images with instances"
        )
    data = detection.DetectionData(train, validation, min(config.eval_images, len(train)))
    folder = output_folder.choose(config.output.output_dir, "detect")
    digests = {"the training images": train, "the validation images": validation}
    run_folder.open_run(
        folder, settings.to_json(config), config.given, config.output.resume,
        {name: images.digest() for name, images in digests.items()},
    )  # fmt: skip
    network = MaskRCNN(encoder, len(train.class_names), values, config.seed)
    _announce(network, encoder, data, starts, folder, values, config)
    training = detection.build_training(network, weights[starts[0]], data, values, config)
    results = {}
    for name in starts:
        own = training.starting_from(weights[name])
        results[name] = detection.fine_tune(name, own, network, data, folder, config)
    run_folder.write_json(folder / "result.json", [_result(results, encoder, data, config)])
    detection_plots.draw_curves(folder, starts, folder / "curves.png")
    print(
        f"\n{_table(results)}\n(COCO's average precision in percent on {len(validation)} "
        f"validation images, and on {data.monitored} of the {len(train)} training images; loss: "
        f"means of the first and the last tenth of the {config.rounds} steps)\n"
        f"\nwritten to {folder}/: result.json, curves.png, config.json, and for each start a "
        f"folder ({', '.join(starts)}) with detections.png, result.json, metrics.csv, "
        "tensorboard/, checkpoints/"
    )


def _check_flags(config: DetectConfig) -> list[str]:
    """The starts in order, after a check of the flags."""
    if not config.run:
        raise ConfigurationError("--run is missing: name the folder of a run or of an encoder")
    if not config.data_dir:
        raise ConfigurationError(
            "--data_dir is missing: name a folder in COCO's layout (train2017/, val2017/, "
            "annotations/)"
        )
    starts = list(dict.fromkeys(config.starts))
    if config.supervised_run and "supervised" not in starts:
        starts.append("supervised")
    unknown = [name for name in starts if name not in _STARTS]
    if unknown or not starts:
        raise ConfigurationError(
            f"--starts takes {', '.join(_STARTS)}; got {','.join(config.starts)!r}"
        )
    if "supervised" in starts and not config.supervised_run:
        raise ConfigurationError("--starts=supervised needs --supervised_run=RUN")
    return starts


def _start_weights(starts: list[str], config: DetectConfig):
    """The encoder's architecture, and its weights by the name of the start."""
    pretrained = _read_encoder("run", config.run or "")
    encoder = pretrained.model
    weights = {"pretrained": pretrained.weights}
    if "untrained" in starts:
        weights["untrained"] = encoder.init(config.seed)
    if "supervised" in starts:
        supervised = _read_encoder("supervised_run", config.supervised_run or "")
        if _architecture(supervised.model) != _architecture(encoder):
            raise ConfigurationError(
                f"--supervised_run has the encoder {_architecture(supervised.model)}, and --run "
                f"has {_architecture(encoder)}: they must be the same"
            )
        weights["supervised"] = supervised.weights
    return encoder, weights


def _read_encoder(flag: str, path: str):
    """The encoder that a flag names: a `StoredEncoder` with a ResNet for colour images."""
    from tff_ssl.deployment import encoder_weights
    from tff_ssl.models import resnet
    from tff_ssl.models.dual_encoder import DualEncoder

    if not pathlib.Path(path).exists():
        raise ConfigurationError(f"--{flag}={path} does not exist")
    stored = encoder_weights.read(run_folder.encoder_of(pathlib.Path(path)))
    model, channels = stored.model, stored.image_shape[-1]
    if not isinstance(model, DualEncoder):
        raise ConfigurationError(f"--{flag}={path} has two towers, and Mask R-CNN takes one")
    if model.encoder not in resnet.RESNETS:
        raise ConfigurationError(
            f"--{flag}={path} has the encoder {model.encoder_name}, and Mask R-CNN needs a ResNet "
            f"({', '.join(resnet.RESNETS)})"
        )
    if channels != 3:
        raise ConfigurationError(
            f"--{flag}={path} encodes images of {channels} channels, and COCO's have 3"
        )
    return stored


def _architecture(encoder) -> str:
    """The properties that two encoders must share."""
    return f"{encoder.encoder} ({encoder.norm} norm, first stage of stride {encoder.first_stride})"


def _announce(network, encoder, data, starts, folder, values, config: DetectConfig) -> None:
    note = ""
    if encoder.first_stride == 1:
        note = (
            "\nnote: the encoder was trained on images of less than 96 pixels, so that its first "
            "stage has stride 1, which takes many times the operations of stride 4"
        )
    size = f"{values.image_size}x{values.image_size}"
    print(
        f"Mask R-CNN on {_architecture(encoder)}, {network.parameter_count:,} parameters\n"
        f"{len(data.train)} training and {len(data.validation)} validation images of "
        f"{config.data_dir}, scaled to {size}, {len(data.train.class_names)} classes\n"
        f"{config.rounds} steps of {values.batch_size} images from each start: "
        f"{', '.join(starts)}\n"
        f"{hyperparameters.describe(values, ())}{note}\nresults go to {folder}/",
        flush=True,
    )


def _result(results: dict[str, dict], encoder, data, config: DetectConfig) -> dict[str, Any]:
    """The entry of `result.json`: the first start, with the others as baselines."""
    first, *others = results
    return {
        "protocol": "detection",
        "dataset": pathlib.Path(config.data_dir or "").resolve().name,
        "encoder": encoder.encoder,
        "norm": encoder.norm,
        "train_images": len(data.train),
        "validation_images": len(data.validation),
        "start": first,
        **results[first],
        "baselines": {name: results[name] for name in others},
    }


def _table(results: dict[str, dict[str, Any]]) -> str:
    keys = (
        "box_ap", "box_ap50", "box_ap75", "mask_ap", "mask_ap50", "mask_ap75", "train_box_ap",
        "train_mask_ap",
    )  # fmt: skip
    titles = ["box AP", "AP50", "AP75", "mask AP", "AP50", "AP75", "train box AP", "train mask AP"]
    rows = [["start", *titles, "loss"]]
    for name, result in results.items():
        loss = f"{result['first_loss']:.2f} -> {result['last_loss']:.2f}"
        rows.append([name, *(f"{100 * result[key]:.1f}" for key in keys), loss])
    return tables.aligned(rows)


SCRIPT = app.Script("detect", main, DetectConfig, resumes=True)

if __name__ == "__main__":
    app.run(SCRIPT)
