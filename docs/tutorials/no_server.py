"""
Training without a server
=========================

Twenty clients are linked by a random network. In DeNAV, one model travels through it. The client
that holds the model trains it, and a navigator chooses the next client.
"""

import csv
import pathlib
import tempfile

import matplotlib.pyplot as plt
import networkx as nx
from sklearn.datasets import load_digits

import tff_ssl
from tff_ssl.decentralized import topology

# %%
# The network
# -----------
# Each client has images of a few digits. A network can also be drawn before the training.

digits = load_digits()
owners = tff_ssl.partition(
    digits.target, "dirichlet_per_class", alpha=0.5, num_clients=20, min_client_size=10
)
clients = [digits.images[owner][..., None] / 16 for owner in owners]
network = topology.make("erdos_renyi", len(clients), connectivity=0.3, seed=0)
figure, axes = plt.subplots(figsize=(6, 4))
sizes = [2 * len(owner) for owner in owners]
nx.draw_kamada_kawai(network, ax=axes, with_labels=True, node_size=sizes, node_color="lightblue")

# %%
# A model travels
# ---------------
# In a step, one client trains the model. Client 3 leaves the network after step 6.

folder = pathlib.Path(tempfile.mkdtemp()) / "run"
run = tff_ssl.train(
    clients, algorithm="denav", rounds=10, folder=folder, views="affine", objective="nt_xent",
    topology="erdos_renyi", connectivity=0.3, leave="6:3", client_learning_rate=0.001,
)  # fmt: skip

# %%
# The route
# ---------
# ``client_metrics.csv`` says which clients trained the model, in which order.

with open(folder / "client_metrics.csv", newline="") as file:
    rows = list(csv.DictReader(file))
print(" -> ".join(row["client"] for row in rows))

# %%
# What was sent
# -------------
# A step sends one model to one client. In gossip learning, every client would send its model to all
# its neighbours in every round.

print(sum(row["bytes"] for row in run.metrics), "bytes")

# %%
# ``uv run python -m launch.pretrain --algorithm=denav`` also draws the route on the network. See
# :doc:`../decentralized`.
