"""A SQLite store of the clients' images, and a `tff.simulation.datasets.ClientData` that reads it.

TensorFlow Federated's (TFF's) worker builds the datasets inside the computation, from one SQLite
file, so that a round sends client ids (8 bytes each) instead of pixels. The file must exist under
the same path on every machine that runs a worker.
"""

import collections
import contextlib
import functools
import os
import pathlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_federated as tff

from datasets.errors import DatasetError
from datasets.image_dataset import Split

Partition = Sequence[npt.NDArray[np.int64]]  # indices of each client's examples

_FORMAT = 1
_META = ("format", "clients", "examples", "height", "width", "channels")
_ALL = 2**31 - 1
_INDICES = tff.types.TensorType(np.int64, [None])


def write_store(path: str | os.PathLike[str], split: Split, partition: Partition) -> None:
    """Writes the examples of every client into one SQLite file, new or empty.

    Client k of the partition, which has indices into the split, gets the id `str(k)`.

    Raises:
      DatasetError: No clients, a client without examples, an index outside `split` or used twice,
        a folder that does not exist or cannot be written.
    """
    path = pathlib.Path(path)
    _check_partition(len(split), partition)
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            _fill(connection, split, partition)
    except (OSError, sqlite3.Error) as error:
        raise DatasetError(f"{path} cannot be written: {error}") from error


def _check_partition(num_examples: int, partition: Partition) -> None:
    if not partition:
        raise DatasetError("a store needs at least one client")
    empty = next((k for k, indices in enumerate(partition) if len(indices) == 0), None)
    if empty is not None:
        raise DatasetError(f"client {empty} of the partition has no examples")
    used = np.concatenate(partition)
    if used.min() < 0 or used.max() >= num_examples:
        raise DatasetError(f"the partition has indices outside the {num_examples} examples")
    if np.bincount(used).max() > 1:
        raise DatasetError("the partition gives an example to two clients")


def _fill(connection: sqlite3.Connection, split: Split, partition: Partition) -> None:
    """Writes the tables `meta` and `examples`, and the index of `examples`."""
    # A file that cannot be written is removed as a whole, so SQLite need not roll back.
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    # With several CIFAR images on a page, the file is a fifth smaller than at the default of 4 KB.
    connection.execute("PRAGMA page_size = 16384")
    connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER)")
    height, width, channels = split.images.shape[1:]
    values = (_FORMAT, len(partition), sum(map(len, partition)), height, width, channels)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", zip(_META, values, strict=True))
    # The image is the last column, so that SQLite can read the others without reading it.
    connection.execute(
        "CREATE TABLE examples (client INTEGER, example_id INTEGER, label INTEGER, image BLOB)"
    )
    connection.executemany("INSERT INTO examples VALUES (?, ?, ?, ?)", _rows(split, partition))
    connection.execute("CREATE INDEX by_client ON examples (client, example_id)")
    connection.commit()


def _rows(split: Split, partition: Partition) -> Iterator[tuple[int, int, int, bytes]]:
    """Rows in the order of (client, example_id), so that a client's are contiguous."""
    ids, labels = split.example_ids, split.labels
    for client, indices in enumerate(partition):
        for i in indices[np.argsort(ids[indices], kind="stable")]:
            yield client, int(ids[i]), int(labels[i]), split.images[i].tobytes()


def element_spec(
    image_shape: Sequence[int], with_labels: bool = False, batched: bool = False
) -> "collections.OrderedDict[str, tf.TensorSpec]":
    """The specs of an element of `StoredClientData`, or of a batch of any number of elements."""
    batch = [None] if batched else []
    spec = collections.OrderedDict(
        client=tf.TensorSpec(batch, tf.int64),
        example_id=tf.TensorSpec(batch, tf.int64),
        image=tf.TensorSpec([*batch, *image_shape], tf.uint8),
    )
    if with_labels:
        spec["label"] = tf.TensorSpec(batch, tf.int32)
    return spec


class StoredClientData(tff.simulation.datasets.ClientData):
    """The clients of a file that `write_store` wrote.

    An element is a struct with these fields, in this order:
      client: Index of the client, which is its id as a number, int64 [].
      example_id: Id that is unique in the data set, int64 [].
      image: Pixels, uint8 [height, width, channels].
      label: Class label, int32 []; only `with_labels`, since self-supervised clients see none.

    Datasets are in ascending order of (client, example_id), and consist of graph operations for
    which TFF's worker has kernels.

    Attributes:
      path: Absolute path of the store.
    """

    def __init__(self, path: str | os.PathLike[str], with_labels: bool = False) -> None:
        """Opens the file.

        Raises:
          DatasetError: The file is missing, is not a store, or has another format.
        """
        # The path is absolute, because the worker may run in another working directory.
        self.path = os.path.abspath(path)
        meta = self._read_meta()
        self._image_shape = (meta["height"], meta["width"], meta["channels"])
        self._num_clients = meta["clients"]
        self._with_labels = with_labels

    def _read_meta(self) -> Mapping[str, int]:
        if not os.path.isfile(self.path):
            raise DatasetError(f"client store {self.path} does not exist")
        try:
            meta = dict(self._query("SELECT name, value FROM meta"))
        except sqlite3.Error as error:
            raise DatasetError(f"{self.path} is not a client store: {error}") from error
        if set(meta) != set(_META) or meta["format"] != _FORMAT:
            raise DatasetError(f"{self.path} is not a client store of format {_FORMAT}")
        return meta

    def _query(self, sql: str) -> list[Any]:
        uri = f"{pathlib.Path(self.path).as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            return connection.execute(sql).fetchall()

    @functools.cached_property
    def client_ids(self) -> list[str]:
        """Ids of the clients, `str(k)` for client k, in order.

        The list is made on request, so that a store of many clients opens at once.
        """
        return [str(k) for k in range(self._num_clients)]

    @property
    def element_type_structure(self) -> "collections.OrderedDict[str, tf.TensorSpec]":
        return element_spec(self._image_shape, self._with_labels)

    @property
    def batch_type_structure(self) -> "collections.OrderedDict[str, tf.TensorSpec]":
        """The specs of the batch of a group of clients; its number of examples is None."""
        return element_spec(self._image_shape, self._with_labels, batched=True)

    @property
    def serializable_dataset_fn(self) -> Callable[[tf.Tensor], tf.data.Dataset]:
        """A function from a client id, string [], to the client's dataset, for use in a graph."""
        return self._client_dataset

    def create_tf_dataset_for_client(self, client_id: str) -> tf.data.Dataset:
        """The dataset of one client, outside of a graph; a DatasetError if it does not exist."""
        return self._client_dataset(str(self.group_indices([client_id])[0]))

    def group_indices(self, client_ids: Sequence[str | int]) -> npt.NDArray[np.int64]:
        """Indices of a group of clients for `group_dataset`, int64 [k].

        Raises:
          DatasetError: An empty group, an unknown client, or a client named twice (the group's
            query would return its examples only once).
        """
        if len(client_ids) == 0:
            raise DatasetError("a group needs at least one client")
        for client_id in client_ids:
            text = str(client_id)
            canonical = text.isascii() and text.isdecimal() and str(int(text)) == text
            if not canonical or int(text) >= self._num_clients:
                raise DatasetError(
                    f"client {client_id!r} is not in {self.path}, which has the clients "
                    f"0 to {self._num_clients - 1}"
                )
        indices = np.array([int(client_id) for client_id in client_ids], np.int64)
        if len(np.unique(indices)) < len(indices):
            raise DatasetError("a group names a client twice")
        return indices

    def group_dataset(self, client_indices: tf.Tensor) -> tf.data.Dataset:
        """The dataset of all examples of a group of clients, read in one query.

        Elements are in the order of (client, example_id); indices, int64 [k], are in any order.

        Raises:
          DatasetError: Outside of a graph, the errors of `group_indices`; in a graph, a group whose
            shape says that it is empty.
        """
        return self.group_batch(client_indices).unbatch()

    def group_batch(self, client_indices: tf.Tensor) -> tf.data.Dataset:
        """The elements of `group_dataset` as one batch, without a dataset element for each."""
        client_indices = self._checked_group(client_indices)
        columns = "client, example_id, image" + (", label" if self._with_labels else "")
        # The indices are numbers, so a client id cannot become part of the SQL statement.
        listed = tf.strings.reduce_join(tf.strings.as_string(client_indices), separator=",")
        select = f"SELECT {columns} FROM examples WHERE client IN ("
        query = tf.strings.join([select, listed, ") ORDER BY client, example_id"])
        types = (tf.int64, tf.int64, tf.string) + ((tf.int32,) if self._with_labels else ())
        rows = tf.data.experimental.SqlDataset("sqlite", self.path, query, types)
        return rows.batch(_ALL).map(self._decode)

    @functools.cached_property
    def group_dataset_computation(self) -> tff.Computation:
        """`group_dataset` as a `tff.tensorflow.computation`, (int64[?] -> element*)."""
        return tff.tensorflow.computation(self.group_dataset, _INDICES)

    @functools.cached_property
    def group_batch_computation(self) -> tff.Computation:
        """`group_batch` as a `tff.tensorflow.computation`, (int64[?] -> batch*)."""
        return tff.tensorflow.computation(self.group_batch, _INDICES)

    def client_sizes(self) -> npt.NDArray[np.int64]:
        """Number of examples of each client, int64 [clients]."""
        rows = self._query("SELECT COUNT(*) FROM examples GROUP BY client ORDER BY client")
        return np.array(rows, np.int64).reshape(-1)

    def _client_dataset(self, client_id: tf.Tensor) -> tf.data.Dataset:
        return self.group_dataset(tf.strings.to_number(client_id, tf.int64)[tf.newaxis])

    def _checked_group(self, client_indices: tf.Tensor) -> tf.Tensor:
        """Client indices as an int64 [k] tensor, checked if their values are known."""
        if not tf.is_symbolic_tensor(client_indices):
            return tf.constant(self.group_indices(np.asarray(client_indices).tolist()))
        if client_indices.shape == [0]:
            raise DatasetError("a group needs at least one client")
        return client_indices

    def _decode(
        self, client: tf.Tensor, example_id: tf.Tensor, image: tf.Tensor, *label: tf.Tensor
    ) -> "collections.OrderedDict[str, tf.Tensor]":
        """Converts a batch of rows to a batch of elements."""
        pixels = tf.reshape(tf.io.decode_raw(image, tf.uint8), [-1, *self._image_shape])
        elements = collections.OrderedDict(client=client, example_id=example_id, image=pixels)
        if self._with_labels:
            elements["label"] = label[0]
        return elements
