"""Makes clients check the bounds of secure sums; importing this module mends TFF 0.87.

TFF's check on the clients is in a function that is no `tf.function`, as that of the server is. The
check is therefore lost, with an error message for each tensor: "Object was never used".
"""

import tensorflow as tf
from tensorflow_federated.python.aggregators import primitives

primitives._client_tensor_shift_for_secure_sum = tf.function(
    primitives._client_tensor_shift_for_secure_sum, autograph=False
)
