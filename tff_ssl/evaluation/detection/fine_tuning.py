"""Fine-tuning of Mask R-CNN, in steps that are pure functions of their state and number."""

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tff_ssl.evaluation.detection.hyperparameters import DetectionHyperparameters
from tff_ssl.models.dual_encoder import Weights

if TYPE_CHECKING:  # It needs the extra `detection`.
    from tff_ssl.evaluation.detection.mask_rcnn import MaskRCNN

_FLIP_STREAM = 1  # Keeps the draws of flips apart from others with the same seed and step.
_WARMUP_START = 1 / 3  # Fraction of the learning rate (Goyal et al. 2017; Detectron).


class FineTuningState(NamedTuple):
    """Weights of the whole network, and the momentum of each trainable one."""

    weights: Weights
    velocity: tuple[tf.Tensor, ...]


def learning_rate(step: int, steps: int, values: DetectionHyperparameters) -> float:
    """The learning rate of a step, counted from 0: Detectron's schedule at any length.

    Its 1x schedule of 90,000 steps has a tenth of the rate from step 60,000 on and a hundredth from
    step 80,000 on.
    """
    rate = values.learning_rate
    if step < values.warmup_steps:
        progress = step / values.warmup_steps
        rate *= _WARMUP_START * (1 - progress) + progress
    decays = (3 * step >= 2 * steps) + (9 * step >= 8 * steps)
    return rate * 0.1**decays


class FineTuning:
    """Trains Mask R-CNN on annotated images; `training_loop.TrainingLoop` drives it."""

    def __init__(
        self,
        network: "MaskRCNN",
        start: Weights,
        example: Callable[[int], Any],
        batches: Callable[[int], npt.NDArray[np.int64]],
        steps: int,
        values: DetectionHyperparameters,
        seed: int,
    ):
        """Joins the parts; `starting_from` replaces the encoder.

        The backbone starts from the encoder's weights, `start`. `example` maps an index to an
        annotated image, with the fields of `coco_folder.AnnotatedImage`, and `batches` a step to
        the indices of its images, int64. The schedule has `steps` in all. The seed is that of flips
        and samples.
        """
        self._network, self._start = network, start
        self._example, self._batches = example, batches
        self._steps, self._values, self._seed = steps, values, seed

        def step(state, images, labels, rate, step_seed):
            network.assign(state.weights)
            variables = network.trainable_variables
            with tf.GradientTape() as tape:
                loss, parts = network.losses(images, labels, step_seed)
            gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
            velocity, trainable = _momentum_step(state, gradients, rate, values)
            non_trainable = tuple(map(tf.identity, network.non_trainable_variables))
            return FineTuningState(Weights(trainable, non_trainable), velocity), loss, parts

        self._step = tf.function(step, autograph=False)

    def starting_from(self, start: Weights) -> "FineTuning":
        """The same training from another encoder, with the same graph."""
        other = copy.copy(self)
        other._start = start
        return other

    def initialize(self, seed: int) -> FineTuningState:
        del seed  # The network was built with it.
        weights = self._network.initial_weights(self._start)
        return FineTuningState(weights, tuple(map(tf.zeros_like, weights.trainable)))

    def run_round(
        self, state: FineTuningState, round_number: int
    ) -> tuple[FineTuningState, dict[str, float]]:
        """The state after a step, and the step's losses."""
        examples = [self._example(index) for index in self._batches(round_number)]
        if self._values.flip:
            draws = np.random.default_rng((self._seed, round_number, _FLIP_STREAM))
            flips = draws.random(len(examples)) < 0.5
            pairs = zip(examples, flips, strict=True)
            examples = [flipped(example) if flip else example for example, flip in pairs]
        images, labels = self._network.training_batch(examples)
        rate = learning_rate(round_number, self._steps, self._values)
        step_seed = tf.constant([self._seed, round_number], tf.int32)
        state, loss, parts = self._step(
            state, images, labels, tf.constant(rate, tf.float32), step_seed
        )
        metrics = {"loss": loss, **parts}
        return state, {name: float(value) for name, value in metrics.items()} | {"rate": rate}

    def encoder_weights(self, state: FineTuningState, client_id: str | None = None) -> Weights:
        """Weights of the whole network; the training loop checks that they are finite."""
        return state.weights

    def local_weights(self, state: FineTuningState, client: int) -> None:
        """None: there are no clients."""

    def on_start(self, states: Sequence[FineTuningState], done: int) -> None:
        """Does nothing."""

    def on_checkpoint(self, state: FineTuningState) -> None:
        """Does nothing."""


def flipped(example: Any) -> Any:
    """The annotated image flipped left to right."""
    top, left, bottom, right = example.boxes.T
    return example._replace(
        image=np.ascontiguousarray(example.image[:, ::-1]),
        boxes=np.stack([top, 1 - right, bottom, 1 - left], 1),
        masks=np.ascontiguousarray(example.masks[:, :, ::-1]),
    )


def _momentum_step(
    state: FineTuningState,
    gradients: Sequence[tf.Tensor],
    rate: tf.Tensor,
    values: DetectionHyperparameters,
) -> tuple[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...]]:
    """A step of SGD with momentum and weight decay: the new velocities and weights."""
    velocities, weights = [], []
    for weight, velocity, gradient in zip(
        state.weights.trainable, state.velocity, gradients, strict=True
    ):
        gradient = tf.convert_to_tensor(gradient)
        if weight.shape.rank > 1:  # Scales, offsets and biases are vectors.
            gradient += values.weight_decay * weight
        velocity = values.momentum * velocity + gradient
        velocities.append(velocity)
        weights.append(weight - rate * velocity)
    return tuple(velocities), tuple(weights)
