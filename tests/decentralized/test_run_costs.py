"""How models travel, in the results of a run."""

from tff_ssl.decentralized import run_costs


def test_stays_and_visited_clients_are_counted_over_all_models():
    assert run_costs.route_counts([[0, 0, 3, 3, 3], [5, 0, 5, 5, 1]]) == {
        "visited_clients": 4, "moves": 8, "moves_to_same_client": 4,
    }  # fmt: skip


def test_a_single_step_has_no_move_and_gossip_no_route():
    alone = {"visited_clients": 1, "moves": 0, "moves_to_same_client": 0}
    assert run_costs.route_counts([[7]]) == alone
    assert set(run_costs.route_counts([]).values()) == {None}
