"""Hetero-SSFL: unlike clients learn alone, but see common images alike (Makhija, Ho & Ghosh, 2022).

"Federated Self-supervised Learning for Heterogeneous Clients", Algorithm 1. In round t the server
forms the mean kernel of all clients' last representations A_j of an unlabeled set X of its own, the
representation alignment dataset (RAD), which it shows to the clients:

  K-bar(t-1) = sum_j w_j A_j A_j^T,    A_j = Phi_j(X; W_j(t-1)).

A selected client goes on training its own model, of an architecture of its own, with

  loss(W_k) + mu * (1 - CKA(K_k, K-bar(t-1))),

where the loss is BYOL's or SimSiam's on its own images, and sends its new A_k, nothing else. The
server keeps the last A_j of every client, so that those that are not selected count as well. With
mu = 0 every client trains alone. `losses.alignment` has the term, for which K-bar is never formed:
clients get B = [sqrt(w_1) A_1, ..., sqrt(w_N) A_N] with B B^T = K-bar.

Here, `train` is a computation per architecture, over the selected clients that have it, and
`aggregate` one over all clients; it works at the server. TFF has no operator that hands the server
what single clients sent (an aggregation of N slots keeps N copies of all of them), so A_k leaves
`train` at the clients, and who runs the computations keeps it.

Choices: A distance of 1 - CKA, and centred kernels (`losses.alignment`). Clients of an architecture
start from the same weights, whose representations count for clients that have not taken part yet.
Every local step sees a batch of X: each step's kernels are those of the batch, of size
`rad_batch_size`, of which the paper says nothing; all clients of a round see the same batches.
X is not augmented. In a local step batch norm uses the batch's statistics, and its moving averages
follow; what is sent comes from the model in inference mode.
"""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.losses import alignment
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.objectives.registry import OBJECTIVES
from tff_ssl.templates import local_training, message_sizes, stateful_clients
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters, check_choice
from tff_ssl.templates.micro_batches import read_all
from tff_ssl.templates.task import Population, Task
from tff_ssl.templates.weight_groups import one_tower
from tff_ssl.views import augmentation

_LAYERS = {"encoding": "h", "projection": "z", "prediction": "p"}
_MICRO_BATCH = 250  # Images of X that are encoded at once.
_SALT = 5  # X's batches and clients' own are drawn apart.
_LOGGED = 512  # The logged similarity is of the first images of X, at most so many.


@dataclasses.dataclass(frozen=True)
class HeteroSSFLHyperparameters(ClientHyperparameters):
    """Hyperparameters with the paper's values (section 5.1); those of local training are inherited.

    Attributes:
      client_weighting: w_j, `uniform` or by `examples`.
      mu: Weight of the distance; 0.5 for CIFAR, 1 for Tiny-ImageNet. 0: clients train alone.
      rad_batch_size: Images of X in a local step, all of them if there are fewer; 0 for all.
      representation: Phi, the model's `prediction` (as in the paper), `projection` or `encoding`.
      centred: Whether kernels are centred.
    """

    client_learning_rate: float = 0.032
    batch_size: int = 200
    local_epochs: int = 5
    client_weighting: str = "uniform"
    mu: float = 0.5
    rad_batch_size: int = 200
    representation: str = "prediction"
    centred: bool = True

    def __post_init__(self):
        super().__post_init__()
        check_choice("representation", self.representation, tuple(_LAYERS))
        if self.mu < 0:
            raise ValueError(f"mu must not be negative; got {self.mu}")
        if self.rad_batch_size < 0 or self.rad_batch_size == 1:
            raise ValueError(
                f"rad_batch_size must be at least 2, or 0 for all; got {self.rad_batch_size}"
            )


class ClientState(NamedTuple):
    """What a client keeps between its rounds.

    Attributes:
      rounds: Rounds that it took part in, int64.
      weights: W_k, its online network.
      target: BYOL's target network; else empty.
    """

    rounds: Any
    weights: Any
    target: Any


class TrainOutput(NamedTuple):
    """What `train` gives.

    Attributes:
      client_states: The clients' new states, at the clients.
      representations: A_k, what they send: float32 [RAD, d], at the clients.
      client_metrics: Name -> figure, at the clients; `cka` is the similarity to K-bar(t-1).
      metrics: Their means and sums, at the server.
    """

    client_states: Any
    representations: Any
    client_metrics: Any
    metrics: Any


class Architecture(NamedTuple):
    """The clients of one architecture.

    Attributes:
      model: Their model.
      train: (round number int64@SERVER, B float32 [RAD, D]@SERVER, X uint8 [RAD, h, w, c]@SERVER,
        client_states@CLIENTS, client_data@CLIENTS) -> `TrainOutput`; a `tff.Computation`.
      initial_client_state: Seed -> the state of a client that has not taken part yet.
      representations: (client's state, X) -> A, float32 [RAD, d].
      client_weights: Client's state -> its model's weights.
      downloads: Types that such a client receives in a round.
      uploads: Types that it sends.
    """

    model: DualEncoder
    train: tff.Computation
    initial_client_state: Callable[[int], ClientState]
    representations: Callable[[ClientState, tf.Tensor], tf.Tensor]
    client_weights: Callable[[ClientState], Weights]
    downloads: Sequence[tff.Type]
    uploads: Sequence[tff.Type]


class UnlikeClients(NamedTuple):
    """The algorithm for a population.

    Attributes:
      architectures: In the order of the population's models.
      model_of_client: Index into `architectures` of each client, int64 [N].
      aggregate: (A_1, ..., A_N) -> B, float32 [RAD, D]; a `tff.tensorflow.computation` for the
        server.
    """

    architectures: tuple[Architecture, ...]
    model_of_client: np.ndarray
    aggregate: tff.Computation

    @property
    def downloads(self) -> Sequence[tff.Type]:
        """Types that a client receives in a round."""
        return self.architectures[0].downloads

    @property
    def uploads(self) -> Sequence[tff.Type]:
        """Types that a client sends in a round: one of the architecture that sends most."""
        return max((a.uploads for a in self.architectures), key=message_sizes.total_bytes)


def build_hetero_ssfl(
    task: Task, hyperparameters: HeteroSSFLHyperparameters | None = None
) -> UnlikeClients:
    """Builds a computation for each architecture, and the aggregation.

    Args:
      task: Views, objective, type of the examples, and the population.
      hyperparameters: The defaults if None.

    Raises:
      ValueError: If the population is missing, or its models or RAD cannot be trained with.
    """
    hyperparameters = hyperparameters or HeteroSSFLHyperparameters()
    population = _checked(task.population)
    aggregate = build_aggregate(population, hyperparameters)
    return UnlikeClients(
        tuple(
            _architecture(
                task._replace(model=model),
                hyperparameters,
                population.rad_size,
                aggregate.type_signature.result,
            )
            for model in population.models
        ),
        np.array(population.model_of_client, np.int64),
        aggregate,
    )


def build_aggregate(
    population: Population, hyperparameters: HeteroSSFLHyperparameters
) -> tff.Computation:
    """The aggregation over all clients, whatever their architecture; see `UnlikeClients`."""
    sizes = np.array(population.sizes, np.float64)
    if hyperparameters.client_weighting == "uniform":
        sizes = np.ones_like(sizes)
    weights = (sizes / sizes.sum()).tolist()
    widths = [_width(population.models[m], hyperparameters) for m in population.model_of_client]

    @tff.tensorflow.computation(
        tuple(tff.types.TensorType(np.float32, (population.rad_size, d)) for d in widths)
    )
    def aggregate(representations):
        return alignment.stack(list(representations), weights)

    return aggregate


def _checked(population: Population | None) -> Population:
    if population is None:
        raise ValueError("hetero_ssfl needs a population: clients, their models and the RAD's size")
    encoders = [model.encoder for model in population.models]
    if len(set(encoders)) < len(encoders):
        raise ValueError(f"two architectures have the same encoder: {', '.join(encoders)}")
    if population.rad_size < 2:
        raise ValueError(f"the RAD must have at least 2 images; got {population.rad_size}")
    return population


def _width(model: DualEncoder, hyperparameters: HeteroSSFLHyperparameters) -> int:
    """d, the size of a representation."""
    projection = model.projector[-1] if model.projector else model.features
    prediction = model.predictor[-1] if model.predictor else projection
    sizes = {"encoding": model.features, "projection": projection, "prediction": prediction}
    return sizes[hyperparameters.representation]


def _architecture(
    task: Task,
    hyperparameters: HeteroSSFLHyperparameters,
    rad_size: int,
    kernel_type: tff.types.TensorType,
) -> Architecture:
    model, objective = one_tower(task.model), OBJECTIVES[task.objective]
    training = local_training.build_local_training(
        task, hyperparameters, keeps_target=objective.target
    )
    image_type = task.element_type["image"]
    rad_type = tff.types.TensorType(image_type.dtype, (rad_size, *image_type.shape))

    def initial_client_state(seed: int) -> ClientState:
        weights = model.init(seed)
        target = model.target_model.part_of(weights) if objective.target else Weights((), ())
        return ClientState(tf.constant(0, tf.int64), weights, target)

    def represent(weights: Weights, images: tf.Tensor, training: bool):
        """Phi, and the non-trainable weights after it."""
        outputs = model.apply(weights, _seen(model, images), training=training)
        return getattr(outputs, _LAYERS[hyperparameters.representation]), outputs.non_trainable

    def representations(state: ClientState, rad: tf.Tensor) -> tf.Tensor:
        def encode(images):
            return represent(Weights(*state.weights), images, training=False)[0]

        return _in_micro_batches(encode, rad, rad_size, _width(model, hyperparameters))

    def distance(round_number: tf.Tensor, mean_kernel: tf.Tensor, rad: tf.Tensor):
        """What Eq. 2 adds to the loss, as a function of the model's weights and the step."""

        def term(weights: Weights, step: tf.Tensor):
            chosen = _batch_of_rad(
                rad_size, hyperparameters.rad_batch_size, task.seed, round_number, step
            )
            a, non_trainable = represent(weights, tf.gather(rad, chosen), training=True)
            rows = tf.gather(mean_kernel, chosen)
            added = alignment.proximal_term(a, rows, hyperparameters.mu, hyperparameters.centred)
            return added, non_trainable

        return term if hyperparameters.mu else None

    @tff.tensorflow.computation
    def first_state():
        return initial_client_state(0)

    state_type = first_state.type_signature.result
    examples_type = tff.types.SequenceType(task.element_type)

    @tff.tensorflow.computation(np.int64, kernel_type, rad_type, state_type, examples_type)
    @tf.function(autograph=False)
    def work(round_number, mean_kernel, rad, state, examples):
        """LocalTraining of Algorithm 1, and A_k after it."""
        own = read_all(examples)
        samples = tf.shape(own["example_id"])[0]
        trained = training.train(
            Weights(*state.weights),
            Weights(*state.target),
            round_number,
            own,
            term=distance(round_number, mean_kernel, rad),
        )
        weight = tf.constant(1.0) if training.uniform else tf.cast(samples, tf.float32)
        # No weights are sent; what is, is taken from the state that the client keeps.
        output = stateful_clients.output_if_finite(
            [(tf.constant(0.0), weight)],
            ClientState(state.rounds + 1, trained.weights, trained.target),
            state,
            trained,
            samples,
            {},
        )
        sent = representations(output.state, rad)
        cka = alignment.cka_with_mean_kernel(
            sent[:_LOGGED], mean_kernel[:_LOGGED], hyperparameters.centred
        )
        return output.state, sent, collections.OrderedDict(**output.metrics, cka=cka)

    @tff.federated_computation(
        tff.types.FederatedType(np.int64, tff.SERVER),
        tff.types.FederatedType(kernel_type, tff.SERVER),
        tff.types.FederatedType(rad_type, tff.SERVER),
        tff.types.FederatedType(state_type, tff.CLIENTS),
        tff.types.FederatedType(examples_type, tff.CLIENTS),
    )
    def train(round_number, mean_kernel, rad, client_states, client_data):
        received = (tff.federated_broadcast(v) for v in (round_number, mean_kernel, rad))
        states, sent, metrics = tff.federated_map(work, (*received, client_states, client_data))
        return TrainOutput(states, sent, metrics, stateful_clients.server_metrics(metrics))

    shares = bool(hyperparameters.mu)
    return Architecture(
        model,
        train,
        initial_client_state,
        representations,
        lambda state: Weights(*state.weights),
        downloads=(kernel_type, rad_type, tff.types.to_type(np.int64)) if shares else (),
        uploads=(work.type_signature.result[1],) if shares else (),
    )


def _seen(model: DualEncoder, images: tf.Tensor) -> tf.Tensor:
    """Images as the model sees them, without augmentation."""
    same = images.shape[1:3] == model.image_shape[:2]
    return augmentation.to_float(images, output_size=None if same else model.image_shape[0])


def _batch_of_rad(
    rad_size: int, batch_size: int, seed: int, round_number: tf.Tensor, step: tf.Tensor
) -> tf.Tensor:
    """Positions in X of a local step's batch, int32 [batch]: X in random order, again and again."""
    batch_size = min(batch_size or rad_size, rad_size)
    batches = rad_size // batch_size
    key = tf.constant([seed, _SALT], tf.int64)
    for number in (round_number, step // batches):
        key = tf.random.experimental.stateless_fold_in(key, tf.cast(number, tf.int64))
    order = tf.argsort(tf.random.stateless_uniform([rad_size], key))
    start = step % batches * batch_size
    return tf.ensure_shape(order[start : start + batch_size], [batch_size])


def _in_micro_batches(
    encode: Callable[[tf.Tensor], tf.Tensor], images: tf.Tensor, count: int, width: int
) -> tf.Tensor:
    """`encode` of all images, a few at a time: float32 [count, width]."""
    size = min(_MICRO_BATCH, count)
    padded = tf.pad(images, [[0, -count % size], [0, 0], [0, 0], [0, 0]])
    batches = tf.reshape(padded, [-1, size, *images.shape[1:]])
    encoded = tf.map_fn(
        encode,
        batches,
        fn_output_signature=tf.TensorSpec([size, width], tf.float32),
        parallel_iterations=1,
    )
    return tf.ensure_shape(tf.reshape(encoded, [-1, width])[:count], [count, width])
