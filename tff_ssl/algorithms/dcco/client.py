"""What a client of DCCO does in the two stages of a round; `dcco` has the round."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import optimizers
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.objectives.registry import Evaluated, Objective, ObjectiveHyperparameters
from tff_ssl.objectives.statistics import StatisticsLoss, combined_statistics
from tff_ssl.templates import local_training, non_finite
from tff_ssl.templates.client_hyperparameters import check_choice
from tff_ssl.templates.micro_batches import mean_over_examples
from tff_ssl.templates.task import Task


@dataclasses.dataclass(frozen=True)
class DCCOHyperparameters(ObjectiveHyperparameters, optimizers.ServerOptimizerHyperparameters):
    """Hyperparameters with the paper's values for CIFAR-100 (section 4.3, Appendix B).

    Attributes:
      client_learning_rate: Learning rate of the clients' gradient descent.
      micro_batch_size: Examples that a client processes at a time in a round of one step; the
        result does not depend on it, memory and speed do.
      local_steps: Steps of each client in a round; more than one is beyond the paper.
      batch_size: Examples of a local step; 0 for all of the client.
      client_weighting: w_k in both means: `examples` (N_k) or `uniform`, which bounds what a client
        can do, as differential privacy asks for; a round is then no centralized step.
    """

    client_learning_rate: float = 1.0
    micro_batch_size: int = 32
    local_steps: int = 1
    batch_size: int = 0
    client_weighting: str = "examples"

    def __post_init__(self):
        ObjectiveHyperparameters.__post_init__(self)
        optimizers.ServerOptimizerHyperparameters.__post_init__(self)
        for name, least in (("micro_batch_size", 1), ("local_steps", 1), ("batch_size", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}; got {getattr(self, name)}")
        if self.client_learning_rate <= 0:
            raise ValueError(
                f"client_learning_rate must be positive; got {self.client_learning_rate}"
            )
        check_choice("client_weighting", self.client_weighting, ("examples", "uniform"))

    @property
    def folds(self) -> bool:
        """Whether a group of clients does what they do: its examples then weigh alike."""
        return self.client_weighting == "examples"

    def client_weight(self, samples: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """w_k of a client with so many examples, float32; 0 unless it counts."""
        samples = tf.cast(samples, tf.float32)
        return tf.where(counts, samples if self.folds else tf.ones_like(samples), 0.0)


class LocalStatistics(NamedTuple):
    """What a client sends in the first stage.

    Attributes:
      statistics: Encoding statistics of its examples.
      weight: w_k, or 0 where the statistics are not finite; float32.
    """

    statistics: Any
    weight: Any


class LocalUpdate(NamedTuple):
    """What a client sends in the second stage.

    Attributes:
      result: `tff.learning.templates.ClientResult` with the model delta times w_k over its mean,
        and weight 1; or with zeros.
      samples: N_k, int64.
      dropped: 1 where the delta is not finite, else 0; int64.
    """

    result: Any
    samples: Any
    dropped: Any


def client_computations(
    task: Task,
    loss: StatisticsLoss,
    hyperparameters: DCCOHyperparameters,
    weights_type: tff.Type,
    statistics_type: tff.Type,
) -> tuple[tff.Computation, tff.Computation]:
    """A client's work in the two stages.

    Returns:
      (weights, round number, examples) -> `LocalStatistics`, and
      (weights, round number, aggregated statistics, mean w_k, examples) -> `LocalUpdate`.
    """
    model, batch_size = task.model, hyperparameters.micro_batch_size
    examples_type = tff.types.SequenceType(task.element_type)

    def statistics_of(weights, view_round, batch):
        x1, x2 = task.two_views(batch["image"], batch["example_id"], view_round)
        first, second = model.apply_pair(weights, x1, x2, training=True)
        return loss.of_batch(first.z, second.z)

    def loss_with(aggregated, local):
        return loss.terms(combined_statistics(local, aggregated), hyperparameters).loss

    @tff.tensorflow.computation(weights_type, np.int64, examples_type)
    @tf.function(autograph=False)
    def local_statistics(weights, round_number, examples):
        # The views of the first local step: the stages must see the same ones.
        view_round = round_number * hyperparameters.local_steps
        mean, samples = mean_over_examples(
            examples,
            lambda batch: statistics_of(weights, view_round, batch),
            loss.zero(model.projector[-1]),
            batch_size,
        )
        statistics, is_finite = non_finite.zero_unless_finite(mean)
        return LocalStatistics(statistics, hyperparameters.client_weight(samples, is_finite))

    def one_step(weights, round_number, aggregated, examples):
        def gradient(batch):
            with tf.GradientTape() as tape:
                tape.watch(weights.trainable)
                value = loss_with(aggregated, statistics_of(weights, round_number, batch))
            return tape.gradient(value, weights.trainable)

        zeros = tf.nest.map_structure(tf.zeros_like, weights.trainable)
        mean, samples = mean_over_examples(examples, gradient, zeros, batch_size)
        # TFF's convention: initial minus final weights, which the server takes as a gradient.
        delta = tf.nest.map_structure(lambda g: hyperparameters.client_learning_rate * g, mean)
        return delta, samples

    def many_steps(weights, round_number, aggregated, examples):
        def evaluate(model, weights, target, batch, hyperparameters):
            first, second = model.apply_pair(weights, batch.x1, batch.x2, training=True)
            value = loss_with(aggregated, loss.of_batch(first.z, second.z))
            losses = tf.fill(tf.shape(first.z)[:1], value)
            return Evaluated(losses, first.z, (first.p, second.p), second.non_trainable)

        training = local_training.LocalTraining(
            model,
            Objective("CCO of aggregated statistics", evaluate),
            hyperparameters,
            task.two_views,
            optimizers.build_optimizer("sgd", hyperparameters.client_learning_rate, 0.0),
            local_steps=hyperparameters.local_steps,
            batch_size=hyperparameters.batch_size,
            seed=task.seed,
        )
        trained = training.many_steps(weights, Weights((), ()), round_number, examples)
        return trained.means.delta, trained.samples

    @tff.tensorflow.computation(weights_type, np.int64, statistics_type, np.float32, examples_type)
    @tf.function(autograph=False)
    def local_update(weights, round_number, aggregated, mean_weight, examples):
        # A step of all examples needs no copy of the weights, and may be cut into micro-batches.
        whole = hyperparameters.local_steps == 1 and not hyperparameters.batch_size
        train = one_step if whole else many_steps
        delta, samples = train(weights, round_number, aggregated, examples)
        share = hyperparameters.client_weight(samples, True) / mean_weight
        scaled = tf.nest.map_structure(lambda t: share * t, delta)
        delta, is_finite = non_finite.zero_unless_finite(scaled)
        return LocalUpdate(
            tff.learning.templates.ClientResult(delta, tf.cast(is_finite, tf.float32)),
            samples,
            1 - tf.cast(is_finite, tf.int64),
        )

    return local_statistics, local_update
