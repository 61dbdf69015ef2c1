"""
Training without a server
=========================

Twenty clients are linked by a random network. In DeNAV, one model travels through it. The client
that holds the model trains it, and a navigator chooses the next client.
"""

import pathlib
import tempfile

import matplotlib.pyplot as plt

from docs.tutorials.terminal import run

# %%
# A model travels
# ---------------
# In a step, one client trains the model. Client 3 leaves the network after step 6.

folder = pathlib.Path(tempfile.mkdtemp()) / "run"
run(
    "launch.pretrain --algorithm=denav --rounds=10 --eval_every=5 --label_draws=2 --leave=6:3 "
    f"--output_dir={folder}"
)

# %%
# The network and the route
# -------------------------
# The area of a client shows its number of images, and the colour its computing rank.


def show(name):
    picture = plt.imread(folder / name)
    figure, axes = plt.subplots(figsize=(picture.shape[1] / 150, picture.shape[0] / 150))
    axes.imshow(picture)
    axes.axis("off")
    figure.tight_layout()


show("network.png")

# %%
# The route of the model shows which clients trained it, and in which order.

show(min(path.name for path in folder.glob("route_*.png")))

# %%
# What was sent
# -------------
# The end of the output has the numbers of models and bytes. In gossip learning, every client would
# have sent its model to all its neighbours in every round.
