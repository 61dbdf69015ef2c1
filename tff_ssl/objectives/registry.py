"""The objectives that a client or a centralized step minimizes on a batch, by name.

An objective gives a loss for each example; their mean over a client's examples is the client's
loss. A batch may therefore hold several clients (a folded group): the loss of an example depends on
the examples of its own client only.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tff_ssl.losses import cco, cosine, nt_xent, reconstruction, spectral, vicreg
from tff_ssl.losses.segments import Segments
from tff_ssl.models import vit
from tff_ssl.models.dual_encoder import Outputs
from tff_ssl.models.two_towers import Model
from tff_ssl.objectives.hyperparameters import ObjectiveHyperparameters
from tff_ssl.views import patch_masks


class Batch(NamedTuple):
    """The input of an objective."""

    x1: tf.Tensor  #: First views, float32 [n, h, w, c].
    x2: tf.Tensor  #: Second views, float32 [n, h, w, c].
    segments: Segments  #: Clients of the examples.
    labels: tf.Tensor | None  #: Class labels, int32 [n]; None unless the objective is supervised.
    #: Ids of the examples, int64 [n]; they, the pass number and the seed determine the masks of
    #: `mae`.
    example_ids: tf.Tensor | None = None
    pass_number: tf.Tensor | None = None  #: Number of the pass over the examples, int64 scalar.
    seed: int = 0  #: Seed of the masks.
    #: Images of the examples without augmentation, uint8 [n, h, w, c].
    images: tf.Tensor | None = None
    #: First views of further examples drawn from the same client, or third views of the examples,
    #: float32 [n, h, w, c]; None unless the objective needs them.
    x3: tf.Tensor | None = None
    #: Positions of the examples among those of their client, int32 [n]; None outside local steps.
    positions: tf.Tensor | None = None


class Evaluated(NamedTuple):
    """The value of an objective on a batch."""

    losses: tf.Tensor  #: Losses of the examples, float32 [n].
    #: Outputs for the first views that enter the loss, before it scales them, float32 [n, d]; their
    #: spread shows collapse.
    z: tf.Tensor
    #: Predictions p of the first and of the second views, float32 [n, d]; z or h without a
    #: predictor or projector.
    predictions: tuple[tf.Tensor, tf.Tensor]
    non_trainable: tuple[tf.Tensor, ...]  #: New values of the model's non-trainable weights.
    #: Encodings of the first and of the second views, float32 [n, features]; equal for objectives
    #: that see first views only.
    h: tuple[tf.Tensor, tf.Tensor]
    noted: Any = ()  #: Further values of the batch, for the memory of local training.

    @classmethod
    def of_pair(cls, losses: tf.Tensor, first: Outputs, second: Outputs) -> "Evaluated":
        """From the model's outputs for both views."""
        h, predictions = (first.h, second.h), (first.p, second.p)
        return cls(losses, first.z, predictions, second.non_trainable, h)


@dataclasses.dataclass(frozen=True)
class Objective:
    """An entry of `OBJECTIVES`."""

    summary: str  #: Description of the objective in one line.
    #: (model, weights, target weights, batch, hyperparameters) -> `Evaluated`.
    evaluate: Callable[[Model, Any, Any, Batch, ObjectiveHyperparameters], Evaluated]
    #: Smallest number of examples of a client or batch for which the loss is defined.
    min_samples: int = 1
    #: Smallest number of examples of a client with which training is known to work; smaller clients
    #: are rejected unless the user allows them.
    stable_samples: int = 1
    predictor: bool = False  #: Whether the model needs a predictor.
    target: bool = False  #: Whether there is a target network.
    supervised: bool = False  #: Whether labels are needed, and a classifier instead of heads.
    decoder: bool = False  #: Whether the model needs a decoder instead of heads.
    #: Whether `Batch.x3` must hold other examples of the client in local training.
    others: bool = False
    #: Whether `Batch.x3` must hold third views of the examples in local training.
    third_view: bool = False
    #: Name of the only algorithm that trains with the objective; empty if all can.
    algorithm: str = ""
    #: Names of the hyperparameters that not all objectives use.
    hyperparameters: tuple[str, ...] = ()


def _on_projections(
    loss: Callable[[tf.Tensor, tf.Tensor, Segments, ObjectiveHyperparameters], tf.Tensor],
):
    """Builds `Objective.evaluate` from a loss of the projections (z1, z2)."""

    def evaluate(model, weights, target, batch, hyperparameters):
        first, second = model.apply_pair(weights, batch.x1, batch.x2, training=True)
        losses = loss(first.z, second.z, batch.segments, hyperparameters)
        return Evaluated.of_pair(losses, first, second)

    return evaluate


def _nt_xent(z1, z2, segments, hyperparameters):
    return nt_xent.nt_xent(z1, z2, segments, hyperparameters.temperature)


def _cco(z1, z2, segments, hyperparameters):
    per_client = cco.cco_within_clients(z1, z2, segments, hyperparameters.lambda_).loss
    return tf.gather(per_client, segments.ids)


def _vicreg(z1, z2, segments, hyperparameters):
    weights = hyperparameters.vicreg_weights
    per_client = vicreg.vicreg_within_clients(z1, z2, segments, weights).loss
    return tf.gather(per_client, segments.ids)


def _spectral(z1, z2, segments, hyperparameters):
    f, g = (spectral.in_ball(z, hyperparameters.squared_radius) for z in (z1, z2))
    return tf.gather(spectral.spectral_within_clients(f, g, segments).loss, segments.ids)


def _byol(model, weights, target, batch, hyperparameters):
    first, second = model.apply_pair(weights, batch.x1, batch.x2, training=True)
    # In training mode as in the paper: with batch norm, the target uses the batch's statistics.
    target1, target2 = model.target_model.apply_pair(target, batch.x1, batch.x2, training=True)
    if hyperparameters.byol_direction == "one":
        losses = cosine.byol_one_direction(first.p, target2.z)
    else:
        losses = cosine.byol(first.p, second.p, target1.z, target2.z)
    return Evaluated.of_pair(losses, first, second)


def _simsiam(model, weights, target, batch, hyperparameters):
    first, second = model.apply_pair(weights, batch.x1, batch.x2, training=True)
    losses = cosine.simsiam(first.p, second.p, first.z, second.z)
    return Evaluated.of_pair(losses, first, second)


def _supervised(model, weights, target, batch, hyperparameters):
    outputs = model.apply(weights, batch.x1, training=True)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.labels, outputs.logits)
    both = (outputs.h, outputs.h)
    return Evaluated(losses, outputs.h, both, outputs.non_trainable, both)


def _mae(model, weights, target, batch, hyperparameters):
    """Uses the first views alone; a vision transformer has no batch norm whose averages move."""
    patches = vit.patches(batch.x1)
    visible = patch_masks.visible_patches(
        batch.example_ids, patches.shape[1], hyperparameters.mask_ratio, seed=batch.seed,
        round_number=batch.pass_number,
    )  # fmt: skip
    outputs = model.reconstruct(weights, batch.x1, visible)
    losses = reconstruction.masked_error(
        outputs.patches, patches, visible, hyperparameters.normalize_patches
    )
    both = (outputs.h, outputs.h)
    return Evaluated(losses, outputs.h, both, (), both)


def _of_an_algorithm(model, weights, target, batch, hyperparameters):
    raise ValueError("the algorithm of this objective evaluates it, with values of its server")


OBJECTIVES = {
    "cco": Objective(
        "cross correlation optimization (Barlow Twins)", _on_projections(_cco), min_samples=2,
        stable_samples=8,  # The paper's Table 1: with 4 samples a client, training failed.
        hyperparameters=("lambda_",),
    ),
    "vicreg": Objective(
        "variance, invariance, covariance", _on_projections(_vicreg), min_samples=2,
        stable_samples=2,
        hyperparameters=("invariance_weight", "variance_weight", "covariance_weight"),
    ),
    "spectral": Objective(
        "spectral contrastive, from second moments", _on_projections(_spectral), stable_samples=2,
        hyperparameters=("squared_radius",),
    ),
    "nt_xent": Objective(
        "contrastive, as in SimCLR", _on_projections(_nt_xent), min_samples=2, stable_samples=2,
        hyperparameters=("temperature",),
    ),
    "byol": Objective(
        "prediction of a moving average's projections", _byol, predictor=True, target=True,
        hyperparameters=("byol_direction", "target_momentum"),
    ),
    "simsiam": Objective("prediction with stop-gradient", _simsiam, predictor=True),
    "supervised": Objective(
        "cross-entropy of a linear classifier; needs labels", _supervised, supervised=True
    ),
    "mae": Objective(
        "masked autoencoder: prediction of hidden patches; needs a ViT encoder", _mae,
        decoder=True, hyperparameters=("mask_ratio", "normalize_patches"),
    ),
    "orchestra": Objective(
        "assignment to clusters of all clients; only for the algorithm `orchestra`",
        _of_an_algorithm, target=True, algorithm="orchestra",
        hyperparameters=("temperature", "target_momentum"),
    ),
}  # fmt: skip
# Names of the objectives that do not belong to one algorithm.
GENERAL_OBJECTIVES = tuple(name for name, entry in OBJECTIVES.items() if not entry.algorithm)


def unused_hyperparameters(objective: str) -> frozenset[str]:
    """Names of the hyperparameters that only other objectives use."""
    names = {name for entry in OBJECTIVES.values() for name in entry.hyperparameters}
    return frozenset(names - set(OBJECTIVES[objective].hyperparameters))


def moved_target(target: Any, online: Any, momentum: float) -> tuple[tf.Tensor, ...]:
    """momentum * target + (1 - momentum) * online, for the weights of a target network."""
    # A target network has no predictor, whose weights come last.
    pairs = zip(target, tuple(online)[: len(target)], strict=True)
    return tuple(momentum * t + (1 - momentum) * w for t, w in pairs)
