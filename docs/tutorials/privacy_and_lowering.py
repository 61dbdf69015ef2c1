"""
Privacy and lowering
====================

This tutorial trains with differential privacy for a few rounds, and then writes an algorithm's
round in the forms that production stacks accept, with secure sums.
"""

import collections
import pathlib
import tempfile

import tensorflow as tf
import tensorflow_federated as tff
from sklearn.datasets import load_digits

import tff_ssl
from tff_ssl.aggregation import differential_privacy
from tff_ssl.deployment import lowering
from tff_ssl.templates import message_sizes

# %%
# Differential privacy
# --------------------
# Each client's contributions are clipped, and noise is added to their means. The amount of noise
# follows from the epsilon that all rounds together may spend.

digits = load_digits()
owners = tff_ssl.partition(digits.target, "dirichlet", alpha=0, samples_per_client=4)
clients = [digits.images[owner][..., None] / 16 for owner in owners]
run = tff_ssl.train(
    clients, algorithm="dcco", rounds=2, views="affine", projector=16, clients_per_round=16,
    sampling="poisson", client_weighting="uniform", dp_epsilon=8, dp_clip=1, dp_statistics_clip=15,
)  # fmt: skip
for row in run.metrics:
    print(f"after round {row['round']:.0f}: epsilon {row['epsilon']:.2f}")

# %%
# The guarantee covers the model, and what clients receive. It does not cover:

for text in differential_privacy.NOT_COVERED:
    print("-", text)

# %%
# An algorithm for a production stack
# -----------------------------------
# ``build_algorithm`` gives the computations of an algorithm. With this aggregator, the server sees
# sums over clients, but no client's model.


def two_views(images, ids, round_number):
    return tff_ssl.two_views("affine", images, ids, seed=0, round_number=round_number)


example = collections.OrderedDict(
    example_id=tf.TensorSpec([], tf.int64), image=tf.TensorSpec([8, 8, 1], tf.uint8)
)
task = tff_ssl.Task(
    model=tff_ssl.DualEncoder("tiny", (8, 8, 1), projector=(32, 32)),
    two_views=two_views,
    element_type=tff.types.tensorflow_to_type(example),
    rounds=100,
    objective="nt_xent",
)
secure = tff.learning.secure_aggregator()
algorithm = tff_ssl.build_algorithm("fedavg", task, update_aggregator=secure)

# %%
# Lowering
# --------
# TFF compiles the round to the forms that production stacks run.

folder = pathlib.Path(tempfile.mkdtemp())
for name, lowerable in algorithm.rounds_to_lower().items():
    lowered = lowering.lower(lowerable.next)
    lowering.save(folder / name, lowerable, lowered)
    print(name, "converts to", ", ".join(lowered.forms))
for path in sorted(folder.rglob("*.pb")):
    print(path.relative_to(folder))

# %%
# The types of the round say how many bytes a client receives and sends, and how many of these are
# summed securely.

down, up = message_sizes.client_bytes(lowerable.next)
sent = [m.type_spec for m in message_sizes.messages(lowerable.next) if m.is_secure]
print(f"down {down:,}, up {up:,}, securely {message_sizes.total_bytes(sent):,} bytes")

# %%
# ``uv run python -m launch.lower`` does the same in a terminal, with the flags of a run. See
# :doc:`../production` and :doc:`../privacy`.
