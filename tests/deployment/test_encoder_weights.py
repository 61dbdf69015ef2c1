"""`weights.npz`: equal to the model, read without running anything, and bounded."""

import io
import json
import shutil
import subprocess
import sys
import time
import tracemalloc
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.deployment import encoder_weights, saved_model
from tff_ssl.errors import ConfigurationError
from tff_ssl.models import from_keras
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.two_towers import TwoTowers
from tff_ssl.views import augmentation

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), np.uint8)
TINY = DualEncoder("tiny", (16, 16, 3), projector=(16, 8))
FIRST = TINY.trainable_specs[0]
MODELS = {
    "batch": DualEncoder("tiny", (16, 16, 3), projector=(16, 8), norm="batch"),
    "transformer": DualEncoder("vit_one_block_micro", (16, 16, 3), decoder=True, depth=2),
    "towers": TwoTowers(DualEncoder("tiny", (16, 16, 3), precision="bfloat16"), "halves"),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "encoder"
    saved_model.save_encoder(folder, TINY, TINY.init(3), (16, 16, 3), None)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "encoder")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_what_is_read_is_the_models_encoder(tmp_path, name):
    model = MODELS[name]
    weights = model.init(3)
    saved_model.save_encoder(tmp_path / "encoder", model, weights, (16, 16, 3), None)
    encoder, kept = model.without_heads(weights)
    stored = encoder_weights.read(tmp_path / "encoder")
    assert stored.model == encoder
    assert (stored.image_shape, stored.view_size) == ((16, 16, 3), None)
    tf.nest.map_structure(np.testing.assert_array_equal, stored.weights, kept)
    expected = encoder.apply(kept, augmentation.to_float(IMAGES), training=False).h
    loaded = saved_model.load_encoder(tmp_path / "encoder")
    np.testing.assert_allclose(loaded(tf.constant(IMAGES)), expected, rtol=1e-5, atol=1e-6)
    graph = tf.saved_model.load(str(tmp_path / "encoder"))
    np.testing.assert_array_equal(loaded(tf.constant(IMAGES)), graph.encode(IMAGES)["h"])


def test_images_are_resized_to_the_view(tmp_path):
    saved_model.save_encoder(tmp_path / "encoder", TINY, TINY.init(3), (8, 8, 3), 16)
    stored = encoder_weights.read(tmp_path / "encoder" / "weights.npz")
    assert (stored.model.image_shape, stored.image_shape) == ((16, 16, 3), (8, 8, 3))
    assert stored.view_size == 16


@pytest.mark.slow
def test_equal_encoders_give_equal_files(tmp_path):
    encoder, weights = TINY.without_heads(TINY.init(3))
    stored = encoder_weights.StoredEncoder(encoder, weights, (16, 16, 3), None)
    for name in "ab":
        encoder_weights.write(tmp_path / name, stored)
        time.sleep(2)  # The archive's times have a resolution of 2 s.
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_strangers_graph_is_not_run(folder, tmp_path):
    """A SavedModel that writes a file when it is run, with the signature of an encoder."""
    touched = tmp_path / "touched"

    class Stranger(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 16, 16, 3], tf.uint8, "images")])
        def encode(self, images):
            tf.io.write_file(str(touched), "written by a stranger")
            return {"h": tf.zeros([tf.shape(images)[0], 64])}

    stranger = Stranger()
    stranger.trainable_weights = []
    tf.saved_model.save(stranger, str(tmp_path / "stranger"), {"encode": stranger.encode})
    with pytest.raises(ConfigurationError, match="--run_saved_model_graph"):
        saved_model.load_encoder(tmp_path / "stranger")
    # Nor is it where an honest file of weights lies beside it.
    weights = folder / "weights.npz"
    weights.rename(tmp_path / "stranger" / "weights.npz")
    saved_model.load_encoder(tmp_path / "stranger")(tf.constant(IMAGES))
    assert not touched.exists()
    (tmp_path / "stranger" / "weights.npz").unlink()
    saved_model.load_encoder(tmp_path / "stranger", run_graph=True)(tf.constant(IMAGES))
    assert touched.exists()


def rewrite(path, description=None, arrays=None):
    """Writes the file again with fields of the description or arrays replaced."""
    with np.load(path) as file:
        entries = dict(file)
    if description is not None:
        entries["description"] = json.loads(str(entries["description"])) | description
        entries["description"] = np.array(json.dumps(entries["description"]))
    np.savez_compressed(path, **(entries | (arrays or {})))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("description", "named"),
    [
        ({"format": "another"}, "description"),
        ({"version": 3}, "version 3"),
        ({"encoder": "resnet1000"}, "resnet1000"),
        ({"norm": "none"}, "none"),
        ({"depth": 10**12}, "1000000000000"),
        ({"depth": 3}, "depth"),
        ({"depth": None}, "None"),
        ({"image_shape": [16, 16]}, "unpack"),
        ({"image_shape": [16, 16, True]}, "True"),
        ({"image_shape": [16, 10**9, 3]}, "1000000000"),
        ({"image_shape": [16, 16, 1]}, "float32"),
        ({"view_size": 0}, "0 is not"),
        ({"view_size": "16"}, "'16'"),
        ({"towers": "three"}, "three"),
        ({"towers": "halves"}, "weights"),
    ],
)
def test_wrong_descriptions_are_one_line(folder, description, named):
    rewrite(folder / "weights.npz", description)
    with pytest.raises(ConfigurationError, match=r"weights\.npz is damaged.*" + named) as raised:
        encoder_weights.read(folder)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros(FIRST.shape),  # float64
        np.zeros([*FIRST.shape[:-1], 17], np.float32),
        np.zeros(np.prod(FIRST.shape), np.float32),
        # 800 MB of zeros, compressed
        pytest.param(np.zeros([5000, 5000, 8], np.float32), marks=pytest.mark.long),
        np.array(["text"]),
    ],
)
def test_wrong_arrays_are_one_line_in_little_memory(folder, wrong):
    rewrite(folder / "weights.npz", arrays={f"weights/{FIRST.name}": wrong})
    tracemalloc.start()
    with pytest.raises(ConfigurationError, match=FIRST.name):
        encoder_weights.read(folder)
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


def test_pickles_are_not_loaded(folder, tmp_path):
    touched = tmp_path / "touched"

    class Program:
        def __reduce__(self):
            return open, (str(touched), "w")

    for name in (f"weights/{FIRST.name}", "description"):
        content = (folder / "weights.npz").read_bytes()
        rewrite(folder / "weights.npz", arrays={name: np.array(Program(), dtype=object)})
        with pytest.raises(ConfigurationError, match="is damaged"):
            encoder_weights.read(folder)
        (folder / "weights.npz").write_bytes(content)
    assert not touched.exists()


@pytest.mark.slow
def test_no_flipped_bit_changes_weights_silently(folder):
    path = folder / "weights.npz"
    content = path.read_bytes()
    expected = encoder_weights.read(path)
    refused = 0
    for place in np.random.default_rng(0).choice(8 * len(content), 30, replace=False):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            stored = encoder_weights.read(path)
        except ConfigurationError:
            refused += 1
        else:  # Such as the time of a member, which nothing reads.
            tf.nest.map_structure(np.testing.assert_array_equal, stored, expected)
    assert refused > 20


@pytest.mark.parametrize("size", [0, 1, 100, 5000])
def test_truncated_files_are_one_line(folder, size):
    path = folder / "weights.npz"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ConfigurationError, match="is damaged"):
        saved_model.load_encoder(folder)


def test_a_missing_member_and_another_archive(folder):
    path = folder / "weights.npz"
    buffer = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(buffer, "w") as smaller:
        for name in archive.namelist()[:-1]:
            smaller.writestr(name, archive.read(name))
    path.write_bytes(buffer.getvalue())
    with pytest.raises(ConfigurationError, match="is damaged"):
        encoder_weights.read(folder)
    np.savez(path, a=np.zeros(3))
    with pytest.raises(ConfigurationError, match=r"description\.npy"):
        encoder_weights.read(folder)


def test_a_model_for_other_images_is_not_written(tmp_path):
    encoder, weights = TINY.without_heads(TINY.init(0))
    stored = encoder_weights.StoredEncoder(encoder, weights, (8, 8, 3), None)
    with pytest.raises(ValueError, match="view_size=None"):
        encoder_weights.write(tmp_path / "weights.npz", stored)


@pytest.mark.slow
def test_reading_imports_no_tff(folder, project_root):
    program = (
        "import sys; from tff_ssl.deployment import saved_model; "
        f"saved_model.load_encoder({str(folder)!r}); "
        "assert 'tensorflow_federated' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=project_root, check=True, timeout=1200)


@pytest.fixture
def own(tmp_path):
    """The folder of an encoder of one's own, and the encoder."""
    layers = [tf.keras.layers.Conv2D(4, 3, input_shape=(16, 16, 3)),
              tf.keras.layers.BatchNormalization()]  # fmt: skip
    model = DualEncoder(from_keras(tf.keras.Sequential(layers)), (16, 16, 3), projector=(32, 8))
    saved_model.save_encoder(tmp_path / "own", model, model.init(0), (16, 16, 3), None)
    return tmp_path / "own", model


def test_an_encoder_of_ones_own_is_a_graph_in_the_file(own):
    folder, model = own
    stored = encoder_weights.read(folder)
    weights = model.init(0)
    expected = model.apply(weights, augmentation.to_float(IMAGES), training=False).h
    x = augmentation.to_float(IMAGES)
    h = stored.model.apply(stored.weights, x, training=False).h
    np.testing.assert_allclose(h, expected, rtol=1e-5, atol=1e-6)
    names = [spec.name for spec in stored.model.specs]
    assert names == [spec.name for spec in model.without_heads(weights)[0].specs]
    assert stored.model.encoder_name == model.encoder_name


@pytest.mark.parametrize("inside", [False, True])
def test_a_graph_that_writes_a_file_is_refused(own, tmp_path, inside):
    folder, _ = own
    content = dict(np.load(folder / "weights.npz"))

    @tf.function
    def write():
        tf.io.write_file(str(tmp_path / "made"), "x")
        return tf.constant(1.0)

    graph = write if not inside else tf.function(lambda: write())
    graph_def = graph.get_concrete_function().graph.as_graph_def()
    content["graph"] = np.frombuffer(graph_def.SerializeToString(), np.uint8)
    np.savez(folder / "weights.npz", **content)
    with pytest.raises(ConfigurationError, match="operation WriteFile of its graph is not known"):
        encoder_weights.read(folder)
    assert not (tmp_path / "made").exists()
