"""Clients as `tff.simulation.datasets.ClientData`, their images in a file that TFF's worker reads.

A round then sends client ids (8 bytes each) and not pixels: the dataset is built inside the
TensorFlow Federated computation, from one SQLite file. The file must exist under the same path
on every machine that runs a worker.
"""

import collections
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
from datasets.image_dataset import NO_LABEL, Split

_FORMAT = 1
_META = ("format", "clients", "examples", "height", "width", "channels")
_DECODE_AT_ONCE = 256  # examples of `group_dataset` decoded by one op


def write_store(
    path: str | os.PathLike[str], split: Split, partition: Sequence[npt.NDArray[np.int64]]
) -> None:
    """Writes the examples of every client into one SQLite file.

    The file appears complete or not at all: it is written under a temporary name beside `path`,
    which it then replaces.

    Args:
      path: The file; its folder must exist.
      split: The examples.
      partition: Indices into `split` per client; client k gets the id `str(k)`.

    Raises:
      DatasetError: No clients, a client without examples, an index outside `split` or used twice,
        a folder that does not exist or cannot be written.
    """
    path = pathlib.Path(path)
    _check_partition(len(split), partition)
    # One name, so that what a killed program leaves is overwritten by the next.
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        connection = sqlite3.connect(partial)
        try:
            _fill(connection, split, partition)
        finally:
            connection.close()
        os.replace(partial, path)
    except (OSError, sqlite3.Error) as error:
        raise DatasetError(f"{path} cannot be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _check_partition(num_examples: int, partition: Sequence[npt.NDArray[np.int64]]) -> None:
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


def _fill(
    connection: sqlite3.Connection, split: Split, partition: Sequence[npt.NDArray[np.int64]]
) -> None:
    # A file that fails to be written is thrown away, so SQLite need not be able to roll back.
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    # Several CIFAR images to a page: a fifth less on the disk than at the default of 4 KB.
    connection.execute("PRAGMA page_size = 16384")
    connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER)")
    height, width, channels = split.images.shape[1:]
    values = (_FORMAT, len(partition), sum(map(len, partition)), height, width, channels)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", zip(_META, values, strict=True))
    # The image comes last: SQLite then reads the other columns without walking through it.
    connection.execute(
        "CREATE TABLE examples (client INTEGER, example_id INTEGER, label INTEGER, image BLOB)"
    )
    connection.executemany("INSERT INTO examples VALUES (?, ?, ?, ?)", _rows(split, partition))
    # With the label the index answers `client_histograms` alone.
    connection.execute("CREATE INDEX by_client ON examples (client, example_id, label)")
    connection.commit()


def _rows(
    split: Split, partition: Sequence[npt.NDArray[np.int64]]
) -> Iterator[tuple[int, int, int, bytes]]:
    """Rows in the order of clients, and of example ids in a client: neighbours on the disk."""
    ids, labels = split.example_ids, split.labels
    for client, indices in enumerate(partition):
        for i in indices[np.argsort(ids[indices], kind="stable")]:
            yield client, int(ids[i]), int(labels[i]), split.images[i].tobytes()


def element_spec(
    image_shape: Sequence[int], with_labels: bool = False
) -> "collections.OrderedDict[str, tf.TensorSpec]":
    """The type of an element of `StoredClientData` with images of that shape."""
    spec = collections.OrderedDict(
        client=tf.TensorSpec([], tf.int64),
        example_id=tf.TensorSpec([], tf.int64),
        image=tf.TensorSpec(image_shape, tf.uint8),
    )
    if with_labels:
        spec["label"] = tf.TensorSpec([], tf.int32)
    return spec


class StoredClientData(tff.simulation.datasets.ClientData):
    """The clients of a file that `write_store` wrote.

    An element is a struct of, in this order,
      client: int64 [], index of the client, its id as a number;
      example_id: int64 [], unique in the data set;
      image: uint8 [height, width, channels];
      label: int32 [], only with `with_labels`: a self-supervised client never sees one.

    Datasets are in ascending order of (client, example_id), and consist of graph operations
    with kernels in TFF's worker.
    """

    def __init__(self, path: str | os.PathLike[str], with_labels: bool = False) -> None:
        """Opens a store.

        Args:
          path: A file that `write_store` wrote.
          with_labels: Whether elements have a label, for supervised baselines.

        Raises:
          DatasetError: The file is missing, is not a store, or is one of another format.
        """
        # Absolute: the worker need not run in our working directory.
        self._path = os.path.abspath(path)
        meta = self._read_meta()
        self._image_shape = (meta["height"], meta["width"], meta["channels"])
        self._num_examples = meta["examples"]
        self._client_ids = [str(k) for k in range(meta["clients"])]
        self._with_labels = with_labels
        self._group_dataset_computation: tff.Computation | None = None

    def _read_meta(self) -> Mapping[str, int]:
        if not os.path.isfile(self._path):
            raise DatasetError(f"client store {self._path} does not exist")
        try:
            meta = dict(self._query("SELECT name, value FROM meta"))
        except sqlite3.Error as error:
            raise DatasetError(f"{self._path} is not a client store: {error}") from error
        if set(meta) != set(_META) or meta["format"] != _FORMAT:
            raise DatasetError(f"{self._path} is not a client store of format {_FORMAT}")
        return meta

    def _query(self, sql: str) -> list[Any]:
        connection = sqlite3.connect(f"file:{_uri_path(self._path)}?mode=ro", uri=True)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    @property
    def path(self) -> str:
        """Absolute path of the store."""
        return self._path

    @property
    def client_ids(self) -> list[str]:
        """`str(k)` for every client k, in order."""
        return self._client_ids

    @property
    def num_examples(self) -> int:
        """Examples of all clients together."""
        return self._num_examples

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        return self._image_shape

    @property
    def element_type_structure(self) -> "collections.OrderedDict[str, tf.TensorSpec]":
        """The type of an element, as `tf.TensorSpec`s."""
        return element_spec(self._image_shape, self._with_labels)

    @property
    def serializable_dataset_fn(self) -> Callable[[tf.Tensor], tf.data.Dataset]:
        """Client id (string []) -> its dataset, for use in a graph."""
        return self._client_dataset

    def create_tf_dataset_for_client(self, client_id: str) -> tf.data.Dataset:
        """The dataset of one client, outside of a graph.

        Raises:
          DatasetError: There is no such client.
        """
        return self._client_dataset(self._client_ids[self.group_indices([client_id])[0]])

    def group_indices(self, client_ids: Sequence[str | int]) -> npt.NDArray[np.int64]:
        """Checks a group of clients on the host, before it goes into a computation.

        Args:
          client_ids: Ids, as strings or as numbers.

        Returns:
          int64 [k], what `group_dataset` takes.

        Raises:
          DatasetError: An empty group, an unknown client, or a client named twice (a group's
            query would give its examples once).
        """
        if len(client_ids) == 0:
            raise DatasetError("a group needs at least one client")
        for client_id in client_ids:
            text = str(client_id)
            known = text.isascii() and text.isdecimal() and str(int(text)) == text
            if not known or int(text) >= len(self._client_ids):
                raise DatasetError(
                    f"client {client_id!r} is not in {self._path}, which has the clients "
                    f"0 to {len(self._client_ids) - 1}"
                )
        indices = np.array([int(client_id) for client_id in client_ids], np.int64)
        if len(np.unique(indices)) < len(indices):
            raise DatasetError("a group names a client twice")
        return indices

    def group_dataset(self, client_indices: tf.Tensor) -> tf.data.Dataset:
        """All examples of a group of clients, read in one query.

        Args:
          client_indices: int64 [k], in any order; a client given twice is read once. Outside of a
            graph they are checked as by `group_indices`.

        Returns:
          Elements of `element_type_structure` in order of (client, example_id).

        Raises:
          DatasetError: The group is empty, as far as that can be seen here.
        """
        return self.group_batches(client_indices, _DECODE_AT_ONCE).unbatch()

    def group_batches(self, client_indices: tf.Tensor, batch_size: int) -> tf.data.Dataset:
        """`group_dataset(...).batch(batch_size)`, decoded a batch at a time: faster.

        Args:
          client_indices: As for `group_dataset`.
          batch_size: Examples per batch, at least 1; the last batch may be smaller.

        Returns:
          Elements of `element_type_structure` with a leading dimension.
        """
        if batch_size < 1:
            raise DatasetError(f"batch_size must be at least 1, not {batch_size}")
        client_indices = self._checked_group(client_indices)
        columns = "client, example_id, image" + (", label" if self._with_labels else "")
        # Numbers only, so nothing that a client id says can become part of the statement.
        listed = tf.strings.reduce_join(tf.strings.as_string(client_indices), separator=",")
        query = tf.strings.join(
            [
                f"SELECT {columns} FROM examples WHERE client IN (",
                listed,
                ") ORDER BY client, example_id",
            ]
        )
        types = (tf.int64, tf.int64, tf.string) + ((tf.int32,) if self._with_labels else ())
        rows = tf.data.experimental.SqlDataset("sqlite", self._path, query, types)
        return rows.batch(batch_size).map(self._decode)

    @property
    def group_dataset_computation(self) -> tff.Computation:
        """A `tff.tensorflow.computation`: int64[?] client indices -> sequence of elements."""
        if self._group_dataset_computation is None:
            self._group_dataset_computation = tff.tensorflow.computation(
                self.group_dataset, tff.types.TensorType(np.int64, [None])
            )
        return self._group_dataset_computation

    def group_batches_computation(self, batch_size: int) -> tff.Computation:
        """As `group_dataset_computation`, for `group_batches`."""
        return tff.tensorflow.computation(
            lambda indices: self.group_batches(indices, batch_size),
            tff.types.TensorType(np.int64, [None]),
        )

    def client_sizes(self) -> npt.NDArray[np.int64]:
        """Number of examples of each client, int64 [clients]."""
        rows = self._query("SELECT COUNT(*) FROM examples GROUP BY client ORDER BY client")
        return np.array(rows, np.int64).reshape(-1)

    def client_histograms(self, num_classes: int | None = None) -> npt.NDArray[np.int64]:
        """Labels of each client, for reports on the host; never part of a computation.

        Args:
          num_classes: Number of columns; None means the largest label plus one.

        Returns:
          int64 [clients, num_classes]; examples without a label are not counted.

        Raises:
          DatasetError: A label is not below `num_classes`.
        """
        rows = np.array(
            self._query("SELECT client, label, COUNT(*) FROM examples GROUP BY client, label"),
            np.int64,
        )
        rows = rows[rows[:, 1] > NO_LABEL]
        needed = int(rows[:, 1].max(initial=-1)) + 1
        if num_classes is not None and needed > num_classes:
            raise DatasetError(f"num_classes must be at least {needed}, not {num_classes}")
        histograms = np.zeros((len(self._client_ids), num_classes or needed), np.int64)
        histograms[rows[:, 0], rows[:, 1]] = rows[:, 2]
        return histograms

    def _client_dataset(self, client_id: tf.Tensor) -> tf.data.Dataset:
        return self.group_dataset(tf.strings.to_number(client_id, tf.int64)[tf.newaxis])

    def _checked_group(self, client_indices: tf.Tensor) -> tf.Tensor:
        """Client indices as an int64 [k] tensor, checked as far as their values are known."""
        if not tf.is_symbolic_tensor(client_indices):
            return tf.constant(self.group_indices(np.asarray(client_indices).tolist()))
        if client_indices.shape == [0]:
            raise DatasetError("a group needs at least one client")
        return client_indices

    def _decode(
        self, client: tf.Tensor, example_id: tf.Tensor, image: tf.Tensor, *label: tf.Tensor
    ) -> "collections.OrderedDict[str, tf.Tensor]":
        """A batch of rows -> a batch of elements."""
        pixels = tf.reshape(tf.io.decode_raw(image, tf.uint8), [-1, *self._image_shape])
        elements = collections.OrderedDict(client=client, example_id=example_id, image=pixels)
        if self._with_labels:
            elements["label"] = label[0]
        return elements


def _uri_path(path: str) -> str:
    """A path for a SQLite URI, in which these characters would end it."""
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
