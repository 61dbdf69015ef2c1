"""Centralized baselines in plain TensorFlow, with the same models, views and objectives.

Only the optimizers come from TFF (`tff.learning.optimizers`); they are pure TensorFlow functions.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tff_ssl import optimizers
from tff_ssl.bounds import bounded, one_of
from tff_ssl.errors import ConfigurationError
from tff_ssl.losses import segments
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.objectives.hyperparameters import ObjectiveHyperparameters
from tff_ssl.objectives.registry import OBJECTIVES, Batch, moved_target
from tff_ssl.objectives.statistics import STATISTICS_LOSSES, statistics_of_batch
from tff_ssl.simulation.training_loop import Simulation
from tff_ssl.views.augmentation import TwoViews

Indices = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class CentralizedHyperparameters(ObjectiveHyperparameters):
    """Hyperparameters with the DCCO paper's values for CIFAR-100 (section 4.3, Appendix B).

    Attributes:
      optimizer: Name of the optimizer, `adam`, `adamw`, `lars` or `sgd`. Its rate decays by a
        cosine over the run's steps.
      learning_rate: Initial learning rate.
      momentum: Momentum of `lars` and `sgd`, beta_1 of the others.
      weight_decay: Weight decay of `adamw` and `lars`.
      warmup_steps: Number of steps of linear warm-up.
      target_momentum: Momentum tau of the target network of `byol`, a moving average.
    """

    optimizer: str = one_of("adam", optimizers.OPTIMIZER_NAMES)
    learning_rate: float = bounded(5e-3, above=0)
    momentum: float = bounded(0.9, at_least=0, below=1)
    weight_decay: float = bounded(0.0, at_least=0)
    warmup_steps: int = bounded(0, at_least=0)
    target_momentum: float = bounded(0.99, at_least=0, at_most=1)


class CentralizedState(NamedTuple):
    """The state of a run; `target` has the target network's weights, and is empty without one."""

    weights: Weights
    optimizer: Any
    target: Weights


def shuffled_batches(num_examples: int, batch_size: int, seed: int) -> Callable[[int], Indices]:
    """Batches of shuffled epochs; the incomplete batch at the end of an epoch is dropped.

    The function, step -> indices of examples, int64 [batch_size], is pure in the seed.

    Raises:
      ConfigurationError: If a batch is larger than the data set.
    """
    if not 1 <= batch_size <= num_examples:
        raise ConfigurationError(
            f"--batch_size must be at most the number of examples, {num_examples}; got {batch_size}"
        )
    per_epoch = num_examples // batch_size

    def batch(step: int) -> Indices:
        epoch, position = divmod(step, per_epoch)
        order = np.random.default_rng((seed, epoch)).permutation(num_examples)
        return order[position * batch_size : (position + 1) * batch_size]

    return batch


class Centralized(Simulation):
    """Training of an objective on whole batches; for `cco` and `vicreg`, a step is DCCO's round."""

    def __init__(
        self,
        objective: str,
        model: Model,
        two_views: TwoViews,
        images: npt.NDArray[np.uint8],
        example_ids: npt.NDArray[np.int64],
        batches: Callable[[int], Indices],
        steps: int,
        hyperparameters: CentralizedHyperparameters,
        labels: npt.NDArray[np.int32] | None = None,
        seed: int = 0,
    ):
        """Composes the training step.

        Args:
          objective: Name of the objective in `OBJECTIVES`.
          model: Model to train.
          two_views: Function that makes two views; a step counts as a round.
          images: Images of the data set, uint8 [n, h, w, c].
          example_ids: Ids of the images, int64 [n].
          batches: Step -> indices of its examples, int64.
          steps: Number of steps of the schedule.
          hyperparameters: Hyperparameters of the optimizer and the losses.
          labels: Class labels, int32 [n]; None unless the objective is supervised.
          seed: Seed of the masks.
        """
        self._model = model
        self._has_target = OBJECTIVES[objective].target
        self._data: dict[str, Any] = {"image": images, "example_id": example_ids}
        if OBJECTIVES[objective].supervised:
            self._data["label"] = labels
        self._batches = batches
        self._optimizer = optimizers.build_scheduled_optimizer(
            hyperparameters.optimizer,
            hyperparameters.learning_rate,
            steps,
            hyperparameters.warmup_steps,
            hyperparameters.momentum,
            hyperparameters.weight_decay,
            model.xla,
        )
        evaluate: Callable[..., tuple[dict[str, Any], Any]] = (
            _by_statistics if objective in STATISTICS_LOSSES else _by_examples
        )

        def step(state, batch, step_number):
            x1, x2 = two_views(batch["image"], batch["example_id"], step_number)
            one_client = segments.one(tf.shape(x1)[0])
            ids = batch["example_id"]
            views = Batch(x1, x2, one_client, batch.get("label"), ids, step_number, seed)
            with tf.GradientTape() as tape:
                tape.watch(state.weights.trainable)
                metrics, non_trainable = evaluate(objective, model, state, views, hyperparameters)
            gradients = tape.gradient(
                metrics["loss"], state.weights.trainable, unconnected_gradients="zero"
            )
            optimizer_state, trainable = self._optimizer.next(
                state.optimizer, state.weights.trainable, gradients
            )
            metrics["samples"] = tf.shape(x1)[0]
            metrics["update_norm"] = tf.linalg.global_norm(gradients)
            moved = moved_target(state.target.trainable, trainable, hyperparameters.target_momentum)
            new_weights = Weights(tuple(trainable), non_trainable)
            target = Weights(moved, state.target.non_trainable)
            return CentralizedState(new_weights, optimizer_state, target), metrics

        # Batches of different sizes (from clients of different sizes) share one trace.
        self._step = tf.function(step, reduce_retracing=True, autograph=False)

    def initialize(self, seed: int) -> CentralizedState:
        specs = tuple(tf.TensorSpec(spec.shape) for spec in self._model.trainable_specs)
        weights = self._model.init(seed)
        target = self._model.target_model.part_of(weights) if self._has_target else Weights((), ())
        state = CentralizedState(weights, self._optimizer.initialize(specs), target)
        # Otherwise Python numbers in the state would change their dtype in the first step.
        return tf.nest.map_structure(tf.convert_to_tensor, state)

    def run_round(
        self, state: CentralizedState, round_number: int
    ) -> tuple[CentralizedState, dict[str, float]]:
        chosen = self._batches(round_number)
        batch = {name: tf.constant(values[chosen]) for name, values in self._data.items()}
        state, metrics = self._step(state, batch, tf.constant(round_number, tf.int64))
        return state, {name: value.numpy().item() for name, value in metrics.items()}

    def encoder_weights(self, state: CentralizedState, client_id: str | None = None) -> Weights:
        return state.weights


def _by_statistics(objective, model, state, batch, hyperparameters):
    """Metrics of a loss of statistics, which are those of the whole batch."""
    loss = STATISTICS_LOSSES[objective]
    first, second = model.apply_pair(state.weights, batch.x1, batch.x2, training=True)
    encodings = (loss.prepared(each.z, hyperparameters) for each in (first, second))
    statistics = statistics_of_batch(loss, *encodings)
    terms = loss.terms(statistics, hyperparameters)
    metrics = {**terms._asdict(), "encoding_std": loss.encoding_std(statistics)}
    return metrics, second.non_trainable


def _by_examples(objective, model, state, batch, hyperparameters):
    """Metrics of any other objective."""
    evaluated = OBJECTIVES[objective].evaluate(
        model, state.weights, state.target, batch, hyperparameters
    )
    spread = tf.reduce_mean(tf.math.reduce_std(evaluated.z, 0))
    loss = tf.reduce_mean(evaluated.losses)
    return {"loss": loss, "encoding_std": spread}, evaluated.non_trainable
