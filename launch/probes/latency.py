"""The time that a call takes."""

import statistics
import time
from collections.abc import Callable
from typing import Any


def median_milliseconds(
    function: Callable[[Any], Any], argument: Any, calls: int, warm_up: int = 0
) -> float:
    """The median time of some calls of a function, after others that are not timed."""
    for _ in range(warm_up):
        function(argument)
    seconds = []
    for _ in range(calls):
        start = time.perf_counter()
        function(argument)
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)
