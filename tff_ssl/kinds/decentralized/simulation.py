"""Simulation of a network of clients without a server.

The clients' models are in files (`state_files`), which the worker reads and writes inside the
computations. The state of a run names the version of each model.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow_federated as tff

from tff_ssl.decentralized import mixing, plots, run_costs
from tff_ssl.decentralized.schedule import Averaging, Schedule, SlotWeights, Training
from tff_ssl.errors import ConfigurationError
from tff_ssl.kinds.protocol import PlannedRun, RunSetting
from tff_ssl.kinds.stored_states import StoredStatesSimulation, with_state_files
from tff_ssl.models.costs import model_costs
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.runtime.sliced_rounds import ClientFiles, Slicing, write_states
from tff_ssl.runtime.slices import serialize, to_bytes, with_files
from tff_ssl.simulation import state_files

if TYPE_CHECKING:
    from tff_ssl.kinds.decentralized.algorithm import Decentralized

_OPERATIONS = 2  # Largest number of operations of a round; a model's version numbers all of them.


class DecentralizedState(NamedTuple):
    """The number of completed rounds, int64; and the models' versions, by slot, int64 [slots]."""

    done: Any
    versions: Any


class DecentralizedRun(PlannedRun):
    """A run of an algorithm without a server."""

    def __init__(self, algorithm: "Decentralized", setting: RunSetting):
        """Lets the algorithm schedule all rounds.

        Raises:
          ConfigurationError: If there are more models than clients, or all clients that had a model
            have left.
        """
        if setting.network is None:
            raise ValueError("a kind of algorithm without a server needs a network")
        self._algorithm, self._network = algorithm, setting.network
        self._rounds = setting.rounds
        values = algorithm.hyperparameters
        try:
            self._schedule = algorithm.schedule(self._network)
        except ValueError as error:
            raise ConfigurationError(f"--hparam or --leave: {error}") from error
        local_epochs = None if values.local_steps else values.local_epochs
        self._costs = run_costs.run_costs(
            self._network, self._schedule, setting.rounds, local_epochs
        ) | model_costs(algorithm.model, values.mask_ratio)

    @property
    def clients_at_once(self) -> int:
        return self._schedule.round(0).trainings

    def describe(self) -> str:
        line = run_costs.describe(self._network, self._costs, self._rounds)
        return "\n".join([line, *self._schedule.warnings])

    def result_fields(self) -> dict[str, Any]:
        return self._costs

    def summary(self) -> str:
        return run_costs.table(self._costs)

    def draw(self, folder: pathlib.Path, name: str) -> list[str]:
        title = f"{name} on {self._network.topology}"
        first, last = self._network.graphs(1), self._network.graphs(self._rounds)
        clients = plots.Clients(self._network.volumes, self._schedule.ranks)
        return plots.draw_run(first, last, self._schedule.routes, folder, title, clients)

    def simulate(
        self, group_data: tff.Computation, folder: pathlib.Path, slicing: Slicing | None = None
    ) -> "DecentralizedSimulation":
        return DecentralizedSimulation(self._algorithm, self._schedule, group_data, folder, slicing)


class DecentralizedSimulation(StoredStatesSimulation):
    """Simulation of clients that send models to each other."""

    def __init__(
        self,
        algorithm: "Decentralized",
        schedule: Schedule,
        group_data: tff.Computation,
        folder: pathlib.Path,
        slicing: Slicing | None = None,
    ):
        """Joins the algorithm with its schedule and the clients; see `PlannedRun.simulate`."""
        super().__init__(folder)
        self._algorithm, self._schedule, self._group_data = algorithm, schedule, group_data
        self._sliced = slicing and _in_slices(algorithm.training, group_data, slicing)

    def initialize(self, seed: int) -> DecentralizedState:
        self._states = state_files.ClientStates(
            self.folder / "client_states", self._algorithm.initial_weights(seed)
        )
        self.stores = [self._states]
        self._train = self._sliced or self._compose_training(self._states)
        self._average = self._compose_averaging(self._states)
        versions = np.full(self._schedule.num_slots, state_files.NEVER, np.int64)
        return DecentralizedState(np.int64(0), versions)

    def _compose_training(self, states: state_files.ClientStates) -> tff.Computation:
        """Local training with files of models, where the server has the number of the round."""

        def train(round_number, models, client_data):
            trained, metrics = self._algorithm.training(round_number, models, client_data)
            return trained, (metrics,)

        clock_type = tff.types.FederatedType(np.int64, tff.SERVER)
        return with_state_files(states, self._group_data, clock_type, train)

    def _compose_averaging(self, states: state_files.ClientStates) -> tff.Computation:
        """Averaging with files of models: (own path, paths and weights, path to write)."""
        path_type = tff.types.FederatedType(np.str_, tff.CLIENTS)
        many_type = tff.types.FederatedType(states.read_many.type_signature.parameter, tff.CLIENTS)

        @tff.federated_computation(path_type, many_type, path_type)
        def average(own, received, to_write):
            models = self._algorithm.averaging(
                tff.federated_map(states.read, own), tff.federated_map(states.read_many, received)
            )
            return tff.federated_map(states.write, (to_write, models))

        return average

    def run_round(
        self, state: DecentralizedState, round_number: int
    ) -> tuple[Any, dict[str, float]]:
        scheduled = self._schedule.round(round_number)
        versions, metrics = state.versions, {}
        for position, operation in enumerate(scheduled.operations):
            version = _OPERATIONS * round_number + position
            versions = state_files.healed([self._states], _slots_read(operation), versions)
            if isinstance(operation, Training):
                rows = self._run_training(operation, versions, version, round_number)
                self.log.write(round_number, np.array(operation.clients, np.int64), rows)
                metrics = _over_clients(rows)
                passes = self._algorithm.hyperparameters.passes
                sizes = [int(row["samples"]) for row in rows]
                metrics["examples_trained"] = sum(size * passes(size) for size in sizes)
                changed: Sequence[int] = operation.slots
            else:
                changed = self._run_averaging(operation, versions, version)
            versions = state_files.with_version(versions, changed, version)
        self.keep_also([state.versions, versions])
        traffic = scheduled.traffic
        metrics |= {
            "transmissions": traffic.models,
            "bytes": traffic.model_bytes,
            "messages": traffic.messages,
            "message_bytes": traffic.message_bytes,
            "simulated_time": scheduled.time,
        }
        return DecentralizedState(np.int64(round_number + 1), versions), metrics

    def _run_training(
        self, training: Training, versions: state_files.Versions, version: int, round_number: int
    ) -> list[Mapping[str, Any]]:
        to_read = self._states.paths_to_read(training.slots, versions)
        to_write = self._states.paths_to_write(training.slots, version)
        clients = [np.array([client], np.int64) for client in training.clients]
        metrics, _ = self._train(np.int64(round_number), to_read, to_write, clients)
        self._states.commit(to_write)
        return [{**notes, **row} for notes, row in zip(training.notes, metrics, strict=True)]

    def _run_averaging(
        self, operation: Averaging, versions: state_files.Versions, version: int
    ) -> list[int]:
        """Averages models, and returns the slots that changed."""
        keeps_own = self._algorithm.local_weights is not None
        rows = dict(zip(operation.targets, operation.weights, strict=True))
        changed = [target for target, row in rows.items() if row[target] != 1.0]
        paths = dict(zip(changed, self._states.paths_to_write(changed, version), strict=True))
        groups: dict[Any, list[int]] = {}  # Targets with the same average.
        for target in changed:
            key = (target if keeps_own else None, rows[target].tobytes())
            groups.setdefault(key, []).append(target)
        averaged = []
        for first, *others in groups.values():
            sources = np.flatnonzero(rows[first])
            if len(sources) == 1 and not keeps_own:  # The unchanged model of another slot.
                (source,) = self._states.paths_to_read(sources, versions)
                self._states.share(source, [paths[k] for k in (first, *others)])
            else:
                averaged.append((first, sources, others))
        if averaged:
            targets = [first for first, _, _ in averaged]
            self._average(
                self._states.paths_to_read(targets, versions),
                [
                    (self._states.paths_to_read(sources, versions), rows[first][sources])
                    for first, sources, _ in averaged
                ],
                [paths[first] for first in targets],
            )
            for first, _, others in averaged:
                self._states.share(paths[first], [paths[k] for k in others])
        self._states.commit(list(paths.values()))
        return changed

    def encoder_weights(self, state: DecentralizedState, client_id: str | None = None) -> Weights:
        client = None if client_id is None else int(client_id)
        done, local = int(state.done), self._algorithm.local_weights
        model = self.mean_model(state, self._schedule.evaluated(done, client))
        own = self._schedule.evaluated_slot(done, client)
        if local is None or own is None:
            return model
        return local.restore(model, local.select(self._load(state, own)))

    def mean_model(self, state: DecentralizedState, weights: SlotWeights) -> Weights:
        """The mean of the models in the slots with these weights, float64 [slots]."""
        sources = np.flatnonzero(weights)
        models = [self._load(state, k) for k in sources]
        flat = [[*m.trainable, *m.non_trainable] for m in models]
        mean = mixing.combine(flat, weights[sources])
        cut = len(models[0].trainable)
        return Weights(tuple(mean[:cut]), tuple(mean[cut:]))

    def _load(self, state: DecentralizedState, slot: int) -> Weights:
        """The model in a slot, as arrays."""
        model = self._states.load(int(slot), int(state.versions[slot]))
        groups = (model.trainable, model.non_trainable)
        return Weights(*(tuple(t.numpy() for t in group) for group in groups))


def _slots_read(operation: Training | Averaging) -> list[int]:
    """The slots whose models an operation reads."""
    if isinstance(operation, Training):
        return list(operation.slots)
    read: set[int] = set()
    for target, row in zip(operation.targets, operation.weights, strict=True):
        if row[target] != 1.0:
            read |= {target, *np.flatnonzero(row).tolist()}
    return sorted(read)


def _over_clients(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means of metrics over the clients, by weight; sums of samples and of dropped clients."""
    weights = np.array([float(row["weight"]) for row in rows])

    def mean(name: str) -> float:
        values = [float(row[name]) for row in rows]
        return float(np.dot(weights, values) / weights.sum()) if weights.sum() else float("nan")

    return {
        "loss": mean("loss"),
        "encoding_std": mean("encoding_std"),
        "samples": int(sum(row["samples"] for row in rows)),
        "dropped_clients": int(sum(row["dropped"] for row in rows)),
        "clients": len(rows),
    }


def _in_slices(
    training: tff.Computation, group_data: tff.Computation, slicing: Slicing
) -> Callable[..., Any]:
    """Local training in slices, with the arguments and results of the computation with files.

    There is nothing to merge. Models are averaged on this machine, which has their files.
    """
    clock_type, models_type, _ = training.type_signature.parameter
    _, metrics_type = training.type_signature.result
    files = ClientFiles(models_type.member, metrics_type.member, group_data)

    @tff.federated_computation(clock_type, files.type)
    def train(round_number, clients):
        models, metrics = training(round_number, *files.read(clients))
        return files.write(clients, models, metrics)

    program = serialize(with_files(train))

    def run(round_number, to_read, to_write, groups):
        partials = slicing.work_on(program, to_bytes(round_number), groups, to_read)
        return files.metrics(partials), write_states(to_write, partials)

    return run
