"""The choice of steps and rates of fine-tuning, with a network whose scores are given."""

import dataclasses

import numpy as np
import pytest

from datasets.image_dataset import ImageDataset, Split
from launch.options import settings
from launch.options.script_configs import EvaluateConfig
from launch.probes import finetuning, probing
from tff_ssl.errors import ConfigurationError
from tff_ssl.evaluation import features
from tff_ssl.evaluation.labels import Scores
from tff_ssl.models.dual_encoder import DualEncoder

TRAIN, TEST = 40, 6
ENCODER = DualEncoder("tiny", (8, 8, 1))


def split(n, first=0):
    labels = (np.arange(n) % 4).astype(np.int32)
    return Split(np.zeros((n, 8, 8, 1), np.uint8), labels, first + np.arange(n))


def configure(**changes):
    values = {
        "finetune_steps": (10, 30), "finetune_learning_rate": (0.1, 0.2), "label_draws": 2,
        "baselines": (), "per_case": False, "views": "flip", "protocol": "finetune",
    }  # fmt: skip
    return settings.replace(EvaluateConfig(), **{**values, **changes})


@pytest.fixture
def starts():
    """The weights from which each training started."""
    return []


@pytest.fixture
def scored(monkeypatch, starts):
    """Steps, rate and number of images of each scoring."""
    calls = []

    class Tuner:
        def __init__(self, encoder, classes, config, policy, view_size):
            self.config = config

        def train(self, start, images, example_ids, cases, chosen, seed):
            starts.append(start)
            return chosen

        def scores(self, weights, images, cases):
            calls.append((self.config.steps, self.config.learning_rate, len(images)))
            # The best configuration on the validation images is the worst on the test images.
            accuracy = {(10, 0.1): 0.5, (10, 0.2): 0.9, (30, 0.1): 0.3, (30, 0.2): 0.6}[
                calls[-1][:2]
            ]
            return Scores(1 - accuracy if len(images) == TEST else accuracy, 0.0)

    monkeypatch.setattr(finetuning.finetune, "Finetuner", Tuner)
    return calls


def results(config, validation=None):
    dataset = ImageDataset("d", split(TRAIN), split(TEST), ("a", "b", "c", "d"), validation)
    return finetuning.finetune_results(dataset, ENCODER, ENCODER.init(3), [{"labels": 8}], config)


def test_training_from_scratch_starts_from_untrained_weights(scored, starts):
    changes = {"finetune_steps": (10,), "baselines": ("random_encoder",)}
    [result] = results(configure(**changes, protocol="scratch"))
    assert (result["protocol"], result["baselines"]) == ("scratch", {})
    assert len(starts) == 4  # Two rates, two draws.
    for start in starts:
        np.testing.assert_array_equal(start.trainable[0], ENCODER.init(0).trainable[0])
    results(configure(**changes))
    np.testing.assert_array_equal(starts[4].trainable[0], ENCODER.init(3).trainable[0])


def test_only_the_best_on_other_labels_is_scored_on_the_test_images(scored):
    [result] = results(configure())
    assert result["accuracy"] == pytest.approx(0.1)
    chosen = {(one["draw"], one["steps"], one["learning_rate"]) for one in result["chosen"]}
    assert chosen == {(0, 10, 0.2), (1, 10, 0.2)}
    assert [call for call in scored if call[2] == TEST] == [(10, 0.2, TEST)] * 2
    assert {n for *_, n in scored} == {TRAIN - 8, TEST}


def test_a_validation_split_is_used_if_there_is_one(scored):
    results(configure(), split(7))
    assert {n for *_, n in scored} == {7, TEST}


def test_a_single_configuration_needs_no_held_out_labels(scored):
    [result] = results(configure(finetune_steps=(10,), finetune_learning_rate=(0.1,)))
    assert "chosen" not in result
    assert {n for *_, n in scored} == {TEST}


@pytest.mark.parametrize("probe", ["logistic", "lars"])
def test_raw_pixels_have_the_linear_probe_of_the_linear_protocol(scored, probe):
    rng = np.random.default_rng(0)

    def noise(part):
        return dataclasses.replace(
            part, images=rng.integers(0, 256, part.images.shape).astype(np.uint8)
        )

    names = ("a", "b", "c", "d")
    dataset = ImageDataset("d", noise(split(TRAIN)), noise(split(200)), names)
    config = configure(
        finetune_steps=(10,), finetune_learning_rate=(0.1,), probe=probe, baselines=("raw_pixels",)
    )

    def nothing(images):
        return np.zeros((len(images), 2), np.float32)

    [tuned] = finetuning.finetune_results(
        dataset, ENCODER, ENCODER.init(3), [{"labels": 8}], config
    )
    kinds = {"encoder": nothing, "raw_pixels": features.raw_pixels}
    [linear] = probing.linear_probes(dataset, kinds, config.evaluation, 0, [{"labels": 8}])
    assert tuned["baselines"] == {"raw_pixels": linear["baselines"]["raw_pixels"]}


def test_a_choice_needs_labels_that_were_not_drawn(scored):
    dataset = ImageDataset("d", split(8), split(TEST), ("a", "b", "c", "d"))
    with pytest.raises(ConfigurationError, match="validation split or labels beyond the 8 drawn"):
        finetuning.finetune_results(dataset, ENCODER, ENCODER.init(0), [{"labels": 8}], configure())
    assert not scored
