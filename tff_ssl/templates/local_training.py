"""Local training of the clients of one call: a single client, or a folded group.

Every client starts from the broadcast weights and minimizes an objective on its own examples; the
call returns the weighted mean of the model deltas. There are two ways to compute it:

- `one_step`: with one step of plain gradient descent, a group's result is a sum over examples of
  within-client losses (segments), computed in micro-batches of whole clients;
- `many_steps`: the clients train one after the other, each with its own steps, epochs and
  optimizer. The overhead of a call is then paid once for a group and not once for each client.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.objectives.hyperparameters import ObjectiveHyperparameters
from tff_ssl.objectives.registry import OBJECTIVES, Batch, Evaluated, Objective, moved_target
from tff_ssl.templates.client_batches import clients_of, shuffled, starts_of_whole_clients
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.micro_batches import read_all
from tff_ssl.templates.task import Task
from tff_ssl.views.augmentation import TwoViews

# Two clients at a time keep two cores busy; the small operations of a single client do not.
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
    """The result of a call.

    Attributes:
      means: `Means` over the clients; NaN where there is no example.
      samples: Number of examples, int64.
    """

    means: Means
    samples: Any


class LocalModel(NamedTuple):
    """A client's model after its local steps.

    Attributes:
      weights: Weights of the online network.
      target: Weights of the target network; empty where the objective has none.
      loss: Mean loss of the steps, float32.
      z_mean: Mean of z, float32 [d].
      z_squared: Mean of z^2, float32 [d].
      memory: Memory after the last step; empty where there is none.
    """

    weights: Weights
    target: Weights
    loss: Any
    z_mean: Any
    z_squared: Any
    memory: Any = ()


class Memory(NamedTuple):
    """Values that local training carries from step to step.

    Attributes:
      initial: Values before the first step, a nest of tensors of fixed shapes.
      update: (the values, the batch of a step, its `Evaluated`) -> the values after the step.
    """

    initial: Any
    update: Callable[[Any, Batch, Evaluated], Any]


# (batch, its `Evaluated`) -> terms that are added to the losses of the examples, float32 [n].
Regularizer = Callable[[Batch, Evaluated], tf.Tensor]
# (weights, of which the objective has updated the non-trainable ones; step in the round, int32) ->
# (term that is added to the loss, float32; the new non-trainable weights).
Term = Callable[[Weights, tf.Tensor], tuple[tf.Tensor, tuple[tf.Tensor, ...]]]

# (weights before and after a client's training, tuples like `trainable`; number of the round,
# int64) -> the delta that the client contributes, a tuple like `trainable`.
DeltaRule = Callable[[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...], tf.Tensor], Any]


@dataclasses.dataclass(frozen=True)
class LocalTraining:
    """The local training of a client.

    Attributes:
      model: Model that is trained.
      objective: Objective that is minimized.
      hyperparameters: Hyperparameters of the objective.
      two_views: Function that makes two views of images; see `Task`.
      optimizer: The clients' optimizer, which starts anew in every round.
      local_epochs: Number of passes E over a client's examples.
      local_steps: Number of local steps, which replaces `local_epochs` if positive.
      batch_size: Number of examples B of a local step; 0 for all examples. An epoch deals the N_k
        examples of a client into floor(N_k / B) batches, at least one, whose sizes differ by at
        most one.
      schedule: Round number -> learning rate; None for the optimizer's own.
      l2: Weight of the L2 term |w|^2 / 2 of the loss.
      proximal: Weight mu of FedProx's term mu / 2 |w - w_broadcast|^2 of the loss.
      target_momentum: Momentum with which the target network follows the online network in each
        local step; None where it stays as it was broadcast.
      target_first: Whether the target network moves before the local step, to the weights with
        which the step starts, and not after it.
      uniform: Whether a client's weight is 1 instead of N_k.
      seed: Seed of the order of a client's examples, and of masks.
      delta_rule: Rule that gives a client's delta in `many_steps`; initial minus final weights if
        it is None.
      clip_norm: Largest norm of the gradient of a step in `train`, over all weights and before the
        terms of the weights are added; longer ones are shortened. None for no bound.
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
    target_first: bool = False
    uniform: bool = False
    seed: int = 0
    delta_rule: DeltaRule | None = None
    clip_norm: float | None = None

    def one_step(
        self, weights: Any, target: Any, round_number: tf.Tensor, examples: Any,
        learning_rate: float, micro_batch_size: int,
    ) -> Trained:  # fmt: skip
        """One step of gradient descent on all examples of each client; see the module."""
        everything = read_all(examples)
        clients = clients_of(everything)
        client_weights = self._weights(clients.sizes)
        starts = starts_of_whole_clients(clients.sizes, micro_batch_size)

        def add(chunk, total):
            batch = tf.nest.map_structure(
                lambda t: t[starts[chunk] : starts[chunk + 1]], everything
            )
            ids = clients.ids[starts[chunk] : starts[chunk + 1]]
            # Each of a client's N_k losses has 1 / N_k of the client's weight.
            share = tf.gather(client_weights / clients.sizes, ids)
            with tf.GradientTape() as tape:
                tape.watch(weights.trainable)
                evaluated = self._evaluate(weights, target, self._seen(batch, round_number))
                loss = tf.reduce_sum(share * evaluated.losses)
            gradient = tape.gradient(loss, weights.trainable, unconnected_gradients="zero")
            delta = tf.nest.map_structure(lambda g: learning_rate * g, tuple(gradient))
            spread = _spread(evaluated.z, share)
            return chunk + 1, _plus(total, Means(delta, tf.reduce_sum(share), loss, *spread))

        return self._mean(add, tf.shape(starts)[0] - 1, weights, clients)

    def many_steps(
        self, weights: Any, target: Any, round_number: tf.Tensor, examples: Any
    ) -> Trained:
        """The local steps of all clients, one client after the other; see the module."""
        everything = read_all(examples)
        clients = clients_of(everything)
        client_weights = self._weights(clients.sizes)
        sizes = tf.cast(clients.sizes, tf.int32)
        starts = tf.cumsum(sizes, exclusive=True)

        def add(k, total):
            examples_k = tf.nest.map_structure(
                lambda t: t[starts[k] : starts[k] + sizes[k]], everything
            )
            trained = self.train(weights, target, round_number, examples_k)
            before, after = tuple(weights.trainable), trained.weights.trainable
            if self.delta_rule is None:
                delta = tf.nest.map_structure(tf.subtract, before, after)
            else:
                delta = self.delta_rule(before, after, round_number)
            unweighted = Means(
                delta, tf.constant(1.0), trained.loss, trained.z_mean, trained.z_squared
            )
            weighted = tf.nest.map_structure(lambda t: client_weights[k] * t, unweighted)
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
        correction: Sequence[tf.Tensor] | None = None,
        memory: Memory | None = None,
    ) -> LocalModel:
        """The local steps of one client.

        Args:
          weights: Weights before the first step.
          target: Weights of the target network; empty where the objective has none.
          round_number: Number of the round, int64.
          examples: Examples of the client as one batch; at least one.
          regularizer: Terms that are added to the losses of the examples.
          term: Term of the loss that depends on other images than the client's own.
          correction: Tensors that are added to the gradient of every step, in the order of the
            trainable weights.
          memory: Values that are carried from step to step.
        """
        size = tf.shape(examples["example_id"])[0]
        batches, steps = self._batches(size), self.steps(size)
        passes = self.passes
        weights, target = (Weights(tuple(w.trainable), tuple(w.non_trainable))
                           for w in (weights, target))  # fmt: skip
        initial = weights.trainable

        def step(t, weights, optimizer_state, target, remembered, sums):
            if self.target_first:
                target = self._moved(target, weights)
            epoch, position = t // batches, t % batches
            pass_number = round_number * passes + tf.cast(epoch, tf.int64)
            order = shuffled(examples, size, pass_number, self.seed)
            chosen = order[position * size // batches : (position + 1) * size // batches]
            batch = self._seen(
                tf.nest.map_structure(lambda x: tf.gather(x, chosen), examples), pass_number
            )._replace(positions=chosen)
            if self.objective.others:
                again = shuffled(examples, size, -1 - pass_number, self.seed)
                drawn = again[position * size // batches : (position + 1) * size // batches]
                batch = batch._replace(x3=self._first_views(examples, drawn, -1 - pass_number))
            elif self.objective.third_view:
                batch = batch._replace(x3=self._first_views(examples, chosen, -1 - pass_number))
            with tf.GradientTape() as tape:
                tape.watch(weights.trainable)
                evaluated = self._evaluate(weights, target, batch)
                losses = evaluated.losses + (regularizer(batch, evaluated) if regularizer else 0.0)
                loss, non_trainable = tf.reduce_mean(losses), tuple(evaluated.non_trainable)
                if term:
                    added, non_trainable = term(Weights(weights.trainable, non_trainable), t)
                    loss += added
            gradient = tape.gradient(loss, weights.trainable, unconnected_gradients="zero")
            if self.clip_norm is not None:
                gradient, _ = tf.clip_by_global_norm(gradient, self.clip_norm)
            gradient = self._with_penalties(tuple(gradient), weights.trainable, initial)
            if correction is not None:
                gradient = tf.nest.map_structure(tf.add, gradient, tuple(correction))
            optimizer_state, trainable = self.optimizer.next(
                optimizer_state, weights.trainable, gradient
            )
            weights = Weights(tuple(trainable), tuple(non_trainable))
            if not self.target_first:
                target = self._moved(target, weights)
            if memory:
                remembered = memory.update(remembered, batch, evaluated)
            share = tf.fill(tf.shape(losses), 1 / tf.cast(tf.size(losses), tf.float32))
            sums = _plus(sums, (loss, *_spread(evaluated.z, share)))
            return t + 1, weights, optimizer_state, target, remembered, sums

        d = self._z_dimension
        _, weights, _, target, remembered, sums = tf.while_loop(
            lambda t, *_: t < steps,
            step,
            (
                tf.constant(0),
                weights,
                self._optimizer_state(initial, round_number),
                target,
                memory.initial if memory else (),
                (tf.constant(0.0), tf.zeros([d]), tf.zeros([d])),
            ),
            parallel_iterations=1,
        )
        loss, z_mean, z_squared = (s / tf.cast(steps, tf.float32) for s in sums)
        return LocalModel(weights, target, loss, z_mean, z_squared, remembered)

    @property
    def passes(self) -> int:
        """Largest number of passes over the examples in a round; each has its own views."""
        return self.local_steps or self.local_epochs

    def steps(self, samples: tf.Tensor) -> tf.Tensor:
        """Number of local steps of a client with so many examples, int32."""
        if self.local_steps:
            return tf.constant(self.local_steps)
        return self.local_epochs * self._batches(samples)

    def _batches(self, samples: tf.Tensor) -> tf.Tensor:
        """Number of batches of an epoch, int32."""
        return tf.maximum(samples // self.batch_size, 1) if self.batch_size else tf.constant(1)

    def _moved(self, target: Weights, weights: Weights) -> Weights:
        """The target network after a local step, or before it with `target_first`."""
        if self.target_momentum is None:
            return target
        moved = moved_target(target.trainable, weights.trainable, self.target_momentum)
        return Weights(moved, target.non_trainable)

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
        return Batch(x1, x2, clients_of(batch), labels, ids, pass_number, self.seed, batch["image"])

    def _first_views(self, examples: Any, chosen: tf.Tensor, pass_number: tf.Tensor) -> tf.Tensor:
        """First views of some of the examples, float32 [n, h, w, c]."""
        images, ids = (tf.gather(examples[key], chosen) for key in ("image", "example_id"))
        return self.two_views(images, ids, pass_number)[0]

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
        """The weighted mean over clients: the sum of `count` calls of `add` over its weight."""
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
    delta_rule: DeltaRule | None = None,
) -> LocalTraining:
    """Builds local training from the hyperparameters.

    Args:
      task: Model, views and objective.
      hyperparameters: Hyperparameters of the clients.
      optimizer: Optimizer of the local steps; the one of the hyperparameters if None.
      keeps_target: Whether clients move the target network while they train.
      proximal: Weight mu of FedProx's proximal term.
      delta_rule: Attribute of `LocalTraining`.

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
        delta_rule=delta_rule,
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


def _spread(z: tf.Tensor, share: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    share = share[:, tf.newaxis]
    return tf.reduce_sum(share * z, 0), tf.reduce_sum(share * tf.square(z), 0)


def _plus(a: Any, b: Any) -> Any:
    return tf.nest.map_structure(tf.add, a, b)
