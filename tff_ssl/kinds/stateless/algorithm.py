"""The kind of algorithms with a server and clients that keep nothing between rounds.

Their round is a `tff.learning.templates.LearningProcess`, for any TFF program or stack.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow_federated as tff

from tff_ssl.kinds.protocol import FederatedAlgorithm, Need, RoundToLower, RunSetting
from tff_ssl.kinds.stateless.simulation import StatelessClientsRun
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.templates import message_sizes
from tff_ssl.templates.stages import Stage


@dataclasses.dataclass(frozen=True)
class StatelessClients(FederatedAlgorithm):
    """An algorithm with a server and clients that keep nothing between rounds."""

    kind: ClassVar[str] = "stateless_clients"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.COHORTS})
    has_client_models: ClassVar[bool] = False

    model: Model  #: Model to train.
    process: tff.learning.templates.LearningProcess  #: Process whose `next` is the round.
    #: Seed -> the global model's weights before the first round.
    initial_weights: Callable[[int], tff.learning.models.ModelWeights]
    downloads: Sequence[tff.Type]  #: Types that a client receives in a round.
    #: Types that a client sends in a round, beside its weight and metrics.
    uploads: Sequence[tff.Type]
    #: Composes `stages`, which takes a second or more and which most runs do not need.
    compose_stages: Callable[[], Mapping[str, tff.learning.templates.LearningProcess]] = dict
    #: The stages of a round as functions of tensors; empty if there are none.
    plain_stages: Sequence[Stage] = ()
    #: (state between two stages, r) -> the state for a second stage whose groups of folded clients
    #: have r times the clients of the first stage's groups on average. None if clients are not
    #: folded, or the state does not depend on their number.
    with_group_size: Callable[[Any, float], Any] | None = None

    def initial_states(self, seed: int, trained: Any = None) -> tuple[Any, Any]:
        weights = self.initial_weights(seed) if trained is None else trained.global_model_weights
        groups = (weights.trainable, weights.non_trainable)
        given = tff.learning.models.ModelWeights(
            *(tuple(np.asarray(w) for w in group) for group in groups)
        )
        return self.process.set_model_weights(self.process.initialize(), given), ()

    def encoder_weights(self, server_state: Any) -> Weights:
        return self.model.part_of(server_state.global_model_weights)

    @functools.cached_property
    def stages(self) -> Mapping[str, tff.learning.templates.LearningProcess]:
        """Stages of a round of several aggregations, by name, in order; empty for one stage.

        They share the state of `process`; one after the other, on the same cohort, they equal
        `process.next`.
        """
        return self.compose_stages()

    def client_bytes(self) -> tuple[int, int]:
        return message_sizes.client_bytes(self.process.next)

    def default_concurrent_calls(self) -> int | None:
        return None  # Clients work briefly, and many of them are folded into a call.

    def rounds_to_lower(self) -> dict[str, RoundToLower]:
        process = self.process
        rounds = {"round": RoundToLower("the whole round", process.initialize, process.next)}
        for name, stage in self.stages.items():
            summary = f"its stage {name!r} alone"
            rounds[name] = RoundToLower(summary, stage.initialize, stage.next)
        return rounds

    def plan_run(self, setting: RunSetting) -> StatelessClientsRun:
        return StatelessClientsRun(self, setting)
