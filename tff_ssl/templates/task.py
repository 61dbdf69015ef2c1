"""The task of an algorithm: model, views, examples and objective."""

from typing import NamedTuple

import tensorflow_federated as tff

from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.views.augmentation import TwoViews


class Population(NamedTuple):
    """All clients of a run, for an algorithm whose computations depend on them.

    Attributes:
      models: Models of different encoders, one for each architecture.
      model_of_client: Index into `models` of each client.
      sizes: Number of examples of each client.
      rad_size: Number of images that the server shows to all clients.
    """

    models: tuple[DualEncoder, ...]
    model_of_client: tuple[int, ...]
    sizes: tuple[int, ...]
    rad_size: int


class FrozenEncoder(NamedTuple):
    """An encoder that is not trained.

    Attributes:
      model: Model without heads.
      weights: Weights of the model.
    """

    model: DualEncoder
    weights: Weights


class Task(NamedTuple):
    """Model, views, examples and objective of a run.

    Attributes:
      model: Model to train.
      two_views: (images uint8 [b, h, w, c], example ids int64 [b], round int64 []) -> two views,
        each float32 [b, *model.image_shape]; pure.
      element_type: TFF type of a client's example.
      rounds: Number of rounds of the run, for schedules.
      objective: Name of one of `objectives.registry.OBJECTIVES`.
      seed: Seed of the clients' random choices beside their views.
      population: All clients, where they have different models, which replace `model`; else None.
      participation: Fraction of the clients that are expected to take part in a round.
      client_sizes: Number of examples of each client of the population, in the order of their
        numbers, for algorithms whose server collects rows of single clients; empty where they are
        not known.
      base_encoder: Encoder to whose encodings an algorithm aligns those of its clients; None for
        none.
    """

    model: Model
    two_views: TwoViews
    element_type: tff.Type
    rounds: int
    objective: str = "cco"
    seed: int = 0
    population: Population | None = None
    participation: float = 1.0
    client_sizes: tuple[int, ...] = ()
    base_encoder: FrozenEncoder | None = None
