"""The record of a partition that a run keeps."""

import json

import numpy as np
import pytest

from datasets import describe
from datasets.image_dataset import Split
from launch.outputs import partition_record
from tff_ssl.errors import ConfigurationError

NAMES = ("a", "b", "c")


def split(labels):
    count = len(labels)
    images = np.zeros((count, 1, 1, 1), np.uint8)
    return Split(images, np.array(labels, np.int32), np.arange(count))


def test_a_small_partition_is_recorded_completely():
    train = split([0, 0, 1, 2, 2, -1, 1])
    clients = [np.array([0, 1]), np.array([2, 3, 4, 5])]
    record = partition_record.describe_clients(train, clients, NAMES)
    counts = describe.histograms(train.labels, clients, 3)
    assert {key: record[key] for key in describe.summary(counts, clients, 7)} == describe.summary(
        counts, clients, 7
    )
    assert record["shown"] == [
        {"client": 0, "size": 2, "counts": {0: 2}},
        {"client": 1, "size": 4, "counts": {1: 1, 2: 2}},
    ]
    assert record["examples_left_out"] == record["unlabelled"] == 1
    json.dumps(record)


def test_the_record_of_many_clients_stays_small():
    rng = np.random.default_rng(0)
    train = split(rng.integers(0, 3, 24_000))
    clients = np.split(rng.permutation(24_000), 12_000)
    clients[7], clients[8] = np.concatenate(clients[7:9]), clients[8][:0]
    record = partition_record.describe_clients(train, clients, NAMES)
    assert record["clients"] == 12_000
    assert record["examples"] == 24_000
    assert record["client_sizes"] == {"min": 0, "median": 2, "max": 4}
    assert record["clients_counted"] == 5000
    # Two images of three classes: the same class with probability 1/3, at a distance near 4/3;
    # else two classes, at a distance near 2/3.
    assert record["emd"] == pytest.approx((4 / 3 + 2 * 2 / 3) / 3, abs=0.02)
    shown = [client["client"] for client in record["shown"]]
    assert (len(shown), shown[0], shown[-1]) == (partition_record.SHOWN_CLIENTS, 0, 11_999)
    assert len(json.dumps(record)) < 3000


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.pop("clients"),
        lambda record: record.update(client_sizes=[]),
        lambda record: record.update(emd="x"),
        lambda record: record["shown"][0].update(counts=[3]),
        lambda record: record["shown"][0].update(counts={"3": 1}),  # There are three classes.
        lambda record: record["shown"].append(None),
    ],
)
def test_a_damaged_record_is_named(tmp_path, change):
    path = tmp_path / "partition.json"
    record = partition_record.describe_clients(split([0, 1, 2]), [np.array([0, 1])], NAMES)
    path.write_text(json.dumps(record))
    record = partition_record.read(path)
    assert record["shown"][0]["counts"] == {"0": 1, "1": 1}
    change(record)
    path.write_text(json.dumps(record))
    with pytest.raises(ConfigurationError, match=f"{path} c.*put back a whole one"):
        partition_record.read(path)
