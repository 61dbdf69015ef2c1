"""Exactly the clients of a cohort reach the aggregators, whatever its size.

Cohorts that vary in size are padded to multiples of eight groups. The padding, and clients without
data, reach an aggregator as zeros of weight zero, which every aggregator leaves out
(`tests/aggregation/test_no_client.py`).
"""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from datasets import client_store
from datasets.image_dataset import Split
from tests.by_algorithm import by_algorithm
from tff_ssl.algorithms import registry
from tff_ssl.kinds.protocol import RunSetting
from tff_ssl.simulation.dropouts import Dropouts
from tff_ssl.simulation.participation import Participation

POPULATION = 18
WITHOUT_DATA = 2
# A client is recognized by its number of examples, which is its weight.
EXAMPLES = np.arange(POPULATION) + 2
SIZES = np.where(np.arange(POPULATION) == WITHOUT_DATA, 0, EXAMPLES)
SEED = 5
# The second stage of these weighs all clients equally (see `dcco.two_stage`).
EQUAL_DELTAS = ("dcco", "fedsc")
AGGREGATING = [name for name, entry in registry.ALGORITHMS.items() if entry.aggregates]


def cohorts(round_number):
    """A cohort of as many clients as the number of the round; the empty cohort at first."""
    drawn = np.random.default_rng([SEED, round_number]).permutation(POPULATION)
    return drawn[:round_number].astype(np.int64)


class Recorder(tff.aggregators.WeightedAggregationFactory):
    """A weighted mean whose state tells which contributions it got in the last round.

    The state has `weights`, the number of contributions of each weight, int32 [weights], and
    `ghosts`, the number of those that have no weight and yet are not zero.
    """

    def create(self, value_type, weight_type):
        inner = tff.aggregators.MeanFactory().create(value_type, weight_type)

        @tff.tensorflow.computation(value_type, weight_type)
        def record(value, weight):
            some = [tf.reduce_any(tf.not_equal(t, 0)) for t in tf.nest.flatten(value)]
            ghost = tf.reduce_any(tf.stack(some)) & tf.equal(tf.cast(weight, tf.float32), 0.0)
            return collections.OrderedDict(
                weights=tf.one_hot(tf.cast(weight, tf.int32), EXAMPLES.sum() + 1, dtype=tf.int32),
                ghosts=tf.cast(ghost, tf.int32),
            )

        @tff.tensorflow.computation
        def nothing():
            return collections.OrderedDict(
                weights=tf.zeros([EXAMPLES.sum() + 1], tf.int32), ghosts=tf.constant(0)
            )

        @tff.federated_computation
        def initialize():
            return tff.federated_zip((inner.initialize(), tff.federated_eval(nothing, tff.SERVER)))

        @tff.federated_computation(
            initialize.type_signature.result,
            tff.types.FederatedType(value_type, tff.CLIENTS),
            tff.types.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state, value, weight):
            output = inner.next(state[0], value, weight)
            seen = tff.federated_sum(tff.federated_map(record, (value, weight)))
            return tff.templates.MeasuredProcessOutput(
                tff.federated_zip((output.state, seen)), output.result, output.measurements
            )

        return tff.templates.AggregationProcess(initialize, next_fn)


def recorded(state):
    """What the recorders in a server's state have seen: those of statistics before updates."""
    if isinstance(state, collections.abc.Mapping):
        if "ghosts" in state:
            return [state]
        state = state.values()
    elif not isinstance(state, tuple | list):
        return []
    return [seen for part in state for seen in recorded(part)]


@pytest.fixture(scope="module")
def group_data(tmp_path_factory):
    """(client indices int64 [k]) -> their examples, of which one client has none."""
    rng, total = np.random.default_rng(0), int(EXAMPLES.sum())
    images = rng.integers(0, 256, (total, 2, 2, 3), np.uint8)
    path = tmp_path_factory.mktemp("store") / "clients.sqlite"
    client_store.write_store(
        path,
        Split(images, np.zeros(total, np.int32), np.arange(total)),
        np.split(np.arange(total), np.cumsum(EXAMPLES)[:-1]),
    )
    store = client_store.StoredClientData(path)
    whole = store.group_dataset_computation

    @tff.tensorflow.computation(whole.type_signature.parameter)
    def computation(indices):
        return store.group_dataset(tf.boolean_mask(indices, tf.not_equal(indices, WITHOUT_DATA)))

    return computation


def expected_weights(clients, groups, equal):
    """The weights that an aggregator gets of clients, sorted.

    Args:
      clients: The clients that report, int64 [k].
      groups: Number of groups into which they are folded; 0 for none.
      equal: Whether all have the same weight.
    """
    alone = len(clients) or 1
    parts = np.array_split(clients, min(groups, len(clients)) or alone)
    if any(len(part) and not SIZES[part].sum() for part in parts):
        # The round continues without the client, and is computed anew without groups.
        parts = np.array_split(clients, alone)
    weights = [int(SIZES[part].sum()) for part in parts]
    weights = [min(w, 1) for w in weights] if equal else weights
    weights += [0] * (-len(weights) % 8)
    return sorted(weights)


def simulate(algorithm, group_data, folder, groups=0, dropout=0.0):
    participation = Participation(cohorts, 8, 8, varies=True, dropouts=Dropouts(dropout, 1.0, SEED))
    setting = RunSetting(SIZES.tolist(), POPULATION, participation, groups=groups)
    return algorithm.plan_run(setting).simulate(group_data, folder), participation


@pytest.mark.slow
@pytest.mark.parametrize("name", by_algorithm(AGGREGATING, default=()))
def test_exactly_the_cohorts_clients_with_data_reach_the_aggregators(
    worker, small_algorithm, group_data, tmp_path, name
):
    entry = registry.ALGORITHMS[name]
    task = small_algorithm(name).task
    values = entry.hyperparameters(client_weighting="examples")
    aggregators = {f"{what}_aggregator": Recorder() for what in entry.aggregates}
    algorithm = entry.build(task, values, **aggregators)
    ways = [(0, 0.0)]
    ways += [(5, 0.0)] if entry.folds_with(values) else []
    ways += [(0, 0.4)] if algorithm.stages else []
    for groups, dropout in ways:
        simulated, participation = simulate(algorithm, group_data, tmp_path, groups, dropout)
        initial = simulated.initialize(SEED)
        # All sizes in the first way; in the others, those around the empty groups.
        for size in range(POPULATION) if not groups and not dropout else (0, 1, 8, 9, 17):
            reports = participation.dropouts.reports(size, cohorts(size))
            state, metrics = simulated.run_round(initial, size)
            seen = recorded(state)
            assert len(seen) == len(entry.aggregates)
            # Statistics come from the first stage, model deltas from the last one.
            reporting = [reports.first, reports.last][-len(seen) :]
            for one, clients, what in zip(seen, reporting, entry.aggregates, strict=True):
                got = np.repeat(np.arange(len(one["weights"])), one["weights"]).tolist()
                equal = what == "update" and name in EQUAL_DELTAS
                assert got == expected_weights(clients, groups, equal), (groups, dropout, size)
                assert one["ghosts"] == 0
            assert metrics["samples"] == SIZES[reports.last].sum()
            left_out = size - np.count_nonzero(reports.last != WITHOUT_DATA)
            if groups == 0:
                assert metrics["dropped_clients"] == left_out
