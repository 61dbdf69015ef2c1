"""DCCO at the CPU scale: equal conditions of methods, and claims on the tables."""

import pytest

from launch.studies import dcco, dcco_beyond, dcco_revisited, dcco_table2
from launch.studies.engine.runner import effective_flags
from tff_ssl.reporting.measured import Value
from tff_ssl.reporting.verdicts import check


@pytest.fixture(autouse=True)
def _in_the_project(project_root, monkeypatch):
    monkeypatch.chdir(project_root)  # Presets name other presets from there.


def _flags(experiment):
    return {cell.name: effective_flags(cell.flags) for cell in experiment.cells}


def _images_and_passes(given):
    """The number of images of the clients, and of images that pass through all rounds."""
    size = int(given["samples_per_client"])
    of_round = int(given["clients_per_round"]) * size
    return int(given["num_clients"]) * size, of_round * int(given["rounds"])


@pytest.mark.parametrize(("dataset", "visits"), [("cifar10", 38.4), ("digits", 25)])
def test_clients_of_all_sizes_have_as_many_images_and_see_them_as_often(dataset, visits):
    cells = _flags(dcco_revisited.dcco_table1_revisited("cpu", dataset, None))
    pretraining = [given for given in cells.values() if given.get("objective") != "supervised"]
    # Twice: DCCO on five kinds of clients, the FedAvg variants on four; and centralized CCO.
    assert len(pretraining) == 2 * (5 + 4 + 4) + 1
    (images, passes), *others = {_images_and_passes(given) for given in pretraining}
    assert not others
    assert passes / images == visits  # Of a client; about 1000 in the paper.
    assert {given["dataset"] for given in cells.values()} == {dataset}


def test_fedavg_alone_is_evaluated_at_its_best_round():
    for scale in ("cpu", "paper"):
        cells = _flags(dcco_revisited.dcco_table1_revisited(scale, None, None))
        for name, given in cells.items():
            is_best = given.get("encoder_round") == "best"
            assert is_best == ("fedavg" in name), name
        rates = {given.get("hparam.server_learning_rate") for given in cells.values()} - {None}
        assert len(rates) == 2


@pytest.mark.parametrize(("dataset", "expected"), [("cifar10", "20"), ("digits", "2")])
def test_lambda_belongs_to_ccos_loss_alone(dataset, expected):
    cells = _flags(dcco_revisited.dcco_table1_revisited("cpu", dataset, None))
    for name, given in cells.items():
        has_cco = "contrastive" not in name and "supervised" not in name
        assert given.get("hparam.lambda") == (expected if has_cco else None), name


@pytest.mark.parametrize(
    ("lost", "verdict"),
    [
        ((0.05, 0.06, 0.002), "holds"),
        ((0.005, 0.06, 0.03), "does not hold"),
    ],
)
def test_overfitting_is_judged_by_what_is_lost_after_the_best_round(lost, verdict):
    experiment = dcco_revisited.dcco_table1_revisited("cpu", None, None)
    table = experiment.tables[-1]
    assert table.selector.metric == "knn_lost"
    rows = dict(zip((dcco.CONTRASTIVE, dcco.CCO, dcco.DCCO), lost, strict=True))
    values = {
        (row, column): Value(rows.get(row, 0.0), 0.0005, 3, 0)
        for row in table.rows
        for column in table.columns
    }
    (claim,) = (claim for claim in experiment.claims if claim.table == table.title)
    assert check(claim, table, values) == verdict


def test_table_1_without_iid_clients_claims_nothing_about_them():
    experiment = dcco.dcco_table1("cpu", "cifar10", None)
    assert [table.columns for table in experiment.tables] == [("non-IID, 1", "non-IID, 4")] * 4
    texts = {claim.text for claim in experiment.claims}
    assert not [text for text in texts if " IID" in text]
    assert "DCCO falls with the samples per client on non-IID clients" in texts


def test_extensions_on_cifar10_are_communications_and_local_steps_on_as_many_images():
    cells = _flags(dcco_beyond.dcco_extensions("cpu", "cifar10", None))
    assert {given["algorithm"] for given in cells.values()} == {"dcco", "dcco_one_stage"}
    assert "4" in {given.get("hparam.local_steps") for given in cells.values()}
    sizes = {
        int(given["clients_per_round"]) * int(given["samples_per_client"])
        for given in cells.values()
    }
    assert sizes == {128}
    assert {given["dataset"] for given in cells.values()} == {"cifar10"}
    assert {given["hparam.server_learning_rate"] for given in cells.values()} == {"0.0045"}


def test_few_cases_are_fewer_than_the_papers_and_the_same_for_probe_and_fine_tuning():
    for scale in ("cpu", "paper"):
        for cell in dcco_table2.dcco_table2_few_labels(scale, None, None).cells:
            for given in (cell.flags, *cell.evaluations):
                assert effective_flags(given)["labels"] == "100,300"
