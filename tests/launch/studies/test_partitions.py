"""Every cell and seed of every experiment has clients that are large enough for its objective.

The data sets are stand-ins with the right number of examples of each class and without pixels, so
that neither TFDS nor a download is needed. Cells with the same data flags share a partition.
"""

import functools

import numpy as np
import pytest

from datasets import catalog as dataset_catalog
from datasets.image_dataset import ImageDataset, Split
from launch.options import algorithm as algorithm_options
from launch.options import clients as client_options
from launch.options import data, heterogeneous_clients, network
from launch.options.participation import build_participation
from launch.runs import federated
from launch.studies import catalog
from launch.studies.engine import estimates, stand_ins
from launch.studies.engine.runner import effective_flags
from tests.launch import configs
from tff_ssl.kinds.protocol import Need
from tff_ssl.templates.task import Population

SEEDS = {"cpu": 3, "gpu": 1, "paper": 1}  # 3 is the default of `launch.reproduce --seeds`.
# Number of training examples of each class.
_CLASS_SIZES = {
    "cifar10": (5000,) * 10,
    "cifar100": (500,) * 100,
    "mini_imagenet": (480,) * 100,  # 600 of each class, of which a fifth is held out.
}
# HAM10000: number of lesions with one, two, ... six images. Half of them stand for the training
# set, so that these are the smallest cases that a run can meet.
_CASES = (2757, 711, 245, 17, 2, 2)


def _split(labels, case_ids=None):
    images = np.zeros((len(labels), 1, 1, 1), np.uint8)
    return Split(images, labels.astype(np.int32), np.arange(len(labels)), case_ids)


@functools.cache
def _stand_in(name):
    """A data set with as many examples of each class as the one of this name."""
    if name == "digits":
        return dataset_catalog.load(name)
    if name == "case_folder":
        sizes = np.repeat(np.arange(1, len(_CASES) + 1), _CASES)
        cases = np.repeat(np.arange(len(sizes)), sizes).astype(str).astype(object)
        train, classes = _split(np.arange(len(cases)) % 7, cases), 7
    else:
        order = np.random.default_rng(0)
        sizes = _CLASS_SIZES[name]
        train = _split(order.permutation(np.repeat(np.arange(len(sizes)), sizes)))
        classes = len(sizes)
    return ImageDataset(name, train, train, tuple(map(str, range(classes))))


def _uneven_clusters(dataset, config, seed):
    """Clusters of different sizes, for the encoder that the experiment trains first."""
    if config.partition != "feature_clusters":
        return None
    shares = np.arange(1, config.clusters + 1) / np.arange(1, config.clusters + 1).sum()
    rng = np.random.default_rng(seed)
    return rng.choice(config.clusters, len(dataset.train), p=shares).astype(np.int32)


def _cells(scale, name):
    cells = catalog.EXPERIMENTS[name][0](scale, None, None).cells
    return [cell for cell in cells if cell.script == "pretrain"]


@pytest.fixture
def check(project_root, monkeypatch):
    """A function that builds the clients of a cell at a seed, and returns their sizes.

    Its third argument is a data set in place of that which the flags name.
    """
    monkeypatch.chdir(project_root)  # Presets name other presets from there.
    partitions, others = {}, {}
    partition_dataset = client_options.partition_dataset

    def shared(dataset, config, seed):
        # The server's images differ by the algorithm's kind, and so does the number of images.
        key = (dataset.name, len(dataset.train), config, seed)
        if key not in partitions:
            partitions[key] = partition_dataset(dataset, config, seed)
        return partitions[key]

    monkeypatch.setattr(client_options, "partition_dataset", shared)
    monkeypatch.setattr(client_options, "cluster_ids", _uneven_clusters)
    monkeypatch.setattr(
        data,
        "load_dataset",
        lambda config, *_: others.get(config.dataset) or _stand_in(config.dataset),
    )
    # Shifts change pixels, and the stand-ins have none.
    monkeypatch.setattr(client_options.shift, "shift_clients", lambda _, images, *others: images)
    monkeypatch.setattr(
        heterogeneous_clients, "build_population", lambda *_: Population((), (), (), 0)
    )  # Models take long to build.

    def build(given, seed, other=None):
        if other:
            others[other.name] = other
            partitions.clear()
        config = configs.run(*given, f"--seed={seed}")
        chosen = algorithm_options.choose(config)
        clients = federated.partition(chosen, federated.load(chosen.config))
        config, sizes = chosen.config, [len(indices) for indices in clients.indices]
        needs = chosen.entry.kind.needs
        if Need.NETWORK in needs:
            network.build_network(config, sizes)
        if Need.COHORTS in needs:
            taking_part = build_participation(len(sizes), config.participation, config.seed)
            assert taking_part.cohorts(0).size
        assert config.evaluation.personalized_clients <= len(sizes)
        assert chosen.entry.min_clients(chosen.values) <= len(sizes)
        return sizes

    return build


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("name", "scale"), catalog.SCALES)
def test_the_clients_of_every_cell_and_seed_are_large_enough(check, name, scale):
    for cell in _cells(scale, name):
        for seed in range(SEEDS[scale]):
            sizes = check(cell.flags, seed)
            # More clients that are left out would make another experiment.
            left_out = effective_flags(cell.flags).get("skip_small_clients") is not None
            number = effective_flags(cell.flags).get("num_clients")
            assert left_out or number is None or len(sizes) == int(number), (cell.name, seed)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", list(catalog.EXPERIMENTS))
def test_the_random_images_of_an_estimate_are_enough_for_every_cell(check, name):
    for cell, *_ in estimates.groups_of(_cells("paper", name)).values():
        own = effective_flags(cell.flags)
        if own["dataset"] == "digits":
            continue
        stand_in = stand_ins.of_cell(cell.script, own)
        cases = np.arange(stand_in.images) // (2 if stand_in.cases else 1)
        case_ids = cases.astype(str).astype(object) if stand_in.cases else None
        train = _split(cases % stand_in.classes, case_ids)
        classes = tuple(map(str, range(stand_in.classes)))
        images = ImageDataset("case_folder", train, train, classes)
        trial = estimates.trial_flags(cell.script, own)
        assert check([*cell.flags, *trial, "--dataset=case_folder"], 0, images), cell.name


def test_stand_ins_have_the_sizes_of_the_data_sets():
    assert len(_stand_in("cifar10").train) == len(_stand_in("cifar100").train) == 50_000
    assert set(np.bincount(_stand_in("cifar100").train.labels)) == {500}
    used = {
        effective_flags(cell.flags)["dataset"]
        for name in catalog.EXPERIMENTS
        for scale in ("cpu", "paper")
        for cell in _cells(scale, name)
    }
    assert used == {"digits", "case_folder", *_CLASS_SIZES}
