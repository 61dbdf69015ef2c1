"""Events in a network: clients leave and links are cut before given rounds."""

import pytest

from tff_ssl.decentralized import topology
from tff_ssl.decentralized.events import Cut, Leave, with_events
from tff_ssl.errors import ConfigurationError


def test_an_event_holds_from_its_round_on():
    square = topology.cycle(4)
    network = with_events(square, [Cut(5, 1, 2), Leave(3, 0)], rounds=6)
    assert [len(network(r)) for r in range(1, 7)] == [4, 4, 3, 3, 3, 3]
    assert [network(r).has_edge(1, 2) for r in range(1, 7)] == [True] * 4 + [False] * 2
    assert network(3).has_edge(2, 3)
    assert square.number_of_edges() == 4


def test_without_events_nothing_happens_and_the_first_round_may_have_one():
    assert with_events(topology.star(3), [], 5)(5).number_of_edges() == 2
    assert 0 not in with_events(topology.star(3), [Leave(1, 0)], 5)(1)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([Leave(0, 1)], "--leave=0:1: rounds are 1 to 5"),
        ([Leave(6, 1)], "--leave=6:1: rounds are 1 to 5"),
        ([Leave(2, 9)], "--leave=2:9: client 9 is not in the network"),
        ([Leave(2, 1), Leave(3, 1)], "--leave=3:1: client 1 is not in the network"),
        ([Cut(2, 1, 2)], "--cut=2:1-2: clients 1 and 2 are not linked"),
        ([Leave(2, 0), Cut(3, 0, 1)], "--cut=3:0-1: clients 0 and 1 are not linked"),
        ([Leave(2, 0), Leave(2, 1), Leave(2, 2)], "--leave=2:2: no client would be left"),
    ],
)
def test_what_cannot_happen_is_refused(events, message):
    with pytest.raises(ConfigurationError, match=message):
        with_events(topology.star(3), events, 5)
