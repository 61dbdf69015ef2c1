"""Full fine-tuning from flags: the pretrained encoder beside the untrained one and raw pixels."""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
from absl import flags

from datasets.image_dataset import ImageDataset
from launch.options import data, network
from launch.probes import probing
from tff_ssl.errors import ConfigurationError
from tff_ssl.evaluation import cases, features, finetune, linear_probe
from tff_ssl.models.dual_encoder import DualEncoder, Weights

# What `finetune` and `semi_supervised` give of each network.
_SCORES = ("accuracy", "balanced_accuracy")
# Where the data set has no validation split; as many as the DCCO paper's DERM has (section 4.1).
_VALIDATION_CASES = 1190


def finetune_results(
    dataset: ImageDataset,
    encoder: DualEncoder,
    pretrained: Weights,
    counts: list[dict[str, int]],
    protocol: str,
    args: flags.FlagValues,
) -> list[dict[str, Any]]:
    """Fine-tunes on few labels, and scores the test images.

    Args:
      dataset: Training and test images.
      encoder: The encoder, without heads.
      pretrained: Its weights; `scratch` begins with untrained ones instead.
      counts: `labels` or `labels_per_class` of each result.
      protocol: The name that the results carry.
      args: The flags.

    Returns:
      A result per count. Its baseline `random_encoder` is the same training from untrained
      weights; `raw_pixels` is a linear probe. Where steps or rates were chosen on validation
      images, `chosen` has what was, per draw.

    Raises:
      ConfigurationError: If the data set has too few labels or no test images.
    """
    if len(dataset.test) == 0 or not np.any(dataset.train.labels >= 0):
        raise ConfigurationError(f"--dataset={args.dataset} has no labels or no test images")
    train_cases, test = (probing.cases_of(s, args) for s in (dataset.train, dataset.test))
    drawn = [
        [probing.draw(train_cases.labels, count, [args.seed, i]) for i in range(args.label_draws)]
        for count in counts
    ]
    configs = [_configs(len(draws[0]), args) for draws in drawn]
    held_out: list[list[tuple[np.ndarray, cases.Cases] | None]] = [
        [
            _held_out(dataset, train_cases, chosen, [args.seed, i], args)
            for i, chosen in enumerate(draws)
        ]
        if len(of_count) > 1
        else [None] * len(draws)
        for draws, of_count in zip(drawn, configs, strict=True)
    ]
    policy = data.view_policy(dataset, args, "supervised")
    baselines = probing.parse_baselines(args)
    untrained = encoder.init(args.seed)
    starts = {"encoder": untrained if protocol == "scratch" else pretrained}
    if "random_encoder" in baselines and protocol != "scratch":
        starts["random_encoder"] = untrained
    costs = network.model_costs(encoder)
    operations = "" if costs["gflops"] is None else f", {costs['gflops']:.4g} GFLOPs an image"
    print(f"fine-tuning {costs['parameters']:,} parameters{operations}", flush=True)

    @functools.cache
    def tuner_of(config: finetune.FinetuneConfig) -> finetune.Finetuner:
        size = data.view_size(dataset, args)
        return finetune.Finetuner(encoder, len(dataset.class_names), config, policy, size)

    def train(config, start, chosen, draw):
        tuner = tuner_of(config)
        images, ids = dataset.train.images, dataset.train.example_ids
        return tuner, tuner.train(start, images, ids, train_cases, chosen, [args.seed, draw, 1])

    results = []
    for count, draws, of_count, validations in zip(counts, drawn, configs, held_out, strict=True):
        number = len(draws[0])
        summaries, choices = {}, []
        for name, start in starts.items():
            scores = []
            for i, (chosen, validation) in enumerate(zip(draws, validations, strict=True)):
                found = [train(config, start, chosen, i) for config in of_count]
                best = 0
                if validation:
                    # The test images are seen by what was chosen alone.
                    accuracies = [tuner.scores(w, *validation).accuracy for tuner, w in found]
                    best = int(np.argmax(accuracies))
                    choice = dataclasses.asdict(of_count[best])
                    choices.append({"start": name, "draw": i, **choice})
                tuner, weights = found[best]
                scores.append(tuner.scores(weights, dataset.test.images, test))
            summaries[name] = linear_probe.summarize(scores)
            print(f"{name}, {number} labels: {summaries[name]['accuracy']:.3f}", flush=True)
        if "raw_pixels" in baselines:
            pixels = {linear_probe.ENCODER: features.raw_pixels}
            [probed] = probing.linear_probes(dataset, pixels, [count], args)
            names = [name for score in _SCORES for name in (score, f"{score}_std")]
            summaries["raw_pixels"] = {name: probed[name] for name in names}
        results.append(
            {
                "protocol": protocol,
                "dataset": dataset.name,
                "labels": number,
                "labels_per_class": count.get("labels_per_class"),
                "draws": len(draws),
                **({"chosen": choices} if choices else {}),
                **costs,
                **summaries.pop("encoder"),
                "baselines": summaries,
            }
        )
    return results


def _configs(labels: int, args: flags.FlagValues) -> list[finetune.FinetuneConfig]:
    """All combinations of the flags' steps and rates."""
    default = finetune.config_for(labels)
    return [
        finetune.FinetuneConfig(int(steps), args.finetune_batch_size or default.batch_size, rate)
        for steps in _numbers("finetune_steps", int, args) or [default.steps]
        for rate in _numbers("finetune_learning_rate", float, args) or [default.learning_rate]
    ]


def _numbers(flag: str, kind: type, args: flags.FlagValues) -> list[Any]:
    """A flag's list of positive numbers."""
    found = []
    for text in getattr(args, flag):
        try:
            found.append(kind(text))
        except ValueError:
            found.append(0)
        if not 0 < found[-1] < math.inf:
            raise ConfigurationError(f"--{flag} takes positive numbers; got {text!r}")
    return found


def _held_out(
    dataset: ImageDataset,
    train: cases.Cases,
    chosen: np.ndarray,
    seed: list[int],
    args: flags.FlagValues,
) -> tuple[np.ndarray, cases.Cases]:
    """Images and cases to choose steps and rates by: the validation split, or labels not drawn."""
    if dataset.validation is not None and np.any(dataset.validation.labels >= 0):
        return dataset.validation.images, probing.cases_of(dataset.validation, args)
    rest = np.setdiff1d(np.flatnonzero(train.labels >= 0), chosen)
    if not len(rest):
        raise ConfigurationError(
            "--finetune_steps, --finetune_learning_rate: a choice needs a validation split or "
            f"labels beyond the {len(chosen)} drawn; give one of each"
        )
    count = min(len(rest), _VALIDATION_CASES)
    picked = np.sort(np.random.default_rng([*seed, 2]).choice(rest, count, replace=False))
    indices, held_out = train.take(picked)
    return dataset.train.images[indices], held_out


def parse_fractions(args: flags.FlagValues, labels: np.ndarray) -> list[dict[str, int]]:
    """`--label_fractions` as numbers of labels.

    Args:
      args: The flags.
      labels: Classes of all labelled training images or cases, [n].

    Raises:
      ConfigurationError: If one is not in (0, 1], or leaves classes without a label.
    """
    classes = len(np.unique(labels))
    counts = []
    for text in args.label_fractions:
        try:
            fraction = float(text)
        except ValueError:
            fraction = 0.0
        if not 0 < fraction <= 1:
            raise ConfigurationError(
                f"--label_fractions takes numbers in (0, 1] such as 0.01,0.1; got {text!r}"
            )
        counts.append({"labels": round(fraction * len(labels))})
        if counts[-1]["labels"] < classes:
            least = math.ceil(1000 * classes / len(labels)) / 1000
            raise ConfigurationError(
                f"--label_fractions={text} of {len(labels)} labels are {counts[-1]['labels']}, "
                f"fewer than the {classes} classes: give {least} or more"
            )
    if not counts:
        raise ConfigurationError("--label_fractions is empty: it takes numbers such as 0.01,0.1")
    return counts
