"""DCCO: distributed cross correlation optimization.

"Federated Training of Dual Encoding Models on Small Non-IID Client Datasets", section 3.3 and
Figure 2. A round has two stages:

1. each client encodes two views of its images with the broadcast model and sends the encoding
   statistics <F>, <F^2>, <G>, <G^2>, <F G^T>; the server averages them by N_k / N (Eq. 3);
2. each client takes one step of gradient descent on the CCO loss (Eq. 1) of the aggregated
   statistics, with gradients through its own statistics only; the server averages the model deltas
   with the same weights and gives them to its optimizer as a gradient.

One round equals one centralized step on the union of the clients' examples (Appendix A). Therefore
clients may be folded into groups, and a client may work in micro-batches: once the aggregated
statistics are fixed, the gradient is a sum over examples (Eq. 9).

The statistics are taken about a reference that all clients share (see `losses.cco`): the means of
the last cohort, 2 d numbers that the server keeps and broadcasts with the model; in the first round
the encodings of a grey image. The server adds the reference to the means, centres the second
moments, and broadcasts the result for the second stage. This is equivalent to the paper's
statistics for any reference, and keeps the digits of float32 if the encodings' mean is large. With
private aggregation, the reference is a function of released statistics and of the initial weights.

Extensions that section 6 of the paper leaves open:

- the statistics of VICReg or of the spectral contrastive loss (`losses.spectral`) in place of
  CCO's, for which the same argument holds;
- two encoders (`models.two_towers`);
- several local steps on larger clients (`local_steps`). The second moments of the loss are then
  those of the broadcast model, and a step may see a part of a client's examples ("partial
  gradients"). The means follow the client's model (`means_follow`): at its step t, client k uses

    mu_A + <F(theta_t)>_k - <F(theta_0)>_k

  on the examples and views of the step, and likewise for G, with fixed second moments about the
  means. This takes one more forward pass. With fixed means ("stale statistics"), the loss pushes a
  common move of the encodings further away, and diverges at larger learning rates (see
  `one_stage`). `launch.studies.drift` measures both;
- one communication in each round (`one_stage`).

The paper does not discuss clients that drop out. A client that drops out before it has sent its
statistics is not part of the round. One that drops out between the stages is part of the
statistics, which cannot be corrected any more, but its delta is missing. If n clients with weights
w_k take part in the first stage, and the set S of them in the second, the update is

  n / |S| * sum_(k in S) w_k delta_k / sum_k w_k,

the estimate from S of the sum over the whole cohort (Horvitz and Thompson). If dropping out does
not depend on the data, this update is in expectation that of the complete round, for clients of any
sizes. A mean over S by weights would not be, and a mean of the statistics over S would take one
more communication. Therefore a client scales its delta by w_k over the mean weight of the first
stage, and deltas have equal weights. A client whose statistics or delta are not finite, or that has
no examples, counts as one that dropped out before it sent them.

Deviations: the reference; `losses.cco.VARIANCE_EPSILON`, which keeps a variance of zero from giving
NaN. Batch norm is rejected, since each layer would need one more communication (section 3.2).
"""

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.dcco import client, composition
from tff_ssl.algorithms.dcco.parts import DCCOHyperparameters, build_parts
from tff_ssl.kinds.stateless.algorithm import StatelessClients
from tff_ssl.templates.task import Task


def _counts(weight: tf.Tensor) -> collections.OrderedDict[str, tf.Tensor]:
    """A client's contributions to the numbers of examples and of clients, from its weight N_k."""
    samples = tf.cast(weight, tf.int64)
    return collections.OrderedDict(samples=samples, clients=tf.minimum(samples, 1))


def _mean_weight(samples: tf.Tensor, clients: tf.Tensor) -> tf.Tensor:
    """Mean weight w_k of the clients that contribute to the statistics, float32."""
    return tf.cast(samples / tf.maximum(clients, 1), tf.float32)


def cohort_rule(hyperparameters: DCCOHyperparameters) -> composition.CohortRule:
    """Clients receive the mean weight w_k of their cohort, which is 1 if all weights are."""
    rule = composition.CohortRule("mean_weight", np.float32(1.0))
    if hyperparameters.client_weighting == "examples":
        return rule._replace(counted=_counts, of=_mean_weight)
    return rule


def with_group_size(state: Any, ratio: float) -> Any:
    """The state between the stages if the groups of folded clients change in size.

    A group counts as one client with the examples of all. The mean weight of the first stage is
    then a mean over groups, while the mean over the second stage's groups must be scaled by
    n / |S|, not by the ratio of the numbers of groups. `ratio` is the mean number of clients of a
    group in the second stage over that in the first.
    """
    work = state.client_work
    return state._replace(client_work=work._replace(cohort=np.float32(work.cohort * ratio)))


def build_dcco(
    task: Task,
    hyperparameters: DCCOHyperparameters | None = None,
    server_optimizer: tff.learning.optimizers.Optimizer | None = None,
    statistics_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    update_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    metric_sum: Callable[[tff.Value], tff.Value] = tff.federated_sum,
) -> StatelessClients:
    """Builds DCCO's two-stage round, and each of its stages as a process of its own.

    All three share one state, a `LearningAlgorithmState`. On the same cohort, `next` of the stage
    `statistics` and then `next` of the stage `update` equal `next` of the whole round.

    Args:
      task: Model (with group norm and a projector), views, objective (one of `STATISTICS_LOSSES`)
        and type of the examples. The views must be pure, since both stages call them.
      hyperparameters: Hyperparameters; the paper's by default.
      server_optimizer: Optimizer that applies the mean model delta to the model; by default that of
        the hyperparameters.
      statistics_aggregator: Weighted mean of the statistics; `MeanFactory` by default.
      update_aggregator: Weighted mean of the model deltas; `MeanFactory` by default.
      metric_sum: Sum of a metric over the clients.

    Raises:
      ValueError: If the model has batch norm or fewer than two outputs, or the objective does not
        depend on statistics alone.
    """
    parts = build_parts(
        task, hyperparameters or DCCOHyperparameters(), server_optimizer, statistics_aggregator,
        update_aggregator, metric_sum,
    )  # fmt: skip
    stages = composition.TwoStages(
        client.local_statistics, client.local_update, cohort_rule(parts.hyperparameters)
    )
    return composition.compose_two_stages(parts, stages, with_group_size)
