"""Simulation of clients of different architectures, whose server keeps their representations.

A client's state and its last representations of the RAD are in files that the worker reads and
writes. They are named by the round in which the client last took part (see `state_files`), so that
a checkpoint holds only the table of these rounds.
"""

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import whole_files
from tff_ssl.kinds.heterogeneous.slices import Members, SlicedHeterogeneousClients
from tff_ssl.kinds.protocol import RunSetting
from tff_ssl.kinds.server_rounds import ServerRun
from tff_ssl.kinds.stored_states import StoredStatesSimulation
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.runtime.sliced_rounds import Slicing
from tff_ssl.simulation import cohort, state_files
from tff_ssl.simulation.metrics_log import flatten_metrics
from tff_ssl.templates import message_sizes

_SUMS = ("samples", "dropped_clients")


class HeterogeneousClientsState(NamedTuple):
    """The last round in which each client took part, which names its files, int64 [clients]."""

    versions: Any


class HeterogeneousClientsRun(ServerRun):
    """A run of an algorithm whose clients have different architectures."""

    def __init__(self, algorithm: Any, setting: RunSetting):
        super().__init__(algorithm, setting)
        if setting.server_images is None:
            raise ValueError("heterogeneous clients need images of the server")
        self.server_images = setting.server_images

    @property
    def client_models(self) -> list[DualEncoder]:
        return [self.algorithm.architectures[m].model for m in self.algorithm.model_of_client]

    @property
    def evaluated_client(self) -> int:
        return self.setting.evaluated_client()

    def result_fields(self) -> dict[str, Any]:
        return super().result_fields() | {
            "rad_size": len(self.server_images),
            "encoder_of_client": [model.encoder_name for model in self.client_models],
        }

    def simulate(
        self, group_data: tff.Computation, folder: pathlib.Path, slicing: Slicing | None = None
    ) -> "HeterogeneousClientsSimulation":
        return HeterogeneousClientsSimulation(self, group_data, folder, slicing)


class HeterogeneousClientsSimulation(StoredStatesSimulation):
    """Simulation of these clients; `rad/` in the run's folder has images and representations."""

    def __init__(
        self,
        run: HeterogeneousClientsRun,
        group_data: tff.Computation,
        folder: pathlib.Path,
        slicing: Slicing | None,
    ):
        """Joins the algorithm with the clients' data; see `PlannedRun.simulate`."""
        super().__init__(folder)
        self._run, self._algorithm, self._rad = run, run.algorithm, run.server_images
        self._group_data = group_data
        trainings = [architecture.train for architecture in self._algorithm.architectures]
        self._sliced = slicing and SlicedHeterogeneousClients(trainings, group_data, slicing)
        self._last_cohort: cohort.Cohort = np.zeros(0, np.int64)
        self._bytes_of_architectures = [
            message_sizes.total_bytes((*a.downloads, *a.uploads))
            for a in self._algorithm.architectures
        ]

    def initialize(self, seed: int) -> HeterogeneousClientsState:
        self._states: list[state_files.ClientStates] = []
        self._sent: list[state_files.ClientStates] = []
        self._images = (self.folder / "rad").absolute() / "images"
        self._images.parent.mkdir(parents=True, exist_ok=True)
        content = tf.io.serialize_tensor(self._rad).numpy()
        whole_files.write(self._images, content, private=True)
        for architecture in self._algorithm.architectures:
            name, state = architecture.model.encoder_name, architecture.initial_client_state(seed)
            sent = architecture.representations(state, tf.constant(self._rad))
            folder = self.folder / "client_states" / name
            self._states.append(state_files.ClientStates(folder, state))
            self._sent.append(state_files.ClientStates(self.folder / "rad" / name, sent))
        self.stores = [*self._states, *self._sent]
        models = self._algorithm.model_of_client
        sent_by = [self._sent[m] for m in models]
        mean_kernel = mean_kernel_of_files(self._algorithm.aggregate, sent_by)
        if self._sliced:
            self._write_kernel = _writer(mean_kernel)
        else:
            read_rad = _reader(str(self._images), self._rad)
            numbers = range(len(self._states))
            self._rounds = [self._compose(k, read_rad, mean_kernel) for k in numbers]
        return HeterogeneousClientsState(np.full(len(models), state_files.NEVER, np.int64))

    def _compose(
        self, number: int, read_rad: tff.Computation, mean_kernel: tff.Computation
    ) -> tff.Computation:
        """The round of one architecture, with files of states and representations."""
        train = self._algorithm.architectures[number].train
        states, sent = self._states[number], self._sent[number]
        path_type = tff.types.FederatedType(np.str_, tff.CLIENTS)

        @tff.federated_computation(
            tff.types.FederatedType(np.int64, tff.SERVER),
            tff.types.FederatedType(mean_kernel.type_signature.parameter, tff.SERVER),
            path_type,
            path_type,
            path_type,
            tff.types.FederatedType(self._group_data.type_signature.parameter, tff.CLIENTS),
        )
        def run(round_number, last_sent, to_read, to_write, to_send, indices):
            output = train(
                round_number,
                tff.federated_map(mean_kernel, last_sent),
                tff.federated_eval(read_rad, tff.SERVER),
                tff.federated_map(states.read, to_read),
                tff.federated_map(self._group_data, indices),
            )
            written = (
                tff.federated_map(states.write, (to_write, output.client_states)),
                tff.federated_map(sent.write, (to_send, output.representations)),
            )
            return output.metrics, output.client_metrics, written

        return run

    def run_round(
        self, state: HeterogeneousClientsState, round_number: int
    ) -> tuple[HeterogeneousClientsState, dict[str, float]]:
        self.keep_also([state.versions], self._last_cohort)
        clients = self._run.participation.cohorts(round_number)
        models = self._algorithm.model_of_client
        before = state.versions
        for k, m in enumerate(models):
            # The round reads what all clients have sent, and the states of its own clients.
            if k in clients or not self._sent[m].is_intact(k, int(before[k])):
                before = state_files.healed([self._states[m], self._sent[m]], [k], before)
        last_sent = tuple(self._sent[m].paths_to_read([k], before)[0] for k, m in enumerate(models))
        groups = self._by_architecture(clients, before, round_number)
        train = self._train_on_nodes if self._sliced else self._train_here
        trained = train(round_number, last_sent, groups)
        rows: dict[int, Any] = {}
        rounds: list[tuple[dict[str, float], float]] = []
        for members, (metrics, rows_of_members) in zip(groups, trained, strict=True):
            rows |= dict(zip(members.clients.tolist(), rows_of_members, strict=True))
            weight = sum(float(row["weight"]) for row in rows_of_members)
            rounds.append((flatten_metrics(metrics), weight))
            self._states[members.architecture].commit(members.to_write)
            self._sent[members.architecture].commit(members.to_send)
        self.log.write(round_number, clients, [rows[k] for k in clients.tolist()])
        self._last_cohort = clients
        values = _joint(rounds)
        values["clients"] = len(clients)
        values["bytes"] = sum(self._bytes_of_architectures[models[client]] for client in clients)
        versions = state_files.with_version(before, clients, round_number)
        return HeterogeneousClientsState(versions), values

    def _by_architecture(
        self, clients: cohort.Cohort, versions: state_files.Versions, round_number: int
    ) -> list[Members]:
        """The clients of a round, grouped by architecture."""
        models = self._algorithm.model_of_client
        groups = []
        for number in np.unique(models[clients]):
            members = clients[models[clients] == number]
            to_read = self._states[number].paths_to_read(members, versions)
            to_write = self._states[number].paths_to_write(members, round_number)
            to_send = self._sent[number].paths_to_write(members, round_number)
            groups.append(Members(int(number), members, to_read, to_write, to_send))
        return groups

    def _train_here(
        self, round_number: int, last_sent: tuple[str, ...], groups: Sequence[Members]
    ) -> list[tuple[Any, list[Any]]]:
        """Trains in this TFF worker; returns server and client metrics for each group."""
        results = []
        for number, clients, *paths in groups:
            output = self._rounds[number](round_number, last_sent, *paths, cohort.fold(clients, 0))
            metrics, client_metrics, _ = output
            results.append((metrics, client_metrics))
        return results

    def _train_on_nodes(
        self, round_number: int, last_sent: tuple[str, ...], groups: Sequence[Members]
    ) -> list[tuple[Any, list[Any]]]:
        """Does the same on the nodes, which receive the mean kernel and the RAD."""
        assert self._sliced is not None
        path = self._images.with_name("mean_kernel")
        path.unlink(missing_ok=True)  # Of a killed run.
        self._write_kernel(str(path), last_sent)
        kernel = tf.io.parse_tensor(path.read_bytes(), tf.float32)
        path.unlink()
        return self._sliced(round_number, kernel, self._rad, groups)

    def encoder_weights(
        self, state: HeterogeneousClientsState, client_id: str | None = None
    ) -> Weights:
        client = self._run.evaluated_client if client_id is None else int(client_id)
        number = int(self._algorithm.model_of_client[client])
        client_state = self._states[number].load(client, int(state.versions[client]))
        return self._algorithm.architectures[number].client_weights(client_state)


def mean_kernel_of_files(
    aggregate: tff.Computation, sent: Sequence[state_files.ClientStates]
) -> tff.Computation:
    """Composes the aggregation with reading: (each client's path) -> factor of K-bar.

    The computation itself reads the clients' last representations, because TFF keeps values that
    pass between two computations in memory.
    """

    @tff.tensorflow.computation((np.str_,) * len(sent))
    def mean_kernel(paths):
        kept: list[tf.Tensor] = []
        for store, path in zip(sent, paths, strict=True):
            # Reads files one after the other, which avoids several copies of all in memory.
            with tf.control_dependencies(kept[-1:]):
                kept.append(store.read(tf.identity(path)))
        return aggregate(kept)

    return mean_kernel


def _writer(mean_kernel: tff.Computation) -> tff.Computation:
    """(path, argument of `mean_kernel`) -> bytes written; writes the factor to the path."""

    @tff.tensorflow.computation(np.str_, mean_kernel.type_signature.parameter)
    def write(path, kept):
        content = tf.io.serialize_tensor(mean_kernel(kept))
        with tf.control_dependencies([tf.io.write_file(path, content)]):
            return tf.cast(tf.strings.length(content), tf.int64)

    return write


def _reader(path: str, like: np.ndarray) -> tff.Computation:
    """() -> the tensor in a file, of the shape and dtype of `like`."""

    @tff.tensorflow.computation
    def read():
        return tf.ensure_shape(tf.io.parse_tensor(tf.io.read_file(path), like.dtype), like.shape)

    return read


def _joint(rounds: Sequence[tuple[dict[str, float], float]]) -> dict[str, float]:
    """The metrics of a cohort, from the metrics and weights of its architectures."""
    # An architecture without remaining clients has no mean.
    counted = [(metrics, weight) for metrics, weight in rounds if weight > 0]
    counted = counted or [(metrics, 1.0) for metrics, _ in rounds]
    combined: dict[str, float] = {}
    for name in rounds[0][0]:
        if name in _SUMS:
            combined[name] = sum(metrics[name] for metrics, _ in rounds)
        else:
            values, weights = zip(*((m[name], weight) for m, weight in counted), strict=True)
            combined[name] = float(np.average(values, weights=weights))
    return combined
