"""
A first run
===========

This tutorial divides handwritten digits among clients, trains an encoder on them with DCCO, and
compares it with raw pixels.
"""

import pathlib
import tempfile

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import tff_ssl

# %%
# Clients
# -------
# Images are arrays [n, height, width, channels], whole numbers from 0 to 255 or floating-point
# numbers from 0 to 1. ``partition`` gives each client four images of one digit. Training does not
# use the labels.

digits = load_digits()
images, labels = digits.images[..., None] / 16, digits.target
train, test = (images[:1400], labels[:1400]), (images[1400:], labels[1400:])
owners = tff_ssl.partition(train[1], "dirichlet", alpha=0, samples_per_client=4)
clients = [images[owner] for owner in owners]
print(len(clients), "clients, the first with images", clients[0].shape)

# %%
# Train
# -----
# In each round, some clients improve the encoder together. A real run has hundreds of rounds. The
# views are those for digits: a photograph may be mirrored, but a digit may not.

run = tff_ssl.train(clients, algorithm="dcco", rounds=20, views="affine")

# %%
# ``run.metrics`` has a dictionary for each round.

print(", ".join(run.metrics[0]))
_, axes = plt.subplots(figsize=(5, 3), layout="tight")
axes.plot([row["round"] for row in run.metrics], [row["loss"] for row in run.metrics])
axes.set(xlabel="round", ylabel="loss")

# %%
# Evaluate
# --------
# A linear classifier is trained on the features of one (and of five) labelled images a class, and
# another one on their pixels. Both are scored on other images.

for row in tff_ssl.evaluate(run.encoder, train, test):
    pixels = row["baselines"]["raw_pixels"]["accuracy"]
    print(f"{row['labels']} labels: encoder {row['accuracy']:.3f}, raw pixels {pixels:.3f}")

# %%
# After twenty rounds, the encoder is not yet better than raw pixels. After a hundred it is, with
# accuracies of 0.66 and 0.86. :doc:`../own_models` trains a model of your own.
#
# Save
# ----

folder = pathlib.Path(tempfile.mkdtemp()) / "run"
run.save(folder)
print(", ".join(sorted(path.name for path in folder.iterdir())))
print(len(tff_ssl.load_run(folder).metrics), "rounds")

# %%
# The scripts
# -----------
# ``uv run python -m launch.pretrain`` does the same in a terminal, with 250 rounds, checkpoints and
# more evaluations, and draws a page of the run, ``run.html``. Its flags are also options of
# ``tff_ssl.train``. :doc:`../running` describes them.
