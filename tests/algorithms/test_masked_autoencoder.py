"""The objective `mae`: its loss, centralized and federated training, and the saved encoder."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms import fedavg, fedprox
from tff_ssl.deployment import saved_model
from tff_ssl.losses import segments
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.objectives import registry
from tff_ssl.simulation import centralized
from tff_ssl.templates.task import Task
from tff_ssl.views import augmentation, patch_masks

pytestmark = pytest.mark.xdist_group("mae")

SHAPE = (8, 12, 3)
SIZES = (1, 3, 2)
N = sum(SIZES)
CLIENT = np.repeat(np.arange(len(SIZES)), SIZES)
IDS = np.array([40, 3, 17, 2**33, 5, 6])
IMAGES = np.random.default_rng(0).integers(0, 256, (N, *SHAPE), np.uint8)
MODEL = DualEncoder("vit_micro", SHAPE, decoder=True)
SGD = tff.learning.optimizers.build_sgdm(learning_rate=1.0)
RATE, SEED = 0.1, 3


def augmented(images, example_ids, round_number):
    return augmentation.two_views(
        "crop_flip", images, example_ids, seed=7, round_number=round_number
    )


def batch_of(chosen, round_number=0):
    ids = tf.constant(IDS[chosen])
    x1, x2 = augmented(tf.constant(IMAGES[chosen]), ids, round_number)
    one, number = segments.one(tf.size(ids)), tf.constant(round_number, tf.int64)
    return registry.Batch(x1, x2, one, None, ids, number, SEED)


def evaluate(weights, batch, **values):
    hyperparameters = registry.ObjectiveHyperparameters(**values)
    return registry.OBJECTIVES["mae"].evaluate(MODEL, weights, None, batch, hyperparameters)


def test_the_loss_is_the_error_on_the_patches_that_the_mask_hides():
    weights, chosen = MODEL.init(0), [0, 3, 4]
    batch = batch_of(chosen)
    evaluated = evaluate(weights, batch, mask_ratio=0.5, normalize_patches=False)
    for row, index in enumerate(chosen):
        visible = patch_masks.visible_patches(
            tf.constant(IDS[[index]]), 6, 0.5, seed=SEED, round_number=0
        ).numpy()
        assert visible.shape == (1, 3)
        image = batch.x1[row : row + 1]
        predicted = MODEL.reconstruct(weights, image, visible).patches.numpy()[0]
        pixels = image.numpy()[0].reshape(2, 4, 3, 4, 3).transpose(0, 2, 1, 3, 4).reshape(6, 48)
        hidden = np.setdiff1d(np.arange(6), visible)
        expected = np.mean((predicted[hidden] - pixels[hidden]) ** 2)
        assert float(evaluated.losses[row]) == pytest.approx(float(expected), rel=1e-4)
    assert evaluated.z.shape == (3, MODEL.features)


def test_the_loss_of_an_example_does_not_depend_on_its_batch():
    weights = MODEL.init(0)
    together = evaluate(weights, batch_of(list(range(N)))).losses.numpy()
    mixed = evaluate(weights, batch_of([4, 1])).losses.numpy()
    np.testing.assert_allclose(mixed, together[[4, 1]], rtol=1e-4)
    later = evaluate(weights, batch_of([4, 1])._replace(pass_number=tf.constant(1, tf.int64)))
    assert np.all(np.abs(later.losses - mixed) > 1e-4)  # The mask is another one.


def test_the_gradient_reaches_all_weights():
    weights = MODEL.init(0)
    with tf.GradientTape() as tape:
        tape.watch(weights.trainable)
        loss = tf.reduce_mean(evaluate(weights, batch_of(list(range(N)))).losses)
    gradient = tape.gradient(loss, weights.trainable)
    for spec, g in zip(MODEL.trainable_specs, gradient, strict=True):
        assert np.linalg.norm(g) > 1e-4, spec.name


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.5])
def test_an_impossible_mask_ratio_is_refused(ratio):
    with pytest.raises(ValueError, match="mask_ratio"):
        registry.ObjectiveHyperparameters(mask_ratio=ratio)


# --- Centralized ----------------------------------------------------------------------------------


def centrally(two_views=augmented, seed=SEED, **values):
    hyperparameters = centralized.CentralizedHyperparameters(**values)
    return centralized.Centralized(
        "mae", MODEL, two_views, IMAGES, IDS, lambda step: np.arange(N), 30, hyperparameters,
        seed=seed,
    )  # fmt: skip


def unaugmented(images, example_ids, round_number):
    return augmentation.to_float(images), augmentation.to_float(images)


@pytest.mark.long
@pytest.mark.slow
def test_the_loss_falls():
    run = centrally(unaugmented, optimizer="adamw", learning_rate=2e-3, weight_decay=0.05)
    state, losses = run.initialize(0), []
    for step in range(30):
        state, metrics = run.run_round(state, step)
        losses.append(metrics["loss"])
    assert np.mean(losses[:3]) > 1.0  # With normalized targets, predictions of 0 give 1.
    assert np.mean(losses[-3:]) < 0.8 * np.mean(losses[:3])
    assert metrics["encoding_std"] > 0.01


@pytest.mark.slow
def test_weight_decay_shrinks_weights():
    norms = []
    for decay in (0.0, 1.0):
        run = centrally(unaugmented, optimizer="adamw", learning_rate=0.01, weight_decay=decay)
        state, _ = run.run_round(run.initialize(0), 0)
        norms.append(float(tf.linalg.global_norm(state.weights.trainable)))
    assert norms[1] < 0.995 * norms[0]


@pytest.mark.parametrize("bad", [{"weight_decay": -1.0}, {"weight_decay": 1.0}])
def test_impossible_weight_decay_is_refused(bad):
    with pytest.raises(ValueError, match="weight_decay"):  # Adam, the default, accepts none.
        centrally(**bad)


# --- Federated ------------------------------------------------------------------------------------


def build(builder=fedavg.build_fedavg, values=fedavg.FedAvgHyperparameters, **others):
    element = collections.OrderedDict(client=np.int64, example_id=np.int64, image=(np.uint8, SHAPE))
    task = Task(MODEL, augmented, tff.types.to_type(element), 10, "mae", seed=SEED)
    common = {"client_learning_rate": RATE, "micro_batch_size": 2, "local_epochs": 1,
              "batch_size": 0}  # fmt: skip
    return builder(task, values(**{**common, **others}), server_optimizer=SGD)


def deltas_of(built, groups):
    """(model delta of a round, its metrics)."""
    trainable = tuple(w.numpy() for w in built.initial_weights(0).trainable)
    initial = tff.learning.models.ModelWeights(trainable, ())
    state = built.process.set_model_weights(built.process.initialize(), initial)
    data = []
    for clients in groups:
        chosen = np.flatnonzero(np.isin(CLIENT, clients))
        columns = collections.OrderedDict(
            client=CLIENT[chosen], example_id=IDS[chosen], image=IMAGES[chosen]
        )
        data.append(tf.data.Dataset.from_tensor_slices(columns))
    output = built.process.next(state, data)
    after = output.state.global_model_weights.trainable
    deltas = [w - a for w, a in zip(trainable, after, strict=True)]
    return deltas, output.metrics["client_work"]


def assert_close(some, others, tolerance):
    scale = float(tf.linalg.global_norm(others))
    assert scale > 1e-3
    for a, b in zip(some, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)


EACH, FOLDED = [(0,), (1,), (2,)], [(0, 1, 2)]


@pytest.mark.slow
def test_a_round_of_one_step_is_the_centralized_step_folded_or_not(worker):
    weights = MODEL.init(0)
    with tf.GradientTape() as tape:
        tape.watch(weights.trainable)
        loss = tf.reduce_mean(evaluate(weights, batch_of(list(range(N)))).losses)
    expected = [RATE * g for g in tape.gradient(loss, weights.trainable)]
    built = build()
    for groups in (EACH, [(0, 2), (1,)], FOLDED):
        deltas, metrics = deltas_of(built, groups)
        assert_close(deltas, expected, 2e-5)
        assert metrics["loss"] == pytest.approx(float(loss), rel=1e-4)
    central = centrally(optimizer="sgd", learning_rate=RATE, momentum=0.0)
    state, metrics = central.run_round(central.initialize(0), 0)
    after = zip(weights.trainable, state.weights.trainable, strict=True)
    assert_close([w - a for w, a in after], expected, 2e-5)
    assert metrics["loss"] == pytest.approx(float(loss), rel=1e-5)


@pytest.mark.long
@pytest.mark.slow
def test_several_steps_have_new_masks_and_equal_a_plain_loop_folded_or_not(worker):
    expected = [0.0] * len(MODEL.trainable_specs)
    for k, size in enumerate(SIZES):
        weights = initial = MODEL.init(0).trainable
        for step in range(2):
            with tf.GradientTape() as tape:
                tape.watch(weights)
                batch = batch_of(np.flatnonzero(k == CLIENT), step)
                loss = tf.reduce_mean(evaluate(Weights(weights, ()), batch).losses)
                pull = [tf.reduce_sum((w - v) ** 2) for w, v in zip(weights, initial, strict=True)]
                loss += 0.5 / 2 * tf.add_n(pull)
            gradient = tape.gradient(loss, weights)
            weights = tuple(w - RATE * g for w, g in zip(weights, gradient, strict=True))
        moved = zip(expected, weights, initial, strict=True)
        expected = [e + size / N * (v - w) for e, w, v in moved]
    built = build(fedprox.build_fedprox, fedprox.FedProxHyperparameters, local_steps=2, mu=0.5)
    for groups in (EACH, FOLDED):
        assert_close(deltas_of(built, groups)[0], expected, 2e-4)


@pytest.mark.long
@pytest.mark.slow
def test_clients_train_with_adamw_and_weight_decay(worker):
    common = {"client_optimizer": "adamw", "client_momentum": 0.9, "client_learning_rate": 0.01}
    plain, _ = deltas_of(build(**common), FOLDED)
    decayed, _ = deltas_of(build(**common, client_weight_decay=0.5), FOLDED)
    # A step of AdamW also subtracts learning rate * decay * weight.
    expected = [0.01 * 0.5 * w for w in MODEL.init(0).trainable]
    assert_close([d - p for d, p in zip(decayed, plain, strict=True)], expected, 1e-3)


def test_models_and_values_that_do_not_fit_are_refused():
    element = tff.types.to_type(collections.OrderedDict(example_id=np.int64))
    no_decoder = DualEncoder("vit_micro", SHAPE, projector=(16, 8))
    with pytest.raises(ValueError, match="--objective=mae needs a ViT"):
        fedavg.build_fedavg(Task(no_decoder, augmented, element, 10, "mae"))
    with pytest.raises(ValueError, match="client_weight_decay"):
        fedavg.FedAvgHyperparameters(client_weight_decay=-1.0)


# --- The saved encoder ----------------------------------------------------------------------------


def test_the_saved_encoder_sees_whole_images_and_has_no_decoder(tmp_path):
    weights = MODEL.init(1)
    saved_model.save_encoder(tmp_path / "encoder", MODEL, weights, SHAPE, view_size=None)
    loaded = saved_model.load_encoder(tmp_path / "encoder")
    x = augmentation.to_float(tf.constant(IMAGES))
    expected = MODEL.apply(weights, x, training=False).h
    np.testing.assert_allclose(loaded(tf.constant(IMAGES)), expected, rtol=1e-4, atol=1e-5)
    encoder = DualEncoder("vit_micro", SHAPE)
    assert [w.shape for w in loaded.weights.trainable] == [s.shape for s in encoder.trainable_specs]
