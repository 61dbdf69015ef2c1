"""
A first run and its files
=========================

This tutorial trains an encoder with DCCO on handwritten digits for ten rounds, and looks at what
the run writes. A real run has 250 rounds: leave out ``--rounds=10``.
"""

import csv
import json
import pathlib
import tempfile

import matplotlib.pyplot as plt

from docs.tutorials.terminal import run

# %%
# Train
# -----
# Before it starts, a script prints what it is going to do: how many clients there are, how large
# the model is, and how many bytes a client receives and sends in a round. At the end, it probes
# the encoder.

folder = pathlib.Path(tempfile.mkdtemp()) / "run"
run(f"launch.pretrain --rounds=10 --eval_every=5 --output_dir={folder}")

# %%
# The table at the end is the result. A linear classifier was trained on the encodings of one
# (and of five) labelled images per class. The same was done with an untrained encoder and with
# raw pixels. After ten rounds, the encoder is better than an untrained one, but not yet better
# than raw pixels.
#
# The files
# ---------

for path in sorted(folder.iterdir()):
    print(path.name + ("/" if path.is_dir() else ""))

# %%
# ``run.html`` is the page of the run: open it in a browser. It has the summary, charts, views,
# a 2-D map of the encodings and nearest neighbours, and needs no network.
#
# ``metrics.csv`` has a row for each round.

with open(folder / "metrics.csv", newline="") as file:
    rows = list(csv.DictReader(file))
print(", ".join(rows[0]))

figure, axes = plt.subplots(figsize=(5, 3))
axes.plot([int(row["round"]) for row in rows], [float(row["loss"]) for row in rows])
axes.set_xlabel("round")
axes.set_ylabel("loss")
figure.tight_layout()

# %%
# ``result.json`` has the figures of the table, for programs.

for result in json.loads((folder / "result.json").read_text()):
    untrained = result["baselines"]["random_encoder"]["accuracy"]
    print(f"{result['labels']} labels: {result['accuracy']:.3f}, untrained {untrained:.3f}")

# %%
# ``config.json`` has every flag, so that a run can be repeated.

config = json.loads((folder / "config.json").read_text())
print(", ".join(config))

# %%
# Continue
# --------
# ``--resume --output_dir=RUN`` continues a run that was stopped, or one that has ended, with more
# rounds. After an interruption the weights are those of a run that never stopped, bit for bit.
