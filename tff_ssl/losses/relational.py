"""The relational loss of FedX (Han et al., ECCV 2022, arXiv:2207.09158).

Two views of an image, a and b, should be related alike to other images A. With s the cosines, t and
T temperatures, and q_a = softmax(s(a, A) / T),

  m = (softmax(s(a, A) / t) + softmax(s(b, A) / t)) / 2
  loss = (KL(m || q_a) + KL(m || q_b)) / 2,

as in the authors' code (github.com/Sungwon-Han/FEDX). The paper calls it the Jensen-Shannon
divergence, whose terms are KL(q_a || m) and KL(q_b || m).
"""

import math

import tensorflow as tf

DIVERGENCES = ("code", "js")


def relational(
    a: tf.Tensor,
    b: tf.Tensor,
    others: tf.Tensor,
    temperature: float,
    mixture_temperature: float,
    divergence: str = "code",
) -> tf.Tensor:
    """The loss of each example, float32 [n], not negative, from encodings [n, d] and [m, d].

    T is `temperature`, t is `mixture_temperature`, and the divergence is `code` for KL(m || q) or
    `js` for KL(q || m).
    """
    a, b, others = (tf.math.l2_normalize(x, 1) for x in (a, b, others))
    cosines = [tf.matmul(x, others, transpose_b=True) for x in (a, b)]
    log_q = [tf.nn.log_softmax(s / temperature) for s in cosines]
    parts = [tf.nn.log_softmax(s / mixture_temperature) for s in cosines]
    log_m = tf.reduce_logsumexp(tf.stack(parts), 0) - math.log(2.0)
    if divergence == "code":
        # The two terms have m in common: KL(m || q_a) + KL(m || q_b) is twice this divergence.
        return _divergence(log_m, (log_q[0] + log_q[1]) / 2)
    return (_divergence(log_q[0], log_m) + _divergence(log_q[1], log_m)) / 2


def _divergence(log_p: tf.Tensor, log_q: tf.Tensor) -> tf.Tensor:
    """KL(p || q) of each row, from logarithms, float32 [n]."""
    return tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), 1)
