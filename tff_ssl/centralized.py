"""Centralized baselines in plain TensorFlow, on the same model, views and loss.

Only the optimizers come from `tff.learning.optimizers`, which are pure TensorFlow functions; no
federated computation runs here.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tff_ssl import optimizers
from tff_ssl.errors import ConfigurationError
from tff_ssl.losses import cco
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.views import TwoViews

Batch = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class CentralizedHyperparameters:
    """Hyperparameters with the DCCO paper's values for CIFAR-100 (section 4.3, Appendix B).

    Attributes:
      lambda_: Tradeoff parameter lambda of Eq. 1.
      optimizer: `adam`, `adamw`, `lars` or `sgd`, with cosine decay over the run's steps.
      learning_rate: Initial learning rate.
      momentum: Momentum of `lars` and `sgd`, beta_1 of the others.
      warmup_steps: Steps of linear warm-up.
    """

    lambda_: float = 20.0
    optimizer: str = "adam"
    learning_rate: float = 5e-3
    momentum: float = 0.9
    warmup_steps: int = 0

    def __post_init__(self):
        if self.lambda_ < 0:
            raise ValueError(f"lambda must not be negative; got {self.lambda_}")
        if self.optimizer not in optimizers.SERVER_OPTIMIZER_NAMES:
            raise ValueError(
                f"optimizer must be one of {', '.join(optimizers.SERVER_OPTIMIZER_NAMES)}; "
                f"got {self.optimizer!r}"
            )
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate must be positive; got {self.learning_rate}")


class CentralizedState(NamedTuple):
    """Weights of the model and state of the optimizer."""

    weights: Weights
    optimizer: Any


def shuffled_batches(num_examples: int, batch_size: int, seed: int) -> Callable[[int], Batch]:
    """Batches of shuffled epochs; what is left of an epoch after whole batches is not used in it.

    Returns:
      step -> indices int64 [batch_size], a pure function of the seed and the step.

    Raises:
      ConfigurationError: If a batch is larger than the data set.
    """
    if not 1 <= batch_size <= num_examples:
        raise ConfigurationError(
            f"--batch_size must be between 1 and the number of examples, {num_examples}; "
            f"got {batch_size}"
        )
    per_epoch = num_examples // batch_size

    def batch(step: int) -> Batch:
        epoch, position = divmod(step, per_epoch)
        order = np.random.default_rng((seed, epoch)).permutation(num_examples)
        return order[position * batch_size : (position + 1) * batch_size]

    return batch


class CentralizedCCO:
    """CCO on whole batches: what DCCO equals; a `simulation.Simulation`."""

    def __init__(
        self,
        model: DualEncoder,
        two_views: TwoViews,
        images: npt.NDArray[np.uint8],
        example_ids: npt.NDArray[np.int64],
        batches: Callable[[int], Batch],
        steps: int,
        hyperparameters: CentralizedHyperparameters,
    ):
        """Joins the parts.

        Args:
          model: The model to train.
          two_views: As for the federated algorithms; a step counts as a round.
          images: uint8 [n, h, w, c].
          example_ids: int64 [n].
          batches: Step -> indices of its examples.
          steps: Length of the run, for the schedule.
          hyperparameters: See `CentralizedHyperparameters`.
        """
        self._model = model
        self._images, self._example_ids = images, example_ids
        self._batches = batches
        self._optimizer = optimizers.build_server_optimizer(
            hyperparameters.optimizer,
            hyperparameters.learning_rate,
            steps,
            hyperparameters.warmup_steps,
            hyperparameters.momentum,
        )

        def step(state, images, example_ids, step_number):
            x1, x2 = two_views(images, example_ids, step_number)
            weights, optimizer_state = state
            with tf.GradientTape() as tape:
                tape.watch(weights.trainable)
                outputs = model.apply(weights, tf.concat([x1, x2], 0), training=True)
                f, g = tf.split(outputs.z, 2)
                statistics = cco.encoding_statistics(f, g)
                terms = cco.cco_from_statistics(statistics, hyperparameters.lambda_)
            gradients = tape.gradient(terms.loss, weights.trainable)
            optimizer_state, trainable = self._optimizer.next(
                optimizer_state, weights.trainable, gradients
            )
            metrics = {
                **terms._asdict(),
                "encoding_std": cco.encoding_std(statistics),
                "samples": tf.shape(example_ids)[0],
                "update_norm": tf.linalg.global_norm(gradients),
            }
            new_weights = Weights(tuple(trainable), outputs.non_trainable)
            return CentralizedState(new_weights, optimizer_state), metrics

        # Batches of different sizes (cohorts of unlike clients) share one trace.
        self._step = tf.function(step, reduce_retracing=True)

    def initialize(self, seed: int) -> CentralizedState:
        specs = tuple(tf.TensorSpec(spec.shape) for spec in self._model.trainable_specs)
        return CentralizedState(self._model.init(seed), self._optimizer.initialize(specs))

    def run_round(
        self, state: CentralizedState, round_number: int
    ) -> tuple[CentralizedState, dict[str, float]]:
        batch = self._batches(round_number)
        state, metrics = self._step(
            state,
            tf.constant(self._images[batch]),
            tf.constant(self._example_ids[batch]),
            tf.constant(round_number, tf.int64),
        )
        return state, {name: value.numpy().item() for name, value in metrics.items()}

    def encoder_weights(self, state: CentralizedState, client_id: str | None = None) -> Weights:
        return state.weights
