"""The encoder in the formats of other runtimes: TFLite, Keras and ONNX.

Like the SavedModel, each takes images uint8 [batch, height, width, channels] with values from 0 to
255 and any batch size, and returns features float32 [batch, features].
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tff_ssl import whole_files
from tff_ssl.deployment.encoder_weights import StoredEncoder
from tff_ssl.deployment.saved_model import EncoderModule
from tff_ssl.errors import MissingExtraError

# Images uint8 [n, h, w, c] -> features float32 [n, d].
Encode = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.float32]]
_ONNX_OPSET = 15


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Discards what converters write to stderr, even from C++; their errors are exceptions."""
    sys.stderr.flush()
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as devnull:
            os.dup2(devnull.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)


def to_tflite(
    stored: StoredEncoder,
    path: str | os.PathLike[str],
    calibration: npt.NDArray[np.uint8] | None = None,
) -> Encode:
    """Writes the encoder as a TFLite model, for devices; returns it, run by TFLite.

    Calibration images, uint8 [n, h, w, c], make it an int8 model and give its ranges: weights and
    activations are int8 where TFLite has an int8 operation, otherwise float32.
    """
    module = EncoderModule(*stored)
    function = module.encode.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], module)
    if calibration is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([image[np.newaxis]] for image in calibration)
    with _quiet():
        whole_files.write(path, converter.convert())
        interpreter = tf.lite.Interpreter(model_path=str(path))
        interpreter.allocate_tensors()
    (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()

    def encode(images):
        if tuple(interpreter.get_input_details()[0]["shape"]) != images.shape:
            interpreter.resize_tensor_input(source["index"], images.shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(source["index"], images)
        interpreter.invoke()
        return interpreter.get_tensor(target["index"])

    return encode


class _KerasEncoder(tf.keras.Model):
    def __init__(self, module: EncoderModule):
        super().__init__()
        self._module = module
        # Keras counts only variables that are attributes of the model itself.
        self._variables = [*module.trainable_weights, *module.non_trainable_weights]

    def get_config(self):
        return {}  # Without it Keras warns; the model is read from its graph.

    def call(self, images):
        return self._module.encode(images)["h"]


def to_keras(stored: StoredEncoder, path: str | os.PathLike[str]) -> Encode:
    """Writes the encoder as a Keras model, which `tf.keras.models.load_model` reads; returns it.

    It is a folder in Keras's SavedModel format, and replaces an old one. A `.keras` file would not
    hold the graph, so that loading it would need this package.
    """
    model = _KerasEncoder(EncoderModule(*stored))
    model(tf.zeros([1, *stored.image_shape], tf.uint8))  # Tells Keras the shape of the images.
    with _quiet():
        with whole_files.replacing_folder(path) as new:
            model.save(str(new), save_format="tf")
        loaded = tf.keras.models.load_model(str(path), compile=False)
    return lambda images: loaded(tf.constant(images)).numpy()


def check_onnx() -> None:
    """Raises a MissingExtraError if the extra `onnx` is not installed."""
    try:
        for name in ("onnx", "onnxruntime", "tf2onnx"):
            importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError("--format=onnx", "onnx", error) from error


def to_onnx(stored: StoredEncoder, path: str | os.PathLike[str]) -> Encode:
    """Writes the encoder as an ONNX model; returns it, run by onnxruntime. See `check_onnx`."""
    check_onnx()
    import onnx
    import onnxruntime
    import tf2onnx

    module = EncoderModule(*stored)
    signature = [tf.TensorSpec([None, *stored.image_shape], tf.uint8, "images")]
    with _quiet():
        model, _ = tf2onnx.convert.from_function(module.encode, signature, opset=_ONNX_OPSET)
    onnx.checker.check_model(model)
    whole_files.write(path, model.SerializeToString())
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (source,), (target,) = session.get_inputs(), session.get_outputs()
    return lambda images: session.run([target.name], {source.name: images})[0]
