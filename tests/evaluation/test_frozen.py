"""Changes of an encoder are detected."""

import numpy as np
import pytest

from tff_ssl.evaluation import frozen
from tff_ssl.models.dual_encoder import Weights


def test_a_changed_encoder_is_an_error():
    def weights(kernel=1.0, moving_mean=0.0):
        return Weights((np.zeros(3), np.array([1, kernel])), (np.array([moving_mean]),))

    frozen.check_unchanged(weights(), weights())
    for after in (weights(kernel=1.0001), weights(moving_mean=1e-7)):
        with pytest.raises(RuntimeError, match="changed"):
            frozen.check_unchanged(weights(), after)
