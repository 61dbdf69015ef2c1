"""Folders of runs, written by hand, and images and encodings of their pages."""

import json

import numpy as np
import tensorflow as tf

from datasets.image_dataset import ImageDataset, Split
from launch.outputs import partition_record
from launch.pages import run_page
from tff_ssl.views import augmentation

CLASSES = ("a rather long name of a class", "b", "c")


def entry(labels_per_class=1, accuracy=0.8, untrained=0.4, raw=0.6, **more):
    def scores(value):
        return {"accuracy": value, "accuracy_std": 0.01, "balanced_accuracy": value,
                "balanced_accuracy_std": 0.01}  # fmt: skip

    baselines = {"random_encoder": scores(untrained), "raw_pixels": scores(raw)}
    return {
        "protocol": "linear", "dataset": "digits", "labels": 3 * labels_per_class,
        "labels_per_class": labels_per_class, **scores(accuracy), "baselines": baselines,
        "algorithm": "dcco", "objective": "cco", "rounds": 4, "clients": 6, "train_images": 60,
        "bytes_down_per_client_and_round": 1_280_000, "bytes_up_per_client_and_round": 640_000,
        "effective_rank": 9.5, "effective_rank_untrained": 20.25, **more,
    }  # fmt: skip


def images(channels=1, count=60, labelled=True):
    rng = np.random.default_rng(0)

    def split(count, first):
        labels = rng.integers(0, 3, count) if labelled else np.full(count, -1)
        pixels = rng.integers(0, 256, (count, 8, 8, channels)).astype(np.uint8)
        return Split(pixels, labels.astype(np.int32), np.arange(count) + first)

    return ImageDataset("digits", split(count, 0), split(30, count), CLASSES)


def write_run(folder, results, rounds=4, partition=True, **flags):
    """Writes the files of a run with four rounds of metrics."""
    folder.mkdir(parents=True)
    values = {
        "script": "pretrain", "algorithm": "dcco", "objective": "cco", "dataset": "digits",
        "encoder": "tiny", "rounds": rounds, "seed": 0, "hparam": ["lambda=2", "<b>=1"],
        "per_case": None, "a_flag_with_a_long_name": "/a/path/" + "of_a_folder/" * 20, **flags,
    }  # fmt: skip
    config = {**values, "given": ["hparam", "rounds"], "versions": {"python": "3"},
              "git_commit": "0123456789abcdef" * 3}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    if results:
        (folder / "result.json").write_text(json.dumps(results))
    (folder / "metrics.csv").write_text(
        "round,loss,seconds,clients,effective_rank,knn_accuracy,knn_balanced_accuracy\n"
        "1,9.5,30,2,,,\n2,7.0,30,3,12.0,0.5,0.4\n3,6.0,30,2,,,\n4,5.5,60,3,9.5,0.75,0.7\n"
    )
    if partition:
        clients = np.split(np.arange(60), 6)
        record = partition_record.describe_clients(images().train, clients, CLASSES)
        (folder / "partition.json").write_text(json.dumps(record))
    return folder


def shown(dataset, encoders=(run_page.TRAINED, run_page.UNTRAINED)):
    """What a page shows, by linear encoders."""

    def views(images, ids, round_number):
        return augmentation.two_views("flip", images, ids, seed=0, round_number=round_number)

    functions = {name: linear_encoder(dataset, seed) for seed, name in enumerate(encoders)}
    return run_page.compute(dataset, dataset.train, views, functions, 0)


def linear_encoder(dataset, seed):
    """A random linear map of the pixels to seven features."""
    size = int(np.prod(dataset.train.images.shape[1:]))
    weights = np.random.default_rng(seed).normal(size=(size, 7)).astype(np.float32)
    return lambda x: tf.cast(tf.reshape(x, [-1, size]), tf.float32) @ weights
