"""Estimates of what an experiment would take, from a few rounds on random images."""

import csv
import dataclasses
import os
import types

import pytest

from datasets import case_folder
from launch.studies import catalog
from launch.studies.engine import estimates, runner, stand_ins
from launch.studies.engine.runner import effective_flags
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.reporting.experiment import Cell, Experiment


@pytest.fixture(autouse=True)
def at_the_root(project_root, monkeypatch):
    """Changes to the project's root, from which cells name presets."""
    monkeypatch.chdir(project_root)


def cells(name, scale="paper"):
    return catalog.EXPERIMENTS[name][0](scale, None, None).cells


def flags_of(name, cell):
    return effective_flags(next(c for c in cells(name) if c.name == cell).flags)


@pytest.mark.parametrize(
    ("stand_in", "clients"),
    [
        (stand_ins.StandIn(51, 7, 20, cases=True), 26),  # Of two images, and one of one.
        (stand_ins.StandIn(40, 10, 16, cases=False), None),
    ],
)
def test_a_stand_in_has_the_images_classes_and_cases_that_it_says(tmp_path, stand_in, clients):
    stand_ins.write(tmp_path / "data", stand_in)
    dataset = case_folder.load(tmp_path / "data", stand_in.size)
    assert dataset.train.images.shape == (stand_in.images, stand_in.size, stand_in.size, 3)
    assert set(dataset.train.labels) == set(range(stand_in.classes))
    assert len(dataset.test) == 2 * stand_in.classes
    if clients:
        assert len(set(dataset.train.case_ids)) == clients


@pytest.mark.slow
def test_every_cell_of_every_experiment_has_a_stand_in_with_enough_images():
    for name in catalog.EXPERIMENTS:
        for cell in [*cells(name, "cpu"), *cells(name, "paper")]:
            own = effective_flags(cell.flags)
            if own.get("dataset", "digits") == "digits":
                continue
            stand_in = stand_ins.of_cell(cell.script, own)
            per_client = 2 if stand_in.cases else int(own.get("samples_per_client", 1))
            needed = int(own.get("clients_per_round", 1))
            needed *= 1 if "num_clients" in own else per_client
            assert needed <= stand_in.images <= 10_000, (name, cell.name)


@pytest.mark.parametrize(
    ("name", "cell", "images"),
    [
        # 100,000 rounds of 128 clients of four images.
        ("dcco_table1", "dcco_noniid_4", 51_200_000),
        # 100 rounds of five epochs of all images (FedU, section 4.1).
        ("fedu_table1", "fedu_noniid", 25_000_000),
        # 500 epochs of all images (Dec-SSL, appendix B).
        ("dec_ssl_figure12", "star_alpha5", 25_000_000),
        ("hetero_table4", "local", 50_000_000),
    ],
)
def test_images_of_a_run(name, cell, images):
    names = [c.name for c in cells(name)]
    assert cell in names, names
    assert estimates.images_of_run("pretrain", flags_of(name, cell)) == images


def test_a_cell_without_an_algorithm_is_dccos():
    own = {"rounds": "100", "clients_per_round": "32", "samples_per_client": "4"}
    assert estimates.images_of_run("pretrain", {**own, "dataset": "digits"}) == 12_800


def test_a_data_set_without_a_stand_in_is_named():
    own = {"dataset": "mnist", "num_clients": "5", "clients_per_round": "5"}
    with pytest.raises(ConfigurationError, match="--dataset=mnist: --estimate knows digits, cifar"):
        stand_ins.of_cell("pretrain", own)


def test_a_trial_does_not_need_the_evaluations_that_choose_the_best_encoder():
    own = flags_of("dcco_table1", "cco_fedavg_noniid_4")
    assert own["encoder_round"] == "best"
    changes = estimates.trial_flags("pretrain", own)
    assert {"--eval_every=0", "--encoder_round=last"} <= set(changes)


def fake_script(ran, failing=()):
    """Writes the metrics of four rounds in place of training."""

    def run_script(arguments, log, on_start, seconds):
        on_start(os.getpid())
        given = effective_flags(arguments[1:])
        ran.append(given)
        if given["alpha"] in failing:
            return "out of memory"
        folder = estimates.pathlib.Path(given["output_dir"])
        folder.mkdir(parents=True)
        with open(folder / "metrics.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["round", "seconds", "samples"])
            # The first round prepares graphs, and the median of the others is 7.5 seconds.
            writer.writerows([i + 1, seconds, 300] for i, seconds in enumerate((60, 7.5, 4, 9)))
        return None

    return run_script


def test_cells_that_a_time_limit_cut_off_are_measured_by_the_next_call(
    experiment, tmp_path, monkeypatch, capsys
):
    ran = []
    monkeypatch.setattr(runner, "run_script", fake_script(ran))
    monkeypatch.setattr(estimates.scripts, "is_ending", lambda: len(ran) == 2)
    estimates.run(experiment, experiment.cells, tmp_path)
    summary = estimates.summary([experiment], tmp_path, None)
    assert summary.splitlines()[-1].split() == ["toy", "2", "of", "3", "347"]
    assert summary.startswith(f"on {estimates.machine()}:")
    estimates.run(experiment, experiment.cells, tmp_path)
    assert len(ran) == 3
    assert "3 of 3" in estimates.summary([experiment], tmp_path, None)


def test_a_gpu_is_named_and_its_trials_have_more_images_and_rounds(monkeypatch):
    own = flags_of("fedu_table1", "fedu_iid")
    assert "--rounds=2" in estimates.trial_flags("pretrain", own, estimates._images(None))
    monkeypatch.setattr(estimates, "_gpu", lambda: "NVIDIA H100, 78 GiB")
    assert estimates.machine().startswith("NVIDIA H100, 78 GiB; ")
    assert estimates._images(None) == 256
    assert "--rounds=6" in estimates.trial_flags("pretrain", own, estimates._images(None))


@pytest.fixture
def experiment():
    common = (
        "--dataset=cifar10", "--algorithm=fedu", "--num_clients=5", "--clients_per_round=5",
        "--rounds=100", "--hparam=local_epochs=5", "--encoder=tiny",
    )  # fmt: skip
    return Experiment(
        "toy", "Toy",
        (
            Cell("iid", "pretrain", (*common, "--alpha=inf")),
            Cell("skewed", "pretrain", (*common, "--alpha=0.1")),
            Cell("larger", "pretrain", (*common, "--alpha=5", "--encoder=small")),
        ),
        (), (),
    )  # fmt: skip


def test_cells_that_compute_the_same_are_measured_once_and_nothing_twice(
    experiment, tmp_path, monkeypatch, capsys
):
    ran = []
    monkeypatch.setattr(runner, "run_script", fake_script(ran))
    watch = types.SimpleNamespace(peak=1_234_400_000, stop=lambda: None)
    monkeypatch.setattr(estimates, "MemoryWatch", lambda pid: watch)
    estimates.run(experiment, experiment.cells, tmp_path)
    assert [(own["encoder"], own["hparam.local_epochs"]) for own in ran] == [
        ("tiny", "1"), ("small", "1"),
    ]  # fmt: skip
    assert all(own["dataset"] == "case_folder" and own["rounds"] == "2" for own in ran)
    table = (tmp_path / "toy.md").read_text()
    # 25 ms an image, for 25 million of them.
    for cell in ("iid", "skewed", "larger"):
        row = next(line for line in table.splitlines() if line.startswith(f"| {cell} "))
        cells_of_row = [part.strip() for part in row.split("|")[2:6]]
        assert cells_of_row == ["1,234", "25.0", "25,000,000", "174"]
    assert "174" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} <= {
        "toy.md", "toy.html", "measurements.jsonl", ".lock",
    }  # fmt: skip
    estimates.run(experiment, experiment.cells, tmp_path)
    assert len(ran) == 2
    # Another experiment whose cell has the same round, with other clients of the same number.
    cell = dataclasses.replace(
        experiment.cells[0], flags=(*experiment.cells[0].flags, "--partition=skew")
    )
    again = dataclasses.replace(experiment, name="again", cells=(cell,))
    estimates.run(again, again.cells, tmp_path)
    assert len(ran) == 2
    assert "| iid " in (tmp_path / "again.md").read_text()
    # Another machine has other figures, and does not replace these.
    before = (tmp_path / "measurements.jsonl").read_text()
    monkeypatch.setattr(estimates, "machine", lambda: "64 cores")
    with pytest.raises(ConfigurationError, match="this is 64 cores: choose another --output_dir"):
        estimates.run(again, again.cells, tmp_path)
    assert (tmp_path / "measurements.jsonl").read_text() == before
    assert len(ran) == 2


def test_a_cell_that_does_not_train_is_named_and_measured_again(experiment, tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(runner, "run_script", fake_script(ran, failing=("5",)))
    with pytest.raises(TrainingError, match="1 cells do not train: larger"):
        estimates.run(experiment, experiment.cells, tmp_path)
    _, rows = estimates.read(tmp_path / "measurements.jsonl")
    assert {"cell": "toy/larger", "failed": "out of memory"} in rows.values()
    monkeypatch.setattr(runner, "run_script", fake_script(ran))
    estimates.run(experiment, experiment.cells, tmp_path)
    assert [own["encoder"] for own in ran] == ["tiny", "small", "small"]


def test_the_rad_of_a_trial_shrinks_with_its_clients():
    changes = estimates.trial_flags("pretrain", flags_of("hetero_table1", "hetero_ssfl"))
    # 16 of the 200 images of a batch, and so of the 200 of the RAD.
    assert {"--rad_size=16", "--hparam=rad_batch_size=16"} <= set(changes)
    own = flags_of("hetero_table1", "hetero_ssfl")
    assert stand_ins.of_cell("pretrain", own).images == 5 * 16 + 16
    others = estimates.trial_flags("pretrain", flags_of("hetero_table1", "fedu"))
    assert not any("rad" in flag for flag in others)


def test_one_round_of_a_large_network_on_large_images_is_enough():
    large = estimates.trial_flags("pretrain", flags_of("dcco_table2", "dcco_64"))
    assert "--rounds=1" in large
    small = estimates.trial_flags("pretrain", flags_of("fedu_encoders", "resnet50_iid"))
    assert "--rounds=2" in small


def test_centralized_cells_of_large_networks_have_small_batches():
    large = estimates.trial_flags("centralized", flags_of("dcco_table2", "centralized"))
    assert {"--rounds=1", "--batch_size=8"} <= set(large)
    small = estimates.trial_flags("centralized", flags_of("dcco_table1", "centralized"))
    assert not any(flag.startswith("--batch_size") for flag in small)


def test_cells_with_more_cases_in_a_round_have_the_trial_of_64():
    groups = estimates.groups_of(cells("dcco_table2"))
    names = [[cell.name for cell in group] for group in groups.values()]
    assert ["dcco_64", "dcco_128", "dcco_256"] in names
    changes = estimates.trial_flags("pretrain", flags_of("dcco_table2", "dcco_256"))
    assert "--clients_per_round=64" in changes
    # Other cohorts are not changed.
    assert "--clients_per_round=64" not in estimates.trial_flags(
        "pretrain", flags_of("dcco_table1", "dcco_noniid_1")
    )


def test_a_trial_with_whole_batches_is_a_measurement_of_its_own(experiment, tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(runner, "run_script", fake_script(ran))
    estimates.run(experiment, experiment.cells[:1], tmp_path)
    estimates.run(experiment, experiment.cells[:1], tmp_path, images=128)
    assert len(ran) == 2
    _, rows = estimates.read(tmp_path / "measurements.jsonl")
    assert len(rows) == 2
    own = effective_flags(experiment.cells[0].flags)
    assert stand_ins.of_cell("pretrain", own, 128).images == 5 * 128
    assert stand_ins.of_cell("pretrain", own).images == 5 * 16
    hetero = flags_of("hetero_table1", "hetero_ssfl")
    assert "--rad_size=200" in estimates.trial_flags("pretrain", hetero, 200)
