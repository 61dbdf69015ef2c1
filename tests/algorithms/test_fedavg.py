"""FedAvg and FedProx against local training in plain TensorFlow, client by client."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import networks
from tff_ssl.algorithms import fedavg, fedprox
from tff_ssl.losses import cco, cosine, segments, vicreg
from tff_ssl.losses.nt_xent import nt_xent
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.objectives.statistics import STATISTICS_LOSSES, statistics_of_batch
from tff_ssl.templates.task import Task
from tff_ssl.views import augmentation

pytestmark = pytest.mark.xdist_group("fedavg")

SHAPE = (8, 8, 3)
# No client has two examples: correlations would be 1 or -1, and the gradient only rounding.
SIZES = (4, 5, 6, 5)
N = sum(SIZES)
CLIENT = np.repeat(np.arange(len(SIZES)), SIZES)
IMAGES = np.random.default_rng(0).integers(0, 256, (N, *SHAPE), np.uint8)
LABELS = np.random.default_rng(1).integers(0, 3, N).astype(np.int32)
SGD = tff.learning.optimizers.build_sgdm(learning_rate=1.0)
RATE = 0.1
COMMON = {
    "client_learning_rate": RATE, "micro_batch_size": 6, "local_epochs": 1, "batch_size": 0,
}  # fmt: skip
OBJECTIVES = ("nt_xent", "cco", "vicreg", "byol", "simsiam", "supervised")
DEFAULT = ("nt_xent", "byol", "supervised")  # One view's pair, a target network, labels.


def augmented(images, example_ids, round_number):
    return augmentation.two_views("affine", images, example_ids, seed=7, round_number=round_number)


# Class of the network and its views, by name.
NETWORKS = {
    "one layer": (networks.OneLayer, networks.two_views),
    "resnet": (DualEncoder, augmented),
}


def model_of(objective, network="one layer"):
    model_class, _ = NETWORKS[network]
    if objective == "supervised":
        return model_class("tiny", SHAPE, classes=3)
    predictor = (64, 16) if objective in ("byol", "simsiam") else ()
    return model_class("tiny", SHAPE, projector=(64, 16), predictor=predictor)


def task_of(objective, network="one layer"):
    element = collections.OrderedDict(client=np.int64, example_id=np.int64, image=(np.uint8, SHAPE))
    if objective == "supervised":
        element["label"] = np.int32
    model, (_, two_views) = model_of(objective, network), NETWORKS[network]
    return Task(model, two_views, tff.types.to_type(element), 10, objective, seed=3)


def build(
    objective,
    builder=fedavg.build_fedavg,
    values=fedavg.FedAvgHyperparameters,
    network="one layer",
    **others,
):
    values = values(**{**COMMON, **others})
    return builder(task_of(objective, network), values, server_optimizer=SGD)


def dataset(objective, *clients):
    """The examples of one or more clients, as one client's or group's data."""
    chosen = np.flatnonzero(np.isin(CLIENT, clients))
    columns = collections.OrderedDict(
        client=CLIENT[chosen].astype(np.int64),
        example_id=chosen.astype(np.int64),
        image=IMAGES[chosen],
    )
    if objective == "supervised":
        columns["label"] = LABELS[chosen]
    return tf.data.Dataset.from_tensor_slices(columns)


def initial_state(built, seed=0):
    weights = built.initial_weights(seed)
    return built.process.set_model_weights(
        built.process.initialize(),
        tff.learning.models.ModelWeights(
            tuple(w.numpy() for w in weights.trainable),
            tuple(w.numpy() for w in weights.non_trainable),
        ),
    )


def run(built, objective, groups, rounds=1, seed=0):
    state = initial_state(built, seed)
    for _ in range(rounds):
        output = built.process.next(state, [dataset(objective, *group) for group in groups])
        state = output.state
    return output


EACH = [(0,), (1,), (2,), (3,)]


def client_loss(objective, weights, target, indices, round_number, network="one layer"):
    """One client's loss from its definition, without the forms for folded groups."""
    model, (_, two_views) = model_of(objective, network), NETWORKS[network]
    x1, x2 = two_views(
        tf.constant(IMAGES[indices]), tf.constant(indices, tf.int64), tf.constant(round_number)
    )
    one, two = (model.apply(Weights(weights, ()), x, training=True) for x in (x1, x2))
    if objective == "supervised":
        log = tf.nn.log_softmax(one.logits)
        return -tf.reduce_mean(tf.gather(log, LABELS[indices], batch_dims=1))
    if objective == "cco":
        return cco.cco(one.z, two.z, 20.0).loss
    if objective == "vicreg":
        statistics = statistics_of_batch(STATISTICS_LOSSES["vicreg"], one.z, two.z)
        return vicreg.vicreg_from_statistics(statistics).loss
    if objective == "nt_xent":
        return tf.reduce_mean(nt_xent(one.z, two.z, segments.one(len(indices)), 0.1))
    if objective == "simsiam":
        return tf.reduce_mean(cosine.simsiam(one.p, two.p, one.z, two.z))
    online = without_predictor(model)
    t1, t2 = (online.apply(Weights(target, ()), x, training=True) for x in (x1, x2))
    return tf.reduce_mean(cosine.byol(one.p, two.p, t1.z, t2.z))


def without_predictor(model):
    return dataclasses.replace(model, predictor=())


def local_training(
    objective, weights, client, steps=1, mu=0.0, target_momentum=None, network="one layer"
):
    """(delta, mean loss) of plain gradient descent on all of a client's examples."""
    indices = np.flatnonzero(client == CLIENT)
    initial = weights = tuple(tf.constant(w) for w in weights)
    # The weights of the predictor are the last ones.
    target = weights[: len(without_predictor(model_of(objective, network)).trainable_specs)]
    losses = []
    for step in range(steps):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = client_loss(objective, weights, target, indices, np.int64(step), network)
            loss += (
                mu
                / 2
                * sum(
                    tf.reduce_sum(tf.square(w - w0)) for w, w0 in zip(weights, initial, strict=True)
                )
            )
        gradient = tape.gradient(loss, weights, unconnected_gradients="zero")
        weights = tuple(w - RATE * g for w, g in zip(weights, gradient, strict=True))
        if target_momentum is not None:
            target = tuple(
                target_momentum * t + (1 - target_momentum) * w
                for t, w in zip(target, weights, strict=False)
            )
        losses.append(float(loss))
    return [w0 - w for w0, w in zip(initial, weights, strict=True)], np.mean(losses)


def assert_mean_of(output, state, parts, shares, tolerance=2e-5):
    deltas = [
        sum(s * np.asarray(part[0][i]) for s, part in zip(shares, parts, strict=True))
        for i in range(len(parts[0][0]))
    ]
    scale = float(tf.linalg.global_norm(deltas))
    assert scale > 1e-3
    after = output.state.global_model_weights.trainable
    for before, a, delta in zip(state.global_model_weights.trainable, after, deltas, strict=True):
        np.testing.assert_allclose(before - a, delta, rtol=0, atol=tolerance * scale)
    loss = sum(s * part[1] for s, part in zip(shares, parts, strict=True))
    assert output.metrics["client_work"]["loss"] == pytest.approx(loss, rel=1e-3)


BY_EXAMPLES = np.array(SIZES) / N


@pytest.mark.parametrize(
    "objective",
    [pytest.param(name, marks=[pytest.mark.long] * (name not in DEFAULT)) for name in OBJECTIVES],
)
def test_a_folded_round_of_one_step_is_the_mean_of_the_clients_own_steps(worker, objective):
    built = build(objective)
    state = initial_state(built)
    weights = state.global_model_weights.trainable
    parts = [local_training(objective, weights, k) for k in range(len(SIZES))]
    folded = run(built, objective, [(0, 1, 2, 3)])
    assert_mean_of(folded, state, parts, BY_EXAMPLES)
    assert folded.metrics["client_work"]["samples"] == N


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("objective", ["cco", "byol"])
def test_one_step_folded_in_any_way_equals_unfolded(worker, objective):
    built = build(objective)
    unfolded = run(built, objective, EACH)
    state = initial_state(built)
    parts = [
        local_training(objective, state.global_model_weights.trainable, k)
        for k in range(len(SIZES))
    ]
    assert_mean_of(unfolded, state, parts, BY_EXAMPLES)
    assert_mean_of(run(built, objective, [(0, 2), (1, 3)]), state, parts, BY_EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "network"),
    [
        pytest.param("nt_xent", "resnet", marks=pytest.mark.long),
        ("nt_xent", "one layer"),
        ("byol", "one layer"),
    ],
)
def test_several_steps_equal_a_plain_loop_folded_or_not(worker, objective, network):
    built = build(objective, network=network, local_steps=3, target="local", target_momentum=0.5)
    state = initial_state(built)
    weights = state.global_model_weights.trainable
    momentum = 0.5 if objective == "byol" else None
    parts = [
        local_training(objective, weights, k, 3, target_momentum=momentum, network=network)
        for k in range(len(SIZES))
    ]
    for groups in (EACH, [(0, 1, 2, 3)]):
        assert_mean_of(run(built, objective, groups), state, parts, BY_EXAMPLES, 2e-4)


@pytest.mark.long
@pytest.mark.slow
def test_uniform_weights(worker):
    for steps in (0, 2):  # One step, and several steps.
        built = build("nt_xent", client_weighting="uniform", local_steps=steps)
        state = initial_state(built)
        weights = state.global_model_weights.trainable
        parts = [local_training("nt_xent", weights, k, steps=steps or 1) for k in range(4)]
        assert_mean_of(
            run(built, "nt_xent", [(0, 1), (2, 3)]), state, parts, np.full(4, 0.25), 2e-4
        )


@pytest.mark.slow
def test_fedprox_adds_the_gradient_of_its_term(worker):
    values = fedprox.FedProxHyperparameters
    built = build("nt_xent", fedprox.build_fedprox, values, local_steps=3, mu=0.7)
    state = initial_state(built)
    weights = state.global_model_weights.trainable
    parts = [local_training("nt_xent", weights, k, steps=3, mu=0.7) for k in range(4)]
    output = run(built, "nt_xent", [(0, 1, 2, 3)])
    deltas = sum(s * parts[k][0][0] for k, s in enumerate(BY_EXAMPLES))
    after = output.state.global_model_weights.trainable[0]
    np.testing.assert_allclose(weights[0] - after, deltas, atol=1e-5)
    plain = [local_training("nt_xent", weights, k, steps=3)[0][0] for k in range(4)]
    without = sum(s * delta for delta, s in zip(plain, BY_EXAMPLES, strict=True))
    assert np.abs(without - deltas).max() > 1e-3  # The term has an effect.


@pytest.mark.slow
def test_the_servers_target_network_is_a_moving_average_over_rounds(worker):
    built = build("byol", target_momentum=0.8)
    first = initial_state(built)
    expected = [np.asarray(w) for w in first.global_model_weights.non_trainable]
    for before, w in zip(expected, first.global_model_weights.trainable, strict=False):
        np.testing.assert_array_equal(before, w)
    state = first
    for _ in range(2):
        state = built.process.next(state, [dataset("byol", 0, 1, 2, 3)]).state
        online = state.global_model_weights.trainable[: len(expected)]
        expected = [0.8 * t + 0.2 * w for t, w in zip(expected, online, strict=True)]
    for t, e in zip(state.global_model_weights.non_trainable, expected, strict=True):
        np.testing.assert_allclose(t, e, atol=1e-6)
    assert len(state.global_model_weights.non_trainable) == len(online)
    # The local variant sends no target network.
    local = build("byol", target="local")
    assert initial_state(local).global_model_weights.non_trainable == ()


@pytest.mark.long
@pytest.mark.slow
def test_epochs_deal_all_examples_into_batches(worker):
    # With a learning rate of nearly 0, the mean loss of an epoch is the mean over its batches of 2.
    # In a supervised objective every example counts once if all batches have equal sizes.
    built = build("supervised", local_epochs=2, batch_size=2, client_learning_rate=1e-6)
    output = run(built, "supervised", [(2,)])
    weights = initial_state(built).global_model_weights.trainable
    indices = np.flatnonzero(CLIENT == 2)
    losses = [
        float(client_loss("supervised", tuple(map(tf.constant, weights)), (), indices, np.int64(e)))
        for e in range(2)
    ]
    assert output.metrics["client_work"]["loss"] == pytest.approx(np.mean(losses), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["adam", *(pytest.param(name, marks=pytest.mark.long) for name in ("lars", "sgd"))]
)
def test_any_client_optimizer_starts_anew_with_each_client(worker, name):
    built = build("nt_xent", client_optimizer=name, client_momentum=0.9, local_steps=2)
    alone = run(built, "nt_xent", EACH).state.global_model_weights.trainable
    folded = run(built, "nt_xent", [(3, 1), (0, 2)]).state.global_model_weights.trainable
    start = initial_state(built).global_model_weights.trainable
    scale = float(tf.linalg.global_norm([a - s for a, s in zip(alone, start, strict=True)]))
    for a, b in zip(alone, folded, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * scale)


@pytest.mark.long
@pytest.mark.slow
def test_a_client_without_a_finite_update_is_dropped_and_counted(worker):
    def spoiled(images, example_ids, round_number):
        # The first example of client 1.
        bad = tf.reshape(tf.equal(example_ids, SIZES[0]), [-1, 1, 1, 1])
        return tuple(
            tf.where(bad, tf.constant(np.nan, tf.float32), x)
            for x in networks.two_views(images, example_ids, round_number)
        )

    for steps in (0, 2):
        values = fedavg.FedAvgHyperparameters(**COMMON, local_steps=steps)
        built = fedavg.build_fedavg(task_of("nt_xent")._replace(two_views=spoiled), values, SGD)
        output = run(built, "nt_xent", EACH)
        assert output.metrics["client_work"]["dropped_clients"] == 1
        state = initial_state(built)
        weights = state.global_model_weights.trainable
        parts = [local_training("nt_xent", weights, k, steps=steps or 1) for k in (0, 2, 3)]
        sound = BY_EXAMPLES[[0, 2, 3]]
        assert_mean_of(output, state, parts, sound / sound.sum(), 2e-4)


def test_models_that_do_not_fit_are_refused():
    no_predictor = task_of("byol")._replace(model=DualEncoder("tiny", SHAPE, (16, 8)))
    batch_norm = task_of("nt_xent")._replace(
        model=DualEncoder("tiny", SHAPE, (16, 8), norm="batch")
    )
    no_projector = task_of("nt_xent")._replace(model=DualEncoder("tiny", SHAPE))
    no_classes = task_of("supervised")._replace(model=DualEncoder("tiny", SHAPE, (16, 8)))
    for task, named in (
        (no_predictor, "--predictor"),
        (batch_norm, "--norm=group"),
        (no_projector, "--projector"),
        (no_classes, "labels"),
    ):
        with pytest.raises(ValueError, match=named):
            fedavg.build_fedavg(task)


@pytest.mark.parametrize(
    "bad",
    [
        {"client_optimizer": "nosuch"}, {"client_weighting": "nosuch"}, {"target": "nosuch"},
        {"client_learning_rate": 0.0}, {"target_momentum": 1.5}, {"local_epochs": 0},
        {"batch_size": -1}, {"micro_batch_size": 0}, {"temperature": 0.0},
        {"server_optimizer": "nosuch"},
    ],
)  # fmt: skip
def test_impossible_hyperparameters_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        fedavg.FedAvgHyperparameters(**bad)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "others"), [("byol", {}), ("byol", {"target": "local", "batch_size": 2})]
)
def test_frozen_stages_stay_and_the_others_take_the_step_that_they_take_without(objective, others):
    after = {}
    for stages in (0, 1):
        model = dataclasses.replace(model_of(objective, "resnet"), frozen_stages=stages)
        task = task_of(objective, "resnet")._replace(model=model)
        values = fedavg.FedAvgHyperparameters(**{**COMMON, **others})
        built = fedavg.build_fedavg(task, values, server_optimizer=SGD)
        state = run(built, objective, EACH[:2]).state
        specs = (*model.trainable_specs, *model.non_trainable_specs)
        found = built.encoder_weights(state)
        names = [spec.name for spec in specs]
        after[stages] = dict(zip(names, (*found.trainable, *found.non_trainable), strict=True))
    fixed = {spec.name for spec in model.non_trainable_specs}
    start = dict(zip(names, (*model.init(0).trainable, *model.init(0).non_trainable), strict=True))
    assert 0 < len(fixed) < len(names)
    for name in names:
        if name in fixed:
            np.testing.assert_array_equal(after[1][name], start[name])
            assert np.abs(after[0][name] - start[name]).max() > 0
        elif not others:  # A single step: its gradient is that of the whole network.
            np.testing.assert_allclose(after[1][name], after[0][name], atol=1e-5)
