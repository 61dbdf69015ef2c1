"""`tff_ssl.load_encoder`: any batch, type and size of images, checked, without TFF."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tff_ssl
from tff_ssl.deployment import saved_model
from tff_ssl.models.dual_encoder import DualEncoder

MODEL = DualEncoder("tiny", (16, 16, 1), projector=(16, 8))
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 1), np.uint8)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run, with an encoder of 8x8 images that sees them at 16x16."""
    folder = tmp_path_factory.mktemp("run")
    saved_model.save_encoder(folder / "encoder", MODEL, MODEL.init(3), (8, 8, 1), view_size=16)
    return folder


@pytest.fixture(scope="module")
def encode(run):
    return tff_ssl.load_encoder(run)


@pytest.fixture(scope="module")
def expected(run):
    """Features of `IMAGES` from the SavedModel's signature, run by plain TensorFlow."""
    graph = tf.saved_model.load(str(run / "encoder"))
    served = graph.signatures["serving_default"](images=tf.constant(IMAGES))["h"].numpy()
    np.testing.assert_array_equal(served, graph.signatures["encode"](images=IMAGES)["h"])
    return served


@pytest.mark.slow
@pytest.mark.parametrize("inside", ["", "encoder", "encoder/weights.npz"])
def test_features_are_those_of_the_saved_model(run, expected, inside):
    encode = tff_ssl.load_encoder(run / inside)
    assert isinstance(encode, tff_ssl.Encoder)
    assert (encode.image_shape, encode.features) == ((8, 8, 1), 64)
    h = encode(IMAGES)
    assert (h.shape, h.dtype) == ((5, 64), np.float32)
    np.testing.assert_allclose(h, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "images",
    [
        IMAGES.astype(np.float32) / 255,
        IMAGES.astype(np.float64) / 255,
        IMAGES.astype(np.int64),
        tf.constant(IMAGES),
        (IMAGES / 255).tolist(),
    ],
    ids=["float32", "float64", "int64", "tensor", "list"],
)
def test_images_of_any_type_have_the_same_features(encode, expected, images):
    np.testing.assert_allclose(encode(images), expected, rtol=1e-4, atol=1e-5)


def test_batches_of_any_size_have_the_same_features(encode, expected):
    assert encode(IMAGES[:0]).shape == (0, 64)
    one = encode(IMAGES[0])
    assert one.shape == (64,)
    np.testing.assert_allclose(one, expected[0], rtol=1e-5, atol=1e-6)
    many = encode(np.tile(IMAGES, (60, 1, 1, 1)))  # More than are encoded at a time.
    np.testing.assert_allclose(many, np.tile(expected, (60, 1)), rtol=1e-5, atol=1e-6)


def test_images_of_other_sizes_are_resized(encode, expected):
    # Each pixel as a block of 3x3: antialiased resizing keeps the means of the blocks nearly.
    large = IMAGES.repeat(3, axis=1).repeat(3, axis=2)
    resized = tf.image.resize(large / np.float32(255), [8, 8], antialias=True)
    np.testing.assert_allclose(encode(large), encode(resized), rtol=1e-4, atol=1e-5)
    assert np.abs(encode(large) - expected).max() < 0.5 * np.abs(expected).max()
    assert encode(np.zeros((2, 5, 9, 1), np.uint8)).shape == (2, 64)


@pytest.mark.parametrize(
    ("message", "images"),
    [
        ("from 0 to 1; these are from 0 to 255", np.linspace(0, 255, 64).reshape(1, 8, 8, 1)),
        ("from 0 to 1; these are from -0.5", np.full((1, 8, 8, 1), -0.5)),
        ("from 0 to 1; these are from nan", np.full((1, 8, 8, 1), np.nan)),
        ("from 0 to 255; these are from 0 to 65535: scale 16-bit",
         np.tile(np.array([0, 65535], np.uint16), 32).reshape(1, 8, 8, 1)),
        ("got bool", np.zeros((1, 8, 8, 1), bool)),
        (r"1 channels in the last dimension; got \[1, 8, 8, 3\]", np.zeros((1, 8, 8, 3))),
        (r"got \[8, 8\]", np.zeros((8, 8))),
    ],
)  # fmt: skip
def test_wrong_images_are_refused(encode, message, images):
    with pytest.raises(ValueError, match=message):
        encode(images)


def test_a_folder_without_an_encoder_is_named(tmp_path):
    with pytest.raises(tff_ssl.ConfigurationError, match=f"{tmp_path} holds no encoder"):
        tff_ssl.load_encoder(tmp_path)


@pytest.mark.long
@pytest.mark.slow
def test_no_tff_is_imported(run, project_root):
    program = (
        "import sys, numpy as np, tff_ssl\n"
        "assert not {'tensorflow', 'tensorflow_federated'} & sys.modules.keys()\n"
        f"h = tff_ssl.load_encoder({str(run)!r})(np.zeros((1, 8, 8, 1), np.uint8))\n"
        "assert 'tensorflow_federated' not in sys.modules\n"
        "print(h.shape, tff_ssl.__version__)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=project_root, capture_output=True, text=True
    )
    assert result.stdout == f"(1, 64) {tff_ssl.__version__}\n", result.stderr


def test_the_public_interface_is_there_and_documented():
    for name in set(tff_ssl.__all__) - {"__version__"}:
        assert getattr(tff_ssl, name).__doc__
    assert set(tff_ssl._MODULES) == set(tff_ssl.__all__) - {"__version__"}
    with pytest.raises(AttributeError, match="'nosuch'"):
        _ = tff_ssl.nosuch


@pytest.mark.long
@pytest.mark.slow
def test_a_program_with_an_algorithm_ends_quietly(project_root):
    """TFF's own default context prints an error when Python collects it at the exit."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "import tff_ssl; tff_ssl.build_algorithm"],
        cwd=project_root, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_an_algorithm_is_built_by_its_name(small_algorithm):
    task = small_algorithm("fedavg").task
    built = tff_ssl.build_algorithm("fedavg", task, client_learning_rate=0.5)
    assert built.process.initialize.type_signature is not None
    with pytest.raises(tff_ssl.ConfigurationError, match="fedavg has no hyperparameter 'rate'"):
        tff_ssl.build_algorithm("fedavg", task, rate=0.5)
    with pytest.raises(tff_ssl.ConfigurationError, match="--algorithm must be one of"):
        tff_ssl.build_algorithm("nosuch", task)
