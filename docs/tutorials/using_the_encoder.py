"""
Using the encoder
=================

The encoder is the purpose of all the training. This tutorial trains one for a few rounds, loads it
in plain TensorFlow, classifies with few labels, and exports it for a phone.
"""

import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import tff_ssl
from tff_ssl.deployment import encoder_weights, export

# %%
# Train
# -----

digits = load_digits()
images = np.round(digits.images * 255 / 16).astype(np.uint8)[..., None]
clients = [images[owner] for owner in tff_ssl.partition(digits.target, samples_per_client=4)]
folder = pathlib.Path(tempfile.mkdtemp()) / "run"
tff_ssl.train(clients, algorithm="dcco", rounds=10, views="affine", folder=folder)

# %%
# Load
# ----
# ``load_encoder`` takes the folder of a run. It needs TensorFlow, not TFF. The encoder takes any
# number of images of any size, as whole numbers from 0 to 255 or as floats from 0 to 1.

encoder = tff_ssl.load_encoder(folder)
features = encoder(images)
print("images", images.shape, "features", features.shape)

# %%
# Classify
# --------
# Ten labels per class are for training, and the other digits for the test.

few = np.concatenate([np.flatnonzero(digits.target == c)[:10] for c in range(10)])
others = np.setdiff1d(np.arange(len(images)), few)


def accuracy(features):
    scaled = features / features[few].std()
    classifier = LogisticRegression(max_iter=2000).fit(scaled[few], digits.target[few])
    return classifier.score(scaled[others], digits.target[others])


print(f"encoder: {accuracy(features):.3f}")
print(f"raw pixels: {accuracy(images.reshape(len(images), -1)):.3f}")

# %%
# Export
# ------
# TensorFlow Lite runs on phones. Calibration images make the int8 file, which is less than half
# as large. ``uv run python -m launch.export --run=RUN`` writes the files in a terminal, and also
# measures the time for an image and the largest difference that the conversion makes. It cannot
# read the arrays of this program again: ``--dataset`` and ``--data_dir`` name images for the
# calibration.

stored = encoder_weights.read(folder / "encoder")
export.to_tflite(stored, folder / "float32.tflite")
export.to_tflite(stored, folder / "int8.tflite", calibration=images[:200])
for name in ("float32.tflite", "int8.tflite"):
    print(name, (folder / name).stat().st_size, "bytes")

# %%
# Elsewhere
# ---------
# A program with the file needs only TensorFlow, or TensorFlow Lite alone.

lite = tf.lite.Interpreter(model_path=str(folder / "float32.tflite"))
(given,), (result,) = lite.get_input_details(), lite.get_output_details()
lite.resize_tensor_input(given["index"], images.shape)
lite.allocate_tensors()
lite.set_tensor(given["index"], images)
lite.invoke()
print(f"TensorFlow Lite: {accuracy(lite.get_tensor(result['index'])):.3f}")
