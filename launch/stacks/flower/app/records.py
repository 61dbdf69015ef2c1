"""Named arrays in Flower's messages."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from memories import Arrays


def arrays(record: ArrayRecord) -> Arrays:
    """The arrays of a record by name."""
    return {name: array.numpy() for name, array in record.items()}


def record(values: Mapping[str, Any]) -> ArrayRecord:
    """A record of arrays by name."""
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in values.items()})
