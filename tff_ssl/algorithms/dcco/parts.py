"""The parts that both forms of DCCO share, and their hyperparameters."""

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import optimizers
from tff_ssl.bounds import bounded, one_of
from tff_ssl.errors import ConfigurationError
from tff_ssl.losses.means import Means
from tff_ssl.objectives.hyperparameters import ObjectiveHyperparameters
from tff_ssl.objectives.statistics import STATISTICS_LOSSES, StatisticsLoss
from tff_ssl.templates.server_step import build_server_step
from tff_ssl.templates.task import Task

MetricSum = Callable[[tff.Value], tff.Value]


@dataclasses.dataclass(frozen=True)
class DCCOHyperparameters(ObjectiveHyperparameters, optimizers.ServerOptimizerHyperparameters):
    """Hyperparameters with the paper's values for CIFAR-100 (section 4.3, Appendix B).

    Attributes:
      client_learning_rate: Learning rate of the clients' gradient descent.
      micro_batch_size: Number of examples processed at a time in a round of one step; affects
        memory and speed, but not the result. With `auto`, the scripts use as many as fit into the
        memory of a GPU, or this number on a CPU.
      local_steps: Number of steps of each client in a round; more than one goes beyond the paper.
      means_follow: Whether the means of the aggregated statistics follow the client's model in its
        local steps.
      batch_size: Number of examples of a local step; 0 for all examples of the client.
      examples_per_round: Largest number of a client's examples in a round of one step, drawn in
        each round; 0 for all. A round is then a centralized step on the drawn examples.
      client_weighting: Weights w_k of the clients in both means, by `examples` (N_k) or `uniform`,
        which bounds a client's influence, as differential privacy needs, but makes a round differ
        from a centralized step.
    """

    server_optimizer: str = "adam"
    server_learning_rate: float = 5e-3
    server_schedule: str = "cosine"
    server_momentum: float = 0.9
    client_learning_rate: float = bounded(1.0, above=0)
    micro_batch_size: int = bounded(32, at_least=1)
    local_steps: int = bounded(1, at_least=1)
    means_follow: bool = True
    batch_size: int = bounded(0, at_least=0)
    examples_per_round: int = bounded(0, at_least=0)
    client_weighting: str = one_of("examples", ("examples", "uniform"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.examples_per_round and not self.is_one_step:
            raise ValueError(
                "examples_per_round is for rounds of one step (local_steps=1, batch_size=0); "
                f"got local_steps={self.local_steps}, batch_size={self.batch_size}"
            )

    @property
    def is_one_step(self) -> bool:
        """Whether a client takes one step on all of its examples of a round."""
        return self.local_steps == 1 and not self.batch_size

    @property
    def folds(self) -> bool:
        """Whether clients may be folded into groups, in which all examples have equal weights."""
        return self.client_weighting == "examples"

    def client_weight(self, samples: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """Weight w_k of a client with `samples` examples, float32; 0 unless the client `counts`."""
        samples = tf.cast(samples, tf.float32)
        return tf.where(counts, samples if self.folds else tf.ones_like(samples), 0.0)


def check_task(task: Task) -> None:
    """Raises a ValueError if DCCO cannot train this model with this objective."""
    model = task.model
    if task.objective not in STATISTICS_LOSSES:
        raise ValueError(f"dcco trains with {' or '.join(STATISTICS_LOSSES)}; got {task.objective}")
    if model.has_batch_norm:
        raise ConfigurationError(
            f"dcco needs {model.batch_norm_remedy}: batch norm would mix the clients' statistics"
        )
    if not model.projector or model.projector[-1] < 2:
        raise ValueError("dcco needs a --projector with at least 2 outputs")


@dataclasses.dataclass(frozen=True)
class DCCOParts:
    """Types, computations and processes that both forms of DCCO, and FedSC, share."""

    task: Task  #: Model, views, objective and type of the examples.
    hyperparameters: Any  #: Hyperparameters of the algorithm.
    loss: StatisticsLoss  #: Loss of encoding statistics.
    initial_model: tff.Computation  #: Computation () -> weights of the global model.
    no_statistics: tff.Computation  #: Computation () -> encoding statistics of zero.
    statistics_mean: tff.templates.AggregationProcess  #: Weighted mean of the clients' statistics.
    update_mean: tff.templates.AggregationProcess  #: Weighted mean of the clients' model deltas.
    #: Optimizer that applies the mean delta to the model.
    server_optimizer: tff.learning.optimizers.Optimizer
    metric_sum: MetricSum  #: Sum of a metric over the clients.

    def on_server(self, function: Callable[..., Any], *types: Any) -> tff.Computation:
        """The function, whose first argument is these parts, as a computation of the others."""
        return tff.tensorflow.computation(functools.partial(function, self), *types)

    def on_client(self, function: Callable[..., Any], *types: Any) -> tff.Computation:
        """A client's work as a computation: (weights, round number, what it received, examples)."""
        graph = tf.function(functools.partial(function, self), autograph=False)
        return tff.tensorflow.computation(
            graph, self.weights_type, np.int64, *types, self.examples_type
        )

    @property
    def weights_type(self) -> tff.Type:
        return self.initial_model.type_signature.result

    @property
    def statistics_type(self) -> tff.Type:
        return self.no_statistics.type_signature.result

    @property
    def reference_type(self) -> tff.Type:
        """Type of the `Means` about which the clients take their statistics."""
        vector = tff.types.TensorType(np.float32, [self.task.model.projector[-1]])
        return tff.types.to_type(Means(vector, vector))

    @property
    def examples_type(self) -> tff.types.SequenceType:
        return tff.types.SequenceType(self.task.element_type)

    def at_clients(self, type_spec: tff.Type) -> tff.types.FederatedType:
        return tff.types.FederatedType(type_spec, tff.CLIENTS)

    def initial_weights(self, seed: int) -> tff.learning.models.ModelWeights:
        return tff.learning.models.ModelWeights(*self.task.model.init(seed))

    def initial_work(self, state: type[Any], *further: tff.Computation) -> tff.Computation:
        """The first state of the clients' work: round number, aggregator, further values."""

        @tff.federated_computation
        def initialize():
            round_number = tff.federated_value(np.int64(0), tff.SERVER)
            values = (tff.federated_eval(value, tff.SERVER) for value in further)
            return tff.federated_zip(
                state(round_number, self.statistics_mean.initialize(), *values)
            )

        return initialize

    def compose(
        self, initialize: tff.Computation, next_client_work: tff.Computation
    ) -> tff.learning.templates.LearningProcess:
        """Composes a learning process: broadcast, client work, mean of the deltas, server step."""
        return tff.learning.templates.compose_learning_process(
            self.initial_model,
            tff.learning.templates.build_broadcast_process(self.weights_type),
            tff.learning.templates.ClientWorkProcess(initialize, next_client_work),
            self.update_mean,
            build_server_step(self.server_optimizer, self.weights_type),
        )


def build_parts(
    task: Task,
    hyperparameters: Any,
    server_optimizer: tff.learning.optimizers.Optimizer | None = None,
    statistics_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    update_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    metric_sum: MetricSum = tff.federated_sum,
) -> DCCOParts:
    """Builds the parts; arguments and errors are those of `two_stage.build_dcco`."""
    check_task(task)
    loss, d = STATISTICS_LOSSES[task.objective], task.model.projector[-1]
    initial_model = tff.tensorflow.computation(
        lambda: tff.learning.models.ModelWeights(*task.model.init(0))
    )
    no_statistics = tff.tensorflow.computation(lambda: loss.zero(d))
    mean, weight_type = tff.aggregators.MeanFactory(), tff.types.TensorType(np.float32)
    return DCCOParts(
        task,
        hyperparameters,
        loss,
        initial_model,
        no_statistics,
        (statistics_aggregator or mean).create(no_statistics.type_signature.result, weight_type),
        (update_aggregator or mean).create(
            initial_model.type_signature.result.trainable, weight_type
        ),
        server_optimizer or hyperparameters.build_server_optimizer(task.rounds, task.model.xla),
        metric_sum,
    )


def centre(parts: DCCOParts, statistics: Any, reference: Means) -> Any:
    """The cohort's statistics about a reference as centred statistics."""
    centred = parts.loss.centred(statistics, reference)
    # Without any finite client, the next round has the same reference.
    pairs = ((centred.f, reference.f), (centred.g, reference.g))
    f, g = (tf.where(tf.math.is_finite(mean), mean, kept) for mean, kept in pairs)
    return centred._replace(f=f, g=g)


def loss_and_spread(parts: DCCOParts, statistics: Any) -> collections.OrderedDict[str, Any]:
    """Loss, its terms and the standard deviation of encodings, from centred statistics."""
    terms = parts.loss.terms(statistics, parts.hyperparameters)._asdict()
    return collections.OrderedDict(**terms, encoding_std=parts.loss.encoding_std(statistics))


def round_metrics(
    parts: DCCOParts, statistics: Any, samples: tf.Tensor, dropped: tf.Tensor
) -> collections.OrderedDict[str, Any]:
    """Metrics of a round, with the numbers of its samples and of dropped clients."""
    metrics = loss_and_spread(parts, statistics)
    metrics.update(samples=samples, dropped_clients=dropped)
    return metrics
