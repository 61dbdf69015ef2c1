"""Client states on disk between rounds: one file per client and round in which it took part.

The TFF worker reads and writes the files inside the round's computation, as it reads images: five
states of 44 MB take 15 s through gRPC and 2 s from files. Only the cohort's states are in memory.

A file never changes. A client's state after round r is in `<client>/<r>`, so a table with the last
round of each client, which a checkpoint contains, names all states of that moment. States that no
kept table names are deleted.

A state damaged on the disk is set aside (`<client>/<r>.damaged`), and the client continues from its
last intact state, or from a new one (`healed`).
"""

import collections
import logging
import os
import pathlib
import shutil
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import whole_files
from tff_ssl.errors import TrainingError

_LOG = logging.getLogger(__name__)
Versions = npt.NDArray[np.int64]
NEVER = -1  # The version of a client that has not taken part.
_UNFINISHED = ".new"
_DAMAGED = ".damaged"
_CHECKSUM_BYTES = _LENGTH_BYTES = 8


class ClientStates:
    """The client states in a folder.

    Attributes:
      read: A `tff.tensorflow.computation`: path (string) -> state of a client.
      write: A `tff.tensorflow.computation`: (path, state) -> number of bytes, int64.
      read_many: A `tff.tensorflow.computation`: (paths [n], weights float64 [n]) -> sequence of
        structs of `weight` and `model`, the flat tuple of a state's tensors.
    """

    def __init__(self, folder: str | os.PathLike[str], initial: Any):
        """Makes the folder and writes the initial state; others have its structure and specs."""
        self._folder = pathlib.Path(folder).absolute()
        initial = tf.nest.map_structure(tf.convert_to_tensor, initial)
        self._specs = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), initial)
        self._initial = _serialize(initial)
        self._size = len(self._initial.numpy())
        self._folder.mkdir(parents=True, exist_ok=True)
        whole_files.write(self._path(0, NEVER), self._initial.numpy(), private=True)
        self.read, self.write = reader_and_writer(tff.types.tensorflow_to_type(self._specs))

        @tff.tensorflow.computation(
            tff.types.TensorType(np.str_, [None]), tff.types.TensorType(np.float64, [None])
        )
        def read_many(paths, weights):
            def weighted(path, weight):
                state = from_bytes(tf.io.read_file(path), self._specs)
                leaves = tuple(tf.nest.flatten(state))
                return collections.OrderedDict(weight=weight, model=leaves)

            dataset = tf.data.Dataset.from_tensor_slices((paths, weights)).map(weighted)
            # To optimize the few elements would take longer than to read them.
            options = tf.data.Options()
            options.autotune.enabled = False
            options.experimental_optimization.apply_default_optimizations = False
            return dataset.with_options(options)

        self.read_many = read_many

    def paths_to_read(self, clients: Iterable[int], versions: Versions) -> list[str]:
        """The paths of these clients' states.

        `versions` has the last round, or `NEVER`, of each client of the population, int64 [K].

        Raises:
          TrainingError: If a file is missing or has another size, which `healed` prevents.
        """
        return [str(self._checked_path(client, int(versions[client]))) for client in clients]

    def paths_to_write(self, clients: Iterable[int], version: int) -> list[str]:
        """The paths for new states of these clients; `commit` makes the written states valid."""
        unfinished = [f"{self._path(client, version)}{_UNFINISHED}" for client in clients]
        for path in map(pathlib.Path, unfinished):
            path.parent.mkdir(exist_ok=True)
            # A killed run may have left a link to a state that must not change.
            path.unlink(missing_ok=True)
        return unfinished

    def commit(self, paths: Sequence[str]) -> None:
        """Syncs states of `paths_to_write` to the disk and renames each to its final path."""
        for path in paths:
            # A checkpoint, which is synced too, needs its states after a power loss.
            whole_files.sync(path)
            os.chmod(path, 0o600)  # As checkpoints.
            os.replace(path, path.removesuffix(_UNFINISHED))

    def share(self, source: str, paths: Sequence[str]) -> None:
        """Makes a state, committed or not, available under paths of `paths_to_write`."""
        for path in paths:
            try:
                os.link(source, path)
            except OSError:  # The file system has no hard links.
                shutil.copyfile(source, path)

    def load(self, client: int, version: int) -> Any:
        """A client's state or last intact one (`healed`) as tensors; a TrainingError if missing."""
        path = self._checked_path(client, healed_version([self], client, version))
        return from_bytes(tf.io.read_file(str(path)), self._specs)

    def is_intact(self, client: int, version: int) -> bool:
        """Whether a state has the right size and checksum; a missing one counts as intact.

        A damaged initial state is rewritten.
        """
        path = self._path(client, version)
        if not path.exists():
            return not path.with_name(f"{path.name}{_DAMAGED}").exists()
        if version == NEVER and not self._is_intact(path):
            whole_files.write(path, self._initial.numpy(), private=True)
        return self._is_intact(path)

    def _is_intact(self, path: pathlib.Path) -> bool:
        if path.stat().st_size != self._size:
            return False
        try:
            _, is_intact = _values(tf.io.read_file(str(path)))
        except tf.errors.OpError:  # The length or the type of the content is damaged.
            return False
        return bool(is_intact)

    def set_aside(self, client: int, version: int) -> None:
        """Renames a damaged state's file, unless that has been done."""
        path = self._path(client, version)
        if path.exists():
            os.replace(path, f"{path}{_DAMAGED}")

    def intact_versions(self, client: int, before: int) -> list[int]:
        """The intact versions before another one; `NEVER` always is among them."""
        names = (path.name for path in self._path(client, 0).parent.glob("*"))
        versions = [int(name) for name in names if name.isdecimal() and int(name) < before]
        return [NEVER, *(v for v in versions if self.is_intact(client, v))]

    def keep_only(self, tables: Sequence[Versions], clients: Iterable[int] | None = None) -> None:
        """Deletes the states of these clients, or of all, that no table of versions names."""
        folders = (
            [path for path in self._folder.iterdir() if path.is_dir()]
            if clients is None
            else [self._folder / str(client) for client in clients]
        )
        for folder in folders:
            named = {str(int(table[int(folder.name)])) for table in tables}
            for path in folder.glob("*"):
                if path.name not in named and path.suffix != _DAMAGED:
                    path.unlink()

    def _path(self, client: int, version: int) -> pathlib.Path:
        if version == NEVER:
            return self._folder / "initial"
        return self._folder / str(client) / str(version)

    def _checked_path(self, client: int, version: int) -> pathlib.Path:
        path = self._path(client, version)
        size = path.stat().st_size if path.exists() else None
        if size != self._size:
            problem = "is missing" if size is None else f"has {size} bytes, not {self._size}"
            raise TrainingError(
                f"the state of client {client} cannot be read: {path} {problem}; put the file "
                "back, or start the run anew in another --output_dir"
            )
        return path


def with_version(versions: Versions, clients: Iterable[int], version: int) -> Versions:
    """A copy of the table with another version for some clients."""
    versions = versions.copy()
    versions[list(clients)] = version
    return versions


def healed(stores: Sequence[ClientStates], clients: Iterable[int], versions: Versions) -> Versions:
    """The table with the last intact state of each of these clients; itself if nothing changes.

    A client may have a state in each of several stores. Damaged files are set aside, with one
    warning each.

    Raises:
      TrainingError: If a file is missing.
    """
    for client in map(int, clients):
        version = healed_version(stores, client, int(versions[client]))
        if version != versions[client]:
            versions = with_version(versions, [client], version)
    return versions


def healed_version(stores: Sequence[ClientStates], client: int, version: int) -> int:
    """The version, or the last one before it that is intact in all stores, see `healed`."""
    damaged = [store for store in stores if not store.is_intact(client, version)]
    if not damaged:
        return version
    last = max(set.intersection(*(set(store.intact_versions(client, version)) for store in stores)))
    paths = [store._path(client, version) for store in damaged]
    if any(path.exists() for path in paths):  # Otherwise this was said before.
        origin = "a new state" if last == NEVER else f"its state {last}"
        message = (
            "the state of client %d is damaged, and set aside as %s%s: the client continues from %s"
        )
        _LOG.warning(message, client, paths[0], _DAMAGED, origin)
    for store in damaged:
        store.set_aside(client, version)
    return last


def damaged_states(run: pathlib.Path, folders: Sequence[str]) -> list[str]:
    """The paths, in the run and without suffix, of damaged states in some folders of a run."""
    found = [path for name in folders for path in (run / name).rglob(f"*{_DAMAGED}")]
    return sorted(str(path.relative_to(run)).removesuffix(_DAMAGED) for path in found)


def reader_and_writer(state_type: tff.Type) -> tuple[tff.Computation, tff.Computation]:
    """`ClientStates.read` and `ClientStates.write` for states of this type."""
    specs = tff.types.type_to_tf_tensor_specs(state_type)

    @tff.tensorflow.computation(np.str_)
    def read(path):
        return from_bytes(tf.io.read_file(path), specs)

    @tff.tensorflow.computation(np.str_, state_type)
    def write(path, state):
        content = _serialize(state)
        with tf.control_dependencies([tf.io.write_file(path, content)]):
            return tf.cast(tf.strings.length(content), tf.int64)

    return read, write


def round_with_stored_states(process_next: tff.Computation) -> tff.Computation:
    """The round of stateful clients in which each client keeps its state in a file of its own.

    In the typed round, the caller passes in all clients' states and gets the new ones back. Here
    the states stay on the clients, so a round has the two arguments and two results that production
    stacks require:

      (server@SERVER, <read, write, examples>@CLIENTS) -> (server@SERVER, <metrics, bytes>@SERVER)

    `read` and `write` are paths on the client, for its state before the round (a new client's
    initial state has to be written there first) and after it. `bytes` is the number of bytes that
    all clients wrote.
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


def to_bytes(state: Any) -> bytes:
    """The content of a state's file."""
    return _serialize(tf.nest.map_structure(tf.convert_to_tensor, state)).numpy()


def write_state(path: str, state: Any) -> None:
    """Writes a state to a file, as `ClientStates.write` does."""
    pathlib.Path(path).write_bytes(to_bytes(state))


def _serialize(state: Any) -> tf.Tensor:
    """The bytes of all tensors, followed by a checksum, as a string tensor."""
    values = tf.concat([_bytes_of(t) for t in tf.nest.flatten(state)], 0)
    return tf.io.serialize_tensor(tf.concat([values, _checksum(values)], 0))


def _bytes_of(tensor: tf.Tensor) -> tf.Tensor:
    """The bytes of a tensor, uint8 [n]; those of strings are preceded by their number, int64."""
    if tensor.dtype == tf.string:  # Such as names of events of differential privacy.
        content = tf.io.decode_raw(tf.io.serialize_tensor(tensor), tf.uint8)
        return tf.concat([_bytes_of(tf.size(content, tf.int64)), content], 0)
    if tensor.dtype == tf.bool:
        tensor = tf.cast(tensor, tf.uint8)
    return tf.reshape(tf.bitcast(tensor, tf.uint8), [-1])


def _tensor_of(
    values: tf.Tensor, start: tf.Tensor | int, spec: tf.TensorSpec
) -> tuple[tf.Tensor, tf.Tensor | int]:
    """The tensor whose bytes start at `start`, and where they end."""
    if spec.dtype == tf.string:
        first = start + _LENGTH_BYTES
        end = tf.cast(first, tf.int64) + tf.bitcast(values[start:first], tf.int64)
        characters = tf.constant([bytes([b]) for b in range(256)])
        content = tf.cast(values[first:end], tf.int32)
        text = tf.strings.reduce_join(tf.gather(characters, content))
        return tf.io.parse_tensor(text, tf.string), end
    dtype = tf.uint8 if spec.dtype == tf.bool else spec.dtype
    end = start + spec.shape.num_elements() * dtype.size
    # `bitcast` takes a last dimension for the bytes of a value only if there are several.
    byte_dimension = [dtype.size] if dtype.size > 1 else []
    part = tf.bitcast(tf.reshape(values[start:end], [*spec.shape, *byte_dimension]), dtype)
    return tf.cast(part, spec.dtype), end


def _checksum(values: tf.Tensor) -> tf.Tensor:
    """The checksum, uint8 [8]; it detects disk errors, but not forgery."""
    return tf.fingerprint(values[tf.newaxis])[0]


def _values(content: tf.Tensor | bytes) -> tuple[tf.Tensor, tf.Tensor]:
    """A file's values without the checksum, uint8 [n], and whether they agree with it."""
    values_and_checksum = tf.io.parse_tensor(content, tf.uint8)
    values = values_and_checksum[:-_CHECKSUM_BYTES]
    checksum = values_and_checksum[-_CHECKSUM_BYTES:]
    return values, tf.reduce_all(tf.equal(_checksum(values), checksum))


def from_bytes(content: tf.Tensor | bytes, specs: Any) -> Any:
    """The state with these `tf.TensorSpec`s in the content of a file of this module.

    Raises:
      tf.errors.InvalidArgumentError: If the checksum is wrong; in a graph, when it is run.
    """
    values, is_intact = _values(content)
    with tf.control_dependencies([tf.Assert(is_intact, ["a client's state has been damaged"])]):
        values = tf.identity(values)
    flat: list[tf.Tensor] = []
    start: tf.Tensor | int = 0
    for spec in tf.nest.flatten(specs):
        tensor, start = _tensor_of(values, start, spec)
        flat.append(tf.ensure_shape(tensor, spec.shape))
    return tf.nest.pack_sequence_as(specs, flat)
