"""The linear probe of the Hetero-SSFL paper: softmax regression on frozen features by Adam.

Makhija, Ho & Ghosh, "Federated Self-supervised Learning for Heterogeneous Clients", 2022, section
5.1: 100 epochs of Adam at a rate of 0.003 with batches of 512, on the frozen encoder. The paper's
"linear fully connected layer with 1000 neurons" is taken to be a layer with an output per class.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow_federated as tff

from tff_ssl import optimizers
from tff_ssl.evaluation import labels as labelling
from tff_ssl.evaluation.classifier_training import trained_scores
from tff_ssl.evaluation.scaling import ProbeSets


@dataclasses.dataclass(frozen=True)
class AdamProbeConfig:
    """Settings of the training, with the paper's values."""

    epochs: int = 100  #: Number of passes over the labelled examples.
    batch_size: int = 512  #: Number of examples per step; all of them, if there are fewer.
    learning_rate: float = 0.003  #: Constant learning rate.

    def build_optimizer(self) -> tff.learning.optimizers.Optimizer:
        return optimizers.build_optimizer("adam", self.learning_rate, 0.9, 0.0)


def adam_probe(
    sets: ProbeSets, seed: int | Sequence[int], config: AdamProbeConfig | None = None
) -> labelling.Scores:
    """Scores the paper's linear classifier after its last step; no step is selected on test data.

    The seed is that of the order of the examples. The paper mentions neither scaling nor initial
    weights; here they are zero, since the problem is convex.
    """
    config = config or AdamProbeConfig()
    count, size = sets.train_features.shape
    steps = -(-config.epochs * count // min(config.batch_size, count))
    examples = labelling.permuted_batches(
        np.arange(count), steps, config.batch_size, np.random.default_rng(seed)
    )
    kernel = np.zeros((size, len(np.unique(sets.train_labels))))
    variants = sets.train_features[np.newaxis]
    return trained_scores(sets, config, kernel, variants, examples, np.zeros_like(examples))
