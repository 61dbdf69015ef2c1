"""A run of Hetero-SSFL on this machine: unlike clients, whose server keeps what they last sent.

A client's state and its last representations of the RAD lie in files that the worker reads and
writes, named by the round in which the client last took part (see `client_states`): the table of
these rounds is all that a checkpoint holds.
"""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.hetero_ssfl import TrainOutput, UnlikeClients
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.runtime.sliced_training import Members, SlicedUnlikeClients
from tff_ssl.simulation import cohort, metrics_log, state_files
from tff_ssl.simulation.with_server import flatten_metrics
from tff_ssl.templates import message_sizes

_SUMS = ("samples", "dropped_clients")


class UnlikeClientsState(NamedTuple):
    """The state of a run.

    Attributes:
      versions: The round in which each client last took part, int64 [clients]; names its files.
    """

    versions: Any


class UnlikeClientsSimulation:
    """Joins the algorithm, the clients' data, the cohorts and the RAD; a `Simulation`."""

    def __init__(
        self,
        computations: UnlikeClients,
        group_data: tff.Computation,
        cohorts: Callable[[int], cohort.Cohort],
        rad: np.ndarray,
        folder: pathlib.Path,
        training: SlicedUnlikeClients | None = None,
    ):
        """Joins the parts.

        Args:
          computations: The algorithm, for these clients.
          group_data: (client indices int64 [k]) -> their examples; runs where the clients' work
            runs.
          cohorts: Round number -> client indices.
          rad: The server's unlabeled images, uint8 [n, h, w, c].
          folder: Of the run: `client_states/`, `rad/` (the images, and the clients' last
            representations of them) and `client_metrics.csv` are written there.
          training: Where the clients' training is cut into slices.
        """
        self._training = training
        self._computations = computations
        self._group_data = group_data
        self._cohorts = cohorts
        self._rad = rad
        self._folder = folder
        self._saved: list[state_files.Versions] = []
        self._log = metrics_log.ClientLog(folder / "client_metrics.csv")

    def model_of(self, client: int) -> DualEncoder:
        """A client's model."""
        return self._computations.architectures[self._of(client)].model

    def _of(self, client: int) -> int:
        return int(self._computations.model_of_client[client])

    def initialize(self, seed: int) -> UnlikeClientsState:
        self._states: list[state_files.ClientStates] = []
        self._sent: list[state_files.ClientStates] = []
        self._rounds: list[tff.Computation] = []
        self._images = (self._folder / "rad").absolute() / "images"
        self._images.parent.mkdir(parents=True, exist_ok=True)
        tf.io.write_file(str(self._images), tf.io.serialize_tensor(self._rad))
        for architecture in self._computations.architectures:
            name, state = architecture.model.encoder, architecture.initial_client_state(seed)
            sent = architecture.representations(state, tf.constant(self._rad))
            self._states.append(
                state_files.ClientStates(self._folder / "client_states" / name, state)
            )
            self._sent.append(state_files.ClientStates(self._folder / "rad" / name, sent))
        of_client = self._computations.model_of_client
        mean_kernel = mean_kernel_of_files(
            self._computations.aggregate, [self._sent[m] for m in of_client]
        )
        if self._training:
            self._write_kernel = _writer(mean_kernel)
        else:
            read_rad = _reader(str(self._images), self._rad)
            for number in range(len(self._states)):
                self._rounds.append(self._compose(number, read_rad, mean_kernel))
        return UnlikeClientsState(np.full(len(of_client), state_files.NEVER, np.int64))

    def _compose(
        self, number: int, read_rad: tff.Computation, mean_kernel: tff.Computation
    ) -> tff.Computation:
        """A round of the clients of one architecture, with their files."""
        train, states, sent = (
            self._computations.architectures[number].train,
            self._states[number],
            self._sent[number],
        )
        path_type = tff.types.FederatedType(np.str_, tff.CLIENTS)

        @tff.federated_computation(
            tff.types.FederatedType(np.int64, tff.SERVER),
            tff.types.FederatedType(mean_kernel.type_signature.parameter, tff.SERVER),
            path_type,
            path_type,
            path_type,
            tff.types.FederatedType(self._group_data.type_signature.parameter, tff.CLIENTS),
        )
        def run(round_number, kept, to_read, to_write, to_send, indices):
            output = train(
                round_number,
                tff.federated_map(mean_kernel, kept),
                tff.federated_eval(read_rad, tff.SERVER),
                tff.federated_map(states.read, to_read),
                tff.federated_map(self._group_data, indices),
            )
            written = (
                tff.federated_map(states.write, (to_write, output.client_states)),
                tff.federated_map(sent.write, (to_send, output.representations)),
            )
            return TrainOutput(written[0], written[1], output.client_metrics, output.metrics)

        return run

    def run_round(
        self, state: UnlikeClientsState, round_number: int
    ) -> tuple[Any, dict[str, float]]:
        if not self._saved:
            self._saved = [state.versions]  # Of the checkpoint that the run goes on from.
            self._log.trim(round_number)
        self._keep_only([*self._saved, state.versions])
        clients = self._cohorts(round_number)
        models = self._computations.model_of_client
        kept = tuple(
            self._sent[m].paths_to_read([k], state.versions)[0] for k, m in enumerate(models)
        )
        groups = []
        for number in np.unique(models[clients]):
            of = clients[models[clients] == number]
            states, sent = self._states[number], self._sent[number]
            groups.append(
                Members(
                    int(number),
                    of,
                    states.paths_to_read(of, state.versions),
                    states.paths_to_write(of, round_number),
                    sent.paths_to_write(of, round_number),
                )
            )
        train = self._train_on_nodes if self._training else self._train_here
        of_client: dict[int, Any] = {}
        rounds: list[tuple[dict[str, float], float]] = []
        for members, (metrics, of_members) in zip(
            groups, train(round_number, kept, groups), strict=True
        ):
            of_client |= dict(zip(members.clients.tolist(), of_members, strict=True))
            weight = sum(float(found["weight"]) for found in of_members)
            rounds.append((flatten_metrics(metrics), weight))
        for members in groups:
            self._states[members.architecture].commit(members.to_write)
            self._sent[members.architecture].commit(members.to_send)
        self._log.write(round_number, clients, [of_client[k] for k in clients.tolist()])
        versions = state.versions.copy()
        versions[clients] = round_number
        joint = _joint(rounds)
        joint["clients"] = len(clients)
        joint["bytes"] = sum(self._bytes(client) for client in clients)
        return UnlikeClientsState(versions), joint

    def _train_here(
        self, round_number: int, kept: tuple[str, ...], groups: Sequence[Members]
    ) -> list[tuple[Any, list[Any]]]:
        """The metrics at the server and of the clients, for each of `groups`."""
        outputs = [
            self._rounds[members.architecture](
                round_number,
                kept,
                members.to_read,
                members.to_write,
                members.to_send,
                cohort.fold(members.clients, 0),
            )
            for members in groups
        ]
        return [(output.metrics, output.client_metrics) for output in outputs]

    def _train_on_nodes(
        self, round_number: int, kept: tuple[str, ...], groups: Sequence[Members]
    ) -> list[tuple[Any, list[Any]]]:
        """As `_train_here`; nodes get the mean kernel and the RAD from here."""
        assert self._training is not None
        path = self._images.with_name("mean_kernel")
        self._write_kernel(str(path), kept)
        kernel = tf.io.parse_tensor(path.read_bytes(), tf.float32)
        path.unlink()
        return self._training(round_number, kernel, self._rad, groups)

    def _bytes(self, client: int) -> int:
        of = self._computations.architectures[self._of(client)]
        return message_sizes.total_bytes((*of.downloads, *of.uploads))

    def encoder_weights(self, state: UnlikeClientsState, client_id: str | None = None) -> Weights:
        """A client's model; there is no global one, for which the first client's stands."""
        client = int(client_id or 0)
        number = self._of(client)
        own = self._states[number].load(client, int(state.versions[client]))
        return self._computations.architectures[number].client_weights(own)

    def saved(self, state: UnlikeClientsState) -> None:
        # The checkpoint before the last is kept too.
        self._saved = [*self._saved[-1:], state.versions]
        self._keep_only(self._saved)

    def _keep_only(self, tables: Sequence[state_files.Versions]) -> None:
        for store in (*self._states, *self._sent):
            store.keep_only(tables)


def mean_kernel_of_files(
    aggregate: tff.Computation, sent: Sequence[state_files.ClientStates]
) -> tff.Computation:
    """The aggregation, of representations in files.

    Reading is part of it, because TFF holds on to what passes between two computations.

    Args:
      aggregate: The algorithm's.
      sent: Where the representations of each client are.

    Returns:
      A `tff.tensorflow.computation`: (the path of each client's last representations) -> B.
    """

    @tff.tensorflow.computation((np.str_,) * len(sent))
    def mean_kernel(paths):
        kept: list[tf.Tensor] = []
        for store, path in zip(sent, paths, strict=True):
            # One after the other: reading all at once would hold several copies of all.
            with tf.control_dependencies(kept[-1:]):
                kept.append(store.read(tf.identity(path)))
        return aggregate(kept)

    return mean_kernel


def _writer(mean_kernel: tff.Computation) -> tff.Computation:
    """(path, argument of `mean_kernel`) -> its size; the serialized tensor is written there."""

    @tff.tensorflow.computation(np.str_, mean_kernel.type_signature.parameter)
    def write(path, kept):
        content = tf.io.serialize_tensor(mean_kernel(kept))
        with tf.control_dependencies([tf.io.write_file(path, content)]):
            return tf.cast(tf.strings.length(content), tf.int64)

    return write


def _reader(path: str, like: np.ndarray) -> tff.Computation:
    """() -> the tensor in a file."""

    @tff.tensorflow.computation
    def read():
        return tf.ensure_shape(tf.io.parse_tensor(tf.io.read_file(path), like.dtype), like.shape)

    return read


def _joint(rounds: Sequence[tuple[dict[str, float], float]]) -> dict[str, float]:
    """Metrics of the cohort from those of its architectures and their weights."""
    # An architecture whose clients were all dropped has no mean.
    counted = [(metrics, weight) for metrics, weight in rounds if weight > 0]
    counted = counted or [(metrics, 1.0) for metrics, _ in rounds]
    joint: dict[str, float] = {}
    for name in rounds[0][0]:
        if name in _SUMS:
            joint[name] = sum(metrics[name] for metrics, _ in rounds)
        else:
            values, weights = zip(*((m[name], weight) for m, weight in counted), strict=True)
            joint[name] = float(np.average(values, weights=weights))
    return joint
