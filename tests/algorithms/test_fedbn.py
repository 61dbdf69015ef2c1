"""FedAvg with local batch norm on a network of scalars, against values by hand."""

import numpy as np
import pytest
import tensorflow as tf

from tests.scalar_network import build_once
from tff_ssl.algorithms import fedbn
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.templates.weight_groups import LocalWeights

pytestmark = pytest.mark.xdist_group("fedbn")

PLAIN = {
    "client_optimizer": "sgd",
    "client_learning_rate": 0.5,
    "client_momentum": 0.0,
    "learning_rate_schedule": "constant",
    "local_epochs": 1,
    "batch_size": 0,
}
A, SIZES = (4, 8), (1, 3)


def build(scalars, objective="nt_xent", rounds=10, **options):
    task, data = scalars
    values = fedbn.FedBNHyperparameters(**{**PLAIN, **options})
    computations = build_once(fedbn.build_fedbn, task(objective, rounds), values)
    return computations, [data(k, [a] * n) for k, (a, n) in enumerate(zip(A, SIZES, strict=True))]


def new_states(computations, count=2):
    state = tf.nest.map_structure(np.asarray, computations.initial_client_state(0))
    return [state] * count


def run(computations, data, rounds, states=None):
    state = computations.process.initialize()
    states = states or new_states(computations)
    for _ in range(rounds):
        output = computations.process.next(state, states, data)
        state, states = output.state, output.client_states
    return output


def test_all_of_a_batch_norm_is_the_clients_own(scalars):
    computations, data = build(scalars)
    output = run(computations, data, 2)
    first, second = output.client_states
    # w is averaged after each round: 0 -> (2, 4) -> 3.5 -> (3.75, 5.75); b is never averaged.
    np.testing.assert_allclose(output.state.model.trainable[0], (3.75 + 3 * 5.75) / 4)
    np.testing.assert_allclose([first.own.trainable[0], second.own.trainable[0]], [3, 6])
    np.testing.assert_allclose([first.own.non_trainable[0], second.own.non_trainable[0]], A)
    client_model = computations.client_weights(output.state.model, first)
    np.testing.assert_allclose(client_model.trainable, [(3.75 + 3 * 5.75) / 4, 3])
    np.testing.assert_allclose(client_model.non_trainable, [4])
    # The mean of the batch norms is part of the server's model alone.
    np.testing.assert_allclose(output.state.model.trainable[1], (3 + 3 * 6) / 4)
    assert computations.local_weights is None


def test_the_local_model_is_kept_where_it_is_asked_for(scalars):
    computations, data = build(scalars, keep_local=True)
    output = run(computations, data, 2)
    local = computations.local_weights(output.client_states[0])
    np.testing.assert_allclose(local.trainable, [3.75, 3])
    np.testing.assert_allclose(local.non_trainable, [4])
    np.testing.assert_allclose(output.state.model.trainable[0], (3.75 + 3 * 5.75) / 4)


def test_averaged_batch_norm_is_fedavg_of_everything(scalars):
    computations, data = build(scalars, batch_norm="averaged", client_weighting="uniform")
    output = run(computations, data, 2)
    # Mean of (2, 4), then of (3.5, 5.5), for w and b alike.
    np.testing.assert_allclose(output.state.model.trainable, [4.5, 4.5])
    assert output.client_states[0].own.trainable == ()


def test_clients_that_train_alone_share_nothing(scalars):
    computations, data = build(scalars, averaging="none")
    output = run(computations, data, 3)
    for state, a in zip(output.client_states, A, strict=True):
        np.testing.assert_allclose(state.own.trainable, [a * (1 - 0.5**3)] * 2)
    np.testing.assert_allclose(output.state.model.trainable, [0, 0])
    assert computations.global_weights is None
    assert computations.uploads == computations.downloads == ()


def test_alone_a_clients_target_network_is_kept(scalars):
    computations, data = build(scalars, "byol", averaging="none", target_momentum=0.8)
    output = run(computations, data, 2)
    # w: 0, 2, 3; target: 0, 0.4, 0.8 * 0.4 + 0.2 * 3.
    np.testing.assert_allclose(output.client_states[0].target.trainable[0], 0.92, rtol=1e-6)


@pytest.mark.slow
def test_the_learning_rate_falls_in_steps_and_the_l2_term_pulls_to_zero(scalars):
    computations, data = build(scalars, rounds=4, learning_rate_schedule="steps")
    states = new_states(computations, 1)
    state = computations.process.initialize()
    w = 0.0
    for rate in (0.5, 0.5, 0.05, 0.005):
        output = computations.process.next(state, states, data[:1])
        state, states = output.state, output.client_states
        w -= rate * (w - 4)
        np.testing.assert_allclose(state.model.trainable[0], w, rtol=1e-6)
    computations, data = build(scalars, client_weight_decay=0.5)
    output = run(computations, data[:1], 2, new_states(computations, 1))
    # w = 2, then 2 - 0.5 (2 - 4 + 0.5 * 2).
    np.testing.assert_allclose(output.state.model.trainable[0], 2.5)


def test_fedprox_pulls_to_the_model_that_training_started_from(scalars):
    computations, data = build(scalars, mu=1.0, local_epochs=2)
    output = run(computations, data[:1], 1, new_states(computations, 1))
    # w = 2, then 2 - 0.5 (2 - 4 + 1.0 * (2 - 0)).
    np.testing.assert_allclose(output.state.model.trainable[0], 2.0)


def test_the_moving_averages_of_the_projectors_output_stay_local():
    model = DualEncoder("tiny", (8, 8, 3), (64, 16), projector_output_batch_norm=True)
    weights = model.init(0)
    kept = LocalWeights(model, batch_norm=True).select(weights)
    assert kept.trainable == ()
    assert [value.shape for value in kept.non_trainable] == [(16,), (16,)]
    assert LocalWeights(model).select(weights) == Weights((), ())


@pytest.mark.parametrize("everything", [False, True])
def test_a_models_own_weights_come_back_to_their_places(everything):
    model = DualEncoder("tiny", (8, 8, 3), (64, 16), norm="batch")
    split = LocalWeights(model, everything=everything, batch_norm=True)
    weights = model.init(0)
    kept = split.select(weights)
    norms = sum(spec.batch_norm for spec in model.specs)
    names = [spec.name for spec in model.specs if spec.batch_norm]
    assert {name.rsplit("/", 1)[1] for name in names} == {
        "scale", "offset", "moving_mean", "moving_variance",
    }  # fmt: skip
    assert len(kept.trainable) + len(kept.non_trainable) == (
        len(model.specs) if everything else norms
    )
    other = tf.nest.map_structure(lambda t: t + 1, weights)
    restored = split.restore(other, kept)
    for spec, value, local, shared in zip(
        (*model.trainable_specs, *model.non_trainable_specs),
        tf.nest.flatten(restored), tf.nest.flatten(weights), tf.nest.flatten(other),
        strict=True,
    ):  # fmt: skip
        assert np.array_equal(value, local if everything or spec.batch_norm else shared)


def test_hyperparameters_are_checked():
    for options, named in (
        ({"batch_norm": "shared"}, "batch_norm"), ({"averaging": "some"}, "averaging"),
        ({"mu": -1.0}, "mu"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=named):
            fedbn.FedBNHyperparameters(**options)
