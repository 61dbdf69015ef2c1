"""Rounds on several nodes of Ray, measured by `benchmark` against the same ones on fewer."""

import pathlib
import statistics
from collections.abc import Generator
from typing import Any

import numpy as np

from launch.benchmarks import processes

_SLEEP_SECONDS = 0.1  # For each example, in each stage.


def compare(args: Any, scratch: str) -> list[dict[str, Any]]:
    """Two ratios: two nodes against no Ray, and against one node where clients are slow."""
    plain = (processes.Network("small", (args.projection,) * 3), 32, 16, 2, False)
    slow = (processes.Network("tiny", (32, 32)), 8, 4, 0, True)
    return [
        _pair("2 nodes against none", plain, ("local:2", None), args, scratch),
        _pair("2 nodes against 1, slow clients", slow, ("local:2", "local:1"), args, scratch),
    ]


def _pair(name, work, where, args, scratch) -> dict[str, Any]:
    programs = {}
    try:
        for number, ray in enumerate(where):
            programs[str(number)] = processes.Child(
                rounds_on_nodes, ray, *work, args.seed, f"{scratch}/{name}.{number}"
            )
        seconds = processes.in_turn(programs, args.repetitions)
    finally:
        for child in programs.values():
            child.close()
    pairs = zip(seconds["0"], seconds["1"], strict=True)
    return {
        "name": name,
        "seconds": statistics.median(seconds["0"]),
        "against_seconds": statistics.median(seconds["1"]),
        "ratio": statistics.median(a / b for a, b in pairs),
    }


def rounds_on_nodes(
    ray: str | None,
    network: processes.Network,
    clients: int,
    samples: int,
    groups: int,
    is_slow: bool,
    seed: int,
    folder: str,
) -> Generator[dict[str, int], None, None]:
    """Rounds of DCCO, for ever; yields the number of nodes.

    Args:
      ray: See `ray_nodes.ray_nodes`; None for this machine alone.
      network: The model.
      clients: Of a round.
      samples: Of a client.
      groups: Into which clients are folded; 0 for none.
      is_slow: Whether each example takes a while.
      seed: Of images and weights.
      folder: Is made.
    """
    processes.quiet()
    import contextlib

    import tensorflow_federated as tff

    from datasets import client_store
    from datasets.image_dataset import Split
    from tff_ssl.algorithms.dcco import two_stage
    from tff_ssl.runtime import local_worker, ray_nodes, sliced_rounds
    from tff_ssl.simulation import cohort, with_server
    from tff_ssl.templates.task import Task

    model, two_views = processes.model_and_views(network, seed)
    count = clients * samples
    store = pathlib.Path(folder) / "clients.sqlite"
    store.parent.mkdir()
    split = Split(processes.images(count, seed), np.zeros(count, np.int32), np.arange(count))
    client_store.write_store(store, split, list(np.arange(count).reshape(clients, samples)))
    stored = client_store.StoredClientData(store)
    data = stored.group_dataset_computation
    element_type = tff.types.tensorflow_to_type(stored.element_type_structure)
    computations = two_stage.build_dcco(Task(model, two_views, element_type, 1000))
    data = _slowed(data) if is_slow else data
    nodes_or_none = ray_nodes.ray_nodes(ray, [store]) if ray else contextlib.nullcontext()
    with nodes_or_none as nodes, local_worker.start():
        next_round = None
        if nodes is not None:
            next_round = sliced_rounds.SlicedStatelessClients(
                computations, data, stored.client_sizes(), clients, nodes
            )
        run = with_server.StatelessClientsSimulation(
            computations.process,
            data,
            model,
            computations.initial_weights,
            cohort.uniform_cohorts(clients, clients, seed),
            groups,
            next_round=next_round,
        )
        state = run.initialize(seed)
        for round_number in range(1_000_000):
            state, _ = run.run_round(state, round_number)
            yield {"nodes": len(nodes or ())}


def _slowed(data):
    """The clients' data, of which each example takes a while."""
    import tensorflow_federated as tff
    from tensorflow.python.data.experimental.ops import testing

    @tff.tensorflow.computation(data.type_signature.parameter)
    def slow(indices):
        return data(indices).apply(testing.sleep(int(_SLEEP_SECONDS * 1e6)))

    return slow
