"""Communication of DeNAV; `decentralized.traffic` counts that of other algorithms."""

from collections.abc import Iterable, Sequence

import networkx as nx

from tff_ssl.algorithms.denav.route import Step
from tff_ssl.algorithms.denav.state_log import log_bytes
from tff_ssl.decentralized.traffic import Traffic, whole_number


def of_steps(steps: Iterable[Step], model_bytes: int) -> Traffic:
    """Traffic of a model's steps: the model and its log, unless the model stayed where it was."""
    total = Traffic()
    for step in steps:
        sent = step.sender is not None and step.sender != step.client
        size = model_bytes + log_bytes(len(step.received.visits))
        total += Traffic(sent, sent * size, step.messages, step.message_bytes)
    return total


def synchronization(graph: nx.Graph, starts: Sequence[int], model_bytes: int) -> Traffic:
    """Traffic before parallel training: the first client sends its model to the others (A.4.1).

    The network is connected, and a log without entries is sent with each model.
    """
    hops = nx.single_source_shortest_path_length(graph, starts[0])
    models = sum(hops[client] for client in starts[1:])
    return Traffic(models, models * (model_bytes + log_bytes(0)))


def published_transmissions(epochs: int, local_epochs: int) -> int:
    """Table 3's count for DeNAV: one transmission for each step of K epochs, of all local epochs.

    An upper bound of what `of_steps` counts: it includes a transmission after the last step, and
    those of models that stay with their client. A ValueError if steps are not whole.
    """
    return whole_number(epochs, local_epochs, "steps")
