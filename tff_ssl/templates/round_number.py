"""The round number that the server counts."""

import numpy as np
import tensorflow_federated as tff


@tff.tensorflow.computation(np.int64)
def next_round_number(round_number):
    return round_number + 1
