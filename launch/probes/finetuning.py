"""Full fine-tuning of the pretrained encoder, compared with the untrained one and raw pixels."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from datasets.image_dataset import ImageDataset
from launch.options import model as model_options
from launch.options.script_configs import EvaluateConfig
from launch.probes import probing
from launch.probes.probing import Labelled
from tff_ssl.errors import ConfigurationError
from tff_ssl.evaluation import cases, finetune, linear_probe
from tff_ssl.evaluation.labels import Scores
from tff_ssl.models.costs import model_costs
from tff_ssl.models.dual_encoder import DualEncoder, Weights

# Number of held-out cases if the data set has no validation split: that of the validation split of
# the DCCO paper's DERM (section 4.1).
_VALIDATION_CASES = 1190

Tuner = Callable[[finetune.FinetuneConfig], finetune.Finetuner]


class _FewLabels(NamedTuple):
    """Draws of a number of labels, and the configurations to try on them."""

    draws: list[np.ndarray]  # Indices of the labelled training cases of each draw, int [labels].
    configs: list[finetune.FinetuneConfig]
    # Images and cases of each draw on which a configuration is chosen; None if there is only one
    # configuration.
    held_out: list[tuple[np.ndarray, cases.Cases] | None]


def finetune_results(
    dataset: ImageDataset,
    encoder: DualEncoder,
    pretrained: Weights,
    counts: list[dict[str, int]],
    config: EvaluateConfig,
) -> list[dict[str, Any]]:
    """Fine-tunes on few labels, and scores the test images.

    Args:
      pretrained: The encoder's weights; `scratch` starts from untrained ones instead.
      counts: Number of labels of each result, as `labels` or `labels_per_class`.

    Returns:
      A result for each count. The baseline `random_encoder` is the same training from untrained
      weights; the others are linear probes. If steps or rates were chosen on validation images,
      `chosen` has the configuration of each start and draw.
    """
    if not probing.has_labels(dataset):
        raise ConfigurationError(f"--dataset={dataset.name} has no labels or no test images")
    labelled = probing.labelled(dataset, config.evaluation)
    few_labels = [_few_labels(labelled, count, config) for count in counts]
    baselines, protocol = probing.baselines(config.evaluation), config.protocol
    untrained = encoder.init(config.seed)
    starts = {"encoder": untrained if protocol == "scratch" else pretrained}
    if "random_encoder" in baselines and protocol != "scratch":
        starts["random_encoder"] = untrained
    costs = model_costs(encoder)
    operations = "" if costs["gflops"] is None else f", {costs['gflops']:.4g} GFLOPs an image"
    print(f"fine-tuning {costs['parameters']:,} parameters{operations}", flush=True)
    policy, size = model_options.view_policy(config.model), config.model.view_size
    classes = len(dataset.class_names)
    # A tuner traces graphs: it is built once for each configuration.
    tuner = functools.cache(lambda one: finetune.Finetuner(encoder, classes, one, policy, size))
    results = []
    for count, few in zip(counts, few_labels, strict=True):
        summaries, choices = _of_starts(tuner, labelled, few, starts, config.seed)
        for name in baselines:
            if name in probing.WITHOUT_TRAINING:
                summaries[name] = _probe_scores(name, dataset, count, config)
        results.append(
            {
                "protocol": protocol,
                "dataset": dataset.name,
                "labels": len(few.draws[0]),
                "labels_per_class": count.get("labels_per_class"),
                "draws": len(few.draws),
                **labelled.fields,
                **({"chosen": choices} if choices else {}),
                **costs,
                **summaries.pop("encoder"),
                "baselines": summaries,
            }
        )
    return results


def _of_starts(
    tuner: Tuner, labelled: Labelled, few: _FewLabels, starts: Mapping[str, Weights], seed: int
) -> tuple[dict[str, dict[str, float]], list[dict[str, Any]]]:
    """The summary of each start's test scores, and the chosen configurations if any."""
    summaries, choices = {}, []
    for name, start in starts.items():
        tuned = [_finetune(tuner, labelled, few, start, k, seed) for k in range(len(few.draws))]
        summaries[name] = linear_probe.summarize([scores for scores, _ in tuned])
        choices += [
            {"start": name, "draw": number, **dataclasses.asdict(best)}
            for number, (_, best) in enumerate(tuned)
            if few.held_out[number]
        ]
        accuracy = summaries[name]["accuracy"]
        print(f"{name}, {len(few.draws[0])} labels: {accuracy:.3f}", flush=True)
    return summaries, choices


def _few_labels(labelled: Labelled, count: dict[str, int], config: EvaluateConfig) -> _FewLabels:
    """Draws labels, and holds out others if there are several configurations."""
    train, class_names = labelled.train, labelled.dataset.class_names
    seeds = [[config.seed, i] for i in range(config.evaluation.label_draws)]
    draws = [probing.draw(train.labels, count, seed, class_names) for seed in seeds]
    own, default = config.finetuning, finetune.config_for(len(draws[0]))
    configs = [
        finetune.FinetuneConfig(steps, own.finetune_batch_size or default.batch_size, rate)
        for steps in own.finetune_steps or [default.steps]
        for rate in own.finetune_learning_rate or [default.learning_rate]
    ]
    held_out = [
        _held_out(labelled, chosen, seed, config) if len(configs) > 1 else None
        for chosen, seed in zip(draws, seeds, strict=True)
    ]
    return _FewLabels(draws, configs, held_out)


def _finetune(
    tuner: Tuner, labelled: Labelled, few: _FewLabels, start: Weights, number: int, seed: int
) -> tuple[Scores, finetune.FinetuneConfig]:
    """Fine-tunes on a draw with every configuration: the best one's test scores, and itself."""
    train, test = labelled.dataset.train, labelled.dataset.test
    trained = [
        tuner(config).train(
            start, train.images, train.example_ids, labelled.train, few.draws[number],
            [seed, number, 1],
        )
        for config in few.configs
    ]  # fmt: skip
    best, validation = 0, few.held_out[number]
    if validation:
        # Test images are scored only with the configuration that is chosen here.
        accuracies = [
            tuner(config).scores(weights, *validation).accuracy
            for config, weights in zip(few.configs, trained, strict=True)
        ]
        best = int(np.argmax(accuracies))
    config = few.configs[best]
    return tuner(config).scores(trained[best], test.images, labelled.test), config


def _probe_scores(
    baseline: str, dataset: ImageDataset, count: dict[str, int], config: EvaluateConfig
) -> dict[str, float]:
    kinds = {linear_probe.ENCODER: probing.WITHOUT_TRAINING[baseline]}
    probed, *_ = probing.linear_probes(dataset, kinds, config.evaluation, config.seed, [count])
    names = [name for score in linear_probe.SCORES for name in (score, f"{score}_std")]
    return {name: probed[name] for name in [*names, "class_accuracies"]}


def _held_out(
    labelled: Labelled, chosen: np.ndarray, seed: list[int], config: EvaluateConfig
) -> tuple[np.ndarray, cases.Cases]:
    """Images and cases to choose on: the validation split, or labelled ones not in `chosen`."""
    dataset, train = labelled.dataset, labelled.train
    if dataset.validation is not None and np.any(dataset.validation.labels >= 0):
        held_out = probing.cases_of(dataset, dataset.validation, config.evaluation)
        return dataset.validation.images, held_out
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


def counts_of_fractions(fractions: Sequence[float], labels: np.ndarray) -> list[dict[str, int]]:
    """`--label_fractions` of `labels`, int [n], as `{"labels": number}` each."""
    classes = len(np.unique(labels))
    counts = []
    for fraction in fractions:
        counts.append({"labels": round(fraction * len(labels))})
        if counts[-1]["labels"] < classes:
            least = math.ceil(1000 * classes / len(labels)) / 1000
            raise ConfigurationError(
                f"--label_fractions={fraction} of {len(labels)} labels are {counts[-1]['labels']}, "
                f"fewer than the {classes} classes: give {least} or more"
            )
    if not counts:
        raise ConfigurationError("--label_fractions is empty: it takes numbers such as 0.01,0.1")
    return counts
