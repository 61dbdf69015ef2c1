"""The monitor, and the probes at the end of a run with their baselines beside them."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import flags

from datasets.image_dataset import ImageDataset, Split
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.evaluation import cases, effective_rank, features, knn, labels, linear_probe
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.views import augmentation

_MONITOR_EXAMPLES = 2000  # Number of images of the monitor.
_MONITOR_SEED = 0
_COLLAPSE = 0.1  # Share of the untrained encoder's effective rank below which a run warns.
_SCALING_CASES = 5000  # Number of cases on which the scaling of features is fitted.
_SCALING_SEED = 0
_SHOWN_DIFFERENCE = 0.01  # Least difference for which balanced accuracy has a row of its own.
_BASELINES = ("random_encoder", "raw_pixels")
_BASELINE_TEXTS = {
    "random_encoder": "that of the untrained encoder",
    "raw_pixels": "that of raw pixels",
}

Encode = Callable[[tf.Tensor], tf.Tensor]
Features = Callable[[np.ndarray], np.ndarray]  # Images [n, h, w, c] -> features [n, d].


def build_monitor(dataset: ImageDataset, encode, weights_of) -> Callable[[Any], dict[str, float]]:
    """Builds a monitor of the encodings of training images; it uses no test image.

    It computes their effective rank, and classifies each labelled image by its nearest neighbours
    among the others. Balanced accuracy is measured too, because accuracy is high for any encoder if
    most images are of one class.

    Args:
      dataset: The data set; the classifier leaves out images without labels.
      encode: `saved_model.encoder_function` of the model.
      weights_of: Function from a state to the model's weights.

    Returns:
      Function from a state to `effective_rank`, `knn_accuracy` and `knn_balanced_accuracy`; to the
      first alone if the data set has no labels.
    """
    images, classes = dataset.train.images, dataset.train.labels
    chosen = _draw_monitored(np.arange(len(images)))
    labelled = _draw_monitored(np.flatnonzero(classes >= 0))

    def monitor(state: Any) -> dict[str, float]:
        encode_now = functools.partial(encode, weights_of(state))
        h = _encodings(encode_now, images[chosen])
        metrics = {"effective_rank": _rounded_rank(h)}
        if len(labelled) < 2:
            return metrics
        if not np.array_equal(labelled, chosen):
            h = _encodings(encode_now, images[labelled])
        scores = knn.leave_one_out_knn(h, classes[labelled])
        balanced = scores.balanced_accuracy
        return metrics | {"knn_accuracy": scores.accuracy, "knn_balanced_accuracy": balanced}

    return monitor


def rank_of(dataset: ImageDataset, encode: Encode) -> float:
    """The effective rank of an encoder's encodings of the monitored training images."""
    images = dataset.train.images
    return _rounded_rank(_encodings(encode, images[_draw_monitored(np.arange(len(images)))]))


def _draw_monitored(candidates: np.ndarray) -> np.ndarray:
    """Draws the indices of the images that are monitored, int64 [at most 2000], sorted."""
    rng = np.random.default_rng(_MONITOR_SEED)
    return np.sort(rng.permutation(candidates)[:_MONITOR_EXAMPLES])


def _rounded_rank(h: np.ndarray) -> float:
    """The effective rank to four decimals, which do not depend on the order of summation."""
    return round(effective_rank.effective_rank(h), 4)


def rank_lines(rank: float, untrained: float) -> list[str]:
    """Lines for the end of a run: the ranks, and a warning if the encodings have collapsed.

    Args:
      rank: Effective rank of the trained encoder.
      untrained: Effective rank of the untrained encoder.
    """
    lines = [f"effective rank of the encodings: {rank:.1f} (untrained encoder: {untrained:.1f})"]
    if rank < _COLLAPSE * untrained:
        lines.append(
            "warning: the encodings have collapsed, to less than a tenth of the untrained "
            "encoder's effective rank; what usually helps: batch norm on the projector's output "
            "(--projector_output_batch_norm) or in the network (--norm=batch), a smaller learning "
            "rate, smaller views (--view_size)"
        )
    return lines


def _encodings(encode: Encode, images: np.ndarray) -> np.ndarray:
    """Encodings of images, float32 [n, features].

    Raises:
      TrainingError: If any of them is not finite.
    """
    h = features.extract(encode, images)
    not_finite = np.count_nonzero(~np.isfinite(h).all(1))
    if not_finite:
        raise TrainingError(
            f"the encodings of {not_finite} of {len(h)} images are not finite: training diverged"
        )
    return h


def parse_label_counts(args: flags.FlagValues) -> list[dict[str, Any]]:
    """`--labels`, or else `--labels_per_class`: `{"labels": n}` or `{"labels_per_class": n}` each.

    Raises:
      ConfigurationError: If there is none.
    """
    name = "labels" if args.labels else "labels_per_class"
    counts = []
    for text in args[name].value:
        counts.append({name: int(text)})
    if not counts:
        raise ConfigurationError(f"--{name} is empty: it takes positive numbers such as 1,5")
    return counts


def parse_baselines(args: flags.FlagValues) -> list[str]:
    """The names in `--baselines`.

    Raises:
      ConfigurationError: If a name is unknown.
    """
    for name in args.baselines:
        if name not in _BASELINES:
            raise ConfigurationError(f"--baselines takes {', '.join(_BASELINES)}; got {name!r}")
    return args.baselines


def _is_per_case(split: Split, args: flags.FlagValues) -> bool:
    """Whether a case has one label and one prediction: `--per_case`, or if there are cases."""
    return split.case_ids is not None if args.per_case is None else args.per_case


def cases_of(split: Split, args: flags.FlagValues) -> cases.Cases:
    """The cases of a split: each image by itself, or with `--per_case` the images of a case.

    A case has one label and one prediction.

    Raises:
      ConfigurationError: If the images have no cases, or the images of one have different labels.
    """
    if not _is_per_case(split, args):
        return cases.each_image(split.labels)
    if split.case_ids is None:
        raise ConfigurationError(f"--per_case: --dataset={args.dataset} has no cases")
    try:
        return cases.group(split.case_ids, split.labels)
    except ValueError as error:
        raise ConfigurationError(
            f"--per_case: {error}: give them one in the table, or score each image by itself with "
            "--noper_case"
        ) from error


def counted(dataset: ImageDataset, args: flags.FlagValues) -> ImageDataset:
    """The data set with the images that count in its evaluation.

    With `--per_case`, these are all but the unlabelled images of cases that have labelled ones.
    """

    def counted_of(split: Split) -> Split:
        if split.case_ids is None or not _is_per_case(split, args):
            return split
        kept = cases.counted_images(split.case_ids, split.labels)
        return split if len(kept) == len(split) else split.take(kept)

    validation = dataset.validation
    return dataclasses.replace(
        dataset,
        train=counted_of(dataset.train),
        test=counted_of(dataset.test),
        validation=None if validation is None else counted_of(validation),
    )


def tested(dataset: ImageDataset, test: cases.Cases, args: flags.FlagValues) -> dict[str, Any]:
    """Fields of a result: whether it is scored by case, and the number of labelled test cases."""
    examples = int(np.count_nonzero(test.labels >= 0))
    return {"per_case": _is_per_case(dataset.test, args), "test_examples": examples}


def check_labels(dataset: ImageDataset, args: flags.FlagValues) -> None:
    """Checks before the training that the monitor and the probes have enough labels.

    Raises:
      ConfigurationError: If the data set has fewer labels than the flags ask for.
    """
    if args.encoder_round == "best" and (not args.eval_every or max(dataset.train.labels) < 0):
        raise ConfigurationError(
            "--encoder_round=best needs a positive --eval_every and labelled training images"
        )
    counts = parse_label_counts(args)
    parse_baselines(args)
    if len(dataset.test) and np.any(dataset.train.labels >= 0):
        shown = counted(dataset, args)
        train_labels = cases_of(shown.train, args).labels
        if max(cases_of(shown.test, args).labels) < 0:
            raise ConfigurationError(
                f"--dataset={args.dataset} has test images, but none with a label: label some"
            )
        for count in counts:
            draw(train_labels, count, [0, 0], dataset.class_names)


def draw(
    train_labels: np.ndarray,
    count: dict[str, int],
    seed: list[int],
    class_names: Sequence[str] | None = None,
) -> np.ndarray:
    """Draws labelled images or cases.

    Args:
      train_labels: Class labels, int32 [n]; -1 where they are not known.
      count: Number of labels, as `labels` or `labels_per_class`.
      seed: Seed of the draw.
      class_names: Name of each class for error messages; None for their numbers.

    Returns:
      Their indices, int [labels].

    Raises:
      ConfigurationError: If there are fewer labels than the flags ask for.
    """
    try:
        return labels.draw_labels(
            train_labels,
            np.random.default_rng(seed),
            per_class=count.get("labels_per_class"),
            total=count.get("labels"),
            class_names=class_names,
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
    """Linear probes of the encoder and its baselines, on the same labels.

    Args:
      dataset: Training and test images.
      encode: The encoder.
      random_encode: The untrained encoder.
      baselines: Names of the baselines, `random_encoder` and `raw_pixels`.
      args: The flags.

    Returns:
      A result for each number of labels; none if the data set has no labels or no test images.

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
      kinds: Functions that extract features, by name; one name is `encoder`.
      counts: Number of labels of each result, as `labels` or `labels_per_class`.
      args: The flags.

    Returns:
      A result for each count, and with `--also_logistic` further ones of logistic regression;
      none if the data set has no labels or no test images.

    Raises:
      ConfigurationError: If the data set has too few labels.
    """
    if len(dataset.test) == 0 or not np.any(dataset.train.labels >= 0):
        return []
    dataset = counted(dataset, args)
    all_train, test = cases_of(dataset.train, args), cases_of(dataset.test, args)
    drawn = [
        [
            draw(all_train.labels, count, [args.seed, i], dataset.class_names)
            for i in range(args.label_draws)
        ]
        for count in counts
    ]
    needed = _needed_cases(len(all_train.labels), [chosen for draws in drawn for chosen in draws])
    indices, train = all_train.take(needed)
    train_images = dataset.train.images[indices]
    flip = args.probe == "lars" and dataset.name != "digits"  # A mirrored digit is no digit.
    feature_sets = {
        name: linear_probe.FeatureSet(
            cases.average(extract(train_images), train),
            cases.average(extract(dataset.test.images), test),
            cases.average(extract(train_images[:, :, ::-1]), train) if flip else None,
        )
        for name, extract in kinds.items()
    }
    protocols = {"linear": args.probe}
    if args.also_logistic and args.probe != "logistic":
        protocols["linear_logistic"] = "logistic"
    try:
        return [
            linear_probe.few_label_comparison(
                feature_sets,
                train.labels,
                test.labels,
                dataset=dataset.name,
                seed=args.seed,
                drawn=[np.searchsorted(needed, chosen) for chosen in draws],
                method=method,
                labels_per_class=count.get("labels_per_class"),
            )
            | {"protocol": protocol, **tested(dataset, test, args)}
            for protocol, method in protocols.items()
            for count, draws in zip(counts, drawn, strict=True)
        ]
    except ValueError as error:
        raise ConfigurationError(f"--labels or --labels_per_class: {error}") from error


def _needed_cases(size: int, drawn: list[np.ndarray]) -> np.ndarray:
    """The training cases whose features a probe needs, out of `size`, ascending, int [n].

    They are the drawn ones, and a sample for the scaling: the encodings of all images of a large
    data set would take longer than the probes.
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
    dataset = counted(dataset, args)
    train, test = (cases_of(split, args) for split in (dataset.train, dataset.test))
    labelled = np.flatnonzero(train.labels >= 0)
    if len(labelled) == 0 or len(dataset.test) == 0:
        raise ConfigurationError(f"--dataset={dataset.name} has no labels or no test images")
    indices, bank_cases = train.take(labelled)

    def knn_scores(extract: Features) -> dict[str, float]:
        bank = cases.average(extract(dataset.train.images[indices]), bank_cases)
        queries = cases.average(extract(dataset.test.images), test)
        scores = knn.knn_probe(bank, bank_cases.labels, queries, test.labels)
        stds = {f"{name}_std": 0.0 for name in scores._fields}
        return {**scores._asdict(), **stds}

    kinds: dict[str, Features] = {
        "random_encoder": functools.partial(_encodings, random_encode),
        "raw_pixels": features.raw_pixels,
    }
    return [
        {
            "protocol": "knn",
            "dataset": dataset.name,
            "labels": len(labelled),
            "labels_per_class": None,
            **tested(dataset, test, args),
            **knn_scores(functools.partial(_encodings, encode)),
            "baselines": {name: knn_scores(kinds[name]) for name in parse_baselines(args)},
        }
    ]


def classifier_results(
    dataset: ImageDataset, model: Model, weights: Weights, trained_on: int, view_size: int | None
) -> list[dict[str, Any]]:
    """The result of a supervised model's classifier on the test images.

    Args:
      dataset: The data set.
      model: The model, with a classifier.
      weights: Its weights.
      trained_on: Number of images, and hence of labels, that it was trained on.
      view_size: Side of the images that the model takes; None for the images' own.

    Returns:
      One result; none if there are no test images.
    """
    if len(dataset.test) == 0:
        return []

    @tf.function(autograph=False)
    def classify(images):
        x = augmentation.to_float(images, output_size=view_size)
        return model.apply(weights, x, training=False).logits

    labelled = dataset.test.take(np.flatnonzero(dataset.test.labels >= 0))
    predicted = np.argmax(features.extract(classify, labelled.images), 1)
    scores = labels.score(predicted, labelled.labels)
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


def over_clients(
    results: Sequence[list[dict[str, Any]]], clients: Sequence[int], trained_rounds: Sequence[int]
) -> list[dict[str, Any]]:
    """Mean and deviation over clients of the scores of their personalized models.

    Args:
      results: Results of each client, with the same entries in the same order.
      clients: Indices of the clients.
      trained_rounds: Number of rounds in which each of them trained.

    Returns:
      The entries with the protocol `..._personalized`, the clients, their accuracies and their
      rounds of training, and baselines that are means over the clients' own untrained models.
    """
    entries = []
    for client_entries in zip(*results, strict=True):
        first = {key: value for key, value in client_entries[0].items() if key != "client"}
        baselines = [entry["baselines"] for entry in client_entries]
        entries.append(
            first
            | _mean_scores(client_entries)
            | {
                "protocol": f"{first['protocol']}_personalized",
                "clients_evaluated": len(clients),
                "evaluated_clients": list(clients),
                "accuracy_of_clients": [entry["accuracy"] for entry in client_entries],
                "trained_rounds": sum(trained_rounds) / len(trained_rounds),
                "trained_rounds_of_clients": list(trained_rounds),
                "baselines": {
                    name: _mean_scores([baseline[name] for baseline in baselines])
                    for name in baselines[0]
                },
            }
        )
    return entries


def _mean_scores(entries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean and deviation of the scores of several entries."""
    fields = labels.Scores._fields
    return linear_probe.summarize([labels.Scores(*(e[name] for name in fields)) for e in entries])


def over_architectures(
    results: Sequence[list[dict[str, Any]]],
    clients: Sequence[int],
    trained_rounds: Sequence[int],
    encoders: Sequence[str],
) -> list[dict[str, Any]]:
    """`over_clients` of the clients of each encoder separately.

    Args:
      results: Results of each client.
      clients: Indices of the clients.
      trained_rounds: Number of rounds in which each of them trained.
      encoders: Name of each one's encoder.

    Returns:
      The entries with the protocol `..._personalized_<encoder>`.
    """
    entries = []
    for encoder in dict.fromkeys(encoders):
        same = [i for i, name in enumerate(encoders) if name == encoder]
        of_encoder = over_clients(
            [results[i] for i in same], [clients[i] for i in same],
            [trained_rounds[i] for i in same],
        )  # fmt: skip
        entries += [
            entry | {"protocol": f"{entry['protocol']}_{encoder}", "encoder": encoder}
            for entry in of_encoder
        ]
    return entries


def format_results(results: list[dict[str, Any]]) -> str:
    """A text with a short table for each protocol among the results."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        parts.setdefault(result["protocol"], []).append(result)
    return "\n\n".join(_table(part) for part in parts.values())


def comparison_lines(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """A warning if the encoder is below a baseline, with what usually helps; else no line.

    Balanced accuracies are compared, which are accuracies where the classes are of one size. Of
    several results below their baselines, the one with the largest difference is named.

    Args:
      results: Entries of `result.json`; those of clients' own models are not looked at.
    """
    below = [
        (baseline["balanced_accuracy"] - result["balanced_accuracy"], name, result)
        for result in results
        if "evaluated_clients" not in result
        for name, baseline in result["baselines"].items()
        if baseline["balanced_accuracy"] > result["balanced_accuracy"]
    ]
    if not below:
        return []
    _, name, result = max(below, key=lambda entry: entry[0])
    score, other = result["balanced_accuracy"], result["baselines"][name]["balanced_accuracy"]
    return [
        f"warning: {result['protocol']} with {_labels_text(result)}: the encoder's balanced "
        f"accuracy, {score:.3f}, is below {_BASELINE_TEXTS[name]}, {other:.3f}; what usually "
        "helps: more rounds (--rounds), augmentations that leave the content of an image as it is "
        "(--views), more images in a round (--clients_per_round), more training images"
    ]


def _labels_text(result: Mapping[str, Any]) -> str:
    """The number of labels of a result in words."""
    per_class = result["labels_per_class"]
    return f"{per_class} per class" if per_class else f"{result['labels']} labels"


def _models_line(result: Mapping[str, Any]) -> str:
    """A line on the clients whose models were evaluated; empty for a global model."""
    if "client" in result:
        return (
            f"the model of client {result['client']}, which trained in "
            f"{result['trained_rounds']} rounds"
        )
    if "evaluated_clients" in result:
        pairs = zip(result["evaluated_clients"], result["trained_rounds_of_clients"], strict=True)
        return "mean over clients (rounds of training): " + ", ".join(
            f"{client} ({rounds})" for client, rounds in pairs
        )
    return ""


def _table(results: list[dict[str, Any]]) -> str:
    """The table of a protocol's results: a row for each number of labels."""
    title = f"{results[0]['protocol']}, test accuracy"
    if results[0].get("per_case"):
        title += f" on {results[0]['test_examples']:,} cases"
    columns = {"encoder": None, "untrained": "random_encoder", "raw pixels": "raw_pixels"}
    shown = [name for name, key in columns.items() if not key or key in results[0]["baselines"]]
    width = max(30, len(title) + 2)
    lines = [_models_line(results[0])] if _models_line(results[0]) else []
    if results[0].get("per_case"):
        lines.append("labels and predictions are per case, from the mean of its images' encodings")
    lines.append(f"{title:{width}}" + "".join(f"{name:>16}" for name in shown))
    for result in results:
        name = _labels_text(result)
        cells = [result["baselines"][columns[c]] if columns[c] else result for c in shown]
        for score, note in (("accuracy", ""), ("balanced_accuracy", ", balanced")):
            # Where classes are of one size, accuracy and balanced accuracy are equal.
            difference = abs(result[score] - result["accuracy"])
            if score == "accuracy" or difference > _SHOWN_DIFFERENCE:
                numbers = (f"{c[score]:.3f} ± {c[score + '_std']:.3f}" for c in cells)
                lines.append(f"{name + note:{width}}" + "".join(f"{n:>16}" for n in numbers))
    return "\n".join(lines)
