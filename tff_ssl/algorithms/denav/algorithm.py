"""DeNAV: models that travel from client to client, each guided by a training navigator.

"DeNAV: Decentralized Self-Supervised Learning with a Training Navigator": sections 4 and 5, and
appendix A.4 for the parallel training of C models. A step of a model has three parts:

1. The client that received the model averages it with its own copies of other models that are not
   too stale (Algorithm 2; `staleness`).
2. The client trains the model on its own examples for K epochs, updates the state log, and keeps a
   copy of both.
3. The navigator chooses the next client from the state log (Algorithm 1; `navigator`, `route`).

Before fine-tuning, a client averages its own model with those of its neighbours.

Choices: The one-block masked autoencoder is the encoder `--encoder=vit_one_block`. The paper gives
no optimizer; AdamW and the weight decay are He et al.'s. AdamW restarts in every step, since its
state does not travel. A client's simulated training time is its examples times epochs, divided as
in section 6.1 by its computing rank's factor, so that a route does not depend on the load of this
machine. If two models meet at a client, it trains both, one after the other, and neither is
averaged with the other in this step. If a client has copies of several models, its own model is the
result of Algorithm 2 with the copy of most steps as the received model. The run is evaluated with
the model of the last client that trained model 0.
"""

import bisect
import collections
import dataclasses
import zlib

import numpy as np

from tff_ssl.algorithms.denav import navigator, route, staleness, traffic
from tff_ssl.algorithms.denav.state_log import StateLog
from tff_ssl.bounds import bounded, one_of
from tff_ssl.decentralized import simulated_time, topology
from tff_ssl.decentralized.schedule import (
    Averaging,
    ClientNetwork,
    ScheduledRound,
    SlotWeights,
    Training,
)
from tff_ssl.decentralized.traffic import Traffic
from tff_ssl.kinds.decentralized.algorithm import Decentralized, build_decentralized
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.task import Task


@dataclasses.dataclass(frozen=True)
class DeNAVHyperparameters(ClientHyperparameters, navigator.RouteHyperparameters):
    """Hyperparameters with the defaults of Table 6; others are inherited. S is `--rounds`.

    Attributes:
      models: Number C of models trained in parallel; 5 in the paper's parallel training.
      staleness_bound: Staleness bound lambda of Algorithm 2, in steps.
      aggregation: Weights of a client's copies, `staleness`, `volume` or `average` (Table 5);
        `none` for models that do not mix.
      average_neighbours: Whether a client averages its model with its neighbours' at the end.
    """

    client_optimizer: str = "adamw"
    client_learning_rate: float = 0.001
    client_weight_decay: float = 0.05
    local_epochs: int = 5
    batch_size: int = 64
    models: int = bounded(1, at_least=1)
    staleness_bound: int = bounded(5, at_least=0)
    aggregation: str = one_of("staleness", (*staleness.WEIGHTINGS, "none"))
    average_neighbours: bool = True

    def for_navigator(self, steps: int) -> navigator.NavigatorHyperparameters:
        names = [field.name for field in dataclasses.fields(navigator.RouteHyperparameters)]
        return navigator.NavigatorHyperparameters(
            steps=steps, **{name: getattr(self, name) for name in names}
        )


class DeNAVSchedule:
    """The steps of all models; client m has its copy of model c in slot c * M + m."""

    def __init__(
        self,
        network: ClientNetwork,
        model_bytes: int,
        hyperparameters: DeNAVHyperparameters,
        steps: int,
    ):
        """Determines the routes of all models, of `model_bytes` each, for S steps.

        Raises:
          ValueError: If there are more models than clients, or all clients that had a model have
            left.
        """
        self._graphs, self._clients = network.graphs, len(network.volumes)
        self._hyperparameters, self._model_bytes = hyperparameters, model_bytes
        self._starts = self._draw_starts(network.seed)
        highest = hyperparameters.computing_ranks
        self.ranks = simulated_time.draw_ranks(self._clients, highest, network.seed)

        def time(client: int) -> float:
            volume = network.volumes[client]
            work = volume * hyperparameters.passes(volume)
            return simulated_time.training_time(work, self.ranks[client], highest)

        volumes, values = dict(enumerate(network.volumes)), hyperparameters.for_navigator(steps)
        self._steps_of_models = [
            list(route.travel(network.graphs, volumes, time, start, values, network.seed, model))
            for model, start in enumerate(self._starts)
        ]
        self.warnings = self._check_limit(steps)
        self._visits: dict[tuple[int, int], list[int]] = {}  # (model, client) -> steps.
        for model, steps_of_model in enumerate(self._steps_of_models):
            for step in steps_of_model:
                self._visits.setdefault((model, step.client), []).append(step.step)
        self._time = time

    def _check_limit(self, steps: int) -> tuple[str, ...]:
        """A warning if a model has at least as many steps as Z allows on all clients together."""
        limit, values = self._hyperparameters.selection_limit, self._hyperparameters
        if values.route == "random" or limit * self._clients > steps:
            return ()
        return (
            f"warning: selection_limit={limit} on {self._clients} clients allows "
            f"{limit * self._clients} selections, and a model has {steps} steps, so that the "
            "navigator has to select every client as often as the limit allows; the paper's ratio "
            f"is --hparam=selection_limit={navigator.papers_limit(steps, self._clients)}",
        )

    def _draw_starts(self, seed: int) -> list[int]:
        """Draws the clients of the first step, one for each model (appendix A.4.1)."""
        present, models = sorted(self._graphs(1)), self._hyperparameters.models
        if models > len(present):
            raise ValueError(f"models must be at most the number of clients, {len(present)}")
        rng = np.random.default_rng([seed, zlib.crc32(b"starts")])
        return [int(client) for client in rng.permutation(present)[:models]]

    @property
    def num_slots(self) -> int:
        return len(self._starts) * self._clients

    @property
    def routes(self) -> list[list[int]]:
        return [[step.client for step in steps] for steps in self._steps_of_models]

    def _slot(self, model: int, client: int) -> int:
        return model * self._clients + client

    def _unit(self, slot: int) -> SlotWeights:
        """Weight 1 for one slot, and 0 for all others."""
        row = np.zeros(self.num_slots)
        row[slot] = 1.0
        return row

    def _copies(self, client: int, done: int) -> list[StateLog | None]:
        """Logs of a client's copies of each model after `done` steps; None without a copy."""
        logs: list[StateLog | None] = []
        for model, steps in enumerate(self._steps_of_models):
            visits = self._visits.get((model, client), [])
            before = bisect.bisect_right(visits, done)
            logs.append(steps[visits[before - 1] - 1].log if before else None)
        return logs

    def _holders(self, clients: set[int], done: int) -> set[int]:
        """Those of the clients that have a copy of a model after `done` steps."""
        return {k for k in clients if any(self._copies(k, done))}

    def _aggregated(
        self, received: StateLog, slot: int, client: int, local: list[StateLog]
    ) -> SlotWeights:
        """Weights of Algorithm 2; with `aggregation=none`, the received model alone."""
        row = self._unit(slot)
        if self._hyperparameters.aggregation == "none":
            return row
        values = self._hyperparameters
        row[slot], *others = staleness.weights_at_client(
            received, local, values.staleness_bound, values.aggregation
        )
        for log, weight in zip(local, others, strict=True):
            row[self._slot(log.model_id, client)] = weight
        return row

    def _own(self, client: int, done: int) -> SlotWeights:
        """Weights of the copies in a client's own model, by Algorithm 2."""
        logs = [log for log in self._copies(client, done) if log is not None]
        newest = max(logs, key=lambda log: (log.steps, -log.model_id))
        others = [log for log in logs if log is not newest]
        return self._aggregated(newest, self._slot(newest.model_id, client), client, others)

    def _received(self, model: int, step: route.Step) -> SlotWeights:
        """Weights of the received model and the client's copies in the model to train."""
        sender = step.client if step.sender is None else step.sender
        logs = self._copies(step.client, step.step - 1)
        others = [log for log in logs if log is not None and log.model_id != model]
        return self._aggregated(step.received, self._slot(model, sender), step.client, others)

    def round(self, round_number: int) -> ScheduledRound:
        steps = [steps[round_number] for steps in self._steps_of_models]
        slots = tuple(self._slot(model, step.client) for model, step in enumerate(steps))
        rows = [self._received(model, step) for model, step in enumerate(steps)]
        senders = [-1 if step.sender is None else step.sender for step in steps]
        notes = tuple({"model": m, "sender": sender} for m, sender in enumerate(senders))
        sent = sum((traffic.of_steps([step], self._model_bytes) for step in steps), Traffic())
        if round_number == 0:
            sent += traffic.synchronization(self._graphs(1), self._starts, self._model_bytes)
        clients = tuple(step.client for step in steps)
        operations = (Averaging(slots, np.stack(rows)), Training(slots, clients, notes))
        # A client trains several models one after the other.
        trainings = collections.Counter(clients)
        longest = max(count * self._time(client) for client, count in trainings.items())
        return ScheduledRound(operations, sent, longest)

    def published_transmissions(self, epochs: int) -> int:
        return traffic.published_transmissions(epochs, self._hyperparameters.local_epochs)

    def evaluated_slot(self, done: int, client: int | None = None) -> None:
        return None  # Models travel with all of their weights.

    def evaluated(self, done: int, client: int | None = None) -> SlotWeights:
        graph = self._graphs(max(done, 1))
        if client is None:
            client = self._steps_of_models[0][max(done, 1) - 1].client
        if client not in graph:
            raise ValueError(f"client {client} has left the network")
        clients = {client}
        if self._hyperparameters.average_neighbours:
            clients |= set(topology.neighbours(graph, client))
        holders = self._holders(clients, done)
        while not holders:
            # None of these clients has a model: continue with their neighbours.
            reached = clients.union(*(topology.neighbours(graph, k) for k in clients))
            if reached == clients:
                # No reachable client has one; slots never written hold the untrained model.
                return self._unit(self._slot(0, client))
            clients, holders = reached, self._holders(reached, done)
        return np.mean([self._own(k, done) for k in sorted(holders)], axis=0)


def build_denav(task: Task, hyperparameters: DeNAVHyperparameters | None = None) -> Decentralized:
    """Builds DeNAV; the rounds of the task are the steps S."""
    values = hyperparameters or DeNAVHyperparameters()

    def build_schedule(network: ClientNetwork, model_bytes: int) -> DeNAVSchedule:
        return DeNAVSchedule(network, model_bytes, values, task.rounds)

    return build_decentralized(task, values, build_schedule)
