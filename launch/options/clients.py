"""Builds the clients and their images."""

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np

from datasets import feature_clusters, partition, shift
from datasets.image_dataset import ImageDataset, Split
from launch.options import data
from launch.options.image_config import ClientsConfig
from launch.options.run_config import RunConfig
from launch.outputs import commands, run_folder
from tff_ssl.errors import ConfigurationError, naming
from tff_ssl.objectives.registry import OBJECTIVES

PIXELS = "pixels"
_CLUSTER_STREAM = 0xC1  # Separates the clusters' random stream from the partition's.


def cluster_ids(dataset: ImageDataset, config: ClientsConfig, seed: int) -> np.ndarray | None:
    """The feature cluster of each training image, int32 [n]; None for other partitions.

    Raises:
      DatasetError: If there are more clusters than different features.
    """
    if config.partition != "feature_clusters":
        return None
    rng = np.random.default_rng([seed, _CLUSTER_STREAM])
    return feature_clusters.cluster(_features(dataset, config), rng, config.clusters)


def _features(dataset: ImageDataset, config: ClientsConfig) -> np.ndarray:
    """The features of the training images by which they are clustered, float32 [n, d]."""
    from tff_ssl.deployment import saved_model
    from tff_ssl.evaluation import features

    if not config.cluster_encoder:
        flags_of_paper = "--objective=supervised", f"--dataset={dataset.name}"
        command = commands.module("launch.centralized", *flags_of_paper, "--output_dir=FOLDER")
        raise ConfigurationError(
            "--partition=feature_clusters needs --cluster_encoder=FOLDER, the folder of a run or "
            f"of its encoder/ (`{command}` makes one as in the Dec-SSL paper), or "
            f"--cluster_encoder={PIXELS} for the images themselves"
        )
    images = dataset.train.images
    if config.cluster_encoder == PIXELS:
        return features.raw_pixels(images)
    folder = pathlib.Path(config.cluster_encoder)
    with naming("--cluster_encoder"):
        encoder = saved_model.load_encoder(run_folder.encoder_of(folder))
    data.check_image_shape(dataset, encoder.image_shape, f"--cluster_encoder={folder}")
    return features.extract(encoder, images)


def partition_dataset(
    dataset: ImageDataset,
    config: ClientsConfig,
    seed: int,
    clusters: np.ndarray | None = None,
    min_client_size: int | None = None,
) -> list[np.ndarray]:
    """The indices of each client's training images, int64 [size of the client].

    Args:
      clusters: Result of `cluster_ids` for the same arguments, if known.
      min_client_size: Smallest client size; None for that of the configuration.
    """
    smallest = min_client_size or config.min_client_size
    clients = partition.make(
        config.partition,
        dataset.train,
        seed,
        alpha=config.alpha,
        beta=config.beta,
        num_clients=config.num_clients,
        samples_per_client=config.samples_per_client,
        classes_per_client=config.classes_per_client,
        balance_sizes=config.balance_sizes,
        random_sizes=config.random_sizes,
        min_client_size=partition.size_before_fraction(smallest, config.data_fraction),
        cluster_ids=cluster_ids(dataset, config, seed) if clusters is None else clusters,
        cluster_partition=config.cluster_partition,
    )
    return partition.keep_fraction(clients, config.data_fraction, seed)


def large_enough(
    clients: list[np.ndarray], least: int, config: RunConfig
) -> tuple[list[np.ndarray], int]:
    """The clients that are large enough for the objective, and the number of the others."""
    settings, objective = config.clients, config.objective
    kept = [client for client in clients if len(client) >= least]
    small = len(clients) - len(kept)
    if small and not (settings.skip_small_clients and kept):
        options = ["leave them out with --skip_small_clients"] if kept else []
        flags_read = partition.flags_of(settings.partition, settings.cluster_partition)
        if "balance_sizes" in flags_read or settings.random_sizes:
            options.append(f"fill them up with --min_client_size={least}")
        elif "samples_per_client" in flags_read:
            options.append("take larger ones with --samples_per_client")
        elif "num_clients" in flags_read:
            options.append("take fewer and larger ones with --num_clients")
        advice = ", ".join(options) or "take another --partition than per_case"
        if least > OBJECTIVES[objective].min_samples:
            advice += ", or lower the bound with --hparam=min_samples=N"
        raise ConfigurationError(
            f"--objective={objective} with {config.algorithm.algorithm} needs clients of at least "
            f"{least} examples, and {small} of {len(clients)} have fewer: {advice}"
        )
    return kept, small


def client_images(split: Split, clients: list[np.ndarray], config: ClientsConfig) -> Split:
    """The images with their clients' input shifts."""
    if config.shift == "none":
        return split
    shifted = shift.shift_clients(config.shift, split.images, clients, config.shifts)
    return dataclasses.replace(split, images=shifted)


def dataset_of_client(
    dataset: ImageDataset, client: int, num_clients: int, config: ClientsConfig
) -> ImageDataset:
    """A data set with one client's input shift on all images, test images too."""
    if config.shift == "none":
        return dataset

    def shifted(split: Split) -> Split:
        kind, shifts = config.shift, config.shifts
        images = shift.shift_as_client(kind, split.images, client, num_clients, shifts)
        return dataclasses.replace(split, images=images)

    return dataclasses.replace(dataset, train=shifted(dataset.train), test=shifted(dataset.test))


def by_shift(
    clients: Sequence[int], num_clients: int, config: ClientsConfig
) -> dict[int | None, list[int]]:
    """Clients by the number of their shift; None for the original images."""
    groups: dict[int | None, list[int]] = {}
    for client in clients:
        number = shift.shift_number(client, num_clients, config.shifts)
        groups.setdefault(None if config.shift == "none" else number, []).append(client)
    return groups
