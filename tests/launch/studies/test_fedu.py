"""FedU's experiments: runs that figures share, and settings that have to agree between cells."""

import pytest

from launch.studies import fedu, fedu_ablation
from launch.studies.engine.runner import effective_flags


@pytest.fixture(autouse=True)
def at_the_root(project_root, monkeypatch):
    """Changes to the project's root, from which presets name other presets."""
    monkeypatch.chdir(project_root)


def _flags(experiment):
    return {cell.name: effective_flags(cell.flags) for cell in experiment.cells}


@pytest.mark.parametrize(("scale", "epochs"), [("cpu", 200), ("paper", 500)])
def test_local_epochs_of_figure_6_add_up_to_the_same_number(scale, epochs):
    experiment = fedu_ablation.fedu_figure6(scale, None, None)
    flags = _flags(experiment)
    by_epochs, by_rounds = experiment.tables
    for name in by_epochs.rows["FedU"]:
        run = flags[name]
        assert int(run["rounds"]) * int(run["hparam.local_epochs"]) == epochs
    assert {flags[name]["hparam.local_epochs"] for name in by_rounds.rows["FedU"]} == {"1"}
    shared = set(by_epochs.rows["FedU"]) & set(by_rounds.rows["FedU"])
    assert shared == ({"rounds_200"} if scale == "cpu" else set())


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_thresholds_of_figure_5b_are_sorted_and_dapus_own_is_among_them(scale):
    experiment = fedu_ablation.fedu_table4(scale, None, None)
    flags = _flags(experiment)
    (figure,) = (table for table in experiment.tables if table.title.startswith("Figure 5b"))
    shown = {row: names[0] for row, names in figure.rows.items() if "dapu" in names[0]}
    del shown[fedu.UNTRAINED]
    assert list(shown) == sorted(shown, key=float)
    assert "dapu" in shown.values()
    assert all(flags[name]["hparam.mu"] == row for row, name in shown.items())


def test_centralized_byol_has_as_many_images_and_steps_as_all_clients_at_the_cpus_scale():
    flags = _flags(fedu.fedu_table1("cpu", None, None))
    central, clients = flags["central"], flags["fedu_iid"]
    assert (central["num_clients"], clients["num_clients"]) == ("1", "5")
    for name in ("data_fraction", "hparam.batch_size", "hparam.local_epochs", "rounds"):
        assert central[name] == clients[name]
    steps = round(50_000 * float(central["data_fraction"])) // int(central["hparam.batch_size"])
    momentum = float(central["hparam.target_momentum"])
    assert 1 - momentum**steps == pytest.approx(0.54, abs=0.01)


def test_supervised_clients_of_the_cpus_scale_take_as_many_steps_as_the_others():
    flags = _flags(fedu.fedu_table1("cpu", None, None))

    def steps(run):
        images = round(50_000 * float(run["data_fraction"])) // int(run["num_clients"])
        return int(run["rounds"]) * (images // int(run["hparam.batch_size"]))

    for name in ("supervised_noniid_1_percent", "supervised_noniid_10_percent"):
        assert steps(flags[name]) == pytest.approx(steps(flags["fedu_noniid"]), rel=0.01)


def test_transfer_is_to_another_data_set_than_that_of_the_pretraining():
    for scale, dataset in (("cpu", None), ("cpu", "cifar10"), ("paper", None)):
        for cell in fedu.fedu_table3(scale, dataset, None).cells:
            source = effective_flags(cell.flags)["dataset"]
            targets = {effective_flags(evaluation)["dataset"] for evaluation in cell.evaluations}
            assert targets
            assert source not in targets
