"""What passes between the registry and the algorithms."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import tensorflow_federated as tff

from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.two_towers import Model
from tff_ssl.views.augmentation import TwoViews


class Population(NamedTuple):
    """All clients of a run, for an algorithm whose computations depend on who they are.

    Attributes:
      models: The architectures, of different encoders.
      model_of_client: Index into `models` of each client.
      sizes: Number of examples of each client.
      rad_size: Number of images that the server shows to all clients.
    """

    models: tuple[DualEncoder, ...]
    model_of_client: tuple[int, ...]
    sizes: tuple[int, ...]
    rad_size: int


class Task(NamedTuple):
    """What an algorithm is given to work on.

    Attributes:
      model: The model to train.
      two_views: (images uint8 [b, h, w, c], example ids int64 [b], round int64 []) -> two views,
        each float32 [b, *model.image_shape]; pure.
      element_type: TFF type of a client's example.
      rounds: Length of the run, for schedules.
      objective: A name of `objectives.OBJECTIVES`.
      seed: Of what clients draw beside their views.
      population: Where clients have different models, which then stand for `model`; else None.
    """

    model: Model
    two_views: TwoViews
    element_type: tff.Type
    rounds: int
    objective: str = "cco"
    seed: int = 0
    population: Population | None = None


class Computations(Protocol):
    """What an algorithm gives.

    Attributes:
      process: Its round.
      initial_weights: Seed -> the global model's weights before the first round.
      downloads: Types that a client receives in a round.
      uploads: Types that a client sends in a round.
    """

    @property
    def process(self) -> tff.learning.templates.LearningProcess: ...

    @property
    def initial_weights(self) -> Callable[[int], tff.learning.models.ModelWeights]: ...

    @property
    def downloads(self) -> Sequence[tff.Type]: ...

    @property
    def uploads(self) -> Sequence[tff.Type]: ...
