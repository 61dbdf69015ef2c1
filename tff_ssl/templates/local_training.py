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

from tff_ssl.losses import segments as segments_lib
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.objectives.hyperparameters import ObjectiveHyperparameters
from tff_ssl.objectives.registry import OBJECTIVES, Batch, Evaluated, Objective, moved_target
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.micro_batches import read_all
from tff_ssl.templates.task import Task
from tff_ssl.views.augmentation import TwoViews

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


class LocalModel(NamedTuple):
    """A client's model after its local steps.

    Attributes:
      weights: `Weights`.
      target: `Weights` of the target network.
      loss: Mean over the steps, float32.
      z_mean: Mean of z, float32 [d].
      z_squared: Mean of z^2, float32 [d].
    """

    weights: Weights
    target: Weights
    loss: Any
    z_mean: Any
    z_squared: Any


# (batch, the objective on it) -> what is added to each example's loss, float32 [n].
Regularizer = Callable[[Batch, Evaluated], tf.Tensor]
# (weights, their non-trainable ones as the objective left them; step of the round, int32) ->
# (what is added to the loss, float32; the non-trainable weights as this leaves them).
Term = Callable[[Weights, tf.Tensor], tuple[tf.Tensor, tuple[tf.Tensor, ...]]]


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
      schedule: Round number -> learning rate; None for the optimizer's own.
      l2: This much of |w|^2 / 2 is added to the loss.
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
    schedule: Callable[[tf.Tensor], tf.Tensor] | None = None
    l2: float = 0.0
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
                found = self._evaluate(weights, target, self._seen(batch, round_number))
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
            trained = self.train(weights, target, round_number, own)
            delta = tf.nest.map_structure(
                tf.subtract, tuple(weights.trainable), trained.weights.trainable
            )
            one = Means(delta, tf.constant(1.0), trained.loss, trained.z_mean, trained.z_squared)
            weighted = tf.nest.map_structure(lambda t: weights_of[k] * t, one)
            return k + 1, _plus(total, weighted)

        return self._mean(add, tf.shape(sizes)[0], weights, clients)

    def train(
        self,
        weights: Weights,
        target: Weights,
        round_number: tf.Tensor,
        examples: Any,
        regularizer: Regularizer | None = None,
        term: Term | None = None,
    ) -> LocalModel:
        """One client's own steps.

        Args:
          weights: Where it starts.
          target: Of the target network; without weights where the objective has none.
          round_number: int64.
          examples: The client's, as one batch; at least one.
          regularizer: What is added to the loss of each example.
          term: What is added to the loss, of other images than the client's own.
        """
        size = tf.shape(examples["example_id"])[0]
        batches = tf.maximum(size // self.batch_size, 1) if self.batch_size else tf.constant(1)
        steps = tf.constant(self.local_steps) if self.local_steps else self.local_epochs * batches
        # At most so many passes over the examples in a round: each pass has views of its own.
        passes = self.local_steps or self.local_epochs
        weights, target = (Weights(tuple(w.trainable), tuple(w.non_trainable))
                           for w in (weights, target))  # fmt: skip
        initial = weights.trainable

        def step(t, weights, optimizer_state, target, sums):
            epoch, position = t // batches, t % batches
            pass_number = round_number * passes + tf.cast(epoch, tf.int64)
            order = _shuffled(examples, size, pass_number, self.seed)
            chosen = order[position * size // batches : (position + 1) * size // batches]
            batch = self._seen(
                tf.nest.map_structure(lambda x: tf.gather(x, chosen), examples), pass_number
            )
            with tf.GradientTape() as tape:
                tape.watch(weights.trainable)
                found = self._evaluate(weights, target, batch)
                losses = found.losses + (regularizer(batch, found) if regularizer else 0.0)
                loss, non_trainable = tf.reduce_mean(losses), tuple(found.non_trainable)
                if term:
                    added, non_trainable = term(Weights(weights.trainable, non_trainable), t)
                    loss += added
            gradient = tape.gradient(loss, weights.trainable, unconnected_gradients="zero")
            gradient = self._with_penalties(tuple(gradient), weights.trainable, initial)
            optimizer_state, trainable = self.optimizer.next(
                optimizer_state, weights.trainable, gradient
            )
            weights = Weights(tuple(trainable), tuple(non_trainable))
            if self.target_momentum is not None:
                moved = moved_target(target.trainable, weights.trainable, self.target_momentum)
                target = Weights(moved, target.non_trainable)
            share = tf.fill(tf.shape(losses), 1 / tf.cast(tf.size(losses), tf.float32))
            sums = _plus(sums, (loss, *_spread(found.z, share)))
            return t + 1, weights, optimizer_state, target, sums

        d = self._z_dimension
        _, weights, _, target, sums = tf.while_loop(
            lambda t, *_: t < steps,
            step,
            (
                tf.constant(0),
                weights,
                self._optimizer_state(initial, round_number),
                target,
                (tf.constant(0.0), tf.zeros([d]), tf.zeros([d])),
            ),
            parallel_iterations=1,
        )
        return LocalModel(weights, target, *(s / tf.cast(steps, tf.float32) for s in sums))

    def _with_penalties(self, gradient, trainable, initial):
        if self.proximal:
            gradient = tf.nest.map_structure(
                lambda g, w, w0: g + self.proximal * (w - w0), gradient, trainable, initial
            )
        if self.l2:
            gradient = tf.nest.map_structure(lambda g, w: g + self.l2 * w, gradient, trainable)
        return gradient

    def _optimizer_state(self, trainable, round_number):
        specs = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), trainable)
        state = self.optimizer.initialize(specs)
        if self.schedule is None:
            return state
        hparams = self.optimizer.get_hparams(state)
        hparams[tff.learning.optimizers.LEARNING_RATE_KEY] = self.schedule(round_number)
        return self.optimizer.set_hparams(state, hparams)

    def _seen(self, batch: Any, pass_number: tf.Tensor) -> Batch:
        x1, x2 = self.two_views(batch["image"], batch["example_id"], pass_number)
        labels = batch["label"] if self.objective.supervised else None
        ids = batch["example_id"]
        return Batch(x1, x2, _clients(batch), labels, ids, pass_number, self.seed)

    def _evaluate(self, weights: Any, target: Any, batch: Batch) -> Evaluated:
        return self.objective.evaluate(self.model, weights, target, batch, self.hyperparameters)

    def client_weight(self, samples: tf.Tensor) -> tf.Tensor:
        """Weight of a client with so many examples in the server's mean, float32."""
        return tf.constant(1.0) if self.uniform else tf.cast(samples, tf.float32)

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


def build_local_training(
    task: Task,
    hyperparameters: ClientHyperparameters,
    *,
    optimizer: tff.learning.optimizers.Optimizer | None = None,
    keeps_target: bool = False,
    proximal: float = 0.0,
) -> LocalTraining:
    """Local training as the hyperparameters say.

    Args:
      task: Model, views and objective.
      hyperparameters: Of the clients.
      optimizer: Instead of the one that the hyperparameters name.
      keeps_target: Whether clients move the target network while they train.
      proximal: mu of FedProx.

    Raises:
      ValueError: If the model lacks a head that the objective needs.
    """
    _check_heads(task.model, task.objective, OBJECTIVES[task.objective])
    return LocalTraining(
        model=task.model,
        objective=OBJECTIVES[task.objective],
        hyperparameters=hyperparameters,
        two_views=task.two_views,
        optimizer=optimizer or hyperparameters.build_client_optimizer(),
        local_epochs=hyperparameters.local_epochs,
        local_steps=hyperparameters.local_steps,
        batch_size=hyperparameters.batch_size,
        schedule=hyperparameters.build_schedule(task.rounds),
        l2=hyperparameters.l2,
        proximal=proximal,
        target_momentum=hyperparameters.target_momentum if keeps_target else None,
        uniform=hyperparameters.client_weighting == "uniform",
        seed=task.seed,
    )


def _check_heads(model: Model, name: str, objective: Objective) -> None:
    if objective.predictor and not model.predictor:
        raise ValueError(f"--objective={name} needs a --predictor")
    if objective.supervised and not model.classes:
        raise ValueError(f"--objective={name} needs labels")
    if objective.decoder and not model.decoder:
        raise ValueError(f"--objective={name} needs a ViT --encoder with a decoder")
    if not (objective.supervised or objective.decoder or model.projector):
        raise ValueError(f"--objective={name} needs a --projector")


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
