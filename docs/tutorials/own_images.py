"""
Your own images
===============

This tutorial reads a folder of images of several people, trains an encoder in which each person is
a client, and finds similar images. The folder is made from the digits here; put your own in its
place.
"""

import pathlib
import tempfile

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import tff_ssl

# %%
# The folder
# ----------
# 120 people have five images each, of one digit.

folder = pathlib.Path(tempfile.mkdtemp())
digits = load_digits()
order = np.argsort(digits.target[:600], kind="stable").reshape(120, 5)
for person, numbers in enumerate(order):
    (folder / f"person{person:03}").mkdir()
    for number in numbers:
        pixels = (digits.images[number] * 255 / 16).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"person{person:03}" / f"{number}.png")

# %%
# The clients
# -----------
# A client's images are one array, and all images have one size.


def read(path):
    return np.asarray(Image.open(path).convert("RGB").resize((8, 8)))


clients = {
    person.name: np.stack([read(path) for path in sorted(person.glob("*.png"))])
    for person in sorted(folder.iterdir())
}
print(len(clients), "clients, the first with images", clients["person000"].shape)

# %%
# Training
# --------
# For your own images, what matters is enough rounds, views that preserve the content of an image,
# and enough images in a round.

run = tff_ssl.train(clients, algorithm="dcco", rounds=20, views="affine")

# %%
# Similar images
# --------------
# Left in each row is an image, and beside it are those whose features have the smallest angle to
# its own.

images = np.concatenate(list(clients.values()))
features = tff_ssl.embed(run.encoder, images)
features /= np.linalg.norm(features, axis=1, keepdims=True)
figure, axes = plt.subplots(3, 6, figsize=(6, 3))
for row, query in zip(axes, (0, 250, 500), strict=True):
    for cell, nearest in zip(row, np.argsort(-features @ features[query]), strict=False):
        cell.imshow(images[nearest])
        cell.axis("off")

# %%
# The scripts
# -----------
# ``uv run python -m launch.pretrain --dataset=case_folder --data_dir=FOLDER`` trains on a folder of
# images in a terminal. Its clients are the cases of a table, ``metadata.csv``, or have four images
# of one subfolder. It chooses a size of the images and a test split, and ``launch.embed`` draws a
# page with neighbours, clusters and near-duplicates. See :doc:`../data`.
