"""Local training of one client: its steps on an objective, with the terms that algorithms add.

A client starts from given weights and minimizes the objective on its own examples, for some epochs
or steps. `templates.group_training` trains the clients of a call and averages their deltas.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.errors import ConfigurationError
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.objectives.hyperparameters import ObjectiveHyperparameters
from tff_ssl.objectives.registry import OBJECTIVES, Batch, Evaluated, Objective, moved_target
from tff_ssl.templates.client_batches import clients_of, shuffled
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters, client_weight
from tff_ssl.templates.task import Task
from tff_ssl.views.augmentation import TwoViews


class LocalModel(NamedTuple):
    """A client's model after its local steps."""

    weights: Weights  #: Weights of the online network.
    target: Weights  #: Weights of the target network; empty if the objective has none.
    loss: Any  #: Mean loss of the steps, float32.
    z_mean: Any  #: Mean of z, float32 [d].
    z_squared: Any  #: Mean of z^2, float32 [d].
    memory: Any = ()  #: Memory after the last step; empty if there is none.


class Memory(NamedTuple):
    """Values that local training carries from step to step."""

    initial: Any  #: Values before the first step, a nest of tensors of fixed shapes.
    #: (the values, the batch of a step, its `Evaluated`) -> the values after the step.
    update: Callable[[Any, Batch, Evaluated], Any]


class LocalStep(NamedTuple):
    """What a regularizer sees of a local step."""

    batch: Batch  #: Views and further inputs of the step's examples.
    #: Value of the objective: losses, encodings h, projections z, predictions p.
    evaluated: Evaluated
    weights: Weights  #: Weights with which the step starts.
    #: Weights with which the client starts the round, such as the broadcast model.
    initial: Weights


# The step -> a term of the client's loss, float32, or a term of each example's loss, float32 [n].
Regularizer = Callable[[LocalStep], tf.Tensor]
# (weights with which the step starts, weights with which the client starts the round) -> a term of
# the loss that depends on the weights alone, float32. Its gradient is added after clipping, and the
# reported loss does not include it.
WeightTerm = Callable[[Weights, Weights], tf.Tensor]
# (weights, of which the objective has updated the non-trainable ones; step in the round, int32) ->
# (term that is added to the loss, float32; the new non-trainable weights).
Term = Callable[[Weights, tf.Tensor], tuple[tf.Tensor, tuple[tf.Tensor, ...]]]


@dataclasses.dataclass(frozen=True)
class LocalTraining:
    """The local training of a client."""

    model: Model  #: Model to train.
    objective: Objective  #: Objective to minimize.
    hyperparameters: ObjectiveHyperparameters  #: Hyperparameters of the objective.
    two_views: TwoViews  #: Function that makes two views of images; see `Task`.
    #: The clients' optimizer, which restarts in every round.
    optimizer: tff.learning.optimizers.Optimizer
    local_epochs: int = 1  #: Number of passes E over a client's examples.
    local_steps: int = 0  #: Number of local steps, which replaces `local_epochs` if positive.
    #: Number of examples B of a local step; 0 for all examples. An epoch divides the N_k examples
    #: of a client into floor(N_k / B) batches, at least one, whose sizes differ by at most one.
    batch_size: int = 0
    #: Round number -> learning rate; None for the optimizer's own.
    schedule: Callable[[tf.Tensor], tf.Tensor] | None = None
    l2: float = 0.0  #: Weight of the L2 term |w|^2 / 2 of the loss.
    regularizers: tuple[Regularizer, ...] = ()  #: Terms added to the objective.
    #: Terms of the weights alone, added to the objective.
    weight_terms: tuple[WeightTerm, ...] = ()
    #: Momentum with which the target network follows the online network in each local step; None if
    #: it stays as broadcast.
    target_momentum: float | None = None
    #: Whether the target network moves before the local step, to the weights with which the step
    #: starts, instead of after it.
    target_first: bool = False
    client_weighting: str = "examples"  #: Weights of the clients: `examples` (N_k) or `uniform`.
    seed: int = 0  #: Seed of the order of a client's examples, and of masks.
    #: Largest norm of the gradient of a step, over all weights and without the terms of the
    #: weights; longer ones are shortened. None for no bound.
    clip_norm: float | None = None

    def train(
        self,
        weights: Weights,
        target: Weights,
        round_number: tf.Tensor,
        examples: Any,
        term: Term | None = None,
        correction: Sequence[tf.Tensor] | None = None,
        memory: Memory | None = None,
    ) -> LocalModel:
        """The local steps of one client.

        Args:
          weights: Weights before the first step.
          target: Weights of the target network; empty if the objective has none.
          round_number: Number of the round, int64.
          examples: Examples of the client as one batch. Without any, the loss is NaN, and the
            client is left out of the means (`client_output.output_if_finite`).
          term: Term of the loss that depends on other images than the client's own.
          correction: Tensors like the trainable weights, added to the gradient of every step.
          memory: Values carried from step to step.
        """
        steps = self.steps(tf.shape(examples["example_id"])[0])
        weights, target = (Weights(tuple(w.trainable), tuple(w.non_trainable))
                           for w in (weights, target))  # fmt: skip
        initial = weights

        def step(t, weights, optimizer_state, target, remembered, sums):
            if self.target_first:
                target = self._moved(target, weights)
            batch = self._batch(examples, t, round_number)
            loss, gradient, evaluated = self._gradient(batch, weights, target, initial, term, t)
            if correction is not None:
                gradient = tf.nest.map_structure(tf.add, gradient, tuple(correction))
            optimizer_state, trainable = self.optimizer.next(
                optimizer_state, weights.trainable, gradient
            )
            weights = Weights(tuple(trainable), evaluated.non_trainable)
            if not self.target_first:
                target = self._moved(target, weights)
            if memory:
                remembered = memory.update(remembered, batch, evaluated)
            n = tf.shape(evaluated.losses)
            share = tf.fill(n, 1 / tf.cast(tf.size(evaluated.losses), tf.float32))
            sums = plus(sums, (loss, *spread(evaluated.z, share)))
            return t + 1, weights, optimizer_state, target, remembered, sums

        d = self.z_dimension
        _, weights, _, target, remembered, sums = tf.while_loop(
            lambda t, *_: t < steps,
            step,
            (
                tf.constant(0),
                weights,
                self._optimizer_state(initial.trainable, round_number),
                target,
                memory.initial if memory else (),
                (tf.constant(0.0), tf.zeros([d]), tf.zeros([d])),
            ),
            parallel_iterations=1,
        )
        loss, z_mean, z_squared = (s / tf.cast(steps, tf.float32) for s in sums)
        return LocalModel(weights, target, loss, z_mean, z_squared, remembered)

    def _batch(self, examples: Any, t: tf.Tensor, round_number: tf.Tensor) -> Batch:
        """The batch of step t of a round."""
        size = tf.shape(examples["example_id"])[0]
        batches = self._batches(size)
        epoch, position = t // batches, t % batches
        pass_number = round_number * self.passes + tf.cast(epoch, tf.int64)

        def dealt(order_of_pass):
            order = shuffled(examples, size, order_of_pass, self.seed)
            first, end = batch_ends(size, position, batches)
            return order[first:end]

        chosen, other_pass = dealt(pass_number), -1 - pass_number
        examples_of_step = tf.nest.map_structure(lambda x: tf.gather(x, chosen), examples)
        batch = self.seen(examples_of_step, pass_number)._replace(positions=chosen)
        if self.objective.others:
            return batch._replace(x3=self._first_views(examples, dealt(other_pass), other_pass))
        if self.objective.third_view:
            return batch._replace(x3=self._first_views(examples, chosen, other_pass))
        return batch

    def _gradient(
        self, batch: Batch, weights: Weights, target: Weights, initial: Weights,
        term: Term | None, t: tf.Tensor,
    ) -> tuple[tf.Tensor, Any, Evaluated]:  # fmt: skip
        """The loss of a step, its gradient with all terms, and the value of the objective."""
        with tf.GradientTape() as tape:
            tape.watch(weights.trainable)
            evaluated = self.evaluate(weights, target, batch)
            losses, loss_terms = evaluated.losses, []
            for regularizer in self.regularizers:
                added = regularizer(LocalStep(batch, evaluated, weights, initial))
                if added.shape.rank:
                    losses += added
                else:
                    loss_terms.append(added)
            if losses is evaluated.losses:
                # Without this sum, the tape adds gradients in another order, and the last digits of
                # Hetero-SSFL's weights are not those of earlier versions.
                losses += 0.0
            loss, non_trainable = tf.reduce_mean(losses), tuple(evaluated.non_trainable)
            for added in loss_terms:
                loss += added
            if term:
                added, non_trainable = term(Weights(weights.trainable, non_trainable), t)
                loss += added
        gradient = tape.gradient(loss, weights.trainable, unconnected_gradients="zero")
        if self.clip_norm is not None:
            gradient, _ = tf.clip_by_global_norm(gradient, self.clip_norm)
        gradient = self._with_weight_terms(tuple(gradient), weights, initial)
        return loss, gradient, evaluated._replace(non_trainable=tuple(non_trainable))

    def _with_weight_terms(self, gradient: Any, weights: Weights, initial: Weights) -> Any:
        """The gradient, plus those of the weight terms and of the L2 term."""
        for term in self.weight_terms:
            with tf.GradientTape() as tape:
                tape.watch(weights.trainable)
                value = term(weights, initial)
            added = tape.gradient(value, weights.trainable, unconnected_gradients="zero")
            gradient = tf.nest.map_structure(tf.add, gradient, tuple(added))
        if self.l2:
            gradient = tf.nest.map_structure(
                lambda g, w: g + self.l2 * w, gradient, weights.trainable
            )
        return gradient

    def first_target(self, weights: Weights) -> Weights:
        """The target network that starts as these weights; empty if the objective has none."""
        if not self.objective.target:
            return Weights((), ())
        return self.model.target_model.part_of(weights)

    @property
    def passes(self) -> int:
        """Largest number of passes over the examples in a round; each has its own views."""
        return self.local_steps or self.local_epochs

    def steps(self, samples: tf.Tensor) -> tf.Tensor:
        """Number of local steps of a client with `samples` examples, int32; 0 without examples."""
        steps = self.local_steps or self.local_epochs * self._batches(samples)
        return tf.where(samples > 0, steps, 0)

    def _batches(self, samples: tf.Tensor) -> tf.Tensor:
        """Number of batches of an epoch, int32."""
        return tf.maximum(samples // self.batch_size, 1) if self.batch_size else tf.constant(1)

    def _moved(self, target: Weights, weights: Weights) -> Weights:
        """The target network after a local step, or before it with `target_first`."""
        if self.target_momentum is None:
            return target
        moved = moved_target(target.trainable, weights.trainable, self.target_momentum)
        return Weights(moved, target.non_trainable)

    def _optimizer_state(self, trainable, round_number):
        specs = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), trainable)
        state = self.optimizer.initialize(specs)
        if self.schedule is None:
            return state
        hparams = self.optimizer.get_hparams(state)
        hparams[tff.learning.optimizers.LEARNING_RATE_KEY] = self.schedule(round_number)
        return self.optimizer.set_hparams(state, hparams)

    def seen(self, batch: Any, pass_number: tf.Tensor) -> Batch:
        """The views of some examples in a pass, and the other inputs of the objective."""
        x1, x2 = self.two_views(batch["image"], batch["example_id"], pass_number)
        labels = batch["label"] if self.objective.supervised else None
        ids = batch["example_id"]
        return Batch(x1, x2, clients_of(batch), labels, ids, pass_number, self.seed, batch["image"])

    def _first_views(self, examples: Any, chosen: tf.Tensor, pass_number: tf.Tensor) -> tf.Tensor:
        """First views of some of the examples, float32 [n, h, w, c]."""
        images, ids = (tf.gather(examples[key], chosen) for key in ("image", "example_id"))
        return self.two_views(images, ids, pass_number)[0]

    def evaluate(self, weights: Any, target: Any, batch: Batch) -> Evaluated:
        """The value of the objective on a batch."""
        return self.objective.evaluate(self.model, weights, target, batch, self.hyperparameters)

    def client_weight(self, samples: tf.Tensor) -> tf.Tensor:
        """Weight in the server's mean of a client, or of each client, with `samples` examples."""
        return client_weight(samples, self.client_weighting)

    @property
    def z_dimension(self) -> int:
        """Width d of the outputs whose spread is reported."""
        projects = self.model.projector and not self.objective.supervised
        return self.model.projector[-1] if projects else self.model.features


def build_local_training(
    task: Task,
    hyperparameters: ClientHyperparameters,
    *,
    optimizer: tff.learning.optimizers.Optimizer | None = None,
    keeps_target: bool = False,
    objective: Objective | None = None,
    regularizers: Sequence[Regularizer] = (),
    weight_terms: Sequence[WeightTerm] = (),
) -> LocalTraining:
    """Builds local training from the hyperparameters; see `LocalTraining`.

    With `keeps_target`, clients move the target network, if there is one, while they train. By
    default, the optimizer is that of the hyperparameters, and the objective that of the task.

    Raises:
      ValueError: If the model lacks a head that the objective needs.
    """
    objective = objective or OBJECTIVES[task.objective]
    _check_heads(task.model, task.objective, objective)
    return LocalTraining(
        model=task.model,
        objective=objective,
        hyperparameters=hyperparameters,
        two_views=task.two_views,
        optimizer=optimizer or hyperparameters.build_client_optimizer(task.model.xla),
        local_epochs=hyperparameters.local_epochs,
        local_steps=hyperparameters.local_steps,
        batch_size=hyperparameters.batch_size,
        schedule=hyperparameters.build_schedule(task.rounds),
        l2=hyperparameters.l2,
        regularizers=tuple(regularizers),
        weight_terms=tuple(weight_terms),
        target_momentum=hyperparameters.target_momentum if keeps_target else None,
        client_weighting=hyperparameters.client_weighting,
        seed=task.seed,
    )


def _check_heads(model: Model, name: str, objective: Objective) -> None:
    if objective.predictor and not model.predictor:
        raise ConfigurationError(f"--objective={name} needs a --predictor")
    if objective.supervised and not model.classes:
        raise ConfigurationError(f"--objective={name} needs labels")
    if objective.decoder and not model.decoder:
        raise ConfigurationError(f"--objective={name} needs a ViT --encoder with a decoder")
    if not (objective.supervised or objective.decoder or model.projector):
        raise ConfigurationError(f"--objective={name} needs a --projector")


def batch_ends(size: Any, position: Any, batches: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """The first and the end position of a batch of an epoch over `size` examples, int64."""
    # Products of int32 would overflow.
    size, position, batches = (tf.cast(v, tf.int64) for v in (size, position, batches))
    return position * size // batches, (position + 1) * size // batches


def spread(z: tf.Tensor, share: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Means of z and of z^2 over examples with these shares, float32 [d] each."""
    share = share[:, tf.newaxis]
    return tf.reduce_sum(share * z, 0), tf.reduce_sum(share * tf.square(z), 0)


def plus(a: Any, b: Any) -> Any:
    """The sum of two structures of tensors."""
    return tf.nest.map_structure(tf.add, a, b)
