"""Clients of different architectures: their encoders, the server's images, a run of two rounds."""

import csv
import json
import sys

import numpy as np
import pytest

from launch.options import data, heterogeneous_clients, settings
from tests import programs
from tests.launch import configs
from tff_ssl.deployment import saved_model
from tff_ssl.errors import ConfigurationError


def parse(*flags):
    """The configuration of a command line."""
    return configs.run("--algorithm=hetero_ssfl", "--objective=byol", *flags)


def test_the_servers_images_belong_to_no_client():
    config = parse("--rad_size=300", "--partition=iid", "--num_clients=4", "--seed=2")
    dataset = data.load_dataset(config.data)
    clients_dataset, rad = heterogeneous_clients.take_out_rad(dataset, 300, config.seed)
    assert rad.shape == (300, 8, 8, 1)
    assert len(clients_dataset.train) == len(dataset.train) - 300
    remaining = set(clients_dataset.train.example_ids.tolist())
    ids = dataset.train.example_ids.tolist()
    missing = [i for i, example_id in enumerate(ids) if example_id not in remaining]
    assert len(missing) == 300
    np.testing.assert_array_equal(rad, dataset.train.images[missing])
    assert clients_dataset.test is dataset.test
    # The images are of all classes, and another seed chooses others.
    assert len(set(dataset.train.labels[missing].tolist())) == 10
    assert not np.array_equal(heterogeneous_clients.take_out_rad(dataset, 300, 3)[1], rad)


def test_weights_to_start_from_are_refused():
    """Clients have models of their own, to which they would not come."""
    config = settings.replace(parse("--encoders=tiny"), init_from="RUN")
    dataset = data.load_dataset(config.data)
    with pytest.raises(ConfigurationError, match="--init_from: the clients of hetero_ssfl"):
        heterogeneous_clients.build_population(dataset, [np.arange(9)], config)


def test_encoders_are_assigned_in_equal_shares_in_random_order():
    config = parse("--encoders=tiny,small,vit_micro")
    dataset = data.load_dataset(config.data)
    clients = [np.arange(k + 1) for k in range(20)]
    population = heterogeneous_clients.build_population(dataset, clients, config)
    assert [model.encoder for model in population.models] == ["tiny", "small", "vit_micro"]
    assert sorted(np.bincount(population.model_of_client)) == [6, 7, 7]
    assert list(population.model_of_client) != sorted(population.model_of_client)
    assert population.sizes == tuple(range(1, 21))
    again = heterogeneous_clients.build_population(dataset, clients, config)
    assert again.model_of_client == population.model_of_client
    config = settings.replace(config, seed=1)
    other = heterogeneous_clients.build_population(dataset, clients, config)
    assert other.model_of_client != population.model_of_client
    # An encoder that is named twice gets twice the share. Without names, all clients have the
    # encoder of --encoder.
    config = settings.replace(config, encoders=("tiny", "tiny", "small"))
    twice = heterogeneous_clients.build_population(dataset, clients[:9], config)
    assert np.bincount(twice.model_of_client).tolist() == [6, 3]
    assert heterogeneous_clients.describe(twice).startswith(
        "6 clients with tiny encoder and heads ("
    )
    config = settings.replace(config, encoders=())
    alike = heterogeneous_clients.build_population(dataset, clients, config)
    assert [model.encoder for model in alike.models] == [config.model.encoder]


@pytest.mark.long
@pytest.mark.slow
def test_a_run_evaluates_its_clients_by_architecture(project_root, tmp_path):
    flags = [
        "--algorithm=hetero_ssfl", "--partition=skew", "--beta=0", "--rounds=2",
        "--encoders=vit_micro,tiny", "--rad_size=60",
        "--clients_per_round=3", "--personalized_clients=3", "--data_fraction=0.2",
        "--projector=32,16", "--predictor=32,16", "--hparam=local_epochs=1",
        "--hparam=rad_batch_size=20", "--label_draws=1", "--labels_per_class=1", "--eval_every=0",
        f"--output_dir={tmp_path / 'run'}",
    ]  # fmt: skip
    result = programs.run(
        [sys.executable, "-m", "launch.pretrain", *flags],
        cwd=project_root, capture_output=True, text=True, timeout=1200, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    entries = {
        entry["protocol"]: entry
        for entry in json.loads((tmp_path / "run" / "result.json").read_text())
    }
    encoders = entries["linear"]["encoder_of_client"]
    assert sorted(encoders) in (["tiny"] * 2 + ["vit_micro"] * 3, ["tiny"] * 3 + ["vit_micro"] * 2)
    assert set(entries) == {
        "linear", "linear_personalized", "linear_personalized_tiny",
        "linear_personalized_vit_micro",
    }  # fmt: skip
    over_clients = entries["linear_personalized"]
    evaluated, accuracies = over_clients["evaluated_clients"], over_clients["accuracy_of_clients"]
    with open(tmp_path / "run" / "client_metrics.csv", newline="") as file:
        cohorts = [int(row["client"]) for row in csv.DictReader(file)]
    # The run has two rounds of three of the five clients: the first three that trained count.
    assert evaluated == sorted(set(cohorts))[:3]
    rounds = [cohorts.count(client) for client in evaluated]
    assert over_clients["trained_rounds_of_clients"] == rounds
    assert over_clients["trained_rounds"] == pytest.approx(np.mean(rounds))
    untrained = {}
    for encoder in ("tiny", "vit_micro"):
        entry = entries[f"linear_personalized_{encoder}"]
        expected = [a for a, k in zip(accuracies, evaluated, strict=True) if encoders[k] == encoder]
        assert entry["accuracy_of_clients"] == expected
        assert entry["accuracy"] == pytest.approx(np.mean(expected))
        untrained[encoder] = entry["baselines"]["random_encoder"]["accuracy"]
    assert untrained["tiny"] != untrained["vit_micro"]
    # The mean over clients has the mean of their own untrained encoders beside it.
    assert over_clients["baselines"]["random_encoder"]["accuracy"] == pytest.approx(
        np.mean([untrained[encoders[k]] for k in evaluated])
    )
    # Each client has two of the ten digits.
    assert 0 <= over_clients["unseen_accuracy"] < over_clients["accuracy"] + 0.2
    accuracies_of_classes = entries["linear"]["class_accuracies"]
    assert list(accuracies_of_classes) == list("0123456789")
    balanced = entries["linear"]["balanced_accuracy"]
    assert np.mean(list(accuracies_of_classes.values())) == pytest.approx(balanced)
    # The client with the larger model that took part most often stands for the run.
    client = entries["linear"]["client"]
    assert encoders[client] == "vit_micro"
    larger = [cohorts.count(k) for k in range(5) if encoders[k] == "vit_micro"]
    assert entries["linear"]["trained_rounds"] == cohorts.count(client) == max(larger)
    assert f"the model of client {client}, which trained in" in result.stdout
    assert "the global one" not in result.stdout
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["model"]["encoder"] == "vit_micro"
    baseline = entries["linear"]["baselines"]["random_encoder"]["accuracy"]
    assert baseline == untrained["vit_micro"]
    features = {"tiny": 64, "vit_micro": 64}
    for k in evaluated:
        encoder = saved_model.load_encoder(tmp_path / "run" / "clients" / str(k) / "encoder")
        assert encoder(np.zeros((2, 8, 8, 1), np.uint8)).shape == (2, features[encoders[k]])
