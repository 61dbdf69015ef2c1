"""Builds clients of different architectures, and the server's images."""

import dataclasses
import functools

import numpy as np

from datasets.image_dataset import ImageDataset
from launch.options import model as model_options
from launch.options.run_config import RunConfig
from tff_ssl.errors import ConfigurationError
from tff_ssl.models.dual_encoder import ENCODERS, DualEncoder
from tff_ssl.templates.task import Population

_RAD_STREAM, _ENCODER_STREAM = 1, 2  # Random streams of the server's images and of the encoders.


def take_out_rad(
    dataset: ImageDataset, rad_size: int, seed: int
) -> tuple[ImageDataset, np.ndarray]:
    """Divides the training images between the clients and the server.

    Returns:
      The data set without the server's images; and the server's images, uint8 [rad_size, h, w, c],
      its representation alignment dataset (RAD), without labels.
    """
    count = len(dataset.train)
    if rad_size >= count:
        raise ConfigurationError(
            f"--rad_size={rad_size} must be below {count}, the number of training images of "
            f"--dataset={dataset.name}, of which clients need some"
        )
    order = np.random.default_rng([seed, _RAD_STREAM]).permutation(count)
    rad, left = np.sort(order[:rad_size]), np.sort(order[rad_size:])
    train = dataset.train.take(left)
    return dataclasses.replace(dataset, train=train), dataset.train.images[rad]


def build_population(
    dataset: ImageDataset, clients: list[np.ndarray], config: RunConfig
) -> Population:
    """Assigns the encoders of `--encoders` to the clients at random, in equal shares."""
    if config.model.init_from:
        raise ConfigurationError(
            f"--init_from: the clients of {config.algorithm.algorithm} have models of their own, "
            "which start from random weights: leave it out, or choose another algorithm"
        )
    names = config.model.encoders or (config.model.encoder,)
    unknown = [name for name in names if name not in ENCODERS]
    if unknown:
        raise ConfigurationError(
            f"--encoders takes names of {', '.join(ENCODERS)}; got {unknown[0]!r}"
        )
    if len(names) > len(clients):
        raise ConfigurationError(
            f"--encoders names {len(names)} encoders, and there are {len(clients)} clients"
        )
    different = list(dict.fromkeys(names))
    # An encoder that is named twice gets twice the share.
    shares = np.resize([different.index(name) for name in names], len(clients))
    assigned = np.random.default_rng([config.seed, _ENCODER_STREAM]).permutation(shares)
    build = functools.partial(model_options.build_model, dataset, config.model, config.objective)
    models = [build(name, xla=config.runtime.xla, seed=config.seed) for name in different]
    towers = tuple(model for model in models if isinstance(model, DualEncoder))
    if len(towers) < len(models):
        raise ConfigurationError(
            f"--towers={config.model.towers}: {config.algorithm.algorithm} needs --towers=one"
        )
    rad_size = config.clients.rad_size
    return Population(towers, tuple(assigned.tolist()), tuple(map(len, clients)), rad_size)


def describe(population: Population) -> str:
    """Each encoder, its number of parameters, and the number of clients that have it."""
    counts = np.bincount(population.model_of_client, minlength=len(population.models))
    return ", ".join(
        f"{count} clients with {model.encoder} encoder and heads ({model.parameter_count:,} "
        "parameters)"
        for model, count in zip(population.models, counts, strict=True)
    )
