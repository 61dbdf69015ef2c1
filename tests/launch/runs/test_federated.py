"""Resuming with the same images and clients, and the fraction of clients in a round."""

import dataclasses
import types

import numpy as np
import pytest

from datasets import client_store
from datasets.image_dataset import ImageDataset, Split
from launch.outputs import partition_record, run_folder
from launch.runs import federated
from tff_ssl.errors import ConfigurationError
from tff_ssl.simulation.dropouts import Dropouts
from tff_ssl.simulation.participation import Participation


@pytest.fixture
def clients():
    """The clients of a run on twelve images."""
    rng = np.random.default_rng(0)
    split = Split(
        rng.integers(0, 256, (12, 4, 4, 1), np.uint8), np.arange(12, dtype=np.int32) % 3,
        np.arange(12),
    )  # fmt: skip
    dataset = ImageDataset("toy", split, split, ("a", "b", "c"))
    indices = [np.arange(5), np.arange(5, 12)]
    return federated.Clients(dataset, indices, split, 0, None, None)


def changed_images(clients):
    train = clients.dataset.train
    swapped = train.images.copy()
    swapped[[0, 11]] = swapped[[11, 0]]
    return clients._replace(
        dataset=dataclasses.replace(
            clients.dataset, train=Split(swapped, train.labels, train.example_ids)
        )
    )


@pytest.mark.parametrize(
    "change",
    [
        changed_images,
        lambda c: c._replace(indices=[np.arange(6), np.arange(6, 12)]),
        lambda c: c._replace(indices=c.indices[::-1]),
        lambda c: c._replace(server_images=c.dataset.train.images[:2]),
    ],
)
def test_a_run_is_not_resumed_on_other_images_or_clients(clients, tmp_path, change):
    def open_run(clients, resume):
        digests = partition_record.data_digests(
            clients.dataset, clients.indices, clients.server_images
        )
        run_folder.open_run(
            tmp_path, {"script": "pretrain", "rounds": 3, "dataset": "toy"}, [], resume, digests
        )

    open_run(clients, resume=False)
    open_run(clients, resume=True)
    with pytest.raises(
        ConfigurationError, match=r"--resume: the (images|clients) of --dataset=toy are"
    ):
        open_run(change(clients), resume=True)


def test_the_fraction_of_clients_in_a_round_counts_those_that_are_invited_in_whole_numbers():
    # 5 / (1 - 0.2) is 6.25: 7 clients are invited, of which 5.6 are expected to finish.
    cohorts = Participation(lambda _: np.arange(7), 5, 7, dropouts=Dropouts(0.2))
    setting = types.SimpleNamespace(participation=cohorts, client_sizes=[1] * 20)
    assert federated._participation(setting) == pytest.approx(5.6 / 20)


def test_nodes_and_slices_are_counted_in_words(capsys):
    def printed(nodes, slices):
        facts = [types.SimpleNamespace(host="here", device="CPU")] * nodes
        federated._announce_nodes(types.SimpleNamespace(facts=lambda: facts), slices)
        return capsys.readouterr().out

    assert printed(1, 1) == "1 node, on here (CPU); 1 slice a round\n"
    assert printed(2, 3) == "2 nodes, on here (CPU); 3 slices a round\n"
    assert "note: 1 of them has nothing to do" in printed(3, 2)
    assert "note: 2 of them have nothing to do" in printed(3, 1)
    federated._announce_nodes(federated.InThisProcess(), 1)
    assert capsys.readouterr().out == "1 slice a round, one after another\n"


def test_only_this_user_can_read_the_store_of_the_clients_images(clients, tmp_path, monkeypatch):
    """Also that of a run which ends with an error, and after a file that everybody can read."""
    store = tmp_path / "clients.sqlite"
    store.write_text("old")
    config = types.SimpleNamespace(
        objective="nt_xent", runtime=types.SimpleNamespace(max_concurrent_calls=1),
        participation=types.SimpleNamespace(round_timeout=None),
    )  # fmt: skip
    built = types.SimpleNamespace(chosen=types.SimpleNamespace(config=config), clients=clients)
    monkeypatch.setattr(federated, "_nodes", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError), federated.simulate(built, None, tmp_path, None):
        pass
    assert store.stat().st_mode & 0o777 == 0o600
    assert client_store.StoredClientData(store).client_sizes().tolist() == [5, 7]
    assert list(tmp_path.iterdir()) == [store]
