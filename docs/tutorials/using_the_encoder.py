"""
Using the encoder
=================

The encoder is the purpose of all the training. This tutorial trains one for a few rounds, loads it
in plain TensorFlow, exports it for a phone, and uses it in a program without this project.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's messages, before its import.

import numpy as np
import sklearn.datasets
from sklearn.linear_model import LogisticRegression

import tff_ssl
from docs.tutorials.terminal import run

# %%
# Train
# -----

folder = pathlib.Path(tempfile.mkdtemp())
run(f"launch.pretrain --rounds=10 --eval_every=0 --label_draws=1 --output_dir={folder / 'run'}")

# %%
# Load
# ----
# ``load_encoder`` takes the folder of a run. It needs TensorFlow, not TFF. The encoder takes any
# number of images of any size, as whole numbers from 0 to 255 or as floats from 0 to 1.

encoder = tff_ssl.load_encoder(folder / "run")
digits = sklearn.datasets.load_digits()
images = np.round(digits.images * 255 / 16).astype(np.uint8)[..., np.newaxis]
encodings = encoder(images)
print("images", images.shape, "encodings", encodings.shape)

# %%
# Classify
# --------
# Ten labels per class are for training, and the other digits for the test.

few = np.concatenate([np.flatnonzero(digits.target == c)[:10] for c in range(10)])
others = np.setdiff1d(np.arange(len(images)), few)
for name, features in (("encoder", encodings), ("raw pixels", images.reshape(len(images), -1))):
    scaled = features / features[few].std()
    classifier = LogisticRegression(max_iter=2000).fit(scaled[few], digits.target[few])
    accuracy = classifier.score(scaled[others], digits.target[others])
    print(f"{name}: accuracy {accuracy:.3f} with ten labels a class")

# %%
# Export
# ------
# TensorFlow Lite runs on phones. The export prints the size, the time for an image on this
# machine, and the largest difference that the conversion makes. The int8 file is a quarter of the
# size.

run(f"launch.export --run={folder / 'run'} --format=tflite --output_dir={folder / 'export'}")

# %%
# Elsewhere
# ---------
# This program needs TensorFlow and scikit-learn. It runs in a separate folder, where this project
# cannot be imported, and classifies with the exported encoder.

program = """
import sys

import numpy as np
import sklearn.datasets
import tensorflow as tf
from sklearn.linear_model import LogisticRegression

digits = sklearn.datasets.load_digits()
images = np.round(digits.images * 255 / 16).astype(np.uint8)[..., np.newaxis]

encoder = tf.lite.Interpreter(model_path=sys.argv[1])
(given,), (result,) = encoder.get_input_details(), encoder.get_output_details()
encoder.resize_tensor_input(given["index"], images.shape)
encoder.allocate_tensors()
encoder.set_tensor(given["index"], images)
encoder.invoke()
features = encoder.get_tensor(result["index"])

few = np.arange(100)
features /= features[few].std()
classifier = LogisticRegression(max_iter=2000).fit(features[few], digits.target[few])
print("accuracy:", round(classifier.score(features[100:], digits.target[100:]), 3))
"""
elsewhere = folder / "elsewhere"
elsewhere.mkdir()
(elsewhere / "classify.py").write_text(program)
done = subprocess.run(
    [sys.executable, "classify.py", str(folder / "export" / "encoder_float32.tflite")],
    cwd=elsewhere,
    env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    capture_output=True,
    text=True,
    check=True,
)
print(done.stdout)
