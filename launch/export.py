"""Exports a run's encoder to TFLite, Keras or ONNX, or for release; or a client of its algorithm.

    python -m launch.export --run=RUN --format=tflite
    python -m launch.export --run=RUN --format=client --output_dir=PACKAGE

Every format takes uint8 images of any batch size and gives features. TFLite is written as float32
and as int8, calibrated on training images. Prints, and writes to `export.json`, each file's size,
the time of one image on this CPU, the largest difference from the encoder's features, and the
accuracy of the linear probe on the converted features.

`--format=release` writes a folder for others: the encoder, and `MODEL_CARD.md` with data, training,
figures, licence, intended use and limits.

`--format=client` writes a client package: what a client and the server of the algorithm compute in
a round, as SavedModels that need TensorFlow and nothing else (docs/production.md). It starts with
the run's model; without `--run`, with initial weights of `--algorithm`. `--format=client-tflite`
adds the client's part for LiteRT.

The images of a run of `tff_ssl.train` cannot be read again: features are then compared on random
images, and there is no int8 file and no probe, unless `--dataset` and `--data_dir` name images.

A run that was stopped has no encoder yet. That of its last readable checkpoint is exported, and
also written to `encoder/` in the output folder.
"""

import dataclasses
import functools
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from datasets import catalog
from datasets.image_dataset import NO_LABEL, ImageDataset, Split
from launch.options import app, command_line, data, presets, resuming, settings
from launch.options.image_config import DataConfig
from launch.options.run_config import EvaluationConfig, RunConfig, ScriptConfig
from launch.options.settings import flag, section
from launch.outputs import output_folder, run_folder, tables
from launch.probes import latency, result_text
from tff_ssl import whole_files
from tff_ssl.errors import ConfigurationError


@dataclasses.dataclass(frozen=True)
class ExportConfig(ScriptConfig):
    """What is exported.

    Attributes:
      run: Folder of a pretraining run, which may have been stopped, or of its encoder/.
      format: Formats: tflite (float32 and int8), keras (a folder for tf.keras.models.load_model),
        onnx (needs the extra `onnx`), release (a folder with the encoder and its model card); or
        client and client-tflite (a client package).
      licence: release: the licence of the weights, such as cc-by-4.0.
      intended_use: release: what the encoder is meant for.
      calibration_images: tflite: number of training images, drawn with --seed, that set the ranges
        of int8.
      algorithm: The package.module:ENTRY of a stopped run of your own algorithm. It is imported
        only if it is given here, because the run may be somebody else's. Without --run: the
        algorithm of a client package.
      encoder: The MODULE:FUNCTION of a stopped run of your own encoder, likewise. Without --run:
        the encoder of a client package.
      rounds: Without --run: number of rounds for which a client package has schedules.
      hparam: Without --run: a hyperparameter of a client package's algorithm, NAME=VALUE.
    """

    run: str | None = None
    format: tuple[str, ...] = ("tflite",)
    licence: str | None = None
    intended_use: str = (
        "Research. Evaluate the encoder on your own images before you rely on its features."
    )
    calibration_images: int = flag(200, 1)
    algorithm: str | None = None
    encoder: str | None = None
    rounds: int | None = flag(None, 1)
    hparam: tuple[str, ...] = flag((), repeated=True)
    data: DataConfig = section(DataConfig)
    evaluation: EvaluationConfig = section(EvaluationConfig)


_FORMATS = ("tflite", "keras", "onnx", "release")
_CLIENT_FORMATS = ("client", "client-tflite")
_COMPARED_IMAGES = 1000  # Largest number of images on which features are compared.
_RANDOM_IMAGES = 64  # If there are no others.
_BATCH = 64
_WARM_UP, _TIMED = 5, 50  # Calls for the latency.
# Flags that are taken from the run.
_RUN_FLAGS = (
    *data.IMAGE_FLAGS, "seed", "probe", "also_logistic", "per_case", "labels_per_class",
    "labels", "label_draws",
)  # fmt: skip

Encode = Callable[[np.ndarray], np.ndarray]


class Converted(NamedTuple):
    """A converted encoder.

    Attributes:
      path: Its file or folder, before the move to the output folder; None before conversion.
      encode: Images uint8 [n, h, w, c] -> features float32 [n, d].
    """

    path: pathlib.Path | None
    encode: Encode


def main(config: ExportConfig) -> None:
    from launch.runs import stopped
    from tff_ssl.deployment import encoder_weights, export, saved_model

    for name in config.format:
        if name not in _FORMATS + _CLIENT_FORMATS:
            known = ", ".join(_FORMATS + _CLIENT_FORMATS)
            raise ConfigurationError(f"--format takes {known}; got {name!r}")
    for name in ("rounds", "hparam"):
        if config.run and name in config.given:
            raise ConfigurationError(f"--{name} is for --format=client without --run")
    if set(config.format) & set(_CLIENT_FORMATS):
        _export_client(config)
        return
    if not config.run:
        raise ConfigurationError("--run is missing: name the folder of a run or of an encoder")
    if "onnx" in config.format:
        export.check_onnx()
    run = pathlib.Path(config.run)
    folder_of_run = run_folder.run_of(run)
    of_run = resuming.read_run(folder_of_run)
    if "release" in config.format and not (of_run and config.licence):
        raise ConfigurationError(
            "--format=release needs the folder of a run, and --licence for its weights"
        )
    if of_run:
        config = resuming.take_over(config, settings.flat(of_run), _RUN_FLAGS, folder_of_run)
    is_stopped = run_folder.is_stopped(run)
    folder = run_folder.encoder_of(run)
    stored = None if is_stopped else encoder_weights.read(folder)
    if stored and config.data.dataset == catalog.ARRAYS:
        dataset = _noise(stored.image_shape, config)
    else:
        dataset = data.load_dataset(config.data)
    done = None  # Rounds of a run that was stopped.
    if stored is None:
        stored, done = stopped.restore_encoder(run, dataset)
    data.check_image_shape(dataset, stored.image_shape, f"the encoder in {folder}")
    output = pathlib.Path(config.output.output_dir) if config.output.output_dir else run / "export"
    run_folder.make(output)
    source = f"{folder}/{'checkpoints/' if is_stopped else ''}"
    print(f"exporting the encoder in {source} to {', '.join(config.format)}", flush=True)
    # TensorFlow takes the `[` of a path for the beginning of a pattern.
    with tempfile.TemporaryDirectory(prefix="tff_ssl_export_") as without_brackets:
        new = pathlib.Path(without_brackets)
        if is_stopped:
            saved_model.save_encoder(new / "encoder", *stored)
        converted = _convert(stored, dataset.train.images, new, config)
        results = _measure(converted, dataset, config)
        run_folder.write_json(new / "export.json", results)
        if "release" in config.format:
            probes: list[Mapping[str, Any]] = [
                {**probe, "baselines": {}} for probe in results[0]["probe"]
            ]
            _write_card(new / "release", run, stored, done, probes, config)
        with tempfile.TemporaryDirectory(prefix=".export_", dir=output) as scratch:
            try:
                shutil.copytree(new, scratch, dirs_exist_ok=True)
            except shutil.Error as error:  # It lists each file; the reason is the same.
                reason = error.args[0][0][2]
                raise ConfigurationError(f"{output} cannot be written to: {reason}") from error
            for path in pathlib.Path(scratch).iterdir():
                whole_files.remove(output / path.name)
                path.rename(output / path.name)
    names = ["encoder/"] * is_stopped + [f.path.name for f in converted.values() if f.path]
    print(f"\n{_table(results)}\n\nwritten to {output}/: {', '.join([*names, 'export.json'])}")


def _noise(image_shape: tuple[int, int, int], config: ExportConfig) -> ImageDataset:
    """Random test images without labels, in place of those of a run on arrays of a program."""
    has_int8 = "tflite" in config.format
    print(
        "note: the images of this run were arrays of a program: features are compared on random "
        "images, without a probe" + ", and there is no int8 file, whose calibration needs images "
        "(--dataset and --data_dir name some)" * has_int8,
        flush=True,
    )
    shape = (_RANDOM_IMAGES, *image_shape)
    images = np.random.default_rng(config.seed).integers(0, 256, shape, np.uint8)
    test = Split(images, np.full(len(images), NO_LABEL, np.int32), np.arange(len(images)))
    return ImageDataset(catalog.ARRAYS, test.take(slice(0, 0)), test, ())


def _export_client(config: ExportConfig) -> None:
    """Writes a client package, and prints what its stages cost."""
    from launch.runs import client_packages
    from tff_ssl import client

    if not set(config.format) <= set(_CLIENT_FORMATS):
        raise ConfigurationError(
            "--format: export a client package by itself, without other formats"
        )
    of_run = _run_config(config)
    folder = output_folder.choose_empty(config.output.output_dir, "client")
    run = pathlib.Path(config.run) if config.run else None
    lite = "client-tflite" in config.format
    rows, select = client_packages.export(of_run, run, folder, lite)
    print(f"\n{_client_table(rows)}")
    if lite:
        size = (folder / client.LITE).stat().st_size
        names = ", ".join(select) or "none"
        print(f"\n{client.LITE}: {size / 1e6:.2f} MB; operations of TensorFlow (select): {names}")
    print(f"\nwritten to {folder}/: {', '.join(sorted(p.name for p in folder.iterdir()))}")


def _run_config(config: ExportConfig) -> RunConfig:
    """The configuration of the run whose client is exported, or of the flags without a run."""
    if config.run:
        folder = run_folder.run_of(pathlib.Path(config.run))
        of_run = resuming.read_run(folder)
        if of_run is None:
            raise ConfigurationError(f"--run={config.run} is not the folder of a run")
        taken = resuming.take_over(config, settings.flat(of_run), data.IMAGE_FLAGS, folder)
        return dataclasses.replace(of_run, data=taken.data)
    if not config.algorithm:
        raise ConfigurationError("--format=client needs --run=RUN, or --algorithm=NAME")
    preset = presets.of_algorithm(config.algorithm, config.data.dataset)
    names = [name for name in config.given if name in settings.settings(RunConfig, "pretrain")]
    arguments = [f"--flagfile={preset}"] if preset else []
    arguments += resuming.as_arguments(config, set(names) - {"output_dir"})
    return command_line.parse(RunConfig, "pretrain", ["export", *arguments])[0]


def _client_table(rows: list[dict[str, Any]]) -> str:
    """What a client of each stage receives, sends and computes."""
    lines = [["stage", "down", "up", "one step"]]
    if "lite_difference" in rows[0]:
        lines[0] += ["LiteRT", "its memory", "difference"]
    for row in rows:
        line = [row["stage"], *(f"{row[f'bytes_{way}']:,} bytes" for way in ("down", "up"))]
        line.append(f"{row['milliseconds']:.1f} ms")
        if "lite_difference" in row:
            line += [f"{row['lite_milliseconds']:.1f} ms", f"{row['lite_peak_mb']:.0f} MB",
                     f"{row['lite_difference']:.1g}"]  # fmt: skip
        lines.append(line)
    images = rows[0]["images"]
    return f"{tables.aligned(lines)}\n(a step of a client of {images} images, on this CPU)"


def _convert(
    stored, images: np.ndarray, output: pathlib.Path, config: ExportConfig
) -> dict[str, Converted]:
    """Writes the encoder in all formats; returns itself and the results by name."""
    import tensorflow as tf

    from tff_ssl.deployment import encoder, export, saved_model

    module = saved_model.EncoderModule(*stored)
    converted = {"encoder": Converted(None, lambda x: module.encode(tf.constant(x))["h"].numpy())}
    if "tflite" in config.format:
        order = np.random.default_rng(config.seed).permutation(len(images))
        drawn = order[: config.calibration_images]
        calibrations = {"float32": None} | ({"int8": images[np.sort(drawn)]} if len(drawn) else {})
        for name, calibration in calibrations.items():
            path = output / f"encoder_{name}.tflite"
            encode = export.to_tflite(stored, path, calibration)
            converted[f"tflite {name}"] = Converted(path, encode)
    if "keras" in config.format:
        path = output / "encoder_keras"
        converted["keras"] = Converted(path, export.to_keras(stored, path))
    if "onnx" in config.format:
        path = output / "encoder.onnx"
        converted["onnx"] = Converted(path, export.to_onnx(stored, path))
    if "release" in config.format:
        path = output / "release"
        saved_model.save_encoder(path / "encoder", *stored)
        converted["release"] = Converted(path, encoder.load_encoder(path))
    return converted


def _write_card(
    path: pathlib.Path, folder: pathlib.Path, stored, done: int | None,
    probes: list[Mapping[str, Any]], config: ExportConfig,
) -> None:  # fmt: skip
    """Writes the card of an encoder, with the export's own figures if the run has none of it.

    `done` is the number of rounds of a run that was stopped, whose metrics may go on after them.
    """
    from launch.pages import model_card, run_files

    folder, of_run = folder.absolute(), run_folder.run_of(folder)
    run = run_files.read(of_run)
    of_own_images = [result for result in run.results if "pretrained_on" not in result]
    run = run._replace(results=of_own_images or probes, metrics=run.metrics[:done])
    if done is None and run_folder.encoder_of(folder) != run_folder.encoder_of(of_run):
        # A client's model, of which the run's results are not.
        model = str(folder.relative_to(of_run))
        whose = {"encoder": stored.model.encoder_name, "model": model}
        own = {"flags": {**run.flags, **whose}, "given": [*run.config["given"], "model"]}
        run = run._replace(results=probes, config={**run.config, **own})
    card = model_card.text(run, stored, str(config.licence), config.intended_use)
    whole_files.write(path / model_card.FILE_NAME, card)


def _measure(
    converted: dict[str, Converted], dataset, config: ExportConfig
) -> list[dict[str, Any]]:
    """Size, latency, difference of the features and accuracy of the encoder and every file."""
    from launch.probes import probing

    source = dataset.test if len(dataset.test) else dataset.train
    images = source.images[:_COMPARED_IMAGES]
    expected = _in_batches(converted["encoder"].encode, images)
    results: list[dict[str, Any]] = []
    for name, (path, encode) in converted.items():
        files = path.rglob("*") if path and path.is_dir() else [path]
        size = sum(file.stat().st_size for file in files if file and file.is_file())
        difference = np.abs(_in_batches(encode, images) - expected)
        milliseconds = latency.median_milliseconds(encode, images[:1], _TIMED, _WARM_UP)
        results.append(
            {
                "name": name,
                "path": path and path.name,
                "bytes": path and size,
                "milliseconds": round(milliseconds, 3),
                "largest_difference": float(difference.max()),
                "feature_std": float(expected.std()),
                "probe": [],
            }
        )
    kinds = {name: functools.partial(_in_batches, file.encode) for name, file in converted.items()}
    for probed in probing.linear_probes(dataset, kinds, config.evaluation, config.seed):
        about = {key: probed[key] for key in ("protocol", "labels", "labels_per_class")}
        scores = {"encoder": probed, **probed["baselines"]}
        for result in results:
            names = ("accuracy", "accuracy_std", "balanced_accuracy")
            own = {key: scores[result["name"]][key] for key in names}
            result["probe"].append(about | own)
    return results


def _in_batches(encode: Encode, images: np.ndarray) -> np.ndarray:
    starts = range(0, len(images), _BATCH)
    return np.concatenate([encode(images[start : start + _BATCH]) for start in starts])


def _table(results: list[dict[str, Any]]) -> str:
    header = ["", "size", "one image", "largest difference"]
    rows = [header + [result_text.labels_text(probe) for probe in results[0]["probe"]]]
    for result in results:
        written = result["bytes"] is not None
        size = f"{result['bytes'] / 1e6:.2f} MB" if written else ""
        difference = f"{result['largest_difference']:.2g}" if written else ""
        scores = [f"{p['accuracy']:.3f} ± {p['accuracy_std']:.3f}" for p in result["probe"]]
        time_of_one = f"{result['milliseconds']:.2f} ms"
        rows.append([result["name"], size, time_of_one, difference, *scores])
    probes = "linear probe, test accuracy" if results[0]["probe"] else "no labels, no probe"
    deviation = f"features have a standard deviation of {results[0]['feature_std']:.2g}"
    return f"{tables.aligned(rows)}\n({probes}; {deviation})"


SCRIPT = app.Script("export", main, ExportConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
