"""Rebuilds what a run's page shows from the run's folder."""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from datasets.image_dataset import ImageDataset
from launch.options import clients as client_options
from launch.options import data, defaults, hyperparameters, resuming, settings
from launch.options import model as model_options
from launch.options.run_config import RunConfig
from launch.options.script_configs import VisualizeConfig
from launch.outputs import partition_record
from launch.pages import run_page
from launch.pages.image_samples import Encode
from launch.pages.run_page import Shown
from tff_ssl.algorithms import registry
from tff_ssl.deployment import saved_model
from tff_ssl.errors import ConfigurationError
from tff_ssl.kinds.protocol import Need

_NOT_TAKEN = {"output_dir", "encoders"}  # Flags with another meaning in this script.


class Rebuilt(NamedTuple):
    """What a page needs besides the files of a run."""

    # The configuration of the script, with the run's values for flags that are not given.
    own: VisualizeConfig
    shown: Shown | None  # Images and encodings; None for a run that has no encoder yet.
    # Content of `partition.json` for a run that has none; None if that is impossible.
    partition: Mapping[str, Any] | None


def rebuild(folder: pathlib.Path, own: VisualizeConfig, draw_seed: int | None = None) -> Rebuilt:
    """Makes the images and encodings of a run's page.

    Args:
      own: The configuration of the script.
      draw_seed: Seed of the images that are drawn; None for that of the run.
    """
    own, config = config_of(folder, own)
    dataset = data.load_dataset(config.data)
    is_recorded = (folder / "partition.json").exists()
    clients, partition = None, None
    if config.clients.shift != "none" or not is_recorded:
        clients = _clients(dataset, config)
    if clients is not None and not is_recorded:
        partition = partition_record.describe_clients(dataset.train, clients, dataset.class_names)
    encoder_folder = folder / "encoder"
    if not encoder_folder.is_dir():
        return Rebuilt(own, None, partition)
    encoder = saved_model.load_encoder(encoder_folder, own.run_saved_model_graph)
    data.check_image_shape(dataset, encoder.image_shape, f"the encoder in {encoder_folder}")
    seen = dataset.train
    if clients is not None:
        seen = client_options.client_images(seen, clients, config.clients)
    encoders: dict[str, Encode] = {run_page.TRAINED: encoder}
    untrained = _untrained(dataset, encoder, config, config.seed)
    if untrained is not None:
        encoders[run_page.UNTRAINED] = untrained
    make_views = model_options.two_views(config.model, config.seed)
    seed = config.seed if draw_seed is None else draw_seed
    return Rebuilt(own, run_page.compute(dataset, seen, make_views, encoders, seed), partition)


def config_of(folder: pathlib.Path, own: VisualizeConfig) -> tuple[VisualizeConfig, RunConfig]:
    """The configurations of the script and of the run, each with what the other one gives."""
    run = resuming.read_run(folder)
    assert run
    of_run = settings.flat(run)
    own = resuming.take_over(own, of_run, of_run.keys() - _NOT_TAKEN, folder)
    shared = {n: v for n, v in settings.flat(own).items() if n not in _NOT_TAKEN}
    # Defaults that depend on the data set are the run's, unless another data set is given; the
    # size of views always is.
    config = settings.replace(dataclasses.replace(run, given=run.given | own.given), **shared)
    kept = {"view_size"} if "dataset" in own.given else {n for n, v in shared.items() if v}
    return own, defaults.resolve(config, run.objective, kept)


def _clients(dataset: ImageDataset, config: RunConfig) -> list[np.ndarray] | None:
    """The indices of each client's training images; None if there are none or they are unknown."""
    if config.script != "pretrain":
        return None
    try:
        entry = registry.find(config.algorithm.algorithm, None)
    except ConfigurationError:  # Code that the run names, and not the user.
        return None
    if Need.POPULATION in entry.kind.needs:  # The server has images too.
        return None
    values = hyperparameters.parse(entry.hyperparameters, config.algorithm.hparam)
    least = entry.min_samples(config.objective, values)
    clients = client_options.partition_dataset(dataset, config.clients, config.seed)
    if not config.clients.skip_small_clients:
        return clients
    return [client for client in clients if len(client) >= least]


def _untrained(
    dataset: ImageDataset, encoder: saved_model.LoadedEncoder, config: RunConfig, seed: int
) -> Encode | None:
    """The run's untrained encoder with the architecture of `encoder`; None if that is unknown."""
    shapes = [w.shape for w in encoder.weights.trainable]
    for name in dict.fromkeys([config.model.encoder, *config.model.encoders]):
        try:
            model = model_options.build_model(
                dataset, config.model, config.objective, name, seed=seed
            )
        except ConfigurationError:
            continue
        weights = model.init(seed)
        network, _ = model.without_heads(weights)
        if [spec.shape for spec in network.trainable_specs] == shapes:
            function = saved_model.encoder_function(model, config.model.view_size)
            return functools.partial(function, weights)
    return None
