"""Mask R-CNN on an encoder: its features, its losses and its weights."""

import numpy as np
import pytest
import tensorflow as tf

from datasets import coco_folder
from tests import coco_folders
from tff_ssl.evaluation.detection.hyperparameters import DetectionHyperparameters
from tff_ssl.models.dual_encoder import DualEncoder

pytest.importorskip("official", reason="uv run --extra detection installs it")

from tff_ssl.evaluation.detection.mask_rcnn import MaskRCNN

pytestmark = pytest.mark.slow

SMALL = DetectionHyperparameters(
    image_size=64, batch_size=2, filters=16, box_head_width=32, sampled_anchors=64, proposals=64,
    sampled_boxes=16, sampled_masks=8,
)  # fmt: skip
ENCODER = DualEncoder("tiny", (96, 96, 3))


@pytest.fixture(scope="module")
def network():
    return MaskRCNN(ENCODER, 2, SMALL, seed=0)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = coco_folders.write(tmp_path_factory.mktemp("coco") / "coco", 2, 1)
    return coco_folder.CocoImages(folder, "train2017")


@pytest.fixture(scope="module")
def losses(network):
    """(images, labels, seed) -> the loss and its parts, in a graph."""
    return tf.function(network.losses, autograph=False)


def test_the_networks_features_are_the_encoders(network):
    weights = ENCODER.init(5)
    network.assign(network.initial_weights(weights))
    x = np.random.default_rng(0).uniform(-1, 1, (2, 64, 64, 3)).astype(np.float32)
    parsed = (0.5 * (x + 1) - [0.485, 0.456, 0.406]) / np.array([0.229, 0.224, 0.225])
    outputs = network._network(
        tf.constant(parsed, tf.float32), image_shape=tf.fill([2, 2], 64.0), training=False
    )
    expected = ENCODER.feature_maps(weights, tf.constant(x))
    assert list(outputs["backbone_features"]) == ["2", "3", "4"]
    for features, stage in zip(outputs["backbone_features"].values(), expected, strict=True):
        np.testing.assert_allclose(features, stage, rtol=1e-4, atol=1e-5)
    encoding = tf.reduce_mean(outputs["backbone_features"]["4"], [1, 2])
    # `apply` on images of this size would take the other stem; the encoder's own has stride 4.
    assert encoding.shape == (2, ENCODER.features)


def test_the_seed_and_the_encoder_give_all_initial_weights(network):
    again, other = MaskRCNN(ENCODER, 2, SMALL, seed=0), MaskRCNN(ENCODER, 2, SMALL, seed=1)
    start = ENCODER.init(7)
    sets = [n.initial_weights(start).trainable for n in (network, again, other)]
    for one, same in zip(*sets[:2], strict=True):
        np.testing.assert_array_equal(one, same)
    encoders = len(start.trainable)
    differing = [
        not np.array_equal(one, different) for one, _, different in zip(*sets, strict=True)
    ]
    # Biases are zeros and scales are ones whatever the seed; the encoder's weights are given.
    assert 5 < sum(differing) <= len(differing) - encoders
    assert network.parameter_count == sum(w.shape.num_elements() for w in sets[0])
    names = {spec.name for spec in ENCODER.trainable_specs}
    trained = {v.name.split(":")[0] for v in network.trainable_variables}
    assert {name.removeprefix("backbone/") for name in trained} >= names


def test_labels_are_of_the_scaled_image(network, images):
    example = images.example(0)
    pixels, labels = network.training_batch([example, images.example(1)])
    assert pixels.shape == (2, 64, 64, 3)
    height, width, _ = example.image.shape
    scale = 64 / max(height, width)
    expected = example.boxes * [height, width, height, width] * scale
    np.testing.assert_allclose(labels["gt_boxes"][0, :2], expected, atol=0.7)
    assert labels["gt_classes"][0].numpy().tolist()[:3] == [1, 2, -1]
    # All anchors of an object and of background are labelled; `losses` draws among them.
    targets = np.concatenate([t[0].numpy().ravel() for t in labels["rpn_score_targets"].values()])
    assert (targets == 1).sum() >= 2
    assert (targets == 0).sum() > SMALL.sampled_anchors


def test_losses_are_a_pure_function_of_weights_images_and_seed(network, images, losses):
    start = network.initial_weights(ENCODER.init(1))
    batch = network.training_batch([images.example(0), images.example(1)])
    totals = []
    for seed in (2, 2, 3):
        network.assign(start)
        total, parts = losses(*batch, tf.constant([1, seed]))
        totals.append(float(total))
        assert total.numpy() == pytest.approx(sum(float(part) for part in parts.values()))
        assert all(float(part) > 0 for part in parts.values())
    assert totals[0] == totals[1] != totals[2]


def test_detections_are_inside_the_image(network, images):
    network.assign(network.initial_weights(ENCODER.init(1)))
    first, second = network.detect([images.image(0), images.image(1)])
    assert first["boxes"].shape == (100, 4)
    assert first["masks"].shape == (100, 28, 28)
    count = int(first["count"])
    width = images.image(0).shape[1]
    assert count > 0
    boxes = first["boxes"][:count]
    # The square into which the image is scaled is higher than the image.
    assert boxes.min() >= 0
    assert boxes[:, [1, 3]].max() <= width + 1
    assert set(first["labels"][:count]) <= {1, 2}
    assert (np.diff(first["scores"][:count]) <= 0).all()
    (alone,) = network.detect([images.image(1)])
    np.testing.assert_allclose(alone["boxes"], second["boxes"], atol=1e-2)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_the_papers_setting_builds(name, project_root):
    from launch.options import hyperparameters

    text = (project_root / "launch/presets/dec_ssl/paper/detection.flags").read_text()
    given = [line.partition("=")[2] for line in text.splitlines() if line.startswith("--hparam=")]
    values = hyperparameters.parse(DetectionHyperparameters, given)
    network = MaskRCNN(DualEncoder(name, (224, 224, 3)), 80, values, seed=0)
    shapes = {level: shape[1:].as_list() for level, shape in network._backbone.output_specs.items()}
    factor = 4 if name == "resnet50" else 1
    assert shapes == {
        str(level): [1088 // 2**level, 1088 // 2**level, factor * 2 ** (level + 4)]
        for level in range(2, 6)
    }
    widths = [factor * 64 * 2**stage for stage in range(4)]
    conv = 9 * 256 * 256 + 256  # 3x3 with a bias.
    pyramid = 256 * sum(widths) + 4 * 256 + 5 * conv + 5 * 512
    proposals = conv + 5 * 512 + 257 * 3 + 257 * 12
    box_head = (7 * 7 * 256 + 1) * 1024 + 1025 * 1024 + 2 * 2048 + 1025 * (81 + 324)
    mask_head = 4 * (conv + 512) + (4 * 256 + 1) * 256 + 512 + 257 * 81
    # torchvision's counts without the classifier.
    backbone = {"resnet18": 11_689_512 - 513_000, "resnet50": 25_557_032 - 2_049_000}[name]
    assert network.parameter_count == backbone + pyramid + proposals + box_head + mask_head
