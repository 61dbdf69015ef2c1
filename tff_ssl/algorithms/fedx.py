"""FedX: contrastive and relational losses on a client, by itself and against the global model.

Han et al., "FedX: Unsupervised Federated Learning with Cross Knowledge Distillation", ECCV 2022,
arXiv:2207.09158; and the authors' code (github.com/Sungwon-Han/FEDX), the source of the SimCLR form
here. A client trains the broadcast model w; a frozen copy of w is its teacher. A batch has two
views x1, x2 of each image, and one view x3 of as many images, drawn from the same client once more.
With encoder f, projector g and predictor h, z = g(f(x)), p = h(z), and the teacher's Z = g(f(x)),
the loss of a client is

  L = NT(z1, z2) + lambda_r REL(z1, z2; z3) + lambda_g (NT(p1, Z2) + lambda_r REL(p1, p2; Z3)),

where NT is SimCLR's contrastive loss (`losses.nt_xent`) and REL the relational loss
(`losses.relational`). All terms have weight 1 in the paper. The server averages f, g and h, as
FedAvg does.

Choices and deviations:
- Batch norm, which the authors use, is rejected as in FedAvg. With group norm and a relational
  weight of 1, encodings may collapse: REL is zero where all images are alike.
- Batches of an epoch differ in size by at most one; the authors drop the last, incomplete one.
- The predictor must be as wide as the projector, since NT(p1, Z2) compares their outputs.
- `divergence=js` has the order of the paper's Jensen-Shannon divergence.
"""

import dataclasses
import functools
from typing import Any

import tensorflow as tf

from tff_ssl.algorithms import fedavg
from tff_ssl.bounds import bounded, one_of
from tff_ssl.kinds.stateless.algorithm import StatelessClients
from tff_ssl.losses.nt_xent import nt_xent
from tff_ssl.losses.relational import DIVERGENCES, relational
from tff_ssl.objectives.registry import Batch, Evaluated, Objective
from tff_ssl.optimizers import ServerOptimizerHyperparameters
from tff_ssl.templates import group_training
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.local_training import build_local_training
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import one_tower


@dataclasses.dataclass(frozen=True)
class FedXHyperparameters(ClientHyperparameters, ServerOptimizerHyperparameters):
    """Hyperparameters with the values of the authors' code; others are inherited.

    Attributes:
      relational_weight: Weight lambda_r of the relational losses.
      global_weight: Weight lambda_g of the losses against the teacher.
      temperature_local: Temperature t of the mixture in the client's own relational loss.
      temperature_global: Temperature t of the mixture in the relational loss against the teacher.
      divergence: Order of the arguments of the relational losses' divergence, `code` or `js`.
    """

    client_learning_rate: float = 0.01
    client_weight_decay: float = 1e-5
    local_epochs: int = 10
    batch_size: int = 64
    min_samples: int = 2
    relational_weight: float = bounded(1.0, at_least=0)
    global_weight: float = bounded(1.0, at_least=0)
    temperature_local: float = bounded(0.1, above=0)
    temperature_global: float = bounded(0.1, above=0)
    divergence: str = one_of("code", DIVERGENCES)


def fedx_losses(
    z: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    p: tuple[tf.Tensor, tf.Tensor],
    teacher: tuple[tf.Tensor, tf.Tensor],
    batch: Batch,
    values: FedXHyperparameters,
) -> tf.Tensor:
    """The loss L of each example, float32 [n]; see the module.

    The projections z1, z2 and z3, the predictions p1 and p2, and the teacher's projections Z2 and
    Z3 are float32 [n, d].
    """
    (z1, z2, z3), (p1, p2), (teacher2, teacher3) = z, p, teacher
    tau, order = values.temperature, values.divergence
    own = nt_xent(z1, z2, batch.segments, tau)
    own += values.relational_weight * relational(z1, z2, z3, tau, values.temperature_local, order)
    distilled = nt_xent(p1, teacher2, batch.segments, tau)
    distilled += values.relational_weight * relational(
        p1, p2, teacher3, tau, values.temperature_global, order
    )
    return own + values.global_weight * distilled


def _evaluate(model, weights, target, batch, values):
    """The objective of local training; the target network is the teacher."""
    outputs = model.apply(weights, tf.concat([batch.x1, batch.x2, batch.x3], 0), training=True)
    h, z, p = (tuple(tf.split(output, 3)) for output in (outputs.h, outputs.z, outputs.p))
    seen = tf.concat([batch.x2, batch.x3], 0)
    teacher = tf.stop_gradient(model.target_model.apply(target, seen, training=False).z)
    losses = fedx_losses(z, p[:2], tuple(tf.split(teacher, 2)), batch, values)
    return Evaluated(losses, z[0], p[:2], outputs.non_trainable, h[:2])


def build_fedx(
    task: Task, hyperparameters: FedXHyperparameters | None = None, **arguments: Any
) -> StatelessClients:
    """Builds FedX's round; further arguments are those of `fedavg.compose_fedavg`.

    Raises:
      ValueError: If the model has two towers, batch norm, or no predictor as wide as its projector.
    """
    values = hyperparameters or FedXHyperparameters()
    model = one_tower(task.model)
    if not model.projector or model.predictor[-1:] != model.projector[-1:]:
        raise ValueError("fedx needs a --projector and a --predictor whose last widths are equal")
    training = dataclasses.replace(
        build_local_training(task, values),
        objective=Objective("contrastive and relational", _evaluate, others=True),
    )
    # The teacher starts as the broadcast model on each client; local training does not change it.
    teacher = fedavg.TargetNetwork(model, on_server=False, on_client=True)
    train = functools.partial(group_training.many_steps, training)
    return fedavg.compose_fedavg(task, train, teacher, values, **arguments)
