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

from docs.tutorials.terminal import run

# %%
# Train
# -----
# Each client has two of the ten digits. ``--personalized_clients=2`` also evaluates the models of
# two clients.

folder = pathlib.Path(tempfile.mkdtemp()) / "run"
run(
    "launch.pretrain --algorithm=fedu --rounds=4 --eval_every=0 --personalized_clients=2 "
    f"--label_draws=2 --output_dir={folder}"
)

# %%
# The states
# ----------
# Each client's state is in its own file, which TFF's worker reads and writes inside the round.

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
figure, axes = plt.subplots(figsize=(5, 3))
for client in sorted({row["client"] for row in rows}):
    own = [row for row in rows if row["client"] == client]
    rounds = [int(row["round"]) for row in own]
    divergences = [float(row["squared_divergence"]) for row in own]
    axes.plot(rounds, divergences, marker="o", label=f"client {client}")
axes.set_xlabel("round")
axes.set_ylabel("squared divergence")
axes.legend(fontsize=8)
figure.tight_layout()
