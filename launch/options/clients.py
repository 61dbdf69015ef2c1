"""Builds the clients and their images from the flags."""

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np
from absl import flags

from datasets import feature_clusters, partition, shift
from datasets.image_dataset import ImageDataset, Split
from launch.options import data, defaults
from launch.outputs import commands, run_folder
from tff_ssl.errors import ConfigurationError
from tff_ssl.objectives.registry import OBJECTIVES

PIXELS = "pixels"
_CLUSTER_STREAM = 0xC1  # Separates the clusters' random stream from that of the partition.


def cluster_ids(dataset: ImageDataset, args: flags.FlagValues) -> np.ndarray | None:
    """Clusters the training images by their features; a pure function of the flags.

    Returns:
      The feature cluster of each training image, int32 [n]; None for partitions other than
      `feature_clusters`.

    Raises:
      ConfigurationError: If `--cluster_encoder` is missing, is no encoder, or takes images of
        another shape.
      DatasetError: If there are more clusters than different features.
    """
    if defaults.partition(args) != "feature_clusters":
        return None
    rng = np.random.default_rng([args.seed, _CLUSTER_STREAM])
    return feature_clusters.cluster(_features(dataset, args), rng, args.clusters)


def _features(dataset: ImageDataset, args: flags.FlagValues) -> np.ndarray:
    """The features of the training images by which they are clustered, float32 [n, d]."""
    from tff_ssl.deployment import saved_model
    from tff_ssl.evaluation import features

    if not args.cluster_encoder:
        flags_of_paper = "--objective=supervised", f"--dataset={args.dataset}"
        command = commands.module("launch.centralized", *flags_of_paper, "--output_dir=FOLDER")
        raise ConfigurationError(
            "--partition=feature_clusters needs --cluster_encoder=FOLDER, the folder of a run or "
            f"of its encoder/ (`{command}` makes one as in the Dec-SSL paper), or "
            f"--cluster_encoder={PIXELS} for the images themselves"
        )
    images = dataset.train.images
    if args.cluster_encoder == PIXELS:
        return features.raw_pixels(images)
    folder = pathlib.Path(args.cluster_encoder)
    try:
        encoder = saved_model.load_encoder(run_folder.encoder_of(folder))
    except ConfigurationError as error:
        raise ConfigurationError(f"--cluster_encoder: {error}") from error
    data.check_image_shape(dataset, encoder.image_shape, f"--cluster_encoder={folder}")
    return features.extract(encoder, images)


def partition_dataset(
    dataset: ImageDataset,
    args: flags.FlagValues,
    clusters: np.ndarray | None = None,
    min_client_size: int | None = None,
) -> list[np.ndarray]:
    """Divides the training images between the clients.

    Args:
      dataset: The images.
      args: The flags.
      clusters: Result of `cluster_ids` for the same arguments, if it is known already.
      min_client_size: Smallest client size; None for that of the flags.

    Returns:
      Indices of each client's training images, int64 [size of the client].
    """
    smallest = min_client_size or args.min_client_size
    clients = partition.make(
        defaults.partition(args),
        dataset.train,
        args.seed,
        alpha=args.alpha,
        beta=args.beta,
        num_clients=args.num_clients,
        samples_per_client=args.samples_per_client,
        classes_per_client=args.classes_per_client,
        balance_sizes=args.balance_sizes,
        random_sizes=args.random_sizes,
        min_client_size=partition.size_before_fraction(smallest, args.data_fraction),
        cluster_ids=cluster_ids(dataset, args) if clusters is None else clusters,
        cluster_partition=args.cluster_partition,
    )
    return partition.keep_fraction(clients, args.data_fraction, args.seed)


def large_enough(
    clients: list[np.ndarray], least: int, args: flags.FlagValues
) -> tuple[list[np.ndarray], int]:
    """Leaves out the clients that are too small for the objective.

    Args:
      clients: Indices of each client's training images.
      least: Number of images that a client needs at least.
      args: The flags.

    Returns:
      The clients that are large enough, and the number of clients that are left out.

    Raises:
      ConfigurationError: If there are smaller clients and `--skip_small_clients` is not given, or
        if no client is left.
    """
    kept = [client for client in clients if len(client) >= least]
    small = len(clients) - len(kept)
    if small and not (args.skip_small_clients and kept):
        options = ["leave them out with --skip_small_clients"] if kept else []
        flags_read = partition.flags_of(defaults.partition(args), args.cluster_partition)
        if "balance_sizes" in flags_read or args.random_sizes:
            options.append(f"fill them up with --min_client_size={least}")
        elif "samples_per_client" in flags_read:
            options.append("take larger ones with --samples_per_client")
        elif "num_clients" in flags_read:
            options.append("take fewer and larger ones with --num_clients")
        advice = ", ".join(options) or "take another --partition than per_case"
        if least > OBJECTIVES[args.objective].min_samples:
            advice += ", or lower the bound with --hparam=min_samples=N"
        raise ConfigurationError(
            f"--objective={args.objective} with {args.algorithm} needs clients of at least {least} "
            f"examples, and {small} of {len(clients)} have fewer: {advice}"
        )
    return kept, small


def client_images(split: Split, clients: list[np.ndarray], args: flags.FlagValues) -> Split:
    """The images as their clients see them: with the input shift of the flags."""
    if args.shift == "none":
        return split
    shifted = shift.shift_clients(args.shift, split.images, clients, args.shifts)
    return dataclasses.replace(split, images=shifted)


def dataset_of_client(
    dataset: ImageDataset, client: int, num_clients: int, args: flags.FlagValues
) -> ImageDataset:
    """All images of a data set, test images too, as one of the clients sees them.

    Args:
      dataset: The images without a shift.
      client: Index of the client.
      num_clients: Number of clients of the run.
      args: The flags.
    """
    if args.shift == "none":
        return dataset

    def shifted(split: Split) -> Split:
        images = shift.shift_as_client(args.shift, split.images, client, num_clients, args.shifts)
        return dataclasses.replace(split, images=images)

    return dataclasses.replace(dataset, train=shifted(dataset.train), test=shifted(dataset.test))


def by_shift(
    clients: Sequence[int], num_clients: int, args: flags.FlagValues
) -> dict[int | None, list[int]]:
    """Groups clients by their shift.

    Args:
      clients: Indices of some clients.
      num_clients: Number of clients of the run.
      args: The flags.

    Returns:
      Indices of the clients by the number of their shift; None for the original images.
    """
    groups: dict[int | None, list[int]] = {}
    for client in clients:
        number = shift.shift_number(client, num_clients, args.shifts)
        groups.setdefault(None if args.shift == "none" else number, []).append(client)
    return groups
