"""FedSC: the spectral contrastive loss with the other clients' second moments.

Jing, Yu, Zhang and Zhang, "FedSC: Provable Federated Self-supervised Learning with Spectral
Contrastive Objective over Non-i.i.d. Data", ICML 2024, arXiv:2405.03949; and the authors' code
(github.com/ShusenJing/FedSC_ICML2024). Projections z lie in the ball |z|^2 <= mu. A round has two
stages, built from DCCO's parts:

1. client k sends R_k, the mean of z z^T over its examples, both views and P draws of them; the
   server forms the mean Rbar over the cohort and sends it to all;
2. client k takes the others' mean R_ext = (Rbar - q_k R_k) / (1 - q_k), where q_k is its share of
   the weights, and trains for E epochs on batches b with

     L = -2 <z_1 . z_2>_b + alpha |R_b|^2 + 2 (1 - alpha) tr(R_b R_ext),

   with gradients through the batch's own R_b; the server averages the models.

The gradient of the second and third terms is 2 tr((alpha R_b + (1 - alpha) R_ext) dR_b). For
alpha = q_k and a batch of all examples this is 2 tr(Rbar dR_k): one such step is DCCO's with the
objective `spectral`, and equals a centralized step on -2 <z_1 . z_2> + |R|^2. The authors' alpha is
not the share; it falls with the round r, alpha = 1 - 0.8 r / R.

Choices and deviations:
- `own_weight=share` sets alpha = q_k; `own_weight=schedule` is the authors' schedule, which ends at
  `last_own_weight`. With 1, FedSC is FedAvg on the spectral loss within clients. So are rounds with
  a single client, which has no others.
- The server keeps and sends only the mean Rbar, and a client subtracts its own R_k, which it
  recomputes from the same views. The server thus needs no single client's R_k, and secure sums
  work. The authors' server keeps the last R_k of every client and sends each the mean of the
  others, in which absent clients count with old moments; here they do not count.
- Beside R_k a client sends the means of z and of z_1 . z_2, 2 d + 1 numbers, for the metrics.
- `statistics_noise` adds independent normal noise, drawn without a seed, to everything in stage 1,
  as the authors do to R_k. The models are sent without noise, so that this does not guarantee
  privacy (`--dp_epsilon` does, by other means). A client's own noise stays in its R_ext.
- With differential privacy, q_k is one over the expected number of clients: the true number of a
  round would reveal whether a client took part.
- A client subtracts its R_k unclipped, even if clipping has made it smaller in Rbar. R_ext then has
  a negative part of the client's own moments, the larger the fewer clients there are. What is sent
  in stage 1 has a norm of at most sqrt(2 mu^2 + 8 mu); a clip there changes nothing.
- R_k is computed with the views of P passes, from the round's first one on; the authors draw
  others. With P > E, the last of these views are those with which the next rounds train.
- Batch norm is rejected, as in DCCO.
"""

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_ssl.algorithms.dcco import composition
from tff_ssl.algorithms.dcco.client import (
    LocalStatistics,
    LocalUpdate,
    encode,
    prepared,
    scaled_update,
)
from tff_ssl.algorithms.dcco.parts import DCCOParts, build_parts
from tff_ssl.bounds import bounded, one_of
from tff_ssl.kinds.stateless.algorithm import StatelessClients
from tff_ssl.losses import means, spectral
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.objectives.registry import Evaluated, Objective
from tff_ssl.optimizers import ServerOptimizerHyperparameters
from tff_ssl.templates import group_training, non_finite
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters, client_weight
from tff_ssl.templates.local_training import LocalTraining, build_local_training, plus
from tff_ssl.templates.micro_batches import mean_over_batch, read_all
from tff_ssl.templates.task import Task


@dataclasses.dataclass(frozen=True)
class FedSCHyperparameters(ClientHyperparameters, ServerOptimizerHyperparameters):
    """Hyperparameters with the values of the authors' code, which has no noise here by default.

    Attributes:
      own_weight: Weight alpha of a client's own moments, by `schedule` or equal to its `share`.
      last_own_weight: Weight alpha at which the schedule ends, from 1 in the first round.
      statistics_passes: Number P of draws of the views over which R_k is the mean.
      statistics_noise: Standard deviation sigma of the noise in what a client sends in stage 1.
      clip_norm: Largest norm of the gradient of a local step; longer ones are shortened.
      micro_batch_size: Number of examples processed at a time in stage 1; affects memory and speed,
        but not the result. With `auto`, the scripts use as many as fit into the memory of a GPU, or
        this number on a CPU.
    """

    learning_rate_schedule: str = "cosine"
    client_weight_decay: float = 5e-4
    local_epochs: int = 5
    batch_size: int = 512
    client_weighting: str = "uniform"
    own_weight: str = one_of("schedule", ("schedule", "share"))
    last_own_weight: float = bounded(0.2, at_least=0, at_most=1)
    statistics_passes: int = bounded(5, at_least=1)
    statistics_noise: float = bounded(0.0, at_least=0)
    clip_norm: float = bounded(3.0, above=0)
    micro_batch_size: int = bounded(64, at_least=1)

    def client_weight(self, samples: tf.Tensor) -> tf.Tensor:
        """Weight of a client with `samples` examples, float32."""
        return client_weight(samples, self.client_weighting)


class Cohort(NamedTuple):
    """The clients that contributed to stage 1: the sum of their weights, their number; int64."""

    weight: Any
    clients: Any


def own_statistics(
    parts: DCCOParts, weights: Any, round_number: tf.Tensor, reference: means.Means, examples: Any
) -> tuple[Any, tf.Tensor]:
    """A client's statistics, including R_k, without noise; and its number of examples."""
    values = parts.hyperparameters
    zero = parts.loss.zero(parts.task.model.projector[-1])
    first = round_number * (values.local_steps or values.local_epochs)

    def over_passes(batch):
        def add(number, total):
            pair = encode(parts, weights, first + number, batch)
            return number + 1, plus(total, parts.loss.of_batch(*pair, reference))

        start = (tf.constant(0, tf.int64), zero)
        _, total = tf.while_loop(lambda number, _: number < values.statistics_passes, add, start)
        return tf.nest.map_structure(lambda t: t / values.statistics_passes, total)

    return mean_over_batch(read_all(examples), over_passes, zero, values.micro_batch_size)


def others_moments(
    mean: tf.Tensor, own: tf.Tensor, share: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """(R_ext, whether there are others) from Rbar, R_k and the client's share q_k of the weights.

    The share is 1 if there is no other client; the moments are float32 [d, d].
    """
    has_others = share < 1.0
    others = (mean - share * own) / tf.where(has_others, 1.0 - share, 1.0)
    return tf.where(has_others, others, tf.zeros_like(own)), has_others


def fedsc_loss(f: tf.Tensor, g: tf.Tensor, alpha: tf.Tensor | float, r_ext: tf.Tensor) -> tf.Tensor:
    """The loss L of a batch of encodings, float32 [n, d] each; see the module."""
    batch = spectral.encoding_statistics(f, g, means.zero(f.shape[1]))
    negatives = alpha * batch.moments + 2 * (1 - alpha) * r_ext
    return -2 * batch.f_dot_g + tf.reduce_sum(batch.moments * negatives)


def local_statistics(
    parts: DCCOParts, weights: Any, round_number: tf.Tensor, reference: means.Means, examples: Any
) -> LocalStatistics:
    """Stage 1 of a client."""
    values = parts.hyperparameters
    own, samples = own_statistics(parts, weights, round_number, reference, examples)
    if values.statistics_noise:
        own = tf.nest.map_structure(
            lambda t: t + tf.random.normal(t.shape, 0.0, values.statistics_noise), own
        )
    own, is_finite = non_finite.zero_unless_finite(own)
    return LocalStatistics(own, tf.where(is_finite, values.client_weight(samples), 0.0))


def build_training(parts: DCCOParts, alpha: tf.Tensor, r_ext: tf.Tensor) -> LocalTraining:
    """Builds the local training of stage 2 with these alpha and R_ext."""
    values = parts.hyperparameters

    def evaluate(model, weights, target, batch, hyperparameters):
        first, second = model.apply_pair(weights, batch.x1, batch.x2, training=True)
        f, g = prepared(parts, (first, second))
        losses = tf.fill(tf.shape(f)[:1], fedsc_loss(f, g, alpha, r_ext))
        return Evaluated.of_pair(losses, first, second)._replace(z=f)

    training = build_local_training(parts.task, values)
    objective = Objective("spectral, with the moments of others", evaluate)
    return dataclasses.replace(training, objective=objective, clip_norm=values.clip_norm)


def local_update(
    parts: DCCOParts, weights: Any, round_number: tf.Tensor, aggregated: Any, cohort: Cohort,
    examples: Any,
) -> LocalUpdate:  # fmt: skip
    """Stage 2 of a client, with the cohort's statistics."""
    values = parts.hyperparameters
    origin = means.zero(parts.task.model.projector[-1])
    own, samples = own_statistics(parts, weights, round_number, origin, examples)
    weight = values.client_weight(samples)
    share = weight / tf.cast(cohort.weight, tf.float32)
    r_ext, has_others = others_moments(aggregated.moments, own.moments, share)
    alpha = share
    if values.own_weight == "schedule":
        passed = tf.cast(round_number, tf.float32) / parts.task.rounds
        alpha = 1.0 - (1.0 - values.last_own_weight) * passed
    training = build_training(parts, tf.where(has_others, alpha, 1.0), r_ext)
    trained = group_training.many_steps(training, weights, Weights((), ()), round_number, examples)
    # Its part of the mean over the clients that send a delta; see `dcco.two_stage`.
    scale = share * tf.cast(cohort.clients, tf.float32)
    return scaled_update(trained.means.delta, scale, samples)


def _counted(weight: tf.Tensor) -> collections.OrderedDict[str, tf.Tensor]:
    """A client's contribution to its `Cohort`; its weight is a whole number."""
    whole = tf.cast(weight, tf.int64)
    return collections.OrderedDict(weight=whole, clients=tf.minimum(whole, 1))


def cohort_rule(expected_clients: int | None) -> composition.CohortRule:
    """Clients receive their `Cohort`, or one of the expected number of clients of weight 1."""
    size = np.int64(1 if expected_clients is None else expected_clients)
    rule = composition.CohortRule("cohort", Cohort(size, size))
    return rule if expected_clients is not None else rule._replace(counted=_counted, of=Cohort)


def build_fedsc(
    task: Task,
    hyperparameters: FedSCHyperparameters | None = None,
    *,
    expected_clients: int | None = None,
    **arguments: Any,
) -> StatelessClients:
    """Builds FedSC's two-stage round, and each of its stages as a process of its own.

    Further arguments are those of `dcco.two_stage.build_dcco`. The objective is `spectral`.

    Args:
      expected_clients: Number of clients from which a client computes its share q_k, instead of
        from the true number of the round. Differential privacy needs it: otherwise a client more
        or less would change the number that all others receive, and what they send.

    Raises:
      ValueError: If the model has batch norm or fewer than two outputs, the objective is not
        `spectral`, or `expected_clients` is given and clients do not have equal weights.
    """
    values = hyperparameters or FedSCHyperparameters()
    if task.objective != "spectral":
        raise ValueError(f"fedsc trains with spectral; got {task.objective}")
    if expected_clients is not None and values.client_weighting != "uniform":
        raise ValueError("expected_clients needs client_weighting=uniform")
    parts = build_parts(task, values, **arguments)
    stages = composition.TwoStages(local_statistics, local_update, cohort_rule(expected_clients))
    return composition.compose_two_stages(parts, stages)
