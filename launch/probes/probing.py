"""The probes at the end of a run, and their baselines."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from datasets import catalog
from datasets.image_dataset import ImageDataset, Split
from launch.options import pretrained
from launch.options.run_config import EvaluationConfig
from launch.probes import imagenet
from launch.probes.monitoring import Encode, encodings
from tff_ssl.errors import ConfigurationError, naming
from tff_ssl.evaluation import cases, features, knn, labels, linear_probe
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.views import augmentation

_SCALING_CASES = 5000  # Cases on which the scaling of features is fitted.
_SCALING_SEED = 0

Features = Callable[[np.ndarray], np.ndarray]  # Images [n, h, w, c] -> features [n, d].
# Baselines that are functions of the images alone.
WITHOUT_TRAINING: dict[str, Features] = {
    "raw_pixels": features.raw_pixels, "imagenet_encoder": imagenet.features,
}  # fmt: skip
_BASELINES = ("random_encoder", *WITHOUT_TRAINING)


def label_counts(config: EvaluationConfig) -> list[dict[str, Any]]:
    """`--labels` as `{"labels": n}` each, or otherwise `--labels_per_class` likewise."""
    name = "labels" if config.labels else "labels_per_class"
    counts = [{name: count} for count in getattr(config, name)]
    if not counts:
        raise ConfigurationError(f"--{name} is empty: it takes positive numbers such as 1,5")
    return counts


def baselines(config: EvaluationConfig) -> tuple[str, ...]:
    """The names in `--baselines`, checked."""
    for name in config.baselines:
        if name not in _BASELINES:
            raise ConfigurationError(f"--baselines takes {', '.join(_BASELINES)}; got {name!r}")
    if "imagenet_encoder" in config.baselines:
        pretrained.weights_file("--baselines=imagenet_encoder")
    return config.baselines


def _is_per_case(split: Split, config: EvaluationConfig) -> bool:
    """Whether a case has one label and one prediction: `--per_case`, or if there are cases."""
    return split.case_ids is not None if config.per_case is None else config.per_case


def cases_of(dataset: ImageDataset, split: Split, config: EvaluationConfig) -> cases.Cases:
    """The cases of a split: each image by itself, or with `--per_case` the images of a case."""
    if not _is_per_case(split, config):
        return cases.each_image(split.labels)
    if split.case_ids is None:
        raise ConfigurationError(f"--per_case: --dataset={dataset.name} has no cases")
    try:
        return cases.group(split.case_ids, split.labels)
    except ValueError as error:
        raise ConfigurationError(
            f"--per_case: {error}: give them one in the table, or score each image by itself with "
            "--noper_case"
        ) from error


class Labelled(NamedTuple):
    """The images that count in an evaluation, and the cases of training and test images."""

    # The data set; with `--per_case`, without the unlabelled images of cases that have labelled
    # ones.
    dataset: ImageDataset
    train: cases.Cases
    test: cases.Cases
    # Fields of a result: `per_case`; `test_examples`, the number of labelled test cases.
    fields: dict[str, Any]


def labelled(dataset: ImageDataset, config: EvaluationConfig) -> Labelled:
    """The images of a data set that count in an evaluation."""

    def counted(split: Split) -> Split:
        if split.case_ids is None or not _is_per_case(split, config):
            return split
        kept = cases.counted_images(split.case_ids, split.labels)
        return split if len(kept) == len(split) else split.take(kept)

    validation = dataset.validation and counted(dataset.validation)
    dataset = dataclasses.replace(
        dataset, train=counted(dataset.train), test=counted(dataset.test), validation=validation
    )
    train_cases, test_cases = (cases_of(dataset, s, config) for s in (dataset.train, dataset.test))
    count = int(np.count_nonzero(test_cases.labels >= 0))
    fields = {"per_case": _is_per_case(dataset.test, config), "test_examples": count}
    return Labelled(dataset, train_cases, test_cases, fields)


def has_labels(dataset: ImageDataset) -> bool:
    """Whether a data set has test images, and labels to train on."""
    return len(dataset.test) > 0 and bool(np.any(dataset.train.labels >= 0))


def check_labels(dataset: ImageDataset, config: EvaluationConfig) -> None:
    """Checks before training that the monitor and the probes have enough labels."""
    if config.encoder_round == "best" and (not config.eval_every or max(dataset.train.labels) < 0):
        raise ConfigurationError(
            "--encoder_round=best needs a positive --eval_every and labelled training images"
        )
    counts = label_counts(config)
    baselines(config)
    if has_labels(dataset):
        shown = labelled(dataset, config)
        if max(shown.test.labels) < 0:
            raise ConfigurationError(
                f"--dataset={dataset.name} has test images, but none with a label: label some"
            )
        for count in counts:
            draw(shown.train.labels, count, [0, 0], dataset.class_names)


def draw(
    train_labels: np.ndarray,
    count: dict[str, int],
    seed: list[int],
    class_names: Sequence[str] | None = None,
) -> np.ndarray:
    """Draws labelled images or cases: their indices, int [labels].

    Args:
      train_labels: Class labels, int32 [n]; -1 where unknown.
      count: Number of labels, as `labels` or `labels_per_class`.
      class_names: Names of the classes for error messages; None for their numbers.
    """
    with naming(f"--{next(iter(count))}"):
        return labels.draw_labels(
            train_labels,
            np.random.default_rng(seed),
            per_class=count.get("labels_per_class"),
            total=count.get("labels"),
            class_names=class_names,
        )


def without_random_encoder(names: Sequence[str]) -> tuple[str, ...]:
    """The baselines of an encoder that brings its own weights, with a line on the one left out."""
    if "random_encoder" in names:
        print(
            "note: the baseline random_encoder is left out, because the weights with which your "
            "model starts may be trained ones",
            flush=True,
        )
    return tuple(name for name in names if name != "random_encoder")


def feature_kinds(
    encode: Encode,
    random_encode: Encode,
    names: Sequence[str],
    initial_encode: Encode | None = None,
) -> dict[str, Features]:
    """The functions that extract the encoder's features and those of the named baselines.

    `initial_encode` is a further baseline: the pretrained encoder with which training started.
    """
    encoders = {linear_probe.ENCODER: encode, "random_encoder": random_encode}
    if initial_encode is not None:
        encoders["pretrained_encoder"] = initial_encode
        names = (*names, "pretrained_encoder")
    kinds = {name: functools.partial(encodings, one) for name, one in encoders.items()}
    return {name: (kinds | WITHOUT_TRAINING)[name] for name in (linear_probe.ENCODER, *names)}


def linear_probes(
    dataset: ImageDataset,
    kinds: Mapping[str, Features],
    config: EvaluationConfig,
    seed: int,
    counts: Sequence[dict[str, int]] | None = None,
) -> list[dict[str, Any]]:
    """Linear probes of several kinds of features, on the same labels.

    Args:
      kinds: Functions that extract features, by name; one name is `encoder`.
      counts: Number of labels of each result, as `labels` or `labels_per_class`; None for those of
        the configuration.

    Returns:
      A result for each count, and with `--also_logistic` another of logistic regression; none if
      the data set has no labels or no test images.
    """
    if not has_labels(dataset):
        return []
    counts = counts or label_counts(config)
    dataset, all_train, test, fields = labelled(dataset, config)
    drawn = [
        [
            draw(all_train.labels, count, [seed, i], dataset.class_names)
            for i in range(config.label_draws)
        ]
        for count in counts
    ]
    # The cases whose features are needed: the drawn ones, and a sample for the scaling. Encoding
    # all images of a large data set would take longer than the probes.
    sample = np.random.default_rng(_SCALING_SEED).permutation(len(all_train.labels))
    needed = np.unique(np.concatenate([sample[:_SCALING_CASES], *itertools.chain(*drawn)]))
    indices, train = all_train.take(needed)
    flips = config.probe == "lars" and not catalog.has_characters(dataset.name)
    images = dataset.train.take(indices).images
    feature_sets = {
        name: linear_probe.FeatureSet(
            cases.average(extract(images), train),
            cases.average(extract(dataset.test.images), test),
            cases.average(extract(images[:, :, ::-1]), train) if flips else None,
        )
        for name, extract in kinds.items()
    }
    protocols: dict[str, Any] = {"linear": config.probe}
    if config.also_logistic and config.probe != "logistic":
        protocols["linear_logistic"] = "logistic"
    with naming("--labels or --labels_per_class"):
        return [
            linear_probe.few_label_comparison(
                feature_sets,
                train.labels,
                test.labels,
                dataset=dataset.name,
                seed=seed,
                drawn=[np.searchsorted(needed, chosen) for chosen in draws],
                method=method,
                labels_per_class=count.get("labels_per_class"),
            )
            | {"protocol": protocol, **fields}
            for protocol, method in protocols.items()
            for count, draws in zip(counts, drawn, strict=True)
        ]


def knn_results(
    dataset: ImageDataset, kinds: Mapping[str, Features], config: EvaluationConfig
) -> list[dict[str, Any]]:
    """kNN on the test images, or cases, with all labelled training ones as its bank.

    `kinds` has functions that extract features, by name; one name is `encoder`.
    """
    if not has_labels(dataset):
        raise ConfigurationError(f"--dataset={dataset.name} has no labels or no test images")
    dataset, train, test, fields = labelled(dataset, config)
    indices, bank_cases = train.take(np.flatnonzero(train.labels >= 0))

    def knn_scores(extract: Features) -> dict[str, Any]:
        bank = cases.average(extract(dataset.train.take(indices).images), bank_cases)
        queries = cases.average(extract(dataset.test.images), test)
        scores = knn.knn_probe(bank, bank_cases.labels, queries, test.labels)
        return linear_probe.summarize([scores])

    scores = {name: knn_scores(extract) for name, extract in kinds.items()}
    own = fields | scores.pop(linear_probe.ENCODER)
    return [_entry("knn", dataset, len(bank_cases.labels), own, scores)]


def _entry(
    protocol: str, dataset: ImageDataset, labels: int, own: dict[str, Any], baselines: Any
) -> dict[str, Any]:
    """An entry of `result.json` for a total number of labels."""
    entry = {"protocol": protocol, "dataset": dataset.name, "labels": labels}
    return entry | {"labels_per_class": None, **own, "baselines": baselines}


def classifier_results(
    dataset: ImageDataset,
    model: Model,
    weights: Weights,
    trained_on: int,
    view_size: int | None,
    config: EvaluationConfig,
) -> list[dict[str, Any]]:
    """The result of a supervised model's classifier on the test images, or with `--per_case` cases.

    A case has the class with the largest mean of its images' logits, as after fine-tuning. There is
    no result without test images.

    Args:
      trained_on: Number of images, and hence of labels, that it was trained on.
      view_size: Side of the images that the model takes; None for the images' own.
    """
    if len(dataset.test) == 0:
        return []
    dataset, _, test, fields = labelled(dataset, config)

    @tf.function(autograph=False)
    def classify(images):
        x = augmentation.to_float(images, output_size=view_size)
        return model.apply(weights, x, training=False).logits

    indices, scored = test.take(np.flatnonzero(test.labels >= 0))
    logits = features.extract(classify, dataset.test.take(indices).images)
    scores = labels.score(cases.average(logits, scored).argmax(1), scored.labels)
    return [
        _entry("supervised", dataset, trained_on, fields | linear_probe.summarize([scores]), {})
    ]
