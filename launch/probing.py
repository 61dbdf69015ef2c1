"""The kNN monitor, and the probes at the end of a run with their baselines beside them."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from absl import flags

from datasets.image_dataset import ImageDataset
from tff_ssl.errors import ConfigurationError
from tff_ssl.evaluation import features, knn, labels, linear_probe

_MONITOR_EXAMPLES = 2000
_MONITOR_SEED = 0

Encode = Callable[[tf.Tensor], tf.Tensor]


def build_monitor(dataset: ImageDataset, encode, weights_of) -> Callable[[Any], dict[str, float]]:
    """Accuracy of a kNN classifier, each training image against the others; no test image is used.

    Args:
      dataset: Labels may be missing; without any there is nothing to monitor.
      encode: `export.encoder_function` of the model.
      weights_of: state -> the model's weights.
    """
    labelled = np.flatnonzero(dataset.train.labels >= 0)
    if len(labelled) < 2:
        return lambda state: {}
    rng = np.random.default_rng(_MONITOR_SEED)
    chosen = np.sort(rng.permutation(labelled)[:_MONITOR_EXAMPLES])
    images, classes = dataset.train.images[chosen], dataset.train.labels[chosen]

    def monitor(state: Any) -> dict[str, float]:
        h = features.extract(functools.partial(encode, weights_of(state)), images)
        return {"knn_accuracy": knn.leave_one_out_knn(h, classes).accuracy}

    return monitor


def parse_label_counts(args: flags.FlagValues) -> list[dict[str, Any]]:
    """`--labels`, or else `--labels_per_class`, as arguments of `few_label_comparison`.

    Raises:
      ConfigurationError: If one is not a positive number.
    """
    name = "labels" if args.labels else "labels_per_class"
    counts = []
    for text in args[name].value:
        if not text.isdecimal() or int(text) < 1:
            raise ConfigurationError(f"--{name} takes positive numbers such as 1,5; got {text!r}")
        counts.append({name: int(text)})
    return counts


def check_labels(dataset: ImageDataset, args: flags.FlagValues) -> None:
    """Finds out before the training whether the probes after it can be done.

    Raises:
      ConfigurationError: If the data set has fewer labels than the flags ask for.
    """
    for count in parse_label_counts(args):
        if len(dataset.test) and np.any(dataset.train.labels >= 0):
            try:
                labels.draw_labels(
                    dataset.train.labels,
                    np.random.default_rng(0),
                    per_class=count.get("labels_per_class"),
                    total=count.get("labels"),
                )
            except ValueError as error:
                raise ConfigurationError(f"--{next(iter(count))}: {error}") from error


def probe(
    dataset: ImageDataset, encode: Encode, random_encode: Encode, args: flags.FlagValues
) -> list[dict[str, Any]]:
    """Linear probes of the encoder, the untrained encoder and raw pixels, on the same labels.

    Returns:
      A result per number of labels; none where the data set has no labels or no test images.

    Raises:
      ConfigurationError: If the data set has fewer labels than the flags ask for.
    """
    if len(dataset.test) == 0 or not np.any(dataset.train.labels >= 0):
        return []
    flip = args.probe == "lars" and dataset.name != "digits"  # A mirrored digit is no digit.

    def feature_set(of_images):
        train, test = dataset.train.images, dataset.test.images
        flipped = of_images(train[:, :, ::-1]) if flip else None
        return linear_probe.FeatureSet(of_images(train), of_images(test), flipped)

    feature_sets = {
        "encoder": feature_set(functools.partial(features.extract, encode)),
        "random_encoder": feature_set(functools.partial(features.extract, random_encode)),
        "raw_pixels": feature_set(features.raw_pixels),
    }
    try:
        return [
            linear_probe.few_label_comparison(
                feature_sets,
                dataset.train.labels,
                dataset.test.labels,
                dataset=dataset.name,
                seed=args.seed,
                draws=args.label_draws,
                method=args.probe,
                **count,
            )
            for count in parse_label_counts(args)
        ]
    except ValueError as error:
        raise ConfigurationError(f"--labels or --labels_per_class: {error}") from error


def knn_results(
    dataset: ImageDataset, encode: Encode, random_encode: Encode
) -> list[dict[str, Any]]:
    """kNN on the test images with all labelled training images as its bank.

    Raises:
      ConfigurationError: If the data set has no labels or no test images.
    """
    labelled = dataset.train.take(np.flatnonzero(dataset.train.labels >= 0))
    if len(labelled) == 0 or len(dataset.test) == 0:
        raise ConfigurationError(f"--dataset={dataset.name} has no labels or no test images")

    def scores(of_images) -> dict[str, float]:
        bank, queries = of_images(labelled.images), of_images(dataset.test.images)
        found = knn.knn_probe(bank, labelled.labels, queries, dataset.test.labels)
        stds = {f"{name}_std": 0.0 for name in found._fields}
        return {**found._asdict(), **stds}

    return [
        {
            "protocol": "knn",
            "dataset": dataset.name,
            "labels": len(labelled),
            "labels_per_class": None,
            **scores(functools.partial(features.extract, encode)),
            "baselines": {
                "random_encoder": scores(functools.partial(features.extract, random_encode)),
                "raw_pixels": scores(features.raw_pixels),
            },
        }
    ]


def format_results(results: list[dict[str, Any]]) -> str:
    """A short table of one or more results."""
    title = f"{results[0]['protocol']}, test accuracy"
    lines = [f"{title:30}{'encoder':>16}{'untrained':>16}{'raw pixels':>16}"]
    for result in results:
        per_class = result["labels_per_class"]
        name = f"{per_class} per class" if per_class else f"{result['labels']} labels"
        cells = [result, result["baselines"]["random_encoder"], result["baselines"]["raw_pixels"]]
        numbers = (f"{c['accuracy']:.3f} ± {c['accuracy_std']:.3f}" for c in cells)
        lines.append(f"{name:30}" + "".join(f"{number:>16}" for number in numbers))
    return "\n".join(lines)
