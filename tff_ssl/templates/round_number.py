"""The round number that the server counts."""

import numpy as np
import tensorflow_federated as tff


@tff.tensorflow.computation(np.int64)
def next_round_number(round_number):
    """The number of the round after `round_number`, int64."""
    return round_number + 1
