"""Pretraining from a program, on arrays, with the reader's own model."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_ssl
from launch import api
from tff_ssl.errors import ConfigurationError

RNG = np.random.default_rng(0)
CLIENTS = {f"c{k}": RNG.integers(0, 256, (4, 16, 16, 3), np.uint8) for k in range(4)}


@pytest.mark.slow
def test_a_program_with_an_own_model(tmp_path):
    layers = [
        tf.keras.layers.Conv2D(16, 3, activation="relu", input_shape=(16, 16, 3)),
        tf.keras.layers.GlobalAveragePooling2D(),
    ]
    encoder, seen = tff_ssl.models.from_keras(tf.keras.Sequential(layers)), []
    with tff_ssl.runtime.start("in_process") as running:
        run = tff_ssl.train(
            CLIENTS, algorithm="dcco", encoder=encoder, rounds=2, seed=0,
            callback=lambda round_number, metrics: seen.append((round_number, metrics["loss"])),
            server_learning_rate=0.001, clients_per_round=2, runtime="in_process",
        )  # fmt: skip
        assert tff.framework.get_context_stack().current is running.context
    assert [number for number, _ in seen] == [1, 2]
    assert [row["loss"] for row in run.metrics] == pytest.approx(
        [loss for _, loss in seen], rel=1e-5
    )
    features = run.encoder(CLIENTS["c0"])
    assert features.shape == (4, 16)
    assert np.isfinite(features).all()
    run.save(tmp_path / "saved")
    with pytest.raises(ConfigurationError, match="already holds an encoder"):
        run.save(tmp_path / "saved")
    loaded = tff_ssl.load_run(tmp_path / "saved")
    np.testing.assert_allclose(loaded.encoder(CLIENTS["c0"]), features, atol=1e-5)
    np.testing.assert_array_equal(tff_ssl.embed(loaded.encoder, CLIENTS["c0"]), features)
    assert len(loaded.metrics) == 2


def test_clients_of_any_form_are_the_same_data():
    arrays = list(CLIENTS.values())
    of_tff = tff.simulation.datasets.TestClientData(
        {name: collections.OrderedDict(image=images) for name, images in CLIENTS.items()}
    )
    forms = [CLIENTS, arrays, [images / 255.0 for images in arrays], of_tff]
    expected = api._dataset(CLIENTS).train
    for form in forms:
        found = api._dataset(form).train
        np.testing.assert_array_equal(found.images, expected.images)
        np.testing.assert_array_equal(found.case_ids, expected.case_ids)
    labelled = api._dataset([(images, np.array([0, 1, 2, 1])) for images in arrays])
    assert labelled.class_names == ("0", "1", "2")


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        ([], "there are none"),
        ([np.zeros((2, 8, 8), np.uint8)], r"client 0: images must be \[n, height"),
        ({"a": np.full((2, 8, 8, 3), 2.0)}, "client a: floating-point images must be from 0 to 1"),
        ([np.zeros((2, 8, 8, 3), np.uint8), np.zeros((2, 9, 9, 3), np.uint8)], "one shape"),
        ([(np.zeros((2, 8, 8, 3), np.uint8), [0.5, 1.0])], "whole-number labels"),
    ],
)
def test_images_that_cannot_be(clients, words):
    with pytest.raises(ConfigurationError, match=words):
        tff_ssl.train(clients)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sever_learning_rate": 1.0}, r"did you mean server_learning_rate\?"),
        ({"server_learning_rate": "fast"}, "server_learning_rate"),
        ({"algorithm": "dco"}, "dcco"),
        ({"encoder": "tinny"}, r"did you mean tiny\?"),
        ({"rounds": 0}, "rounds"),
    ],
)
def test_settings_that_cannot_be(options, words):
    with pytest.raises(ConfigurationError, match=words):
        tff_ssl.train(CLIENTS, **options)


def test_evaluation():
    labels = np.arange(40) % 2
    images = np.zeros((40, 8, 8, 1), np.uint8) + (labels * 200)[:, None, None, None].astype(
        np.uint8
    )

    def encoder(x):
        return np.stack([x.mean((1, 2, 3)), np.ones(len(x))], 1).astype(np.float32)

    for protocol in ("linear", "knn"):
        rows = tff_ssl.evaluate(
            encoder, (images[:20], labels[:20]), (images[20:], labels[20:]), protocol
        )
        assert all(row["accuracy"] == 1.0 for row in rows)
        assert "raw_pixels" in rows[0]["baselines"]
    with pytest.raises(ConfigurationError, match="protocol must be one of"):
        tff_ssl.evaluate(encoder, (images, labels), (images, labels), "logistic")


def test_partition():
    labels = RNG.integers(0, 10, 200)
    clients = tff_ssl.partition(labels, "iid", seed=1, num_clients=10)
    assert sorted(np.concatenate(clients)) == list(range(200))
    assert len(clients) == 10
