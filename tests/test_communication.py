"""Bytes from types, against products written out."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_ssl import communication


def test_nested_types():
    nested = tff.types.to_type({"a": (np.float32, [3, 5]), "b": [np.int64, (np.uint8, [7])]})
    assert communication.type_bytes(nested) == 4 * 15 + 8 + 7
    assert communication.total_bytes([nested, tff.types.to_type(np.float32)]) == 75 + 4


@pytest.mark.parametrize("unknown", [(np.float32, [None, 2]), np.str_])
def test_types_without_a_size_are_refused(unknown):
    with pytest.raises(ValueError, match="no fixed size"):
        communication.type_bytes(tff.types.to_type(unknown))
