"""Rows that the server receives from each single client, not as a mean over clients.

A client sends a matrix of rows together with its number. The server has a place for every client of
the population, and adds the matrix to zeros at the client's place. The sum has the same shape for
all cohorts, and does not depend on the order of the clients. A round with it may therefore be cut
into slices, and lowers to the map-reduce and the mergeable form. (TFF's compiler to the third form
of `lowering.FORMS` accepts no `federated_aggregate`.) Rows of zeros stand for a client that sent
nothing.

Secure sums and differential privacy cannot hide these rows, because the server reads each client's.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.errors import ConfigurationError
from tff_ssl.templates.task import Task


class ClientRows(NamedTuple):
    """The number of a client in the population, int64 from 0; and its rows, float32 [r, d]."""

    client: Any
    rows: Any


def rows_of(examples: Any, rows: tf.Tensor) -> ClientRows:
    """The rows of the client of these examples, a batch with a field `client`."""
    return ClientRows(tf.cast(examples["client"][0], tf.int64), rows)


def check_population(task: Task, algorithm: str) -> int:
    """The number of clients of the population; the algorithm's name is for messages.

    Raises:
      ConfigurationError: If the task does not give the sizes of its clients, or their examples have
        no field `client`.
    """
    if not task.client_sizes:
        raise ConfigurationError(
            f"{algorithm} needs the population, because its server collects rows of single "
            "clients: build it with Task.client_sizes"
        )
    names = tff.structure.name_list(task.element_type)
    if "client" not in names:
        raise ConfigurationError(
            f"{algorithm} needs examples with a field `client`, the number of their client; they "
            f"have {', '.join(names)}"
        )
    return len(task.client_sizes)


def collect(sent: tff.Value, clients: int) -> tff.Value:
    """Collects `ClientRows` at CLIENTS; for use in a `tff.federated_computation`.

    A client whose number is not in the population makes the round fail.

    Returns:
      The rows by client at SERVER, float32 [clients, r, d]; zeros where a client sent nothing.
    """
    sent_type = sent.type_signature.member
    total_type = tff.types.TensorType(np.float32, [clients, *sent_type.rows.shape])

    @tff.tensorflow.computation(total_type, sent_type)
    def accumulate(total, one):
        place = tf.reshape(one.client, [1, 1])
        return tf.tensor_scatter_nd_add(total, place, one.rows[tf.newaxis])

    zero = tff.tensorflow.computation(lambda: tf.zeros(total_type.shape))
    merge = tff.tensorflow.computation(lambda total, other: total + other, total_type, total_type)
    report = tff.tensorflow.computation(lambda total: total, total_type)
    return tff.federated_aggregate(sent, zero(), accumulate, merge, report)
