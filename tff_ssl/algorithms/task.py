"""What passes between the registry and the algorithms."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import tensorflow_federated as tff

from tff_ssl.models.two_towers import Model
from tff_ssl.views import TwoViews


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
    """

    model: Model
    two_views: TwoViews
    element_type: tff.Type
    rounds: int
    objective: str = "cco"
    seed: int = 0


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
