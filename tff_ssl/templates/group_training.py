"""Local training of the clients of one call: a single client, or a folded group.

Every client starts from the broadcast weights and minimizes an objective on its own examples; the
call returns the weighted mean of the model deltas. There are two ways to compute it:

- `one_step`: with one step of plain gradient descent, a group's result is a sum over examples of
  within-client losses (segments), computed in micro-batches of whole clients;
- `many_steps`: the clients train one after the other, each with its own steps, epochs and
  optimizer. A group then pays the overhead of a call once, not once for each client.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tff_ssl.losses.segments import Segments
from tff_ssl.templates.client_batches import clients_of, starts_of_whole_clients
from tff_ssl.templates.local_training import LocalTraining, plus, spread
from tff_ssl.templates.micro_batches import read_all

# Two clients at a time keep two cores busy; the small operations of a single client do not.
_PARALLEL_CLIENTS = 2


class Means(NamedTuple):
    """Weighted means over the clients of a call."""

    delta: Any  #: Initial minus final weights; a tuple like `trainable`.
    weight: Any  #: Sum (not mean) of the clients' weights, float32.
    loss: Any  #: Mean loss of a client's steps, float32.
    z_mean: Any  #: Mean of z, float32 [d].
    z_squared: Any  #: Mean of z^2, float32 [d].


class Trained(NamedTuple):
    """The means over the clients, NaN without examples; and the number of examples, int64."""

    means: Means
    samples: Any


# (weights before and after a client's training, tuples like `trainable`; number of the round,
# int64) -> the delta that the client contributes, a tuple like `trainable`.
DeltaRule = Callable[[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...], tf.Tensor], Any]


def one_step(
    training: LocalTraining, weights: Any, target: Any, round_number: tf.Tensor, examples: Any,
    learning_rate: float, micro_batch_size: int,
) -> Trained:  # fmt: skip
    """One step of gradient descent on all examples of each client; see the module.

    Args:
      training: Objective, views and weights of the clients; its optimizer is not used.
      weights: Broadcast weights.
      target: Weights of the target network.
      round_number: Number of the round, int64.
      examples: Examples of the clients, a data set, client by client.
      learning_rate: Learning rate of the step.
      micro_batch_size: Number of examples processed at a time, in whole clients.
    """
    everything = read_all(examples)
    clients = clients_of(everything)
    client_weights = training.client_weight(clients.sizes)
    starts = starts_of_whole_clients(clients.sizes, micro_batch_size)

    def add(chunk, total):
        batch = tf.nest.map_structure(lambda t: t[starts[chunk] : starts[chunk + 1]], everything)
        ids = clients.ids[starts[chunk] : starts[chunk + 1]]
        # Each of a client's N_k losses has 1 / N_k of the client's weight.
        share = tf.gather(client_weights / clients.sizes, ids)
        with tf.GradientTape() as tape:
            tape.watch(weights.trainable)
            evaluated = training.evaluate(weights, target, training.seen(batch, round_number))
            loss = tf.reduce_sum(share * evaluated.losses)
        gradient = tape.gradient(loss, weights.trainable, unconnected_gradients="zero")
        delta = tf.nest.map_structure(lambda g: learning_rate * g, tuple(gradient))
        moments = spread(evaluated.z, share)
        return chunk + 1, plus(total, Means(delta, tf.reduce_sum(share), loss, *moments))

    return _mean(training, add, tf.shape(starts)[0] - 1, weights, clients)


def many_steps(
    training: LocalTraining, weights: Any, target: Any, round_number: tf.Tensor, examples: Any,
    delta_rule: DeltaRule | None = None,
) -> Trained:  # fmt: skip
    """The local steps of all clients, one client after the other; see the module.

    Arguments are those of `one_step`; `delta_rule` gives a client's delta, by default initial minus
    final weights.
    """
    everything = read_all(examples)
    clients = clients_of(everything)
    client_weights = training.client_weight(clients.sizes)
    sizes = tf.cast(clients.sizes, tf.int32)
    starts = tf.cumsum(sizes, exclusive=True)

    def add(k, total):
        end = starts[k] + sizes[k]
        examples_k = tf.nest.map_structure(lambda t: t[starts[k] : end], everything)
        trained = training.train(weights, target, round_number, examples_k)
        before, after = tuple(weights.trainable), trained.weights.trainable
        if delta_rule is None:
            delta = tf.nest.map_structure(tf.subtract, before, after)
        else:
            delta = delta_rule(before, after, round_number)
        unweighted = Means(delta, tf.constant(1.0), trained.loss, trained.z_mean, trained.z_squared)
        weighted = tf.nest.map_structure(lambda t: client_weights[k] * t, unweighted)
        return k + 1, plus(total, weighted)

    return _mean(training, add, tf.shape(sizes)[0], weights, clients)


def _mean(
    training: LocalTraining, add: Callable, count: tf.Tensor, weights: Any, clients: Segments
) -> Trained:
    """The weighted mean over clients: the sum of `count` calls of `add` over its weight."""
    zero, vector = tf.constant(0.0), tf.zeros([training.z_dimension])
    delta = tf.nest.map_structure(tf.zeros_like, tuple(weights.trainable))
    _, total = tf.while_loop(
        lambda i, _: i < count,
        add,
        (tf.constant(0), Means(delta, zero, zero, vector, vector)),
        parallel_iterations=_PARALLEL_CLIENTS,
    )
    mean = tf.nest.map_structure(lambda t: t / total.weight, total)
    samples = tf.cast(tf.reduce_sum(clients.sizes), tf.int64)
    return Trained(mean._replace(weight=total.weight), samples)
