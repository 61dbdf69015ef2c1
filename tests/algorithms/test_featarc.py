"""FeatARC's clustering and alignment on a network of scalars, and its two limits."""

import collections
import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from datasets import catalog, shift
from tests.networks import OneLayer
from tests.scalar_network import Scalars, build_once
from tff_ssl.algorithms import fedbn
from tff_ssl.algorithms.featarc import algorithm as featarc
from tff_ssl.algorithms.featarc import printed
from tff_ssl.models.dual_encoder import DualEncoder, Outputs, Weights
from tff_ssl.objectives import registry
from tff_ssl.templates.local_training import LocalStep
from tff_ssl.templates.task import Task
from tff_ssl.views import augmentation

pytestmark = pytest.mark.xdist_group("featarc")

PLAIN = {
    "client_optimizer": "sgd",
    "client_learning_rate": 0.5,
    "client_momentum": 0.0,
    "learning_rate_schedule": "constant",
    "local_epochs": 1,
    "batch_size": 0,
}
PRINTED = {
    "exclude_own": False,
    "first_cluster": "parity",
    "switch_probability": 1.0,
    "warmup_rounds": 0,
}
A, SIZES = (4, 8, 1), (1, 3, 2)


def build(scalars, builder=featarc.build_featarc, values=featarc.FeatARCHyperparameters, **options):
    task, data = scalars
    printed = PRINTED if values is featarc.FeatARCHyperparameters else {}
    given = values(**{**PLAIN, **printed, **options})
    computations = build_once(builder, task("nt_xent"), given)
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


def with_models(state, *weights):
    """The server's state with models of these w, as it would be after round 0."""
    models = tuple(model_of(w) for w in weights)
    server = featarc.Clusters(
        models, np.full(len(weights), 6, np.float32), np.zeros(len(weights), np.int64), np.int64(1)
    )
    return state._replace(model=server, round_number=np.int64(1))


@pytest.mark.slow
def test_with_one_cluster_and_no_alignment_it_equals_fedavg(scalars):
    clustered, data = build(scalars, clusters=1, lambda_align=0.0)
    averaged, _ = build(scalars, fedbn.build_fedbn, fedbn.FedBNHyperparameters)
    output, expected = run(clustered, data, 4), run(averaged, data, 4)
    assert np.array_equal(output.state.model.models[0].trainable, expected.state.model.trainable)


@pytest.mark.long
@pytest.mark.slow
def test_with_a_cluster_for_each_client_it_equals_local_training(scalars):
    clustered, data = build(scalars, clusters=3, lambda_align=0.0)
    local, _ = build(scalars, fedbn.build_fedbn, fedbn.FedBNHyperparameters, averaging="none")
    output, expected = run(clustered, data, 4), run(local, data, 4)
    for k, alone in enumerate(expected.client_states):
        assert output.client_metrics[k]["cluster"] == k
        model = output.state.model.models[k]
        np.testing.assert_allclose(model.trainable[0], alone.own.trainable[0])


@pytest.mark.slow
def test_a_client_takes_the_model_whose_features_agree_with_its_own(scalars):
    computations, data = build(scalars, clusters=2, lambda_align=0.0)
    state = computations.process.initialize()
    state = with_models(state, -3.0, 5.0)

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
    first, second = output.state.model.models
    np.testing.assert_allclose(second.trainable[0], (4.5 + 3 * 6.5) / 4, rtol=1e-6)
    np.testing.assert_allclose(first.trainable[0], (-3 + 1) / 2, rtol=1e-6)


@pytest.mark.slow
def test_a_cluster_without_a_client_keeps_its_model_whoever_was_sampled(scalars):
    computations, data = build(scalars, clusters=2, lambda_align=0.0)
    state = computations.process.initialize()
    state = with_models(state, -3.0, 5.0)
    client = new_state(computations)._replace(rounds=np.int64(2), local=model_of(9.0))
    # The third client alone: its position in the cohort does not determine its cluster.
    output = computations.process.next(state, [client], data[2:])
    assert output.state.model.models[0].trainable[0] == -3
    np.testing.assert_allclose(output.state.model.models[1].trainable[0], (5 + 1) / 2)


@pytest.mark.slow
def test_at_first_clients_are_dealt_to_the_models(scalars):
    computations, data = build(scalars, clusters=2, lambda_align=0.0)
    output = run(computations, data, 1)
    assert [m["cluster"] for m in output.client_metrics] == [0, 1, 0]
    # The same holds for a client whose first round is late, when the models differ.
    late = with_models(output.state, -3.0, 5.0)
    output = computations.process.next(late, [new_state(computations)] * 2, data[:2])
    assert [m["cluster"] for m in output.client_metrics] == [0, 1]


@pytest.mark.slow
def test_the_alignment_holds_predictions_to_the_models_features(scalars):
    values = {"clusters": 1, "local_epochs": 3}
    computations, data = build(scalars, lambda_align=100.0, **values)
    state = with_models(computations.process.initialize(), 2.0)
    client = new_state(computations)
    output = computations.process.next(state, [client], data[:1])
    aligned = output.state.model.models[0].trainable[0]
    # By hand: the cosine of (w, c) and (2, 1) is (2 w + c) / sqrt(5 (w^2 + c^2)), its derivative is
    # c (2 c - w) / (sqrt(5) (w^2 + c^2)^1.5). c is 1 for p and 2 for p+. D is minus the cosine, and
    # the term has half of each.
    w = 2.0
    for _ in range(3):
        first, second = (c * (2 * c - w) / (5**0.5 * (w**2 + c**2) ** 1.5) for c in (1, 2))
        w -= 0.5 * ((w - 4) - 100.0 * (first + second) / 2)
    np.testing.assert_allclose(aligned, w, rtol=1e-4)


@pytest.mark.slow
def test_the_evaluated_model_is_the_clusters_with_the_clients_batch_norm(scalars):
    computations, data = build(scalars, clusters=2, lambda_align=0.0)
    output = run(computations, data, 1)
    client_model = computations.client_weights(output.state.model, output.client_states[1])
    assert client_model.trainable[0] == output.state.model.models[1].trainable[0]
    assert client_model.non_trainable[0] == 8
    fresh = computations.client_weights(output.state.model, new_state(computations))
    assert fresh.trainable[0] == output.state.model.models[0].trainable[0]


def test_hyperparameters_are_checked():
    for options, named in (
        ({"clusters": 0}, "clusters"), ({"lambda_align": -1.0}, "lambda_align"),
        ({"averaging": "none"}, "averaging"), ({"switch_probability": 0.0}, "switch_probability"),
        ({"warmup_rounds": -1}, "warmup_rounds"), ({"first_cluster": "last"}, "first_cluster"),
        ({"align_features": "logits"}, "align_features"), ({"align_image": "x"}, "align_image"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=named):
            featarc.FeatARCHyperparameters(**options)
    assert dataclasses.is_dataclass(featarc.FeatARCHyperparameters)


# Four clients of two known kinds, whose pixels differ. Their loss pulls w to the pixel; between 0
# and 1, the angle of the features (w, 1) grows nearly as w does.
KINDS = (1, 1, 0, 0)
RIGHT = ([0, 0, 1, 1], [1, 1, 0, 0])


@pytest.fixture
def four(scalars):
    """(options) -> the computations of four clients of two kinds, and their examples."""
    task, data = scalars

    def start(**options):
        values = {**PLAIN, "lambda_align": 0.0, "warmup_rounds": 1, **options}
        given = featarc.FeatARCHyperparameters(**values)
        computations = build_once(featarc.build_featarc, task("nt_xent"), given)
        return computations, [data(k, [a] * 2) for k, a in enumerate(KINDS)]

    return start


def assigned(computations, clusters):
    """The states of server and clients after a round in which clients had these clusters."""
    trained = [(0.5 + a) / 2 for a in KINDS]  # A step of rate 1/2 from the common w = 1/2.
    members = [[w for w, c in zip(trained, clusters, strict=True) if c == j] for j in (0, 1)]
    models = tuple(model_of(np.mean(m) if m else 0.5) for m in members)
    weights = np.array([2 * len(m) for m in members], np.float32)
    formed = np.array([1 if m else -1 for m in members], np.int64)
    server = computations.process.initialize()._replace(
        model=featarc.Clusters(models, weights, formed, np.int64(2)), round_number=np.int64(2)
    )
    client = new_state(computations)
    return server, [
        client._replace(
            rounds=np.int64(2), cluster=np.int32(c), last_round=np.int64(1),
            weight=np.float32(2), local=model_of(w),
        )
        for c, w in zip(clusters, trained, strict=True)
    ]  # fmt: skip


def follow(computations, data, server, states, rounds, until=()):
    """The clusters of the clients in each round, and the metrics of the server.

    It ends after three rounds whose clusters are among `until`.
    """
    clusters, metrics = [], []
    for _ in range(rounds):
        before = [int(s.cluster) for s in states]
        output = computations.process.next(server, states, data)
        server, states = output.state, output.client_states
        clusters.append([int(m["cluster"]) for m in output.client_metrics])
        switched = [float(m["switched"]) for m in output.client_metrics]
        moved = zip(before, clusters[-1], strict=True)
        assert switched == [float(c >= 0 and c != new) for c, new in moved]
        metrics.append(output.metrics)
        np.testing.assert_allclose(metrics[-1]["switched"], np.mean(switched))
        if len(clusters) >= 3 and all(c in until for c in clusters[-3:]):
            break
    return clusters, metrics


@pytest.mark.slow
def test_the_printed_algorithm_keeps_clients_where_they_were_dealt(four):
    computations, data = four(**PRINTED)
    server = computations.process.initialize()
    states = [new_state(computations)] * 4
    clusters, metrics = follow(computations, data, server, states, 12)
    assert clusters == [[0, 1, 0, 1]] * 12
    assert all(m["switched"] == 0 for m in metrics)


@pytest.mark.long
@pytest.mark.slow
def test_clusters_of_four_scalar_clients_are_found_from_any_start(four):
    computations, data = four()
    for number in range(0, 16, 2):  # The other eight only exchange the names of the clusters.
        start = [number >> k & 1 for k in range(4)]
        server, states = assigned(computations, start)
        clusters, metrics = follow(computations, data, server, states, 25, until=RIGHT)
        # Once found, clusters stay.
        assert clusters[-3:] in [[right] * 3 for right in RIGHT], (start, clusters)
        if start in RIGHT:
            assert clusters == [start] * 3
            assert all(m["switched"] == 0 for m in metrics)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("start", [(0, 1, 0, 1), (0, 0, 0, 1), (1, 1, 1, 1)])
def test_clients_train_one_model_in_the_warmup_and_are_divided_by_it(four, start):
    computations, data = four(warmup_rounds=30)
    server = computations.process.initialize()
    states = [new_state(computations)._replace(cluster=np.int32(c)) for c in start]
    common, clusters = 0.0, []
    while len(clusters) < 30 and clusters[-3:] not in [[right] * 3 for right in RIGHT]:
        output = computations.process.next(server, states, data)
        server, states = output.state, output.client_states
        # All start from the common w, and a step halves the distance to their pixel.
        for a, state in zip(KINDS, states, strict=True):
            np.testing.assert_allclose(state.local.trainable[0], (common + a) / 2, rtol=1e-5)
        common = (common + np.mean(KINDS)) / 2
        clusters.append([int(s.cluster) for s in states])
        for j, model in enumerate(server.model.models):
            members = [
                s.local.trainable[0] for s, c in zip(states, clusters[-1], strict=True) if c == j
            ]
            if members:
                np.testing.assert_allclose(model.trainable[0], np.mean(members), rtol=1e-5)
    assert clusters[0] == list(start)
    assert clusters[-1] in RIGHT, clusters  # Once found, clusters stay.
    kept = computations.client_weights(server.model, states[0])
    assert kept.trainable[0] == server.model.models[clusters[-1][0]].trainable[0]


@pytest.mark.slow
def test_the_first_cluster_is_a_function_of_seed_and_client(four):
    computations, data = four()
    server, states = computations.process.initialize(), [new_state(computations)] * 4
    first = [follow(computations, data, server, states, 1)[0] for _ in range(2)]
    assert first[0] == first[1]
    client = featarc.FeatARCClient(
        computations_model(), registry.OBJECTIVES["nt_xent"], SeedOnly(3),
        featarc.FeatARCHyperparameters(lambda_align=0.0, clusters=3),
    )  # fmt: skip
    draws = [int(client.first_cluster(tf.constant(k, tf.int64))) for k in range(300)]
    assert np.all(np.abs(np.bincount(draws, minlength=3) - 100) < 30)


def turned_digits(seed, count=6, images=150):
    """Clients of as many digits each, of which every second one sees them turned by 180 degrees."""
    digits = catalog.load("digits").train
    drawn = np.random.default_rng(seed).permutation(len(digits))[: count * images]
    for k, indices in enumerate(np.split(drawn, count)):
        yield tf.data.Dataset.from_tensor_slices(
            collections.OrderedDict(
                client=np.full(images, k, np.int64),
                example_id=indices.astype(np.int64),
                image=shift.rotation(digits.images[indices], k % 2, 2),
            )
        )


@pytest.fixture(scope="module")
def turned(worker):
    """(model class) -> FeatARC's computations on digits that half of the clients see turned."""

    def two_views(images, example_ids, round_number):
        return augmentation.two_views(
            "affine", images, example_ids, seed=0, round_number=round_number
        )

    # With two local epochs, clients' ResNets differ by the noise of training nearly as much as by
    # their images: three of four starts failed when the first weights were changed by 1e-6, and all
    # four with seed 1.
    values = featarc.FeatARCHyperparameters(
        client_optimizer="adam", client_learning_rate=0.002, temperature=0.2, local_epochs=8,
        batch_size=50, learning_rate_schedule="constant", lambda_align=0.0, warmup_rounds=12,
    )  # fmt: skip

    @functools.cache
    def build(model_class):
        element = tff.types.tensorflow_to_type(next(turned_digits(0)).element_spec)
        model = model_class("tiny", (8, 8, 1), (64,))
        return featarc.build_featarc(Task(model, two_views, element, 10, "nt_xent"), values)

    return build


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_class", "start", "seed"),
    [
        (OneLayer, [0, 0, 0, 1, 1, 1], 0),
        (OneLayer, [0, 0, 1, 1, 1, 0], 0),
        (OneLayer, [0, 0, 0, 0, 0, 1], 0),
        (DualEncoder, [1, 1, 1, 1, 1, 1], 1),
    ],
)
def test_clusters_of_digits_turned_by_180_degrees_are_found_from_these_starts(
    turned, model_class, start, seed
):
    computations = turned(model_class)
    server = computations.process.initialize()
    model = tf.nest.map_structure(np.asarray, computations.initial_model(seed))
    server = server._replace(model=model)
    states = [new_state(computations)._replace(cluster=np.int32(c)) for c in start]
    right = ([0, 1] * 3, [1, 0] * 3)
    data = list(turned_digits(seed))
    clusters, _ = follow(computations, data, server, states, 18, until=right)
    assert clusters[0] == start
    assert clusters[-3:] in [[one] * 3 for one in right], clusters


class SeedOnly:
    """A training of which only the seed is read."""

    def __init__(self, seed):
        self.seed = seed


def computations_model():
    return Scalars("tiny", (1, 1, 1), (2,), (), "batch")


def test_the_mean_without_a_client_is_exact():
    rng = np.random.default_rng(0)
    contributions = rng.normal(size=(5, 7)).astype(np.float32)
    weights = rng.integers(1, 300, 5).astype(np.float32)
    clusters = np.array([0, 1, 0, 0, 2])

    def mean(which):
        return np.average(contributions[which].astype(float), axis=0, weights=weights[which])

    def as_weights(w):
        return Weights((tf.constant(w, tf.float32),), ())

    server = featarc.Clusters(
        tuple(as_weights(mean(clusters == j)) for j in range(3)),
        tf.constant([weights[clusters == j].sum() for j in range(3)], tf.float32),
        tf.constant([4, 4, 4], tf.int64),
        tf.constant(6, tf.int64),
    )

    def others_of(i, cluster, last_round):
        state = featarc.ClientState(
            tf.constant(3, tf.int64), tf.constant(cluster), tf.constant(last_round, tf.int64),
            tf.constant(weights[i]), as_weights(contributions[i]),
        )  # fmt: skip
        return featarc.without_client(server, state)

    for i, cluster in enumerate(clusters):
        others = others_of(i, int(cluster), 4)
        for j in range(3):
            members = (clusters == j) & (np.arange(5) != i)
            assert bool(others.is_valid[j]) == members.any()
            if members.any():
                np.testing.assert_allclose(
                    others.models[j].trainable[0], mean(members), rtol=1e-4, atol=1e-6
                )
        assert bool(others.is_alone) == (i in (1, 4))
    # A client that did not take part in the round of the means is in none of them.
    for model, mean_model in zip(others_of(0, 0, 3).models, server.models, strict=True):
        assert np.array_equal(model.trainable[0], mean_model.trainable[0])


@pytest.mark.parametrize(("rounds", "is_empty"), [(4, [0, 0, 0, 1]), (8, [0, 0, 1, 1])])
def test_a_cluster_is_empty_when_nobody_has_taken_it_for_a_clients_interval(rounds, is_empty):
    """After 8 rounds, a client that was in 4 of them waits for 2 rounds, on average."""

    def model(w):
        return Weights((tf.constant([w]),), ())

    # The last means of the clusters are of rounds 7, 7 and 6; nobody has taken the fourth.
    server = featarc.Clusters(
        tuple(map(model, (1.0, 2.0, 3.0, 4.0))),
        tf.constant([5.0, 6.0, 7.0, 0.0]),
        tf.constant([7, 7, 6, -1], tf.int64),
        tf.constant(8, tf.int64),
    )
    state = featarc.ClientState(
        tf.constant(rounds, tf.int64), tf.constant(0), tf.constant(7, tf.int64),
        tf.constant(2.0), model(9.0),
    )  # fmt: skip
    others = featarc.without_client(server, state)
    assert others.is_empty.numpy().tolist() == list(map(bool, is_empty))
    assert others.weights.numpy().tolist() == [3.0, 6.0, 0.0 if is_empty[2] else 7.0, 0.0]
    # A client's own cluster is never empty, however long ago it was taken.
    own = featarc.without_client(
        server, state._replace(cluster=tf.constant(2), last_round=tf.constant(6, tf.int64))
    )
    assert own.is_empty.numpy().tolist() == [False, False, False, True]
    assert own.weights[2] == 5.0


@pytest.mark.long
@pytest.mark.slow
def test_clusters_stay_where_cohorts_miss_one_of_them(four):
    computations, data = four()
    server, states = assigned(computations, RIGHT[0])
    # The clients take turns, so that each cluster is missed in some rounds.
    states = [state._replace(rounds=np.int64(1)) for state in states]
    for number in range(2, 26):
        k = number % 4
        output = computations.process.next(server, [states[k]], [data[k]])
        server, states[k] = output.state, output.client_states[0]
        assert [int(state.cluster) for state in states] == RIGHT[0]
        assert int(server.model.formed[states[k].cluster]) == number
    assert np.all(server.model.weights == 2)  # Of the last client of each cluster.


def local_step(batch):
    """A step with predictions of ones, from a model without weights."""
    predictions = (tf.ones([3, 2]), tf.ones([3, 2]))
    evaluated = registry.Evaluated(None, None, predictions, (), None)
    return LocalStep(batch, evaluated, Weights((), ()), Weights((), ()))


class Recorder:
    """A model that notes the images of its calls."""

    projector, predictor = (2,), ()

    def __init__(self, features):
        self.features, self.seen = features, None

    def apply(self, weights, images, training):
        self.seen = np.asarray(images)
        n = len(self.seen)
        h, z = tf.ones([n, self.features]), -tf.ones([n, 2])
        return Outputs(h, z, z, h, ())


@pytest.mark.parametrize("size", [(4, 6), (8, 8)])
def test_images_are_resized_only_where_they_do_not_fit_the_network(monkeypatch, size):
    monkeypatch.setattr(printed, "LocalWeights", lambda model, batch_norm: None)
    model = Recorder(2)
    model.image_shape = (4, 6, 1) if size == (4, 6) else (4, 4, 1)
    client = featarc.FeatARCClient(
        model, registry.OBJECTIVES["nt_xent"], SeedOnly(0), featarc.FeatARCHyperparameters()
    )
    images = tf.zeros([3, *size, 1], tf.uint8)
    client.features(Weights((), ()), images)
    assert model.seen.shape[1:] == model.image_shape
    x1 = tf.zeros([3, *model.image_shape])
    client.alignment_term(local_step(registry.Batch(x1, None, None, None, images=images)))
    assert model.seen.shape[1:] == model.image_shape


@pytest.mark.parametrize(("features", "layer"), [(2, "h"), (5, "z")])
@pytest.mark.parametrize("image", ["clean", "view"])
def test_the_alignments_target_is_the_encoding_of_the_clean_image_where_widths_allow(
    monkeypatch, features, layer, image
):
    monkeypatch.setattr(printed, "LocalWeights", lambda model, batch_norm: None)
    model = Recorder(features)
    options = featarc.FeatARCHyperparameters(align_image=image)
    client = featarc.FeatARCClient(model, registry.OBJECTIVES["nt_xent"], SeedOnly(0), options)
    pixels = np.random.default_rng(0).integers(0, 255, (3, 4, 4, 1), np.uint8)
    batch = registry.Batch(tf.zeros([3, 4, 4, 1]), None, None, None, images=tf.constant(pixels))
    term = client.alignment_term(local_step(batch))
    # The encoding (1, 1) agrees with the predictions, the projection (-1, -1) is opposite.
    np.testing.assert_allclose(term, np.full(3, -1.0 if layer == "h" else 1.0), rtol=1e-6)
    np.testing.assert_allclose(
        model.seen, pixels / 127.5 - 1 if image == "clean" else np.zeros((3, 4, 4, 1)), atol=1e-5
    )
    if features != 2:
        named = dataclasses.replace(options, align_features="encoding")
        with pytest.raises(ValueError, match="align_features=encoding has 5 features where"):
            featarc.FeatARCClient(model, registry.OBJECTIVES["nt_xent"], SeedOnly(0), named)
