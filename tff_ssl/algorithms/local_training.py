"""Local training of the clients of one call: a single client, or a folded group.

Every client starts from the broadcast weights and minimizes an objective on its own examples; the
call returns the weighted mean of the model deltas. Two ways to the same numbers:

- `one_step`: with one step of plain gradient descent, a group's result is a sum over examples of
  within-client losses (segments), computed in micro-batches of whole clients;
- `many_steps`: clients one after the other, each with its own steps, epochs and optimizer. The cost
  of a call is then paid once a group and not once a client.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.micro_batches import read_all
from tff_ssl.losses import segments as segments_lib
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.objectives import (
    Batch,
    Evaluated,
    Objective,
    ObjectiveHyperparameters,
    moved_target,
)
from tff_ssl.views import TwoViews

# Two clients at a time keep two cores busy where the small operations of one do not.
_PARALLEL_CLIENTS = 2


class Means(NamedTuple):
    """Weighted means over the clients of a call.

    Attributes:
      delta: Initial minus final weights; a tuple like `trainable`.
      weight: Sum (not mean) of the clients' weights, float32.
      loss: Mean loss of a client's steps, float32.
      z_mean: Mean of z, float32 [d].
      z_squared: Mean of z^2, float32 [d].
    """

    delta: Any
    weight: Any
    loss: Any
    z_mean: Any
    z_squared: Any


class Trained(NamedTuple):
    """The result of a call: `Means`, NaN where there is no example; number of examples, int64."""

    means: Means
    samples: Any


@dataclasses.dataclass(frozen=True)
class LocalTraining:
    """What a client does.

    Attributes:
      model: The model.
      objective: What it minimizes.
      hyperparameters: Of the objective.
      two_views: As in `Task`.
      optimizer: The clients' optimizer; starts anew in every round.
      local_epochs: E, passes over a client's examples.
      local_steps: If positive, so many steps instead of `local_epochs`.
      batch_size: An epoch deals a client's N_k examples into floor(N_k / batch_size) batches of
        equal size up to one (at least one batch); 0 for one batch of all.
      proximal: mu of FedProx: mu / 2 |w - w_broadcast|^2 is added to the loss.
      target_momentum: Of a target network that is kept up during local training; None where it
        stays as it was broadcast.
      uniform: Whether clients weigh 1 instead of N_k.
      seed: Of the order of a client's examples, and of masks.
    """

    model: Model
    objective: Objective
    hyperparameters: ObjectiveHyperparameters
    two_views: TwoViews
    optimizer: tff.learning.optimizers.Optimizer
    local_epochs: int = 1
    local_steps: int = 0
    batch_size: int = 0
    proximal: float = 0.0
    target_momentum: float | None = None
    uniform: bool = False
    seed: int = 0

    def one_step(
        self, weights: Any, target: Any, round_number: tf.Tensor, examples: Any,
        learning_rate: float, micro_batch_size: int,
    ) -> Trained:  # fmt: skip
        """One step of gradient descent on all examples of each client; see the module."""
        everything = read_all(examples)
        clients = _clients(everything)
        weights_of = self._weights(clients.sizes)
        starts = _starts_of_whole_clients(clients.sizes, micro_batch_size)

        def add(chunk, total):
            batch = tf.nest.map_structure(
                lambda t: t[starts[chunk] : starts[chunk + 1]], everything
            )
            ids = clients.ids[starts[chunk] : starts[chunk + 1]]
            # N_k losses of 1 / N_k of the client's weight each.
            share = tf.gather(weights_of / clients.sizes, ids)
            with tf.GradientTape() as tape:
                tape.watch(weights.trainable)
                found = self._evaluate(weights, target, round_number, batch)
                loss = tf.reduce_sum(share * found.losses)
            gradient = tape.gradient(loss, weights.trainable, unconnected_gradients="zero")
            delta = tf.nest.map_structure(lambda g: learning_rate * g, tuple(gradient))
            spread = _spread(found.z, share)
            return chunk + 1, _plus(total, Means(delta, tf.reduce_sum(share), loss, *spread))

        return self._mean(add, tf.shape(starts)[0] - 1, weights, clients)

    def many_steps(
        self, weights: Any, target: Any, round_number: tf.Tensor, examples: Any
    ) -> Trained:
        """Every client's own steps, one client after the other; see the module."""
        everything = read_all(examples)
        clients = _clients(everything)
        weights_of = self._weights(clients.sizes)
        sizes = tf.cast(clients.sizes, tf.int32)
        starts = tf.cumsum(sizes, exclusive=True)

        def add(k, total):
            own = tf.nest.map_structure(lambda t: t[starts[k] : starts[k] + sizes[k]], everything)
            delta, loss, z_mean, z_squared = self._train(
                weights, target, round_number, own, sizes[k]
            )
            one = Means(delta, tf.constant(1.0), loss, z_mean, z_squared)
            weighted = tf.nest.map_structure(lambda t: weights_of[k] * t, one)
            return k + 1, _plus(total, weighted)

        return self._mean(add, tf.shape(sizes)[0], weights, clients)

    def _train(self, weights, target, round_number, examples, size):
        """One client: (delta, mean loss, means of z and z^2) over its steps."""
        batches = tf.maximum(size // self.batch_size, 1) if self.batch_size else tf.constant(1)
        steps = tf.constant(self.local_steps) if self.local_steps else self.local_epochs * batches
        # At most so many passes over the examples in a round: each pass has views of its own.
        passes = self.local_steps or self.local_epochs
        initial = weights.trainable
        specs = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), initial)

        def step(t, trainable, optimizer_state, target, sums):
            epoch, position = t // batches, t % batches
            pass_number = round_number * passes + tf.cast(epoch, tf.int64)
            order = _shuffled(examples, size, pass_number, self.seed)
            chosen = order[position * size // batches : (position + 1) * size // batches]
            batch = tf.nest.map_structure(lambda x: tf.gather(x, chosen), examples)
            current = Weights(trainable, tuple(weights.non_trainable))
            with tf.GradientTape() as tape:
                tape.watch(trainable)
                found = self._evaluate(current, target, pass_number, batch)
                loss = tf.reduce_mean(found.losses)
            gradient = tape.gradient(loss, trainable, unconnected_gradients="zero")
            if self.proximal:
                gradient = tf.nest.map_structure(
                    lambda g, w, w0: g + self.proximal * (w - w0), tuple(gradient), trainable,
                    initial,
                )  # fmt: skip
            optimizer_state, trainable = self.optimizer.next(
                optimizer_state, trainable, tuple(gradient)
            )
            trainable = tuple(trainable)
            if self.target_momentum is not None:
                moved = moved_target(target.trainable, trainable, self.target_momentum)
                target = Weights(moved, target.non_trainable)
            share = tf.fill(tf.shape(found.losses), 1 / tf.cast(tf.size(found.losses), tf.float32))
            sums = _plus(sums, (loss, *_spread(found.z, share)))
            return t + 1, trainable, optimizer_state, target, sums

        d = self._z_dimension
        _, trainable, _, _, sums = tf.while_loop(
            lambda t, *_: t < steps,
            step,
            (
                tf.constant(0),
                initial,
                self.optimizer.initialize(specs),
                target,
                (tf.constant(0.0), tf.zeros([d]), tf.zeros([d])),
            ),
            parallel_iterations=1,
        )
        delta = tf.nest.map_structure(lambda w0, w: w0 - w, initial, trainable)
        return delta, *(s / tf.cast(steps, tf.float32) for s in sums)

    def _evaluate(self, weights, target, pass_number, batch) -> Evaluated:
        x1, x2 = self.two_views(batch["image"], batch["example_id"], pass_number)
        labels = batch["label"] if self.objective.supervised else None
        ids = batch["example_id"]
        seen = Batch(x1, x2, _clients(batch), labels, ids, pass_number, self.seed)
        return self.objective.evaluate(self.model, weights, target, seen, self.hyperparameters)

    def _weights(self, sizes: tf.Tensor) -> tf.Tensor:
        return tf.ones_like(sizes) if self.uniform else sizes

    @property
    def _z_dimension(self) -> int:
        model = self.model
        return (
            model.projector[-1]
            if model.projector and not self.objective.supervised
            else model.features
        )

    def _mean(self, add: Callable, count: tf.Tensor, weights: Any, clients: Any) -> Trained:
        """Adds up `count` times, and divides by the weight."""
        zero, vector = tf.constant(0.0), tf.zeros([self._z_dimension])
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


def _clients(batch: Any) -> segments_lib.Segments:
    """The clients of a batch; examples without a `client` are one client's."""
    if "client" in batch:
        return segments_lib.by_client(batch["client"])
    return segments_lib.one(tf.shape(batch["example_id"])[0])


def _starts_of_whole_clients(sizes: tf.Tensor, batch_size: int) -> tf.Tensor:
    """Where micro-batches start, and the end: int32 [m + 1].

    A client goes to the micro-batch of its first example, so one has fewer than batch_size + N_k.
    """
    sizes = tf.cast(sizes, tf.int32)
    starts = tf.cumsum(sizes, exclusive=True)
    _, first = tf.unique(starts // batch_size)
    firsts = tf.math.unsorted_segment_min(starts, first, tf.reduce_max(first, 0) + 1)
    return tf.concat([firsts, [tf.reduce_sum(sizes)]], 0)


def _shuffled(examples: Any, size: tf.Tensor, pass_number: tf.Tensor, seed: int) -> tf.Tensor:
    """An order of a client's examples: a function of the seed, the pass and the example ids."""
    key = tf.stack([tf.cast(seed, tf.int64), pass_number])
    draws = tf.random.stateless_uniform([size], key + examples["example_id"][:1])
    return tf.argsort(draws)


def _spread(z: tf.Tensor, share: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    share = share[:, tf.newaxis]
    return tf.reduce_sum(share * z, 0), tf.reduce_sum(share * tf.square(z), 0)


def _plus(a: Any, b: Any) -> Any:
    return tf.nest.map_structure(tf.add, a, b)
