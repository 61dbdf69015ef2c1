"""The kNN monitor, and the probes at the end of a run with their baselines beside them."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import flags

from datasets.image_dataset import ImageDataset, Split
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.evaluation import cases, features, knn, labels, linear_probe
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.views import augmentation

_MONITOR_EXAMPLES = 2000
_MONITOR_SEED = 0
_SCALING_CASES = 5000
_SCALING_SEED = 0
_SAME = 0.01  # Accuracies this close are shown once.
_BASELINES = ("random_encoder", "raw_pixels")

Encode = Callable[[tf.Tensor], tf.Tensor]
Features = Callable[[np.ndarray], np.ndarray]  # Of images.


def build_monitor(dataset: ImageDataset, encode, weights_of) -> Callable[[Any], dict[str, float]]:
    """Scores of a kNN classifier, each training image against the others; no test image is used.

    Balanced accuracy too: where one class has most images, accuracy says how many those are.

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
        h = _encodings(functools.partial(encode, weights_of(state)), images)
        scores = knn.leave_one_out_knn(h, classes)
        balanced = scores.balanced_accuracy
        return {"knn_accuracy": scores.accuracy, "knn_balanced_accuracy": balanced}

    return monitor


def _encodings(encode: Encode, images: np.ndarray) -> np.ndarray:
    """Float32 [n, features].

    Raises:
      TrainingError: If any is not finite.
    """
    h = features.extract(encode, images)
    bad = np.count_nonzero(~np.isfinite(h).all(1))
    if bad:
        raise TrainingError(
            f"the encodings of {bad} of {len(h)} images are not finite: training diverged"
        )
    return h


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
    if not counts:
        raise ConfigurationError(f"--{name} is empty: it takes positive numbers such as 1,5")
    return counts


def parse_baselines(args: flags.FlagValues) -> list[str]:
    """`--baselines`.

    Raises:
      ConfigurationError: If one is not known.
    """
    for name in args.baselines:
        if name not in _BASELINES:
            raise ConfigurationError(f"--baselines takes {', '.join(_BASELINES)}; got {name!r}")
    return args.baselines


def cases_of(split: Split, args: flags.FlagValues) -> cases.Cases:
    """What has one label and one prediction: an image, or with `--per_case` a case.

    Raises:
      ConfigurationError: If the images have no cases, or those of one differ in their labels.
    """
    per_case = args.dataset == "case_folder" if args.per_case is None else args.per_case
    if not per_case:
        return cases.each_image(split.labels)
    if split.case_ids is None:
        raise ConfigurationError(f"--per_case: --dataset={args.dataset} has no cases")
    try:
        return cases.group(split.case_ids, split.labels)
    except ValueError as error:
        raise ConfigurationError(f"--per_case: {error}") from error


def check_labels(dataset: ImageDataset, args: flags.FlagValues) -> None:
    """Finds out before the training whether the probes after it can be done.

    Raises:
      ConfigurationError: If the data set has fewer labels than the flags ask for.
    """
    counts = parse_label_counts(args)
    parse_baselines(args)
    if len(dataset.test) and np.any(dataset.train.labels >= 0):
        known = cases_of(dataset.train, args).labels
        for count in counts:
            draw(known, count, [0, 0])


def draw(known: np.ndarray, count: dict[str, int], seed: list[int]) -> np.ndarray:
    """A draw of labelled examples or cases.

    Raises:
      ConfigurationError: If there are fewer labels than the flags ask for.
    """
    try:
        return labels.draw_labels(
            known,
            np.random.default_rng(seed),
            per_class=count.get("labels_per_class"),
            total=count.get("labels"),
        )
    except ValueError as error:
        raise ConfigurationError(f"--{next(iter(count))}: {error}") from error


def probe(
    dataset: ImageDataset,
    encode: Encode,
    random_encode: Encode,
    baselines: Sequence[str],
    args: flags.FlagValues,
) -> list[dict[str, Any]]:
    """Linear probes of the encoder and of some baselines, on the same labels.

    Returns:
      A result per number of labels; none where the data set has no labels or no test images.

    Raises:
      ConfigurationError: If the data set has fewer labels than the flags ask for.
    """
    kinds: dict[str, Features] = {
        linear_probe.ENCODER: functools.partial(_encodings, encode),
        "random_encoder": functools.partial(_encodings, random_encode),
        "raw_pixels": features.raw_pixels,
    }
    names = (linear_probe.ENCODER, *baselines)
    counts = parse_label_counts(args)
    return linear_probes(dataset, {name: kinds[name] for name in names}, counts, args)


def linear_probes(
    dataset: ImageDataset,
    kinds: Mapping[str, Features],
    counts: Sequence[dict[str, int]],
    args: flags.FlagValues,
) -> list[dict[str, Any]]:
    """Linear probes of several kinds of features, on the same labels.

    Args:
      dataset: Training and test images.
      kinds: Name -> images [n, h, w, c] to features [n, d]; one is `encoder`.
      counts: `labels` or `labels_per_class` of each result.
      args: The flags.

    Returns:
      A result per count; none where the data set has no labels or no test images.

    Raises:
      ConfigurationError: If the data set has too few labels.
    """
    if len(dataset.test) == 0 or not np.any(dataset.train.labels >= 0):
        return []
    known, test = cases_of(dataset.train, args), cases_of(dataset.test, args)
    drawn = [
        [draw(known.labels, count, [args.seed, i]) for i in range(args.label_draws)]
        for count in counts
    ]
    used = _used(len(known.labels), [chosen for draws in drawn for chosen in draws])
    indices, train = known.take(used)
    images = dataset.train.images[indices]
    flip = args.probe == "lars" and dataset.name != "digits"  # A mirrored digit is no digit.

    def feature_set(of_images):
        def pooled(images, of_cases):
            return cases.average(of_images(images), of_cases)

        return linear_probe.FeatureSet(
            pooled(images, train),
            pooled(dataset.test.images, test),
            pooled(images[:, :, ::-1], train) if flip else None,
        )

    feature_sets = {name: feature_set(of_images) for name, of_images in kinds.items()}
    try:
        return [
            linear_probe.few_label_comparison(
                feature_sets,
                train.labels,
                test.labels,
                dataset=dataset.name,
                seed=args.seed,
                drawn=[np.searchsorted(used, chosen) for chosen in draws],
                method=args.probe,
                labels_per_class=count.get("labels_per_class"),
            )
            for count, draws in zip(counts, drawn, strict=True)
        ]
    except ValueError as error:
        raise ConfigurationError(f"--labels or --labels_per_class: {error}") from error


def _used(size: int, drawn: list[np.ndarray]) -> np.ndarray:
    """The training cases that a probe looks at: those drawn, and a sample for the scaling.

    The encodings of all of a large data set would cost more than the probes.
    """
    sample = np.random.default_rng(_SCALING_SEED).permutation(size)[:_SCALING_CASES]
    return np.unique(np.concatenate([sample, *drawn]))


def knn_results(
    dataset: ImageDataset, encode: Encode, random_encode: Encode, args: flags.FlagValues
) -> list[dict[str, Any]]:
    """kNN on the test images, or cases, with all labelled training ones as its bank.

    Raises:
      ConfigurationError: If the data set has no labels or no test images.
    """
    train, test = (cases_of(split, args) for split in (dataset.train, dataset.test))
    known = np.flatnonzero(train.labels >= 0)
    if len(known) == 0 or len(dataset.test) == 0:
        raise ConfigurationError(f"--dataset={dataset.name} has no labels or no test images")
    indices, bank_cases = train.take(known)

    def scores(of_images) -> dict[str, float]:
        bank = cases.average(of_images(dataset.train.images[indices]), bank_cases)
        queries = cases.average(of_images(dataset.test.images), test)
        found = knn.knn_probe(bank, bank_cases.labels, queries, test.labels)
        stds = {f"{name}_std": 0.0 for name in found._fields}
        return {**found._asdict(), **stds}

    kinds = {
        "random_encoder": functools.partial(_encodings, random_encode),
        "raw_pixels": features.raw_pixels,
    }
    return [
        {
            "protocol": "knn",
            "dataset": dataset.name,
            "labels": len(known),
            "labels_per_class": None,
            **scores(functools.partial(_encodings, encode)),
            "baselines": {name: scores(kinds[name]) for name in parse_baselines(args)},
        }
    ]


def classifier_results(
    dataset: ImageDataset, model: Model, weights: Weights, trained_on: int, view_size: int | None
) -> list[dict[str, Any]]:
    """A supervised model's own classifier on the test images; none where there are none.

    `trained_on` is the number of images, and hence of labels, that it was trained on.
    """
    if len(dataset.test) == 0:
        return []

    @tf.function(autograph=False)
    def classify(images):
        x = augmentation.to_float(images, output_size=view_size)
        return model.apply(weights, x, training=False).logits

    known = dataset.test.take(np.flatnonzero(dataset.test.labels >= 0))
    predicted = np.argmax(features.extract(classify, known.images), 1)
    scores = labels.score(predicted, known.labels)
    return [
        {
            "protocol": "supervised",
            "dataset": dataset.name,
            "labels": trained_on,
            "labels_per_class": None,
            **scores._asdict(),
            **{f"{name}_std": 0.0 for name in scores._fields},
            "baselines": {},
        }
    ]


def over_clients(results: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Mean and deviation over clients of what their own models reach.

    Args:
      results: Of each client, the same entries in the same order.

    Returns:
      The entries with the protocol `..._personalized`, and with the figures of each client.
    """
    entries = []
    for of_clients in zip(*results, strict=True):
        scores = [
            labels.Scores(*(entry[name] for name in labels.Scores._fields)) for entry in of_clients
        ]
        first = of_clients[0]
        entries.append(
            first
            | linear_probe.summarize(scores)
            | {
                "protocol": f"{first['protocol']}_personalized",
                "clients_evaluated": len(scores),
                "accuracy_of_clients": [score.accuracy for score in scores],
                "baselines": {},
            }
        )
    return entries


def over_architectures(
    results: Sequence[list[dict[str, Any]]], encoders: Sequence[str]
) -> list[dict[str, Any]]:
    """`over_clients` of the clients of each encoder by themselves.

    Args:
      results: Of each client that was evaluated.
      encoders: Of each client.

    Returns:
      The entries with the protocol `..._personalized_<encoder>`.
    """
    entries = []
    for encoder in dict.fromkeys(encoders[: len(results)]):
        of_encoder = [r for r, name in zip(results, encoders, strict=False) if name == encoder]
        entries += [
            entry | {"protocol": f"{entry['protocol']}_{encoder}", "encoder": encoder}
            for entry in over_clients(of_encoder)
        ]
    return entries


def format_results(results: list[dict[str, Any]]) -> str:
    """A short table of one or more results, a part for each protocol."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        parts.setdefault(result["protocol"], []).append(result)
    return "\n\n".join(_table(part) for part in parts.values())


def _table(results: list[dict[str, Any]]) -> str:
    title = f"{results[0]['protocol']}, test accuracy"
    columns = {"encoder": None, "untrained": "random_encoder", "raw pixels": "raw_pixels"}
    shown = [name for name, key in columns.items() if not key or key in results[0]["baselines"]]
    width = max(30, len(title) + 2)
    lines = [f"{title:{width}}" + "".join(f"{name:>16}" for name in shown)]
    for result in results:
        per_class = result["labels_per_class"]
        name = f"{per_class} per class" if per_class else f"{result['labels']} labels"
        cells = [result["baselines"][columns[c]] if columns[c] else result for c in shown]
        for score, note in (("accuracy", ""), ("balanced_accuracy", ", balanced")):
            # Where classes are of one size, the two are the same.
            if score == "accuracy" or abs(result[score] - result["accuracy"]) > _SAME:
                numbers = (f"{c[score]:.3f} ± {c[score + '_std']:.3f}" for c in cells)
                lines.append(f"{name + note:{width}}" + "".join(f"{n:>16}" for n in numbers))
    return "\n".join(lines)
