"""The examples of the clients of one call, and their division into batches."""

from typing import Any

import tensorflow as tf

from tff_ssl.losses import segments as segments_lib


def clients_of(batch: Any) -> segments_lib.Segments:
    """The clients of a batch; examples without a field `client` belong to one client."""
    if "client" in batch:
        return segments_lib.by_client(batch["client"])
    return segments_lib.one(tf.shape(batch["example_id"])[0])


def starts_of_whole_clients(sizes: tf.Tensor, batch_size: int) -> tf.Tensor:
    """Positions at which micro-batches start, followed by the number of examples: int32 [m + 1].

    A client goes to the micro-batch of its first example, so that a micro-batch has fewer than
    batch_size + N_k examples.
    """
    sizes = tf.cast(sizes, tf.int32)
    starts = tf.cumsum(sizes, exclusive=True)
    batches, first = tf.unique(starts // batch_size)
    # There may be no client at all: the maximum of `first` would then be the smallest integer.
    firsts = tf.math.unsorted_segment_min(starts, first, tf.size(batches))
    return tf.concat([firsts, [tf.reduce_sum(sizes)]], 0)


def shuffled(examples: Any, size: tf.Tensor, pass_number: tf.Tensor, seed: int) -> tf.Tensor:
    """Random order of a client's examples, a function of the seed, the pass and the example ids."""
    key = tf.stack([tf.cast(seed, tf.int64), pass_number])
    draws = tf.random.stateless_uniform([size], key + examples["example_id"][:1])
    return tf.argsort(draws)
