"""FedU's and FedEMA's update rules on a network of scalars, against values worked out by hand.

One step of gradient descent of rate 0.5 takes w from w0 to (w0 + a) / 2 and p to (p0 + 2 a) / 2 for
a client whose examples are all a; the target then moves by (1 - m) = 0.2 of the way to the new w.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.scalar_network import build_once
from tff_ssl.algorithms import fedema, fedu
from tff_ssl.models.dual_encoder import DualEncoder, Weights

pytestmark = pytest.mark.xdist_group("fedu")

RATE, MOMENTUM = 0.5, 0.8
TRAINING = {
    "client_learning_rate": RATE,
    "client_momentum": 0.0,
    "target_momentum": MOMENTUM,
    "local_epochs": 1,
    "batch_size": 0,
}
# Combinations of Table 4 that have each value once or more; the others are long.
DEFAULT = (
    ("online", "online", "local"),
    ("target", "target", "global"),
    ("online", "both", "local"),
)
A = (4, 8)  # Pixels of the two clients, which have one and three examples.
SIZES = (1, 3)


def build(scalars, build_algorithm, values, **options):
    task, data = scalars
    computations = build_once(build_algorithm, task("byol"), values(**{**TRAINING, **options}))
    return computations, [data(k, [a] * n) for k, (a, n) in enumerate(zip(A, SIZES, strict=True))]


def start(computations, w, p):
    state = computations.process.initialize()
    model = Weights((np.float32(w), np.float32(w), np.float32(p)), (np.float32(0),))
    return state._replace(model=model)


def client_state(computations, **fields):
    state = computations.initial_client_state(0)
    state = tf.nest.map_structure(np.asarray, state)
    return state._replace(**fields)


def encoder(w):
    """Encoder weights with w = b."""
    return Weights((np.float32(w), np.float32(w)), (np.float32(0),))


def predictor(p):
    return Weights((np.float32(p),), ())


def known(computations, target, p, divergence, w=None):
    """A client that has taken part before."""
    return client_state(
        computations,
        rounds=np.int64(3),
        divergence=np.float32(divergence),
        target=encoder(target),
        predictor=predictor(p),
        **({} if w is None else {"encoder": encoder(w)}),
    )


def test_a_new_client_takes_everything_from_the_server(scalars):
    computations, data = build(scalars, fedu.build_fedu, fedu.FedUHyperparameters)
    new = client_state(computations)
    output = computations.process.next(start(computations, w=2.0, p=6.0), [new, new], data)
    # w: (2 + 4) / 2 and (2 + 8) / 2; p: (6 + 8) / 2 and (6 + 16) / 2; weights 1 and 3.
    np.testing.assert_allclose(output.state.model.trainable[0], (3 + 3 * 5) / 4)
    np.testing.assert_allclose(output.state.model.trainable[2], (7 + 3 * 11) / 4)
    np.testing.assert_allclose(output.state.model.non_trainable[0], (4 + 3 * 8) / 4)
    first, second = output.client_states
    # Targets start at 2 too: 0.8 * 2 + 0.2 * w.
    np.testing.assert_allclose(first.target.trainable[0], 0.8 * 2 + 0.2 * 3, rtol=1e-6)
    np.testing.assert_allclose(second.target.trainable[0], 0.8 * 2 + 0.2 * 5, rtol=1e-6)
    # w and b have moved by 1 each in the first client, by 3 in the second.
    np.testing.assert_allclose(first.divergence, 1 + 1)
    np.testing.assert_allclose(second.divergence, 9 + 9)
    assert [s.rounds for s in output.client_states] == [1, 1]
    assert output.client_metrics[1]["mean_squared_divergence"] == 9
    assert output.metrics["global_predictor"] == 1
    # A client's own model is its target network, with the moving averages of its own images.
    client_model = computations.client_weights(output.state.model, first)
    np.testing.assert_allclose(client_model.trainable[0], 0.8 * 2 + 0.2 * 3, rtol=1e-6)
    np.testing.assert_allclose(client_model.non_trainable[0], 4)
    assert output.metrics["samples"] == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("aggregate", "update", "rule"),
    [
        pytest.param(*case, marks=[pytest.mark.long] * (case not in DEFAULT))
        for case in itertools.product(
            ("online", "target"), ("online", "target", "both"), ("global", "local")
        )
    ],
)
def test_all_twelve_combinations_of_table_4(scalars, aggregate, update, rule):
    computations, data = build(
        scalars, fedu.build_fedu, fedu.FedUHyperparameters,
        aggregate=aggregate, update=update, predictor_update=rule,
    )  # fmt: skip
    local = 10.0 if update == "target" else None
    state = known(computations, target=20.0, p=30.0, divergence=0.0, w=local)
    output = computations.process.next(start(computations, w=2.0, p=6.0), [state], data[:1])
    w0 = 10.0 if update == "target" else 2.0
    target0 = 20.0 if update == "online" else 2.0
    p0 = 30.0 if rule == "local" else 6.0
    w1 = (w0 + 4) / 2
    target1 = 0.8 * target0 + 0.2 * w1
    (after,) = output.client_states
    np.testing.assert_allclose(after.target.trainable[0], target1, rtol=1e-6)
    np.testing.assert_allclose(after.predictor.trainable[0], (p0 + 8) / 2)
    sent = w1 if aggregate == "online" else target1
    np.testing.assert_allclose(output.state.model.trainable[0], sent, rtol=1e-6)
    if update == "target":
        np.testing.assert_allclose(after.encoder.trainable[0], w1)


@pytest.mark.slow
@pytest.mark.parametrize(("divergence", "expected"), [(0.39, 6.0), (0.41, 30.0)])
def test_dapu_takes_the_global_predictor_below_mu(scalars, divergence, expected):
    computations, data = build(scalars, fedu.build_fedu, fedu.FedUHyperparameters, mu=0.4)
    state = known(computations, target=0.0, p=30.0, divergence=divergence)
    output = computations.process.next(start(computations, w=2.0, p=6.0), [state], data[:1])
    np.testing.assert_allclose(output.client_states[0].predictor.trainable[0], (expected + 8) / 2)
    assert output.metrics["global_predictor"] == (expected == 6.0)


@pytest.mark.slow
def test_the_divergence_may_be_a_mean_over_parameters(scalars):
    computations, data = build(
        scalars, fedu.build_fedu, fedu.FedUHyperparameters, divergence="mean_squared"
    )
    output = computations.process.next(
        start(computations, w=2.0, p=6.0), [client_state(computations)], data[:1]
    )
    np.testing.assert_allclose(output.client_states[0].divergence, 1.0)
    assert output.client_metrics[0]["squared_divergence"] == 2


def test_the_divergence_may_be_a_mean_over_convolutions():
    """As EasyFL's `_calculate_divergence`: kernels called `conv`, without those of shortcuts."""
    model = DualEncoder("tiny", (8, 8, 1), (16, 16), (16, 16), "batch")
    specs = model.target_model.trainable_specs
    rng = np.random.default_rng(0)
    old = [rng.normal(size=spec.shape).astype(np.float32) for spec in specs]
    new = [rng.normal(size=spec.shape).astype(np.float32) for spec in specs]
    blocks = [f"stage{i}/block0/conv{j}" for i in range(3) for j in range(2)]
    names = {f"{name}/kernel" for name in ["stem", *blocks]}
    changes = {spec.name: n - o for spec, n, o in zip(specs, new, old, strict=True)}
    norms = [np.sqrt(np.sum(np.float64(changes[name]) ** 2)) for name in names]
    assert len(norms) == 7
    divergences = fedu.encoder_divergences(model, new, old)
    np.testing.assert_allclose(divergences["mean_layer_l2"], np.mean(norms), rtol=1e-5)
    squared = sum(np.sum(np.float64(change) ** 2) for change in changes.values())
    np.testing.assert_allclose(divergences["squared_l2"], squared, rtol=1e-5)
    parameters = sum(change.size for change in changes.values())
    np.testing.assert_allclose(divergences["mean_squared"], squared / parameters, rtol=1e-5)


def test_the_mean_over_convolutions_by_hand():
    """A change of one kernel alone, by hand: |(3, 4)| / 7 layers."""
    model = DualEncoder("tiny", (8, 8, 1), (16, 16), (16, 16), "batch")
    old = [np.zeros(spec.shape, np.float32) for spec in model.target_model.trainable_specs]
    new = [value.copy() for value in old]
    new[0].flat[:2] = 3, 4
    np.testing.assert_allclose(
        fedu.encoder_divergences(model, new, old)["mean_layer_l2"], 5 / 7, rtol=1e-6
    )
    # Norms and projector do not count.
    new[1][:] = new[-1][:] = 100
    np.testing.assert_allclose(
        fedu.encoder_divergences(model, new, old)["mean_layer_l2"], 5 / 7, rtol=1e-6
    )


def test_an_encoder_without_convolutions_has_no_divergence_of_convolutions(scalars):
    with pytest.raises(ValueError, match="mean_layer_l2 needs an encoder with convolutions"):
        build(scalars, fedu.build_fedu, fedu.FedUHyperparameters, divergence="mean_layer_l2")


@pytest.mark.slow
def test_a_client_whose_training_diverges_keeps_its_state_and_is_not_averaged(scalars):
    computations, data = build(
        scalars, fedu.build_fedu, fedu.FedUHyperparameters, predictor_update="local"
    )
    good = known(computations, target=0.0, p=30.0, divergence=0.0)
    bad = known(computations, target=7.0, p=np.inf, divergence=0.0)
    output = computations.process.next(start(computations, w=2.0, p=6.0), [bad, good], data)
    np.testing.assert_allclose(output.state.model.trainable[0], (2 + 8) / 2)
    assert output.client_states[0].target.trainable[0] == 7
    assert output.client_states[0].rounds == 3
    assert output.metrics["dropped_clients"] == 1
    empty = computations.process.next(start(computations, w=2.0, p=6.0), [bad], data[:1])
    assert empty.state.model.trainable[0] == 2


@pytest.mark.slow
def test_fedema_mixes_by_the_scaled_divergence(scalars):
    computations, data = build(scalars, fedema.build_fedema, fedema.FedEMAHyperparameters, tau=0.7)

    def state(rounds, scaler, w, target):
        return client_state(
            computations,
            rounds=np.int64(rounds),
            scaler=np.float32(scaler),
            online=Weights((np.float32(w), np.float32(w), np.float32(30)), (np.float32(0),)),
            target=encoder(target),
        )

    def round_of(state):
        server = start(computations, w=2.0, p=6.0)
        output = computations.process.next(server, [state], data[:1])
        return output.client_states[0], output.client_metrics[0]

    # A new client takes everything from the server.
    after, metrics = round_of(state(0, 0.0, 99.0, 99.0))
    np.testing.assert_allclose(after.online.trainable[0], (2 + 4) / 2)
    np.testing.assert_allclose(after.target.trainable[0], 0.8 * 2 + 0.2 * 3, rtol=1e-6)
    assert metrics["mu"] == 0
    # In the second round, |W_g - W_k| = sqrt(8^2 + 8^2), and mu is tau for any divergence.
    after, metrics = round_of(state(1, 0.0, 10.0, 20.0))
    distance = np.sqrt(2) * 8
    np.testing.assert_allclose(after.scaler, 0.7 / distance, rtol=1e-6)
    np.testing.assert_allclose(metrics["mu"], 0.7, rtol=1e-6)
    mixed = 0.7 * 10 + 0.3 * 2
    np.testing.assert_allclose(after.online.trainable[0], (mixed + 4) / 2, rtol=1e-6)
    np.testing.assert_allclose(after.online.trainable[2], (0.7 * 30 + 0.3 * 6 + 8) / 2, rtol=1e-6)
    np.testing.assert_allclose(
        after.target.trainable[0], 0.8 * 20 + 0.2 * (mixed + 4) / 2, rtol=1e-6
    )
    # If the server still has the client's own model (it was alone in the round before), lambda_k is
    # set in the next round.
    after, metrics = round_of(state(1, 0.0, 2.0, 20.0))
    assert (after.scaler, metrics["mu"]) == (0, 0)
    after, metrics = round_of(state(2, 0.0, 10.0, 20.0))
    np.testing.assert_allclose(after.scaler, 0.7 / distance, rtol=1e-6)
    # Afterwards lambda_k stays, and mu is at most 1.
    after, metrics = round_of(state(5, 0.01, 10.0, 20.0))
    np.testing.assert_allclose(metrics["mu"], 0.01 * distance, rtol=1e-6)
    np.testing.assert_allclose(after.scaler, 0.01)
    _, metrics = round_of(state(5, 1.0, 10.0, 20.0))
    assert metrics["mu"] == 1


@pytest.mark.parametrize(
    ("values", "options", "named"),
    [
        (fedu.FedUHyperparameters, {"aggregate": "both"}, "aggregate"),
        (fedu.FedUHyperparameters, {"update": "none"}, "update"),
        (fedu.FedUHyperparameters, {"predictor_update": "never"}, "predictor_update"),
        (fedu.FedUHyperparameters, {"divergence": "l1"}, "divergence"),
        (fedu.FedUHyperparameters, {"mu": -1.0}, "mu"),
        (fedema.FedEMAHyperparameters, {"tau": 2.0}, "tau"),
        (fedu.FedUHyperparameters, {"learning_rate_schedule": "x"}, "learning_rate_schedule"),
    ],
)
def test_hyperparameters_are_checked(values, options, named):
    with pytest.raises(ValueError, match=named):
        values(**options)
