"""The masked autoencoder's loss (He et al. 2021, section 3, "Reconstruction target")."""

import tensorflow as tf

# Added to a patch's variance, as in the authors' code, so that a patch of one colour has target 0.
VARIANCE_EPSILON = 1e-6


def masked_error(
    predicted: tf.Tensor, patches: tf.Tensor, visible: tf.Tensor, normalize: bool
) -> tf.Tensor:
    """Mean squared error of each example over its hidden patches, float32 [n].

    Patches are float32 [n, patches, values], and the indices of visible ones int32 [n, v] with v <
    patches. With `normalize`, the target is each patch with mean 0 and deviation 1. The deviation
    divides by the number of values, where the authors' code divides by one less.
    """
    target = normalize_patches(patches) if normalize else patches
    error = tf.reduce_mean(tf.math.squared_difference(predicted, target), 2)
    hidden = 1.0 - tf.reduce_sum(tf.one_hot(visible, patches.shape[1]), 1)
    return tf.reduce_sum(hidden * error, 1) / tf.reduce_sum(hidden, 1)


def normalize_patches(patches: tf.Tensor) -> tf.Tensor:
    """Subtracts each patch's mean and divides by its standard deviation; same shape."""
    mean, variance = tf.nn.moments(patches, 2, keepdims=True)
    return (patches - mean) * tf.math.rsqrt(variance + VARIANCE_EPSILON)
