"""The clients' images that flags describe: feature clusters, fractions of the data, shifts."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from datasets import shift
from datasets.errors import DatasetError
from launch.options import clients as client_options
from launch.options import data, settings
from launch.options import model as model_options
from launch.pages import rebuilding
from launch.runs import federated
from tests.launch import configs
from tff_ssl.deployment import saved_model
from tff_ssl.errors import ConfigurationError

CLUSTERS = ("--partition=feature_clusters", "--num_clients=5", "--alpha=0.05")


def test_clusters_of_pixels_are_partitioned_and_no_image_is_lost():
    config = configs.run(*CLUSTERS, "--cluster_encoder=pixels", "--clusters=10")
    dataset = data.load_dataset(config.data)
    clusters = client_options.cluster_ids(dataset, config.clients, 0)
    assert adjusted_rand_score(dataset.train.labels, clusters) > 0.5
    clients = client_options.partition_dataset(dataset, config.clients, 0)
    assert sorted(np.concatenate(clients).tolist()) == list(range(len(dataset.train)))
    again = client_options.partition_dataset(dataset, config.clients, 0, clusters)
    assert all(map(np.array_equal, clients, again))


@pytest.mark.slow
@pytest.mark.parametrize("in_run_folder", [True, False])
def test_clusters_of_an_encoder(tmp_path, in_run_folder):
    config = configs.run(
        *CLUSTERS, f"--cluster_encoder={tmp_path}", "--encoder=tiny", "--view_size=16"
    )
    dataset = data.load_dataset(config.data)
    model = model_options.build_model(dataset, config.model, "cco")
    saved_model.save_encoder(tmp_path / "new", model, model.init(0), (8, 8, 1), 16)
    folder = tmp_path / "new"
    if in_run_folder:
        folder.rename(tmp_path / "encoder")
    encoder = str(tmp_path if in_run_folder else folder)
    config = settings.replace(config, cluster_encoder=encoder, image_size=12)
    ids = client_options.cluster_ids(dataset, config.clients, 0)
    assert np.bincount(ids).min() > 0
    assert len(np.bincount(ids)) == 5
    assert adjusted_rand_score(dataset.train.labels, ids) > 0.1
    with pytest.raises(ConfigurationError, match="image_size"):
        client_options.cluster_ids(data.load_dataset(config.data), config.clients, 0)


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ((), "--cluster_encoder=FOLDER"),
        (("--cluster_encoder=/nonexistent",), "--cluster_encoder: /nonexistent"),
        (("--cluster_encoder=pixels", "--clusters=99999"), "clusters"),
        (("--cluster_encoder=pixels", "--cluster_partition=skew"), "beta"),
    ],
)
def test_the_error_names_the_flag_in_one_line(flags, word):
    config = configs.run(*CLUSTERS[:2], *flags)
    with pytest.raises((ConfigurationError, DatasetError), match=word) as error:
        client_options.partition_dataset(data.load_dataset(config.data), config.clients, 0)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--partition=iid", "--alpha=0.1"), "--alpha is not read by --partition=iid: leave it "
         "out, or take dirichlet or dirichlet_per_class"),
        (("--partition=skew", "--beta=0", "--random_sizes"), "--random_sizes is not read by"),
        ((*CLUSTERS, "--cluster_partition=skew"), "--alpha is not read by --partition="
         "feature_clusters with --cluster_partition=skew"),
        (("--beta=0.1",), "--beta is not read by --partition=dirichlet"),
    ],
)  # fmt: skip
def test_flags_of_other_partitions_are_refused(flags, message):
    with pytest.raises(ConfigurationError, match=message):
        configs.run(*flags)


def test_a_preset_may_have_flags_of_another_partition(tmp_path):
    preset = tmp_path / "preset.flags"
    preset.write_text("--partition=skew\n--beta=0\n--num_clients=5\n")
    config = configs.run(f"--flagfile={preset}", "--partition=iid")
    assert config.clients.partition == "iid"


def test_each_client_keeps_a_fraction_of_its_data():
    config = configs.run("--partition=iid", "--num_clients=10", "--data_fraction=0.1")
    dataset = data.load_dataset(config.data)
    clients = client_options.partition_dataset(dataset, config.clients, 0)
    config = settings.replace(config, data_fraction=1.0)
    all_data = client_options.partition_dataset(dataset, config.clients, 0)
    for part, whole in zip(clients, all_data, strict=True):
        assert len(part) == round(0.1 * len(whole))
        assert set(part.tolist()) < set(whole.tolist())


def test_the_smallest_client_holds_after_the_fraction_and_is_announced():
    flags = ("--partition=dirichlet_per_class", "--alpha=0.05", "--num_clients=30",
             "--data_fraction=0.3", "--algorithm=fedavg", "--objective=nt_xent")  # fmt: skip
    config = configs.run(*flags)
    dataset = data.load_dataset(config.data)
    small = client_options.partition_dataset(dataset, config.clients, 0)
    assert min(map(len, small)) < 4
    with pytest.raises(ConfigurationError, match="--min_client_size=4"):
        client_options.large_enough(small, 4, config)
    assert "min_client_size" not in federated._describe_data_settings(0, 30, config.clients)
    config = settings.replace(config, min_client_size=4)
    clients = client_options.partition_dataset(dataset, config.clients, 0)
    assert min(map(len, clients)) >= 4
    text = federated._describe_data_settings(7, 30, config.clients)
    assert text == ", at least 4 images each (--min_client_size), 7 images left out"


def test_the_page_of_a_run_has_the_clients_that_were_large_enough():
    config = configs.run("--partition=dirichlet_per_class", "--alpha=0.05", "--num_clients=30",
                         "--data_fraction=0.3", "--algorithm=fedavg", "--objective=nt_xent",
                         "--hparam=min_samples=4")  # fmt: skip
    dataset = data.load_dataset(config.data)
    everyone = client_options.partition_dataset(dataset, config.clients, 0)
    assert len(rebuilding._clients(dataset, config)) == len(everyone)
    kept = rebuilding._clients(dataset, settings.replace(config, skip_small_clients=True))
    assert len(kept) < len(everyone)
    assert all(map(np.array_equal, kept, [c for c in everyone if len(c) >= 4]))


def test_clients_see_shifted_images_with_the_same_labels():
    config = configs.run("--partition=iid", "--num_clients=4", "--shift=rotation")
    train = data.load_dataset(config.data).train
    clients = client_options.partition_dataset(data.load_dataset(config.data), config.clients, 0)
    shifted = client_options.client_images(train, clients, config.clients)
    for k, indices in enumerate(clients):
        assert np.array_equal(shifted.images[indices], np.rot90(train.images[indices], k, (1, 2)))
    assert shifted.labels is train.labels
    plain = settings.replace(config, shift="none")
    assert client_options.client_images(train, clients, plain.clients) is train
    config = settings.replace(config, shift="style", shifts=len(shift.STYLES) + 1)
    with pytest.raises(DatasetError, match="shifts"):
        client_options.client_images(train, np.split(np.arange(9), 9), config.clients)
