"""The end of a run: which clients' own models are evaluated, and its page."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

import tff_ssl
from datasets.image_dataset import ImageDataset, Split
from launch.options import model as model_options
from launch.options.run_config import RunConfig
from launch.outputs import commands
from launch.pages import run_page
from launch.probes import personalized, result_text
from launch.runs import final_evaluation, training
from tests.launch import configs
from tests.launch.pages import run_folders
from tff_ssl.deployment import saved_model
from tff_ssl.errors import TrainingError
from tff_ssl.losses import cka
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.simulation import training_loop


def choose(trained_rounds, wanted, untrained_have_models=False):
    client_models = final_evaluation.ClientModels(
        len(trained_rounds), untrained_have_models=untrained_have_models
    )
    return final_evaluation.choose_clients(client_models, np.array(trained_rounds), wanted)


def test_clients_that_never_trained_are_left_out_and_named():
    assert choose([2, 1, 3], 2) == ([0, 1], [])
    chosen, (line,) = choose([0, 1, 0, 2, 0], 2)
    assert chosen == [1, 3]
    assert line.startswith("2 clients never trained, and their models are not evaluated: 0, 2 (")
    chosen, (line,) = choose([0, 1, 0], 2)
    assert chosen == [1]
    assert ": 0, 2 (--personalized_clients=2)" in line
    assert choose([0, 0], 0) == ([], [])
    # Without a server, a client's model is averaged with its neighbours'.
    assert choose([0, 1], 2, untrained_have_models=True) == ([0, 1], [])


def entry(accuracy, baseline):
    scores = {"accuracy": accuracy, "balanced_accuracy": accuracy}
    stds = {"accuracy_std": 0.0, "balanced_accuracy_std": 0.0}
    return {
        "protocol": "linear", "labels": 10, "labels_per_class": 1, **scores, **stds,
        "baselines": {
            "random_encoder": {"accuracy": baseline, "balanced_accuracy": baseline, **stds}
        },
    }  # fmt: skip


def test_the_mean_over_clients_has_their_untrained_encoders_and_rounds():
    results = [[entry(0.6, 0.3)], [entry(0.8, 0.5)], [entry(0.4, 0.3)]]
    evaluated = personalized.EvaluatedClients([1, 4, 6], [2, 5, 1], [None] * 3)
    (mean,) = personalized.over_clients(results, evaluated)
    assert "unseen_accuracy" not in mean
    assert mean["accuracy"] == pytest.approx(0.6)
    assert mean["baselines"]["random_encoder"]["accuracy"] == pytest.approx(1.1 / 3)
    assert mean["clients_evaluated"] == 3
    assert mean["evaluated_clients"] == [1, 4, 6]
    assert mean["trained_rounds_of_clients"] == [2, 5, 1]
    assert mean["trained_rounds"] == pytest.approx(8 / 3)
    small, tiny = personalized.over_architectures(results, evaluated, ["small", "tiny", "small"])
    assert small["evaluated_clients"] == [1, 6]
    assert tiny["evaluated_clients"] == [4]
    assert small["baselines"]["random_encoder"]["accuracy"] == pytest.approx(0.3)
    assert small["protocol"] == "linear_personalized_small"
    text = result_text.format_results([mean])
    assert "mean over clients (rounds of training): 1 (2), 4 (5), 6 (1)" in text
    assert "0.367 ± 0.115" in text


def entry_of_classes(accuracies, untrained):
    def scores(values):
        accuracies = {str(label): value for label, value in enumerate(values)}
        return entry(np.mean(values), 0.0) | {"class_accuracies": accuracies}

    return scores(accuracies) | {"baselines": {"random_encoder": scores(untrained)}}


def test_classes_that_a_client_has_never_seen_are_scored_by_themselves():
    results = [
        [entry_of_classes([0.9, 0.8, 0.3, 0.1], [0.4, 0.4, 0.4, 0.2])],
        [entry_of_classes([0.5, 0.2, 0.7, 0.3], [0.1, 0.2, 0.3, 0.0])],
    ]
    (mean,) = personalized.over_clients(
        results, personalized.EvaluatedClients([0, 3], [1, 1], [{0, 1}, {2}])
    )
    assert mean["seen_accuracy"] == pytest.approx((0.85 + 0.7) / 2)
    unseen = [(0.3 + 0.1) / 2, (0.5 + 0.2 + 0.3) / 3]
    assert mean["unseen_accuracy"] == pytest.approx(np.mean(unseen))
    assert mean["unseen_accuracy_std"] == pytest.approx(np.std(unseen, ddof=1))
    baseline = mean["baselines"]["random_encoder"]
    assert baseline["unseen_accuracy"] == pytest.approx((0.3 + 0.1) / 2)
    assert "class_accuracies" not in mean
    # It takes a class of each kind for every client, and the classes of every client.
    for classes in ([{0, 1}, {0, 1, 2, 3}], [{0, 1}, {7}], [{0, 1}, None]):
        evaluated = personalized.EvaluatedClients([0, 3], [1, 1], classes)
        (mean,) = personalized.over_clients(results, evaluated)
        assert "unseen_accuracy" not in mean


def test_the_classes_of_a_client_are_known_if_all_its_images_are_labelled():
    train = Split(np.zeros((4, 1, 1, 1), np.uint8), np.array([5, -1, 2, 5]), np.arange(4))
    assert final_evaluation._classes(train, np.array([0, 2, 3])) == {2, 5}
    assert final_evaluation._classes(train, np.array([0, 1])) is None


def test_the_table_names_the_client_whose_model_stands_for_the_run():
    text = result_text.format_results([entry(0.6, 0.3) | {"client": 2, "trained_rounds": 7}])
    first, *_ = text.splitlines()
    assert first == "the model of client 2, which trained in 7 rounds"
    assert result_text.format_results([entry(0.6, 0.3)]).startswith("linear, test accuracy")


def test_a_page_that_cannot_be_made_does_not_lose_the_run(tmp_path, monkeypatch, capsys):
    run = run_folders.write_run(tmp_path / "run", [run_folders.entry()])
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    dataset = run_folders.images()
    monkeypatch.setattr(model_options, "two_views", lambda *_: None)
    # The message may have several lines, or none.
    for error in (MemoryError(), ValueError("no\nroom"), OSError(28, "No space left on device")):

        def fail(*_, error=error):
            raise error

        monkeypatch.setattr(run_page, "compute", fail)
        assert training._write_page(run, dataset, dataset.train, {}, RunConfig()) == ""
        _, note = capsys.readouterr().out.splitlines()
        assert note.startswith(f"note: run.html cannot be made ({type(error).__name__}: ")
        assert commands.module("launch.visualize", f"--run={run}") in note
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_a_run_that_is_stopped_while_its_page_is_drawn_stops(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    dataset = run_folders.images()
    monkeypatch.setattr(model_options, "two_views", lambda *_: None)
    monkeypatch.setattr(run_page, "compute", stop)
    with pytest.raises(KeyboardInterrupt):
        training._write_page(tmp_path, dataset, dataset.train, {}, RunConfig())


@pytest.mark.parametrize(
    ("name", "channels", "flags", "is_advised"),
    [("case_folder", 3, [], True), ("npz", 3, [], True), ("npz", 1, [], False),
     ("cifar10", 3, [], False), ("case_folder", 3, ["--init_from=efficientnet_lite0"], False)],
)  # fmt: skip
def test_pretrained_weights_are_named_after_runs_on_own_rgb_images(
    name, channels, flags, is_advised
):
    split = Split(np.zeros([1, 8, 8, channels], np.uint8), np.zeros(1, np.int32), np.arange(1))
    dataset = ImageDataset(name, split, split, ("a",))
    advice = training._advice(pathlib.Path("my run"), dataset, configs.run(*flags))
    assert len(advice) == is_advised
    assert all("launch.evaluate '--run=my run' --baselines=imagenet_encoder" in a for a in advice)


def test_accuracies_of_classes_have_names():
    """Keys of JSON are texts, and numbers as names of classes are not their places."""
    entries = [entry_of_classes([0.9, 0.8, 0.1], [0.1, 0.2, 0.3]) | {"labels": 3}, {"labels": 4}]
    (named, other) = result_text.with_class_names(entries, ["1", "10", "2"])
    assert named["class_accuracies"] == {"1": 0.9, "10": 0.8, "2": 0.1}
    baseline = named["baselines"]["random_encoder"]
    assert baseline["class_accuracies"] == {"1": 0.1, "10": 0.2, "2": 0.3}
    assert (named["labels"], other) == (3, {"labels": 4})
    assert entries[0]["class_accuracies"].keys() == {"0", "1", "2"}


class Growing(training_loop.Simulation):
    """A simulation whose weights are those of the start times 1.1 to the number of rounds."""

    def __init__(self, start):
        self.start = start

    def initialize(self, seed):
        return np.float32(1)

    def run_round(self, state, round_number):
        return np.float32(1.1) * state, {"loss": 0.0}

    def encoder_weights(self, state, client_id=None):
        return tf.nest.map_structure(lambda tensor: tensor * state, self.start)


@pytest.fixture
def small_model():
    return DualEncoder("tiny", (8, 8, 1), projector=(4,))


def test_the_best_encoder_is_exported_and_the_last_one_is_kept(small_model, tmp_path, monkeypatch):
    accuracies = iter((0.2, 0.9, 0.3))
    monkeypatch.setattr(
        training.monitoring, "build_monitor",
        lambda *args: lambda state: {"knn_accuracy": next(accuracies)},
    )  # fmt: skip
    monkeypatch.setattr(training.run_folder, "training_digest", lambda folder: "these flags")
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 1), np.uint8)
    split = Split(images, np.zeros(6, np.int64), np.arange(6))
    dataset = ImageDataset("toy", split, split, ("a",))
    simulation = Growing(small_model.init(seed=1))
    config = configs.run("--rounds=3", "--eval_every=1", "--encoder_round=best", "--view_size=8")
    trained = training.train(simulation, small_model, dataset, tmp_path, config)
    best, last = (simulation.encoder_weights(np.float32(1.1**rounds)) for rounds in (2, 3))
    for found, expected in ((trained.weights, best), (trained.last, last)):
        for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)
    exported = tff_ssl.load_encoder(tmp_path / "encoder")
    np.testing.assert_allclose(exported(images), trained.encode(best, images), rtol=1e-4)
    # The checkpoints belong to these flags.
    monkeypatch.setattr(training.run_folder, "training_digest", lambda folder: "others")
    with pytest.raises(TrainingError):
        training.train(simulation, small_model, dataset, tmp_path, config)


def test_local_models_are_compared_with_the_last_global_one(small_model):
    start = small_model.init(seed=1)
    last, best, local = (Growing(start).encoder_weights(np.float32(by)) for by in (1, 5, 1.5))
    encode = saved_model.encoder_function(small_model, 8)
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 1), np.uint8)
    trained = training.Trained(None, last, best, encode)
    found = training._compare_local(small_model, trained, [local, local], images)
    layers, larger = (small_model.without_heads(one)[1].trainable for one in (last, local))
    distance = sum(np.linalg.norm(b - a) for a, b in zip(layers, larger, strict=True))
    assert found["local_distance_to_global"] == pytest.approx(distance, rel=1e-4)
    alike = cka.linear_cka(encode(last, images).numpy(), encode(local, images).numpy())
    assert found["local_cka_to_global"] == pytest.approx(alike, rel=1e-4)
    assert found["local_distance_between"] == 0
    assert found["local_cka_between"] == pytest.approx(1)
