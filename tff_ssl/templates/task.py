"""The task of an algorithm: model, views, examples and objective."""

from typing import NamedTuple

import tensorflow_federated as tff

from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.views.augmentation import TwoViews


class Population(NamedTuple):
    """All clients of a run, for an algorithm whose computations depend on them."""

    models: tuple[DualEncoder, ...]  #: Models of different encoders, one for each architecture.
    model_of_client: tuple[int, ...]  #: Each client's index into `models`.
    sizes: tuple[int, ...]  #: Number of examples of each client.
    rad_size: int  #: Number of images that the server shows to all clients.


class FrozenEncoder(NamedTuple):
    """An encoder that is not trained: a model without heads, and its weights."""

    model: DualEncoder
    weights: Weights


class Task(NamedTuple):
    """Model, views, examples and objective of a run."""

    model: Model  #: Model to train.
    #: (images uint8 [b, h, w, c], example ids int64 [b], round int64 []) -> two views, each float32
    #: [b, *model.image_shape]; pure.
    two_views: TwoViews
    element_type: tff.Type  #: TFF type of a client's example, or of a batch of its examples.
    rounds: int  #: Number of rounds of the run, for schedules.
    objective: str = "cco"  #: Name of one of `objectives.registry.OBJECTIVES`.
    seed: int = 0  #: Seed of the clients' random choices other than their views.
    #: All clients if they have different models, which replace `model`; otherwise None.
    population: Population | None = None
    #: Fraction of the clients that are expected to take part in a round.
    participation: float = 1.0
    #: Number of examples of each client of the population, by number, for algorithms whose server
    #: collects rows of single clients; empty if unknown.
    client_sizes: tuple[int, ...] = ()
    #: Encoder to whose encodings an algorithm aligns its clients'; None for none.
    base_encoder: FrozenEncoder | None = None
