"""Rounds on several nodes of Ray, measured by `benchmark` against the same ones on fewer."""

import contextlib
import pathlib
import statistics
from collections.abc import Generator
from typing import Any

from launch.benchmarks import processes, programs
from launch.benchmarks.programs import Work

_SLEEP_SECONDS = 0.1  # Per example and stage, where clients are slow.


def compare(projection: int, seed: int, repetitions: int, scratch: str) -> list[dict[str, Any]]:
    """Two nodes against no Ray, and against one with slow clients: `ray` of `benchmark.json`."""
    plain = (
        programs.ModelSettings("small", (projection,) * 3),
        Work("dcco", "cco", 32, 16),
        2,
        False,
    )
    slow = (programs.ModelSettings("tiny", (32, 32)), Work("dcco", "cco", 8, 4), 0, True)
    pairs = (
        ("2 nodes against none", plain, ("local:2", None)),
        ("2 nodes against 1, slow clients", slow, ("local:2", "local:1")),
    )
    return [_pair(*pair, seed, repetitions, scratch) for pair in pairs]


def _pair(name, work, clusters, seed, repetitions, scratch) -> dict[str, Any]:
    """Measures `rounds_on_nodes` of the same work, on the first cluster against the second."""
    children: dict[str, processes.Child] = {}
    with processes.closing(children):
        for number, ray in enumerate(clusters):
            children[str(number)] = processes.Child(
                rounds_on_nodes, ray, *work, seed, f"{scratch}/{name}.{number}"
            )
        seconds = processes.time_in_turn(children, repetitions)
    return {
        "name": name,
        "seconds": statistics.median(seconds["0"]),
        "against_seconds": statistics.median(seconds["1"]),
        "ratio": processes.median_ratio(seconds["0"], seconds["1"]),
    }


def rounds_on_nodes(
    ray: str | None,
    settings: programs.ModelSettings,
    work: Work,
    groups: int,
    is_slow: bool,
    seed: int,
    folder: str,
) -> Generator[dict[str, int], None, None]:
    """Rounds of DCCO with all clients, as a program of `processes.Child`.

    Args:
      ray: Address of the cluster, see `ray_cluster.connected`; None for this machine alone.
      groups: Number of groups into which clients are folded; 0 for none.
      is_slow: Whether reading an example takes `_SLEEP_SECONDS`.
      folder: New folder for the clients' images.

    Yields:
      The number of nodes.
    """
    programs.quiet()
    from tff_ssl.runtime import ray_nodes, start
    from tff_ssl.runtime.sliced_rounds import Slicing

    store = pathlib.Path(folder) / "clients.sqlite"
    store.parent.mkdir()
    programs.write_clients(store, work, seed)
    built, stored = programs.build(store, work, {}, settings, seed)
    run = built.plan_run(programs.run_setting(work, groups, seed))
    data = stored.group_batch_computation
    data = _slowed(data) if is_slow else data
    nodes_or_none = ray_nodes.ray_nodes(ray, [store]) if ray else contextlib.nullcontext()
    with nodes_or_none as nodes, start():
        slicing = Slicing(nodes, stored.client_sizes(), work.clients) if nodes is not None else None
        for _ in programs.states(run.simulate(data, store.parent, slicing), seed):
            yield {"nodes": len(nodes or ())}


def _slowed(data):
    """The computation of the clients' data, with a pause of `_SLEEP_SECONDS` at each example."""
    import tensorflow_federated as tff
    from tensorflow.python.data.experimental.ops import testing

    @tff.tensorflow.computation(data.type_signature.parameter)
    def slow(indices):
        return data(indices).apply(testing.sleep(int(_SLEEP_SECONDS * 1e6)))

    return slow
