"""
Your own images
===============

Your images lie in a folder, with a table that says which image belongs to whom. Each case (a
patient, a user, a device) is a client. This tutorial writes such a folder from the digits, looks
at its clients, and trains on it.
"""

import csv
import pathlib
import subprocess
import sys
import tempfile

import matplotlib.pyplot as plt
import numpy as np
import sklearn.datasets
from PIL import Image

import launch


def run(command):
    """Runs a script of `launch` from the root of the clone, and prints what it prints."""
    print(f"$ python -m {command}")
    root = pathlib.Path(launch.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=root, capture_output=True, text=True
    )
    print(done.stdout)
    if done.returncode:
        raise RuntimeError(done.stderr)


# %%
# The folder
# ----------
# 600 images of 120 cases. Each case has five images of one digit. The last 20 cases are for the
# test.

folder = pathlib.Path(tempfile.mkdtemp())
(folder / "images").mkdir()
digits = sklearn.datasets.load_digits()
order = np.argsort(digits.target[:600], kind="stable").reshape(120, 5)
order = np.random.default_rng(0).permutation(order)
with open(folder / "metadata.csv", "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["file_name", "case_id", "label", "split"])
    for case, numbers in enumerate(order):
        for number in numbers:
            name = f"images/{number}.png"
            pixels = (digits.images[number] * 255 / 16).astype(np.uint8)
            Image.fromarray(np.kron(pixels, np.ones((2, 2), np.uint8))).save(folder / name)
            label = f"digit {digits.target[numbers[0]]}"
            table.writerow([name, f"case{case}", label, "test" if case >= 100 else "train"])
print("".join((folder / "metadata.csv").read_text().splitlines(keepends=True)[:4]))

# %%
# The clients
# -----------
# Look at a partition before you train on it.

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
# Views say how an image is varied in training: small turns and shifts suit digits. The probe
# has one label a class, and its classes have the names of your table.

run(
    f"launch.pretrain --dataset=case_folder --data_dir={folder} --algorithm=dcco "
    "--clients_per_round=20 --rounds=10 --encoder=tiny --projector=32 "
    "--views=affine --view_size=16 --hparam=lambda=2 --hparam=server_learning_rate=0.002 "
    f"--labels_per_class=1 --eval_every=5 --output_dir={folder / 'run'}"
)

# %%
# With so few rounds the encoder has hardly learned anything. What matters for your own images:
# the number of rounds, views that leave the content of an image as it is, and enough images in
# a round.
