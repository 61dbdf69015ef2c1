"""A client learns of the others by the results of private means alone.

Clipping and noise bound what one client more changes in a sum if the others send the same with it
and without it, given the same results of earlier means. Here the means have constant results, and
so the sums have to be additive.
"""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.by_algorithm import by_algorithm
from tff_ssl.algorithms import registry

CONSTANT = 0.1
AGGREGATING = [name for name, entry in registry.ALGORITHMS.items() if entry.aggregates]


class Sum(tff.aggregators.WeightedAggregationFactory):
    """An aggregation whose result is a constant, and whose state is the sum of the last values."""

    def create(self, value_type, weight_type):
        def filled(constant):
            @tff.tensorflow.computation
            def fill():
                return tf.nest.map_structure(
                    lambda spec: tf.fill(spec.shape, tf.constant(constant, spec.dtype)),
                    tff.types.type_to_tf_tensor_specs(value_type),
                )

            return fill

        zeros, constants = filled(0), filled(CONSTANT)

        @tff.federated_computation
        def initialize():
            return tff.federated_eval(zeros, tff.SERVER)

        @tff.federated_computation(
            initialize.type_signature.result,
            tff.types.FederatedType(value_type, tff.CLIENTS),
            tff.types.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state, value, weight):
            return tff.templates.MeasuredProcessOutput(
                tff.federated_sum(value),
                tff.federated_eval(constants, tff.SERVER),
                tff.federated_value((), tff.SERVER),
            )

        return tff.templates.AggregationProcess(initialize, next_fn)


def sums(state, entry):
    """The sums of statistics and of model deltas in a server's state, by name."""
    found = {"update": state.aggregator}
    if "statistics" in entry.aggregates:
        found["statistics"] = state.client_work.statistics_aggregator
    return {name: [np.asarray(t) for t in tf.nest.flatten(s)] for name, s in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", by_algorithm(AGGREGATING, default=("dcco",)))
def test_clients_send_the_same_whoever_else_takes_part(worker, small_algorithm, name):
    entry = registry.ALGORITHMS[name]
    task, clients = small_algorithm(name).inputs
    arguments = {f"{what}_aggregator": Sum() for what in entry.aggregates}
    if entry.counts_clients:
        arguments["expected_clients"] = 4
    values = entry.hyperparameters(client_weighting="uniform", server_optimizer="sgd")
    process = entry.build(task, values, **arguments).process
    # The first round of `dcco_one_stage` only gathers statistics.
    initial = process.next(process.initialize(), clients[2:]).state
    first, second, both = (
        sums(process.next(initial, cohort).state, entry)
        for cohort in (clients[:1], clients[1:2], clients[:2])
    )
    for what in entry.aggregates:
        assert any(t.any() for t in first[what])
        for one, other, together in zip(first[what], second[what], both[what], strict=True):
            np.testing.assert_allclose(together, one + other, rtol=1e-4, atol=1e-5)
