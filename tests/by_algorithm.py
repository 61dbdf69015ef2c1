"""Parameters of tests that are the same for all algorithms."""

from collections.abc import Collection, Iterable, Iterator

import pytest

# Two stages, one stage, memory, collected rows, no server, heterogeneous clients.
ONE_OF_EACH_KIND = ("dcco", "fedavg", "fedema", "orchestra", "denav", "hetero_ssfl")


def by_algorithm(names: Iterable[str], default: Collection[str] = ONE_OF_EACH_KIND) -> Iterator:
    """Parameters of these algorithms; those that are not in `default` are `long`.

    The tests of an algorithm run in one process, which traces it once.
    """
    for name in names:
        marks = [pytest.mark.xdist_group(name)]
        yield pytest.param(name, marks=marks + [pytest.mark.long] * (name not in default))
