"""Makes what a run's page shows from the run's folder alone, after the run."""

import functools
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from datasets.image_dataset import ImageDataset
from launch.options import clients as client_options
from launch.options import data, hyperparameters
from launch.options import model as model_options
from launch.outputs import partition_record, run_folder
from launch.pages import run_page
from launch.pages.image_samples import Encode
from launch.pages.run_page import Shown
from tff_ssl.algorithms import registry
from tff_ssl.deployment import saved_model
from tff_ssl.errors import ConfigurationError
from tff_ssl.templates.federated_algorithm import Need

_NOT_TAKEN = {"output_dir", "encoders"}  # Flags that this script has for itself.


class Rebuilt(NamedTuple):
    """What a page needs beside the files of a run.

    Attributes:
      dataset: Data set of the run.
      shown: Images and encodings; None for a run that has no encoder yet.
      partition: Content of `partition.json`, made anew for a run that has none; None where that is
        not possible.
    """

    dataset: ImageDataset
    shown: Shown | None
    partition: Mapping[str, Any] | None


def rebuild(folder: pathlib.Path, args: flags.FlagValues, draw_seed: int | None = None) -> Rebuilt:
    """Makes the images and encodings of a run's page.

    Args:
      folder: Folder of the run.
      args: The flags of this script. The run's own are taken over for those that are not given.
      draw_seed: Seed of the images that are drawn; None for that of the run.

    Raises:
      ConfigurationError: If the flags or the encoder do not belong to the images.
    """
    config = run_folder.read_config(folder)
    settings = run_folder.read_flags(folder)
    # The default partition of a folder of images holds only where the run did not choose one.
    args["partition"].present |= "partition" in config.get("given", ())
    names = [name for name in settings if name in args and name not in _NOT_TAKEN]
    run_folder.take_over(settings, names, args)
    dataset = data.load_dataset(args)
    is_recorded = (folder / "partition.json").exists()
    clients, partition = None, None
    if args.shift != "none" or not is_recorded:
        clients = _clients(dataset, settings, args)
    if clients is not None and not is_recorded:
        partition = partition_record.describe_clients(dataset.train, clients, dataset.class_names)
    encoder_folder = folder / "encoder"
    if not encoder_folder.is_dir():
        return Rebuilt(dataset, None, partition)
    encoder = saved_model.load_encoder(encoder_folder, args.run_saved_model_graph)
    data.check_image_shape(dataset, encoder.image_shape, f"the encoder in {encoder_folder}")
    objective = settings["objective"]
    seen = dataset.train
    if clients is not None:
        seen = client_options.client_images(seen, clients, args)
    encoders: dict[str, Encode] = {run_page.TRAINED: encoder}
    untrained = _untrained(dataset, encoder, objective, settings, args)
    if untrained is not None:
        encoders[run_page.UNTRAINED] = untrained
    make_views = model_options.two_views(dataset, args, objective)
    seed = args.seed if draw_seed is None else draw_seed
    shown = run_page.compute(dataset, seen, make_views, encoders, seed)
    return Rebuilt(dataset, shown, partition)


def _clients(
    dataset: ImageDataset, settings: Mapping[str, Any], args: flags.FlagValues
) -> list[np.ndarray] | None:
    """The indices of each client's training images; None without clients.

    Where the server has images too, they are known from the run's `partition.json` alone.
    """
    if settings.get("script") != "pretrain":
        return None
    entry = registry.find(settings["algorithm"], None)
    if Need.POPULATION in entry.kind.needs:
        return None
    values = hyperparameters.parse(entry.hyperparameters, settings.get("hparam", []))
    least = entry.min_samples(settings["objective"], values)
    clients = client_options.partition_dataset(dataset, args)
    if not settings.get("skip_small_clients"):
        return clients
    return [client for client in clients if len(client) >= least]


def _untrained(
    dataset: ImageDataset,
    encoder: saved_model.LoadedEncoder,
    objective: str,
    settings: Mapping[str, Any],
    args: flags.FlagValues,
) -> Encode | None:
    """The encoder of the run before its training; None if its architecture is not known.

    Where clients have different architectures, it is the one of the encoder.
    """
    shapes = [w.shape for w in encoder.weights.trainable]
    for name in dict.fromkeys([args.encoder, *settings.get("encoders", [])]):
        try:
            model = model_options.build_model(dataset, args, objective, name)
        except ConfigurationError:
            continue
        weights = model.init(settings.get("seed", 0))
        network, _ = model.without_heads(weights)
        if [spec.shape for spec in network.trainable_specs] == shapes:
            function = saved_model.encoder_function(model, model_options.view_size(dataset, args))
            return functools.partial(function, weights)
    return None
