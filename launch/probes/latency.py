"""The time that a call takes."""

import statistics
import timeit
from collections.abc import Callable
from typing import Any


def median_milliseconds(
    function: Callable[[Any], Any], argument: Any, calls: int, warm_up: int = 0
) -> float:
    """The median time of some calls of a function, after others that are not timed."""
    timer = timeit.Timer(lambda: function(argument))
    timer.timeit(warm_up)
    return 1000 * statistics.median(timer.repeat(calls, number=1))
