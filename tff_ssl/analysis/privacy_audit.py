"""Empirical lower bounds of epsilon from one training run (Steinke, Nasr and Jagielski 2023).

"Privacy Auditing with One (1) Training Run": each of m canaries is included or not by a fair coin.
After the run, an auditor who has seen all that the run released guesses the coins of r canaries.
If the run is (epsilon, delta)-differentially private, right guesses are hardly more frequent than
heads of r coins that show heads with probability e^epsilon / (1 + e^epsilon) (Theorem 5.2). Many
right guesses thus refute a small epsilon. The bound says nothing about attacks that guess better.

Here a canary is a client, the unit of privacy. `audit_dcco` trains DCCO on canaries alone, with a
network of one layer: each canary has one image, black except for a pixel of its own, and therefore
changes weights that no other canary changes. The auditor knows the weights before and after each
round and the statistics that clients receive, and adds up how far a canary's weights have moved in
the direction in which the canary, if it took part, has pushed them.
"""

import collections
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_federated as tff
from scipy import stats

from tff_ssl.aggregation import differential_privacy
from tff_ssl.algorithms.dcco import two_stage
from tff_ssl.algorithms.dcco.parts import DCCOHyperparameters
from tff_ssl.losses.cco import EncodingStatistics
from tff_ssl.models import layers
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.objectives import statistics
from tff_ssl.templates.task import Task

_DIMENSIONS = 4  # Number of weights, and of outputs, of a canary.
_GROUPS = 8  # Cohorts are padded to multiples of it, as in `kinds.stateless.simulation`.
_BISECTIONS = 40
_LARGEST_EPSILON = 100.0
_LOSS = statistics.STATISTICS_LOSSES["cco"]
_HYPERPARAMETERS = DCCOHyperparameters(
    server_optimizer="sgd", server_learning_rate=1.0, client_weighting="uniform"
)


class Audited(NamedTuple):
    """Whether each canary was included, bool [m], and the auditor's scores of it, float64 [m]."""

    included: npt.NDArray[np.bool_]
    scores: npt.NDArray[np.float64]


def right_guesses(audited: Audited, guesses: int) -> int:
    """Number of right guesses: the highest r / 2 scores as included, the lowest r / 2 as left out.

    Nothing is guessed about the other canaries.
    """
    order = np.argsort(audited.scores, kind="stable")
    half = guesses // 2
    return int(np.sum(audited.included[order[-half:]]) + np.sum(~audited.included[order[:half]]))


def largest_chance(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The largest chance of v right guesses of the coins of r out of m canaries (Theorem 5.2)."""
    chance = 1 / (1 + math.exp(-epsilon))
    # P[v > B >= v - i] for i = 1, ..., v, where B counts heads of r coins.
    below = np.cumsum(stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, chance))
    alpha = np.max(below / np.arange(1, right + 1), initial=0.0)
    at_least = stats.binom.sf(right - 1, guesses, chance)
    return float(min(1.0, at_least + 2 * canaries * delta * alpha))


def epsilon_lower_bound(
    canaries: int, guesses: int, right: int, delta: float, confidence: float = 0.95
) -> float:
    """The smallest epsilon that so many right guesses do not refute (see `largest_chance`).

    The bound holds with a probability of `confidence`.
    """
    doubt, low, high = 1 - confidence, 0.0, _LARGEST_EPSILON
    if largest_chance(canaries, guesses, right, low, delta) >= doubt:
        return 0.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        refuted = largest_chance(canaries, guesses, right, middle, delta) < doubt
        low, high = (middle, high) if refuted else (low, middle)
    return low


class OneLayer(DualEncoder):
    """A network whose outputs for an image with one white pixel are the weights of that pixel."""

    def _forward(self, parameters, images):
        x = tf.reshape(images, [-1, math.prod(self.image_shape)])
        z = layers.dense(parameters, "projector", x, self.projector[-1])
        return x, z, z, x


def audit_dcco(
    canaries: int,
    rounds: int,
    sampling_rate: float,
    mean: differential_privacy.GaussianMean,
    seed: int,
) -> Audited:
    """Trains private DCCO on m canaries, in the current TFF context, and scores them.

    The sampling rate is the probability that an included canary takes part in a round. `mean` has
    the clipping and the noise of the means of statistics and of model deltas. The seed is that of
    coins, cohorts and initial weights; the noise has none.
    """
    rng = np.random.default_rng(seed)
    included = rng.random(canaries) < 0.5
    model = OneLayer("tiny", (1, canaries, 1), (_DIMENSIONS,))
    process = _build(model, mean, max(1.0, sampling_rate * canaries / 2), rounds)
    weights = tff.learning.models.ModelWeights(*tf.nest.map_structure(np.asarray, model.init(seed)))
    state = process.set_model_weights(process.initialize(), weights)
    clients = [_examples([k], canaries) for k in range(canaries)]
    nobody = _examples([], canaries)
    scores = np.zeros(canaries)
    for _ in range(rounds):
        cohort = np.flatnonzero(included & (rng.random(canaries) < sampling_rate))
        padding = -len(cohort) % _GROUPS or (0 if len(cohort) else _GROUPS)
        before = _kernel(state)
        state = process.next(state, [clients[k] for k in cohort] + [nobody] * padding).state
        # The server's step is the mean delta, in which each canary has a row of its own.
        released = before - _kernel(state)
        pushes = _pushes(before, state.client_work.statistics, mean.clip)
        scores += np.sum(released * pushes, 1)
    return Audited(included, scores)


def _build(
    model: DualEncoder, mean: differential_privacy.GaussianMean, clients: float, rounds: int
) -> tff.learning.templates.LearningProcess:
    """DCCO with two private means, on images as they are."""

    def views(images, example_ids, round_number):
        x = tf.cast(images, tf.float32) / 255
        return x, x

    element_type = tff.types.tensorflow_to_type(_examples([], model.image_shape[1]).element_spec)
    task = Task(model, views, element_type, rounds, "cco")
    of_update = mean.factory(clients)
    of_statistics = differential_privacy.PostProcessed(mean.factory(clients), _LOSS.plausible)
    return two_stage.build_dcco(
        task, _HYPERPARAMETERS, statistics_aggregator=of_statistics, update_aggregator=of_update
    ).process


def _examples(numbers: list[int], canaries: int) -> tf.data.Dataset:
    """The images of some canaries: black except for the pixel with the canary's number."""
    ids = np.array(numbers, np.int64)
    images = (255 * np.eye(canaries, dtype=np.uint8)[ids])[:, np.newaxis, :, np.newaxis]
    return tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(client=ids, example_id=ids, image=images)
    )


def _kernel(state: tff.learning.templates.LearningAlgorithmState) -> np.ndarray:
    """The weights of the network, float32 [canaries, outputs]."""
    return np.asarray(state.global_model_weights.trainable[0])


def _pushes(kernel: np.ndarray, aggregated: EncodingStatistics, clip: float) -> np.ndarray:
    """What each canary contributes to the sum of deltas if it takes part, [canaries, outputs]."""
    aggregated = EncodingStatistics(*map(tf.convert_to_tensor, aggregated))

    def loss_of(outputs):
        z = outputs[tf.newaxis]
        combined = statistics.combined_statistics(_LOSS, z, z, aggregated)
        return _LOSS.terms(combined, _HYPERPARAMETERS).loss

    rows = tf.constant(kernel)
    with tf.GradientTape() as tape:
        tape.watch(rows)
        total = tf.reduce_sum(tf.map_fn(loss_of, rows))
    gradient = np.asarray(tape.gradient(total, rows), np.float64)
    norms = np.linalg.norm(gradient, axis=1, keepdims=True)
    return gradient * np.minimum(1.0, clip / np.maximum(norms, np.finfo(np.float64).tiny))
