"""The output of clients after local training, and the server's means of it."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.templates import non_finite
from tff_ssl.templates.local_training import LocalModel
from tff_ssl.templates.weight_groups import where


class ClientOutput(NamedTuple):
    """The result of a client's work."""

    state: Any  #: The client's new state.
    #: Contributions to average: a `tff.learning.templates.ClientResult` for each mean.
    updates: tuple[tff.learning.templates.ClientResult, ...]
    #: Metrics of this client by name, among them `loss` and `weight`, float32, and `samples` and
    #: `dropped`, int64.
    metrics: Any
    #: `collected_rows.ClientRows` if the server collects rows of single clients; otherwise empty.
    rows: Any = ()


def output_if_finite(
    updates: Sequence[tuple[Any, tf.Tensor]],
    new_state: Any,
    old_state: Any,
    trained: LocalModel,
    samples: tf.Tensor,
    extra: Mapping[str, tf.Tensor],
    rows: Any = (),
) -> ClientOutput:
    """The output of a client, which keeps its old state and sends zeros if a value is not finite.

    Args:
      updates: Pairs of a contribution and its weight, float32, one for each mean.
      new_state: State of the client after the round.
      old_state: State of the client before the round.
      trained: Model after local training; its loss and spread become metrics.
      samples: Number of examples n_k, int.
      extra: Further metrics by name, float32.
      rows: `collected_rows.ClientRows`, if the server collects them.
    """
    floats = [t for t in tf.nest.flatten(rows) if t.dtype.is_floating]
    _, is_finite = non_finite.zero_unless_finite((tuple(updates), trained, floats))
    values = (tuple(updates), trained, rows)
    sent, trained, rows = where(is_finite, values, tf.nest.map_structure(tf.zeros_like, values))
    extra = {name: tf.where(is_finite, value, 0.0) for name, value in extra.items()}
    variance = tf.nn.relu(trained.z_squared - tf.square(trained.z_mean))
    metrics = collections.OrderedDict(
        loss=trained.loss,
        encoding_std=tf.reduce_mean(tf.sqrt(variance)),
        **extra,
        weight=tf.reduce_max(tf.stack([weight for _, weight in sent])),
        samples=tf.cast(samples, tf.int64),
        dropped=1 - tf.cast(is_finite, tf.int64),
    )
    results = tuple(tff.learning.templates.ClientResult(*update) for update in sent)
    return ClientOutput(where(is_finite, new_state, old_state), results, metrics, rows)


def server_metrics(client_metrics: tff.Value) -> tff.Value:
    """Weighted means of `ClientOutput.metrics`, and sums of samples and of dropped clients."""
    metrics = collections.OrderedDict()
    for name in tff.structure.name_list(client_metrics.type_signature.member):
        if name in ("samples", "dropped"):
            metrics[name] = tff.federated_sum(client_metrics[name])
        elif name != "weight":
            metrics[name] = tff.federated_mean(client_metrics[name], client_metrics.weight)
    metrics["dropped_clients"] = metrics.pop("dropped")
    return tff.federated_zip(metrics)


def previous_if_empty(previous: Any, mean: Any) -> Any:
    """`mean`, or `previous` where no client contributed: a mean without weight is NaN."""
    _, is_finite = non_finite.zero_unless_finite(mean)
    return tf.nest.map_structure(lambda p, m: tf.where(is_finite, m, p), previous, mean)
