"""The CIFAR-10 benchmark of pfl-research, by TFF's own FedAvg in this project's runtime.

As published in its `benchmarks/image_classification` (`configs/baseline.yaml`, IID, no privacy):
1000 clients of 50 images, 50 of them in a round, one local epoch in batches of 10 with SGD of rate
0.1, the plain mean on a server of rate 1, and a CNN of two convolutions and two dense layers with
dropout. The images are random here, which does not change the time.
"""

from collections.abc import Generator
from typing import Any

import numpy as np

from launch.benchmarks import programs
from launch.benchmarks.programs import Work

WORK = Work("fedavg", "cross_entropy", 1000, 50, 5, 10, cohort=50)
LEARNING_RATE = 0.1
_CLASSES = 10
_REFERENCE_IMAGES = 10


def labels(count: int, seed: int) -> np.ndarray:
    """Random labels, int64 [count]."""
    return np.random.default_rng(seed + 1).integers(0, _CLASSES, count)


def _inputs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs in [-1, 1], float32 [count, 32, 32, 3], and labels."""
    pixels = programs.images(count, seed).astype(np.float32)
    return pixels / np.float32(127.5) - np.float32(1), labels(count, seed)


def _cnn(seed: int):
    """The CNN: float32 [n, 32, 32, 3] -> logits."""
    import tensorflow as tf

    layers, seeds = tf.keras.layers, iter(range(seed, seed + 4))

    def glorot():
        return tf.keras.initializers.GlorotUniform(next(seeds))

    return tf.keras.Sequential(
        [
            layers.Conv2D(
                32, 3, activation="relu", input_shape=(32, 32, 3), kernel_initializer=glorot()
            ),
            layers.Conv2D(64, 3, activation="relu", kernel_initializer=glorot()),
            layers.MaxPool2D(),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(128, activation="relu", kernel_initializer=glorot()),
            layers.Dropout(0.5),
            layers.Dense(_CLASSES, kernel_initializer=glorot()),
        ]
    )


def rounds(work: Work, seed: int) -> Generator[None, None, None]:
    """Rounds of `tff.learning.algorithms.build_unweighted_fed_avg`."""
    programs.quiet()
    import tensorflow as tf
    import tensorflow_federated as tff

    from tff_ssl.runtime import start

    x, y = _inputs(work.images, seed)
    with tf.device("CPU"):
        clients = [
            tf.data.Dataset.from_tensor_slices(own).batch(work.batch_size)
            for own in zip(
                np.split(x, work.clients), np.split(y, work.clients), strict=True
            )
        ]  # fmt: skip

    def model_fn():
        return tff.learning.models.from_keras_model(
            _cnn(seed),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=clients[0].element_spec,
        )

    process = tff.learning.algorithms.build_unweighted_fed_avg(
        model_fn,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(LEARNING_RATE),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
        # TFF's default copies the weights in every step, which takes another 60 % of the time.
        loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
    )
    random = np.random.default_rng(seed)
    with start():
        state = process.initialize()
        while True:
            cohort = random.choice(work.clients, work.cohort, replace=False)
            state = process.next(state, [clients[client] for client in cohort]).state
            yield


def reference(seed: int, path: str) -> Generator[dict[str, Any], None, None]:
    """Writes the weights and a batch `x`, `y`; yields `write_reference`'s facts without dropout."""
    programs.quiet()
    import tensorflow as tf

    on_device = programs.exact_device()
    x, y = _inputs(_REFERENCE_IMAGES, seed)
    model = _cnn(seed)
    weights = model.trainable_variables
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=False))
        loss = tf.reduce_mean(losses)
    gradient = tape.gradient(loss, weights)
    arrays = [weight.numpy() for weight in weights]
    # PyTorch flattens channels first.
    arrays[4] = arrays[4].reshape(14, 14, 64, -1).transpose(2, 0, 1, 3).reshape(arrays[4].shape)
    yield on_device | programs.write_reference(path, loss, gradient, arrays, x=x, y=y)
