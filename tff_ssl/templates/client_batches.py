"""The examples of the clients of one call, and their division into batches."""

from typing import Any

import tensorflow as tf

from tff_ssl.losses import segments as segments_lib
from tff_ssl.views import seeds
from tff_ssl.views.threefry import threefry, to_uint64

_SALT = 2**32 - 1  # Separates these draws from those of views, whose counters end below it.


def clients_of(batch: Any) -> segments_lib.Segments:
    """The clients of a batch; examples without a field `client` belong to one client."""
    if "client" in batch:
        return segments_lib.by_client(batch["client"])
    return segments_lib.one(tf.shape(batch["example_id"])[0])


def drawn_in_round(examples: Any, count: int, round_number: tf.Tensor, seed: int) -> Any:
    """At most `count` examples of each client, drawn without replacement; for use in a graph.

    The draw is a pure function of seed, round and example ids: all computations of a round draw the
    same, however clients are folded. The examples, a struct of tensors [n, ...] of one or several
    clients, stay in their order.
    """
    key = (to_uint64(seeds.current(seed)), to_uint64(examples["example_id"]))
    words, _ = threefry(key, (to_uint64(round_number), to_uint64(_SALT)))
    # The top 62 bits have the same order as signed numbers.
    draws = tf.cast(tf.bitwise.right_shift(words, tf.constant(2, tf.uint64)), tf.int64)
    clients = clients_of(examples)
    by_draw = tf.argsort(draws, stable=True)
    # By client, then by draw.
    order = tf.gather(by_draw, tf.argsort(tf.gather(clients.ids, by_draw), stable=True))
    sizes = tf.cast(clients.sizes, tf.int32)
    starts = tf.gather(tf.cumsum(sizes, exclusive=True), tf.gather(clients.ids, order))
    taken = tf.range(tf.size(order)) - starts < count
    kept = tf.sort(tf.boolean_mask(order, taken))
    return tf.nest.map_structure(lambda t: tf.gather(t, kept), examples)


def starts_of_whole_clients(sizes: tf.Tensor, batch_size: int) -> tf.Tensor:
    """Positions at which micro-batches start, followed by the number of examples: int32 [m + 1].

    A client belongs to the micro-batch of its first example, so that a micro-batch has fewer than
    batch_size + N_k examples.
    """
    sizes = tf.cast(sizes, tf.int32)
    starts = tf.cumsum(sizes, exclusive=True)
    batches, first = tf.unique(starts // batch_size)
    # Without any client, the maximum of `first` would be the smallest integer.
    firsts = tf.math.unsorted_segment_min(starts, first, tf.size(batches))
    return tf.concat([firsts, [tf.reduce_sum(sizes)]], 0)


def shuffled(examples: Any, size: tf.Tensor, pass_number: tf.Tensor, seed: int) -> tf.Tensor:
    """Random order of a client's examples, a function of the seed, the pass and the example ids."""
    key = tf.stack([seeds.current(seed), pass_number])
    draws = tf.random.stateless_uniform([size], key + examples["example_id"][:1])
    return tf.argsort(draws)
