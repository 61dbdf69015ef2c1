"""DeNAV's navigator: cases worked out by hand, and Algorithm 1 line by line."""

import itertools
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_ssl.algorithms.denav import navigator
from tff_ssl.algorithms.denav.navigator import NavigatorHyperparameters
from tff_ssl.algorithms.denav.state_log import NEVER, StateLog, Visits, log_bytes
from tff_ssl.decentralized import simulated_time, topology


def trained(*visits, steps=None):
    """A log with visits (client, L, Z, t) after `steps` steps, by default the last L."""
    visits = tuple(Visits(*visit) for visit in visits)
    return StateLog(0, steps or max(visit.last_step for visit in visits), 0, visits)


def network(*edges):
    return nx.freeze(nx.Graph(edges))


def choices(graph, volumes, log, holder=0, draws=60, **options):
    """The set of clients that are chosen with many seeds, and the last `Choice`."""
    hyperparameters = NavigatorHyperparameters(**options)
    ask = navigator.asking(graph, volumes)
    drawn = [
        navigator.choose_next(holder, log, ask, hyperparameters, np.random.default_rng(seed))
        for seed in range(draws)
    ]
    return {choice.client for choice in drawn}, drawn[-1]


# The state log


def test_the_log_is_updated_as_a_new_one():
    empty = StateLog(model_id=7)
    first = empty.after_training(client=4, step=1, volume=50, time=2.5)
    second = first.after_training(client=1, step=2, volume=30, time=4.0)
    third = second.after_training(client=4, step=5, volume=50, time=3.0)
    assert empty == StateLog(7, 0, 0, ())
    assert third == StateLog(7, 5, 130, (Visits(1, 2, 1, 4.0), Visits(4, 5, 2, 3.0)))
    assert second.of(4) == Visits(4, 1, 1, 2.5)
    assert third.of(0) == NEVER
    # Model, steps, volume; client, L, Z, t of two clients: 11 numbers.
    assert log_bytes(len(third.visits)) == 88
    with pytest.raises(ValueError, match="step 5 is not after"):
        third.after_training(1, 5, 30, 1.0)
    with pytest.raises(ValueError, match="time must be above 0"):
        third.after_training(1, 6, 30, 0.0)


# Eq. 3 to 6

VOLUMES = {0: 100, 1: 50, 2: 200}
# After step 4 of 10: client 0 has just trained, in 6 s; client 1 twice, in 3 s; client 2 never.
LOG = trained((0, 4, 1, 6.0), (1, 2, 2, 3.0), (9, 1, 1, 0.1))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # U^d = 100/200, 50/200, 200/200; U^c = 3/6, 3/3, 1 (client 9, faster, is no candidate);
        # alpha = (4 - 4)/10, (4 - 2)/10, 1.
        ({}, [1 + 0.5 * (0 + 0.5), 1 + 0.25 * (0.2 + 1), 1 + 1 * (1 + 1)]),
        ({"selection_limit": 2}, [1.25, 1.0, 3.0]),
        ({"selection_limit": 1}, [1.0, 1.0, 3.0]),
        ({"use_volume": False}, [1 + 0.5, 1 + 1.2, 3.0]),
        ({"use_time": False}, [1 + 0.5 * 0, 1 + 0.25 * 0.2, 2.0]),
        ({"use_history": False}, [1 + 0.5 * 0.5, 1 + 0.25 * 1, 2.0]),
    ],
)
def test_scores_by_hand(options, expected):
    options = {"steps": 10, "selection_limit": 3, **options}
    scores = navigator.selection_scores(VOLUMES, LOG, NavigatorHyperparameters(**options))
    assert [scores[client] for client in range(3)] == pytest.approx(expected, rel=1e-12)


def test_only_the_holder_has_trained():
    scores = navigator.selection_scores(
        {0: 10, 1: 10}, trained((0, 1, 1, 9.0)), NavigatorHyperparameters()
    )
    assert scores == {0: 2.0, 1: 3.0}


def test_simulated_times_are_those_of_section_6_1():
    # t / (1 + (h - 1) / (H - 1)): from t to t / 2.
    assert simulated_time.training_time(12.0, 1, 4) == 12.0
    assert simulated_time.training_time(12.0, 2, 4) == pytest.approx(12 / (1 + 1 / 3))
    assert simulated_time.training_time(12.0, 4, 4) == 6.0
    assert simulated_time.training_time(12.0, 1, 1) == 12.0
    with pytest.raises(ValueError, match="rank must be from 1 to 4, not 5"):
        simulated_time.training_time(12.0, 5, 4)
    ranks = simulated_time.draw_ranks(1000, 4, seed=3)
    assert set(ranks) == {1, 2, 3, 4}
    assert (
        ranks
        == simulated_time.draw_ranks(1000, 4, seed=3)
        != simulated_time.draw_ranks(1000, 4, seed=4)
    )


def test_the_papers_defaults():
    defaults = NavigatorHyperparameters()
    assert (defaults.steps, defaults.selection_limit) == (200, 3)
    assert navigator.papers_limit(200, 100) == 3
    assert navigator.papers_limit(201, 100) == 4
    assert [navigator.papers_limit(s, 100) for s in (60, 300, 1000, 5000)] == [1, 5, 15, 75]
    assert navigator.papers_limit(400, 20) == 30
    with pytest.raises(ValueError, match="route must be one of score, random"):
        NavigatorHyperparameters(route="best")
    with pytest.raises(ValueError, match="tie_break must be"):
        NavigatorHyperparameters(tie_break="first")
    with pytest.raises(ValueError, match="steps must be at least 1"):
        NavigatorHyperparameters(steps=0)


# Algorithm 1


def test_the_single_best_candidate_is_chosen():
    graph, log = network((0, 1), (0, 2), (2, 3)), trained((0, 1, 1, 1.0))
    # n = 10, 20, 30: 1 + 10/30, 1 + 2 * 20/30, 3. Client 3 is two hops away, and is not asked.
    chosen, choice = choices(graph, {0: 10, 1: 20, 2: 30, 3: 999}, log)
    assert chosen == {2}
    # Two questions, of two client numbers; the answers: n and one, n and two neighbours.
    assert (choice.hops, choice.messages) == (1, 4)
    assert choice.message_bytes == 8 * (2 + 2 + 2 + 3)


def test_the_model_stays_where_its_holder_is_best():
    graph, log = network((0, 1)), trained((0, 1, 1, 1.0))
    # 1 + 1 * (0 + 1) = 2 against 1 + 0.1 * (1 + 1) = 1.2
    assert choices(graph, {0: 100, 1: 10}, log)[0] == {0}


# Two candidates, 1 and 2, to which 3 and 4 are linked.
FORK = network((0, 1), (0, 2), (1, 3), (2, 4))


def test_a_tie_is_broken_by_the_next_hop():
    volumes, log = {0: 10, 1: 100, 2: 100, 3: 50, 4: 90}, trained((0, 1, 1, 1.0))
    # P_0 = {0, 1, 2}: 1 + 0.1 * 1, 3, 3, a tie.
    # P_{0,2} = {0, 3, 4}: 1 + 10/90, 1 + 2 * 50/90, 3: client 4 is best, and is linked to 2.
    chosen, choice = choices(FORK, volumes, log)
    assert chosen == {2}
    # Two neighbours asked over one link, two clients over two links, and as many answers.
    assert (choice.hops, choice.messages) == (2, 2 * (2 * 1 + 2 * 2))
    # Line 32 as printed takes any client of P_{0,1}, whatever the search has reached.
    assert choices(FORK, volumes, log, tie_break="printed")[0] == {1, 2}


def test_a_tie_that_needs_three_hops():
    graph = network(*FORK.edges, (3, 5), (4, 6))
    volumes = {0: 10, 1: 100, 2: 100, 3: 80, 4: 80, 5: 10, 6: 70}
    log = trained((0, 3, 1, 1.0), (1, 2, 1, 1.0), (2, 1, 1, 1.0))
    # With Z = 1: P_0 = {0, 1, 2} have 1 each.
    # P_{0,2} = {0, 1, 2, 3, 4}: 1, 1, 1 and twice 1 + 2 * 80/100 = 2.6, a tie.
    # P_{0,3} = {1, 2, 5, 6}: 1, 1, 1 + 2 * 10/100 = 1.2, 1 + 2 * 70/100 = 2.4: client 6.
    # The way back: 6 is linked to 4, and 4 to 2.
    chosen, choice = choices(graph, volumes, log, selection_limit=1)
    assert (chosen, choice.hops) == ({2}, 3)
    # As printed: 3 or 4, and back from there to 1 or 2, but not to 0, the third tied client.
    assert choices(graph, volumes, log, selection_limit=1, tie_break="printed")[0] == {1, 2}


def test_the_search_stops_where_the_next_scores_are_all_the_lowest():
    everyone = [(k, 5 - k, 1, 1.0) for k in range(5)]
    volumes = dict.fromkeys(range(5), 10)
    chosen, choice = choices(FORK, volumes, trained(*everyone), selection_limit=1)
    # All scores are 1: P_{0,2} decides nothing, and any client of P_{0,1} = {0, 1, 2} is taken.
    assert (chosen, choice.hops) == ({0, 1, 2}, 1)


def test_the_search_stops_where_no_new_client_is_reached():
    volumes, log = dict.fromkeys(range(4), 10), trained((0, 1, 1, 1.0))
    chosen, choice = choices(topology.complete(4), volumes, log)
    assert (chosen, choice.hops) == ({1, 2, 3}, 1)


def test_the_way_back_ends_at_a_tied_candidate():
    # The search reaches 3 from 1. It is linked to 0 too, and had a lower score there than 1 and 2.
    graph = network((0, 1), (0, 2), (0, 3), (1, 3), (2, 4))
    volumes, log = {0: 10, 1: 100, 2: 100, 3: 90, 4: 10}, trained((0, 1, 1, 1.0))
    assert choices(graph, volumes, log)[0] == {1}


def test_scores_that_differ_by_rounding_are_tied():
    # alpha + U^c of clients 1 and 2: 3/10 + 1/2 and 7/10 + 1/10, which is less in floating point.
    # Client 3 has the shortest time, but has been selected too often; client 0 has few examples.
    log = trained((0, 10, 1, 1.0), (1, 7, 1, 2.0), (2, 3, 1, 10.0), (3, 1, 9, 1.0))
    volumes = {0: 1, 1: 10, 2: 10, 3: 10}
    scores = navigator.selection_scores(volumes, log, NavigatorHyperparameters(steps=10))
    assert scores[1] > scores[2] == pytest.approx(1.8)
    assert choices(topology.star(4), volumes, log, steps=10)[0] == {1, 2}


def test_a_random_route_takes_any_candidate_whatever_its_score():
    volumes = {0: 1, 1: 1000, 2: 5, 3: 7, 4: 7}
    log = trained((0, 1, 1, 1.0))
    chosen, choice = choices(FORK, volumes, log, route="random", selection_limit=1)
    assert (chosen, choice.hops) == ({0, 1, 2}, 1)


def test_clients_that_left_and_cut_links_are_gone_around():
    volumes, log = {0: 10, 1: 60, 2: 100, 3: 1, 4: 1}, trained((0, 1, 1, 1.0))
    assert choices(FORK, volumes, log)[0] == {2}
    assert choices(topology.without_client(FORK, 2), volumes, log)[0] == {1}
    assert choices(topology.without_link(FORK, 0, 2), volumes, log)[0] == {1}
    alone = topology.without_client(topology.without_client(FORK, 2), 1)
    assert choices(alone, volumes, log)[0] == {0}
    with pytest.raises(ValueError, match="client 2, which holds the model, is not in the network"):
        choices(topology.without_client(FORK, 2), volumes, log, holder=2)


def test_a_neighbour_that_does_not_answer_is_no_candidate():
    volumes = {0: 10, 1: 60, 2: 100, 3: 1, 4: 1}
    answers = navigator.asking(FORK, volumes)  # 0 still counts 2 among its neighbours.

    def ask(path):
        return None if 2 in path else answers(path)

    log, rng = trained((0, 1, 1, 1.0)), np.random.default_rng(0)
    choice = navigator.choose_next(0, log, ask, NavigatorHyperparameters(), rng)
    # The question that got no answer crossed a link too.
    assert (choice.client, choice.messages) == (1, 3)


# Random networks: the knowledge of the navigator, and Algorithm 1 over the whole network

settings.register_profile("networks", max_examples=60, deadline=None)


@st.composite
def situations(draw):
    """A network, volumes and a log with many ties."""
    num_clients = draw(st.integers(2, 12))
    seed = draw(st.integers(0, 10_000))
    graph = topology.erdos_renyi(num_clients, draw(st.sampled_from([0.1, 0.25, 0.5])), seed)
    rng = np.random.default_rng(seed)
    volumes = dict(enumerate((10 * rng.integers(1, 3, num_clients)).tolist()))
    log = StateLog()
    route = rng.integers(0, num_clients, draw(st.integers(1, 3 * num_clients))).tolist()
    for step, client in enumerate(route, 1):
        log = log.after_training(client, step, volumes[client], float(rng.integers(1, 3)))
    return graph, volumes, log, route[-1]


@settings(settings.get_profile("networks"))
@given(situation=situations(), limit=st.integers(1, 3), seed=st.integers(0, 99))
def test_only_clients_that_were_named_are_asked_along_links_and_nothing_else_matters(
    situation, limit, seed
):
    graph, volumes, log, holder = situation
    answers = {}

    def ask(path):
        assert path[0] == holder
        for client, following in itertools.pairwise(path):
            assert following in answers[client].neighbours
        assert path[-1] not in answers
        answers[path[-1]] = navigator.asking(graph, volumes)(path)
        return answers[path[-1]]

    hyperparameters = NavigatorHyperparameters(steps=40, selection_limit=limit)

    def choose(ask):
        rng = np.random.default_rng(seed)
        return navigator.choose_next(holder, log, ask, hyperparameters, rng).client

    chosen = choose(ask)
    assert chosen == holder or graph.has_edge(holder, chosen)
    # A network that differs where no client was asked.
    others = {client: n if client in answers else 7 * n + 1 for client, n in volumes.items()}
    known = graph.edge_subgraph([edge for edge in graph.edges if set(edge) & set(answers)])
    assert chosen == choose(navigator.asking(known, others))


def score(clients, client, volumes, log, steps, limit):
    """Eq. 3 to 6 in exact arithmetic."""
    times = [Fraction(log.of(k).time) for k in clients if log.of(k).last_step]
    known = log.of(client)
    if known.selections >= limit:
        return Fraction(1)
    u_c = alpha = Fraction(1)
    if known.last_step:
        u_c = min(times) / Fraction(known.time)
        alpha = Fraction(log.steps - known.last_step, steps)
    return Fraction(volumes[client], max(volumes[k] for k in clients)) * (alpha + u_c) + 1


def algorithm_1(graph, volumes, log, m, steps, limit, printed):
    """The clients that may be chosen, by the lines of Algorithm 1 over the whole network."""

    def best(clients):
        scores = {k: score(clients, k, volumes, log, steps, limit) for k in clients}
        highest = max(scores.values())
        return {k for k, u in scores.items() if u == highest}, highest

    p_m = {m, *graph[m]}
    p = {1: best(p_m)[0]}  # P_{m,d}
    d, count_max, checked = 1, len(p[1]), p_m
    if count_max == 1:
        return p[1]
    while count_max > 1:
        following = {k for client in p[d] for k in graph[client]}
        if not following - checked:
            d += 1
            break
        checked = checked | following
        p[d + 1], highest = best(following)
        count_max = len(p[d + 1])
        d += 1
        if highest <= 1:
            break
    else:
        if not printed:
            p[d - 1] = {k for k in p[d - 1] if p[d] & set(graph[k])}
    ends = p[d - 1]
    for level in range(d - 2, 0, -1):
        ends = {k for k in p[level] if ends & set(graph[k])}
    return ends


@settings(settings.get_profile("networks"))
@given(situation=situations(), limit=st.integers(1, 3), printed=st.booleans())
def test_choices_are_those_of_algorithm_1(situation, limit, printed):
    graph, volumes, log, holder = situation
    expected = algorithm_1(graph, volumes, log, holder, 40, limit, printed)
    tie_break = "printed" if printed else "search"
    options = {"steps": 40, "selection_limit": limit, "tie_break": tie_break}
    chosen, _ = choices(graph, volumes, log, holder, 20, **options)
    assert chosen <= expected
    if len(expected) == 2:
        assert chosen == expected  # At even odds, chance fails this once in half a million.
