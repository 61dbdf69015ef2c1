"""Hetero-SSFL: clients of different architectures align their kernels (Makhija, Ho & Ghosh, 2022).

"Federated Self-supervised Learning for Heterogeneous Clients", Algorithm 1. The server shows a set
X of unlabeled images, the representation alignment dataset (RAD), to all clients. In round t it
forms the mean kernel of the clients' last representations A_j of X:

  K-bar(t-1) = sum_j w_j A_j A_j^T,    A_j = Phi_j(X; W_j(t-1)).

A selected client continues to train its own model, of its own architecture, with

  loss(W_k) + mu * (1 - CKA(K_k, K-bar(t-1))),

where the loss is BYOL's or SimSiam's on its own images. (The framework takes any loss without
labels; the contrastive one is here too. It has no predictor, so that Phi is the projection.) The
client sends its new A_k and nothing else. The server keeps the last A_j of every client, so that
clients that are not selected count as well. With mu = 0 every client trains alone. Clients receive
a factor F of K-bar, F F^T = K-bar, of min(RAD, d_1 + ... + d_N) columns. It is a function of K-bar
(`losses.alignment.mixed`): it shows which images all clients together find alike, not which
features a client has. Of two clients, each can still subtract its own kernel.

Choices: The distance is 1 - CKA, and kernels are centred (`losses.alignment`), at the server over
all of X, which changes nothing in batches that are centred again. Representations that are not
finite count as constant. The options `normalize_kernels`, `mu_warmup_rounds` and
`byol_direction=one` are off by default; the first two are not in the paper, the third is its
printed loss. With `kernel=rbf`, kernels are those of radial basis functions, and F has RAD columns.
All clients of an architecture start from the same weights, whose representations stand for clients
that have not taken part yet. A local step compares kernels on a batch of X, whose size
`rad_batch_size` the paper does not give; all clients of a round see the same batches. X is not
augmented. In a local step, batch norm uses the batch's statistics and updates its moving averages;
the representations that are sent come from the model in inference mode.
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.bounds import bounded, one_of
from tff_ssl.kinds.heterogeneous.algorithm import Architecture, HeterogeneousClients, TrainOutput
from tff_ssl.losses import alignment
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.templates import message_sizes
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.client_output import output_if_finite, server_metrics
from tff_ssl.templates.local_training import LocalTraining, Term, build_local_training
from tff_ssl.templates.micro_batches import read_all
from tff_ssl.templates.task import Population, Task
from tff_ssl.templates.weight_groups import one_tower
from tff_ssl.views import augmentation

_LAYERS = {"encoding": "h", "projection": "z", "prediction": "p"}
_MICRO_BATCH = 250  # Number of images of X that are encoded in one call.
_SALT = 5  # Separates the draws of X's batches from the draws of clients' batches.
_LOGGED = 512  # Largest number of images of X on which the logged similarity is computed.


@dataclasses.dataclass(frozen=True)
class HeteroSSFLHyperparameters(ClientHyperparameters):
    """Hyperparameters with the paper's values (section 5.1); those of local training are inherited.

    Attributes:
      client_weighting: Weights w_j of the clients, `uniform` or by `examples`.
      mu: Weight mu of the distance; 0.5 for CIFAR, 1 for Tiny-ImageNet, 0 without alignment.
      rad_batch_size: Number of images of X in a local step; 0, or more than X has, for all.
      representation: Representation Phi: the model's `prediction` (the paper), `projection` or
        `encoding`.
      centred: Whether kernels are centred.
      kernel: Kernel of representations, `linear` as in the paper's results, or `rbf`, which it
        found to be as good. The server then sends RAD x RAD numbers.
      normalize_kernels: Whether each client's kernel is divided by its Frobenius norm before K-bar
        is formed. Otherwise the architecture with the largest representations dominates.
      mu_warmup_rounds: Number of rounds in which mu grows linearly from 0, since K-bar is at first
        that of untrained networks; 0 for mu from the start.
    """

    client_learning_rate: float = 0.032
    batch_size: int = 200
    local_epochs: int = 5
    client_weighting: str = "uniform"
    mu: float = bounded(0.5, at_least=0)
    rad_batch_size: int = bounded(200, at_least=0)
    representation: str = one_of("prediction", _LAYERS)
    centred: bool = True
    kernel: str = one_of("linear", ("linear", "rbf"))
    normalize_kernels: bool = False
    mu_warmup_rounds: int = bounded(0, at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rad_batch_size == 1:
            raise ValueError("rad_batch_size must be at least 2, or 0 for all; got 1")

    def mu_of_round(self, round_number: tf.Tensor) -> tf.Tensor:
        """Weight mu of the distance in a round, float32."""
        passed = tf.cast(round_number, tf.float32) / max(self.mu_warmup_rounds, 1)
        share = tf.minimum(passed, 1.0) if self.mu_warmup_rounds else 1.0
        return tf.constant(self.mu, tf.float32) * share


class ClientState(NamedTuple):
    """The state of a client."""

    rounds: Any  #: Number of rounds that the client took part in, int64.
    weights: Any  #: Weights W_k of the online network.
    target: Any  #: Weights of BYOL's target network; empty for other objectives.


class RADEncoder(NamedTuple):
    """The encoder of the RAD's `rad_size` images X with a client's model."""

    model: DualEncoder
    hyperparameters: HeteroSSFLHyperparameters
    rad_size: int

    @property
    def width(self) -> int:
        """Size d of a representation."""
        model = self.model
        projection = model.projector[-1] if model.projector else model.features
        prediction = model.predictor[-1] if model.predictor else projection
        sizes = {"encoding": model.features, "projection": projection, "prediction": prediction}
        return sizes[self.hyperparameters.representation]

    def represent(self, weights: Weights, images: tf.Tensor, training: bool):
        """Representation Phi of images without augmentation, and the new non-trainable weights."""
        x = augmentation.to_float_of_shape(images, self.model.image_shape)
        outputs = self.model.apply(weights, x, training=training)
        return getattr(outputs, _LAYERS[self.hyperparameters.representation]), outputs.non_trainable

    def representations(self, state: ClientState, rad: tf.Tensor) -> tf.Tensor:
        """Representations A of X in inference mode, by micro-batch: float32 [rad_size, width]."""
        size = min(_MICRO_BATCH, self.rad_size)
        padded = tf.pad(rad, [[0, -self.rad_size % size], [0, 0], [0, 0], [0, 0]])
        encoded = tf.map_fn(
            lambda images: self.represent(Weights(*state.weights), images, training=False)[0],
            tf.reshape(padded, [-1, size, *rad.shape[1:]]),
            fn_output_signature=tf.TensorSpec([size, self.width], tf.float32),
            parallel_iterations=1,
        )
        rows = tf.reshape(encoded, [-1, self.width])[: self.rad_size]
        return tf.ensure_shape(rows, [self.rad_size, self.width])


def _prepared(a: tf.Tensor, hyperparameters: HeteroSSFLHyperparameters) -> tf.Tensor:
    """A client's representations as they enter K-bar, float32 [RAD, d], or its kernel if `rbf`."""
    a = tf.where(tf.reduce_all(tf.math.is_finite(a)), a, 0.0)
    if hyperparameters.kernel == "rbf":
        kernel = alignment.rbf_kernel(a, hyperparameters.centred)
        norm = tf.norm(kernel) if hyperparameters.normalize_kernels else 1.0
        return tf.math.divide_no_nan(kernel, norm)
    if hyperparameters.normalize_kernels:
        return alignment.of_unit_kernel(a, hyperparameters.centred)
    return a - tf.reduce_mean(a, 0) if hyperparameters.centred else a


def build_aggregate(
    population: Population, hyperparameters: HeteroSSFLHyperparameters
) -> tff.Computation:
    """Builds the server's aggregation over all clients; see `HeterogeneousClients.aggregate`."""
    sizes = np.array(population.sizes, np.float64)
    if hyperparameters.client_weighting == "uniform":
        sizes = np.ones_like(sizes)
    weights = (sizes / sizes.sum()).tolist()
    widths = [
        RADEncoder(population.models[m], hyperparameters, population.rad_size).width
        for m in population.model_of_client
    ]

    @tff.tensorflow.computation(
        tuple(tff.types.TensorType(np.float32, (population.rad_size, d)) for d in widths)
    )
    def aggregate(representations):
        prepared = [_prepared(a, hyperparameters) for a in representations]
        if hyperparameters.kernel == "rbf":
            pairs = zip(weights, prepared, strict=True)
            return alignment.factor(tf.add_n([weight * kernel for weight, kernel in pairs]))
        return alignment.mixed(alignment.stack(prepared, weights))

    return aggregate


def _batch_of_rad(
    encoder: RADEncoder, seed: int, round_number: tf.Tensor, step: tf.Tensor
) -> tf.Tensor:
    """Positions in X of a local step's batch, int32 [batch]; passes have random orders."""
    rad_size = encoder.rad_size
    batch_size = min(encoder.hyperparameters.rad_batch_size or rad_size, rad_size)
    batches = rad_size // batch_size
    key = tf.constant([seed, _SALT], tf.int64)
    for number in (round_number, step // batches):
        key = tf.random.experimental.stateless_fold_in(key, tf.cast(number, tf.int64))
    order = tf.argsort(tf.random.stateless_uniform([rad_size], key))
    start = step % batches * batch_size
    return tf.ensure_shape(order[start : start + batch_size], [batch_size])


def _alignment_term(
    encoder: RADEncoder, seed: int, round_number: tf.Tensor, mean_kernel: tf.Tensor, rad: tf.Tensor
) -> Term | None:
    """The distance that Eq. 2 adds to the loss; None if mu is 0."""
    hyperparameters = encoder.hyperparameters
    mu = hyperparameters.mu_of_round(round_number)

    def term(weights: Weights, step: tf.Tensor):
        chosen = _batch_of_rad(encoder, seed, round_number, step)
        a, non_trainable = encoder.represent(weights, tf.gather(rad, chosen), training=True)
        rows = tf.gather(mean_kernel, chosen)
        distance = alignment.proximal_term(
            a, rows, mu, hyperparameters.centred, hyperparameters.kernel
        )
        return distance, non_trainable

    return term if hyperparameters.mu else None


def _build_train(
    task: Task,
    training: LocalTraining,
    encoder: RADEncoder,
    initial_client_state: Callable[[int], ClientState],
    kernel_type: tff.types.TensorType,
) -> tff.Computation:
    """Builds `Architecture.train`, whose clients run `LocalTraining` of Algorithm 1."""
    image_type = task.element_type["image"]
    rad_type = tff.types.TensorType(image_type.dtype, (encoder.rad_size, *image_type.shape[-3:]))
    first_state = tff.tensorflow.computation(lambda: initial_client_state(0))
    state_type = first_state.type_signature.result
    examples_type = tff.types.SequenceType(task.element_type)

    @tff.tensorflow.computation(np.int64, kernel_type, rad_type, state_type, examples_type)
    @tf.function(autograph=False)
    def work(round_number, mean_kernel, rad, state, examples):
        batch = read_all(examples)
        samples = tf.shape(batch["example_id"])[0]
        weights, target = Weights(*state.weights), Weights(*state.target)
        term = _alignment_term(encoder, training.seed, round_number, mean_kernel, rad)
        trained = training.train(weights, target, round_number, batch, term=term)
        # No weights are sent; A_k is computed from the state that the client keeps.
        updates = [(tf.constant(0.0), training.client_weight(samples))]
        new_state = ClientState(state.rounds + 1, trained.weights, trained.target)
        output = output_if_finite(updates, new_state, state, trained, samples, {})
        sent = encoder.representations(output.state, rad)
        cka = alignment.cka_with_mean_kernel(
            sent[:_LOGGED], mean_kernel[:_LOGGED], encoder.hyperparameters.centred,
            encoder.hyperparameters.kernel,
        )  # fmt: skip
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
        return TrainOutput(states, sent, metrics, server_metrics(metrics))

    return train


def _build_architecture(
    task: Task, encoder: RADEncoder, kernel_type: tff.types.TensorType
) -> Architecture:
    model = one_tower(task.model)
    training = build_local_training(task, encoder.hyperparameters, keeps_target=True)

    def initial_client_state(seed: int) -> ClientState:
        weights = model.init(seed)
        return ClientState(tf.constant(0, tf.int64), weights, training.first_target(weights))

    train = _build_train(task, training, encoder, initial_client_state, kernel_type)
    _, kernel, rad, _, _ = (placed.member for placed in train.type_signature.parameter)
    sent = train.type_signature.result.representations.member
    shares = bool(encoder.hyperparameters.mu)
    return Architecture(
        model,
        train,
        initial_client_state,
        encoder.representations,
        lambda state: Weights(*state.weights),
        downloads=(kernel, rad, tff.types.to_type(np.int64)) if shares else (),
        uploads=(sent,) if shares else (),
    )


def _checked(population: Population | None) -> Population:
    """The population, if its models and RAD can be trained with."""
    if population is None:
        raise ValueError("hetero_ssfl needs a population: clients, their models and the RAD's size")
    encoders = [model.encoder_name for model in population.models]
    if len(set(encoders)) < len(encoders):
        raise ValueError(f"two architectures have the same encoder: {', '.join(encoders)}")
    if population.rad_size < 2:
        raise ValueError(f"the RAD must have at least 2 images; got {population.rad_size}")
    return population


def build_hetero_ssfl(
    task: Task, hyperparameters: HeteroSSFLHyperparameters | None = None
) -> HeterogeneousClients:
    """Builds the computations of Hetero-SSFL for each architecture, and the aggregation.

    Raises:
      ValueError: If the population is missing, or its models or RAD cannot be trained with.
    """
    hyperparameters = hyperparameters or HeteroSSFLHyperparameters()
    population = _checked(task.population)
    aggregate = build_aggregate(population, hyperparameters)
    architectures = tuple(
        _build_architecture(
            task._replace(model=model),
            RADEncoder(model, hyperparameters, population.rad_size),
            aggregate.type_signature.result,
        )
        for model in population.models
    )
    return HeterogeneousClients(
        architectures,
        np.array(population.model_of_client, np.int64),
        aggregate,
        downloads=architectures[0].downloads,
        uploads=max((a.uploads for a in architectures), key=message_sizes.total_bytes),
    )
