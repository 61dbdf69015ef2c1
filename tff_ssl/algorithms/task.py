"""What passes between the registry and the algorithms."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import tensorflow_federated as tff

from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.views import TwoViews


class Task(NamedTuple):
    """What an algorithm is given to work on.

    Attributes:
      model: The model to train.
      two_views: (images uint8 [b, h, w, c], example ids int64 [b], round int64 []) -> two views,
        each float32 [b, *model.image_shape]; pure.
      element_type: TFF type of a client's example.
      rounds: Length of the run, for schedules.
    """

    model: DualEncoder
    two_views: TwoViews
    element_type: tff.Type
    rounds: int


class Computations(Protocol):
    """What an algorithm gives.

    Attributes:
      process: Its round.
      downloads: Types that a client receives in a round.
      uploads: Types that a client sends in a round.
    """

    @property
    def process(self) -> tff.learning.templates.LearningProcess: ...

    @property
    def downloads(self) -> Sequence[tff.Type]: ...

    @property
    def uploads(self) -> Sequence[tff.Type]: ...
