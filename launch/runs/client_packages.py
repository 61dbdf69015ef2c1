"""Writes the client packages of runs; see `tff_ssl.deployment.client_package`."""

import os
import pathlib
import shutil
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from datasets.image_dataset import ImageDataset
from launch.options import adapting, settings
from launch.options import algorithm as algorithm_options
from launch.options.algorithm import Chosen
from launch.options.run_config import AggregationConfig, RunConfig
from launch.options.settings import json_value
from launch.outputs import run_folder
from launch.probes import latency
from launch.runs import federated, stopped
from launch.runs.federated import Built
from tff_ssl import __version__, client, whole_files
from tff_ssl.deployment import client_package, saved_model
from tff_ssl.errors import ConfigurationError
from tff_ssl.kinds.protocol import Need
from tff_ssl.objectives.registry import OBJECTIVES
from tff_ssl.runtime import process_memory, start

_MEASURED_IMAGES = 4  # Of the client whose stages are measured, if it may be that small.
_TIMED = 5  # Calls of a stage.


def build(chosen: Chosen, dataset: ImageDataset) -> Built:
    """Builds the parts of a run whose clients can be packaged.

    Raises:
      ConfigurationError: If they cannot; the message says why.
    """
    config, name = chosen.config, chosen.config.algorithm.algorithm
    if OBJECTIVES[config.objective].supervised:
        raise ConfigurationError(
            f"--format=client: clients of --objective={config.objective} need labels, which a "
            "client package does not take"
        )
    if config.aggregation != AggregationConfig() or config.privacy.dp_adaptive_clipping:
        raise ConfigurationError(
            "--format=client: a package has plain means, or private ones with a fixed clip; it was "
            "asked for --aggregator, --symmetric_statistics or --dp_adaptive_clipping"
        )
    built = federated.build(chosen, dataset)
    if not built.algorithm.plain_stages:
        raise ConfigurationError(
            f"--format=client: {name} has no client package: {_reason(chosen)}"
        )
    return built


def _reason(chosen: Chosen) -> str:
    needs = chosen.entry.kind.needs
    if Need.NETWORK in needs:
        return "its clients exchange models with each other, without a server"
    if Need.POPULATION in needs:
        return "its clients have different models, and train on images of the server, too"
    if chosen.entry.collects:
        return f"its server reads {chosen.entry.collects} of each client"
    return "its clients and its server need the number of each client in the population"


def initial_states(built: Built, trained: Any = None) -> tuple[Any, Any]:
    """The states of the server and of a client before the first round, as a package has them.

    Args:
      trained: State of a simulation whose model replaces the initial weights; None for none.
    """
    with start("in_process"):
        server, of_client = built.algorithm.initial_states(built.chosen.config.seed, trained)
    return _without_aggregators(server), of_client


def _without_aggregators(state: Any) -> Any:
    """The server's state without those of TFF's aggregators: a package forms its own means."""
    of_aggregators = ("aggregator", "aggregators", "statistics_aggregator")
    state = state._replace(**{name: () for name in of_aggregators if name in state._fields})
    work = getattr(state, "client_work", None)
    if hasattr(work, "_fields"):
        state = state._replace(client_work=_without_aggregators(work))
    return state


def write(
    folder: pathlib.Path, built: Built, dataset: ImageDataset, trained: Any = None
) -> dict[str, Any]:
    """Writes the package into an empty folder, and returns its manifest.

    Args:
      trained: State of a simulation whose model the package starts with; None for initial weights.
    """
    config, values = built.chosen.config, built.chosen.values
    server_state, client_state = initial_states(built, trained)
    height, width, channels = dataset.train.images.shape[1:]
    description = {
        "release": __version__,
        "algorithm": config.algorithm.algorithm,
        "objective": config.objective,
        "encoder": config.model.encoder,
        "views": config.model.views,
        "rounds": config.rounds,
        "hyperparameters": {key: json_value(value) for key, value in vars(values).items()},
        "smallest_client": built.chosen.entry.min_samples(config.objective, values),
    }
    # The update of an algorithm is the mean `delta` of its stage.
    private = built.aggregation.private
    rules = {"delta" if name == "update" else name: rule for name, rule in private.items()}
    description |= built.aggregation.result
    encoder = saved_model.encoder_function(built.model, config.model.view_size)

    def encode(state: Any, images: tf.Tensor) -> tf.Tensor:
        return encoder(built.algorithm.encoder_weights(state), images)

    has_encoder = built.algorithm.encoder_weights(server_state) is not None
    return client_package.write(
        folder, built.algorithm.plain_stages, server_state, client_state,
        (height, width, channels), description, rules, encode if has_encoder else None,
    )  # fmt: skip


def export(
    config: RunConfig, run: pathlib.Path | None, folder: pathlib.Path, lite: bool
) -> tuple[list[dict[str, Any]], list[str]]:
    """Writes the package of a configuration to a new folder.

    Args:
      run: The run of the configuration, with whose model the package starts; None for initial
        weights.
      lite: Whether it has a LiteRT model.

    Returns:
      What each stage costs (`measure`), and the select operations of the LiteRT model.
    """
    chosen = algorithm_options.choose(settings.replace(config, **federated.ALONE))
    dataset = federated.load(chosen.config)
    config = adapting.fit_evaluation(dataset, chosen.config)
    built = build(chosen._replace(config=config), dataset)
    print(
        f"client package of {config.algorithm.algorithm} with {config.objective}, for images of "
        f"{'x'.join(map(str, dataset.train.images.shape[1:]))}; it goes to {folder}/",
        flush=True,
    )
    trained = None
    if run is not None:
        folder_of_run = run_folder.run_of(run)
        run_folder.lock(folder_of_run, "--run")
        trained, _, done = stopped.restore_state(built, folder_of_run)
        print(f"its model is that of round {done:,} of {folder_of_run}", flush=True)
    # TensorFlow takes the `[` of a path for the beginning of a pattern.
    with tempfile.TemporaryDirectory(prefix="tff_ssl_client_") as without_brackets:
        new = pathlib.Path(without_brackets) / "client"
        new.mkdir()
        manifest = write(new, built, dataset, trained)
        select: list[str] = []
        if lite:
            converted = client_package.to_tflite(new, manifest)
            select = client_package.select_operations(converted.read_bytes())
            client_package.write_manifest(new, {**manifest, "select_operations": select})
        rows = measure(new, dataset, lite)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with whole_files.replacing_folder(folder) as target:
            shutil.copytree(new, target, dirs_exist_ok=True)
    return rows, select


def measure(folder: pathlib.Path, dataset: ImageDataset, lite: bool) -> list[dict[str, Any]]:
    """What each stage costs a client on this machine.

    Args:
      folder: Folder of the package.
      dataset: Its first training images are those of the client.
      lite: Whether the LiteRT model is measured, too, and compared with the SavedModel.

    Returns:
      A row for each stage, with bytes, milliseconds and, for LiteRT, the growth of the resident
      memory in its steps and the largest difference of what it sends, relative to the largest value
      of each tensor.
    """
    package = client.load(folder)
    count = max(package.manifest["smallest_client"], _MEASURED_IMAGES)
    images, ids = dataset.train.images[:count], np.arange(count)
    state, rows = package.initial_state(), []
    for stage in package.manifest["stages"]:
        name = stage["name"]
        down, memory = package.broadcast(name, state), package.initial_memory()

        def work(of: client.Package, name=name, down=down, memory=memory) -> client.Arrays:
            return of.work(name, down, memory, images, ids, 0)[0]

        sent = work(package)
        row = {key: stage[key] for key in ("bytes_down", "bytes_up")}
        row |= {"stage": name, "images": count}
        row["milliseconds"] = latency.median_milliseconds(work, package, _TIMED)
        if lite:
            # Loaded for each stage, so that its memory is that of the stage alone.
            before = process_memory.tree_resident(os.getpid())
            watch = process_memory.MemoryWatch(os.getpid())
            on_phone = client.load(folder, lite=True)
            row["lite_difference"] = _largest_difference(work(on_phone), sent)
            row["lite_milliseconds"] = latency.median_milliseconds(work, on_phone, _TIMED)
            watch.stop()
            row["lite_peak_mb"] = max(watch.peak - before, 0) / 1e6
        rows.append(row)
        state, _ = package.finish(name, state, sent)
    return rows


def _largest_difference(values: client.Arrays, expected: client.Arrays) -> float:
    return max(
        float(np.abs(values[name] - value).max() / max(np.abs(value).max(), 1e-12))
        for name, value in expected.items()
        if value.size
    )
