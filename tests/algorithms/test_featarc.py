"""FeatARC's clustering and alignment on a network of scalars, and its two limits."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.algorithms import featarc, fedbn
from tff_ssl.models.dual_encoder import Weights

PLAIN = {
    "client_optimizer": "sgd",
    "client_learning_rate": 0.5,
    "client_momentum": 0.0,
    "learning_rate_schedule": "constant",
    "local_epochs": 1,
    "batch_size": 0,
}
A, SIZES = (4, 8, 1), (1, 3, 2)


def build(scalars, builder=featarc.build_featarc, values=featarc.FeatARCHyperparameters, **options):
    task, data = scalars
    computations = builder(task("nt_xent"), values(**{**PLAIN, **options}))
    clients = [data(k, [a] * n) for k, (a, n) in enumerate(zip(A, SIZES, strict=True))]
    return computations, clients


def new_state(computations):
    return tf.nest.map_structure(np.asarray, computations.initial_client_state(0))


def run(computations, data, rounds):
    state = computations.process.initialize()
    states = [new_state(computations)] * len(data)
    for _ in range(rounds):
        output = computations.process.next(state, states, data)
        state, states = output.state, output.client_states
    return output


def model_of(w):
    return Weights((np.float32(w), np.float32(0)), (np.float32(0),))


@pytest.mark.slow
def test_with_one_cluster_and_no_alignment_it_equals_fedavg(scalars):
    clustered, data = build(scalars, clusters=1, lambda_align=0.0)
    averaged, _ = build(scalars, fedbn.build_fedbn, fedbn.FedBNHyperparameters)
    output, expected = run(clustered, data, 4), run(averaged, data, 4)
    assert np.array_equal(output.state.model[0].trainable, expected.state.model.trainable)


@pytest.mark.slow
def test_with_a_cluster_for_each_client_it_equals_local_training(scalars):
    clustered, data = build(scalars, clusters=3, lambda_align=0.0)
    local, _ = build(scalars, fedbn.build_fedbn, fedbn.FedBNHyperparameters, averaging="none")
    output, expected = run(clustered, data, 4), run(local, data, 4)
    for k, alone in enumerate(expected.client_states):
        assert output.client_metrics[k]["cluster"] == k
        np.testing.assert_allclose(output.state.model[k].trainable[0], alone.own.trainable[0])


def test_a_client_takes_the_model_whose_features_agree_with_its_own(scalars):
    computations, data = build(scalars, clusters=2, lambda_align=0.0)
    state = computations.process.initialize()
    state = state._replace(model=(model_of(-3.0), model_of(5.0)))

    def client(w):
        return new_state(computations)._replace(
            rounds=np.int64(2), cluster=np.int32(0), local=model_of(w)
        )

    output = computations.process.next(state, [client(4.0), client(9.0), client(-1.0)], data)
    assert [m["cluster"] for m in output.client_metrics] == [1, 1, 0]
    # Features are (w, 1): the alignment is minus their cosine.
    cosine = (5 * 4 + 1) / np.sqrt((25 + 1) * (16 + 1))
    np.testing.assert_allclose(output.client_metrics[0]["alignment"], -cosine, rtol=1e-5)
    # The mean over the clients that took it, by examples: w of (5 + 4) / 2 and (5 + 8) / 2.
    np.testing.assert_allclose(output.state.model[1].trainable[0], (4.5 + 3 * 6.5) / 4, rtol=1e-6)
    np.testing.assert_allclose(output.state.model[0].trainable[0], (-3 + 1) / 2, rtol=1e-6)


def test_a_cluster_without_a_client_keeps_its_model_whoever_was_sampled(scalars):
    computations, data = build(scalars, clusters=2, lambda_align=0.0)
    state = computations.process.initialize()
    state = state._replace(model=(model_of(-3.0), model_of(5.0)))
    client = new_state(computations)._replace(rounds=np.int64(2), local=model_of(9.0))
    # The third client alone: its position in the cohort does not determine its cluster.
    output = computations.process.next(state, [client], data[2:])
    assert output.state.model[0].trainable[0] == -3
    np.testing.assert_allclose(output.state.model[1].trainable[0], (5 + 1) / 2)


def test_at_first_clients_are_dealt_to_the_models(scalars):
    computations, data = build(scalars, clusters=2, lambda_align=0.0)
    output = run(computations, data, 1)
    assert [m["cluster"] for m in output.client_metrics] == [0, 1, 0]
    # The same holds for a client whose first round is late, when the models differ.
    late = output.state._replace(model=(model_of(-3.0), model_of(5.0)))
    output = computations.process.next(late, [new_state(computations)] * 2, data[:2])
    assert [m["cluster"] for m in output.client_metrics] == [0, 1]


def test_the_alignment_holds_predictions_to_the_models_features(scalars):
    values = {"clusters": 1, "local_epochs": 3}
    computations, data = build(scalars, lambda_align=100.0, **values)
    state = computations.process.initialize()._replace(model=(model_of(2.0),))
    client = new_state(computations)
    aligned = computations.process.next(state, [client], data[:1]).state.model[0].trainable[0]
    # By hand: the cosine of (w, c) and (2, 1) is (2 w + c) / sqrt(5 (w^2 + c^2)), its derivative is
    # c (2 c - w) / (sqrt(5) (w^2 + c^2)^1.5). c is 1 for p and 2 for p+. D is minus the cosine, and
    # the term has half of each.
    w = 2.0
    for _ in range(3):
        first, second = (c * (2 * c - w) / (5**0.5 * (w**2 + c**2) ** 1.5) for c in (1, 2))
        w -= 0.5 * ((w - 4) - 100.0 * (first + second) / 2)
    np.testing.assert_allclose(aligned, w, rtol=1e-4)


def test_the_evaluated_model_is_the_clusters_with_the_clients_batch_norm(scalars):
    computations, data = build(scalars, clusters=2, lambda_align=0.0)
    output = run(computations, data, 1)
    client_model = computations.client_weights(output.state.model, output.client_states[1])
    assert client_model.trainable[0] == output.state.model[1].trainable[0]
    assert client_model.non_trainable[0] == 8
    fresh = computations.client_weights(output.state.model, new_state(computations))
    assert fresh.trainable[0] == output.state.model[0].trainable[0]


def test_hyperparameters_are_checked():
    for options, named in (
        ({"clusters": 0}, "clusters"), ({"lambda_align": -1.0}, "lambda_align"),
        ({"averaging": "none"}, "averaging"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=named):
            featarc.FeatARCHyperparameters(**options)
    assert dataclasses.is_dataclass(featarc.FeatARCHyperparameters)
