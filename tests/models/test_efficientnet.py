"""EfficientNet-Lite0 against a plain NumPy forward pass; frozen stages; initial weights."""

import dataclasses

import numpy as np
import pytest

from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.efficientnet import EFFICIENTNETS

MODEL = DualEncoder("efficientnet_lite0", (32, 32, 3), norm="frozen")


def convolve(x, kernel, stride, depthwise=False):
    """A convolution with TensorFlow's padding "SAME", one position of the kernel at a time."""
    size = kernel.shape[0]
    out = -(-x.shape[1] // stride)
    total = max((out - 1) * stride + size - x.shape[1], 0)
    before = total // 2
    x = np.pad(x, [(0, 0), (before, total - before), (before, total - before), (0, 0)])
    y = 0.0
    for i in range(size):
        for j in range(size):
            part = x[:, i : i + out * stride : stride, j : j + out * stride : stride][:, :out, :out]
            y = y + (part * kernel[i, j, 0] if depthwise else part @ kernel[i, j])
    return y


def forward(values, x):
    def layer(x, name, stride=1, depthwise=False, relu6=True):
        y = convolve(x, values[f"{name}/kernel"], stride, depthwise)
        y = y * values[f"{name}/scale"] + values[f"{name}/offset"]
        return np.clip(y, 0, 6) if relu6 else y

    x = layer(x, "stem", 2)
    for number, stage in enumerate(EFFICIENTNETS["efficientnet_lite0"].stages):
        for index in range(stage.blocks):
            name, stride = f"stage{number}/block{index}", 1 if index else stage.stride
            y = layer(x, f"{name}/expand") if stage.expansion > 1 else x
            y = layer(y, f"{name}/depthwise", stride, True)
            y = layer(y, f"{name}/project", relu6=False)
            x = x + y if index else y
    return layer(x, "head").mean((1, 2))


def random_values():
    rng = np.random.default_rng(0)
    weights = MODEL.init(0)
    values = {}
    for spec, value in zip(MODEL.trainable_specs, weights.trainable, strict=True):
        moved = rng.uniform(0.5, 1.5, spec.shape) if spec.name.endswith("scale") else value
        values[spec.name] = np.asarray(moved, np.float32)
    return values


def test_equals_numpy():
    values = random_values()
    model = dataclasses.replace(MODEL, initial=values)
    x = np.random.default_rng(1).uniform(-1, 1, (2, 32, 32, 3)).astype(np.float32)
    h = model.apply(model.init(0), x, training=False).h
    exact = {name: value.astype(np.float64) for name, value in values.items()}
    np.testing.assert_allclose(h, forward(exact, x.astype(np.float64)), rtol=1e-3, atol=1e-4)


def test_size():
    assert MODEL.parameter_count == 3_371_008
    assert MODEL.features == 1280


@pytest.mark.parametrize(
    ("encoder", "stages", "fixed"),
    [
        ("tiny", 1, {"stem"}),
        ("tiny", 2, {"stem", "stage0"}),
        ("vit_micro", 2, {"patches", "block0"}),
        ("efficientnet_lite0", 3, {"stem", "stage0", "stage1"}),
    ],
)
def test_frozen_stages_are_not_trained(encoder, stages, fixed):
    model = DualEncoder(encoder, (32, 32, 3), projector=(16,), frozen_stages=stages)
    assert {spec.name.split("/")[0] for spec in model.non_trainable_specs} == fixed
    trained = DualEncoder(encoder, (32, 32, 3), projector=(16,))
    weights, expected = model.init(3), trained.init(3)
    kept, values = model.without_heads(weights)
    alone, others = trained.without_heads(expected)
    assert kept == alone
    for value, other in zip(values.trainable, others.trainable, strict=True):
        np.testing.assert_array_equal(value, other)


def test_batch_norms_of_frozen_stages_keep_their_moving_averages():
    model = DualEncoder("tiny", (16, 16, 3), norm="batch", frozen_stages=2)
    x = np.random.default_rng(0).uniform(-1, 1, (4, 16, 16, 3)).astype(np.float32)
    weights = model.init(0)
    new = model.apply(weights, x, training=True).non_trainable
    changed = {"frozen": [], "trained": []}
    for spec, before, after in zip(model.non_trainable_specs, weights[1], new, strict=True):
        if "moving" in spec.name:
            kind = "frozen" if spec.name.startswith(("stem/", "stage0/")) else "trained"
            changed[kind].append(bool(np.any(np.asarray(before) != np.asarray(after))))
    assert changed["frozen"]
    assert not any(changed["frozen"])
    assert changed["trained"]
    assert all(changed["trained"])
    # With all stages frozen, training encodes an image as inference does, whatever its batch.
    frozen = DualEncoder("tiny", (16, 16, 3), norm="batch", frozen_stages=4)
    weights = frozen.init(0)
    h = frozen.apply(weights, x, training=True).h
    np.testing.assert_allclose(h, frozen.apply(weights, x, training=False).h, atol=1e-6)


def test_stages_that_do_not_exist():
    with pytest.raises(ValueError, match="encoder tiny has 4 stages"):
        DualEncoder("tiny", (32, 32, 3), frozen_stages=5)


def test_heads_have_group_norm_and_initial_weights_replace_random_ones():
    model = DualEncoder("tiny", (32, 32, 3), projector=(16, 8), norm="frozen")
    kernel = model.trainable_specs[0]
    start = dataclasses.replace(model, initial={kernel.name: np.ones(kernel.shape, np.float32)})
    np.testing.assert_array_equal(start.init(0).trainable[0], np.ones(kernel.shape))
    for value, other in zip(start.init(0).trainable[1:], model.init(0).trainable[1:], strict=True):
        np.testing.assert_array_equal(value, other)
    np.testing.assert_array_equal(start.random_init(0).trainable[0], model.init(0).trainable[0])
