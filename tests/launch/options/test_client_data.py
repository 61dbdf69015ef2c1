"""From flags to the clients' images: clusters, shares of the data, shifts."""

import numpy as np
import pytest
from absl import flags as absl_flags
from absl.testing import flagsaver
from sklearn.metrics import adjusted_rand_score

import launch.pretrain  # noqa: F401  (defines the flags)
from datasets import shift
from datasets.errors import DatasetError
from launch.options import clients as clients_options
from launch.options import data
from launch.options import model as model_options
from tff_ssl.deployment import saved_model
from tff_ssl.errors import ConfigurationError


@pytest.fixture
def parse():
    """Flags on the command line -> their values."""
    with flagsaver.flagsaver():
        yield lambda *flags: absl_flags.FLAGS(["pretrain", *flags]) and absl_flags.FLAGS


CLUSTERS = ("--partition=feature_clusters", "--num_clients=5", "--alpha=0.05")


def test_clusters_of_pixels_are_dealt_out_and_nothing_is_lost(parse):
    args = parse(*CLUSTERS, "--cluster_encoder=pixels", "--clusters=10")
    dataset = data.load_dataset(args)
    clusters = clients_options.cluster_ids(dataset, args)
    assert adjusted_rand_score(dataset.train.labels, clusters) > 0.5
    clients = clients_options.partition_dataset(dataset, args)
    assert sorted(np.concatenate(clients).tolist()) == list(range(len(dataset.train)))
    again = clients_options.partition_dataset(dataset, args, clusters)
    assert all(map(np.array_equal, clients, again))


@pytest.mark.parametrize("inside", ["encoder", "."])
def test_clusters_of_an_encoder(parse, tmp_path, inside):
    args = parse(*CLUSTERS, f"--cluster_encoder={tmp_path}", "--encoder=tiny")
    dataset = data.load_dataset(args)
    model = model_options.build_model(dataset, args, "cco")
    saved_model.save_encoder(tmp_path / "new", model, model.init(0), (8, 8, 1), 16)
    folder = tmp_path / "new"
    folder = folder.rename(tmp_path / "encoder") if inside == "encoder" else folder
    args.cluster_encoder = str(tmp_path if inside == "encoder" else folder)
    ids = clients_options.cluster_ids(dataset, args)
    assert np.bincount(ids).min() > 0
    assert len(np.bincount(ids)) == 5
    assert adjusted_rand_score(dataset.train.labels, ids) > 0.1
    args.image_size = 12
    with pytest.raises(ConfigurationError, match="image_size"):
        clients_options.cluster_ids(data.load_dataset(args), args)


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ((), "--cluster_encoder=FOLDER"),
        (("--cluster_encoder=/nonexistent",), "--cluster_encoder: /nonexistent"),
        (("--cluster_encoder=pixels", "--clusters=99999"), "clusters"),
        (("--cluster_encoder=pixels", "--cluster_partition=skew"), "beta"),
        (("--cluster_encoder=pixels", "--data_fraction=0"), "data_fraction"),
        (("--cluster_encoder=pixels", "--data_fraction=1.1"), "data_fraction"),
    ],
)
def test_mistakes_name_the_flag_in_one_line(parse, flags, word):
    args = parse(*CLUSTERS, *flags)
    with pytest.raises((ConfigurationError, DatasetError), match=word) as caught:
        clients_options.partition_dataset(data.load_dataset(args), args)
    assert "\n" not in str(caught.value)


def test_a_share_of_each_clients_data(parse):
    args = parse("--partition=iid", "--num_clients=10", "--data_fraction=0.1")
    dataset = data.load_dataset(args)
    clients = clients_options.partition_dataset(dataset, args)
    args.data_fraction = 1.0
    for part, whole in zip(clients, clients_options.partition_dataset(dataset, args), strict=True):
        assert len(part) == round(0.1 * len(whole))
        assert set(part.tolist()) < set(whole.tolist())


def test_clients_see_shifted_images_with_the_same_labels(parse):
    args = parse("--partition=iid", "--num_clients=4", "--shift=rotation")
    train = data.load_dataset(args).train
    clients = clients_options.partition_dataset(data.load_dataset(args), args)
    seen = clients_options.client_images(train, clients, args)
    for k, indices in enumerate(clients):
        assert np.array_equal(seen.images[indices], np.rot90(train.images[indices], k, (1, 2)))
    assert seen.labels is train.labels
    args.shift = "none"
    assert clients_options.client_images(train, clients, args) is train
    args.shift, args.shifts = "style", len(shift.STYLES) + 1
    args.num_clients = 9
    with pytest.raises(DatasetError, match="shifts"):
        clients_options.client_images(train, np.split(np.arange(9), 9), args)
