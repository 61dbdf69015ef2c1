"""Pretraining from a program, on arrays, with the reader's own model."""

import collections
import errno
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_ssl
from datasets import partition
from datasets.errors import DatasetError
from datasets.image_dataset import NO_LABEL
from launch import api, evaluate, export, visualize
from launch.options import algorithm, command_line, encoders, keywords
from launch.options.script_configs import EvaluateConfig, VisualizeConfig
from launch.outputs import run_folder
from tff_ssl.deployment import encoder_weights
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "batch_norm"),
    [("fedbn", "local"), ("fedbn", "global"), ("gossip", "local"), ("dfedavg", "local")],
)
def test_own_models_with_batch_norm_are_trained(algorithm, batch_norm):
    # Keras chooses other operations if it is first called inside the graph of a computation.
    layers = [
        tf.keras.layers.Conv2D(16, 3, input_shape=(16, 16, 3)),
        tf.keras.layers.BatchNormalization(),
        tf.keras.layers.GlobalAveragePooling2D(),
    ]
    encoder = tff_ssl.models.from_keras(tf.keras.Sequential(layers), batch_norm)
    kept = {} if algorithm == "fedbn" else {"batch_norm": "local"}
    run = tff_ssl.train(
        CLIENTS, algorithm, encoder, 2, runtime="in_process", views="flip", projector=(32, 16),
        objective="nt_xent", client_learning_rate=0.01, **kept,
    )  # fmt: skip
    assert np.isfinite([row["loss"] for row in run.metrics]).all()
    changed = run.encoder(CLIENTS["c0"]) - tff_ssl.embed(
        lambda x: encoder.apply(encoder.init((16, 16, 3), 0), x / 127.5 - 1, False)[0].numpy(),
        CLIENTS["c0"].astype(np.float32),
    )
    assert np.abs(changed).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["gossip", "denav"])
def test_algorithms_without_a_server_train_without_options(algorithm):
    model = tf.keras.Sequential([
        tf.keras.layers.Conv2D(16, 3, input_shape=(16, 16, 3)),
        tf.keras.layers.GlobalAveragePooling2D(),
    ])  # fmt: skip
    run = tff_ssl.train(CLIENTS, algorithm, model, 1, runtime="in_process", views="flip")
    assert np.isfinite(run.metrics[0]["loss"])


def test_mistakes_in_a_program():
    for options, message in (
        ({"algorithm": "fedAvg"}, "did you mean 'fedavg'"),
        ({"objective": "mae"}, "needs a vision transformer, and --encoder=tiny is none"),
        ({"projector": (3, 8)}, "^--encoder, --projector, --predictor: hidden widths"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            tff_ssl.train(CLIENTS, **({"algorithm": "fedavg", "rounds": 1} | options))
    with pytest.raises(ConfigurationError, match="clients is no setting of a partition; alpha"):
        tff_ssl.partition([0, 1], clients=3)
    with pytest.raises(ConfigurationError, match=r"^labels: .*whole-number labels"):
        tff_ssl.partition([0.5, 1.0])


def flags_of(cls, script, *flags):
    return command_line.parse(cls, script, [script, *flags])[0]


@pytest.mark.slow
def test_scripts_read_a_saved_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # Results of a program may be beside it.
    tff_ssl.train(CLIENTS, rounds=1, folder="run", encoder="tiny").save("saved")
    flags = run_folder.read_flags(tmp_path / "saved")
    assert (flags["dataset"], flags["data_dir"]) == ("arrays", None)
    capsys.readouterr()
    formats = ["--run=saved", "--format=tflite,keras,release", "--licence=cc0-1.0"]
    export.main(flags_of(export.ExportConfig, "export", *formats))
    printed = capsys.readouterr().out
    assert "note: the images of this run were arrays of a program: features are compared" in printed
    assert "there is no int8 file" in printed
    assert {path.name for path in (tmp_path / "saved" / "export").iterdir()} == {
        "encoder_float32.tflite", "encoder_keras", "export.json", "release",
    }  # fmt: skip
    rows = json.loads((tmp_path / "saved" / "export" / "export.json").read_text())
    assert [row["probe"] for row in rows] == [[]] * 4
    assert all(row["largest_difference"] < 1e-4 < row["feature_std"] for row in rows)
    assert "None" not in (tmp_path / "saved" / "export" / "release" / "MODEL_CARD.md").read_text()
    for main, cls, script in (
        (evaluate.main, EvaluateConfig, "evaluate"),
        (visualize.main, VisualizeConfig, "visualize"),
    ):
        with pytest.raises(
            DatasetError, match=r"were arrays of a program.* --dataset and --data_d"
        ):
            main(flags_of(cls, script, "--run=saved"))
    own = ["--run=saved", "--dataset=npz", f"--data_dir={tmp_path}/own.npz"]
    labels = np.arange(40) % 2
    np.savez(tmp_path / "own.npz", images=RNG.integers(0, 256, (40, 16, 16, 3)), labels=labels)
    evaluate.main(flags_of(EvaluateConfig, "evaluate", *own, "--protocol=knn"))
    visualize.main(flags_of(VisualizeConfig, "visualize", *own))
    assert (tmp_path / "saved" / "run.html").exists()


# One round takes a second; what takes a minute for each model is reading the graphs.
@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "algorithm"),
    [("MobileNetV3Small", algorithm) for algorithm in ("dcco", "fedavg", "fedu", "gossip")]
    + [(name, "dcco") for name in ("EfficientNetV2B0", "ResNet50", "ConvNeXtTiny")],
)
def test_two_rounds_with_models_of_keras_applications(tmp_path, name, algorithm):
    images = {name: RNG.integers(0, 256, (2, 32, 32, 3), np.uint8) for name in "ab"}
    options = {
        "dcco": {"server_learning_rate": 0.01},
        "fedavg": {"objective": "nt_xent", "client_learning_rate": 0.01},
        "fedu": {"client_learning_rate": 0.01},
        "gossip": {"objective": "nt_xent", "client_learning_rate": 0.01, "topology": "complete"},
    }[algorithm]
    run = tff_ssl.train(
        images, algorithm=algorithm, encoder=f"keras:{name}", rounds=2, seed=3, views="flip",
        # A group of group norm has two of 32 channels; one alone would be constant.
        projector=(32, 16), runtime="in_process", folder=tmp_path, **options,
    )  # fmt: skip
    assert np.isfinite([row["loss"] for row in run.metrics]).all()
    stored = encoder_weights.read(tmp_path / "encoder")
    network = encoders.find(f"keras:{name}", "group", 3)
    start = network.init((32, 32, 3), 3)
    moved = [
        np.abs(after - np.asarray(before)).max() > 1e-6
        for after, before in zip(stored.weights.trainable, start.trainable, strict=True)
    ]
    assert np.mean(moved) > 0.5
    features = run.encoder(images["a"])
    assert np.isfinite(features).all()
    np.testing.assert_array_equal(tff_ssl.load_encoder(tmp_path)(images["a"]), features)
    # The encoder of the file computes what the model of Keras does with these weights.
    x = tf.constant(images["a"] / 127.5 - 1, tf.float32)
    expected, _ = network.apply(stored.weights, x, training=False)
    np.testing.assert_allclose(features, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_a_run_starts_from_a_run_with_an_own_model(tmp_path):
    def model():
        first = tf.keras.layers.Conv2D(16, 3, activation="relu", input_shape=(16, 16, 3))
        layers = [first, tf.keras.layers.GlobalAveragePooling2D()]
        return tff_ssl.models.from_keras(tf.keras.Sequential(layers))

    def train(name, **options):
        settings = {"rounds": 1, "clients_per_round": 2, "runtime": "in_process", "views": "flip"}
        folder = tmp_path / name
        return tff_ssl.train(CLIENTS, projector=(32, 16), folder=folder, **settings | options)

    first = train("first", encoder=model(), server_learning_rate=0.01)
    before = first.encoder(CLIENTS["c0"])
    still = {"init_from": tmp_path / "first", "server_learning_rate": 1e-9}
    same = [train("of the file", **still), train("of the program", encoder=model(), **still)]
    for run in same:
        np.testing.assert_allclose(run.encoder(CLIENTS["c0"]), before, atol=1e-5)


@pytest.mark.parametrize(
    ("batch_norm", "options", "words"),
    [
        ("local", {}, r"^dcco needs batch_norm=\"frozen\" of from_keras \(--norm=group with"),
        ("local", {"algorithm": "fedavg"}, r"need batch_norm=\"frozen\" of from_keras"),
        ("frozen", {"view_size": 24}, r"^encoder .* takes images of .*: add --view_size=16$"),
        ("frozen", {"init_from": "weights.h5"}, "load the weights into the model"),
    ],
)
def test_own_models_that_do_not_fit_the_run(batch_norm, options, words):
    layers = [
        tf.keras.layers.Conv2D(16, 3, input_shape=(16, 16, 3)),
        tf.keras.layers.BatchNormalization(),
    ]
    encoder = tff_ssl.models.from_keras(tf.keras.Sequential(layers), batch_norm)
    with pytest.raises(ConfigurationError, match=words):
        tff_ssl.train(CLIENTS, encoder=encoder, **options)


def test_clients_of_any_form_are_the_same_data():
    # From the tenth client on, unpadded names have another order.
    rng = np.random.default_rng(1)
    arrays = [rng.integers(0, 256, (k % 3 + 1, 8, 8, 1), np.uint8) for k in range(12)]
    labels = [images[:, 0, 0, 0] // 64 for images in arrays]
    named = {f"c{k:02}": pair for k, pair in enumerate(zip(arrays, labels, strict=True))}
    elements = {
        name: collections.OrderedDict(image=images, label=own)
        for name, (images, own) in named.items()
    }
    forms = [
        named,
        list(named.values()),
        [(images / 255.0, own) for images, own in named.values()],
        tff.simulation.datasets.TestClientData(elements),
    ]
    for form in forms:
        dataset = api._dataset(form)
        np.testing.assert_array_equal(dataset.train.images, np.concatenate(arrays))
        np.testing.assert_array_equal(dataset.train.labels, np.concatenate(labels))
        assert dataset.class_names == ("0", "1", "2", "3")
        clients = partition.make("per_case", dataset.train, 0)
        for indices, images in zip(clients, arrays, strict=True):
            np.testing.assert_array_equal(dataset.train.images[indices], images)
    unlabelled = api._dataset(arrays)
    np.testing.assert_array_equal(unlabelled.train.images, np.concatenate(arrays))
    assert (unlabelled.train.labels == NO_LABEL).all()
    assert unlabelled.class_names == ()


def test_labels_may_be_any_whole_numbers():
    images = np.zeros((2, 8, 8, 1), np.uint8)
    dataset = api._dataset([
        (images, [2**32, 0]), (images, [1, -2]), (images, [2**32 + 1, 2_000_000_000]),
        (images, np.array([1, 2**63], np.uint64)),
    ])  # fmt: skip
    names = (0, 1, 2_000_000_000, 2**32, 2**32 + 1, 2**63)
    assert dataset.class_names == tuple(map(str, names))
    np.testing.assert_array_equal(dataset.train.labels, [3, 0, 1, NO_LABEL, 4, 2, 1, 5])


def test_evaluation_has_the_classes_of_the_labels():
    labels = np.array([7, 2**32 + 7] * 10)
    images = np.zeros((20, 8, 8, 1), np.uint8) + (labels > 7)[:, None, None, None] * np.uint8(200)
    unknown = np.where(np.arange(20) < 4, -2, labels)
    (row,) = tff_ssl.evaluate(
        lambda x: x.mean((1, 2)).astype(np.float32), (images, labels), (images, unknown),
        labels_per_class=(1,),
    )  # fmt: skip
    assert row["test_examples"] == 16
    assert row["class_accuracies"] == {"7": 1.0, "4294967303": 1.0}


@pytest.mark.parametrize("labels", [(0, 1, -1, 1), (0, 1, -2, 1), None])
def test_supervised_training_needs_all_labels(tmp_path, labels):
    clients = [(CLIENTS["c0"], labels), (CLIENTS["c1"], [0, 0, 1, 1])]
    missing = sum(label < 0 for label in labels) if labels else 4
    with pytest.raises(ConfigurationError, match=f"needs a label for every .*: {missing} of 8"):
        tff_ssl.train(clients, "fedavg", rounds=1, objective="supervised", folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_save_that_fails_leaves_no_encoder(tmp_path, monkeypatch):
    (tmp_path / "run" / "encoder").mkdir(parents=True)
    for name in ("encoder/weights.npz", "encoder/graph.pb", "metrics.csv"):
        (tmp_path / "run" / name).write_text(name)
    run, saved = api.Run(len, [], tmp_path / "run"), tmp_path / "saved"
    copy_tree = shutil.copytree

    def copy_until_the_disk_is_full(*arguments, **options):
        copy_tree(*arguments, **options)
        # What a kill would leave: no encoder yet, and everything else.
        assert not (saved / "encoder").exists()
        assert (saved / "metrics.csv").read_text() == "metrics.csv"
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copytree", copy_until_the_disk_is_full)
        with pytest.raises(OSError, match="No space left"):
            run.save(saved)
    run.save(saved)
    assert {path.name for path in saved.iterdir()} == {"encoder", "metrics.csv"}
    assert {path.name for path in (saved / "encoder").iterdir()} == {"weights.npz", "graph.pb"}


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        ([], "there are none"),
        ([np.zeros((2, 8, 8), np.uint8)], r"client 0: images must be \[n, height"),
        ([np.zeros((2, 3, 16, 16), np.uint8)], r"\[2, 3, 16, 16\] looks like \[n, channels"),
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
        ({"lamda": 2.0}, r"did you mean lambda_\?"),
        ({"seeds": (1, 2)}, r"^seeds is no option of train: call train for each seed"),
        ({"list": True}, r"^list is no option of train: .*launch\.pretrain --list"),
        ({"output_dir": "run"}, r"^output_dir is no option of train: .*folder=PATH"),
        ({"image_size": 32}, r"^image_size is no option of train: .*clients"),
        ({"dataset": "digits"}, r"^dataset is no option of train: .*clients"),
    ],
)
def test_settings_that_cannot_be(options, words):
    with pytest.raises(ConfigurationError, match=words):
        tff_ssl.train(CLIENTS, **options)


@pytest.mark.parametrize("name", ["lambda_", "lambda"])  # The latter by `**options`.
def test_options_reach_the_configuration(name):
    options = {
        name: 2, "hparam": ("temperature=0.3", "client_learning_rate=0.5"),
        "leave": ("2:1", "3:2"), "cut": "1:0-1", "projector": (32, 16), "views": "flip",
    }  # fmt: skip
    config = keywords.read("gossip", "tiny", 3, 5, "run", options)
    values = algorithm.choose(config).values
    assert (values.lambda_, values.temperature, values.client_learning_rate) == (2.0, 0.3, 0.5)
    assert (config.network.leave, config.network.cut) == (("2:1", "3:2"), ("1:0-1",))
    assert (config.model.projector, config.model.views) == ((32, 16), "flip")
    assert (config.output.output_dir, config.seed, config.rounds) == ("run", 5, 3)


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
    with pytest.raises(ConfigurationError, match=r"^test must be a pair, \(images, labels\)"):
        tff_ssl.evaluate(encoder, (images, labels), images)
    with pytest.raises(ConfigurationError, match=r"^test: images must be"):
        tff_ssl.evaluate(encoder, (images, labels), (images[0], labels[0]))


def test_partition():
    labels = RNG.integers(0, 10, 200)
    clients = tff_ssl.partition(labels, "iid", seed=1, num_clients=10)
    assert sorted(np.concatenate(clients)) == list(range(200))
    assert len(clients) == 10
