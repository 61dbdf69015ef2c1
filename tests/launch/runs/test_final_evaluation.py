"""The clients' own models after a run: with the images of their shift, distances and clusters."""

import functools

import numpy as np
import pytest

from datasets import shift
from datasets.image_dataset import ImageDataset, Split
from launch.options import settings
from launch.options.image_config import ClientsConfig
from launch.options.run_config import RunConfig
from launch.probes import personalized, result_text
from launch.runs import final_evaluation
from tff_ssl.deployment import saved_model
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.simulation import metrics_log

SCORES = dict.fromkeys(
    ("accuracy", "balanced_accuracy", "accuracy_std", "balanced_accuracy_std"), 0.0
)


def some_dataset():
    def split(count, seed):
        images = np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 1), np.uint8)
        return Split(images, np.zeros(count, np.int32), np.arange(count))

    return ImageDataset("some", split(6, 0), split(4, 1), ("a",))


class Simulation:
    """Clients' models are numbers; those of clients 0 and 2 are equal."""

    numbers = (1.0, 2.0, 1.0, 3.0)

    def encoder_weights(self, state, client):
        return Weights((np.float32(self.numbers[int(client)]),), ())

    def local_weights(self, state, client):
        return None


class Evaluation(final_evaluation.Evaluation):
    """Records the images, and scores a model by its number."""

    calls: list = []  # noqa: RUF012

    def results(self, model, encode, weights, baselines):
        self.calls.append((float(weights.trainable[0]), self.dataset, tuple(baselines)))
        score = SCORES | {"accuracy": float(weights.trainable[0])}
        return [
            {
                "protocol": "linear", "labels": 10, "labels_per_class": 1, **score,
                "baselines": dict.fromkeys(baselines, score),
            }
        ]  # fmt: skip


@pytest.fixture
def evaluate(monkeypatch, tmp_path):
    """Evaluates clients 0 to 3 with `--shift` and `--shifts`; returns results and calls."""
    monkeypatch.setattr(final_evaluation, "export", lambda *_: None)
    monkeypatch.setattr(saved_model, "encoder_function", lambda *_: None)
    model, dataset = DualEncoder("tiny", (8, 8, 1), (4,)), some_dataset()

    def run(name, shifts, number_of_run):
        config = settings.replace(
            RunConfig(), shift=name, shifts=shifts, baselines=("random_encoder",)
        )
        monkeypatch.setattr(Evaluation, "calls", [])
        evaluation = Evaluation(dataset, 6, config)
        weights = Weights((np.float32(number_of_run),), ())
        of_run = final_evaluation.Evaluated(
            "the run", model, weights, evaluation.results(model, None, weights, ["random_encoder"])
        )
        results = final_evaluation.evaluate_clients(
            Simulation(), None, [0, 1, 2, 3], final_evaluation.ClientModels(4), of_run, evaluation,
            tmp_path,
        )  # fmt: skip
        return results, evaluation.calls[1:], dataset

    return run


def test_a_clients_own_model_sees_images_with_its_own_shift(evaluate):
    results, calls, dataset = evaluate("rotation", 2, 2.0)
    assert [entries[0]["accuracy"] for entries in results] == [1.0, 2.0, 1.0, 3.0]
    assert {entries[0]["own_shift"] for entries in results} == {"rotation"}
    # Clients 0 and 2 share a model and a shift. The run's model is client 1's, but was evaluated on
    # images that are not turned.
    assert [number for number, _, _ in calls] == [1.0, 2.0, 3.0]
    for number, seen, _ in calls:
        turned = 0 if number == 1.0 else 2
        assert np.array_equal(seen.test.images, np.rot90(dataset.test.images, turned, (1, 2)))
        assert np.array_equal(seen.train.images, np.rot90(dataset.train.images, turned, (1, 2)))
        assert np.array_equal(seen.test.labels, dataset.test.labels)
    # The untrained encoder is evaluated once for each shift.
    assert [baselines for _, _, baselines in calls] == [
        ("random_encoder",), ("random_encoder",), (),
    ]  # fmt: skip
    assert results[3][0]["baselines"]["random_encoder"]["accuracy"] == 2.0


def test_without_shifts_clients_are_compared_with_the_runs_model_first(evaluate, capsys):
    results, calls, dataset = evaluate("none", 5, 2.0)
    assert [number for number, _, _ in calls] == [1.0, 3.0]
    assert all(seen is dataset and baselines == () for _, seen, baselines in calls)
    assert all("own_shift" not in entries[0] for entries in results)
    printed = capsys.readouterr().out
    assert "the model of client 1 is that of the run" in printed
    assert "the model of client 2 is that of client 0" in printed


def test_the_result_says_that_clients_saw_their_own_shift(evaluate):
    results, _, _ = evaluate("style", 2, 2.0)
    (mean,) = personalized.over_clients(
        results, personalized.EvaluatedClients([0, 1, 2, 3], [5] * 4, [None] * 4)
    )
    assert mean["own_shift"] == "style"
    assert "each on images with its own style: 0 (5)" in result_text.format_results([mean])


@pytest.mark.parametrize(("name", "shifts"), [("rotation", 3), ("style", 5)])
def test_a_clients_images_are_shifted_as_in_training(name, shifts):
    images = some_dataset().train.images
    partition = [np.array([0, 3]), np.array([1]), np.array([2, 5]), np.array([4])]
    shifted = shift.shift_clients(name, images, partition, shifts)
    for client, indices in enumerate(partition):
        own = shift.shift_as_client(name, images, client, len(partition), shifts)
        assert np.array_equal(own[indices], shifted[indices])


def test_distances_are_sums_over_layers_and_means_over_clients():
    shared = (np.zeros((2, 2), np.float32), np.zeros(1, np.float32))
    first = (np.full((2, 2), 3.0, np.float32), np.array([4.0], np.float32))  # 6 + 4
    second = (np.zeros((2, 2), np.float32), np.array([-2.0], np.float32))  # 0 + 2
    compare = functools.partial(
        personalized.compare_local, "distance", personalized.weight_distance, shared
    )
    assert compare([first, second]) == {
        "local_distance_to_global": 6.0,
        "local_distance_between": 12.0,
    }
    assert compare([first]) == {"local_distance_to_global": 10.0}
    assert compare([]) == {}


@pytest.mark.parametrize(
    ("clusters", "expected"),
    [([0, 1, 0, 1], 1.0), ([1, 0, 1, 0], 1.0), ([0, 0, 1, 1], 0.5), ([0, 1, 1, 1], 0.75),
     ([0, 0, 0, 0], 0.5)],
)  # fmt: skip
def test_purity_of_clusters_against_two_shifts(tmp_path, clusters, expected):
    path = tmp_path / "client_metrics.csv"
    rows = [f"1,{k},{1 - c},0" for k, c in enumerate(clusters)]  # Of an earlier round.
    rows += [f"2,{k},{float(c)},0" for k, c in enumerate(clusters)]
    path.write_text("\n".join(["round,client,cluster,dropped", *rows, ""]))
    config = ClientsConfig(shift="rotation", shifts=2)
    assert final_evaluation.cluster_fields(path, 4, config) == {"cluster_purity": expected}
    assert final_evaluation.cluster_fields(path, 4, ClientsConfig(shifts=2)) == {}
    assert metrics_log.last_values(path, "loss") == {}
    assert final_evaluation.cluster_fields(tmp_path / "missing.csv", 4, config) == {}
