"""Clients' states between rounds, on disk: a file per client and round in which it took part.

The worker reads and writes them inside the round's computation, as it reads images: through gRPC,
five states of 44 MB take 15 s, from files 2 s. Only the cohort's states are ever in memory.

A file is never changed: a client's state after round r is `<client>/<r>`, and who keeps a table of
these rounds (as a checkpoint does) has all states of that moment. What no kept table names is
deleted.
"""

import collections
import os
import pathlib
import shutil
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.errors import TrainingError

Versions = npt.NDArray[np.int64]
NEVER = -1  # The version of a client that has not taken part.
_UNFINISHED = ".new"
_CHECKSUM_BYTES = 8


class ClientStates:
    """The states in a folder.

    Attributes:
      read: A `tff.tensorflow.computation`: path (string) -> a client's state.
      write: A `tff.tensorflow.computation`: (path, state) -> number of bytes, int64.
      read_many: A `tff.tensorflow.computation`: (paths [n], weights float64 [n]) -> sequence of
        structs of `weight` and `model`, the flat tuple of a state's tensors.
    """

    def __init__(self, folder: str | os.PathLike[str], initial: Any):
        """Makes the folder.

        Args:
          folder: Where the states are.
          initial: The state of a client that has not taken part, a nest of tensors or arrays; all
            states are shaped alike.
        """
        self._folder = pathlib.Path(folder).absolute()
        initial = tf.nest.map_structure(tf.convert_to_tensor, initial)
        self._specs = _specs_of(initial)
        content = _to_bytes(initial)
        self._size = len(content.numpy())
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write_atomically(self._path(0, NEVER), content)
        self.read, self.write = reader_and_writer(tff.types.tensorflow_to_type(self._specs))

        @tff.tensorflow.computation(
            tff.types.TensorType(np.str_, [None]), tff.types.TensorType(np.float64, [None])
        )
        def read_many(paths, weights):
            def weighted(path, weight):
                state = from_bytes(tf.io.read_file(path), self._specs)
                leaves = tuple(tf.nest.flatten(state))
                return collections.OrderedDict(weight=weight, model=leaves)

            return tf.data.Dataset.from_tensor_slices((paths, weights)).map(weighted)

        self.read_many = read_many

    def paths_to_read(self, clients: Iterable[int], versions: Versions) -> list[str]:
        """Where the states of these clients are.

        Raises:
          TrainingError: If a file is missing or has another size.
        """
        return [str(self._checked_path(client, int(versions[client]))) for client in clients]

    def paths_to_write(self, clients: Iterable[int], version: int) -> list[str]:
        """Where new states are to be written; `commit` makes them valid."""
        paths = [self._path(client, version) for client in clients]
        unfinished = [f"{path}{_UNFINISHED}" for path in paths]
        for path in map(pathlib.Path, unfinished):
            path.parent.mkdir(exist_ok=True)
            # Of a killed run; it may be a link to a state that must not change.
            path.unlink(missing_ok=True)
        return unfinished

    def commit(self, paths: Sequence[str]) -> None:
        """Puts written states in their places, each at once and on the disk for good."""
        for path in paths:
            # Checkpoints are synced too: one that outlives a power loss must find its states.
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            os.replace(path, path.removesuffix(_UNFINISHED))

    def share(self, source: str, paths: Sequence[str]) -> None:
        """Puts one state, committed or not yet, under further paths of `paths_to_write`."""
        for path in paths:
            try:
                os.link(source, path)
            except OSError:  # A file system without links.
                shutil.copyfile(source, path)

    def load(self, client: int, version: int) -> Any:
        """A client's state, as tensors.

        Raises:
          TrainingError: If the file is missing, has another size or is damaged.
        """
        path = self._checked_path(client, version)
        try:
            return from_bytes(tf.io.read_file(str(path)), self._specs)
        except tf.errors.InvalidArgumentError as error:
            raise TrainingError(f"the state of client {client} is damaged: {path}") from error

    def keep_only(self, tables: Sequence[Versions], clients: Iterable[int] | None = None) -> None:
        """Deletes the states, of these clients or of all, that no table names.

        A table is client -> round, or `NEVER`.
        """
        folders = (
            [path for path in self._folder.iterdir() if path.is_dir()]
            if clients is None
            else [self._folder / str(client) for client in clients]
        )
        for folder in folders:
            named = {str(int(table[int(folder.name)])) for table in tables}
            for path in folder.glob("*"):
                if path.name not in named:
                    path.unlink()

    def _path(self, client: int, version: int) -> pathlib.Path:
        if version == NEVER:
            return self._folder / "initial"
        return self._folder / str(client) / str(version)

    def _checked_path(self, client: int, version: int) -> pathlib.Path:
        path = self._path(client, version)
        size = path.stat().st_size if path.exists() else None
        if size != self._size:
            found = "is missing" if size is None else f"has {size} bytes, not {self._size}"
            raise TrainingError(
                f"the state of client {client} cannot be read: {path} {found}; start the run anew "
                "in another --output_dir"
            )
        return path

    def _write_atomically(self, path: pathlib.Path, content: tf.Tensor) -> None:
        tf.io.write_file(f"{path}{_UNFINISHED}", content)
        self.commit([f"{path}{_UNFINISHED}"])


def reader_and_writer(state_type: tff.Type) -> tuple[tff.Computation, tff.Computation]:
    """See `ClientStates.read` and `ClientStates.write`."""
    specs = tff.types.type_to_tf_tensor_specs(state_type)

    @tff.tensorflow.computation(np.str_)
    def read(path):
        return from_bytes(tf.io.read_file(path), specs)

    @tff.tensorflow.computation(np.str_, state_type)
    def write(path, state):
        content = _to_bytes(state)
        with tf.control_dependencies([tf.io.write_file(path, content)]):
            return tf.cast(tf.strings.length(content), tf.int64)

    return read, write


def round_with_stored_states(process_next: tff.Computation) -> tff.Computation:
    """The round of clients with memory in which each client keeps its state itself, in a file.

    In the typed round, states pass through the server's hands. Here nothing but what clients send
    leaves them; in this shape a round has two arguments and two results, as production stacks ask.

    Args:
      process_next: (server@SERVER, states@CLIENTS, examples@CLIENTS) -> a
        `client_memory.RoundOutput`.

    Returns:
      (server@SERVER, <read, write, examples>@CLIENTS) -> (server@SERVER, <metrics, bytes>@SERVER):
      `read` and `write` are paths on the client, of its state before the round (that of a new
      client has to be written there first) and after it; `bytes` is what all clients wrote.
    """
    server_type, states_type, examples_type = process_next.type_signature.parameter
    read, write = reader_and_writer(states_type.member)
    client_type = collections.OrderedDict(
        read=np.str_, write=np.str_, examples=examples_type.member
    )

    @tff.federated_computation(server_type, tff.types.FederatedType(client_type, tff.CLIENTS))
    def next_round(server, clients):
        states = tff.federated_map(read, clients.read)
        output = process_next(server, states, clients.examples)
        written = tff.federated_map(write, (clients.write, output.client_states))
        return output.state, tff.federated_zip((output.metrics, tff.federated_sum(written)))

    return next_round


def _specs_of(state: Any) -> Any:
    return tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), state)


def to_bytes(state: Any) -> bytes:
    """A state as the content of its file."""
    return _to_bytes(tf.nest.map_structure(tf.convert_to_tensor, state)).numpy()


def write_state(path: str, state: Any) -> None:
    """Writes a state to a file, as `ClientStates.write` does."""
    pathlib.Path(path).write_bytes(to_bytes(state))


def _to_bytes(state: Any) -> tf.Tensor:
    """All tensors one after the other and a checksum, as a string."""
    parts = [tf.reshape(tf.bitcast(t, tf.uint8), [-1]) for t in tf.nest.flatten(state)]
    values = tf.concat(parts, 0)
    return tf.io.serialize_tensor(tf.concat([values, _checksum(values)], 0))


def _checksum(values: tf.Tensor) -> tf.Tensor:
    """uint8 [8]; not against forgery, but against what a disk does."""
    return tf.fingerprint(values[tf.newaxis])[0]


def from_bytes(content: tf.Tensor | bytes, specs: Any) -> Any:
    """The tensors in a file that was written here; `specs` is a nest of their `tf.TensorSpec`s.

    Fails where the checksum is another one.
    """
    everything = tf.io.parse_tensor(content, tf.uint8)
    raw, checksum = everything[:-_CHECKSUM_BYTES], everything[-_CHECKSUM_BYTES:]
    whole = tf.reduce_all(tf.equal(_checksum(raw), checksum))
    with tf.control_dependencies([tf.Assert(whole, ["a client's state has been damaged"])]):
        raw = tf.identity(raw)
    flat, start = [], 0
    for spec in tf.nest.flatten(specs):
        size = spec.shape.num_elements() * spec.dtype.size
        # The dimension of a value's bytes is there only where they are several.
        of_bytes = [spec.dtype.size] if spec.dtype.size > 1 else []
        part = tf.reshape(raw[start : start + size], [*spec.shape, *of_bytes])
        flat.append(tf.ensure_shape(tf.bitcast(part, spec.dtype), spec.shape))
        start += size
    return tf.nest.pack_sequence_as(specs, flat)
