"""
Your own images
===============

Put your images into a folder, with a table of the case to which each image belongs. Each case (a
patient, a user, a device) is a client. This tutorial makes such a folder from the digits, looks at
its clients, and trains on it. Without a table, a folder for each class is enough.
"""

import csv
import pathlib
import tempfile

import matplotlib.pyplot as plt
import numpy as np
import sklearn.datasets
from PIL import Image

from docs.tutorials.terminal import run

# %%
# The folder
# ----------
# 600 images of 120 cases. Each case has five images of one digit. There is no column ``split``, so
# the test cases are drawn at random.

folder = pathlib.Path(tempfile.mkdtemp())
(folder / "images").mkdir()
digits = sklearn.datasets.load_digits()
order = np.argsort(digits.target[:600], kind="stable").reshape(120, 5)
order = np.random.default_rng(0).permutation(order)
with open(folder / "metadata.csv", "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["file_name", "case_id", "label"])
    for case, numbers in enumerate(order):
        for number in numbers:
            name = f"images/{number}.png"
            pixels = (digits.images[number] * 255 / 16).astype(np.uint8)
            Image.fromarray(np.kron(pixels, np.ones((2, 2), np.uint8))).save(folder / name)
            label = f"digit {digits.target[numbers[0]]}"
            table.writerow([name, f"case{case}", label])
print("".join((folder / "metadata.csv").read_text().splitlines(keepends=True)[:4]))

# %%
# The clients
# -----------
# Look at a partition before you train on it. The notes say what was chosen for you, and which flag
# or column changes it.

report = folder / "report"
run(
    f"launch.partition_report --dataset=case_folder --data_dir={folder} "
    f"--partition=per_case --output_dir={report}"
)
picture = plt.imread(report / "partition.png")
figure, axes = plt.subplots(figsize=(picture.shape[1] / 130, picture.shape[0] / 130))
axes.imshow(picture)
axes.axis("off")
figure.tight_layout()

# %%
# Training
# --------
# A run needs only ``--dataset`` and ``--data_dir``. Here the number of rounds is small, because
# this page is built often, and the views are those for digits: a photograph may be mirrored, but a
# digit may not. Cases are scored: the five images of a case get one prediction.

run(
    f"launch.pretrain --dataset=case_folder --data_dir={folder} --rounds=10 --encoder=tiny "
    f"--views=affine --eval_every=5 --output_dir={folder / 'run'}"
)

# %%
# In so few rounds, the encoder has hardly learned anything, and the run prints a warning. For your
# own images, what matters is enough rounds, views that preserve the content of an image, and enough
# images in a round.
#
# A folder for each class
# -----------------------
# Without a ``metadata.csv``, the names of folders are the labels, and a client has four images
# of one class.

classes = folder / "classes"
for number in range(60):
    label = classes / f"digit {digits.target[number]}"
    label.mkdir(parents=True, exist_ok=True)
    (label / f"{number}.png").write_bytes((folder / f"images/{number}.png").read_bytes())
run(
    f"launch.partition_report --dataset=case_folder --data_dir={classes} "
    f"--output_dir={folder / 'report_of_classes'}"
)
