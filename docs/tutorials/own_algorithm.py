"""
Your own algorithm
==================

An algorithm is a function that builds TFF computations from parts. This tutorial builds one in 40
lines, in which clients share the encoder and each keeps a projector of its own, and trains for a
few rounds in this process. :doc:`../your_own_algorithm` explains every part, and how to add an
algorithm to the registry, so that all scripts offer it.
"""

import collections
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import sklearn.datasets
import tensorflow as tf
import tensorflow_federated as tff

import tff_ssl
from tff_ssl.kinds.stateful.algorithm import (
    ClientEnd,
    ClientStart,
    build_stateful_clients,
    client_work_around_training,
)
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.client_output import previous_if_empty
from tff_ssl.templates.local_training import build_local_training

# %%
# The algorithm
# -------------
# A client's state is the weights of its projector. At the start of a round, the client puts its
# own projector into the global model; at the end, it keeps the trained projector.


class ClientState(NamedTuple):
    """The trainable weights of a client's own projector."""

    projector: Any


def build_own_projectors(task, hyperparameters):
    model = task.model
    shared = sum(not spec.name.startswith("projector/") for spec in model.trainable_specs)
    training = build_local_training(task, hyperparameters)

    def initial_client_state(seed):
        return ClientState(tuple(model.init(seed).trainable)[shared:])

    def start_round(server, state):
        own = (*tuple(server.trainable)[:shared], *tuple(state.projector))
        return ClientStart(Weights(own, tuple(server.non_trainable)), Weights((), ()))

    def end_round(state, start, trained):
        projector = tuple(trained.weights.trainable)[shared:]
        return ClientEnd(ClientState(projector), trained.weights, {})

    return build_stateful_clients(
        initial_model=model.init,
        initial_client_state=initial_client_state,
        client_work=client_work_around_training(training, start_round, end_round),
        server_update=lambda server, means: previous_if_empty(server, means[0]),
        element_type=task.element_type,
        global_weights=lambda server: server,
        client_weights=lambda server, state: server,
    )


# %%
# The task
# --------
# Four clients with 60 digits each, a tiny encoder, and the contrastive loss.

digits = sklearn.datasets.load_digits()
images = (digits.images * 255 / 16).astype(np.uint8)[..., np.newaxis]
clients = [
    tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(
            client=np.full(60, client), example_id=numbers, image=images[numbers]
        )
    )
    for client, numbers in enumerate(np.arange(240).reshape(4, 60))
]


def two_views(images, example_ids, round_number):
    return tff_ssl.two_views("affine", images, example_ids, seed=0, round_number=round_number)


task = tff_ssl.Task(
    model=tff_ssl.DualEncoder("tiny", (8, 8, 1), projector=(32, 32)),
    two_views=two_views,
    element_type=tff.types.tensorflow_to_type(clients[0].element_spec),
    rounds=6,
    objective="nt_xent",
)
algorithm = build_own_projectors(task, ClientHyperparameters(batch_size=30, local_epochs=2))
print("weights of the model:", len(task.model.trainable_specs))
print("weights of a client's state:", len(algorithm.initial_client_state(0).projector))

# %%
# Training
# --------
# ``next`` takes the server's state, the clients' states and the clients' data. It returns the new
# states and metrics. TensorFlow computes it in this process.

losses = []
with tff_ssl.runtime.start():
    server = algorithm.process.initialize()
    states = [tf.nest.map_structure(np.asarray, algorithm.initial_client_state(0))] * len(clients)
    for _ in range(task.rounds):
        output = algorithm.process.next(server, states, clients)
        server, states = output.state, output.client_states
        losses.append(float(output.metrics["loss"]))

_, axes = plt.subplots(figsize=(5, 3), layout="tight")
axes.plot(range(1, len(losses) + 1), losses, marker="o")
axes.set(xlabel="round", ylabel="contrastive loss")

# %%
# The clients share one encoder, but their projectors now differ:

first, second = (np.asarray(state.projector[0]) for state in states[:2])
print("distance of the first two clients' projectors:", np.linalg.norm(first - second))
