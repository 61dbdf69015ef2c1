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
      model_of_client: Each client's index into `models`.
      sizes: Number of examples of each client.
      rad_size: Number of images that the server shows to all clients.
    """

    models: tuple[DualEncoder, ...]
    model_of_client: tuple[int, ...]
    sizes: tuple[int, ...]
    rad_size: int


class FrozenEncoder(NamedTuple):
    """An encoder that is not trained: a model without heads, and its weights."""

    model: DualEncoder
    weights: Weights


class Task(NamedTuple):
    """Model, views, examples and objective of a run.

    Attributes:
      model: Model to train.
      two_views: (images uint8 [b, h, w, c], example ids int64 [b], round int64 []) -> two views,
        each float32 [b, *model.image_shape]; pure.
      element_type: TFF type of a client's example, or of a batch of its examples.
      rounds: Number of rounds of the run, for schedules.
      objective: Name of one of `objectives.registry.OBJECTIVES`.
      seed: Seed of the clients' random choices other than their views.
      population: All clients if they have different models, which replace `model`; otherwise None.
      participation: Fraction of the clients that are expected to take part in a round.
      client_sizes: Number of examples of each client of the population, by number, for algorithms
        whose server collects rows of single clients; empty if unknown.
      base_encoder: Encoder to whose encodings an algorithm aligns its clients'; None for none.
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
