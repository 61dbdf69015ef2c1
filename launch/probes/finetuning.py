"""Full fine-tuning, as a configuration describes it.

The pretrained encoder is evaluated beside the untrained encoder and raw pixels.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from datasets.image_dataset import ImageDataset
from launch.options import model as model_options
from launch.options.evaluate_config import EvaluateConfig, FinetuningConfig
from launch.probes import probing
from tff_ssl.errors import ConfigurationError
from tff_ssl.evaluation import cases, features, finetune, linear_probe
from tff_ssl.evaluation.labels import Scores
from tff_ssl.models.costs import model_costs
from tff_ssl.models.dual_encoder import DualEncoder, Weights

# Number of held-out cases if the data set has no validation split; as many as the validation split
# of the DCCO paper's DERM has (section 4.1).
_VALIDATION_CASES = 1190


@dataclasses.dataclass(frozen=True)
class _FewLabels:
    """Draws of a number of labels, and the configurations that are tried on them.

    Attributes:
      count: The number, as `labels` or `labels_per_class`.
      draws: Indices of the labelled training cases of each draw, int [labels].
      configs: Configurations of the training.
      held_out: Images and cases of each draw on which a configuration is chosen; None if there is
        only one configuration.
    """

    count: dict[str, int]
    draws: list[np.ndarray]
    configs: list[finetune.FinetuneConfig]
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
      pretrained: Its weights; `scratch` starts from untrained ones instead.
      counts: Number of labels of each result, as `labels` or `labels_per_class`.

    Returns:
      A result for each count. Its baseline `random_encoder` is the same training from untrained
      weights; `raw_pixels` is a linear probe. If steps or rates were chosen on validation images,
      `chosen` has the configuration of each start and draw.
    """
    if len(dataset.test) == 0 or not np.any(dataset.train.labels >= 0):
        raise ConfigurationError(f"--dataset={dataset.name} has no labels or no test images")
    evaluation, protocol = config.evaluation, config.protocol
    dataset = probing.counted(dataset, evaluation)
    train_cases = probing.cases_of(dataset, dataset.train, evaluation)
    test_cases = probing.cases_of(dataset, dataset.test, evaluation)
    few_labels = [_few_labels(dataset, train_cases, count, config) for count in counts]
    trainer = _Trainer(dataset, train_cases, test_cases, encoder, config)
    baselines = probing.baselines(evaluation)
    untrained = encoder.init(config.seed)
    starts = {"encoder": untrained if protocol == "scratch" else pretrained}
    if "random_encoder" in baselines and protocol != "scratch":
        starts["random_encoder"] = untrained
    costs = model_costs(encoder)
    operations = "" if costs["gflops"] is None else f", {costs['gflops']:.4g} GFLOPs an image"
    print(f"fine-tuning {costs['parameters']:,} parameters{operations}", flush=True)
    results = []
    for few in few_labels:
        summaries, choices = _finetune_starts(trainer, starts, few)
        if "raw_pixels" in baselines:
            summaries["raw_pixels"] = _pixel_scores(dataset, few.count, config)
        results.append(
            {
                "protocol": protocol,
                "dataset": dataset.name,
                "labels": len(few.draws[0]),
                "labels_per_class": few.count.get("labels_per_class"),
                "draws": len(few.draws),
                **probing.tested(dataset, test_cases, evaluation),
                **({"chosen": choices} if choices else {}),
                **costs,
                **summaries.pop("encoder"),
                "baselines": summaries,
            }
        )
    return results


def _few_labels(
    dataset: ImageDataset,
    train_cases: cases.Cases,
    count: dict[str, int],
    config: EvaluateConfig,
) -> _FewLabels:
    """Draws labels, and holds out others if there are several configurations."""
    seeds = [[config.seed, i] for i in range(config.evaluation.label_draws)]
    draws = [probing.draw(train_cases.labels, count, seed, dataset.class_names) for seed in seeds]
    configs = _configs(len(draws[0]), config.finetuning)
    held_out: list[tuple[np.ndarray, cases.Cases] | None] = [None] * len(draws)
    if len(configs) > 1:
        held_out = [
            _held_out(dataset, train_cases, chosen, seed, config)
            for chosen, seed in zip(draws, seeds, strict=True)
        ]
    return _FewLabels(count, draws, configs, held_out)


class _Trainer:
    """Fine-tunes on the training cases of a data set, and scores its test cases."""

    def __init__(
        self,
        dataset: ImageDataset,
        train_cases: cases.Cases,
        test_cases: cases.Cases,
        encoder: DualEncoder,
        config: EvaluateConfig,
    ):
        self._dataset, self._train_cases, self._test_cases = dataset, train_cases, test_cases
        self._encoder, self._seed = encoder, config.seed
        self._policy = model_options.view_policy(config.model)
        self._view_size = config.model.view_size
        self._tuners: dict[finetune.FinetuneConfig, finetune.Finetuner] = {}

    def run(
        self, start: Weights, few: _FewLabels, draw: int
    ) -> tuple[Scores, finetune.FinetuneConfig]:
        """Fine-tunes with every configuration; test scores of the best one, and which it is."""
        trained = [self._train(config, start, few.draws[draw], draw) for config in few.configs]
        best, validation = 0, few.held_out[draw]
        if validation:
            # The test images are scored only with the configuration that is chosen here.
            accuracies = [
                self._tuner(config).scores(weights, *validation).accuracy
                for config, weights in zip(few.configs, trained, strict=True)
            ]
            best = int(np.argmax(accuracies))
        config = few.configs[best]
        test_images = self._dataset.test.images
        return self._tuner(config).scores(trained[best], test_images, self._test_cases), config

    def _train(
        self, config: finetune.FinetuneConfig, start: Weights, chosen: np.ndarray, draw: int
    ) -> Weights:
        train = self._dataset.train
        return self._tuner(config).train(
            start, train.images, train.example_ids, self._train_cases, chosen,
            [self._seed, draw, 1],
        )  # fmt: skip

    def _tuner(self, config: finetune.FinetuneConfig) -> finetune.Finetuner:
        """The tuner of a configuration, which is built once, because it traces graphs."""
        if config not in self._tuners:
            classes = len(self._dataset.class_names)
            self._tuners[config] = finetune.Finetuner(
                self._encoder, classes, config, self._policy, self._view_size
            )
        return self._tuners[config]


def _finetune_starts(
    trainer: _Trainer, starts: dict[str, Weights], few: _FewLabels
) -> tuple[dict[str, dict[str, float]], list[dict[str, Any]]]:
    """Fine-tunes from each start on each draw.

    Returns:
      The summary of the test scores of each start, and the configuration that was chosen for each
      start and draw; the latter is empty if there was no choice.
    """
    summaries, choices = {}, []
    for name, start in starts.items():
        scores = []
        for draw, held_out in enumerate(few.held_out):
            draw_scores, config = trainer.run(start, few, draw)
            scores.append(draw_scores)
            if held_out:
                choices.append({"start": name, "draw": draw, **dataclasses.asdict(config)})
        summaries[name] = linear_probe.summarize(scores)
        print(f"{name}, {len(few.draws[0])} labels: {summaries[name]['accuracy']:.3f}", flush=True)
    return summaries, choices


def _pixel_scores(
    dataset: ImageDataset, count: dict[str, int], config: EvaluateConfig
) -> dict[str, float]:
    """Scores of a linear probe on raw pixels."""
    kinds = {linear_probe.ENCODER: features.raw_pixels}
    probed, *_ = probing.linear_probes(dataset, kinds, [count], config.evaluation, config.seed)
    names = [name for score in linear_probe.SCORES for name in (score, f"{score}_std")]
    return {name: probed[name] for name in [*names, "class_accuracies"]}


def _configs(labels: int, config: FinetuningConfig) -> list[finetune.FinetuneConfig]:
    """All combinations of steps and learning rates; the defaults are for `labels` labels."""
    default = finetune.config_for(labels)
    batch_size = config.finetune_batch_size or default.batch_size
    return [
        finetune.FinetuneConfig(steps, batch_size, rate)
        for steps in config.finetune_steps or [default.steps]
        for rate in config.finetune_learning_rate or [default.learning_rate]
    ]


def _held_out(
    dataset: ImageDataset,
    train: cases.Cases,
    chosen: np.ndarray,
    seed: list[int],
    config: EvaluateConfig,
) -> tuple[np.ndarray, cases.Cases]:
    """Images and cases on which steps and rates are chosen.

    They are the validation split, or else labelled training cases that are not in `chosen`.
    """
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
    """`--label_fractions` as numbers of labels, each `{"labels": number}`.

    Args:
      labels: Class labels of all labelled training images or cases, int [n].
    """
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
