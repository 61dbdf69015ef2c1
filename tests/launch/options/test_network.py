"""Algorithms without a server on the command line: mistakes, costs, and a run with its files."""

import csv
import itertools
import json
import subprocess
import sys

import numpy as np
import pytest

from datasets import catalog
from launch import pretrain
from launch.options import algorithm as algorithm_options
from launch.options import clients as client_options
from launch.options import network
from tests import programs
from tests.launch import configs
from tests.launch.mistakes import message_of, preset
from tff_ssl.algorithms.denav.algorithm import DeNAVSchedule
from tff_ssl.decentralized import run_costs
from tff_ssl.models.costs import model_costs
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.two_towers import TwoTowers

# A short run, for mistakes that are found before training.
DENAV = [*preset("digits/denav"), "--algorithm=denav", "--rounds=4"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("named", "flags"),
    [
        ("topology", [*DENAV, "--topology=ring"]),
        ("connectivity", [*DENAV, "--connectivity=1.5"]),
        ("unconnected", [*DENAV, "--connectivity=0.01", "--unconnected=refuse"]),
        ("edge_list", [*DENAV, "--topology=edge_list"]),
        ("nowhere.txt", [*DENAV, "--topology=edge_list", "--edge_list=nowhere.txt"]),
        ("edge_list", [*DENAV, "--edge_list=nowhere.txt"]),
        ("clients_per_round", [*DENAV, "--clients_per_round=5"]),
        ("fold", [*DENAV, "--fold=1"]),
        ("--leave takes ROUND:CLIENT", [*DENAV, "--leave=3"]),
        ("client 77 is not in the network", [*DENAV, "--leave=2:77"]),
        ("rounds are 1 to 4", [*DENAV, "--leave=5:1"]),
        ("--cut takes ROUND:CLIENT-CLIENT", [*DENAV, "--cut=2:1:2"]),
        ("not linked", [*DENAV, "--topology=cycle", "--cut=2:0-5"]),
        ("client 0 leaves", [*DENAV, "--leave=2:0", "--personalized_clients=1"]),
        ("models must be at most", [*DENAV, "--hparam=models=21"]),
        ("aggregation", [*DENAV, "--hparam=aggregation=best"]),
        ("route", [*DENAV, "--hparam=route=shortest"]),
        ("mixing", [*DENAV, "--algorithm=gossip", "--hparam=mixing=ring"]),
        ("needs a vision transformer", [*DENAV, "--objective=mae"]),
        ("towers", [*DENAV, "--objective=nt_xent", "--encoder=tiny", "--towers=views"]),
        ("fedavg has a server", [*DENAV, "--algorithm=fedavg", "--objective=mae"]),
    ],
)
def test_a_mistake_gives_one_line_and_no_files(tmp_path, named, flags):
    folder = tmp_path / "run"
    message = message_of(pretrain, [f"--output_dir={folder}", *flags])
    assert message.startswith("error: ")
    assert named in message
    assert not folder.exists()


@pytest.mark.parametrize("name", ["denav", "denav_mae"])
@pytest.mark.parametrize("seed", range(3))
def test_the_navigator_of_the_digits_moves_and_has_a_choice(project_root, monkeypatch, name, seed):
    monkeypatch.chdir(project_root)  # Presets name other presets from there.
    config = configs.run(*preset(f"digits/{name}"), "--algorithm=denav", f"--seed={seed}")
    config, _, values = algorithm_options.choose(config)
    dataset = catalog.load("digits")
    clients = client_options.partition_dataset(dataset, config.clients, config.seed)
    built = network.build_network(config, [len(client) for client in clients])
    schedule = DeNAVSchedule(built, 1000, values, config.rounds)
    steps, number = config.rounds, config.clients.num_clients
    counts = run_costs.route_counts(schedule.routes)
    assert counts["moves_to_same_client"] < 0.1 * steps
    assert counts["visited_clients"] >= 0.9 * number
    assert not schedule.warnings
    # Clients that the scores prefer train the model more often than others.
    visits = np.bincount(schedule.routes[0], minlength=number)
    assert visits.max() >= 4
    assert visits.min() <= 2


def test_costs_of_models():
    costs = model_costs(DualEncoder("vit_one_block", (224, 224, 3), decoder=True), 0.75)
    assert round(costs["parameters"] / 1e6, 2) == 11.62
    assert round(costs["gflops"], 2) == 1.23
    downstream = model_costs(DualEncoder("vit_one_block", (224, 224, 3), depth=5))
    assert round(downstream["gflops"], 2) == 7.39
    tower = DualEncoder("tiny", (8, 8, 1), (4,))
    assert model_costs(tower) == {"parameters": tower.parameter_count, "gflops": None}
    assert model_costs(TwoTowers(tower))["gflops"] is None


def run_script(project_root, name, *flags):
    """Runs a script, which must succeed."""
    result = programs.run(
        [sys.executable, "-m", f"launch.{name}", *flags],
        cwd=project_root, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=1200,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result


@pytest.mark.long
@pytest.mark.slow
def test_a_run_with_a_departure_counts_messages_and_can_be_fine_tuned(tmp_path, project_root):
    folder = tmp_path / "run"
    result = run_script(
        project_root, "pretrain", "--flagfile=launch/presets/digits/denav_mae.flags",
        f"--output_dir={folder}", "--rounds=5",
        "--hparam=models=2", "--hparam=local_epochs=1", "--hparam=aggregation=average",
        "--leave=3:4", "--checkpoint_every=2", "--eval_every=0", "--label_draws=1",
        "--personalized_clients=1", "--baselines=raw_pixels",
    )  # fmt: skip
    assert result.stderr == ""
    assert "5 rounds on a network of 20 clients with" in result.stdout
    assert "1 clients leave or links are cut" in result.stdout
    entry = json.loads((folder / "result.json").read_text())[0]
    with open(folder / "client_metrics.csv", newline="") as file:
        steps = list(csv.DictReader(file))
    assert len(steps) == 2 * 5
    moved = sum(row["sender"] not in ("-1", row["client"]) for row in steps)
    with open(folder / "metrics.csv", newline="") as file:
        rounds = list(csv.DictReader(file))
    # Besides the messages of the steps, the first model is sent to the client where the second
    # model starts.
    start = int(rounds[0]["transmissions"])
    assert start >= 1
    assert entry["communications"] == start + moved
    assert entry["communications"] == sum(int(row["transmissions"]) for row in rounds)
    assert entry["communication_bytes"] == sum(int(row["bytes"]) for row in rounds)
    assert entry["communication_bytes"] > 4 * entry["parameters"] * entry["communications"]
    assert entry["local_epochs_in_all"] == 10
    routes = [[row["client"] for row in steps if row["model"] == model] for model in "01"]
    assert entry["visited_clients"] == len({client for route in routes for client in route})
    assert entry["moves_to_same_client"] == sum(
        first == second for route in routes for first, second in itertools.pairwise(route)
    )
    assert entry["communications_as_published"] is None  # The paper has no departures.
    assert f"communications                {entry['communications']}" in result.stdout
    for row in steps:
        assert int(row["round"]) < 3 or row["client"] != "4"
    names = {path.name for path in folder.iterdir()}
    assert {
        "network.png",
        "route_0.png",
        "route_1.png",
        "visits.png",
        "encoder",
        "clients",
    } <= names
    assert "clients.sqlite" not in names
    tuned = run_script(
        project_root, "evaluate", f"--run={folder}", "--protocol=finetune", "--depth=3",
        "--labels_per_class=1", "--label_draws=1", "--finetune_steps=2",
    )  # fmt: skip
    assert "fine-tuning" in tuned.stdout
    (entry,) = json.loads((folder / "result_finetune.json").read_text())
    encoder = DualEncoder("vit_one_block_micro", (16, 16, 1), depth=3)
    assert entry["parameters"] == encoder.parameter_count
    assert entry["gflops"] == pytest.approx(encoder.multiply_adds() / 1e9)


@pytest.mark.parametrize(
    ("topic", "names"),
    [("algorithms", ("denav", "gossip", "all_reduce", "dfedavg")),
     ("topologies", ("erdos_renyi", "tree")), ("encoders", ("vit_one_block",))],
)  # fmt: skip
def test_the_list_has_the_names_of_networks(capsys, topic, names):
    pretrain.main(configs.run(f"--list={topic}"))
    lines = capsys.readouterr().out.splitlines()
    assert set(names) <= {line.split()[0] for line in lines}
