"""The linear probe of the DCCO paper: softmax regression on frozen features, trained with LARS.

Vemulapalli et al., "Federated Training of Dual Encoding Models on Small Non-IID Client Datasets",
2022, Appendix B.
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
class LarsProbeConfig:
    """Settings of the training; hashable, as one graph is built per configuration and shape."""

    steps: int  #: Number of steps; the learning rate decays to zero over them by a cosine.
    batch_size: int  #: Number of examples per step; all of them, if there are fewer.
    learning_rate: float  #: Initial learning rate.
    momentum: float = 0.9  #: Momentum; 0.9 in the paper.
    #: Trust coefficient eta of LARS. The paper gives none; 0.001 is that of You et al.
    trust_coefficient: float = 0.001
    #: Standard deviation of the normal initial weights; biases start at zero. The paper gives none,
    #: and the result depends on it: the steps of LARS are proportional to the norm of the weights.
    #: (From zero weights, a plain gradient step of rate 2.0 or more would determine the length of
    #: all later steps.) 0.01 was chosen on training images, of which some were held out for the
    #: score: with 5000 labels of CIFAR-10 and 256 PCA features, 0.003, 0.01, 0.03, 0.1 and 0.3 gave
    #: 0.373, 0.373, 0.370, 0.360 and 0.344 (logistic regression 0.364); with 64 PCA features 0.362
    #: to 0.364, and 0.360 with 0.3. With 500 labels of CIFAR-10 or the digits and 40 to 256
    #: features, 0.01 is within 0.7 points of the best; 16 features need 0.1 (0.948; 0.01 gives
    #: 0.916).
    initial_stddev: float = 0.01

    def build_optimizer(self) -> tff.learning.optimizers.Optimizer:
        lars = optimizers.build_lars(
            self.learning_rate, self.momentum, trust_coefficient=self.trust_coefficient
        )
        schedule = optimizers.cosine_decay(self.learning_rate, self.steps)
        return tff.learning.optimizers.schedule_learning_rate(lars, schedule)


LARS_PROBES = {
    "5000_labels": LarsProbeConfig(steps=1000, batch_size=512, learning_rate=2.0),
    "500_labels": LarsProbeConfig(steps=400, batch_size=128, learning_rate=2.5),
}


def config_for(num_labels: int) -> LarsProbeConfig:
    """The paper's settings for 5000 labels from 1600 labels on, otherwise those for 500."""
    return LARS_PROBES["5000_labels" if num_labels >= 1600 else "500_labels"]


def lars_probe(
    sets: ProbeSets, seed: int | Sequence[int], config: LarsProbeConfig | None = None
) -> labelling.Scores:
    """Scores the paper's linear classifier after its last step; no step is selected on test data.

    With flipped features, each example of each step is the image or its mirror image with equal
    probability, the paper's only augmentation here. The paper does not mention scaling. The seed is
    that of the initial weights, the order of the examples and the flips; `config` is by default
    `config_for` the number of labelled training examples.
    """
    variants = [sets.train_features]  # The original images, then the mirrored ones.
    if sets.flipped_features is not None:
        variants.append(sets.flipped_features)
    config = config or config_for(len(sets.train_labels))
    rng = np.random.default_rng(seed)
    count, size = sets.train_features.shape
    kernel = rng.normal(0.0, config.initial_stddev, (size, len(np.unique(sets.train_labels))))
    examples = labelling.permuted_batches(np.arange(count), config.steps, config.batch_size, rng)
    example_variants = rng.integers(len(variants), size=examples.shape, dtype=np.int32)
    return trained_scores(sets, config, kernel, np.stack(variants), examples, example_variants)
