"""Networks of clients: shapes, connectedness, files, departures and pictures."""

from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_ssl.decentralized import plots, topology
from tff_ssl.errors import ConfigurationError


def links(graph):
    return sorted(tuple(sorted(edge)) for edge in graph.edges)


@settings(max_examples=40, deadline=None)
@given(num_clients=st.integers(1, 30), connectivity=st.floats(0, 1), seed=st.integers(0, 10_000))
def test_a_random_network_is_connected_and_given_by_its_seed(num_clients, connectivity, seed):
    graph = topology.erdos_renyi(num_clients, connectivity, seed)
    assert sorted(graph) == list(range(num_clients))
    assert nx.is_connected(graph)
    assert links(graph) == links(topology.erdos_renyi(num_clients, connectivity, seed))


def test_random_networks_have_the_connectivity():
    counts = [topology.erdos_renyi(100, 0.15, seed).number_of_edges() for seed in range(30)]
    # 4950 pairs have 742.5 links on average. The standard deviation is 25 for one network, and 4.6
    # for the mean of 30 networks.
    assert abs(np.mean(counts) - 742.5) < 4 * 4.6
    assert len(set(counts)) > 10
    assert topology.erdos_renyi(9, 1.0, 0).number_of_edges() == 36


def test_a_repair_adds_one_link_for_each_component_too_many():
    # Without links, 8 clients are 8 components: the repaired network is a tree.
    assert topology.erdos_renyi(8, 0.0, 1).number_of_edges() == 7
    assert links(topology.erdos_renyi(8, 0.0, 1)) != links(topology.erdos_renyi(8, 0.0, 2))


def test_what_is_connected_anyway_is_not_repaired():
    refused = 0
    for seed in range(40):
        try:
            graph = topology.erdos_renyi(20, 0.15, seed, "refuse")
        except ConfigurationError:
            refused += 1
            continue
        assert links(graph) == links(topology.erdos_renyi(20, 0.15, seed))
    # Each of 20 clients is alone with probability 0.85^19 = 0.046; 0.4 of the draws are connected.
    assert 10 < refused < 38


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0.5, 0), "--num_clients must be at least 1"),
        ((5, 1.5, 0), "--connectivity must be from 0 to 1, not 1.5"),
        ((5, float("nan"), 0), "--connectivity"),
        ((5, 0.5, -1), "--seed must not be negative"),
        ((5, 0.5, 0, "ignore"), "--unconnected must be one of repair, refuse"),
        ((5, 0.0, 7, "refuse"), "--seed=7 gives a network of 5 components"),
    ],
)
def test_impossible_random_networks_are_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        topology.erdos_renyi(*arguments)


def test_fixed_networks():
    assert links(topology.cycle(4)) == [(0, 1), (0, 3), (1, 2), (2, 3)]
    assert links(topology.tree(6)) == [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)]
    assert links(topology.star(4)) == [(0, 1), (0, 2), (0, 3)]
    assert links(topology.complete(3)) == [(0, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize("name", ["cycle", "tree", "star", "complete", "erdos_renyi"])
@pytest.mark.parametrize("num_clients", [1, 2, 3, 17])
def test_networks_of_any_size_are_connected_without_self_loops(name, num_clients):
    graph = topology.make(name, num_clients)
    assert sorted(graph) == list(range(num_clients))
    assert nx.is_connected(graph)
    assert nx.number_of_selfloops(graph) == 0
    with pytest.raises(nx.NetworkXError, match="Frozen"):
        graph.add_edge(0, num_clients)


def test_make_refuses_what_it_does_not_know():
    with pytest.raises(ConfigurationError, match="--topology must be one of erdos_renyi, cycle"):
        topology.make("ring", 4)
    with pytest.raises(ConfigurationError, match="needs --edge_list"):
        topology.make("edge_list", 4)


def test_an_edge_list_is_read(tmp_path):
    path = tmp_path / "home.txt"
    path.write_text("# a smart home\n0 1\n\n1,2   # kitchen\n 3, 2\n1 0\n")
    graph = topology.make("edge_list", 4, edge_list=path)
    assert links(graph) == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0 1\n1 4\n", "net.txt, line 2: unknown client 4; clients are 0 to 3"),
        ("0 1\n\n# x\n2 2\n", "net.txt, line 4: client 2 is linked to itself"),
        ("0 1\n2 3\n", "net.txt: the network is not connected: no route from client 0 to client 2"),
        ("0 1 2\n", "net.txt, line 1: give two client numbers, not '0 1 2'"),
        ("0 one\n", "net.txt, line 1: give two client numbers, not '0 one'"),
        ("0 -1\n", "net.txt, line 1: give two client numbers"),
        ("0 ²\n", "net.txt, line 1: give two client numbers"),
        ("", "net.txt: the network is not connected"),
        (b"\xff\xfe\x00", "net.txt: cannot be read"),
    ],
)
def test_a_bad_edge_list_is_refused_with_file_and_line(tmp_path, content, message):
    path = tmp_path / "net.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigurationError, match=message):
        topology.from_edge_list(path, 4)


def test_an_edge_list_that_is_not_there_or_no_file_is_refused(tmp_path):
    for path in (tmp_path / "nowhere.txt", tmp_path):
        with pytest.raises(ConfigurationError, match=f"{path}: cannot be read"):
            topology.from_edge_list(path, 4)


def test_departures_give_new_networks():
    whole = topology.cycle(6)
    cut = topology.without_link(whole, 5, 0)
    left = topology.without_client(cut, 2)
    assert links(whole) == links(topology.cycle(6))
    assert links(cut) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    assert topology.components(left) == [(0, 1), (3, 4, 5)]
    assert topology.neighbours(left, 4) == (3, 5)
    with pytest.raises(ValueError, match="client 2 is not in the network"):
        topology.without_client(left, 2)
    with pytest.raises(ValueError, match="clients 0 and 5 are not linked"):
        topology.without_link(cut, 0, 5)


@pytest.mark.slow
def test_the_picture_shows_the_route_also_where_clients_have_left(tmp_path):
    from matplotlib.image import imread

    whole = topology.erdos_renyi(12, 0.3, 0)
    positions = plots.layout(whole)
    route = [next(iter(whole))]
    for _ in range(6):
        route.append(topology.neighbours(whole, route[-1])[0])
    left = topology.without_client(whole, route[1])
    pictures = []
    for number, (graph, way) in enumerate([(whole, []), (whole, route), (left, route)]):
        path = tmp_path / f"{number}.png"
        plots.draw_route(graph, path, "a network", way, positions)
        pictures.append(imread(path))
    # Arrows and visited clients are coloured; links and other clients are grey. The colour bar of
    # the steps is in all pictures.
    coloured = [(np.ptp(picture[..., :3], axis=-1) > 0.2).sum() for picture in pictures]
    assert coloured[0] + 1000 < coloured[2] < coloured[1]


class Drawn(NamedTuple):
    scatters: list
    arrows: list


@pytest.fixture
def drawn(monkeypatch):
    """The points and options of all scatter plots, and the ends of all arrows."""
    from matplotlib.axes import Axes

    scatters, arrows = [], []
    scatter, annotate = Axes.scatter, Axes.annotate

    def record(self, x, y, **options):
        scatters.append(((list(x), list(y)), options))
        return scatter(self, x, y, **options)

    def record_arrow(self, text, xy, **options):
        arrows.extend([xy] if "arrowprops" in options else [])
        return annotate(self, text, xy, **options)

    monkeypatch.setattr(Axes, "scatter", record)
    monkeypatch.setattr(Axes, "annotate", record_arrow)
    return Drawn(scatters, arrows)


def test_the_picture_of_the_network_shows_volumes_and_ranks(tmp_path, drawn):
    clients = plots.Clients((50, 200, 100), (1, 10, 4))
    left = topology.without_client(topology.complete(3), 0)
    for number, graph in enumerate((topology.complete(3), left)):
        plots.draw_network(graph, tmp_path / f"{number}.png", "a network", clients)
    whole, *legend, two = (options for _, options in drawn.scatters[:5])
    # Areas are in proportion to volumes, and colours to ranks, from the slowest to the fastest.
    np.testing.assert_allclose(np.array(whole["s"]) / whole["s"][0], [1, 4, 2])
    assert whole["c"] == [1, 10, 4]
    assert (whole["vmin"], whole["vmax"]) == (1, 10)
    assert [options["label"] for options in legend] == ["50", "100", "200"]
    np.testing.assert_allclose([options["s"] for options in legend], np.sort(whole["s"]))
    assert two["c"] == [10, 4]


@pytest.mark.slow
@pytest.mark.parametrize(("num_clients", "arrows"), [(10, 3), (100, 0)])
def test_the_steps_of_a_route_are_rows_in_the_order_of_the_first_visit(
    tmp_path, drawn, num_clients, arrows
):
    graph = topology.complete(num_clients)
    plots.draw_route(graph, tmp_path / "route.png", "a route", [7, 3, 3, 7, 5])
    assert drawn.scatters[-1][0] == ([1, 2, 3, 4, 5], [0, 1, 1, 0, 2])
    assert len(drawn.arrows) == arrows  # From 7 to 3, from 3 to 7, and from 7 to 5.


def test_visits_of_all_models_against_volume_and_rank(tmp_path, drawn):
    clients = plots.Clients((30, 10, 20), (4, 1, 9))
    graph = topology.complete(3)
    routes = [[0, 1, 0], [0, 0, 1]]
    names = plots.draw_run(graph, graph, routes, tmp_path, "a run", clients)
    assert [points for points, _ in drawn.scatters[-2:]] == [
        ([30, 10, 20], [4, 2, 0]),
        ([4, 1, 9], [4, 2, 0]),
    ]
    assert names == ["network.png", "route_0.png", "route_1.png", "visits.png"]
    assert sorted(names) == sorted(path.name for path in tmp_path.iterdir())
    assert plots.draw_run(graph, graph, (), tmp_path, "gossip", clients) == ["network.png"]


def test_layouts_are_the_same_in_every_call_and_exist_for_torn_networks():
    torn = topology.without_client(topology.star(5), 0)
    for graph in (topology.cycle(7), torn):
        first, second = plots.layout(graph), plots.layout(graph)
        assert set(first) == set(graph)
        assert all(np.array_equal(first[k], second[k]) for k in graph)
