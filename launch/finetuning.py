"""Full fine-tuning from flags: the pretrained encoder beside the untrained one and raw pixels."""

from typing import Any

import numpy as np
from absl import flags

from datasets.image_dataset import ImageDataset
from launch import data, network, probing
from tff_ssl.errors import ConfigurationError
from tff_ssl.evaluation import cases, features, finetune, linear_probe
from tff_ssl.models.dual_encoder import DualEncoder, Weights

# What `finetune` and `semi_supervised` give of each network.
_SCORES = ("accuracy", "balanced_accuracy")


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
      pretrained: Its weights.
      counts: `labels` or `labels_per_class` of each result.
      protocol: The name that the results carry.
      args: The flags.

    Returns:
      A result per count. Its baseline `random_encoder` is the same training from untrained
      weights, which is supervised training from scratch; `raw_pixels` is a linear probe.

    Raises:
      ConfigurationError: If the data set has too few labels or no test images.
    """
    if len(dataset.test) == 0 or not np.any(dataset.train.labels >= 0):
        raise ConfigurationError(f"--dataset={args.dataset} has no labels or no test images")
    train, test = (probing.cases_of(s, args) for s in (dataset.train, dataset.test))
    drawn = [
        [probing.draw(train.labels, count, [args.seed, i]) for i in range(args.label_draws)]
        for count in counts
    ]
    policy = data.view_policy(dataset, args, "supervised")
    baselines = probing.parse_baselines(args)
    starts = {"encoder": pretrained}
    if "random_encoder" in baselines:
        starts["random_encoder"] = encoder.init(args.seed)
    costs = network.model_costs(encoder)
    operations = "" if costs["gflops"] is None else f", {costs['gflops']:.4g} GFLOPs an image"
    print(f"fine-tuning {costs['parameters']:,} parameters{operations}", flush=True)
    results = []
    for count, draws in zip(counts, drawn, strict=True):
        number = len(draws[0])
        tuner = finetune.Finetuner(
            encoder,
            len(dataset.class_names),
            _config(number, args),
            policy,
            data.view_size(dataset, args),
        )
        summaries = {}
        for name, start in starts.items():
            scores = []
            for i, chosen in enumerate(draws):
                weights = tuner.train(
                    start, dataset.train.images, dataset.train.example_ids, train, chosen,
                    [args.seed, i, 1],
                )  # fmt: skip
                scores.append(tuner.scores(weights, dataset.test.images, test))
            summaries[name] = linear_probe.summarize(scores)
            print(f"{name}, {number} labels: {summaries[name]['accuracy']:.3f}", flush=True)
        if "raw_pixels" in baselines:
            summaries["raw_pixels"] = _raw_pixels(dataset, train, test, count, args)
        results.append(
            {
                "protocol": protocol,
                "dataset": dataset.name,
                "labels": number,
                "labels_per_class": count.get("labels_per_class"),
                "draws": len(draws),
                **costs,
                **summaries.pop("encoder"),
                "baselines": summaries,
            }
        )
    return results


def _config(labels: int, args: flags.FlagValues) -> finetune.FinetuneConfig:
    default = finetune.config_for(labels)
    return finetune.FinetuneConfig(
        args.finetune_steps or default.steps,
        args.finetune_batch_size or default.batch_size,
        args.finetune_learning_rate or default.learning_rate,
    )


def _raw_pixels(
    dataset: ImageDataset,
    train: cases.Cases,
    test: cases.Cases,
    count: dict[str, int],
    args: flags.FlagValues,
) -> dict[str, float]:
    """A linear probe on pixels, on the same draws."""
    pixels = linear_probe.FeatureSet(
        cases.average(features.raw_pixels(dataset.train.images), train),
        cases.average(features.raw_pixels(dataset.test.images), test),
    )
    result = linear_probe.few_label_comparison(
        {linear_probe.ENCODER: pixels},
        train.labels,
        test.labels,
        dataset=dataset.name,
        seed=args.seed,
        draws=args.label_draws,
        method=args.probe,
        labels=count.get("labels"),
        labels_per_class=count.get("labels_per_class"),
    )
    return {name: result[name] for score in _SCORES for name in (score, f"{score}_std")}


def parse_fractions(args: flags.FlagValues, labelled: int) -> list[dict[str, int]]:
    """`--label_fractions` as numbers of labels.

    Raises:
      ConfigurationError: If one is not in (0, 1].
    """
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
        counts.append({"labels": max(1, round(fraction * labelled))})
    return counts
