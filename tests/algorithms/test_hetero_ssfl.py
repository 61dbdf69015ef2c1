"""Hetero-SSFL with linear networks, against plain formulas with kernels of RAD x RAD."""

import collections
import csv
import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from datasets import client_store
from datasets.image_dataset import Split
from tff_ssl.algorithms import fedbn, hetero_ssfl
from tff_ssl.kinds.protocol import RunSetting
from tff_ssl.models.dual_encoder import DualEncoder, Outputs, Weights
from tff_ssl.models.layers import ParameterSpec
from tff_ssl.simulation import cohort, training_loop
from tff_ssl.simulation.participation import Participation
from tff_ssl.templates.task import Population, Task
from tff_ssl.views import augmentation

pytestmark = pytest.mark.xdist_group("hetero_ssfl")

PIXELS = 6  # Number of pixels of an image of 2x3x1.
RAD = np.random.default_rng(0).integers(0, 255, (9, 2, 3, 1), np.uint8)
MODEL_OF_CLIENT = (0, 1, 1, 0, 1, 0, 0)
SIZES = (3, 2, 4, 3, 5, 2, 3)
BROKEN = 255  # Value of pixels whose views are NaN.
PLAIN = {
    "client_learning_rate": 0.5,
    "client_momentum": 0.0,
    "local_epochs": 1,
    "batch_size": 0,
    "rad_batch_size": 0,
    "target_momentum": 0.9,
}
ELEMENT = collections.OrderedDict(client=np.int64, example_id=np.int64, image=(np.uint8, (2, 3, 1)))


@dataclasses.dataclass(frozen=True)
class Linear(DualEncoder):
    """z = x W, p = z P; the projector gives the width of z, and the encoder is only a name."""

    @property
    def specs(self):
        width = self.projector[-1]
        specs = (ParameterSpec("w", (PIXELS, width), "zeros", True),)
        return (*specs, ParameterSpec("p", (width, width), "zeros", True)) * bool(
            self.predictor
        ) or specs

    def init(self, seed):
        rng = np.random.default_rng([seed, self.projector[-1]])
        return Weights(
            tuple(
                tf.constant(rng.normal(size=spec.shape), tf.float32)
                for spec in self.trainable_specs
            ),
            (),
        )

    def apply(self, weights, images, training):
        z = tf.matmul(tf.reshape(images, [-1, PIXELS]), weights.trainable[0])
        p = tf.matmul(z, weights.trainable[1]) if self.predictor else z
        return Outputs(z, z, p, z, ())


MODELS = (
    Linear("tiny", (2, 3, 1), (4,), (4,), "batch"),
    Linear("small", (2, 3, 1), (3,), (3,), "batch"),
)


def two_views(images, example_ids, round_number):
    x = tf.cast(images, tf.float32) / 100
    x = tf.where(tf.equal(images, BROKEN), np.float32("nan"), x)
    return x, x + 0.3 * tf.cast(round_number + 1, tf.float32) * tf.reverse(x, [1])


@functools.cache
def build(objective="byol", population=None, **options):
    population = population or Population(MODELS, MODEL_OF_CLIENT, SIZES, len(RAD))
    task = Task(
        MODELS[0], two_views, tff.types.to_type(ELEMENT), 10, objective, population=population
    )
    values = hetero_ssfl.HeteroSSFLHyperparameters(**{**PLAIN, **options})
    return hetero_ssfl.build_hetero_ssfl(task, values)


def pixels():
    """The images of each client."""
    return [
        np.random.default_rng([7, k]).integers(0, 255, (size, 2, 3, 1), np.uint8)
        for k, size in enumerate(SIZES)
    ]


def examples(images, start=0):
    return tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(
            client=np.zeros(len(images), np.int64),
            example_id=start + np.arange(len(images)),
            image=images,
        )
    )


def centred_kernel(a):
    a = np.asarray(a, np.float64)
    a = a - a.mean(0)
    return a @ a.T


def plain_cka(k, mean):
    return np.sum(k * mean) / (np.linalg.norm(k) * np.linalg.norm(mean))


def rad_inputs():
    """The images of the RAD as the models see them, float32 [n, PIXELS]."""
    return (RAD.reshape(-1, PIXELS) / 127.5 - 1).astype(np.float32)


def represented(weights):
    """Representations A of the RAD for the weights of a client."""
    w, p = weights.trainable
    return rad_inputs() @ np.asarray(w) @ np.asarray(p)


def stepped(model, state, images, stacked, mu):
    """One step of gradient descent on BYOL + mu (1 - CKA), with kernels as matrices."""
    w, p = (tf.Variable(t) for t in state.weights.trainable)
    x1, x2 = (tf.reshape(x, [-1, PIXELS]) for x in two_views(images, None, np.int64(0)))
    n = len(RAD)
    h = np.eye(n, dtype=np.float32) - 1 / n
    mean = h @ (stacked @ stacked.T) @ h

    def cosine(a, b):
        return tf.reduce_sum(tf.nn.l2_normalize(a, 1) * tf.nn.l2_normalize(b, 1), 1)

    with tf.GradientTape() as tape:
        one, two = x1 @ w @ p, x2 @ w @ p
        target = state.target.trainable[0]
        byol = tf.reduce_mean(4 - 2 * cosine(one, x2 @ target) - 2 * cosine(two, x1 @ target))
        a = rad_inputs() @ w @ p
        k = h @ (a @ tf.transpose(a)) @ h
        cka = tf.reduce_sum(k * mean) / (tf.norm(k) * tf.norm(mean))
        loss = byol + mu * (1 - cka)
    gradients = tape.gradient(loss, [w, p])
    return loss, [v - 0.5 * g for v, g in zip((w, p), gradients, strict=True)]


@pytest.mark.slow
def test_a_local_step_descends_on_the_plain_formula(worker):
    mu = 0.5
    computations = build(mu=mu)
    stacked = np.random.default_rng(1).normal(size=(len(RAD), len(RAD))).astype(np.float32)
    for number, k in ((0, 3), (1, 2)):
        architecture = computations.architectures[number]
        state = architecture.initial_client_state(5)
        images = pixels()[k]
        output = architecture.train(0, stacked, RAD, [_arrays(state)], [examples(images)])
        loss, expected = stepped(architecture.model, state, images, stacked, mu)
        (after,) = output.client_states
        assert after.rounds == 1
        for actual, weights in zip(after.weights.trainable, expected, strict=True):
            np.testing.assert_allclose(actual, weights, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(
            after.target.trainable[0],
            0.9 * state.target.trainable[0] + 0.1 * expected[0],
            rtol=1e-4, atol=1e-4,
        )  # fmt: skip
        np.testing.assert_allclose(output.metrics["loss"], loss, rtol=1e-4)
        (sent,) = output.representations
        np.testing.assert_allclose(sent, represented(after.weights), rtol=1e-4, atol=1e-4)
        # Nothing else leaves the client.
        assert [tuple(t.shape) for t in architecture.uploads] == [sent.shape]
        cka = plain_cka(centred_kernel(sent), centred_kernel(stacked))
        np.testing.assert_allclose(output.client_metrics[0]["cka"], cka, rtol=1e-4)


def rbf(a):
    """The centred RBF kernel; its width, 0.8 of the median distance, grows with the norm of A."""
    a = tf.convert_to_tensor(a)
    a = tf.math.l2_normalize(a - tf.reduce_mean(a, 0), [0, 1])
    squared = tf.reduce_sum(tf.square(a[:, None] - a[None]), 2)
    pairs = np.sort(squared.numpy()[np.triu_indices(len(a), 1)])
    h = np.eye(len(a), dtype=np.float32) - 1 / len(a)
    return h @ tf.exp(-squared / (2 * 0.8**2 * pairs[len(pairs) // 2])) @ h


@pytest.mark.slow
def test_clients_and_server_compare_rbf_kernels(worker):
    population = Population(MODELS, (0, 1), (3, 2), len(RAD))
    computations = build("byol", population, mu=0.5, kernel="rbf")
    rng = np.random.default_rng(0)
    sent = tuple(rng.normal(size=(len(RAD), d)).astype(np.float32) for d in (4, 3))
    factor = computations.aggregate(sent)
    mean = (rbf(sent[0]) + rbf(sent[1])) / 2
    np.testing.assert_allclose(factor @ factor.T, mean, atol=1e-5)
    architecture, without = (
        c.architectures[1] for c in (computations, build("byol", population, mu=0.0))
    )
    state, images = architecture.initial_client_state(5), pixels()[2]
    w, p = (tf.Variable(t) for t in state.weights.trainable)
    with tf.GradientTape() as tape:
        own = rbf(rad_inputs() @ w @ p)
        term = 0.5 * (1 - tf.reduce_sum(own * mean) / (tf.norm(own) * tf.norm(mean)))
    steps = [0.5 * g for g in tape.gradient(term, [w, p])]
    nothing = np.zeros((len(RAD), 4 + 3), np.float32)
    output, alone = (
        one.train(0, kernel, RAD, [_arrays(state)], [examples(images)])
        for one, kernel in ((architecture, factor), (without, nothing))
    )
    np.testing.assert_allclose(output.metrics["loss"], alone.metrics["loss"] + term, rtol=1e-4)
    pairs = zip(
        output.client_states[0].weights.trainable,
        alone.client_states[0].weights.trainable,
        steps,
        strict=True,
    )
    for after, other, step in pairs:
        np.testing.assert_allclose(after, other - step, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_contrastive_loss_aligns_projections(worker):
    """Without a predictor, A is the projection z; the loss is that of SimCLR with temperature 1."""
    models = tuple(dataclasses.replace(model, predictor=()) for model in MODELS)
    population = Population(models, MODEL_OF_CLIENT, SIZES, len(RAD))
    computations = build("nt_xent", population, mu=0.5, temperature=1.0)
    stacked = np.random.default_rng(1).normal(size=(len(RAD), len(RAD))).astype(np.float32)
    architecture = computations.architectures[1]
    state = architecture.initial_client_state(5)
    images = pixels()[2]
    (w,) = (tf.Variable(t) for t in state.weights.trainable)
    with tf.GradientTape() as tape:
        views = [tf.reshape(x, [-1, PIXELS]) for x in two_views(images, None, np.int64(0))]
        z = tf.nn.l2_normalize(tf.concat(views, 0) @ w, 1)
        similar = tf.exp(z @ tf.transpose(z)) * (1 - tf.eye(2 * len(images)))
        positive = tf.linalg.diag_part(tf.roll(similar, len(images), 1))
        loss = -tf.reduce_mean(tf.math.log(positive / tf.reduce_sum(similar, 1)))
        a, b = (x - tf.reduce_mean(x, 0) for x in (rad_inputs() @ w, stacked))
        k, mean = a @ tf.transpose(a), b @ tf.transpose(b)
        loss += 0.5 * (1 - tf.reduce_sum(k * mean) / (tf.norm(k) * tf.norm(mean)))
    expected = w - 0.5 * tape.gradient(loss, w)
    output = architecture.train(0, stacked, RAD, [_arrays(state)], [examples(images)])
    (after,), (sent,) = output.client_states, output.representations
    np.testing.assert_allclose(after.weights.trainable[0], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(output.metrics["loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(sent, rad_inputs() @ expected, rtol=1e-3, atol=1e-4)
    assert after.target.trainable == ()


def _arrays(state):
    return tf.nest.map_structure(np.asarray, state)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("objective", ["byol", "simsiam"])
def test_without_mu_it_is_local_training_bit_for_bit(worker, objective):
    options = {"client_momentum": 0.9, "local_epochs": 2, "batch_size": 2}
    architecture = build(objective, mu=0.0, **options).architectures[0]
    values = {k: v for k, v in {**PLAIN, **options}.items() if k != "rad_batch_size"}
    alone = fedbn.build_fedbn(
        Task(MODELS[0], two_views, tff.types.to_type(ELEMENT), 10, objective),
        fedbn.FedBNHyperparameters(
            **values, averaging="none", client_optimizer="sgd", learning_rate_schedule="constant"
        ),
    )
    clients = (0, 3)
    data = [examples(pixels()[k], start=10 * k) for k in clients]
    states = [_arrays(architecture.initial_client_state(5))] * 2
    others = [_arrays(alone.initial_client_state(5))] * 2
    server = alone.process.initialize()._replace(model=_arrays(alone.initial_model(5)))
    stacked = np.ones((len(RAD), len(RAD)), np.float32)
    for round_number in range(3):
        states = architecture.train(round_number, stacked, RAD, states, data).client_states
        output = alone.process.next(server, others, data)
        server, others = output.state, output.client_states
    for state, other in zip(states, others, strict=True):
        for actual, expected in zip(state.weights.trainable, other.own.trainable, strict=True):
            np.testing.assert_array_equal(actual, expected)
        for actual, expected in zip(state.target.trainable, other.target.trainable, strict=True):
            np.testing.assert_array_equal(actual, expected)
    assert len(states[0].target.trainable) == (objective == "byol")
    assert architecture.downloads == architecture.uploads == ()
    # With mu, training differs.
    aligned = build(objective, mu=0.5, **options).architectures[0]
    start = _arrays(aligned.initial_client_state(5))
    kernel = np.random.default_rng(0).normal(size=stacked.shape).astype(np.float32)
    moved = aligned.train(0, kernel, RAD, [start], data[:1]).client_states[0]
    first = architecture.train(0, kernel, RAD, [start], data[:1]).client_states[0]
    assert np.max(np.abs(moved.weights.trainable[0] - first.weights.trainable[0])) > 1e-4


def test_the_server_weighs_clients_alike_or_by_examples(worker):
    sizes = np.array(SIZES) / sum(SIZES)
    rng = np.random.default_rng(0)
    sent = tuple(
        rng.normal(size=(len(RAD), MODELS[m].projector[-1])).astype(np.float32)
        for m in MODEL_OF_CLIENT
    )
    population = Population(MODELS, MODEL_OF_CLIENT, SIZES, len(RAD))
    for weighting, weights in (("uniform", np.full(7, 1 / 7)), ("examples", sizes)):
        values = hetero_ssfl.HeteroSSFLHyperparameters(client_weighting=weighting)
        stacked = hetero_ssfl.build_aggregate(population, values)(sent)
        # Where clients send 25 columns of 9 images, 9 columns have the same kernel.
        assert stacked.shape == (len(RAD), len(RAD))
        mean = sum(w * centred_kernel(a) for w, a in zip(weights, sent, strict=True))
        np.testing.assert_allclose(stacked @ stacked.T, mean, rtol=1e-4, atol=1e-4)
        # No client's column is among them, and other features with the same kernels change nothing.
        columns = np.concatenate([a - a.mean(0) for a in sent], 1)
        cosines = normalized(columns).T @ normalized(stacked)
        assert np.max(np.abs(cosines)) < 0.999
        turned = tuple(
            (a @ np.linalg.qr(rng.normal(size=(a.shape[1],) * 2))[0]).astype(np.float32)
            for a in sent
        )
        again = hetero_ssfl.build_aggregate(population, values)(turned)
        np.testing.assert_allclose(again, stacked, rtol=1e-2, atol=2e-3)


def normalized(x):
    return x / np.linalg.norm(x, axis=0)


def test_fewer_columns_than_images_are_not_made_more(worker):
    population = Population(MODELS, (0, 1), (3, 2), len(RAD))
    values = hetero_ssfl.HeteroSSFLHyperparameters()
    sent = tuple(
        np.random.default_rng(d).normal(size=(len(RAD), d)).astype(np.float32) for d in (4, 3)
    )
    factor = hetero_ssfl.build_aggregate(population, values)(sent)
    assert factor.shape == (len(RAD), 4 + 3)
    mean = (centred_kernel(sent[0]) + centred_kernel(sent[1])) / 2
    np.testing.assert_allclose(factor @ factor.T, mean, rtol=1e-5, atol=1e-5)


def test_normalized_kernels_weigh_alike_and_broken_ones_not_at_all(worker):
    population = Population(MODELS, (0, 1, 1), (3, 2, 2), len(RAD))
    values = hetero_ssfl.HeteroSSFLHyperparameters(normalize_kernels=True)
    rng = np.random.default_rng(0)
    sent = [rng.normal(size=(len(RAD), d)).astype(np.float32) for d in (4, 3, 3)]
    sent[0] *= 100
    kernels = [centred_kernel(a) for a in sent]
    kernels = [k / np.linalg.norm(k) for k in kernels]
    factor = hetero_ssfl.build_aggregate(population, values)(tuple(sent))
    np.testing.assert_allclose(factor @ factor.T, sum(kernels) / 3, atol=1e-5)
    sent[1][2, 1] = np.inf
    factor = hetero_ssfl.build_aggregate(population, values)(tuple(sent))
    np.testing.assert_allclose(factor @ factor.T, (kernels[0] + kernels[2]) / 3, atol=1e-5)


@pytest.mark.long
@pytest.mark.slow
def test_byol_in_one_direction_predicts_from_the_first_view_alone(worker):
    images, losses = pixels()[0], {}
    x1, x2 = (np.reshape(x, [-1, PIXELS]) for x in two_views(images, None, np.int64(0)))
    for direction in ("one", "both"):
        architecture = build(mu=0.0, byol_direction=direction).architectures[0]
        state = _arrays(architecture.initial_client_state(5))
        kernel = np.ones((len(RAD), len(RAD)), np.float32)
        output = architecture.train(0, kernel, RAD, [state], [examples(images)])
        losses[direction] = output.metrics["loss"]
    (w, p), target = state.weights.trainable, state.target.trainable[0]
    forth, back = (
        2 - 2 * np.sum(normalized((a @ w @ p).T) * normalized((b @ target).T), 0)
        for a, b in ((x1, x2), (x2, x1))
    )
    np.testing.assert_allclose(losses["one"], np.mean(forth), rtol=1e-4)
    np.testing.assert_allclose(losses["both"], np.mean(forth + back), rtol=1e-4)


@pytest.mark.long
@pytest.mark.slow
def test_mu_grows_from_zero_in_its_warmup(worker):
    values = hetero_ssfl.HeteroSSFLHyperparameters(mu=0.5, mu_warmup_rounds=4)
    grown = [float(values.mu_of_round(tf.constant(r, tf.int64))) for r in (0, 1, 3, 4, 50)]
    assert grown == [0, 0.125, 0.375, 0.5, 0.5]
    constant = hetero_ssfl.HeteroSSFLHyperparameters(mu=0.5)
    assert float(constant.mu_of_round(tf.constant(0, tf.int64))) == 0.5
    # Half of the warm-up has half of mu, in training as well.
    kernel = np.random.default_rng(1).normal(size=(len(RAD), len(RAD))).astype(np.float32)
    models = []
    for options in ({"mu": 0.5, "mu_warmup_rounds": 2}, {"mu": 0.25}):
        architecture = build(**options).architectures[0]
        state = _arrays(architecture.initial_client_state(5))
        output = architecture.train(1, kernel, RAD, [state], [examples(pixels()[0])])
        models.append(output.client_states[0].weights.trainable)
    for one, other in zip(*models, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.fixture
def run(worker, tmp_path):
    """(folder, algorithm) -> a run of seven clients of two architectures, three in each round."""
    images = np.concatenate(pixels())
    split = Split(images, np.zeros(len(images), np.int32), np.arange(len(images)))
    clients = np.split(np.arange(len(images)), np.cumsum(SIZES)[:-1])
    client_store.write_store(tmp_path / "clients.sqlite", split, clients)
    data = client_store.StoredClientData(tmp_path / "clients.sqlite")

    def start(folder, computations):
        participation = Participation(cohort.uniform_cohorts(7, 3, seed=2), 3, 3)
        setting = RunSetting(SIZES, 6, participation, server_images=RAD)
        planned = computations.plan_run(setting)
        return planned.simulate(data.group_dataset_computation, tmp_path / folder)

    return start


def log(folder):
    with open(folder / "client_metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_all_clients_contribute_their_last_representations(run, tmp_path):
    simulated = run("run", build(mu=0.5))
    state = simulated.initialize(4)
    weights = [_arrays(simulated.encoder_weights(state, str(k))) for k in range(7)]
    np.testing.assert_array_equal(weights[0].trainable[0], weights[3].trainable[0])
    cohorts = cohort.uniform_cohorts(7, 3, seed=2)
    assert any(np.any(np.diff(cohorts(r)) < 0) for r in range(5))  # Cohorts are shuffled.
    both = [set(np.array(MODEL_OF_CLIENT)[cohorts(r)]) == {0, 1} for r in range(5)]
    assert any(both)
    differences = []
    for round_number in range(5):
        kernels = [centred_kernel(represented(w)) for w in weights]
        mean = sum(kernels) / 7
        sampled = sum(kernels[k] for k in cohorts(round_number)) / 3
        state, metrics = simulated.run_round(state, round_number)
        new = {k: _arrays(simulated.encoder_weights(state, str(k))) for k in range(7)}
        rows = log(tmp_path / "run")[-3:]
        assert [int(row["client"]) for row in rows] == cohorts(round_number).tolist()
        for row in rows:
            k = int(row["client"])
            kernel = centred_kernel(represented(new[k]))
            assert float(row["cka"]) == pytest.approx(plain_cka(kernel, mean), abs=1e-4)
            differences.append(abs(plain_cka(kernel, mean) - plain_cka(kernel, sampled)))
            assert int(row["samples"]) == SIZES[k]
        for k in set(range(7)) - set(cohorts(round_number).tolist()):
            np.testing.assert_array_equal(new[k].trainable[0], weights[k].trainable[0])
        weights = [new[k] for k in range(7)]
        losses = [float(row["loss"]) for row in rows]
        assert metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
        assert metrics["samples"] == sum(SIZES[k] for k in cohorts(round_number))
        # A client receives the factor of 9 columns, the RAD and the round's number, and sends A.
        sent = sum(9 * MODELS[MODEL_OF_CLIENT[k]].projector[-1] * 4 for k in cohorts(round_number))
        assert metrics["bytes"] == sent + 3 * (9 * 9 * 4 + 9 * PIXELS + 8)
    # If clients that are not sampled were left out, the values would differ.
    assert max(differences) > 0.01


@pytest.mark.long
@pytest.mark.slow
def test_alignment_brings_heterogeneous_clients_together(run):
    def mean_cka(folder, mu):
        simulated = run(folder, build(mu=mu, local_epochs=8))
        state, values = simulated.initialize(4), []
        for round_number in range(4):
            state, metrics = simulated.run_round(state, round_number)
            values.append(metrics["cka"])
        return np.mean(values)

    assert mean_cka("with", 2.0) > mean_cka("without", 0.0) + 0.1


@pytest.mark.slow
def test_stopped_in_any_round_and_resumed_equals_never_stopped(run, tmp_path):
    computations = build(mu=0.5)

    def loop(folder):
        return training_loop.TrainingLoop(
            output_dir=tmp_path / folder, rounds=6, checkpoint_every=2
        )

    expected = loop("whole").run(run("whole", computations), seed=4)

    class Killed(BaseException):
        pass

    simulated = run("killed", computations)
    original = simulated.run_round

    def stop(state, round_number):
        result = original(state, round_number)
        if round_number == 4:
            raise Killed  # New states and representations are written, but no checkpoint.
        return result

    simulated.run_round = stop
    with pytest.raises(Killed):
        loop("killed").run(simulated, seed=4)
    state = loop("killed").run(run("killed", computations), seed=4)
    np.testing.assert_array_equal(state.versions, expected.versions)
    assert log(tmp_path / "killed") == log(tmp_path / "whole")
    for store in ("client_states", "rad"):
        whole, killed = (
            {
                str(path.relative_to(tmp_path / folder)): path.read_bytes()
                for path in (tmp_path / folder / store).rglob("*")
                if path.is_file()
            }
            for folder in ("whole", "killed")
        )
        assert len(whole) > 7
        assert whole == killed


def test_a_client_whose_training_diverges_keeps_its_state_and_what_it_sent(worker):
    architecture = build(mu=0.5).architectures[0]
    state = _arrays(architecture.initial_client_state(5))
    good, _, _, bad, *_ = pixels()
    bad = np.where(np.arange(len(bad))[:, None, None, None] == 1, np.uint8(BROKEN), bad)
    stacked = np.random.default_rng(1).normal(size=(len(RAD), len(RAD))).astype(np.float32)
    output = architecture.train(0, stacked, RAD, [state, state], [examples(bad), examples(good)])
    kept, moved = output.client_states
    assert (kept.rounds, moved.rounds) == (0, 1)
    np.testing.assert_array_equal(kept.weights.trainable[0], state.weights.trainable[0])
    np.testing.assert_allclose(
        output.representations[0], architecture.representations(state, RAD), rtol=1e-5
    )
    assert output.metrics["dropped_clients"] == 1
    assert output.metrics["loss"] == output.client_metrics[1]["loss"]


@pytest.mark.parametrize(("layer", "width"), [("projection", 4), ("encoding", 64)])
def test_representations_may_come_from_another_layer(worker, layer, width):
    values = hetero_ssfl.HeteroSSFLHyperparameters(representation=layer)
    assert hetero_ssfl.RADEncoder(MODELS[0], values, len(RAD)).width == width


def test_batches_of_the_rad_cover_it_in_every_pass():
    def batch(step, round_number=3, size=4, rad_size=9):
        values = hetero_ssfl.HeteroSSFLHyperparameters(rad_batch_size=size)
        encoder = hetero_ssfl.RADEncoder(MODELS[0], values, rad_size)
        step, number = tf.constant(step), tf.constant(round_number, tf.int64)
        return hetero_ssfl._batch_of_rad(encoder, 0, number, step).numpy().tolist()

    for first in (0, 2):  # A pass has two batches; one of the nine images is left out.
        taken = batch(first) + batch(first + 1)
        assert len(set(taken)) == 8
    passes = {tuple(batch(step)) for step in (0, 2, 4, 6)}
    assert len(passes) == 4
    assert batch(0) == batch(0) != batch(0, round_number=4)
    assert sorted(batch(5, size=0)) == sorted(batch(0, size=20)) == list(range(9))


@pytest.mark.long
@pytest.mark.slow
def test_batch_norms_averages_follow_the_rad_too(worker):
    model = DualEncoder("tiny", (8, 8, 1), (8,), (8,), norm="batch")
    rad = np.random.default_rng(0).integers(100, 256, (12, 8, 8, 1), np.uint8)
    population = Population((model,), (0,), (6,), len(rad))
    element = collections.OrderedDict(ELEMENT, image=(np.uint8, (8, 8, 1)))

    def no_views(images, example_ids, round_number):
        return augmentation.to_float(images), augmentation.to_float(images)

    def trained(mu):
        task = Task(
            model, no_views, tff.types.to_type(element), 1, "simsiam", population=population
        )
        values = hetero_ssfl.HeteroSSFLHyperparameters(**PLAIN, mu=mu)
        architecture = hetero_ssfl.build_hetero_ssfl(task, values).architectures[0]
        state = _arrays(architecture.initial_client_state(0))
        images = np.random.default_rng(1).integers(0, 100, (6, 8, 8, 1), np.uint8)
        kernel = np.random.default_rng(2).normal(size=(12, 8)).astype(np.float32)
        after = architecture.train(0, kernel, rad, [state], [examples(images)])
        np.testing.assert_allclose(
            after.representations[0],
            architecture.representations(after.client_states[0], rad),
            rtol=1e-3, atol=1e-4,
        )  # fmt: skip
        return after.client_states[0].weights.non_trainable

    one, other = trained(0.0), trained(0.5)
    assert any(np.max(np.abs(a - b)) > 1e-3 for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"mu": -1.0}, "mu"),
        ({"mu_warmup_rounds": -1}, "mu_warmup_rounds"),
        ({"byol_direction": "back"}, "byol_direction"),
        ({"rad_batch_size": 1}, "rad_batch_size"),
        ({"representation": "logits"}, "representation"),
        ({"client_weighting": "size"}, "client_weighting"),
    ],
)
def test_hyperparameters_are_checked(options, named):
    with pytest.raises(ValueError, match=named):
        hetero_ssfl.HeteroSSFLHyperparameters(**options)


def test_an_impossible_population_is_refused():
    task = Task(MODELS[0], two_views, tff.types.to_type(ELEMENT), 10, "byol")
    with pytest.raises(ValueError, match="population"):
        hetero_ssfl.build_hetero_ssfl(task)
    same = Population((MODELS[0], MODELS[0]), (0, 1), (3, 3), 9)
    with pytest.raises(ValueError, match="same encoder: tiny, tiny"):
        build(population=same)
    with pytest.raises(ValueError, match="at least 2 images"):
        build(population=Population(MODELS, (0, 1), (3, 3), 1))
