"""
Clients with memory
===================

In FedU, five clients train BYOL. Each keeps its target network, and its own predictor while the
global one is too far away. This tutorial trains for four rounds and looks at what the clients keep.
"""

import csv
import pathlib
import tempfile

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import tff_ssl

# %%
# Train
# -----
# Each client has two of the ten digits. BYOL needs a predictor. On images of this size, it also
# needs batch norm, without which the encodings collapse.

digits = load_digits()
owners = tff_ssl.partition(digits.target, "skew", beta=0, num_clients=5)
clients = [digits.images[owner][..., None] / 16 for owner in owners]
folder = pathlib.Path(tempfile.mkdtemp()) / "run"
run = tff_ssl.train(
    clients, algorithm="fedu", rounds=4, clients_per_round=5, folder=folder, views="affine",
    norm="batch", projector=(128, 64), predictor=(128, 64), projector_output_batch_norm=True,
    client_optimizer="adam", client_learning_rate=0.001, batch_size=64, mu=1.15,
)  # fmt: skip

# %%
# The states
# ----------
# Each client's state is in its own file, which is read and written inside the round.

for path in sorted((folder / "client_states").rglob("*")):
    if path.is_file():
        print(path.relative_to(folder), path.stat().st_size, "bytes")

# %%
# The clients' metrics
# --------------------
# ``client_metrics.csv`` has a row for each client and round. The divergence is how far local
# training has moved a client's encoder. DAPU compares it with the threshold mu.

with open(folder / "client_metrics.csv", newline="") as file:
    rows = list(csv.DictReader(file))
_, axes = plt.subplots(figsize=(5, 3), layout="tight")
for client in sorted({row["client"] for row in rows}):
    own = [row for row in rows if row["client"] == client]
    divergences = [float(row["squared_divergence"]) for row in own]
    axes.plot([int(row["round"]) for row in own], divergences, "o-", label=f"client {client}")
axes.set(xlabel="round", ylabel="squared divergence")
axes.legend(fontsize=8)

# %%
# :doc:`../clients_with_memory` describes the algorithms whose clients keep a state.
